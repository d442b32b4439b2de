"""A thread's share of tiles: the closed set of register layouts, where elements are in them, and packed pairs.

Of a fragment with `N` columns a thread of a warpgroup has `N / 2` elements for every 64 rows: element `i` is in row
`16 * warp + lane / 4 + 8 * (i / 2 % 2)` and column `8 * (i / 4) + 2 * (lane % 4) + i % 2` (PTX ISA, `wgmma` D layout).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tessera.backends.nvptx.hopper.fast_math import exp2, exponential, map_once, share
from tessera.backends.nvptx.mma.assembly import effect, flag, number, op32, pure
from tessera.ir.target.llvm import convert, math
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen

FRAGMENT, ROWS, COLUMNS = "fragment", "rows", "columns"


@frozen
class Layout:
    """How a tile lies over a warpgroup: `blocks` of 64 rows, and columns; vectors have those of their fragment.

    A warp has 16 rows of a block, and those of the next block `step` rows further on. A thread has two of the 16, which
    are `apart`: 8 where instructions say so, 1 where rows of operands are what threads say they are.
    """

    kind: str
    blocks: int
    columns: int
    step: int = 64
    apart: int = 8

    def with_columns(self, columns: int) -> Layout:
        """The same rows, and other columns."""
        return Layout(self.kind, self.blocks, columns, self.step, self.apart)

    def first_row(self, number: int) -> int:
        """The static part of a row of the thread, by its number; lanes and warps add theirs."""
        return self.step * (number // 2) + self.apart * (number % 2)

    @property
    def count(self) -> int:
        """Elements of a thread."""
        if self.kind == FRAGMENT:
            return self.blocks * self.columns // 2
        return 2 * self.blocks if self.kind == ROWS else self.columns // 4

    def row(self, element: int) -> int:
        """The number of an element's row among those of the thread."""
        per_block = self.columns // 2
        return element if self.kind == ROWS else 2 * (element // per_block) + element % per_block // 2 % 2

    def column(self, element: int) -> int:
        """The number of an element's column among those of the thread."""
        inside = element % (self.columns // 2)
        return element if self.kind == COLUMNS else 2 * (inside // 4) + inside % 2


def first_column(number: int) -> int:
    """The static part of a column of the thread, by its number; lanes add theirs."""
    return 8 * (number // 2) + number % 2


_PAIRS = {dt.bf16: "bf16x2", dt.f16: "f16x2"}


@dataclass
class Registers:
    """A tile's elements of one thread, in their compute type; those of 2-byte floats may be packed in pairs only."""

    layout: Layout
    dtype: DType
    values: list[Value] | None = None
    pairs: list[Value] | None = field(default=None)

    def floats(self, f: FunctionText) -> list[Value]:
        """One value for each element."""
        if self.values is not None:
            return self.values
        # Not kept: what is made inside a branch or a loop is not there after it.
        assert self.pairs is not None
        return [half for pair in self.pairs for half in _unpack(f, pair, self.dtype)]

    def pack(self, f: FunctionText) -> list[Value]:
        """An i32 for every two neighbours of a row, of a 2-byte float."""
        if self.pairs is not None:
            return self.pairs
        assert self.values is not None
        return pack_pairs(f, self.values, self.dtype)

    def flat(self) -> list[Value]:
        """What a loop carries."""
        found = self.values if self.pairs is None else self.pairs
        assert found is not None
        return found

    def like(self, flat: Sequence[Value]) -> Registers:
        """The same tile of other values, as `flat` gave them."""
        if self.pairs is None:
            return Registers(self.layout, self.dtype, list(flat))
        return Registers(self.layout, self.dtype, None, list(flat))


def is_paired(dtype: DType) -> bool:
    """Whether elements are packed two to a register."""
    return dtype in _PAIRS


def pack_pairs(f: FunctionText, values: Sequence[Value], dtype: DType) -> list[Value]:
    """f32 values rounded to a 2-byte float, two to a register."""
    name = _PAIRS[dtype]
    return [
        pure(f, f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f", [values[at + 1], values[at]], "i32")
        for at in range(0, len(values), 2)
    ]


def _unpack(f: FunctionText, pair: Value, dtype: DType) -> list[Value]:
    if dtype is dt.bf16:
        low = f.raw("i32", f"shl {pair}, 16")
        high = f.raw("i32", f"and {pair}, -65536")
        return [f.bitcast(half, "float") for half in (low, high)]
    low = f.raw("i16", f"trunc {pair} to i16")
    upper = f.raw("i32", f"lshr {pair}, 16")
    high = f.raw("i16", f"trunc {upper} to i16")
    return [convert.widen(f, f.bitcast(half, "half"), dtype) for half in (low, high)]


# Ops on elements of fragments: arithmetic, coordinates, clips, reductions along rows, loads and stores one by one.

_FAR = 1 << 30
"""Farther than any element of a tile is from its start: distances are cut there, to fit 32 bits."""


@frozen
class Thread:
    """Where a consumer's thread stands in its tiles: the first of its rows and of its columns, as i32."""

    row: Value
    column: Value


@frozen
class Window:
    """Columns of a tile that are at hand: where a part of it begins, known or computed, and which columns of that."""

    start: Index
    inner: int
    count: int

    @property
    def known(self) -> int:
        """The first of the columns, as far as it is known here."""
        return self.inner + (self.start if isinstance(self.start, int) else 0)


_APPROXIMATE = {"exp2": exp2, "exp": exponential, "sigmoid": share}
"""Functions by the machine's own approximations, whose results are kept in f32."""


def math_of(f: FunctionText, fn: str, args: Sequence[Value], dtype: DType, exact: bool = False) -> Value:
    """A function of one element. exp, exp2 and sigmoid are approximate, within 2 to 6 ulp, unless `exact`."""
    if dtype is f32 and fn in _APPROXIMATE and not exact:
        return _APPROXIMATE[fn](f, args[0])
    if dtype is f32 and fn in ("max", "min"):
        # One instruction, which propagates NaN as the table's functions do.
        return f.intrinsic("maximum" if fn == "max" else "minimum", *args)
    return math.emit(f, fn, args, dtype)


class Coordinates:
    """The elements of a tile, each with its coordinates: what expressions over them are, element by element."""

    def __init__(
        self,
        f: FunctionText,
        layout: Layout,
        thread: Thread,
        axes: Sequence[str],
        env: Mapping[str, Index],
    ) -> None:
        self.f, self.layout, self.env = f, layout, dict(env)
        self.row_axis = axes[0] if layout.kind != COLUMNS else None
        self.column_axis = axes[-1] if layout.kind != ROWS else None
        self.thread = thread

    @cached_property
    def rows(self) -> list[Value]:
        """The row coordinate of each row of the thread."""
        assert self.row_axis is not None
        f, start = self.f, self.f.add(self.env[self.row_axis], _wide(self.f, self.thread.row))
        return [f.add(start, self.layout.first_row(number)) for number in range(2 * self.layout.blocks)]

    @cached_property
    def column(self) -> Value:
        """The coordinate of the thread's first column."""
        assert self.column_axis is not None
        return self.f.add(self.env[self.column_axis], _wide(self.f, self.thread.column))

    def at(self, element: int) -> dict[str, Index]:
        """All coordinates of an element."""
        found = dict(self.env)
        if self.row_axis is not None:
            found[self.row_axis] = self.rows[self.layout.row(element)]
        if self.column_axis is not None:
            found[self.column_axis] = self.f.add(self.column, first_column(self.layout.column(element)))
        return found

    def evaluate(self, expr: Dim) -> list[Value]:
        """An expression at every element."""
        return map_once(lambda parts: self.f.add(*parts), self.split(expr))

    def split(self, expr: Dim) -> list[tuple[Value, int]]:
        """An expression at every element, as a value and a number; what does not change along an axis is one value."""
        made: dict[tuple[int, int], Value] = {}
        found: list[tuple[Value, int]] = []
        axis = self.column_axis
        parts = expr.coefficient(axis) if axis is not None else None
        step = parts[0].value if parts is not None else None
        for element in range(self.layout.count):
            row = self.layout.row(element) if self.row_axis in expr.symbols else -1
            column = self.layout.column(element) if axis in expr.symbols else -1
            more = 0
            if column >= 0 and step is not None:
                more, column = step * first_column(column), -2
            if (row, column) not in made:
                at = self.at(element) if column != -2 else {**self.at(element), str(axis): self.column}
                made[row, column] = dim_value(self.f, expr, at)
            found.append((made[row, column], more))
        return found

    def below(self, axis: str, bound: Dim) -> list[Value]:
        """Whether the coordinate along an axis is below a bound, which may change along the other."""
        f, layout = self.f, self.layout
        if axis != self.column_axis or axis in bound.symbols:
            return [f.icmp("slt", self.at(element)[axis], limit) for element, limit in enumerate(self.evaluate(bound))]
        limits: dict[int, Value] = {}
        made: dict[tuple[int, int], Value] = {}
        found: list[Value] = []
        for element in range(layout.count):
            row = layout.row(element) if self.row_axis in bound.symbols else -1
            if row not in limits:
                left = f.sub(dim_value(f, bound, self.at(element)), self.column)
                limits[row] = f.cast("trunc", f.smax(f.smin(left, _FAR), -_FAR), "i32")
            key = (row, layout.column(element))
            if key not in made:
                made[key] = f.icmp("sgt", limits[row], number(first_column(layout.column(element))))
            found.append(made[key])
        return found

    def inside(self, axes: Sequence[str], bounds: Sequence[Dim], windows: Sequence[Dim]) -> list[Value] | None:
        """Whether each element is inside all bounds and windows; None where all are."""
        f = self.f
        conditions: list[list[Value]] = []
        for axis, bound in zip(axes, bounds, strict=True):
            if bound.value != -1:
                conditions.append(self.below(axis, bound))
        for expr, extent in zip(windows[::2], windows[1::2], strict=True):
            values, limit = self.evaluate(expr), dim_value(f, extent, self.env)
            # Unsigned, a negative number is beyond every extent.
            conditions.append([f.icmp("ult", value, limit) for value in values])
        if not conditions:
            return None
        found = conditions[0]
        for other in conditions[1:]:
            found = [f.op("and", one, two) for one, two in zip(found, other, strict=True)]
        return found


def _wide(f: FunctionText, value: Value) -> Value:
    return f.raw("i64", f"zext {value} to i64")


@frozen
class Cells:
    """Where elements of a tile are in a buffer: their offset, an expression of coordinates, and which are inside."""

    coordinates: Coordinates
    buffer: Value
    offset: Dim
    inside: list[Value] | None

    def condition(self, element: int) -> Value:
        """Whether an element is there."""
        return Value("i1", "true") if self.inside is None else self.inside[element]

    def addresses(self, size: int) -> list[tuple[Value, int]]:
        """Where elements of so many bytes are: an address, which those of a row share, and a number of bytes to add.

        The assembly that stores says the number: LLVM takes seconds to find out what hundreds of sums have in common.
        """
        f = self.coordinates.f
        base = f.raw("i64", f"ptrtoint {self.buffer} to i64")
        pairs = self.coordinates.split(self.offset)
        made = {value: f.add(base, f.mul(value, size)) for value in dict.fromkeys(value for value, _ in pairs)}
        return [(made[value], more * size) for value, more in pairs]


def load(cells: Cells, dtype: DType, pad: float) -> Registers:
    """Elements of a buffer; those outside become the pad."""
    f, stored = cells.coordinates.f, convert.storage_type(dtype)
    outside = f.const(convert.compute_type(dtype), pad)
    found = _load_each(cells, 1, stored, lambda at: convert.widen(f, f.load(at, stored), dtype), outside)
    return Registers(cells.coordinates.layout, dtype, found)


def load_pairs(cells: Cells, dtype: DType) -> Registers:
    """Elements of two bytes, two neighbours of a row at a time: the first is even, and both are inside or become 0."""
    f = cells.coordinates.f
    found = _load_each(cells, 2, "i16", lambda at: f.load(at, "i32"), number(0))
    return Registers(cells.coordinates.layout, dtype, None, found)


def _load_each(cells: Cells, step: int, stored: str, read: Callable[[Value], Value], outside: Value) -> list[Value]:
    """What every `step`-th element reads; one that is outside reads the first of the buffer, and becomes `outside`."""
    f, buffer = cells.coordinates.f, cells.buffer
    starts: dict[Value, Value] = {}

    def load_at(key: tuple[Value, int, Value | None]) -> Value:
        start, more, condition = key
        if start not in starts:
            starts[start] = f.gep(buffer, start, stored)
        address = f.gep(starts[start], more, stored)
        if condition is None:
            return read(address)
        return f.select(condition, read(f.select(condition, address, buffer)), outside)

    parts = cells.coordinates.split(cells.offset)
    conditions = cells.inside or [None] * len(parts)
    return map_once(load_at, [(*part, one) for part, one in zip(parts, conditions, strict=True)][::step])


_STORES = {1: ("b8", "r", "i32"), 2: ("b16", "h", "i16"), 4: ("b32", "r", "i32"), 8: ("b64", "l", "i64")}


def store(cells: Cells, tile: Registers, once: Value | None = None, first: int = 0) -> None:
    """Elements to a buffer, those inside; of a vector, which several threads hold, by the thread that `once` names.

    Of a fragment, columns from the `first` on.
    """
    f = cells.coordinates.f
    suffix, kind, type = _STORES[tile.dtype.bytes]
    words = _words(f, tile)
    layout = cells.coordinates.layout
    for element, (address, more) in enumerate(cells.addresses(tile.dtype.bytes)):
        if first and first_column(layout.column(element)) < first:
            continue
        bits = words[element] if words[element].type == type else f.cast("zext", words[element], type)
        condition = cells.condition(element)
        if once is not None:
            condition = f.op("and", condition, once)
        text = f"{{ .reg .pred P; setp.ne.b32 P, $2, 0; @P st.global.{suffix} [$0+{more}], $1; }}"
        effect(f, text, f"l,{kind},r", [address, bits, flag(f, condition)])


def store_pairs(cells: Cells, tile: Registers, first: int) -> None:
    """Columns of a fragment from the `first` on, two at a time: rows of the buffer have an even number of elements."""
    coordinates, f = cells.coordinates, cells.coordinates.f
    is_packed = is_paired(tile.dtype)
    words = tile.pack(f) if is_packed else [f.bitcast(value, "i32") for value in tile.floats(f)]
    addresses = cells.addresses(tile.dtype.bytes)
    value = "$2" if is_packed else "{$2, $3}"
    for element in range(0, coordinates.layout.count, 2):
        if first_column(coordinates.layout.column(element)) < first:
            continue
        given = [words[element // 2]] if is_packed else words[element : element + 2]
        (address, more), condition = addresses[element], cells.condition(element)
        store = f"st.global{'' if is_packed else '.v2'}.b32 [$0+{more}], {value};"
        text = f"{{ .reg .pred P; setp.ne.b32 P, $1, 0; @P {store} }}"
        effect(f, text, ",".join(["l", "r", *["r"] * len(given)]), [address, flag(f, condition), *given])


def _words(f: FunctionText, tile: Registers) -> list[Value]:
    """The bits of each element, as they are stored."""
    if is_paired(tile.dtype) and tile.layout.kind == FRAGMENT:
        found: list[Value] = []
        for pair in tile.pack(f):
            high = f.raw("i32", f"lshr {pair}, 16")
            found += [f.raw("i16", f"trunc {half} to i16") for half in (pair, high)]
        return found
    stored = [convert.narrow(f, value, tile.dtype) for value in tile.floats(f)]
    return [f.bitcast(value, f"i{8 * tile.dtype.bytes}") for value in stored]


_REDUCTIONS = {"sum": "add", "prod": "mul"}


def reduce_own(f: FunctionText, tile: Registers, kind: str) -> list[Value]:
    """The thread's columns of each of its rows to one number, in four chains."""
    fn, layout, values = _REDUCTIONS.get(kind, kind), tile.layout, tile.floats(f)
    found: list[Value] = []
    for row in range(2 * layout.blocks):
        own = [value for element, value in enumerate(values) if layout.row(element) == row]
        chains = own[:4]
        for element, value in enumerate(own[4:]):
            chains[element % 4] = math_of(f, fn, [chains[element % 4], value], tile.dtype)
        while len(chains) > 1:
            chains = [math_of(f, fn, chains[at : at + 2], tile.dtype) for at in range(0, len(chains), 2)]
        found.append(chains[0])
    return found


def across_threads(f: FunctionText, value: Value, kind: str, dtype: DType) -> Value:
    """A number of each of the four threads of a row, reduced; all of them get it."""
    for distance in (1, 2):
        value = math_of(f, _REDUCTIONS.get(kind, kind), [value, _across(f, value, distance)], dtype)
    return value


def reduce_rows(f: FunctionText, tile: Registers, kind: str) -> Registers:
    """Rows to one number each: four chains over the thread's columns, then the four threads of the row."""
    found = [across_threads(f, value, kind, tile.dtype) for value in reduce_own(f, tile, kind)]
    layout = tile.layout
    return Registers(Layout(ROWS, layout.blocks, layout.columns, layout.step, layout.apart), tile.dtype, found)


def _across(f: FunctionText, value: Value, distance: int) -> Value:
    kind = "f" if value.type == "float" else "r"
    text = f"shfl.sync.bfly.b32 $0, $1, {distance}, 0x1f, 0xffffffff;"
    return effect(f, text, f"={kind},{kind}", [value], value.type)


def thread_of(f: FunctionText, tid: Value, group: Value, rows: int, apart: int = 8) -> Thread:
    """Where a thread of a consumer stands: `group` is its warpgroup, which has so many rows; its two are `apart`."""
    lane, warp = op32(f, "and", tid, 31), op32(f, "and", op32(f, "lshr", tid, 5), 3)
    first, own = op32(f, "mul", warp, 16), op32(f, "lshr", lane, 2)
    inside = op32(f, "add", first, op32(f, "shl", own, 1) if apart == 1 else own)
    row = op32(f, "add", op32(f, "mul", group, rows), inside)
    return Thread(row, op32(f, "shl", op32(f, "and", lane, 3), 1))
