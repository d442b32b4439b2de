"""Searching plans of an op on ranks: the ranks of a mesh are processes of this machine, and measure plans together.

The op is split over the axis `tp` as the cost model has it: columns of a product, heads of attention. Each rank adds
its part of a bias, and all gather the parts, in two chunks of rows, so that the exchange of one can run while the
other is computed. `rsmmag` says whether it does, `a2a_quant` what is on the wire, `fuse_bias` whether the kernel before
it adds the bias, `tiles` its block. All plans of a search run in the same rounds, in an order that is drawn for each
and is the same on all ranks; a round takes as long as its slowest rank.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tessera.api.collectives import all_gather, mesh
from tessera.api.eager import prepare
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TuningError
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import cast
from tessera.ir.base.arrays import numpy_dtype
from tessera.runtime.ranks import world
from tessera.runtime.tensor import Tensor
from tessera.tuner.plans import AUTOTUNE, BestPlan, SearchPlan, pareto_of, read_mesh
from tessera.tuner.protocol import LEAST_ROUNDS, relative_time
from tessera.tuner.records import Plan, Trial
from tessera.types.dtype import parse_dtype
from tessera.types.frozen import frozen

PRODUCTS, ATTENTIONS = ("matmul", "gemm"), ("flash_attention", "attention")
WARMUPS, ROUNDS = 3, 11
SHARE, LEAST_PLANS = 0.25, 4
"""Of the plans, what a hybrid search measures: those that the model ranks first."""
_WIRE = {"fp8": "f8e4m3", "fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2", "bf16": "bf16"}
"""Dtypes on the wire by the names of payloads."""


@frozen
class RankedOp:
    """An op of a mesh, as each of its ranks runs it."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[tuple[str, int], ...]
    has_bias: bool

    @property
    def parts(self) -> int:
        """Ranks that share one op."""
        return dict(self.axes).get("tp", 1)

    def tensors(self, rank: int) -> list[Any]:
        """The operands of a rank: the same on every run."""
        rng, dtype, parts = np.random.default_rng(rank), parse_dtype(self.dtype), self.parts
        if self.op in PRODUCTS:
            rows, columns, depth = self.shape
            shapes: list[Sequence[int]] = [(rows, depth), (depth, columns // parts), (columns // parts,)]
        else:
            batch, heads, length, width = self.shape
            shapes = [*[(batch, heads // parts, length, width)] * 3, (width,)]
        given = shapes if self.has_bias else shapes[:-1]
        return [Tensor.of(rng.uniform(0.5, 1.5, one).astype(numpy_dtype(dtype)), dtype) for one in given]

    def function(self, wire: str) -> Callable[..., Any]:
        """What each rank computes, with so much on the wire."""

        def compute(*given: Any) -> Any:
            first, *others = given
            half = first.shape[0] // 2
            chunks = [first[:half], first[half:]] if half else [first]
            found = [self._gather(self._local(chunk, *others), wire) for chunk in chunks]
            return public.concat(found, axis=0)

        def attend(q: Any, k: Any, v: Any, *bias: Any) -> Any:
            half = q.shape[0] // 2
            cuts = [slice(0, half), slice(half, None)] if half else [slice(None)]
            found = [self._gather(self._local(q[cut], k[cut], v[cut], *bias), wire) for cut in cuts]
            return public.concat(found, axis=0)

        return compute if self.op in PRODUCTS else attend

    def _local(self, *given: Any) -> Any:
        operands, bias = (given[:-1], given[-1]) if self.has_bias else (given, None)
        made = public.matmul(*operands) if self.op in PRODUCTS else public.attention(*operands)
        return made if bias is None else made + bias

    def _gather(self, x: Any, wire: str) -> Any:
        if self.parts == 1:
            return x
        sent = x if wire == "off" else cast(x, parse_dtype(_WIRE[wire]))
        return cast(all_gather(sent, "tp", dim=1), parse_dtype(self.dtype))


def op_of(plan: SearchPlan) -> RankedOp | None:
    """The op of a search as ranks run it; None for one that they do not share."""
    signature = plan.signature
    axes, shape = read_mesh(signature.mesh_sig), tuple(int(size) for size in signature.shape_sig.split("x"))
    split = shape[1] if signature.op_kind in (*PRODUCTS, *ATTENTIONS) else 0
    if not split or split % axes.get("tp", 1):
        return None
    has_bias = any(name == "fuse_bias" for name, _ in plan.axes)
    return RankedOp(signature.op_kind, shape, signature.dtype, tuple(axes.items()), has_bias)


def overrides_of(op: RankedOp, plan: Plan) -> dict[str, Any]:
    """The choices of the compiler that a plan stands for on a rank."""
    found: dict[str, Any] = {}
    for name, value in plan.choices:
        if name == "tiles":
            found |= {"contraction.block": value} if op.op in PRODUCTS else {"attention.queries": value[0]}
        elif name == "fuse_bias" and op.op in PRODUCTS:
            found["fusion.contraction"] = value
        elif name == "rsmmag":
            found["collectives.overlap"] = value
    return found


def make_program(op: RankedOp, plan: Plan) -> Any:
    """The program of a rank under a plan."""
    from tessera.api.jit import Jit  # noqa: PLC0415 - it imports the modules that this is beside

    options = Options.of(overrides=overrides_of(op, plan))
    return Jit(op.function(str(plan.overrides.get("a2a_quant", "off"))), options=options)


def measure_on_ranks(plan: SearchPlan, op: RankedOp, mode: str, budget: float) -> BestPlan:
    """The best plan of a search, measured by as many ranks as its mesh has."""
    from tessera.runtime.ranks.processes import launch  # noqa: PLC0415 - few programs start others

    values = {one: plan.evaluate(one) for one in plan.plans}
    reasons = {one: plan.refusal(one, values[one]) or _refusal_of(op, one) for one in plan.plans}
    ranked = sorted((one for one in plan.plans if not reasons[one]), key=lambda one: values[one]["latency"])
    count = len(ranked) if mode == "exhaustive" else max(LEAST_PLANS, round(SHARE * len(plan.plans)))
    wanted = list(dict.fromkeys([*[one for one in plan.plans[:1] if one in ranked], *ranked]))[:count]
    if not wanted:
        notes = tuple(f"{one}: {why}" for one, why in list(reasons.items())[:4])
        raise TuningError(f"none of {len(reasons)} plans may be chosen", notes=notes, fix="loosen a constraint")
    ranks = math.prod(size for _, size in op.axes)
    given = (op, [one.choices for one in wanted], budget)
    task: dict[str, Any] = {"function": measure_here, "args": given, "kwargs": {}}
    trials = _trials(wanted, launch(task, ranks), plan)
    trials += [Trial(one, predicted=values[one]["latency"], reason=reasons[one]) for one in plan.plans if reasons[one]]
    left = "the model ranks others before it"
    known = {trial.plan for trial in trials}
    trials += [Trial(one, predicted=values[one]["latency"], reason=left) for one in plan.plans if one not in known]
    return _best(plan, trials, values)


def _best(plan: SearchPlan, trials: Sequence[Trial], values: Mapping[Plan, Mapping[str, float]]) -> BestPlan:
    able = [trial for trial in trials if trial.samples and not trial.reason]
    if not able:
        notes = tuple(f"{trial.plan}: {trial.reason}" for trial in trials[:4])
        raise TuningError("no plan was measured in full", notes=notes, fix="give a larger `budget`")
    usual = {**values[plan.plans[0]], "latency": 1.0, "latency_ms": 1.0}

    def score(trial: Trial) -> float:
        own = relative_time(trial)
        return plan.score({**values[trial.plan], "latency": own, "latency_ms": own}, usual)

    best = min(able, key=score).plan
    measured = {trial.plan: {**values[trial.plan], "latency": float(trial.time or 0.0)} for trial in able}
    front = pareto_of(plan, list(measured), measured)
    facts = (tuple(measured[best].items()), tuple(trials), front, plan.changes_bits(best))
    return BestPlan(plan.signature, best, AUTOTUNE, *facts)


def _refusal_of(op: RankedOp, plan: Plan) -> str:
    """Why the compiler cannot carry a plan out on a rank."""
    from tessera.compiler.space import space_of  # noqa: PLC0415 - loads the compiler

    program = make_program(op, Plan.of({name: value for name, value in plan.choices if name == "a2a_quant"}))
    with mesh(**dict(op.axes)):
        tape = program.trace(*op.tensors(0)).tape
    kind, why = space_of(tape, Options()).classify(Plan.of(overrides_of(op, plan)))
    return "" if kind == "bit_neutral" else f"{kind}: {why}"


Found = tuple[list[list[float]], list[str]]
"""What a rank measured: nanoseconds of every plan by round, and the bits of its result."""


def _trials(plans: Sequence[Plan], found: Sequence[Found], plan: SearchPlan) -> list[Trial]:
    """What ranks measured as trials: the first plan is what others are compared with."""
    by_plan = [zip(*(times[at] for times, _ in found), strict=True) for at in range(len(plans))]
    rounds = [[max(several) for several in one] for one in by_plan]
    bits = ["".join(digests[at][:16] for _, digests in found) for at in range(len(plans))]
    made: list[Trial] = []
    for at, one in enumerate(plans):
        reason = "" if len(rounds[at]) >= LEAST_ROUNDS else f"{len(rounds[at])} rounds, when the budget was used up"
        if bits[at] != bits[0] and not plan.allows_other_bits:
            reason = f"its bits differ from the first plan's: {bits[at][:12]}, {bits[0][:12]}"
        made.append(Trial(one, tuple(rounds[at]), tuple(rounds[0]), bits=bits[at], reason=reason))
    return made


# On a rank.


def measure_here(op: RankedOp, plans: Sequence[Any], budget: float) -> Found:
    """What this rank measures of some plans; all ranks call it together."""
    from tessera.api.collective_tuning import has_ended  # noqa: PLC0415 - it imports the modules that this is beside

    prepare()
    end, rng = time.monotonic() + budget, random.Random(0)
    tensors = op.tensors(world.rank())
    times: list[list[float]] = [[] for _ in plans]
    with mesh(**dict(op.axes)):
        programs = [make_program(op, Plan(choices)) for choices in plans]
        bits = [hashlib.sha256(np.asarray(one(*tensors)).tobytes()).hexdigest() for one in programs]
        for number in range(WARMUPS + ROUNDS):
            if has_ended(end):
                break
            for at in rng.sample(range(len(programs)), len(programs)):
                has_ended(end)  # all begin together
                began = time.perf_counter_ns()
                programs[at](*tensors)
                took = time.perf_counter_ns() - began
                if number >= WARMUPS:
                    times[at].append(float(max(1, took)))
    return times, bits
