"""Searching the meshes of a cluster: which plans fit the memory of its devices, and which is fastest.

Every way to divide the ranks into tensor-parallel groups within a node, pipeline stages, parts of a sequence and
replicas is a candidate, with the ZeRO stages and schedules that go with it, and the least recomputation that fits.
Candidates have a lower bound of their time (kernels of the busiest stage, for every microbatch, and of the stages
before it); they are simulated in
the order of that bound until it is above the times of the plans that are kept, so that the best is found for certain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tessera.diagnostics.codes import ScheduleError
from tessera.planner.cluster import Cluster
from tessera.planner.model_cost import ModelCost
from tessera.planner.simulate import Step, simulate
from tessera.planner.step_costs import Parts, StepCosts
from tessera.planner.training_plan import RECOMPUTE, Memory, TrainingPlan, check_plan, memory_of
from tessera.types.frozen import frozen

KEPT = 10
"""Plans that a search gives, the fastest first."""
LONG_SEQUENCE = 32768
"""Tokens from which on a search divides sequences too; below, activations of one fit, and it only adds collectives."""

Progress: TypeAlias = Callable[[int, int, "Step | None"], None]
"""Told how many candidates of how many are done, and the best so far."""


@frozen
class Refused:
    """A candidate that needs more memory than a device has, however much it recomputes."""

    plan: TrainingPlan
    memory: Memory


@frozen
class Search:
    """What a search found: the fastest plans, those that do not fit, and how many were simulated of all that do."""

    steps: tuple[Step, ...]
    refused: tuple[Refused, ...]
    simulated: int
    candidates: int

    @property
    def best(self) -> Step:
        return self.steps[0]


def divisors(number: int, most: int) -> list[int]:
    """The divisors of a number up to another.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]


def candidate_plans(model: ModelCost, cluster: Cluster, ranks: int, batch: int) -> Iterator[TrainingPlan]:
    """Every plan that can be carried out, before memory is looked at."""
    whole = cluster.part(ranks).topology
    for tp in divisors(model.splits or 1, whole.devices):
        for pp in divisors(ranks // tp, model.layers) if ranks % tp == 0 else ():
            rest = ranks // (tp * pp)
            widest = rest if model.sequence >= LONG_SEQUENCE and model.block.keys else 1
            for sp in (one for one in divisors(rest, widest) if one & (one - 1) == 0):
                for ep in divisors(model.experts or 1, rest):
                    mesh = TrainingPlan(rest // sp, tp, pp, sp, ep, batch)
                    yield from (plan for plan in _variants(mesh, model) if _is_sound(plan, model, cluster))


def _variants(mesh: TrainingPlan, model: ModelCost) -> Iterator[TrainingPlan]:
    """The schedules and ZeRO stages of a mesh: without stages, ranks may share gradients of each microbatch too."""
    for zero in (0,) if mesh.replicas == 1 else (1, 2, 3) if mesh.pp == 1 else (1,):
        yield replace(mesh, zero=zero)
        chunks = [one for one in (2, 4, 8) if mesh.pp > 1 and mesh.pp * one <= model.layers + 2]
        yield from (replace(mesh, zero=zero, schedule="interleaved", chunks=one) for one in chunks)


def _is_sound(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> bool:
    try:
        check_plan(plan, model, cluster)
    except ScheduleError:  # it is one of many, and numbers that do not divide are no candidate
        return False
    return True


def fit(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> TrainingPlan | Refused:
    """A plan with the least recomputation under which it fits."""
    least: Refused | None = None
    for how in RECOMPUTE:
        tried = replace(plan, recompute=how)
        worst = max(memory_of(tried, model, cluster), key=lambda one: one.total)
        if worst.fits:
            return tried
        if least is None or worst.total < least.memory.total:
            least = Refused(tried, worst)
    assert least is not None, "there is a way to recompute"
    return least


def lower_bound(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> float:
    """Nanoseconds that a step takes at least.

    A rank begins behind a forward of the stages before it, computes all its microbatches, and ends before a backward
    of those stages.
    """
    costs = StepCosts(plan, model, cluster)
    stages = [
        sum(map(_length, (costs.layer(one, kind) for one in stage for kind in "FB")))
        for stage in model.stages(plan.pp * plan.chunks)
    ]
    return max(sum(stages[:rank]) + plan.microbatches * sum(stages[rank :: plan.pp]) for rank in range(plan.pp))


def _length(parts: Parts) -> float:
    return parts.kernels + parts.exposed


def search_meshes(
    model: ModelCost,
    cluster: Cluster,
    *,
    ranks: int = 0,
    batch: int = 0,
    keep: int = KEPT,
    progress: Progress | None = None,
) -> Search:
    """The fastest plans on `ranks` devices (all where 0) for a batch of so many sequences (one a device where 0).

    Raises ScheduleError (T0401) where no plan fits, with the one that needs least.
    """
    ranks = ranks or cluster.ranks
    batch = batch or ranks
    fitted = [fit(plan, model, cluster) for plan in candidate_plans(model, cluster, ranks, batch)]
    refused = _smallest([one for one in fitted if isinstance(one, Refused)])
    plans = [one for one in fitted if isinstance(one, TrainingPlan)]
    if not plans:
        raise _nothing_fits(refused, model, cluster, ranks, batch)
    ordered = sorted(((lower_bound(plan, model, cluster), at) for at, plan in enumerate(plans)))
    steps: list[tuple[float, int, Step]] = []
    simulated = 0
    for done, (bound, at) in enumerate(ordered):
        if len(steps) == keep and bound >= -steps[0][0]:
            break
        step = simulate(plans[at], model, cluster)
        simulated += 1
        heapq.heappush(steps, (-step.time, at, step))
        if len(steps) > keep:
            heapq.heappop(steps)
        if progress is not None:
            progress(done + 1, len(ordered), max(steps)[2])
    found = tuple(step for _, _, step in sorted(steps, reverse=True))
    return Search(found, tuple(refused), simulated, len(plans))


def _smallest(refused: Sequence[Refused]) -> list[Refused]:
    """Of each mesh the candidate that needs least, the smallest first."""
    best: dict[str, Refused] = {}
    for one in refused:
        key = one.plan.describe()
        if key not in best or one.memory.total < best[key].memory.total:
            best[key] = one
    return sorted(best.values(), key=lambda one: one.memory.total)


def _nothing_fits(
    refused: Sequence[Refused], model: ModelCost, cluster: Cluster, ranks: int, batch: int
) -> ScheduleError:
    if not refused:
        return ScheduleError(
            f"no mesh of {ranks} ranks divides {model.layers} layers, {model.splits} heads and a batch of {batch}",
            span=None,
            fix=f"take a batch that {ranks} divides",
        )
    least, memory = refused[0], cluster.device.memory
    return ScheduleError(
        f"no plan for {ranks} ranks fits {memory / 1e9:.3g} GB: the smallest ({least.plan.describe()}, ZeRO "
        f"{least.plan.zero}, recompute {least.plan.recompute}) needs {least.memory.total / 1e9:.3g} GB",
        span=None,
        fix="take more ranks, shorter sequences, or devices with more memory",
    )
