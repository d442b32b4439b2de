"""Passes with sums over rows, leaf by leaf, as numerics say (docs/guide/numerics.md).

A leaf has 256 lanes of up to four elements, which a halving tree joins. On a GPU all lanes are one tile. On a CPU some
are computed at a time: a tile of lanes, and with each the lanes 32, 64 ... further on, in the order of the tree, so
that what is not yet joined stays in registers; what is left of them waits in lines of scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap
from tessera.ir.schedule.emit.evaluate import Reducer
from tessera.ir.tile.language import TileRegion
from tessera.types.dim import Dim, maximum, minimum, next_power_of_two
from tessera.types.numerics import LANES, LEAF
from tessera.types.shape import ZERO

if TYPE_CHECKING:
    from tessera.ir.schedule.emit.rows import RowKernel

JOINED = 32
"""Lanes that are left of a leaf when those that many and more apart are joined."""

LIGHT = 8
"""Operations of a pass whose body may be written many times."""

_ROLLED = 2 * LANES
"""Elements of a leaf from which on a loop over its lanes is shorter than what it repeats."""

_LEAF, _LANE, _LINE, _COLUMN, _END = (Dim.symbol(name) for name in ("_f", "_l", "_k", "_c", "_e"))


class LeafPass:
    """A pass with sums, leaf by leaf; `over` runs over the columns of a program, where it has several vectors of them.

    Lanes of a leaf that are computed at a time are one tile, `group` of them: on a GPU all, on a CPU a few, which then
    wait in a line of scratch. What needs no order goes along in tiles of its own.
    """

    def __init__(
        self,
        kernel: RowKernel,
        level: int,
        reducers: Sequence[Reducer],
        stored: list[int],
        kept: list[int],
    ) -> None:
        self.kernel, self.tile, self.level, self.stored, self.kept = kernel, kernel.tile, level, stored, kept
        self.group = kernel.group_of(level, stored)
        shape = (self.group, *kernel.row_region.sizes)
        self.sums = [reducer.with_shape(shape) for reducer in reducers if kernel.is_ordered(reducer.record)]
        self.others = [reducer.with_shape(shape) for reducer in reducers if not kernel.is_ordered(reducer.record)]
        self.is_single = kernel.is_single
        self.leaves = [] if self.is_single else [self._scratch(kernel.leaves, reducer) for reducer in self.sums]

    def _scratch(self, lines: Dim | int, reducer: Reducer) -> SSAValue:
        return self.tile.scratch([lines, self.kernel.columns], reducer.dtype)

    def emit(self) -> None:
        """The pass; the values of all its reductions are then ready."""
        kernel, tile = self.kernel, self.tile
        starts = [start for reducer in self.others for start in reducer.start()]
        if self.is_single:
            kernel.join(self.others, self.all_leaves(starts))
            return
        if kernel.extent.value is None:
            # A row of no elements has no leaf, and yet a sum.
            kernel.over_columns(self._clear)
        ends = self.all_leaves(starts)
        for reducer, leaves in zip(self.sums, self.leaves, strict=True):
            tile.span = reducer.record.span
            tile.tree(leaves, kernel.count_leaves(), reducer.lower.kind)
        kernel.over_columns(self._take_totals)
        kernel.join(self.others, ends)

    def all_leaves(self, carried: list[SSAValue]) -> list[SSAValue]:
        """Every leaf, one after the other."""
        if self.is_single:
            return self._leaf(self.kernel.low, carried)
        return self.tile.loop(self.kernel.low, self.kernel.high, LEAF, self._leaf, carried)

    def _clear(self) -> None:
        """Let the first leaf be that of no elements."""
        for reducer, leaves in zip(self.sums, self.leaves, strict=True):
            shape = tuple(self.kernel.row_region.sizes)
            self._store(reducer.with_shape(shape).start()[0], leaves, self.kernel.zero, 0)

    def _take_totals(self) -> None:
        for reducer, leaves in zip(self.sums, self.leaves, strict=True):
            self.kernel.take_total(reducer, self._load(leaves, self.kernel.zero, 0))
        self.kernel.finish_columns()

    def _leaf(self, first: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """One leaf, from element `first` on, all of its lanes at a time: each takes its elements in order."""
        kernel, tile = self.kernel, self.tile
        reducers, sums = [*self.sums, *self.others], len(self.sums)

        def step(row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            with kernel.evaluator.scope():
                region = kernel.lanes_at(row, self.group)
                return kernel.step(self.level, reducers, self.stored, self.kept, carried, region)

        ends = [*(start for reducer in self.sums for start in reducer.start()), *carried]
        steps = min(LEAF // LANES, -(-kernel.extent.value // LANES) if kernel.extent.value is not None else LEAF)
        if kernel.by_columns and kernel.count_flops() > 2 * LIGHT and steps == LEAF // LANES:
            end = tile.index(minimum(_LEAF + LEAF, kernel.extent), {"_f": first})
            ends = tile.loop(first, end, LANES, step, ends)
        else:
            for number in range(steps):
                ends = step(tile.index(_LANE + number * LANES, {"_l": first}) if number else first, ends)
        self.found = ends[:sums]
        if self.sums:
            self._finish_leaf(first)
        return ends[sums:]

    def _finish_leaf(self, first: SSAValue) -> None:
        """Join what is left of the lanes of a leaf."""
        kernel = self.kernel
        for number, reducer in enumerate(self.sums):
            self.tile.span = reducer.record.span
            total = self.tile.reduce(self.found[number], reducer.lower.kind, 0)
            if self.is_single:
                kernel.take_total(reducer, total)
            else:
                self._store(total, self.leaves[number], kernel.leaf_of(first), 0)
        if self.is_single:
            kernel.finish_columns()

    def _locate(self, line: SSAValue, count: int) -> tuple[IndexMap, TileRegion]:
        """Where lines of scratch are, `count` from a line on, or one where it is 0."""
        kernel = self.kernel
        coords, axes, sizes = {"_k": line, "_c": kernel.column}, ("_k",) * bool(count), (count,) * bool(count)
        if kernel.by_columns:
            axes, sizes = (*axes, "_c"), (*sizes, kernel.width)
        return (_LINE, _COLUMN), TileRegion(coords, axes, sizes)

    def _load(self, buffer: SSAValue, line: SSAValue, count: int) -> SSAValue:
        at, region = self._locate(line, count)
        return self.tile.load(buffer, at, region)

    def _store(self, value: SSAValue, buffer: SSAValue, line: SSAValue, count: int) -> None:
        at, region = self._locate(line, count)
        self.tile.store(value, buffer, at, region)


class HalvingPass(LeafPass):
    """The same on a CPU. Leaves whose length is known are unrolled; the last of a symbolic row is as above."""

    def __init__(
        self,
        kernel: RowKernel,
        level: int,
        reducers: Sequence[Reducer],
        stored: list[int],
        kept: list[int],
    ) -> None:
        super().__init__(kernel, level, reducers, stored, kept)
        # The halving tree takes elements far apart first.
        self.others = [replace(reducer, in_order=False) for reducer in self.others]
        extent = kernel.extent.value
        self.left = JOINED if extent is None else min(JOINED, max(self.group, next_power_of_two(extent)))
        """Lanes that a leaf is reduced to."""
        is_whole = extent is None or (self.group >= self.left and not kernel.is_in_strips)
        self.joined = [] if is_whole else [self._scratch(self.left, reducer) for reducer in self.sums]
        work = kernel.count_work(level)
        self.span = LANES // 4 if work <= LIGHT else LANES // 2 if work < 2 * LIGHT else LANES
        """Lanes of a long leaf that wait in scratch, each joined with those so far on."""
        has_lines = extent is None or extent >= _ROLLED
        self.lines = [self._scratch(LANES, reducer) for reducer in self.sums] if has_lines else []
        wide = self.group if self.others else 8 if kernel.by_columns else JOINED
        self.wide_sums = [reducer.with_shape((wide, *kernel.row_region.sizes)) for reducer in self.sums]
        self.wide = wide
        """Lanes of the last leaf of a symbolic row that are computed at a time."""

    def all_leaves(self, carried: list[SSAValue]) -> list[SSAValue]:
        kernel, tile, extent = self.kernel, self.tile, self.kernel.extent
        if self.is_single:
            return self._reduce_leaf(kernel.low, min(extent.value or 0, LEAF), carried)

        def whole(first: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            return self._reduce_leaf(first, LEAF, carried)

        def last(number: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            return self._reduce_leaf(tile.index(_LEAF * LEAF, {"_f": number}), (extent.value or 0) % LEAF, carried)

        count, end = _END // LEAF, kernel.index_by_end
        carried = tile.loop(kernel.low, end(count * LEAF), LEAF, whole, carried)
        if extent % LEAF == ZERO:
            return carried
        if extent.value is not None and kernel.low is kernel.zero:
            return self._reduce_leaf(end(count * LEAF), extent.value % LEAF, carried)
        # Of the runs of a row the last alone ends within a leaf.
        write = self._last_leaf if extent.value is None else last
        return tile.loop(end(count), end(_END.ceildiv(LEAF)), 1, write, carried)

    def _reduce_leaf(self, first: SSAValue, length: int, carried: list[SSAValue]) -> list[SSAValue]:
        """A leaf of known length, from element `first` on."""
        kernel, tile = self.kernel, self.tile
        if length >= _ROLLED:
            return self._roll_leaf(first, length, carried)

        def lanes(lane: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            start = tile.index(_LEAF + _LANE, {"_f": first, "_l": lane})
            kernel.over_columns(lambda: self._reduce_lanes(start, lane, length, carried))
            return self.carried

        if self.group >= self.left:
            carried = lanes(kernel.zero, carried)
        else:
            carried = tile.loop(kernel.zero, tile.index(self.left), self.group, lanes, carried)
        if self.sums:
            kernel.over_columns(lambda: self._join_lanes(first))
        return carried

    def _reduce_lanes(self, start: SSAValue, lane: SSAValue, length: int, carried: list[SSAValue]) -> None:
        """Lanes from `lane` on, joined with those 32, 64 ... further on."""
        self.carried = carried
        self.found = self._tree(start, length, 0, 1)
        for line, found in zip(self.joined, self.found, strict=False):
            self._store(found, line, lane, self.group)

    def _tree(
        self, start: SSAValue, length: int, number: int, count: int, span: int = JOINED, lanes: int = JOINED
    ) -> list[SSAValue]:
        """What a halving tree leaves of lanes `number * span` ... when it has halved them to `count * span`.

        `start` is one of the first `lanes`.
        """
        if count == LANES // span:
            return self._chain(start, length, number * span, lanes)
        near = self._tree(start, length, number, 2 * count, span, lanes)
        if (number + count) * span >= length:
            return near
        far = self._tree(start, length, number + count, 2 * count, span, lanes)
        return [one.combine(*pair) for one, pair in zip(self.sums, zip(near, far, strict=True), strict=True)]

    def _chain(self, start: SSAValue, length: int, offset: int, lanes: int) -> list[SSAValue]:
        """Lanes so far behind `start`: each takes its elements in order."""
        kernel, tile, sums = self.kernel, self.tile, len(self.sums)
        ends = [*(start for reducer in self.sums for start in reducer.start()), *self.carried]
        for at in range(offset, length, LANES):
            row = tile.index(_LANE + at, {"_l": start}) if at else start
            region = kernel.lanes_at(row, self.group, is_whole=at + max(lanes, self.group) <= length)
            with kernel.evaluator.scope():
                ends = kernel.step(self.level, [*self.sums, *self.others], self.stored, self.kept, ends, region)
        self.carried = ends[sums:]
        return ends[:sums]

    def _join_lanes(self, first: SSAValue) -> None:
        if self.joined:
            self.found = [self._load(line, self.kernel.zero, self.left) for line in self.joined]
        self._finish_leaf(first)

    def _roll_leaf(self, first: SSAValue, length: int, carried: list[SSAValue]) -> list[SSAValue]:
        """A leaf of known length in loops over lanes: those with one element more than others, and the others."""
        kernel, tile = self.kernel, self.tile
        # Lanes of three kinds are written where the end is within a span.
        span = self.span if length % self.span == 0 else min(2 * self.span, LANES)
        ragged = length % span
        even = ragged // self.group * self.group

        def lanes_with(length: int, lanes: int) -> Callable[[SSAValue, list[SSAValue]], list[SSAValue]]:
            def write(lane: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
                start = tile.index(_LEAF + _LANE, {"_f": first, "_l": lane})
                kernel.over_columns(lambda: self._fill_lanes(start, lane, length, span, lanes, carried))
                return self.carried

            return write

        past = even
        if even:
            carried = tile.loop(kernel.zero, tile.index(even), self.group, lanes_with(length, even), carried)
        if ragged > even:
            carried = lanes_with(length - even, self.group)(tile.index(even), carried)
            past += self.group
        if past < span:
            others = lanes_with(length - ragged, span)
            carried = tile.loop(tile.index(past), tile.index(span), self.group, others, carried)
        kernel.over_columns(lambda: self._join_lines(first, tile.index(span)))
        return carried

    def _fill_lanes(
        self, start: SSAValue, lane: SSAValue, length: int, span: int, lanes: int, carried: list[SSAValue]
    ) -> None:
        """Put lanes from `lane` on, one of the first `lanes`, into their lines."""
        self.carried = carried
        found = self._tree(start, length, 0, 1, span, lanes)
        for line, value in zip(self.lines, found, strict=True):
            self._store(value, line, lane, self.group)

    def _last_leaf(self, number: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """The last leaf of a symbolic row: elements in order, each into the line of its lane."""
        kernel, tile, some = self.kernel, self.tile, self.wide
        first = tile.index(_LEAF * LEAF, {"_f": number})
        length = tile.index(kernel.extent - _LEAF, {"_f": first})
        used = tile.index(minimum(_LANE, LANES), {"_l": length})

        def clear(lane: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            kernel.over_columns(lambda: self._put([one.start()[0] for one in self.wide_sums], lane))
            return carried

        def take(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            row = tile.index(_LEAF + _LANE, {"_f": first, "_l": at})
            lane = tile.index(_LANE % LANES, {"_l": at})
            kernel.over_columns(lambda: self._take(row, lane, carried))
            return self.carried

        tile.loop(kernel.zero, used, some, clear)
        carried = tile.loop(kernel.zero, length, some, take, carried)
        kernel.over_columns(lambda: self._join_lines(first, used))
        return carried

    def _put(self, found: Sequence[SSAValue], lane: SSAValue) -> None:
        for line, value in zip(self.lines, found, strict=True):
            self._store(value, line, lane, self.wide)

    def _take(self, row: SSAValue, lane: SSAValue, carried: list[SSAValue]) -> None:
        """Add elements from `row` on to their lanes."""
        kernel, sums = self.kernel, len(self.sums)
        before = [self._load(line, lane, self.wide) for line in self.lines]
        with kernel.evaluator.scope():
            region = kernel.lanes_at(row, self.wide, is_whole=kernel.extent % self.wide == ZERO)
            reducers = [*self.wide_sums, *self.others]
            ends = kernel.step(self.level, reducers, self.stored, self.kept, [*before, *carried], region)
        self._put(ends[:sums], lane)
        self.carried = ends[sums:]

    def _join_lines(self, first: SSAValue, used: SSAValue) -> None:
        """Join the lines of a leaf in a halving tree; those behind the used ones are left out."""
        for reducer, line in zip(self.sums, self.lines, strict=True):
            self.tile.span = reducer.record.span
            half = LANES // 2
            while half >= self.wide:
                self._halve(reducer, line, half, used)
                half //= 2
        self.found = [self._load(line, self.kernel.zero, self.wide) for line in self.lines]
        self._finish_leaf(first)

    def _halve(self, reducer: Reducer, line: SSAValue, half: int, used: SSAValue) -> None:
        """Lanes that are `half` apart, joined into the first."""
        tile, kernel = self.tile, self.kernel

        def pair(lane: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            here = self._load(line, lane, self.wide)
            other = self._load(line, tile.index(_LANE + half, {"_l": lane}), self.wide)
            self._store(reducer.combine(here, other), line, lane, self.wide)
            return carried

        past = tile.index(maximum(_LANE - half, 0), {"_l": used})
        tile.loop(kernel.zero, past, self.wide, pair)
