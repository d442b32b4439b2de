"""Operands read through windows, such as the patches of a convolution: where elements are, vectors of them, panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial, reduce
from typing import Protocol, TypeAlias

from tessera.backends.cpu.emit_access import gather_narrow, load_strided
from tessera.backends.cpu.micro_kernel import FirstBlock, FirstRows, MicroShape, multiply_panel
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, dim_value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# Windows whose offset and coordinates are Dim expressions that split into a part of the row and a part of the column.

Inside: TypeAlias = Callable[[FunctionText, Sequence[Value]], tuple[Value, Mapping[str, Index]]]
"""`inside(f, frame)`: the operand's pointer and the values of its symbols, in a function written for the frame."""


def split_by_axis(dim: Dim, axes: tuple[str, str]) -> tuple[Dim, Dim, Dim] | None:
    """A sum as the parts of neither axis, of the first and of the second, or None where a term depends on both."""
    parts = [Dim.constant(0)] * 3
    for monomial, coefficient in dim.terms:
        term = Dim(((monomial, coefficient),))
        if set(axes) <= term.symbols:
            return None
        part = 1 + axes.index(next(axis for axis in axes if axis in term.symbols)) if term.symbols & set(axes) else 0
        parts[part] = parts[part] + term
    return parts[0], parts[1], parts[2]


class DimWindows:
    """The `Windows` of an offset and of (coordinate, extent) pairs; `make` gives None where they do not split."""

    def __init__(
        self, axes: tuple[str, str], parts: Sequence[tuple[Dim, Dim, Dim]], extents: Sequence[Dim], inside: Inside
    ) -> None:
        self._axes, self._parts, self._extents, self._inside = axes, parts, extents, inside

    @staticmethod
    def make(axes: tuple[str, str], offset: Dim, windows: Sequence[Dim], inside: Inside) -> DimWindows | None:
        """Windows from an offset and alternating coordinates and extents, over the names of row and column."""
        parts = [split_by_axis(dim, axes) for dim in (offset, *windows[::2])]
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts) or any(set(axes) & extent.symbols for extent in windows[1::2]):
            return None
        return DimWindows(axes, whole, windows[1::2], inside)

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value:
        """The operand's pointer."""
        return self._inside(f, frame)[0]

    def depends_on(self, names: AbstractSet[str]) -> bool:
        """Whether more than the start of the offset depends on any of these symbols."""
        (_, row, column), *coordinates = self._parts
        dims = (row, column, *(part for parts in coordinates for part in parts), *self._extents)
        return any(names & dim.symbols for dim in dims)

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        """The offset and coordinates of the first row and column."""
        env = self._inside(f, frame)[1]
        return [dim_value(f, start, env) for start, _, _ in self._parts]

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]:
        """The offset and coordinates as far as the row decides them."""
        env = {**self._inside(f, frame)[1], self._axes[0]: row}
        return [dim_value(f, first, env) for _, first, _ in self._parts]

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]:
        """The offset and coordinates as far as the column decides them."""
        env = {**self._inside(f, frame)[1], self._axes[1]: column}
        return [dim_value(f, second, env) for _, _, second in self._parts]

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        """The extents of the windows."""
        env = self._inside(f, frame)[1]
        return [dim_value(f, extent, env) for extent in self._extents]


class Windows(Protocol):
    """Where elements are: `base[at[0]]`, zero unless `0 <= at[j] < extents[j - 1]` for all j.

    `at` is the sum of what `start`, `row` and `column` give, all i64. One object stands for one operand: functions that
    are outlined for it are shared by its identity.
    """

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value: ...

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]: ...

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]: ...

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]: ...

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]: ...


@frozen
class TransposedWindows:
    """The same with rows for columns."""

    of: Windows

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value:
        return self.of.base(f, frame)

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return self.of.start(f, frame)

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]:
        return self.of.column(f, row, frame)

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]:
        return self.of.row(f, column, frame)

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return self.of.extents(f, frame)


@frozen
class WindowElement:
    """One element of windows, for packers that go element by element."""

    windows: Windows
    dtype: DType

    def __call__(self, f: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
        of_row, of_column = self.windows.row(f, row, frame), self.windows.column(f, column, frame)
        parts = zip(self.windows.start(f, frame), of_row, of_column, strict=True)
        offset, *coordinates = [f.add(f.add(start, a), b) for start, a, b in parts]
        inside = f.const("i1", True)
        for coordinate, extent in zip(coordinates, self.windows.extents(f, frame), strict=True):
            inside = f.op("and", inside, f.icmp("ult", coordinate, extent))

        def read() -> Value:
            pointer = f.gep(self.windows.base(f, frame), offset, convert.storage_type(self.dtype))
            return convert.load(f, pointer, self.dtype, 1)

        (value,) = f.if_(inside, read, lambda: f.const(convert.compute_type(self.dtype), 0))
        return value


# Vectors of elements seen through windows. The offset of an element is the sum of a part of its row and a part of its
# column, and so is its coordinate in each window that it must be in; both parts are tabled once. A vector has
# neighbouring rows of one column. How its rows are laid out in memory is the same for every column, so it is found out
# once: in one contiguous run or in two, without or with a gap of one element after each row, or anywhere (a gather).

MAX_K = 256
"""Columns that fit the tables."""

_PATCH = 4
"""Elements from row to row of the patches that vision transformers and ConvNeXt cut an image into, if not 2."""

_NOWHERE = -(1 << 30)
"""A coordinate beyond every window, whatever the column adds to it."""

_Reader: TypeAlias = Callable[..., Value]
"""Reads a column, given where runs begin."""


@frozen
class Read:
    """`read(column)`: the elements of a vector in a column, zero beyond the windows, in the accumulator's dtype."""

    vector: _Vector
    reader: Callable[[Value], Value]

    def __call__(self, column: Value) -> Value:
        return self.reader(column)


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
        self._row_offsets, self._row_coordinates = self._tables(rows + lanes, len(extents))
        self._column_offsets, self._column_coordinates = self._tables(MAX_K, len(extents))
        self._runs, self._run_count = g.alloca("i64", MAX_K + 2), g.const_i(0)
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

        Rows that do not exist are in no window and go on as a run; without windows they repeat the last row.
        """
        g = self.g
        last = g.sub(count, 1)

        def one(i: Value) -> None:
            offset, *coordinates = self.windows.row(g, g.add(first, g.smin(i, last)), self.frame)
            if coordinates:
                beyond = g.icmp("sgt", i, last)
                offset = g.add(offset, g.smax(g.sub(i, last), 0))
                coordinates = [g.select(beyond, g.const_i(_NOWHERE), coordinate) for coordinate in coordinates]
            self._put(i, self._row_offsets, self._row_coordinates, [offset, *coordinates])

        g.loop(0, g.add(g.round_up(count, pad), self.lanes), 1, one)

    def fill_columns(self, first: Index, count: Index) -> None:
        """Table up to `MAX_K` columns from `first`."""
        g = self.g
        starts = self.windows.start(g, self.frame)[1:]

        def one(i: Value) -> None:
            offset, *coordinates = self.windows.column(g, g.add(first, i), self.frame)
            coordinates = [g.add(coordinate, start) for coordinate, start in zip(coordinates, starts, strict=True)]
            self._put(i, self._column_offsets, self._column_coordinates, [offset, *coordinates])

        g.loop(0, count, 1, one)

    def find_runs(self, count: Value) -> None:
        """Table where columns begin that other windows hold than those before: of a convolution, one for each tap."""
        g = self.g

        def one(i: Value, found: list[Value]) -> list[Value]:
            before = g.smax(g.sub(i, 1), 0)
            is_new = g.icmp("eq", i, 0)
            for table in self._column_coordinates:
                own, other = (g.load(g.gep(table, at, "i32"), "i32") for at in (i, before))
                is_new = g.op("or", is_new, g.icmp("ne", own, other))
            # What begins nothing is written where nobody reads.
            place = g.select(is_new, found[0], g.const_i(MAX_K + 1))
            g.store(i, g.gep(self._runs, place, "i64"))
            return [g.add(found[0], g.cast("zext", is_new, "i64"))]

        if self._column_coordinates:
            (self._run_count,) = g.loop(0, count, 1, one, [g.const_i(0)])
            g.store(count, g.gep(self._runs, self._run_count, "i64"))

    def each_column(
        self,
        count: Value,
        reads: Sequence[Read],
        body: Callable[[Value, list[Value]], list[Value]],
        *,
        plain: bool,
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """`body(column, values)` for all tabled columns, with what windows hold of each vector found once for each run.

        Bodies give the next values, and the last are returned. With `plain` there is code of its own for runs in which
        windows hold everything.
        """
        g = self.g
        if not self._column_coordinates:
            return g.loop(0, count, 1, body, carried)

        def run(number: Value, values: list[Value]) -> list[Value]:
            first, end = (g.load(g.gep(self._runs, g.add(number, step), "i64"), "i64") for step in (0, 1))
            masks = [self.inside(first, read.vector.coordinates) for read in reads]
            held = [mask for mask in masks if mask is not None]

            def columns(known: Sequence[Value | None]) -> list[Value]:
                for read, mask in zip(reads, known, strict=True):
                    read.vector.fixed = [mask]
                found = g.loop(first, end, 1, body, values, is_nonempty=True)
                for read in reads:
                    read.vector.fixed = []
                return found

            if not plain:
                return columns(masks)
            whole = _holds_everywhere(g, reduce(partial(g.op, "and"), held))
            return g.if_(whole, lambda: columns([None] * len(reads)), lambda: columns(masks))

        return g.loop(0, self._run_count, 1, run, carried)

    def _put(self, i: Value, offsets: Value, coordinates: Sequence[Value], terms: Sequence[Value]) -> None:
        g = self.g
        g.store(terms[0], g.gep(offsets, i, "i64"))
        for table, term in zip(coordinates, terms[1:], strict=True):
            g.store(g.cast("trunc", term, "i32"), g.gep(table, i, "i32"))

    def _vector(self, row: Index) -> _Vector:
        g = self.g
        offsets = g.load(g.gep(self._row_offsets, row, "i64"), vector("i64", self.lanes))
        coordinates = [g.load(g.gep(table, row, "i32"), vector("i32", self.lanes)) for table in self._row_coordinates]
        return _Vector(self, offsets, coordinates)

    def read_several(
        self, row: Index, count: int, wanted: Value, body: Callable[[list[Read]], None], otherwise: Callable[[], None]
    ) -> None:
        """`body(reads)` for `count` vectors from a row on, where `wanted` and each is a run, else `otherwise`."""
        g = self.g
        vectors = [self._vector(g.add(row, number * self.lanes)) for number in range(count)]
        firsts = [g.extract(vector.offsets, 0) for vector in vectors]
        masks = [_lanes_at(g, vector.offsets, first, 1) for vector, first in zip(vectors, firsts, strict=True)]
        begins = [g.gep(self._base, first, self.stored) for first in firsts]
        reads = [Read(own, partial(own.run, begin=begin)) for own, begin in zip(vectors, begins, strict=True)]
        are_runs = _holds_everywhere(g, reduce(partial(g.op, "and"), masks))
        g.if_(g.op("and", wanted, are_runs), lambda: body(list(reads)), otherwise)

    def at(self, row: Index, body: Callable[[Read], None]) -> None:
        """`body(read)` for the vector that begins at a tabled row: written once for each layout its rows may have."""
        g, lanes = self.g, self.lanes
        vectors = self._vector(row)
        offsets = vectors.offsets
        first, last = g.extract(offsets, 0), g.extract(offsets, lanes - 1)
        begin = g.gep(self._base, first, self.stored)

        def runs(step: int, one: _Reader, two: _Reader, otherwise: Callable[[], None]) -> None:
            start = g.sub(last, step * (lanes - 1))
            end = g.gep(self._base, start, self.stored)
            beside, after = _lanes_at(g, offsets, first, step), _lanes_at(g, offsets, start, step)

            def test_two_runs() -> None:
                both = partial(two, begin=begin, end=end, is_first=beside)
                g.if_(_holds_everywhere(g, g.op("or", beside, after)), lambda: body(Read(vectors, both)), otherwise)

            alone = Read(vectors, partial(one, begin=begin))
            g.if_(_holds_everywhere(g, beside), lambda: body(alone), test_two_runs)

        def anywhere() -> None:
            body(Read(vectors, vectors.gather_rows))

        def in_patches() -> None:
            beside = _lanes_at(g, offsets, first, _PATCH)
            every = Read(vectors, partial(vectors.every_fourth, begin=begin))
            g.if_(_holds_everywhere(g, beside), lambda: body(every), anywhere)

        def with_gaps() -> None:
            # Patches that do not overlap are not padded, as a rule.
            farther = anywhere if self._extents else in_patches
            runs(2, vectors.every_second, vectors.two_every_second, farther)

        runs(1, vectors.run, vectors.two_runs, with_gaps)

    def line(self, column: Value, start: Value | None = None) -> Value:
        """Where a column begins, or the part of it that begins at `start` in the first column."""
        g = self.g
        return g.gep(start or self._base, g.load(g.gep(self._column_offsets, column, "i64"), "i64"), self.stored)

    def inside(self, column: Value, coordinates: Sequence[Value]) -> Value | None:
        """Which lanes are in all windows; None where there is no window."""
        g, mask = self.g, None
        for coordinate, table, extent in zip(coordinates, self._column_coordinates, self._extents, strict=True):
            term = g.splat(g.load(g.gep(table, column, "i32"), "i32"), self.lanes)
            here = g.icmp("ult", g.op("add", coordinate, term), extent)
            mask = here if mask is None else g.op("and", mask, here)
        return mask


class _Vector:
    """One vector's rows, and its elements of a column, read for each layout."""

    def __init__(self, of: WindowVectors, offsets: Value, coordinates: Sequence[Value]) -> None:
        self.of, self.g, self.offsets, self.coordinates = of, of.g, offsets, coordinates
        self.type = vector(of.stored, of.lanes)
        self.fixed: list[Value | None] = []
        """What windows hold in every column that is read now, None for all lanes; empty where each is found out."""

    def _find_held(self, column: Value) -> Value | None:
        return self.fixed[0] if self.fixed else self.of.inside(column, self.coordinates)

    def run(self, column: Value, begin: Value) -> Value:
        """Rows beside each other."""
        g, mask = self.g, self._find_held(column)
        pointer = self.of.line(column, begin)
        return self._cast(g.load(pointer, self.type) if mask is None else g.masked_load(pointer, self.type, mask))

    def two_runs(self, column: Value, begin: Value, end: Value, is_first: Value) -> Value:
        """A run from the first row on, and one that ends with the last row: where a new row of an image begins."""
        g = self.g
        is_first, is_last = self._parts(column, is_first)
        left = g.masked_load(self.of.line(column, begin), self.type, is_first)
        return self._cast(g.masked_load(self.of.line(column, end), self.type, is_last, left))

    def every_second(self, column: Value, begin: Value) -> Value:
        """Every second element of a run, as a step of two leaves them."""
        g, mask = self.g, self._find_held(column)
        line = self.of.line(column, begin)
        if mask is None or self.fixed:
            return self._cast(self._every_second(line, mask))
        (value,) = g.if_(
            _holds_everywhere(g, mask), lambda: self._every_second(line), lambda: self._every_second(line, mask)
        )
        return self._cast(value)

    def every_fourth(self, column: Value, begin: Value) -> Value:
        """Every fourth element of a run, where there are no windows."""
        of = self.of
        return self._cast(load_strided(self.g, of.line(column, begin), of.stored, of.lanes, _PATCH, None, None))

    def two_every_second(self, column: Value, begin: Value, end: Value, is_first: Value) -> Value:
        """Every second element of two runs."""
        g = self.g
        is_first, is_last = self._parts(column, is_first)
        left = self._every_second(self.of.line(column, begin), is_first)
        right = self._every_second(self.of.line(column, end), is_last)
        return self._cast(g.select(is_last, right, left))

    def _parts(self, column: Value, is_first: Value) -> tuple[Value, Value]:
        """The lanes of the first run and of the last, where they are in all windows."""
        g, mask = self.g, self._find_held(column)
        is_last = g.op("xor", is_first, g.const("i1", True, self.of.lanes))
        return (is_first, is_last) if mask is None else (g.op("and", is_first, mask), g.op("and", is_last, mask))

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

    def gather_rows(self, column: Value) -> Value:
        """Rows anywhere."""
        mask = self._find_held(column) or self.g.const("i1", True, self.of.lanes)
        return self._cast(self._gather(self.of.line(column), mask))

    def _gather(self, line: Value, mask: Value) -> Value:
        pointers = self.g.raw(vector("ptr", self.of.lanes), f"getelementptr {self.of.stored}, {line}, {self.offsets}")
        zero, size = Value(self.type, "zeroinitializer"), bytes_of(self.of.stored)
        target = self.g.target
        if target.has_narrow_masks and self.of.lanes == target.lanes and size < 4:
            return gather_narrow(self.g, pointers, self.of.stored, mask, zero)
        return self.g.gather(pointers, self.type, mask, zero, size)

    def _cast(self, stored: Value) -> Value:
        value = convert.widen(self.g, stored, self.of.dtype)
        return convert.cast(self.g, value, self.of.dtype, self.of.accumulator)


def _lanes_at(g: FunctionText, offsets: Value, start: Value, step: int) -> Value:
    """Which lanes are at `start + step * lane`."""
    lanes = offsets.lanes
    steps = g.lanes_const("i64", [step * lane for lane in range(lanes)])
    return g.icmp("eq", offsets, g.op("add", g.splat(start, lanes), steps))


def _holds_everywhere(g: FunctionText, mask: Value) -> Value:
    """Whether a mask holds in every lane."""
    bits = g.bitcast(mask, f"i{mask.lanes}")
    return g.icmp("eq", bits, g.const(bits.type, -1))


# Packing operands read through windows: vectors of neighbouring rows, column after column, into panels.

Cut: TypeAlias = Callable[[FunctionText, Value, Callable[[Value, Index], None]], None]
"""`cut(f, rows, panel)` calls `panel(at, width)` for each panel of so many rows; one not known now is of vectors."""


@frozen
class Area:
    """Rows `row..row+rows` and columns `k..k+k_count` of an operand."""

    row: Index
    rows: Index
    k: Index
    k_count: Index


@frozen
class WindowPanels:
    """How an operand is packed: `cut` names the panels of up to `chunk` rows at a time, and `key` tells it apart.

    The last panel has up to a multiple of `pad` rows, a vector has `lanes` of them. With a `block` panels are
    multiplied by `FirstRows` on the way.
    """

    windows: Windows
    dtype: DType
    accumulator: DType
    key: object
    cut: Cut
    chunk: int
    pad: int
    lanes: int
    block: MicroShape | None = None


def pack_windows(
    f: FunctionText,
    to: Value,
    panels: WindowPanels,
    area: Area,
    frame: Sequence[Value],
    first: FirstRows | None = None,
) -> None:
    """Pack an area as panels, the one of row `i` at `i * k_count`; with `first` rows, multiply them too."""
    arguments = [("ptr", "to"), *[("i64", name) for name in ("row", "rows", "k", "k_count")]]
    arguments += first.arguments if first is not None else []
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(frame)]
    key = ("windows", panels.windows, panels.dtype, panels.accumulator, panels.key, panels.block)
    name = f.module.outline(key, "pack_windows", arguments, lambda g: _Packer(g, panels).write(panels.cut))
    more = first.values(f) if first is not None else []
    f.call(name, [to, *(f.index(one) for one in (area.row, area.rows, area.k, area.k_count)), *more, *frame])


@frozen
class _Panel:
    """A panel: its first row among those tabled, how many it has, and where it is packed to."""

    at: Value
    width: Index
    to: Value


class _Packer:
    """The outlined function of one operand."""

    def __init__(self, g: FunctionText, of: WindowPanels) -> None:
        self.g, self.chunk, self.pad, self.lanes = g, of.chunk, of.pad, of.lanes
        self.element, self.block = convert.compute_type(of.accumulator), of.block
        self.to, self.row, self.rows, self.k, self.k_count, *frame = g.arguments
        count = 0 if of.block is None else FirstRows.COUNT
        self.first = FirstRows.of(frame[:count]) if count else None
        frame = frame[count:]
        self.vectors = WindowVectors(g, of.windows, of.dtype, of.accumulator, frame, of.chunk, of.lanes)

    def write(self, cut: Cut) -> None:
        g = self.g

        def some_rows(first: Value) -> None:
            count = g.smin(self.chunk, g.sub(self.rows, first))
            self.vectors.fill_rows(g.add(self.row, first), count, self.pad)

            def some_columns(k: Value) -> None:
                k_count = g.smin(MAX_K, g.sub(self.k_count, k))
                self.vectors.fill_columns(g.add(self.k, k), k_count)
                self.vectors.find_runs(k_count)
                cut(g, count, lambda at, width: self._panel(first, at, width, k, k_count))

            # An empty K makes one iteration where results are cleared by it.
            g.loop(0, self.k_count if self.first is None else g.smax(self.k_count, 1), MAX_K, some_columns)

        g.loop(0, self.rows, self.chunk, some_rows)
        g.ret()

    def _panel(self, first: Value, at: Value, width: Index, k: Value, k_count: Value) -> None:
        """Pack one panel's columns `k..k+k_count`, its vectors together where they are contiguous."""
        g = self.g
        start = g.add(g.mul(g.add(first, at), self.k_count), g.mul(k, width))
        panel = _Panel(at, width, g.gep(self.to, start, self.element))
        if self.pad == 1:
            self._each_vector(panel, k_count)
            return

        rows, shape = self._first_rows(g.add(first, at), k), self.block

        def alone() -> None:
            self._each_vector(panel, k_count)
            if rows is not None and shape is not None:
                multiply_panel(g, shape, rows, panel.to, panel.width, k_count)

        self.vectors.read_several(
            at,
            self.pad // self.lanes,
            g.icmp("eq", width, self.pad),
            lambda reads: self._pack_vectors(panel, reads, rows, k_count),
            alone,
        )

    def _first_rows(self, column: Value, k: Value) -> FirstRows | None:
        """The rows that are multiplied by columns `k..` of a panel: after the first of them, the result is added to."""
        g, first = self.g, self.first
        if first is None:
            return None
        adds = g.op("or", first.accumulate, g.icmp("ne", k, 0))
        return first.at(g, self.element, column, k, adds)

    def _pack_vectors(self, panel: _Panel, reads: Sequence[Read], rows: FirstRows | None, k_count: Value) -> None:
        g, shape = self.g, self.block
        block = None if rows is None or shape is None else FirstBlock(g, shape, shape.vectors, rows)

        def column(i: Value, accs: list[Value]) -> list[Value]:
            target = g.gep(panel.to, g.mul(i, panel.width), self.element)
            values = [read(i) for read in reads]
            for number, value in enumerate(values):
                g.store(value, g.gep(target, number * self.lanes, self.element))
            return accs if block is None else block.step(i, values, accs)

        accs = self.vectors.each_column(
            k_count, reads, column, plain=True, carried=() if block is None else block.start
        )
        if block is not None:
            block.store(accs)

    def _each_vector(self, panel: _Panel, k_count: Value) -> None:
        g, lanes = self.g, self.lanes

        def vector(offset: Index, count: int) -> None:
            def write(read: Read) -> None:
                def column(i: Value, values: list[Value]) -> list[Value]:
                    target = g.gep(panel.to, g.add(g.mul(i, panel.width), offset), self.element)
                    _store_first(g, read(i), target, count)
                    return values

                self.vectors.each_column(k_count, [read], column, plain=False)

            self.vectors.at(g.add(panel.at, offset), write)

        # Only a width known now may end within a vector.
        remainder = (constant_of(panel.width) or 0) % lanes
        whole = g.sub(panel.width, remainder)
        g.loop(0, whole, lanes, lambda offset: vector(offset, lanes))
        if remainder:
            vector(whole, remainder)


def _store_first(g: FunctionText, value: Value, target: Value, lanes: int) -> None:
    """Write the first lanes of a vector, in pieces of powers of two."""
    at, piece = 0, value.lanes
    while at < lanes:
        if piece <= lanes - at:
            part = value if piece == value.lanes else g.shuffle(value, None, range(at, at + piece))
            part = g.extract(value, at) if piece == 1 else part
            g.store(part, g.gep(target, at, value.element))
            at += piece
        else:
            piece //= 2
