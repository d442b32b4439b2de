"""Say what runs beside the dots of a kernel: of the same loop, of other warps, and of the program before."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.boxes import stores_in
from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices
from tessera.backends.nvptx.mma.loops import is_longer, skew_of, sum_of
from tessera.backends.nvptx.mma.plan import Plan, read_plan
from tessera.backends.nvptx.mma.programs import epilogue_of, has_next, has_steps
from tessera.backends.nvptx.mma.rings import Ring, rings_of
from tessera.backends.nvptx.tensor_cores import DEFAULT, MMA_SYNC, WGMMA, TensorCores, UnfitError, gpu_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.choices import AFTER, BESIDE, EPILOGUES, ORDERED, SHARED, SKEWED, SUM, UNIFORM
from tessera.ir.tile.typed_ops import ForOp, KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

LAGS = (2, 0, 1, 3)
"""By how many quarters of a ring the last consumer of a sum is behind the first (`matrix.lag`)."""


@frozen
class OverlapMma(Pass):
    """Give each loop its `form` and `pingpong`, and the kernel its `epilogue` and `lag`.

    Before: a loop that adds up dots, and one with two dots of which the second reads what is computed from
    the first. After: the first with `form = "sum"`, of which one dot is always in flight; the second with
    `form = "skewed"` and `pingpong = true`: its second dot is one step late, and two groups of warps start dots
    alternately. All other loops are `ordered`. `epilogue = "beside"` leaves what follows the dots to the CTA's next
    program; `lag` lets consumers set out one after the other, by so many quarters of a ring. A loop that says its
    `form` keeps it and its `pingpong`, and so does a kernel with an `epilogue`, or they are refused (T0501).
    """

    machine: Machine | str = DEFAULT
    lag: int = LAGS[0]
    epilogue: str = EPILOGUES[0]

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "form", "pingpong", "epilogue", "lag"):
                overlap_mma(kernel, units, gpu_of(self.machine), self.lag, self.epilogue)


def overlap_mma(
    kernel: KernelOp, units: TensorCores, machine: Machine, lag: int = LAGS[0], epilogue: str = EPILOGUES[0]
) -> None:
    """Write what overlaps in a kernel that has its stages; raises `UnfitError` for what it says and cannot have."""
    plan = read_plan(kernel)
    rings = rings_of(plan)
    for op in kernel.walk():
        if isinstance(op, ForOp):
            _write_form(op, plan, rings, units, kernel.roles == UNIFORM)
    is_able = units is WGMMA and kernel.roles != UNIFORM and _has_epilogue(kernel, plan)
    if kernel.epilogue:
        if kernel.epilogue == BESIDE and not is_able:
            raise UnfitError("what follows the dots is not done beside those of the next program")
        most = _most_lag(kernel, plan, rings) if units is WGMMA else 0
        if kernel.lag > most:
            raise UnfitError(f"groups of warps begin {most} stages apart at most, not {kernel.value('lag')}")
        return
    is_beside = is_able and epilogue == BESIDE and has_next(kernel, machine.blocks)
    kernel.set_value("epilogue", BESIDE if is_beside else AFTER)
    kernel.set_value("lag", _lag(kernel, plan, rings, lag) if units is WGMMA else 0)


def _write_form(op: ForOp, plan: Plan, rings: Sequence[Ring], units: TensorCores, is_uniform: bool) -> None:
    """A loop's form: that which it says, or the first that it can have; without a producer dots stay in flight."""
    written, can = op.form, _forms(op, plan, rings, units)
    can = can[:1] if is_uniform else can
    if written and written not in can:
        raise UnfitError(f"a loop says that it is {written}, and on {units.name} it is {' or '.join(can)}")
    if op.pingpong and plan.consumers != 2:
        raise UnfitError(f"two groups of warps alternate in starting dots, and there are {plan.consumers}")
    if not written:
        op.form = can[0]
        op.pingpong = can[0] == SKEWED and plan.consumers == 2


def _forms(op: SpecOp, plan: Plan, rings: Sequence[Ring], units: TensorCores) -> list[str]:
    """The forms that a loop can have, the best first; warps that copy by themselves keep to the program's order."""
    if units is MMA_SYNC:
        return [ORDERED]
    if units is not WGMMA:
        return [SUM]
    if any(ring.loop is op and ring.written == 1 for ring in rings):
        return [ORDERED]  # what is read is overwritten next, so nothing stays in flight
    can = [SUM] if sum_of(op, plan, rings) is not None else []
    return [*can, *([SKEWED] if skew_of(op, plan) is not None else []), ORDERED]


def _has_epilogue(kernel: KernelOp, plan: Plan) -> bool:
    """Whether what follows the dots may stand apart: there is one sum, with steps enough to do it beside.

    Steps that compute an operand have no registers left for it.
    """
    if any(dot.inputs for dot in plan.dots.values()):
        return False
    stores = [op for op in stores_in(kernel) if op.value("space") == SHARED]
    epilogue = epilogue_of(kernel, plan, stores)
    return epilogue is not None and epilogue.loop.value("form") == SUM and has_steps(epilogue)


def _waiting_loop(kernel: KernelOp, plan: Plan, rings: Sequence[Ring]) -> ForOp | None:
    """The one loop whose groups wait for each dot, where they may set out one after the other.

    Where dots are always in flight it was measured to change nothing: the ring is too short to stay apart.
    """
    loops = [op for op in kernel.body.block.ops if isinstance(op, ForOp)]
    if plan.consumers < 2 or len(loops) != 1 or len(rings) != 1 or len(plan.dots) != 1:
        return None
    is_nested = any(isinstance(op, ForOp) for op in loops[0].body.block.ops)
    return None if is_nested or loops[0].form == SUM else loops[0]


def _lag(kernel: KernelOp, plan: Plan, rings: Sequence[Ring], quarters: int) -> int:
    """Stages that each group begins behind the one before, the last of them so many quarters of a ring."""
    loop, others = _waiting_loop(kernel, plan, rings), plan.consumers - 1
    if loop is None:
        return 0
    stages = quarters * rings[0].written // (4 * others)
    return stages if is_longer(loop, loop.step * stages * others) else 0


def _most_lag(kernel: KernelOp, plan: Plan, rings: Sequence[Ring]) -> int:
    """The most stages that groups can be apart: the last one begins in the ring, and in the loop."""
    loop, others = _waiting_loop(kernel, plan, rings), plan.consumers - 1
    if loop is None:
        return 0
    able = [
        stages
        for stages in range(1, rings[0].written)
        if stages * others < rings[0].written and is_longer(loop, loop.step * stages * others)
    ]
    return max(able, default=0)
