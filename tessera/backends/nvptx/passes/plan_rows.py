"""Decide where a program keeps its row between its loops, and how many warps share it."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.passes.rematerialize_rows import find_recipes
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import WARP, shared_symbol
from tessera.ir.base.passes import Pass
from tessera.ir.target.limits import ROW_WARPS
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

IN_REGISTERS = 144
"""Elements of a row that one thread keeps in registers, of 255: more spill once temporaries are beside them."""
UNALIGNED_IN_REGISTERS = 96
"""The same of a row that does not begin at 16 bytes, which is loaded element by element."""
BF16_IN_REGISTERS = 2 * IN_REGISTERS
"""The same of bf16 that are kept as they are in memory, two to a register."""


@frozen
class PlanRows(Pass):
    """Write `nvptx.rows` and `nvptx.warps_per_row` on kernels that reduce rows, and clone those of symbolic width.

    Softmax and norms go over a row two or three times. Memory is read once where the row stays in registers: those of
    one warp for up to 144 elements a thread, else those of 4, 8 or 16 warps, each with iterations that follow each
    other (accumulators go from warp to warp in that order, so that bits are those of one warp). What fits no registers
    stays in memory, or is rematerialized in the second loop where that costs less than to store and load it.

    Before: a `ttile.kernel @softmax` with loops to 8192 by 32. After: the same with `nvptx.rows = "registers"` and
    `nvptx.warps_per_row = 4`. Before: `@softmax` with loops to `N`. After: `@softmax__shared` with 16 warps to a block,
    which share rows at run time as their width needs, in front of `@softmax` as it was; a launch takes one by `N`.
    """

    machine: str = "sm_90a"

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            if (leaves := row_plan.leaves_of(kernel)) is not None:
                if leaves.value is not None:
                    plan_leaves(kernel, leaves.value)
                elif not kernel.variant_of:
                    made = clone_for_wide_rows(kernel)
                    row_plan.LEAVES.write(made, 1)
                    module.body.block.insert_op_before(made, kernel)
                continue
            if not row_plan.reduces_rows(kernel):
                continue
            if all(row_plan.trip_count(loop) is not None for loop in row_plan.loops_in(kernel)):
                plan_static_rows(kernel, GPUS[self.machine])
            elif (
                row_plan.THREADS.of(kernel) == WARP
                and row_plan.has_divisible_symbolic_rows(kernel)
                and not kernel.variant_of
            ):
                module.body.block.insert_op_before(clone_for_wide_rows(kernel), kernel)


MOST_LEAVES = 4
"""Leaves of a row that a warp keeps in registers: 128 elements a thread."""


def plan_leaves(kernel: KernelOp, leaves: int) -> None:
    """Decide for rows that are divided by leaves: as many warps as leaves, or each several of them."""
    each = -(-leaves // ROW_WARPS[-1])
    if each <= MOST_LEAVES and row_plan.THREADS.of(kernel) == WARP and leaves > 1:
        row_plan.WARPS_PER_ROW.write(kernel, -(-leaves // each))
        row_plan.LEAVES.write(kernel, each)
        row_plan.ROWS.write(kernel, row_plan.REGISTERS)


def plan_static_rows(kernel: KernelOp, machine: Machine) -> None:
    """Decide for rows whose width is known: one warp, several, or memory."""
    threads = row_plan.THREADS.of(kernel)
    counts = [row_plan.trip_count(loop) or 0 for loop in row_plan.loops_in(kernel)]
    each = max(counts) * max(1, max(row_plan.tile_sizes(kernel)) // threads)
    keeps_bf16 = _keeps_bf16(kernel, machine, counts, each)
    if threads == WARP and not keeps_bf16:
        warps = row_plan.choose_warps(kernel, IN_REGISTERS, UNALIGNED_IN_REGISTERS)
        if warps:
            row_plan.WARPS_PER_ROW.write(kernel, warps)
            row_plan.ROWS.write(kernel, row_plan.REGISTERS)
            return
    if each <= IN_REGISTERS or keeps_bf16:
        row_plan.ROWS.write(kernel, row_plan.REGISTERS)
    elif threads == WARP and find_recipes(kernel):
        row_plan.ROWS.write(kernel, row_plan.REMATERIALIZED)


def _keeps_bf16(kernel: KernelOp, machine: Machine, counts: Sequence[int], each: int) -> bool:
    """Whether a row is wide and bf16, and stays in the registers of one warp as it is in memory."""
    is_whole = all(count % 8 == 0 for count in counts) and row_plan.ALIGN.of(kernel) == row_plan.ALIGNED
    is_narrow = IN_REGISTERS < each <= BF16_IN_REGISTERS and machine.has("sm_90")
    return is_whole and is_narrow and not find_recipes(kernel) and row_plan.has_bf16_rows(kernel)


def clone_for_wide_rows(kernel: KernelOp) -> KernelOp:
    """The kernel for rows of a symbolic width that several warps share, to stand beside the one for any width."""
    made = kernel.clone()
    made.symbol, made.variant_of = shared_symbol(kernel.symbol), kernel.symbol
    row_plan.WARPS_PER_ROW.write(made, ROW_WARPS[-1])
    row_plan.ROWS.write(made, row_plan.REGISTERS)
    return made
