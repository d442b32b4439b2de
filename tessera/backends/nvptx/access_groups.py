"""How many neighbours one instruction of a load or store moves: by alignment, masks, and how indices are found.

A thread holds neighbours along the last axis of a tile. One instruction moves as many of them as are contiguous in
memory, begin at a multiple of their size, and share a mask. All three are known from multiples: a bound of 1000 cuts no
8 neighbours apart that begin at a multiple of 8, and a gather of rows is contiguous wherever the index of a row is one
for all of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd
from types import MappingProxyType
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.layout import Layout, skew_of
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.limits import buffer_alignment, index_end, index_multiple, multiple_of, size_multiples
from tessera.ir.target.typed_ops import (
    BroadcastOp,
    CastOp,
    ConstantOp,
    ElementwiseOp,
    KernelOp,
    LoadOp,
    ScratchOp,
    SelectOp,
    StoreOp,
)
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen

WIDEST = 16
"""Bytes that one thread moves in one instruction."""
LINE = 128
"""Bytes of a line of memory."""
FARTHEST = 4
"""Elements that one step goes on at most: of vectors that are wider apart little is used."""
NEAREST = 4
"""Rows below each other that one thread has at most."""
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
    steps = multiple_of(op.offset, multiples_of(op, axis))
    start = buffer_alignment(op.buffer)
    known = gcd(gcd(start, item * steps) if steps else start, WIDEST)
    return max(item, known & -known)


def run_of(op: LoadOp | StoreOp) -> int:
    """Neighbours that are contiguous in memory and share a mask, from a multiple of their number on, up to `MOST`."""
    if not op.axes:
        return 1
    tiles = [value for value in op.at if isinstance(value.type, VectorAttr)]
    step, run = step_of(op.offset, op.axes[-1], multiples_of(op)) or (0, 1)
    return min([mask_run(op), run, *map(uniform_run, tiles)]) if step == 1 else 1


def step_of(dim: Dim, axis: str, multiples: Mapping[str, int]) -> tuple[int, int] | None:
    """By how much an expression grows from one neighbour along an axis to the next, and for how many; None: not known.

    They begin at a multiple of their number. `p mod 1000` grows by one, and `p floordiv 1000` stays, for 8 neighbours.
    """
    total, run = 0, MOST
    for monomial, factor in dim.terms:
        if not any(axis in Dim((((atom,), 1),)).symbols for atom in monomial):
            continue
        if len(monomial) != 1:
            return None
        (atom,) = monomial
        if atom.kind == "symbol":
            total += factor
            continue
        above, below = atom.args
        inner = step_of(above, axis, multiples) if atom.kind in ("mod", "floordiv") and below.value else None
        if inner is None or inner[0] not in (0, 1):
            return None
        if not inner[0]:
            run = gcd(run, inner[1])
            continue
        whole = gcd(run, inner[1], multiple_of(above, multiples), below.value or 1)
        total, run = total + (factor if atom.kind == "mod" else 0), whole & -whole
    return total, run


def has_index_tiles(op: LoadOp | StoreOp) -> bool:
    """Whether elements are found by indices in tiles, which have no names among the coordinates."""
    return len(op.at) != len(op.coords)


def multiples_of(op: LoadOp | StoreOp, axis: int = -1) -> dict[str, int]:
    """Numbers that the coordinates of the first of a thread's neighbours along an axis are multiples of."""
    starts = dict(zip(op.coords, map(index_multiple, op.at), strict=False))
    return {**size_multiples(op), **starts, **{name: 1 for name in op.axes if name != op.axes[axis]}}


def mask_run(op: LoadOp | StoreOp, axis: int = -1, *, by_windows: bool = True) -> int:
    """Neighbours along an axis that bounds, and windows, treat alike, from a multiple of their number on."""
    last, multiples, found = op.axes[axis], multiples_of(op, axis), MOST
    windows: tuple[Dim, ...] = op.windows if by_windows else ()
    pairs = [(Dim.symbol(axis), bound) for axis, bound in zip(op.guarded, op.bounds, strict=True)]
    for index, bound in (*pairs, *zip(windows[::2], windows[1::2], strict=True)):
        if last in bound.symbols:
            return 1
        if last in index.symbols:
            step, run = step_of(index, last, multiples) or (-1, 1)
            cut = gcd(multiple_of(index, multiples), multiple_of(bound, multiples)) if step else 0
            found = gcd(found, run, cut) if step in (0, 1) else 1
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
    if isinstance(op, ElementwiseOp | SelectOp | CastOp):
        return min(map(uniform_run, op.operands))
    return 1


def is_transposing(op: LoadOp, layout: Layout) -> bool:
    """Whether a load is contiguous in the first of two axes, and not in the last: it transposes in shared memory.

    So it does where elements are a few apart, as those of a dim are that is stored before a short one: a warp reads
    lines of which others use the remainder, where along the last axis each of its elements would be in another line.
    """
    if len(op.axes) != 2 or has_index_tiles(op) or op.pattern != "strided" or layout.threads <= 1:
        return False
    step, across = (_step_along(op, axis) for axis in (0, 1))
    is_near = step == 1 or (
        step is not None and 1 < step <= FARTHEST and (across is None or across >= LINE // size_of(op))
    )
    return is_near and layout.size % layout.threads == 0 and min(layout.shape) > 1


def _step_along(op: LoadOp, axis: int) -> int | None:
    """Elements from one to the next along an axis; None where that is not known."""
    found = op.offset.coefficient(op.axes[axis])
    return None if found is None else found[0].value


def size_of(op: LoadOp | StoreOp) -> int:
    """Bytes of an element in memory."""
    return shaped_type(op.buffer).dtype.bytes


def transposed_layout(op: LoadOp, layout: Layout) -> Layout:
    """Which thread reads which elements of a tile along its first axis, in which they are contiguous.

    One has as many neighbours as are written to shared memory at a time: what is left free there against bank
    conflicts keeps them aligned.
    """
    size = shaped_type(op.buffer).dtype.bytes
    rows, columns = layout.shape
    skew = skew_of(columns, rows, layout.vector, size)
    known = gcd(known_alignment(op, 0) // size, mask_run(op, 0), skew, rows) if _step_along(op, 0) == 1 else 1
    each, rest = divmod(rows * columns, layout.threads)
    # Threads have as many groups each: 64 rows of 24 columns are six elements for each of 256, in groups of two.
    known = known if rest else gcd(known, each)
    return Layout((columns, rows), layout.threads, max(1, known & -known))


# Strided loads in vectors: windows of pooling and of convolutions, and steps of slices. Elements a few apart, or side
# by side from anywhere on, lie in the same vectors of memory. A thread loads these whole and takes what it wants of
# each, and loads of one row that begin a little apart, as those of the columns of a window do, find most vectors
# loaded already.


@frozen
class Strided:
    """How a strided load reads vectors: `width` elements each, one behind the other from `start` on.

    Neighbour `j` of a group is `first + step * j` elements behind `start`. `windows` are (index, extent, whether it
    moves with the vector): those of the vector at `start`. Those `within` always hold, and are dropped.
    """

    step: int
    width: int
    first: int
    start: Dim
    windows: tuple[tuple[Dim, Dim, bool], ...]
    within: tuple[tuple[Dim, Dim], ...] = ()

    def position(self, neighbour: int) -> tuple[int, int]:
        """The vector that a neighbour is in, by its number from `start` on, and its index there."""
        return divmod(self.first + self.step * neighbour, self.width)

    def windows_at(self, vector: int) -> list[tuple[Dim, Dim]]:
        """The windows of a vector: it is inside as a whole, or outside."""
        moved = [(index + vector * self.width if moves else index, extent) for index, extent, moves in self.windows]
        return [one for one in moved if one not in self.within]


def overlapping_loads(kernel: KernelOp) -> frozenset[LoadOp]:
    """Loads of neighbours, which others read too from a little before or behind: those of windows along rows."""
    found: dict[tuple[Any, ...], dict[LoadOp, Dim]] = {}
    for op in kernel.walk():
        if isinstance(op, LoadOp) and op.axes and op.pattern == "contiguous" and not has_index_tiles(op):
            key = op.buffer, tuple(op.axes), tuple(op.at), op.offset - _constant_of(op.offset)
            found.setdefault(key, {})[op] = op.offset
    return frozenset(op for group in found.values() if _has_near(group) for op in group)


def _has_near(loads: Mapping[LoadOp, Dim]) -> bool:
    """Whether two loads begin within a vector of each other, or of rows that one thread can have both."""
    op, offset = next(iter(loads.items()))
    row = offset.coefficient(op.axes[-2]) if len(op.axes) > 1 else None
    step = (row[0].value or 0) if row is not None else 0
    starts = sorted({_constant_of(offset) for offset in loads.values()})
    gaps = {abs(b - a - rows * step) for a, b in pairwise(starts) for rows in range(NEAREST)} if step else set[int]()
    return any(gap < MOST for gap in (*gaps, *(b - a for a, b in pairwise(starts))))


def _constant_of(dim: Dim) -> int:
    """What a dim is where all of its names are 0."""
    return dim.substitute(dict.fromkeys(dim.symbols, 0)).value or 0


def strided_load(op: LoadOp, layout: Layout, *, is_shifted: bool = False, below: int = 0) -> Strided | None:
    """How a load reads vectors of which it uses every few elements; None where it does not.

    Where it `is_shifted`, so is one of neighbours that begin anywhere, of which vectors hold the others. `below` is by
    how many rows the elements are below those that coordinates are of.
    """
    is_single = layout.vector == 1 and (layout.rows == 1 or not is_shifted)
    if op.pattern != ("contiguous" if is_shifted else "strided") or has_index_tiles(op) or is_single:
        return None
    last, multiples, type = op.axes[-1], multiples_of(op), shaped_type(op.buffer)
    moved = {op.axes[-2]: Dim.symbol(op.axes[-2]) + below} if below else {}
    offset, given = op.offset.substitute(moved), [dim.substitute(moved) for dim in op.windows]
    if below and (end := _cut_between_rows(op, layout)) is not None:
        given += [Dim.symbol(op.axes[-2]) + below, end]
    step, run = step_of(offset, last, multiples) or (0, 1)
    total = product(type.shape).value
    if not (1 if is_shifted else 2) <= step <= FARTHEST or total is None:
        return None
    if min(run, mask_run(op, by_windows=False)) < layout.vector:
        return None
    first = _constant_of(offset)
    start, size = offset - first, type.dtype.bytes
    width = gcd(multiple_of(start, multiples), step * layout.vector, total, WIDEST // size)
    width = gcd(width, buffer_alignment(op.buffer) // size)
    windows: list[tuple[Dim, Dim, bool]] = []
    for index, extent in zip(given[::2], given[1::2], strict=True):
        moves = last in index.symbols
        if last in extent.symbols or (moves and (step_of(index, last, multiples) or (0, 1))[0] != step):
            return None
        here = index - first if moves else index
        width = gcd(width, multiple_of(here, multiples), multiple_of(extent, multiples)) if moves else width
        windows.append((here, extent, moves))
    if width == 1 and not is_shifted:
        return None
    return Strided(step, width, first, start, tuple(windows), _within(op, layout))


def _cut_between_rows(op: LoadOp, layout: Layout) -> Dim | None:
    """The bound that some of the rows that a thread has below each other can be beyond, where the first is not."""
    bound = dict(zip(op.guarded, op.bounds, strict=True)).get(op.axes[-2])
    return None if bound is None or multiple_of(bound, {}) % layout.rows == 0 else bound


def _within(op: LoadOp, layout: Layout) -> tuple[tuple[Dim, Dim], ...]:
    """Windows that an access is always within: its coordinates, and what bounds them or is beyond all programs."""
    bounds = dict(zip(op.guarded, op.bounds, strict=True))
    starts = dict(zip(op.coords, op.at, strict=False))
    found: list[tuple[Dim, Dim]] = []
    for number, (axis, size) in enumerate(zip(op.axes, shaped_type(op.result).shape, strict=True)):
        end = bounds.get(axis)
        if end is None:
            last = index_end(starts[axis])
            end = None if last is None else last + size - 1
        rows = layout.rows if number == len(op.axes) - 2 and _cut_between_rows(op, layout) is None else 1
        if end is not None:
            found += [(Dim.symbol(axis) + row, end) for row in range(rows)]
    return tuple(found)


# Loads and stores of one element to a thread that are next to each other in shared memory: one instruction moves them.
# A thread that has a chunk of its own reads its elements by as many ops, at offsets of 0, 1, 2, ... from its begin.
# Where a few of them begin at a multiple of their size, they are one vector: a load gives what the first op and those
# after it ask for, and a store waits until the last of them is computed. Between the ops of one vector is nothing but
# arithmetic, so no barrier and no other access of memory sees the difference.

Accesses = tuple[LoadOp | StoreOp, ...]
_BETWEEN = ("elementwise", "select", "cast", "bitcast", "round", "constant", "coordinate", "broadcast", "index", "clip")
"""Ops that access no memory and wait for no one."""


def find_adjacent(
    kernel: KernelOp, slices: Mapping[tuple[int, ...], int] = MappingProxyType({})
) -> dict[LoadOp | StoreOp, Accesses]:
    """For each op that shares an instruction with others, all of these in the order of their addresses.

    Of tiles that are `slices` of rows a thread has several elements, or others have the same (`find_row_slices`).
    """
    found: dict[LoadOp | StoreOp, Accesses] = {}
    if kernel.warps_per_row or kernel.threads <= 1:
        return found
    for run in _runs(kernel, slices):
        for vector in _divide(run):
            found.update(dict.fromkeys(vector, vector))
    return found


def _runs(kernel: KernelOp, slices: Mapping[tuple[int, ...], int]) -> Iterator[Accesses]:
    """Ops of one kind at neighbouring elements, with nothing but arithmetic between them."""
    for block in (region.block for op in kernel.walk() for region in op.regions):
        yield from _runs_of_block(kernel, block, slices)


def _runs_of_block(kernel: KernelOp, block: Block, slices: Mapping[tuple[int, ...], int]) -> Iterator[Accesses]:
    run: list[LoadOp | StoreOp] = []
    for op in block.ops:
        if op.name.removeprefix("ttarget.") in _BETWEEN:
            continue
        one = op if isinstance(op, LoadOp | StoreOp) and _is_single(kernel, op, slices) else None
        if run and (one is None or not _follows(run[-1], one)):
            yield tuple(run)
            run = []
        if one is not None:
            run.append(one)
    yield tuple(run)


def _is_single(kernel: KernelOp, op: LoadOp | StoreOp, slices: Mapping[tuple[int, ...], int]) -> bool:
    """Whether every thread accesses one element of shared memory of its own, or all of them load the same."""
    scratch = op.buffer.owner
    if not isinstance(scratch, ScratchOp) or scratch.space != "shared" or scratch.swizzle:
        return False
    if op.guarded or op.windows or has_index_tiles(op):
        return False
    shape = sizes_of(op.block if isinstance(op, StoreOp) else op.result)
    is_own = shape == (kernel.threads,) and slices.get(shape, 1) == 1
    return is_own and op.mode == "set" if isinstance(op, StoreOp) else is_own or not shape


def _follows(before: LoadOp | StoreOp, op: LoadOp | StoreOp) -> bool:
    """Whether an op accesses what is behind the element of another, in the same way."""
    if type(before) is not type(op) or before.buffer is not op.buffer or before.axes != op.axes:
        return False
    is_at_same = dict(zip(before.coords, before.at, strict=True)) == dict(zip(op.coords, op.at, strict=True))
    return is_at_same and op.offset - before.offset == Dim.constant(1)


def _divide(run: Sequence[LoadOp | StoreOp]) -> Iterator[Accesses]:
    """The vectors of a run: from a multiple of their size on, and of a power of two elements."""
    at = 0
    while at < len(run):
        width = _known_width(run[at])
        while width > len(run) - at:
            width //= 2
        if width > 1:
            yield tuple(run[at : at + width])
        at += max(1, width)


def _known_width(op: LoadOp | StoreOp) -> int:
    """Elements that one instruction moves from an op's address on, wherever a thread is."""
    size = shaped_type(op.buffer).dtype.bytes
    starts = {name: index_multiple(value) for name, value in zip(op.coords, op.at, strict=True)}
    steps = multiple_of(op.offset, {**starts, **dict.fromkeys(op.axes, 1)})
    known = gcd(buffer_alignment(op.buffer), WIDEST, size * steps)
    return max(1, (known & -known) // size)
