"""Decide how many iterations of each loop are written one after the other."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.typed_ops import ForOp, KernelOp, LoadOp

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

INSTRUCTIONS = 1200
"""Instructions of a loop over columns that are unrolled for a thread at most: more take long to compile."""
GUARDED = 8
"""How many times as many they are where each element is tested for being inside."""
IN_FLIGHT, SIMPLE = 512, 12
"""Bytes that a thread of a loop over columns has in flight before it uses the first, if the loop has few ops."""


class UnrollLoops(Pass):
    """Write `nvptx.unroll` on every `ttile.for`; 0 stands for all iterations.

    Loops over a row that registers hold are unrolled whole, since registers have no index. Those of columns have so
    many iterations in flight that few programs saturate memory, others 8 where a thread has little of each tile.

    Before: `ttile.for %a, %b {step = 32}` in a kernel with `nvptx.rows = "registers"`. After: `nvptx.unroll = 0`.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            for loop in row_plan.loops_in(kernel):
                row_plan.UNROLL.write(loop, choose_unroll(kernel, loop))


def choose_unroll(kernel: KernelOp, loop: ForOp) -> int:
    """Iterations of a loop that are written one after the other."""
    if row_plan.ROWS.of(kernel) == row_plan.REGISTERS:
        return 0
    if {"ttile.dot", "ttile.barrier", "ttile.fetch"} & {part.name for part in loop.walk()}:
        return 1
    threads, largest = row_plan.THREADS.of(kernel), max(row_plan.tile_sizes(loop), default=1)
    if threads > WARP and row_plan.reduces_rows(kernel):
        return _unroll_columns(kernel, loop, largest)
    return 8 if largest <= 4 * threads else 1


def _unroll_columns(kernel: KernelOp, loop: ForOp, largest: int) -> int:
    """Iterations of a loop over columns: few programs run, so each thread has much of a simple loop in flight."""
    threads, parts = row_plan.THREADS.of(kernel), row_plan.ops_in(loop)
    loads = [part.result.type for part in parts if isinstance(part, LoadOp)]
    sizes = [type.data.bytes.value or 0 for type in loads if isinstance(type, TileAttr)]
    most = INSTRUCTIONS // (row_plan.count_instructions(parts) * max(1, largest // threads))
    if len(row_plan.loops_in(kernel)) > 1 and any(_is_guarded_across(part, loop) for part in parts):
        most //= GUARDED
    count = IN_FLIGHT * threads // max(1, sum(sizes))
    count = 16 if len(parts) >= SIMPLE or not sizes else max(8, min(64, count))
    return 1 << max(0, min(count, max(2, most)).bit_length() - 1)


def _is_guarded_across(op: SpecOp, loop: ForOp) -> bool:
    """Whether a load may reach beyond a bound along another axis than that of the loop."""
    if not isinstance(op, LoadOp):
        return False
    where, index = dict(zip(op.coords, op.at, strict=False)), loop.body.block.args[0]
    bounds = zip(op.axes, op.bounds, strict=True)
    return any(bound.value != -1 and where[axis] is not index for axis, bound in bounds)
