"""One training step, simulated: forwards and backwards of every stage, what passes between them, and gradients.

Each pipeline rank has a stream of kernels, one of collectives of its parameters and gradients, and two for what it
sends. Forwards and backwards run in the order of the schedule. Gradients of a layer are reduced while those of the
layer before it are computed: in the last microbatch, or in each where ranks share gradients (ZeRO-2 and 3). Parameters
that ZeRO shares are gathered while the layer before is computed, once in a step, or for each pass under ZeRO-3.
Replicas of the model that have stragglers are simulated beside one that has none, and collectives over replicas wait
for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.schedule.planning.pipelines import Action, needs
from tessera.planner.cluster import Cluster
from tessera.planner.events import COMPUTE, GRADIENTS, SEND, Event, Simulation, merge_spans, overlap_of
from tessera.planner.model_cost import LayerCost, ModelCost
from tessera.planner.step_costs import Parts, StepCosts, Traffic
from tessera.planner.training_plan import Memory, TrainingPlan, check_plan, memory_of
from tessera.types.frozen import frozen

PREFETCHED = 2
"""Layers whose parameters are there under ZeRO-3: the one that computes, and the next."""
MOST_PROFILES = 8
"""Replicas with stragglers that are simulated one by one; of more, the slowest."""


@frozen
class Step:
    """A simulated step: nanoseconds, and what came of them.

    `bubble` is the share of the step in which a rank has nothing to compute and no collective of its own to wait for,
    `exposed` that in which kernels wait for collectives, both over all pipeline ranks; `overlap` is the share of the
    collectives' time during which kernels run.
    """

    plan: TrainingPlan
    time: float
    bubble: float
    exposed: float
    overlap: float
    mfu: float
    tokens: float
    """Tokens of a second, of all ranks."""
    memory: tuple[Memory, ...]
    traffic: tuple[Traffic, ...]
    events: tuple[Event, ...]

    @property
    def fits(self) -> bool:
        return all(one.fits for one in self.memory)

    @property
    def worst_memory(self) -> Memory:
        return max(self.memory, key=lambda one: one.total)

    def as_json(self) -> dict[str, Any]:
        """Plain values, without the events."""
        plan = self.plan
        names = ("dp", "tp", "pp", "sp", "ep", "batch", "microbatch", "schedule", "chunks", "zero", "recompute")
        return {
            "plan": {name: getattr(plan, name) for name in names},
            "ranks": plan.ranks,
            "step_seconds": self.time / 1e9,
            "tokens_per_second": self.tokens,
            "mfu": self.mfu,
            "bubble": self.bubble,
            "exposed": self.exposed,
            "overlap": self.overlap,
            "fits": self.fits,
            "memory": [one.as_json() for one in self.memory],
            "traffic": [one.as_json() for one in self.traffic],
        }


def simulate(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> Step:
    """Run one step of a plan; raises ScheduleError (T0401) where the plan cannot be carried out."""
    check_plan(plan, model, cluster)
    costs = StepCosts(plan, model, cluster)
    builder = _Builder(costs)
    profiles = slow_profiles(plan, costs.cluster)
    for number, slowdowns in enumerate(profiles):
        builder.add_replica(number, slowdowns)
    builder.synchronize()
    events = builder.simulation.run()
    time = max(event.end for event in events)
    bubble, exposed, overlap = _shares(events, builder.hidden, plan.pp, len(profiles), time)
    peak = costs.cluster.device.peak(model.dtype)
    mfu = model.training_flops * plan.batch / (time * plan.ranks * peak)
    return Step(
        plan,
        time,
        bubble,
        exposed,
        overlap,
        mfu,
        plan.batch * model.sequence / time * 1e9,
        tuple(memory_of(plan, model, cluster)),
        tuple(costs.traffic()),
        tuple(event for event in events if event.work.stream[1] == 0),
    )


def slow_profiles(plan: TrainingPlan, cluster: Cluster) -> list[list[float]]:
    """The slowdown of each pipeline rank, of a replica without stragglers and of each kind with some."""
    found = {(1.0,) * plan.pp: None}
    if cluster.stragglers:
        width = plan.sp * plan.tp
        for replica in range(plan.dp):
            starts = [(rank * plan.dp + replica) * width for rank in range(plan.pp)]
            slow = tuple(cluster.slowdown(range(start, start + width)) for start in starts)
            found.setdefault(slow)
    whole, *slow = found
    return [list(one) for one in (whole, *sorted(slow, key=max, reverse=True)[:MOST_PROFILES])]


class _Builder:
    """Makes the tasks of a step, replica after replica; those of each have the same order."""

    def __init__(self, costs: StepCosts) -> None:
        self.costs, self.plan = costs, costs.plan
        self.pipe = costs.plan.pipeline
        self.stages = costs.model.stages(self.plan.pp * self.plan.chunks)
        self.orders = [self.pipe.order(rank) for rank in range(self.plan.pp)]
        self.simulation = Simulation()
        self.hidden = 0.0
        """Nanoseconds of collectives within layers that kernels hide, of all ranks."""
        self.send = costs.send()
        self._first: dict[tuple[int, int, Action], int] = {}
        self._last: dict[tuple[int, int, Action], int] = {}
        self._syncs: list[list[tuple[int, list[int]]]] = []

    def add_replica(self, replica: int, slowdowns: Sequence[float]) -> None:
        """All tasks of one replica of the model."""
        self._syncs.append([])
        for rank in range(self.plan.pp):
            self._add_rank(replica, rank, slowdowns[rank])
        for rank, order in enumerate(self.orders):
            for action in order:
                self._connect(replica, rank, action)

    def _add_rank(self, replica: int, rank: int, slowdown: float) -> None:
        stream = (COMPUTE, replica, rank)
        done: list[int] = []
        for action in self.orders[rank]:
            layers = self.stages[action.chunk * self.plan.pp + rank]
            key = replica, rank, action
            if self._is_split(action):
                self._first[key], self._last[key] = self._add_layers(stream, action, layers, slowdown, done)
            else:
                parts = self._total(layers, action.kind)
                time = parts.kernels * slowdown + parts.exposed
                made = self.simulation.add(str(action), stream, time, exposed=parts.exposed)
                self.hidden += parts.collectives - parts.exposed if replica == 0 else 0.0
                self._first[key] = self._last[key] = made
            if self._leaves(rank, action):
                link = (SEND if action.kind == "F" else f"{SEND} back", replica, rank)
                self._last[key] = self.simulation.add(f"send {action}", link, self.send.time, [self._last[key]])
        held = [layer for chunk in self.stages[rank :: self.plan.pp] for layer in chunk]
        last = [number for number, _ in self._syncs[replica][-1:] if rank == self.simulation.tasks[number].stream[2]]
        self.simulation.add("update", stream, self.costs.optimizer(held) * slowdown, last)

    def _is_split(self, action: Action) -> bool:
        """Whether collectives run between the layers of an action, so that each is a task."""
        if self.plan.replicas == 1 or self.plan.zero >= 3:
            return self.plan.replicas > 1
        if action.kind == "F":
            return self.plan.zero >= 1 and action.microbatch == 0
        return self.plan.zero >= 2 or action.microbatch == self.pipe.microbatch - 1

    def _leaves(self, rank: int, action: Action) -> bool:
        """Whether what an action gives goes to another rank."""
        own = action.chunk * self.plan.pp + rank
        following = own + (1 if action.kind == "F" else -1)
        return self.plan.pp > 1 and 0 <= following < len(self.stages)

    def _total(self, layers: Sequence[LayerCost], kind: str) -> Parts:
        made = Parts(0.0, 0.0, 0.0)
        for layer in layers:
            made = made.plus(self.costs.layer(layer, kind))
        return made

    def _add_layers(
        self,
        stream: tuple[str, int, int],
        action: Action,
        layers: Sequence[LayerCost],
        slowdown: float,
        done: list[int],
    ) -> tuple[int, int]:
        """An action layer by layer, with the collectives of parameters and gradients beside it; its first and last."""
        _, replica, rank = stream
        link, syncs = (GRADIENTS, replica, rank), self._syncs[replica]
        own = 0.0
        if not self.costs.cluster.device.overlaps:
            link, own = stream, 1.0
        made: list[int] = []
        for layer in layers if action.kind == "F" else list(reversed(layers)):
            after: list[int] = []
            gather = sum(one.time for one in self.costs.gather(layer))
            if gather and (action.kind == "F" or self.plan.zero >= 3):
                before = done[-PREFETCHED : -PREFETCHED + 1 or None] if self.plan.zero >= 3 else []
                after = [self.simulation.add(f"gather {layer.name} {action}", link, gather, (), own * gather)]
                syncs.append((after[0], before))
            parts = self.costs.layer(layer, action.kind)
            time = parts.kernels * slowdown + parts.exposed
            self.hidden += parts.collectives - parts.exposed if replica == 0 else 0.0
            made.append(self.simulation.add(f"{action} {layer.name}", stream, time, after, parts.exposed))
            done.append(made[-1])
            reduce = sum(one.time for one in self.costs.gradients(layer))
            if action.kind == "B" and reduce:
                number = self.simulation.add(f"reduce {layer.name} {action}", link, reduce, (), own * reduce)
                syncs.append((number, [made[-1]]))
        if not made:  # a stage without layers passes on what it gets
            made.append(self.simulation.add(str(action), stream, 0.0))
        return made[0], made[-1]

    def _connect(self, replica: int, rank: int, action: Action) -> None:
        first = self.simulation.tasks[self._first[replica, rank, action]]
        for other, need in needs(self.pipe, rank, action):
            if other != rank or need.kind == action.kind:
                first.after.append(self._last[replica, other, need])

    def synchronize(self) -> None:
        """Let each collective over replicas wait for what all of them give to it."""
        same: tuple[tuple[int, list[int]], ...]
        for same in zip(*self._syncs, strict=True):
            before = [number for _, own in same for number in own]
            for number, _ in same:
                self.simulation.tasks[number].after.extend(before)


def _shares(
    events: Sequence[Event], hidden: float, ranks: int, profiles: int, time: float
) -> tuple[float, float, float]:
    """Bubble, exposed collectives, and the part of collectives that is hidden, of the replica without stragglers."""
    idle = awaited = inline = apart = 0.0
    streams: dict[tuple[str, int, int], list[Event]] = {}
    for event in events:
        streams.setdefault(event.work.stream, []).append(event)
    for rank in range(ranks):
        own = streams[COMPUTE, 0, rank]
        busy = merge_spans([(one.start, one.end) for one in own if one.end > one.start])
        moving = [one for kind in (GRADIENTS, SEND, f"{SEND} back") for one in streams.get((kind, 0, rank), ())]
        spans = merge_spans([(one.start, one.end) for one in moving])
        length = sum(high - low for low, high in spans)
        waiting = length - overlap_of(busy, spans)
        idle += time - sum(high - low for low, high in busy) - waiting
        awaited += waiting
        inline += sum(one.work.exposed for one in own)
        apart += length
    whole = apart + inline + hidden
    overlap = 1.0 - (awaited + inline) / whole if whole else 1.0
    return max(0.0, idle / (time * ranks)), (awaited + inline) / (time * ranks), overlap
