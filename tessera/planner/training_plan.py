"""A training plan: how a step is divided over the axes of a mesh, what is wrong with it, and the memory of each rank.

Ranks of `tp` are next to each other, then those of `sp` (a sequence in parts), `dp`, and `pp`. Under ZeRO (Rajbhandari
et al., 2020) the ranks that have the same parameters (`dp` times `sp`) share the optimizer's state (stage 1), the
gradients too (2), and the parameters too (3). For `P` parameters of a rank, in `N` parts, with bytes of
a parameter, a gradient and the optimizer's state `p`, `g` and `k`, a rank has `pP + gP + kP/N`, `pP + (g + k)P/N`, or
`(p + g + k)P/N` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import find_nearest
from tessera.ir.schedule.planning.pipelines import Pipeline, pipeline
from tessera.planner.cluster import Cluster
from tessera.planner.model_cost import LayerCost, ModelCost
from tessera.types.frozen import frozen

AXES = ("pp", "dp", "sp", "tp")
"""Mesh axes, ranks of the last being next to each other; `ep` divides `dp` times `sp`."""
RECOMPUTE = ("none", "selective", "full")
"""What is computed twice in place of being kept: nothing, norms and activation functions, or all but block inputs."""
RESERVED = 0.06
"""The share of a device's memory that contexts, libraries and fragments take; a plan that leaves less does not fit."""


@frozen
class TrainingPlan:
    """One training step: the sizes of its mesh axes, and how it is carried out.

    `batch` and `microbatch` count sequences, of all ranks and of one forward. `param_bytes`, `grad_bytes` and
    `optimizer_bytes` are those of a parameter: the defaults are of bf16 with gradients, a copy and two moments in f32.

    >>> TrainingPlan(dp=4, tp=2, pp=2, batch=64).ranks
    16
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    sp: int = 1
    ep: int = 1
    batch: int = 1
    microbatch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    zero: int = 1
    recompute: str = "none"
    sequence_parallel: bool = True
    param_bytes: int = 2
    grad_bytes: int = 4
    optimizer_bytes: int = 12

    @property
    def mesh(self) -> dict[str, int]:
        """The axes in the order of their ranks."""
        return {name: getattr(self, name) for name in AXES}

    @property
    def ranks(self) -> int:
        return prod(self.mesh.values())

    @property
    def replicas(self) -> int:
        """Ranks that have the same parameters."""
        return self.dp * self.sp

    @property
    def microbatches(self) -> int:
        """Microbatches of a step that pass through one pipeline."""
        return self.batch // (self.dp * self.microbatch)

    @property
    def pipeline(self) -> Pipeline:
        """The order of forwards and backwards; raises ScheduleError (T0401) where its numbers do not go together."""
        return pipeline(self.schedule, self.pp, self.microbatches, self.chunks)

    def describe(self) -> str:
        """The mesh and what is unusual, in a line."""
        sizes = ",".join(f"{name}={getattr(self, name)}" for name in ("dp", "tp", "pp", "sp", "ep"))
        return re.sub(r",(sp|ep)=1\b", "", sizes)


def parse_mesh(text: str) -> dict[str, int]:
    """The sizes of mesh axes in a text such as `dp=64,tp=8,pp=16`; `cp` is another name of `sp`.

    >>> parse_mesh("dp=2,tp=4")
    {'dp': 2, 'tp': 4}
    """
    sizes: dict[str, int] = {}
    known = ("dp", "tp", "pp", "sp", "ep")
    for part in text.split(","):
        found = re.fullmatch(r"\s*([a-z]+)\s*=\s*(\d+)\s*", part)
        name = {"cp": "sp"}.get(found[1], found[1]) if found else ""
        if found is None or name not in known or name in sizes or int(found[2]) < 1:
            near = find_nearest(found[1], known) if found and name not in known else []
            raise ScheduleError(
                f"`--mesh` is axes with their sizes, of {', '.join(known)}, each once and from 1; got `{part.strip()}`",
                span=None,
                fix=f"write `{near[0]}=...`" if near else "write `--mesh dp=64,tp=8,pp=16`",
            )
        sizes[name] = int(found[2])
    return sizes


def check_plan(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> None:
    """Raise ScheduleError (T0401) where a plan cannot be carried out, with the numbers that disagree."""
    cluster.part(plan.ranks)
    for wrong, message, fix in _rules(plan, model):
        if wrong:
            raise ScheduleError(f"{message} ({plan.describe()})", span=None, fix=fix)
    _ = plan.pipeline
    model.stages(plan.pp * plan.chunks)


def _rules(plan: TrainingPlan, model: ModelCost) -> list[tuple[bool, str, str]]:
    """Whether each rule is broken, with what there is to say of it, and a fix."""
    per, tokens, experts = plan.dp * plan.microbatch, model.sequence, model.experts
    divide = "do not divide"
    found = [
        (plan.zero not in range(4), f"ZeRO has stages 0 to 3, got {plan.zero}", "write `--zero 1`"),
        (
            plan.recompute not in RECOMPUTE,
            f"`recompute` is {', '.join(RECOMPUTE)}, got {plan.recompute}",
            "write `--recompute full`",
        ),
        (
            plan.batch % per != 0 or plan.batch < per,
            f"a batch of {plan.batch} sequences does not divide by {plan.dp} ranks of `dp` and microbatches of "
            f"{plan.microbatch}",
            f"take a batch of {max(1, plan.batch // per) * per}",
        ),
    ]
    if plan.tp > 1:
        what = (
            f"{plan.tp} ranks of `tp` {divide} {model.splits} heads" if model.splits else "`tp` has nothing to divide"
        )
        fix = f"take a divisor of {model.splits}" if model.splits else "leave `tp` out"
        found.append((model.splits == 0 or model.splits % plan.tp != 0, what, fix))
    if plan.sp > 1:
        what = f"{plan.sp} ranks of `sp` {divide} {tokens} tokens"
        found.append((tokens % plan.sp != 0, what, f"take a divisor of {tokens}"))
        found.append(
            (model.block.keys == 0, "`sp` needs attention, whose keys and values are gathered", "leave it out")
        )
    if plan.ep > 1:
        fix = f"take a divisor of {experts}" if experts else "leave `ep` out: the model has no experts"
        found.append(
            (experts % plan.ep != 0 or not experts, f"{plan.ep} ranks of `ep` {divide} {experts} experts", fix)
        )
        what = f"{plan.ep} ranks of `ep` {divide} {plan.replicas} of `dp` and `sp`"
        found.append((plan.replicas % plan.ep != 0, what, f"take a divisor of {plan.replicas}"))
    return found


@frozen
class Memory:
    """Bytes of one rank, by what they are for; `capacity` is what its device has."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    gathered: float
    capacity: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.gathered

    @property
    def fits(self) -> bool:
        """Whether it leaves what contexts and libraries take (`RESERVED`)."""
        return self.total <= (1 - RESERVED) * self.capacity

    def as_json(self) -> dict[str, float]:
        """Bytes by name."""
        names = ("parameters", "gradients", "optimizer", "activations", "gathered", "total", "capacity")
        return {name: getattr(self, name) for name in names}


def local_parameters(layer: LayerCost, plan: TrainingPlan) -> tuple[float, float]:
    """Parameters of a layer on one rank, before ZeRO divides them: dense ones, and those of experts."""
    return layer.dense_parameters / plan.tp, layer.expert_parameters / (plan.tp * plan.ep)


def memory_of(plan: TrainingPlan, model: ModelCost, cluster: Cluster) -> list[Memory]:
    """The memory of the ranks of each pipeline stage, in order."""
    stages = model.stages(plan.pp * plan.chunks)
    held = [[stages[chunk * plan.pp + rank] for chunk in range(plan.chunks)] for rank in range(plan.pp)]
    return [_memory(plan, rank, chunks, cluster.device.memory) for rank, chunks in enumerate(held)]


def _memory(plan: TrainingPlan, rank: int, chunks: list[list[LayerCost]], capacity: float) -> Memory:
    layers = [layer for chunk in chunks for layer in chunk]
    parts = [local_parameters(layer, plan) for layer in layers]
    dense, experts = sum(part[0] for part in parts), sum(part[1] for part in parts)
    N, N_experts = plan.replicas, plan.replicas // plan.ep

    def bytes_of(each: int, is_divided: bool) -> float:
        return each * (dense / N + experts / N_experts if is_divided else dense + experts)

    largest = max(sum(part) for part in parts) if parts else 0.0
    return Memory(
        bytes_of(plan.param_bytes, plan.zero >= 3),
        bytes_of(plan.grad_bytes, plan.zero >= 2),
        bytes_of(plan.optimizer_bytes, plan.zero >= 1),
        _activations(plan, rank, chunks),
        # Under stage 3 the parameters of a layer and of the next are there in full, and its gradients.
        largest * (2 * plan.param_bytes + plan.grad_bytes) if plan.zero >= 3 and N > 1 else 0.0,
        capacity,
    )


def kept_bytes(layer: LayerCost, plan: TrainingPlan) -> float:
    """Activations of a layer for one microbatch on one rank, where it is not recomputed as a whole."""
    kept, whole = layer.kept, layer.kept_whole
    if plan.recompute == "selective":
        kept, whole = kept - layer.cheap, whole - layer.cheap_whole
    return (kept / plan.tp + whole / (plan.tp if plan.sequence_parallel else 1)) * plan.microbatch / plan.sp


def _activations(plan: TrainingPlan, rank: int, chunks: list[list[LayerCost]]) -> float:
    """What a rank keeps at most: of as many forwards as its schedule has ahead of their backwards.

    Forwards are counted by the largest chunk. The head's scores are there for one microbatch: its backward follows.
    """
    inner = [[layer for layer in chunk if layer.name != "head"] for chunk in chunks]
    heads = [layer for chunk in chunks for layer in chunk if layer.name == "head"]
    most = plan.pipeline.peak_activations(rank)
    last = sum(kept_bytes(layer, plan) for layer in heads)
    if plan.recompute != "full":
        return most * max(sum(kept_bytes(layer, plan) for layer in chunk) for chunk in inner) + last
    share = plan.microbatch / (plan.sp * (plan.tp if plan.sequence_parallel else 1))
    inputs = max(sum(layer.input for layer in chunk) for chunk in inner) * share
    at_work = max((kept_bytes(layer, plan) for chunk in inner for layer in chunk), default=0.0)
    return most * inputs + at_work + last


def zero_bytes(parameters: float, plan: TrainingPlan) -> Mapping[str, float]:
    """The closed form of ZeRO: bytes of a rank with `parameters`, shared by `dp` times `sp` ranks."""
    N = plan.replicas
    shared = (plan.zero >= 3, plan.zero >= 2, plan.zero >= 1)
    each = (plan.param_bytes, plan.grad_bytes, plan.optimizer_bytes)
    names = ("parameters", "gradients", "optimizer")
    return {name: bytes * parameters / (N if own else 1) for name, bytes, own in zip(names, each, shared, strict=True)}
