"""Plans to search, as a user writes them: a signature, axes of candidates, objectives and constraints.

An axis is more than tiles: collectives that overlap a product, payloads that are quantized, biases that are fused. What
an op costs under a plan is worked out from its sizes, so that plans for a machine that is not here can be ranked too,
by what its vendor says of it. Such a result says that a model chose it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import TuningError
from tessera.diagnostics.error import find_nearest
from tessera.tuner.constraints import Constraints, parse_objectives
from tessera.tuner.cost_model import bounds, predict_kernel
from tessera.tuner.op_costs import OPS, PAYLOADS, hardware_of
from tessera.tuner.records import Plan, Signature, Trial
from tessera.types.dtype import parse_dtype
from tessera.types.frozen import frozen

AUTOTUNE, COST_MODEL = "autotune", "cost_model"
"""Who chose a plan: a device that ran it, or a model."""
FAST = "fast"
"""The policy under which candidates that change bits may be chosen."""


# Axes.


@frozen
class Axis:
    """A choice that a plan may have: what it is, what values it takes, and which of them change no bit."""

    about: str
    is_value: Callable[[Any], bool]
    is_neutral: Callable[[Any], bool] = lambda value: True
    example: str = "[True, False]"


def _is_tile(value: Any) -> bool:
    return isinstance(value, tuple) and 1 <= len(value) <= 3 and all(type(size) is int and size > 0 for size in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


AXES: Mapping[str, Axis] = {
    "tiles": Axis("the block (BM, BN, BK) of a kernel", _is_tile, example="[(128, 128, 64), (64, 128, 64)]"),
    "rsmmag": Axis("whether reduce-scatter, product and all-gather overlap", _is_bool),
    "a2a_quant": Axis(
        "what an exchange is quantized to: it rounds, so that all but `off` change bits",
        lambda value: value in PAYLOADS,
        lambda value: value == "off",
        '["off", "fp8"]',
    ),
    "fuse_bias": Axis("whether a bias is added in the kernel before it", _is_bool),
    "streams": Axis("streams of a program", lambda value: type(value) is int and value > 0, example="[1, 2]"),
}
"""What may be in `candidates`."""


# Signatures.

_DTYPES = {"fp32": "f32", "fp16": "f16", "fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}
"""Dtypes by names that plans are written with elsewhere."""


def check_is(value: object, kind: type, what: str, fix: str) -> None:
    """Raises TuningError (T0803) for an argument that is something else."""
    if not isinstance(value, kind):
        raise TuningError(f"{what}, got {type(value).__name__}", fix=fix)


def mesh_text(mesh: Mapping[str, int] | None) -> str:
    """Axes of a mesh by name, with their sizes: `dp1.tp12`, or `tp1=2` where the name ends in a digit."""
    given: dict[Any, Any] = dict(mesh) if isinstance(mesh, Mapping) else {}
    if mesh is not None and not isinstance(mesh, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TuningError(f"`mesh` is sizes by the names of axes, got {mesh!r}", fix='write `mesh={"tp": 8}`')
    for name, size in given.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise TuningError(f"an axis of the mesh is a name, got {name!r}", fix='write `mesh={"tp": 8}`')
        if type(size) is not int or size < 1:
            raise TuningError(f"the axis `{name}` of the mesh has {size!r} ranks", fix=f'write `mesh={{"{name}": 1}}`')
    return ".".join(f"{name}{'=' * name[-1].isdigit()}{size}" for name, size in sorted(given.items()))


def make_signature(
    op: str, shape: Sequence[int], dtype: Any, mesh: Mapping[str, int] | None, arch: str, policy: str, runtime: str
) -> Signature:
    """A signature of an op; raises TuningError (T0803) for an op or sizes that are none."""
    if op not in OPS:
        near = find_nearest(str(op), OPS)
        guess = f"did you mean `{near[0]}`? " if near else ""
        raise TuningError(f"nothing is known of an op `{op}`", fix=f"{guess}ops are {', '.join(OPS)}")
    check_is(arch, str, "`arch` is the name of a machine", 'write `arch="H100"`, or leave it out for this machine')
    sizes = tuple(shape) if isinstance(shape, Sequence) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    names = OPS[op].dims
    if len(sizes) != len(names) or not all(type(size) is int and size > 0 for size in sizes):
        raise TuningError(
            f"the shape of `{op}` is ({', '.join(names)}), got {shape!r}",
            fix=f"write `shape=({', '.join(names)})` with a positive number for each",
        )
    element = parse_dtype(_DTYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    return Signature(
        op,
        "x".join(map(str, sizes)),
        element.name,
        mesh_text(mesh),
        arch,
        policy_hash(policy),
        runtime,
    )


def policy_hash(policy: str) -> str:
    """What a signature has of a policy."""
    return hashlib.sha256(policy.encode()).hexdigest()[:16]


def read_mesh(text: str) -> dict[str, int]:
    """The sizes of a mesh by its text."""
    found: dict[str, int] = {}
    for part in filter(None, text.split(".")):
        name = part.partition("=")[0] if "=" in part else part.rstrip("0123456789")
        found[name] = int(part[len(name) :].removeprefix("="))
    return found


# The plan of a search.


@frozen
class SearchPlan:
    """What is searched: whose plan, axes with their candidates, and what a good one is."""

    signature: Signature
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    objectives: tuple[tuple[str, float], ...]
    constraints: Constraints
    policy: str = "stable"

    @property
    def plans(self) -> list[Plan]:
        """All combinations, the first of each axis first."""
        names = [name for name, _ in self.axes]
        return [
            Plan.of(dict(zip(names, values, strict=True)))
            for values in itertools.product(*(found for _, found in self.axes))
        ]

    @property
    def allows_other_bits(self) -> bool:
        """Whether candidates that change bits may be chosen: the user and the policy both have to say so."""
        return not self.constraints.deterministic and self.policy == FAST

    def changes_bits(self, plan: Plan) -> str:
        """Which choice of a plan changes bits, and why; empty where none does."""
        found = [
            f"`{name}` = {value}: {AXES[name].about}"
            for name, value in plan.choices
            if not AXES[name].is_neutral(value)
        ]
        return "; ".join(found)

    def evaluate(self, plan: Plan) -> dict[str, float]:
        """What a plan comes to by the model, by the names that constraints and objectives have."""
        signature = self.signature
        hardware, capacity = hardware_of(signature.arch)
        mesh = read_mesh(signature.mesh_sig)
        shape = [int(size) for size in signature.shape_sig.split("x")]
        cost = OPS[signature.op_kind].cost(shape, parse_dtype(signature.dtype), mesh, plan.overrides)
        kernels = sum(predict_kernel(work, hardware).time for work in cost.kernels)
        link = cost.link / hardware.link if hardware.link else 0.0
        # What overlaps takes as long as the longer of the two, and a tenth of the other, which fills and drains it.
        time = max(kernels, link) + 0.1 * min(kernels, link) if cost.overlaps else kernels + link
        main = bounds(cost.kernels[0], hardware)
        return {
            "latency": time,
            "latency_ms": time / 1e6,
            "bytes_moved": cost.bytes_moved,
            "memory": cost.memory,
            "HBM_util": cost.memory / capacity,
            "link_util": min(1.0, link / time) if time else 0.0,
            **({"occupancy": 0.0} if "occupancy" in main else {}),
        }

    def refusal(self, plan: Plan, values: Mapping[str, float] | None = None) -> str:
        """Why a plan may not be chosen: it changes bits, breaks a bound, or no block of it fits; else empty."""
        if not self.allows_other_bits and (reason := self.changes_bits(plan)):
            return f"numeric: {reason}"
        found = self.evaluate(plan) if values is None else values
        if math.isinf(found["latency"]):
            return "no block of it fits a multiprocessor"
        return self.constraints.refusal(found)

    def score(self, values: Mapping[str, float], usual: Mapping[str, float]) -> float:
        """Smaller is better: objectives as multiples of those of the usual plan, by their weights."""
        return sum(
            weight * math.log(max(values[name], 1e-30) / max(usual[name], 1e-30)) for name, weight in self.objectives
        )


def make_plan(
    candidates: Mapping[str, Sequence[Any]],
    objectives: Sequence[str] | Mapping[str, float],
    constraints: Mapping[str, Any] | None,
    signature: Signature,
    policy: str,
) -> SearchPlan:
    """A plan of a search; raises TuningError (T0803) for axes, values, objectives or constraints that are none."""
    if not isinstance(candidates, Mapping) or not candidates:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TuningError(
            f"`candidates` are values by the names of axes, got {candidates!r}",
            fix=f"write `candidates=dict(tiles={AXES['tiles'].example})`",
        )
    axes: list[tuple[str, tuple[Any, ...]]] = []
    for name, values in candidates.items():
        if name not in AXES:
            near = find_nearest(str(name), AXES)
            guess = f"did you mean `{near[0]}`? " if near else ""
            raise TuningError(f"there is no axis `{name}`", fix=f"{guess}axes are {', '.join(AXES)}")
        axes.append((name, _values_of(name, values)))
    parsed = Constraints.parse(constraints)
    return SearchPlan(signature, tuple(axes), tuple(parse_objectives(objectives).items()), parsed, policy)


def _values_of(name: str, values: Any) -> tuple[Any, ...]:
    axis, example = AXES[name], f"write `{name}={AXES[name].example}`"
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise TuningError(f"the axis `{name}` has values to choose from, got {values!r}", fix=example)
    listed: list[Any] = list(values)  # pyright: ignore[reportUnknownArgumentType]
    plain: list[Any] = [tuple(value) if isinstance(value, list) else value for value in listed]  # pyright: ignore[reportUnknownArgumentType]
    for value in plain:
        if not axis.is_value(value):
            raise TuningError(f"`{name}` cannot be {value!r}", notes=(f"rule: it is {axis.about}",), fix=example)
    return tuple(dict.fromkeys(plain))


@frozen
class BestPlan:
    """What a search chose, who chose it, and every candidate with its time or the reason why it has none."""

    signature: Signature
    plan: Plan
    source: str
    """`autotune` where a device ran it, `cost_model` where nothing could be run."""
    values: tuple[tuple[str, float], ...]
    """What the plan comes to by the model: `latency`, `bytes_moved`, ..."""
    trials: tuple[Trial, ...]
    pareto: tuple[Plan, ...] = ()
    """Plans that no other beats in all objectives."""
    numeric: str = ""
    """What of it changes bits, where a policy allows that."""

    @property
    def choices(self) -> dict[str, Any]:
        """The chosen value of each axis."""
        return self.plan.overrides

    def attach(self, text: str, group: str = "") -> str:
        """The text of a plan in Schedule IR with what was chosen, and who chose it, on its groups and collectives.

        `group` names the body of the groups that are meant, where others are in the text. Raises ScheduleError (T0401)
        where a tile is none of the candidates that stand there.

        >>> sig = ts.autotune.signature(op="matmul", shape=(64, 64, 64), arch="GB200")
        >>> best = ts.autotune.search(ts.autotune.plan({"tiles": [(64, 64, 64)]}, signature=sig))
        >>> print(best.attach("tsched.tile %y candidates = [[64, 64, 64]]").splitlines()[1].strip())
        tsched.tile %y candidates = [[64, 64, 64]] chosen = [64, 64, 64] {source = "cost_model"}
        """
        from tessera.ir.base.dialect_of import load_dialects  # noqa: PLC0415 - it needs xDSL
        from tessera.ir.base.text import parse_module, print_module  # noqa: PLC0415
        from tessera.ir.schedule.passes.attach_choices import AttachChoices  # noqa: PLC0415

        check_is(text, str, "`attach` takes the text of a plan", "give what `fn.schedule(...)` gave")
        load_dialects()
        module, chosen = parse_module(text, "<plan>"), self.choices
        wire = chosen.get("a2a_quant", "off")
        quantize = "" if wire == "off" else wire
        AttachChoices(chosen.get("tiles", ()), chosen.get("algo", ""), quantize, self.source, group).run(module)
        return print_module(module)

    def __str__(self) -> str:
        lines = [
            f"{self.signature.op_kind} {self.signature.shape_sig} on {self.signature.arch}: {self.plan} ({self.source})"
        ]
        lines += [f"  changes bits: {self.numeric}"] if self.numeric else []
        for trial in self.trials:
            time = trial.time if trial.time is not None else trial.predicted
            shown = f"{time / 1e6:.4f} ms" if time is not None and math.isfinite(time) else "-"
            lines.append(f"  {shown:>12}  {trial.plan}" + (f": {trial.reason}" if trial.reason else ""))
        return "\n".join(lines)


def rank_by_model(plan: SearchPlan) -> BestPlan:
    """The best plan by the model alone: nothing is run, and the result says so."""
    listed = plan.plans
    found = {one: plan.evaluate(one) for one in listed}
    reasons = {one: plan.refusal(one, found[one]) for one in listed}
    able = [one for one in listed if not reasons[one]]
    if not able:
        notes = tuple(f"{one}: {reasons[one]}" for one in listed[:4])
        raise TuningError(
            f"none of {len(listed)} plans may be chosen", notes=notes, fix="loosen a constraint, or add candidates"
        )
    usual = found[listed[0]]
    best = min(able, key=lambda one: plan.score(found[one], usual))
    trials = tuple(
        Trial(one, predicted=found[one]["latency"], reason=reasons[one], memory=int(found[one]["memory"]))
        for one in sorted(listed, key=lambda one: (bool(reasons[one]), found[one]["latency"]))
    )
    return BestPlan(
        plan.signature,
        best,
        COST_MODEL,
        tuple(found[best].items()),
        trials,
        pareto_of(plan, able, found),
        plan.changes_bits(best),
    )


def pareto_of(plan: SearchPlan, able: Sequence[Plan], found: Mapping[Plan, Mapping[str, float]]) -> tuple[Plan, ...]:
    """The plans that no other is as good as in all objectives and better in one."""
    names = [name for name, _ in plan.objectives]
    rows = {one: tuple(found[one][name] for name in names) for one in able}

    def is_beaten(one: Plan) -> bool:
        own = rows[one]
        return any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in rows.values())

    return tuple(one for one in able if not is_beaten(one))
