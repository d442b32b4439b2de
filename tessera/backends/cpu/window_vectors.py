"""Vectors of elements seen through windows: places tabled once, then runs of memory read as runs.

The place of an element is a sum of a part of its row and a part of its column, and so is its coordinate in each window
it must lie in. A vector has neighbouring rows of one column. How its rows lie in memory is the same for every column,
so it is found out once: in one run or in two, without or with a gap of one after each row, or anyhow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeAlias

from tessera.backends.cpu.emit_apart import gather_narrow
from tessera.backends.cpu.windows import Windows
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.text import FunctionText, Index, Value
from tessera.ir.target.llvm.types import bytes_of, vector
from tessera.types.dtype import DType

DEPTH = 256
"""Columns that fit the tables."""

_NOWHERE = -(1 << 30)
"""A coordinate outside of every window, whatever the column adds to it."""

Read: TypeAlias = Callable[[Value], Value]
"""`read(column)`: the vector's elements of a column, zero outside the windows, in the accumulator's dtype."""
_Way: TypeAlias = Callable[..., Value]
"""A way to read a column, given where runs begin."""


class WindowVectors:
    """The tables of one operand in one function, and vectors of `lanes` rows read with them."""

    def __init__(
        self,
        g: FunctionText,
        windows: Windows,
        dtype: DType,
        accumulator: DType,
        frame: Sequence[Value],
        rows: int,
        lanes: int,
    ) -> None:
        self.g, self.windows, self.dtype, self.accumulator = g, windows, dtype, accumulator
        self.frame, self.lanes = frame, lanes
        self.stored = convert.storage_type(dtype)
        extents = windows.extents(g, frame)
        self._extents = [g.splat(g.cast("trunc", extent, "i32"), lanes) for extent in extents]
        # A vector may begin at the last row.
        self._row_offsets, self._row_places = self._tables(rows + lanes, len(extents))
        self._column_offsets, self._column_places = self._tables(DEPTH, len(extents))
        self._base = self._base_of(frame)

    def _tables(self, size: int, windows: int) -> tuple[Value, list[Value]]:
        return self.g.alloca("i64", size), [self.g.alloca("i32", size) for _ in range(windows)]

    def _base_of(self, frame: Sequence[Value]) -> Value:
        start = self.windows.start(self.g, frame)
        return self.g.gep(self.windows.base(self.g, frame), start[0], self.stored)

    def move(self, frame: Sequence[Value]) -> None:
        """Read from where another frame has its elements, with the same tables."""
        self._base = self._base_of(frame)

    def fill_rows(self, first: Index, count: Index, pad: int) -> None:
        """Table `count` rows from `first`; vectors may begin up to a multiple of `pad`.

        Rows that do not exist lie outside of all windows and go on as a run; without windows they repeat the last row.
        """
        g = self.g
        last = g.sub(count, 1)

        def one(i: Value) -> None:
            offset, *places = self.windows.row(g, g.add(first, g.smin(i, last)), self.frame)
            if places:
                beyond = g.icmp("sgt", i, last)
                offset = g.add(offset, g.smax(g.sub(i, last), 0))
                places = [g.select(beyond, g.const_i(_NOWHERE), place) for place in places]
            self._put(i, self._row_offsets, self._row_places, [offset, *places])

        g.loop(0, g.add(g.round_up(count, pad), self.lanes), 1, one)

    def fill_columns(self, first: Index, count: Index) -> None:
        """Table up to `DEPTH` columns from `first`."""
        g = self.g
        starts = self.windows.start(g, self.frame)[1:]

        def one(i: Value) -> None:
            offset, *places = self.windows.column(g, g.add(first, i), self.frame)
            places = [g.add(place, start) for place, start in zip(places, starts, strict=True)]
            self._put(i, self._column_offsets, self._column_places, [offset, *places])

        g.loop(0, count, 1, one)

    def _put(self, i: Value, offsets: Value, places: Sequence[Value], terms: Sequence[Value]) -> None:
        g = self.g
        g.store(terms[0], g.gep(offsets, i, "i64"))
        for table, term in zip(places, terms[1:], strict=True):
            g.store(g.cast("trunc", term, "i32"), g.gep(table, i, "i32"))

    def _vector(self, row: Index) -> _Vector:
        g = self.g
        offsets = g.load(g.gep(self._row_offsets, row, "i64"), vector("i64", self.lanes))
        places = [g.load(g.gep(table, row, "i32"), vector("i32", self.lanes)) for table in self._row_places]
        return _Vector(self, offsets, places)

    def several(
        self,
        row: Index,
        count: int,
        wanted: Value,
        body: Callable[[list[Read]], None],
        otherwise: Callable[[], None],
    ) -> None:
        """`body(reads)` for `count` vectors from a row on, where `wanted` and each is a run, else `otherwise`."""
        g = self.g
        vectors = [self._vector(g.add(row, number * self.lanes)) for number in range(count)]
        firsts = [g.extract(vector.offsets, 0) for vector in vectors]
        masks = [_lies(g, vector.offsets, first, 1) for vector, first in zip(vectors, firsts, strict=True)]
        begins = [g.gep(self._base, first, self.stored) for first in firsts]
        reads = [partial(vector.run, begin=begin) for vector, begin in zip(vectors, begins, strict=True)]
        are_runs = _all(g, reduce(partial(g.op, "and"), masks))
        g.if_(g.op("and", wanted, are_runs), lambda: body(list(reads)), otherwise)

    def at(self, row: Index, body: Callable[[Read], None]) -> None:
        """`body(read)` for the vector that begins at a tabled row: written once for each way its rows may lie."""
        g, lanes = self.g, self.lanes
        vectors = self._vector(row)
        offsets = vectors.offsets
        first, last = g.extract(offsets, 0), g.extract(offsets, lanes - 1)
        begin = g.gep(self._base, first, self.stored)

        def runs(step: int, one: _Way, two: _Way, otherwise: Callable[[], None]) -> None:
            start = g.sub(last, step * (lanes - 1))
            end = g.gep(self._base, start, self.stored)
            beside, after = _lies(g, offsets, first, step), _lies(g, offsets, start, step)

            def broken() -> None:
                both = partial(two, begin=begin, end=end, is_first=beside)
                g.if_(_all(g, g.op("or", beside, after)), lambda: body(both), otherwise)

            g.if_(_all(g, beside), lambda: body(partial(one, begin=begin)), broken)

        def with_gaps() -> None:
            runs(2, vectors.spread, vectors.two_spreads, lambda: body(vectors.gathered))

        runs(1, vectors.run, vectors.two_runs, with_gaps)

    def line(self, column: Value, start: Value | None = None) -> Value:
        """Where a column begins, or the part of it that begins at `start` in the first column."""
        g = self.g
        return g.gep(start or self._base, g.load(g.gep(self._column_offsets, column, "i64"), "i64"), self.stored)

    def inside(self, column: Value, places: Sequence[Value]) -> Value | None:
        """Which lanes lie in all windows; None where there is no window."""
        g, mask = self.g, None
        for place, table, extent in zip(places, self._column_places, self._extents, strict=True):
            term = g.splat(g.load(g.gep(table, column, "i32"), "i32"), self.lanes)
            here = g.icmp("ult", g.op("add", place, term), extent)
            mask = here if mask is None else g.op("and", mask, here)
        return mask


class _Vector:
    """One vector's rows, and its elements of a column by each way to read them."""

    def __init__(self, of: WindowVectors, offsets: Value, places: Sequence[Value]) -> None:
        self.of, self.g, self.offsets, self.places = of, of.g, offsets, places
        self.type = vector(of.stored, of.lanes)

    def run(self, column: Value, begin: Value) -> Value:
        """Rows beside each other."""
        g, mask = self.g, self.of.inside(column, self.places)
        pointer = self.of.line(column, begin)
        return self._cast(g.load(pointer, self.type) if mask is None else g.masked_load(pointer, self.type, mask))

    def two_runs(self, column: Value, begin: Value, end: Value, is_first: Value) -> Value:
        """A run from the first row on, and one that ends with the last row: where an image begins a new line."""
        g, mask = self.g, self.of.inside(column, self.places)
        is_last = g.op("xor", is_first, g.const("i1", True, self.of.lanes))
        if mask is not None:
            is_first, is_last = g.op("and", is_first, mask), g.op("and", is_last, mask)
        left = g.masked_load(self.of.line(column, begin), self.type, is_first)
        return self._cast(g.masked_load(self.of.line(column, end), self.type, is_last, left))

    def spread(self, column: Value, begin: Value) -> Value:
        """Every second element of a run, as a step of two leaves them."""
        g, mask = self.g, self.of.inside(column, self.places)
        line = self.of.line(column, begin)
        if mask is None:
            return self._cast(self._every_second(line))
        (value,) = g.if_(_all(g, mask), lambda: self._every_second(line), lambda: self._every_second(line, mask))
        return self._cast(value)

    def two_spreads(self, column: Value, begin: Value, end: Value, is_first: Value) -> Value:
        """Every second element of two runs."""
        g, mask = self.g, self.of.inside(column, self.places)
        is_last = g.op("xor", is_first, g.const("i1", True, self.of.lanes))
        if mask is not None:
            is_first, is_last = g.op("and", is_first, mask), g.op("and", is_last, mask)
        left = self._every_second(self.of.line(column, begin), is_first)
        right = self._every_second(self.of.line(column, end), is_last)
        return self._cast(g.select(is_last, right, left))

    def _every_second(self, start: Value, mask: Value | None = None) -> Value:
        """Elements 0, 2, 4, ... where a mask holds, from two loads."""
        g, lanes = self.g, self.of.lanes
        # The second load begins one early, so that nothing is read past the last row.
        pointers = (start, g.gep(start, lanes - 1, self.of.stored))
        if mask is None:
            low, high = (g.load(pointer, self.type) for pointer in pointers)
        else:
            never = g.const("i1", False, lanes)
            spans = (range(lanes), range(lanes - 1, 2 * lanes - 1))
            masks = [g.shuffle(mask, never, [at // 2 if at % 2 == 0 else lanes for at in span]) for span in spans]
            low, high = (g.masked_load(pointer, self.type, held) for pointer, held in zip(pointers, masks, strict=True))
        return g.shuffle(low, high, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])

    def gathered(self, column: Value) -> Value:
        """Rows anywhere."""
        mask = self.of.inside(column, self.places) or self.g.const("i1", True, self.of.lanes)
        return self._cast(self._gather(self.of.line(column), mask))

    def _gather(self, line: Value, mask: Value) -> Value:
        pointers = self.g.raw(vector("ptr", self.of.lanes), f"getelementptr {self.of.stored}, {line}, {self.offsets}")
        zero, size = Value(self.type, "zeroinitializer"), bytes_of(self.of.stored)
        target = self.g.target
        if target.has_narrow_masks and self.of.lanes == target.lanes and size < 4:
            return gather_narrow(self.g, pointers, self.of.stored, mask, zero)
        return self.g.gather(pointers, self.type, mask, zero, size)

    def _cast(self, stored: Value) -> Value:
        value = convert.widened(self.g, stored, self.of.dtype)
        return convert.cast(self.g, value, self.of.dtype, self.of.accumulator)


def _lies(g: FunctionText, offsets: Value, start: Value, step: int) -> Value:
    """Which lanes lie at `start + step * lane`."""
    lanes = offsets.lanes
    steps = g.lanes_const("i64", [step * lane for lane in range(lanes)])
    return g.icmp("eq", offsets, g.op("add", g.splat(start, lanes), steps))


def _all(g: FunctionText, mask: Value) -> Value:
    """Whether a mask holds in every lane."""
    bits = g.bitcast(mask, f"i{mask.lanes}")
    return g.icmp("eq", bits, g.const(bits.type, -1))
