"""How many neighbours one instruction of a load or store moves: by alignment, masks, and how indices are found.

A thread holds neighbours along the last axis of a tile. One instruction moves as many of them as are contiguous in
memory, begin at a multiple of their size, and share a mask. All three are known from multiples: a bound of 1000 cuts no
8 neighbours apart that begin at a multiple of 8, and a gather of rows is contiguous wherever the index of a row is one
for all of its neighbours.
"""

from __future__ import annotations

from math import gcd

from xdsl.ir import SSAValue

from tessera.backends.nvptx.layout import Layout, skew_of
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.limits import buffer_alignment, index_multiple, multiple_of
from tessera.ir.target.typed_ops import BroadcastOp, CastOp, ConstantOp, ElementwiseOp, LoadOp, StoreOp
from tessera.types.dim import Dim

WIDEST = 16
"""Bytes that one thread moves in one instruction."""
MOST = 16
"""Neighbours that one thread has at most: 16 bytes of the smallest elements."""


def group_of(op: LoadOp | StoreOp, layout: Layout, size: int, swizzle: int) -> int:
    """Neighbours that one instruction moves: those of a thread that are contiguous, aligned, and share a mask."""
    if not op.axes:
        return 1
    if op.pattern == "uniform":
        return min(layout.vector, mask_run(op))
    most = min(op.align, WIDEST, swizzle or WIDEST) // size
    return max(1, min(layout.vector, most, run_of(op)))


def known_alignment(op: LoadOp | StoreOp, axis: int = -1) -> int:
    """Bytes that the first of a thread's neighbours along an axis is known to begin at a multiple of."""
    item = shaped_type(op.buffer).dtype.bytes
    steps = multiple_of(op.offset, _multiples(op, axis))
    start = buffer_alignment(op.buffer)
    known = gcd(gcd(start, item * steps) if steps else start, WIDEST)
    return max(item, known & -known)


def run_of(op: LoadOp | StoreOp) -> int:
    """Neighbours that are contiguous in memory and share a mask, from a multiple of their number on, up to `MOST`."""
    if op.pattern == "contiguous":
        return mask_run(op)
    tiles = [value for value in op.at if isinstance(value.type, VectorAttr)]
    step = op.offset.coefficient(op.axes[-1]) if tiles and op.axes else None
    if step is None or step[0].value != 1:
        return 1
    return min([mask_run(op), *map(uniform_run, tiles)])


def has_index_tiles(op: LoadOp | StoreOp) -> bool:
    """Whether elements are found by indices in tiles, which have no names among the coordinates."""
    return len(op.at) != len(op.coords)


def _multiples(op: LoadOp | StoreOp, axis: int = -1) -> dict[str, int]:
    """Numbers that the coordinates of the first of a thread's neighbours along an axis are multiples of."""
    starts = dict(zip(op.coords, map(index_multiple, op.at), strict=False))
    return {**starts, **{name: 1 for name in op.axes if name != op.axes[axis]}}


def mask_run(op: LoadOp | StoreOp, axis: int = -1) -> int:
    """Neighbours along an axis that bounds and windows treat alike, from a multiple of their number on."""
    last, multiples, found = op.axes[axis], _multiples(op, axis), MOST
    windows: tuple[Dim, ...] = op.windows
    pairs = [(Dim.symbol(axis), bound) for axis, bound in zip(op.guarded, op.bounds, strict=True)]
    for index, bound in (*pairs, *zip(windows[::2], windows[1::2], strict=True)):
        if last in bound.symbols:
            return 1
        if last in index.symbols:
            step = index.coefficient(last)
            is_unit = step is not None and step[0].value == 1
            found = gcd(found, multiple_of(index, multiples), multiple_of(bound, multiples)) if is_unit else 1
    return found


def uniform_run(value: SSAValue) -> int:
    """Neighbours of a tile that are one value, from a multiple of their number on, up to `MOST`."""
    op = value.owner
    if isinstance(op, ConstantOp):
        return MOST
    if isinstance(op, LoadOp):
        is_uniform = op.pattern == "uniform" and bool(op.axes) and not has_index_tiles(op)
        return mask_run(op) if is_uniform else 1
    if isinstance(op, BroadcastOp):
        axes: tuple[int, ...] = op.axes
        is_new = isinstance(value.type, VectorAttr) and len(value.type.sizes) - 1 not in axes
        return MOST if is_new else uniform_run(op.operands[0])
    if isinstance(op, ElementwiseOp | CastOp):
        return min(map(uniform_run, op.operands))
    return 1


def is_transposing(op: LoadOp, layout: Layout) -> bool:
    """Whether a load is contiguous in the first of two axes, and not in the last: it transposes in shared memory."""
    if len(op.axes) != 2 or has_index_tiles(op) or op.pattern != "strided" or layout.threads <= 1:
        return False
    along = op.offset.coefficient(op.axes[0])
    return along is not None and along[0].value == 1 and layout.size % layout.threads == 0 and min(layout.shape) > 1


def transposed_layout(op: LoadOp, layout: Layout) -> Layout:
    """Which thread reads which elements of a tile along its first axis, in which they are contiguous.

    One has as many neighbours as are written to shared memory at a time: what is left free there against bank
    conflicts keeps them aligned.
    """
    size = shaped_type(op.buffer).dtype.bytes
    rows, columns = layout.shape
    skew = skew_of(columns, rows, layout.vector, size)
    known = gcd(known_alignment(op, 0) // size, mask_run(op, 0), skew, rows)
    return Layout((columns, rows), layout.threads, max(1, known & -known))
