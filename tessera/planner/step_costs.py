"""How long the parts of a training step take on a cluster: kernels of a layer, and collectives over each mesh axis.

Kernels take their operations at the cluster's share of the peak, and the bytes between matmuls at that of the memory's
bandwidth. Collectives are those of `ir/schedule/planning/collectives.py`, on the part of the topology that an axis
spans, as all groups along it communicate together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tessera.ir.schedule.planning.collectives import Plan, plan_collective, topology_of_axis
from tessera.planner.cluster import Cluster
from tessera.planner.model_cost import LayerCost, ModelCost
from tessera.planner.training_plan import TrainingPlan, local_parameters
from tessera.types.frozen import frozen
from tessera.types.topology import Topology

BACKWARD_BYTES = 2.0
"""Bytes that ops between matmuls move in a backward, against a forward: they read what was kept, and two cotangents."""


@frozen
class Parts:
    """What a layer takes on a rank: nanoseconds of kernels, of collectives within it, and those that kernels await."""

    kernels: float
    collectives: float
    exposed: float

    def plus(self, other: Parts) -> Parts:
        return Parts(self.kernels + other.kernels, self.collectives + other.collectives, self.exposed + other.exposed)


@frozen
class Traffic:
    """Bytes that each rank sends in a step for one purpose, by the link that holds it back, and nanoseconds of it."""

    purpose: str
    call: str
    link: str
    calls: float
    sent: float
    time: float

    def plus(self, other: Traffic) -> Traffic:
        made = (self.calls + other.calls, self.sent + other.sent, self.time + other.time)
        return Traffic(self.purpose, self.call, self.link, *made)

    def as_json(self) -> dict[str, object]:
        """Plain values, by name."""
        names = ("purpose", "call", "link", "calls", "sent", "time")
        return {name: getattr(self, name) for name in names}


class StepCosts:
    """Times of the parts of one plan; `traffic()` adds up what its collectives move in a step."""

    def __init__(self, plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> None:
        self.plan, self.model, self.cluster = plan, model, cluster.part(plan.ranks)
        self.share = plan.microbatch / plan.sp
        self._collectives: dict[tuple[str, str, int], Plan] = {}
        self._layers: dict[tuple[LayerCost, str], Parts] = {}

    @cached_property
    def _axes(self) -> Mapping[str, tuple[dict[str, int], str]]:
        plan = self.plan
        outer = plan.replicas // plan.ep
        return {
            "tp": (plan.mesh, "tp"),
            "sp": (plan.mesh, "sp"),
            "replicas": ({"pp": plan.pp, "replicas": plan.replicas, "tp": plan.tp}, "replicas"),
            "ep": ({"pp": plan.pp, "outer": outer, "ep": plan.ep, "tp": plan.tp}, "ep"),
            "experts": ({"pp": plan.pp, "experts": outer, "ep": plan.ep, "tp": plan.tp}, "experts"),
        }

    @cached_property
    def _topologies(self) -> Mapping[str, Topology]:
        links = self.cluster.links
        return {name: topology_of_axis(links, mesh, axis) for name, (mesh, axis) in self._axes.items()}

    def collective(self, axis: str, call: str, bytes: float) -> Plan:
        """The fastest plan of a collective over an axis, of the bytes that `plan_collective` counts."""
        key = axis, call, round(bytes)
        if key not in self._collectives:
            self._collectives[key] = plan_collective(call, key[2], self._topologies[axis])
        return self._collectives[key]

    def layer(self, layer: LayerCost, kind: str) -> Parts:
        """A layer's forward (`F`) or backward (`B`) of one microbatch, with what is recomputed for it."""
        key = layer, kind
        if key not in self._layers:
            made = self._pass(layer, kind)
            if kind == "B" and self.plan.recompute == "full" and layer.name == "block":
                made = made.plus(self._pass(layer, "F"))
            self._layers[key] = made
        return self._layers[key]

    def _pass(self, layer: LayerCost, kind: str) -> Parts:
        plan, device, reached = self.plan, self.cluster.device, self.cluster.efficiency
        peak = device.peak(self.model.dtype)
        times, again, bytes = (
            (1.0, 1.0, 1.0) if kind == "F" else (layer.backward, layer.attention_backward, BACKWARD_BYTES)
        )
        matmul = times * layer.matmul / plan.tp * self.share / (peak * reached.matmul)
        attention = again * layer.attention / plan.tp * self.share / (peak * reached.attention)
        if kind == "B" and plan.recompute == "selective" and layer.cheap:
            bytes += 1.0  # at most what a forward moves, to compute norms and activation functions
        whole = layer.moved_whole / (plan.tp if plan.sequence_parallel else 1)
        moved = bytes * (layer.moved / plan.tp + whole) * self.share / (device.memory_bandwidth * reached.memory)
        inline = sum(one.time for one in self._inline(layer, kind))
        ring = sum(one.time for one in self._ring(layer, kind))
        # Keys and values go around while attention computes on those that are there.
        return Parts(matmul + attention + moved, inline + ring, inline + max(0.0, ring - attention))

    def _inline(self, layer: LayerCost, kind: str) -> list[Traffic]:
        """Collectives of a layer that its kernels wait for: of tensor parallelism, and of experts."""
        plan, found = self.plan, list[Traffic]()
        if plan.tp > 1 and layer.regions:
            bytes = self.model.boundary * self.share
            calls = ("all_gather", "reduce_scatter") if plan.sequence_parallel else ("all_reduce",)
            found += [self._traffic("tensor parallel", "tp", call, bytes, layer.regions) for call in calls]
        if plan.ep > 1 and layer.exchanged:
            bytes = layer.exchanged * self.share / plan.tp
            found.append(self._traffic("experts", "ep", "all_to_all", bytes, 2))
        return found

    def _ring(self, layer: LayerCost, kind: str) -> list[Traffic]:
        if self.plan.sp == 1 or not layer.keys:
            return []
        # Each rank sees the keys and values of all; backward, their cotangents go around too.
        bytes = layer.keys / self.plan.tp * self.plan.microbatch * (1 if kind == "F" else 2)
        return [self._traffic("sequence parallel", "sp", "all_gather", bytes, 1)]

    def _traffic(self, purpose: str, axis: str, call: str, bytes: float, calls: float) -> Traffic:
        plan = self.collective(axis, call, bytes)
        link = self.cluster.between_kind if self._topologies[axis].nodes > 1 else self.cluster.inside_kind
        return Traffic(purpose, call, link, calls, calls * plan.sent, calls * plan.time)

    # Gradients, parameters and what passes from stage to stage.

    def gradients(self, layer: LayerCost) -> list[Traffic]:
        """The reduction of a layer's gradients over the ranks that have it."""
        call = "reduce_scatter" if self.plan.zero >= 1 else "all_reduce"
        return self._of_parameters("gradients", layer, call, self.plan.grad_bytes)

    def gather(self, layer: LayerCost) -> list[Traffic]:
        """The parameters of a layer gathered from the ranks that share them."""
        return self._of_parameters("parameters", layer, "all_gather", self.plan.param_bytes) if self.plan.zero else []

    def _of_parameters(self, purpose: str, layer: LayerCost, call: str, each: int) -> list[Traffic]:
        dense, experts = local_parameters(layer, self.plan)
        found: list[Traffic] = []
        if dense and self.plan.replicas > 1:
            found.append(self._traffic(purpose, "replicas", call, dense * each, 1))
        if experts and self.plan.replicas // self.plan.ep > 1:
            found.append(self._traffic(purpose, "experts", call, experts * each, 1))
        return found

    def send(self) -> Traffic:
        """One activation, or its cotangent, from a stage to the next."""
        plan, topology = self.plan, self.cluster.links
        bytes = self.model.boundary * self.share / (plan.tp if plan.sequence_parallel else 1)
        stride = plan.replicas * plan.tp
        if stride < topology.devices:
            link, kind = topology.inside, self.cluster.inside_kind
            time = link.time(bytes)
        else:  # all devices of a node send together
            link, kind = topology.between, self.cluster.between_kind
            time = link.latency + bytes * topology.devices / link.bandwidth
        return Traffic("pipeline", "send", kind, 1, bytes, time)

    def optimizer(self, layers: list[LayerCost]) -> float:
        """Nanoseconds of the update: it reads gradients, reads and writes the optimizer's state, writes parameters."""
        plan = self.plan
        held = [local_parameters(layer, plan) for layer in layers]
        dense, experts = sum(one[0] for one in held), sum(one[1] for one in held)
        if plan.zero:
            dense, experts = dense / plan.replicas, experts / (plan.replicas // plan.ep)
        bytes = (dense + experts) * (plan.grad_bytes + 2 * plan.optimizer_bytes + plan.param_bytes)
        return bytes / (self.cluster.device.memory_bandwidth * self.cluster.efficiency.memory)

    def traffic(self) -> list[Traffic]:
        """What the busiest rank sends in a step, by purpose."""
        plan, pipe = self.plan, self.plan.pipeline
        stages = self.model.stages(plan.pp * plan.chunks)
        held = [[*stages[rank :: plan.pp]] for rank in range(plan.pp)]
        most = max(held, key=lambda chunks: sum(map(len, chunks)))
        found: list[Traffic] = []
        gathers = 1 if plan.zero < 3 else 2 * pipe.microbatch
        passes = ["F", "B", *(["F"] if plan.recompute == "full" else [])]
        for layer in (layer for chunk in most for layer in chunk):
            inline = [one for kind in passes for one in (*self._inline(layer, kind), *self._ring(layer, kind))]
            found += [_times(one, pipe.microbatch) for one in inline]
            found += [_times(one, pipe.microbatch if plan.zero >= 2 else 1) for one in self.gradients(layer)]
            found += [_times(one, gathers) for one in self.gather(layer)]
        if plan.pp > 1:
            found.append(_times(self.send(), 2 * pipe.ideal_actions))
        return _add_up(found)


def _times(one: Traffic, count: float) -> Traffic:
    return Traffic(one.purpose, one.call, one.link, one.calls * count, one.sent * count, one.time * count)


def _add_up(found: list[Traffic]) -> list[Traffic]:
    made: dict[tuple[str, str, str], Traffic] = {}
    for one in found:
        key = one.purpose, one.call, one.link
        made[key] = made[key].plus(one) if key in made else one
    return list(made.values())
