"""Searching plans of single ops: `autotune.signature`, `plan`, `search` and `cache`, on this machine or by a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tessera.api.program_tuning import check_settings
from tessera.api.stored_plans import architecture, runtime_text
from tessera.api.workload import ProgramWorkload
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TuningError
from tessera.ir.base.arrays import numpy_dtype
from tessera.runtime.ranks import world
from tessera.runtime.tensor import Tensor
from tessera.tuner.database import default_database
from tessera.tuner.plans import (
    AUTOTUNE,
    COST_MODEL,
    FAST,
    BestPlan,
    SearchPlan,
    check_is,
    make_plan,
    make_signature,
    pareto_of,
    policy_hash,
    rank_by_model,
    read_mesh,
)
from tessera.tuner.protocol import InProcess, Protocol, relative_time
from tessera.tuner.records import Entry, Plan, Signature, Trial
from tessera.tuner.search import Space
from tessera.tuner.search import search as search_space
from tessera.types.dtype import parse_dtype
from tessera.types.settings import usable_cpus

POLICIES = ("stable", FAST)
"""What a signature may be searched under."""


def signature(
    op: str,
    shape: Sequence[int],
    dtype: Any = "f32",
    mesh: Mapping[str, int] | None = None,
    arch: str | None = None,
    policy: str = "stable",
) -> Signature:
    """Whose plan is searched: an op at its sizes on a mesh of machines; without `arch` it is this CPU.

    Under the policy `stable` nothing that changes bits is ever chosen; `fast` lets a plan that says
    `deterministic: False` choose so.

    >>> ts.autotune.signature(op="matmul", shape=(64, 64, 64), arch="GB200").parts[:3]
    ('matmul', '64x64x64', 'f32')
    """
    if policy not in POLICIES:
        raise TuningError(f"`policy` is one of {', '.join(POLICIES)}, got {policy!r}", fix='write `policy="stable"`')
    where = architecture(Options()) if arch is None else arch
    return make_signature(op, shape, dtype, mesh, where, policy, runtime_text(Options()))


def plan(
    candidates: Mapping[str, Sequence[Any]],
    objectives: Sequence[str] | Mapping[str, float] = ("latency",),
    constraints: Mapping[str, Any] | None = None,
    *,
    signature: Signature,
) -> SearchPlan:
    """What is searched: axes with candidates, what is to be small, and what must hold.

    Objectives of a list count the same; of a mapping, by their weights. Constraints are comparisons (`"HBM_util":
    "<0.85"`), and `deterministic`, which is True unless said otherwise.
    """
    made = "write `signature=autotune.signature(op=..., shape=...)`"
    check_is(signature, Signature, "`signature` is what `autotune.signature` gave", made)
    is_fast = signature.policy_hash == policy_hash(FAST)
    return make_plan(candidates, objectives, constraints, signature, FAST if is_fast else POLICIES[0])


def search(plan: SearchPlan, mode: str = "hybrid", budget: float = 60.0) -> BestPlan:
    """The best plan: measured where its machine is this one (`source` is `autotune`), else by the cost model.

    A mesh of several ranks is measured by as many processes, where this machine has a CPU for each, and they share the
    op: products and attention, over the axis `tp`.

    Raises TuningError (T0803) where no plan may be chosen, with the reasons.
    """
    check_settings(mode, budget, 0.07)
    made = "write `autotune.search(autotune.plan(candidates, signature=signature))`"
    check_is(plan, SearchPlan, "`autotune.search` takes what `autotune.plan` gave", made)
    is_here = plan.signature.arch == architecture(Options())
    ranks = math.prod(read_mesh(plan.signature.mesh_sig).values())
    if not is_here or ranks == 1:
        return _measure(plan, mode, budget) if is_here else rank_by_model(plan)
    from tessera.api.rank_search import measure_on_ranks, op_of  # noqa: PLC0415 - few searches start ranks

    op = op_of(plan) if 1 < ranks <= usable_cpus() and world.size() == 1 else None
    return rank_by_model(plan) if op is None else measure_on_ranks(plan, op, mode, budget)


class PlanCache:
    """Plans that are kept: `autotune.cache`."""

    def store(self, best: BestPlan) -> None:
        """Keep what a search chose, with every trial and who chose it."""
        made = "write `autotune.cache.store(autotune.search(plan))`"
        check_is(best, BestPlan, "`autotune.cache.store` takes what `autotune.search` gave", made)
        source = "measured" if best.source == AUTOTUNE else COST_MODEL
        default_database().store(best.signature, best.plan, best.trials, source)

    def lookup(self, signature: Signature) -> Entry | None:
        """What is kept for a signature."""
        made = "write `autotune.cache.lookup(autotune.signature(op=..., shape=...))`"
        check_is(signature, Signature, "`autotune.cache.lookup` takes what `autotune.signature` gave", made)
        return default_database().lookup(signature)

    def clear(self) -> int:
        """Forget everything that was ever tuned; how many plans that were."""
        return default_database().clear()


cache = PlanCache()


# Measuring an op.


class _AxisWorkload(ProgramWorkload):
    """A program whose plans are written in the axes of a search."""

    def __init__(self, space: Any, tensors: Sequence[Any], knobs: Callable[[Plan], Plan]) -> None:
        super().__init__(space, tensors)
        self._knobs = knobs

    def options(self, plan: Plan) -> Options:
        return super().options(self._knobs(plan))


def _measure(plan: SearchPlan, mode: str, budget: float) -> BestPlan:
    from tessera.api.jit import Jit  # noqa: PLC0415 - it imports the modules that this is beside
    from tessera.compiler.space import space_of  # noqa: PLC0415 - loads the compiler

    function, arrays = _program(plan)
    jitted = Jit(function)
    space = space_of(jitted.trace(*arrays).tape, jitted.options)
    workload = _AxisWorkload(space, arrays, lambda one: _knobs_of(plan.signature, one))
    found = {one: plan.evaluate(one) for one in plan.plans}
    usual = found[plan.plans[0]]

    def reject(one: Plan) -> str:
        return plan.refusal(one, found[one]) or _refusal_here(one) or workload.refusal(one)

    def score(trial: Trial) -> float:
        values = {**found[trial.plan], "latency": relative_time(trial), "latency_ms": relative_time(trial)}
        return plan.score(values, {**usual, "latency": 1.0, "latency_ms": 1.0})

    with InProcess(workload, Protocol()) as measurer:
        outcome = search_space(
            Space.of(plan.plans, reject), measurer, mode=mode, budget=budget, score=score, first=plan.plans[:1]
        )
    if outcome.best is None:
        notes = tuple(f"{trial.plan}: {trial.reason}" for trial in outcome.trials[:4])
        raise TuningError(
            f"none of {outcome.size} plans may be chosen", notes=notes, fix="loosen a constraint, or add candidates"
        )
    best = outcome.best.plan
    able = [trial.plan for trial in outcome.trials if trial.samples and not trial.reason]
    times = {trial.plan: trial.time for trial in outcome.trials if trial.samples}
    measured = {one: {**found[one], "latency": float(times[one] or 0.0)} for one in able}
    return BestPlan(
        plan.signature,
        best,
        AUTOTUNE,
        tuple(measured[best].items()),
        outcome.trials,
        pareto_of(plan, able, measured),
        plan.changes_bits(best),
    )


def _refusal_here(plan: Plan) -> str:
    """Why a plan cannot be measured by one process: there is nobody to exchange anything with."""
    choices = plan.overrides
    if choices.get("rsmmag"):
        return "one rank has no reduce-scatter or all-gather to overlap"
    return "one rank exchanges nothing" if choices.get("a2a_quant", "off") != "off" else ""


def _knobs_of(signature: Signature, plan: Plan) -> Plan:
    """The choices of the compiler that a plan stands for."""
    found: dict[str, Any] = {}
    for name, value in plan.choices:
        if name == "tiles":
            found |= _tile_knob(signature.op_kind, value)
        elif name == "fuse_bias" and signature.op_kind in ("matmul", "gemm"):
            found["fusion.contraction"] = value
        elif name == "streams" and value > 1:
            found["launch.streams"] = value
    return Plan.of(found)


def _tile_knob(op: str, tile: tuple[int, ...]) -> dict[str, Any]:
    if op in ("matmul", "gemm"):
        return {"contraction.block": tile}
    return {"attention.queries": tile[0]} if "attention" in op else {"row.columns": tile[0]}


def _program(plan: SearchPlan) -> tuple[Callable[..., Any], list[Any]]:
    """The op of a plan as a function, with a bias where the plan asks whether to fuse one, and its tensors."""
    op, sizes = plan.signature.op_kind, [int(size) for size in plan.signature.shape_sig.split("x")]
    takes_bias = any(name == "fuse_bias" for name, _ in plan.axes)
    if op in ("matmul", "gemm"):
        shapes: list[Sequence[int]] = [(sizes[0], sizes[2]), (sizes[2], sizes[1])]
        bias: Sequence[int] = (sizes[1],)
    else:
        shapes, bias = [sizes] * (3 if "attention" in op else 1), (sizes[-1],)
    rng, dtype = np.random.default_rng(0), parse_dtype(plan.signature.dtype)
    given = [*shapes, *([bias] if takes_bias else [])]
    tensors = [Tensor.of(rng.uniform(0.5, 1.5, shape).astype(numpy_dtype(dtype)), dtype) for shape in given]
    return _function(op, takes_bias), tensors


def _function(op: str, takes_bias: bool) -> Callable[..., Any]:
    """An op as a function of its tensors, and of a bias behind them."""
    from tessera.frontend.functions import public  # noqa: PLC0415 - what is measured is written with them

    rows: Callable[[Any], Any] = getattr(public, op, public.softmax)

    def multiply(x: Any, y: Any) -> Any:
        return public.matmul(x, y)

    def multiply_add(x: Any, y: Any, b: Any) -> Any:
        return public.matmul(x, y) + b

    def attend(q: Any, k: Any, v: Any) -> Any:
        return public.attention(q, k, v)

    def attend_add(q: Any, k: Any, v: Any, b: Any) -> Any:
        return public.attention(q, k, v) + b

    def over_rows(x: Any) -> Any:
        return rows(x)

    def over_rows_add(x: Any, b: Any) -> Any:
        return rows(x) + b

    if op in ("matmul", "gemm"):
        return multiply_add if takes_bias else multiply
    if "attention" in op:
        return attend_add if takes_bias else attend
    return over_rows_add if takes_bias else over_rows
