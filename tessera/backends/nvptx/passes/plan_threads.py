"""Decide how many threads a program of each tile kernel has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.access_groups import NEAREST
from tessera.backends.nvptx.emit_radix import ITEMS, has_radix_sort
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.passes.add_fallbacks import unaligned_in
from tessera.backends.nvptx.row_plan import (
    ALIGN,
    ALIGNED,
    MOST_NEIGHBOURS,
    NEAR_ROWS,
    THREADS,
    leaves_of,
    reduces_rows,
    reduces_whole_tiles,
    tile_sizes,
)
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import shaped_type
from tessera.ir.tile.typed_ops import IndexOp, KernelOp, LoadOp, SortOp, StoreOp
from tessera.types.dim import Dim, next_power_of_two, product

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


FULL = 1 << 17
"""Threads from which on a GPU has more work by having more of them: 1024 on each multiprocessor of an H200."""
_POINTWISE = (
    *("program_id", "index", "load", "store", "elementwise", "cast", "bitcast", "constant", "select", "yield"),
    "return",
)


class PlanThreads(Pass):
    """Write `nvptx.threads` on every `ttile.kernel`: 1 for single elements, 32 for a row, else by the largest tile.

    Before: `ttile.kernel @k` with tiles of 2048 elements. After: the same with `nvptx.threads = 256`, so that a thread
    has 8 elements of a tile. What its author asked for (`schedule = {warps = 4}`) is kept, up to 256; what he asked of
    vectors (`schedule = {vector = 2}`, or a hint of a load) is written as `nvptx.most_neighbours`. Where windows of
    several rows overlap, a thread has `nvptx.near_rows` rows below each other, and shares what it loads. Kernels that
    the host program calls with rows that begin at any address get `nvptx.align = 0`; those on tensor cores are left
    alone.
    """

    def run(self, module: ModuleOp) -> None:
        unaligned = unaligned_in(module)
        for kernel in thread_kernels(module):
            NEAR_ROWS.write(kernel, choose_near_rows(kernel))
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
    near = NEAR_ROWS.of(kernel)
    neighbours = 8 if near == 1 else _stored_neighbours(kernel)
    return max(WARP, min(MOST_THREADS, _power_of_two_in(largest // (neighbours * near))))


def _stored_neighbours(kernel: KernelOp) -> int:
    """Neighbours that one instruction stores at most: 16 bytes, of which rows of a known length are multiples."""
    found = 8
    for op in kernel.walk():
        if isinstance(op, StoreOp):
            length, size = op.bounds[-1].value or 1, shaped_type(op.buffer).dtype.bytes
            found = gcd(found, ALIGNED // size, length if length > 0 else found)
    return found


def choose_near_rows(kernel: KernelOp) -> int:
    """Rows below each other that a thread has of a tile, each of which reads what others do: windows of several rows.

    They leave enough threads to a GPU, and divide the rows there are where they can, since they share a mask then.
    """
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    if any(op.name.removeprefix("ttile.") not in _POINTWISE for op in ops):
        return 1
    accesses = [op for op in ops if isinstance(op, LoadOp | StoreOp) and len(op.axes) > 1]
    if not _share_rows([op for op in accesses if isinstance(op, LoadOp)]):
        return 1
    tiles = [shaped_type(op.tile if isinstance(op, StoreOp) else op.result).shape for op in accesses]
    elements = (product(kernel.grid).value or 1) * max(tile_sizes(kernel))
    able = [rows for rows in (NEAREST, NEAREST // 2) if all((tile[-2].value or 1) % rows == 0 for tile in tiles)]
    each = _stored_neighbours(kernel)
    able = [rows for rows in able if each * rows <= 8 or elements >= each * rows * FULL]
    ends = [op.bounds[-2].value or 1 for op in accesses]
    whole = [rows for rows in able if all(end == -1 or end % rows == 0 for end in ends)]
    return (whole or able or [1])[0]


def _share_rows(loads: Sequence[LoadOp]) -> bool:
    """Whether some loads of one buffer are of rows above or below those of others."""
    found: dict[tuple[Any, ...], set[int]] = {}
    for op in loads:
        (offset,) = op.map if len(op.map) == 1 else (Dim.constant(0),)
        row = offset.coefficient(op.axes[-2])
        step = None if row is None else row[0].value
        if step:
            start = offset.substitute(dict.fromkeys(offset.symbols, 0)).value or 0
            found.setdefault((op.buffer, tuple(op.axes), offset - start), set()).add(round(start / step))
    return any(below - row < NEAREST for rows in found.values() for row, below in pairwise(sorted(rows)))


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
