"""Decide how many threads a program of each tile kernel has."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.emit_radix import ITEMS, has_radix_sort
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.passes.add_fallbacks import unaligned_in
from tessera.backends.nvptx.row_plan import (
    ALIGN,
    MOST_NEIGHBOURS,
    THREADS,
    leaves_of,
    reduces_rows,
    reduces_whole_tiles,
    tile_sizes,
)
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import shaped_type
from tessera.ir.tile.typed_ops import IndexOp, KernelOp, LoadOp, SortOp
from tessera.types.dim import next_power_of_two

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

LONG_SORT = 1024
"""Threads of a program that sorts a long row, at most; a row that they do not hold in registers goes through memory."""
MOST_THREADS = 256
"""Threads of a program at most: of more, each would have too few registers."""
REDUCED_PER_THREAD = 32
"""Elements that a thread has of a row that is reduced whole: what it exchanges with others is little beside that.

Where it would have more than twice as many, a program has twice as many threads.
"""


COLUMNS_PER_THREAD = 32
"""Elements that a thread has of a tile of rows and columns whose rows are joined: accumulators, and as many loads."""


class PlanThreads(Pass):
    """Write `nvptx.threads` on every `ttile.kernel`: 1 for single elements, 32 for a row, else by the largest tile.

    Before: `ttile.kernel @k` with tiles of 2048 elements. After: the same with `nvptx.threads = 256`, so that a thread
    has 8 elements of a tile. What its author asked for (`schedule = {warps = 4}`) is kept, up to 256; what he asked of
    vectors (`schedule = {vector = 2}`, or a hint of a load) is written as `nvptx.most_neighbours`. Kernels that the
    host program calls with rows that begin at any address get `nvptx.align = 0`; those on tensor cores are left alone.
    """

    def run(self, module: ModuleOp) -> None:
        unaligned = unaligned_in(module)
        for kernel in thread_kernels(module):
            THREADS.write(kernel, choose_threads(kernel))
            if kernel.symbol in unaligned:
                ALIGN.write(kernel, 0)
            asked = _asked_neighbours(kernel)
            if asked:
                MOST_NEIGHBOURS.write(kernel, min(asked))


def choose_threads(kernel: KernelOp) -> int:
    """Threads of one program of a kernel."""
    largest = max(tile_sizes(kernel), default=1)
    names = {op.name for op in kernel.walk()}
    if "ttile.sort" in names:
        return max(threads_of_sort(op) for op in kernel.walk() if isinstance(op, SortOp))
    if largest == 1:
        return 1
    if leaves_of(kernel) is not None:
        return WARP
    schedule: dict[str, Any] = kernel.schedule or {}
    if "warps" in schedule:
        return min(MOST_THREADS, schedule["warps"] * WARP)
    if "ttile.dot" in names or ("ttile.tree" in names and largest == MOST_THREADS):
        return MOST_THREADS
    if columns := row_plan.reduced_columns(kernel):
        # A few rows of a tile in each warp, whose threads are side by side along columns.
        each = COLUMNS_PER_THREAD if row_plan.loops_in(kernel) else 8
        return max(WARP, min(2 * MOST_THREADS, _power_of_two_in(max(1, columns // each))))
    if largest > WARP and reduces_rows(kernel):
        # Columns side by side: few programs, so each has many threads, with a few neighbours each.
        return max(WARP, min(MOST_THREADS, largest // 4))
    if largest <= 2 * WARP:
        return WARP
    if reduces_whole_tiles(kernel, largest):
        most = MOST_THREADS if largest <= 2 * REDUCED_PER_THREAD * MOST_THREADS else 2 * MOST_THREADS
        return max(WARP, min(most, _power_of_two_in(largest // REDUCED_PER_THREAD)))
    return max(WARP, min(MOST_THREADS, _power_of_two_in(largest // 8)))


def threads_of_sort(op: SortOp) -> int:
    """Threads of a sort: those that have the row in registers, or as many as there may be for a longer one."""
    count = radix_count(op)
    wanted = 0 if count is None else next_power_of_two(-(-count // ITEMS))
    return min(LONG_SORT, max(MOST_THREADS, wanted))


def radix_count(op: SortOp) -> int | None:
    """The elements of a sort by the bytes of its keys; None for other sorts."""
    size = op.count.owner.expr.value if isinstance(op.count.owner, IndexOp) else None
    return size if has_radix_sort(shaped_type(op.keys).dtype, size) else None


def _power_of_two_in(count: int) -> int:
    """The largest power of two up to a number."""
    return 1 << count.bit_length() - 1


def _asked_neighbours(kernel: KernelOp) -> list[int]:
    """Neighbours that the author of a kernel wants one thread to have at most: of its schedule, or of a load."""
    hints: list[dict[str, Any] | None] = [op.hints for op in kernel.walk() if isinstance(op, LoadOp)]
    return [asked["vector"] for asked in (kernel.schedule, *hints) if asked and "vector" in asked]
