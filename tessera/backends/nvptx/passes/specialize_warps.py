"""Say what warps of a kernel on tensor cores do: whether one copies for the others, and registers of both."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.backends.nvptx.mma.boxes import stores_in
from tessera.backends.nvptx.mma.fit import dots_in, kernels_on_units, refuse_choices, resident_of
from tessera.backends.nvptx.mma.lower_uniform import uniform_problem
from tessera.backends.nvptx.mma.plan import Plan, plan_of, read_plan
from tessera.backends.nvptx.mma.programs import THREADED, find_threaded
from tessera.backends.nvptx.mma.rings import rings_of
from tessera.backends.nvptx.tensor_cores import (
    MMA_SYNC,
    REGISTERS,
    TCGEN05,
    WARPGROUP,
    WARPS_ACROSS,
    WGMMA,
    WGMMA_ROWS,
    TensorCores,
    UnfitError,
)
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.choices import PRODUCER, ROLES, UNIFORM
from tessera.ir.tile.typed_ops import KernelOp, ReduceOp
from tessera.types.frozen import frozen

# How single warps share a tile: below each other, with whole rows, or side by side, with some of the columns.


def across_of(kernel: KernelOp, plan: Plan) -> int:
    """Warps of a group side by side, so that what each reads of both operands is the least: nearly a square."""
    (first, *_) = plan.dots.values()
    columns, rows = _columns_of(first.op.results[0]), plan.rows // plan.consumers
    fitting = [count for count in WARPS_ACROSS if not across_problem(kernel, plan, count)]
    return min(fitting, key=lambda count: rows // 4 * count + columns // count)


def across_problem(kernel: KernelOp, plan: Plan, across: int) -> str:
    """Why warps cannot stand so, empty where they can: rows that are reduced or multiplied again have to be whole."""
    if across not in WARPS_ACROSS:
        return f"{', '.join(map(str, WARPS_ACROSS))} warps stand side by side, not {across}"
    if across == 1:
        return ""
    products = list(plan.dots.values())
    if len(products) != 1 or products[0].lhs.load is None or any(isinstance(op, ReduceOp) for op in kernel.walk()):
        return f"{across} warps side by side share rows, and rows are reduced here or multiplied again"
    if any(_columns_of(op.operands[0]) == 0 for op in stores_in(kernel)):
        return f"a vector is stored by who has it, and {across} warps side by side do"
    columns = _columns_of(products[0].op.results[0])
    if columns % (across * WGMMA_ROWS):
        return f"{across} warps side by side have multiples of {WGMMA_ROWS} columns each, and there are {columns}"
    return ""


def _columns_of(value: SSAValue) -> int:
    """The columns of a tile; 0 where it has none."""
    assert isinstance(value.type, TileAttr)
    return (value.type.shape[1].value or 0) if len(value.type.shape) == 2 else 0


# Say what warps of a kernel on tensor cores do: whether one copies for the others, and registers of both.

_REGISTERS: dict[int, tuple[int, ...]] = {1: (), 2: (40, 232), 3: (24, 160)}
"""Registers of a producer's and a consumer's thread, by the number of consumers."""
_BESIDE = {2: (40, 216), 3: (24, 136), 4: (24, 104)}
"""The same of one consumer, by the number of CTAs on a multiprocessor."""
_TURNING = (24, 240)
"""The same where two dots share one loop: accumulators of both are live."""


@frozen
class SpecializeWarps(Pass):
    """Give each kernel its `roles`: with a producer `registers` of both, and without one its `warps_n`.

    Before: a kernel on `wgmma` with `warpgroups = 2`. After: the same with `roles = "producer"` and
    `registers = [40, 232]`: what the producer does not need, those that multiply have. With `roles` of `uniform` there
    is no producer, and one thread of those that multiply starts the copies. On `mma.sync` all warps copy
    (`roles = "uniform"`), and `warps_n = 2` of each four stand side by side where what each reads is the least so. A
    kernel that says its `roles` keeps its registers too, and one that says `warps_n` that, or is refused (T0501).
    """

    roles: str = ROLES[0]

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "roles", "registers", "warps_n"):
                specialize_warps(kernel, units, self.roles)


_ABLE = {WGMMA.name: ROLES, TCGEN05.name: (PRODUCER,), MMA_SYNC.name: (UNIFORM,)}
"""The roles that kernels on each tensor cores can have."""


def specialize_warps(kernel: KernelOp, units: TensorCores, roles: str = ROLES[0]) -> None:
    """Write the roles of a kernel; raises `UnfitError` for those that it says and its units do not have."""
    able, groups, written = _ABLE[units.name], kernel.warpgroups, kernel.roles
    if groups not in _REGISTERS and units is WGMMA:
        raise UnfitError(f"there are {min(_REGISTERS)} to {max(_REGISTERS)} `warpgroups`, got {groups}")
    if written and written not in able:
        copies = "by TMA descriptors, which one thread starts" if able[0] == PRODUCER else "by all threads"
        raise UnfitError(f"kernels on {units.name} copy {copies}, and `roles` is {written}")
    roles = written or (roles if roles in able else able[0])
    if units is WGMMA and roles == UNIFORM:
        plan = read_plan(kernel)
        if problem := uniform_problem(kernel, plan, rings_of(plan)):
            raise UnfitError(problem)
    if kernel.registers and units is not WGMMA:
        raise UnfitError(f"threads of kernels on {units.name} have equal shares of registers, and some are said")
    _share_columns(kernel, units)
    if written:
        _check_registers(kernel.registers, groups)
        return
    kernel.set_value("roles", roles)
    if units is WGMMA and roles == PRODUCER:
        plan = read_plan(kernel)
        is_in_loop = groups == 2 and len(dots_in(kernel)) > 1
        beside = resident_of(kernel, plan, rings_of(plan)) if groups == 1 else 1
        registers = _BESIDE.get(beside, _TURNING if is_in_loop else _REGISTERS[groups])
        is_threaded = registers == _REGISTERS[2] and bool(find_threaded(kernel, plan))
        kernel.set_value("registers", THREADED if is_threaded else registers)


def _share_columns(kernel: KernelOp, units: TensorCores) -> None:
    """Write how single warps stand; raises `UnfitError` for what a kernel says of it and cannot have."""
    declared = kernel.warps_n
    if units is not MMA_SYNC:
        if declared:
            raise UnfitError(
                f"kernels on {units.name} have warps that share rows by fours, and `warps_n` is {declared}"
            )
        return
    plan = plan_of(kernel, units)
    if declared and (problem := across_problem(kernel, plan, declared)):
        raise UnfitError(problem)
    kernel.set_value("warps_n", declared or across_of(kernel, plan))


def _check_registers(registers: Sequence[int], groups: int) -> None:
    """Raises `UnfitError` for more registers than a multiprocessor has."""
    total = WARPGROUP * (registers[0] + groups * registers[1]) if registers else 0
    if total > REGISTERS:
        raise UnfitError(
            f"a producer and {groups} consumers with {list(registers)} registers take {total} of {REGISTERS}"
        )
