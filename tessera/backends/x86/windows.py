"""Packing operands read through windows, such as the patches of a convolution: offsets tabled once, elements gathered.

The place of an element is a sum of a part that depends on its row and one that depends on its column, and so is its
coordinate in each window it must lie in. Both parts are worked out once per row and once per column of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.text import FunctionText, Index, Value
from tessera.ir.target.llvm.types import mangled, vector
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

_LANES = 8  # gathered at a time: pointers take 64 bits each
_DEPTH = 256  # columns tabled at a time


class Windows(Protocol):
    """Where elements are: `base[row[0] + column[0]]`, zero unless `0 <= row[j] + column[j] < extents[j - 1]` for all j.

    All numbers are i64. One object stands for one operand: functions written for it are shared by its identity.
    """

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value: ...

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]: ...

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]: ...

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]: ...


@frozen
class Turned:
    """The same with rows for columns."""

    of: Windows

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value:
        return self.of.base(f, frame)

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
        parts = zip(self.windows.row(f, row, frame), self.windows.column(f, column, frame), strict=True)
        offset, *places = [f.add(a, b) for a, b in parts]
        inside = f.const("i1", True)
        for place, extent in zip(places, self.windows.extents(f, frame), strict=True):
            inside = f.op("and", inside, f.icmp("ult", place, extent))

        def read() -> Value:
            pointer = f.gep(self.windows.base(f, frame), offset, convert.storage_type(self.dtype))
            return convert.load(f, pointer, self.dtype, 1)

        (value,) = f.if_(inside, read, lambda: f.const(convert.compute_type(self.dtype), 0))
        return value


Cut: TypeAlias = Callable[[FunctionText, Value, Callable[[Value, int], None]], None]
"""`cut(f, rows, panel)` calls `panel(at, width)` for each panel of so many rows."""


def pack_windows(
    f: FunctionText,
    to: Value,
    windows: Windows,
    dtype: DType,
    accumulator: DType,
    key: object,
    cut: Cut,
    chunk: int,
    pad: int,
    row: Index,
    rows: Index,
    k: Index,
    depth: Index,
    frame: Sequence[Value],
) -> None:
    """Pack rows `row..row+rows` and columns `k..k+depth` as panels; the one that begins at row `i` is at `i * depth`.

    `cut` names the panels of up to `chunk` rows at a time, the last up to a multiple of `pad`; `key` tells it apart.
    """
    arguments = [("ptr", "to"), *[("i64", name) for name in ("row", "rows", "k", "depth")]]
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(frame)]
    name = f.module.outline(
        ("windows", windows, dtype, accumulator, key),
        "pack_windows",
        arguments,
        lambda g: _Packer(g, windows, dtype, accumulator, chunk, pad).write(cut),
    )
    f.call(name, [to, f.index(row), f.index(rows), f.index(k), f.index(depth), *frame])


class _Packer:
    """The outlined function of one operand."""

    def __init__(
        self, g: FunctionText, windows: Windows, dtype: DType, accumulator: DType, chunk: int, pad: int
    ) -> None:
        self.g, self.windows, self.dtype, self.accumulator = g, windows, dtype, accumulator
        self.chunk, self.pad = chunk, pad
        self.to, self.row, self.rows, self.k, self.depth, *self.frame = g.arguments
        self.base = windows.base(g, self.frame)
        extents = windows.extents(g, self.frame)
        self.extents = [g.splat(g.cast("trunc", extent, "i32"), _LANES) for extent in extents]
        terms = 1 + len(extents)
        # A vector may begin at the last row of a chunk.
        self.row_tables = [g.alloca("i64", chunk + _LANES) for _ in range(terms)]
        self.column_tables = [g.alloca("i64", _DEPTH) for _ in range(terms)]

    def write(self, cut: Cut) -> None:
        g = self.g

        def some_rows(first: Value) -> None:
            count = g.smin(self.chunk, g.sub(self.rows, first))
            self._fill_rows(first, count)

            def some_columns(k: Value) -> None:
                depth = g.smin(_DEPTH, g.sub(self.depth, k))
                self._fill_columns(k, depth)
                cut(g, count, lambda at, width: self._panel(first, at, width, k, depth))

            g.loop(0, self.depth, _DEPTH, some_columns)

        g.loop(0, self.rows, self.chunk, some_rows)
        g.ret()

    def _fill_rows(self, first: Value, count: Value) -> None:
        g = self.g
        last = g.sub(self.rows, 1)

        def one(i: Value) -> None:
            # Rows beyond the last repeat it: what is gathered for them is never looked at.
            where = g.add(self.row, g.smin(g.add(first, i), last))
            for table, term in zip(self.row_tables, self.windows.row(g, where, self.frame), strict=True):
                g.store(term, g.gep(table, i, "i64"))

        g.loop(0, g.add(g.round_up(count, self.pad), _LANES), 1, one)

    def _fill_columns(self, k: Value, depth: Value) -> None:
        g = self.g

        def one(i: Value) -> None:
            where = g.add(g.add(self.k, k), i)
            for table, term in zip(self.column_tables, self.windows.column(g, where, self.frame), strict=True):
                g.store(term, g.gep(table, i, "i64"))

        g.loop(0, depth, 1, one)

    def _panel(self, first: Value, at: Value, width: int, k: Value, depth: Value) -> None:
        """Gather one panel's columns `k..k+depth`, eight rows at a time."""
        g, element = self.g, convert.compute_type(self.accumulator)
        start = g.add(g.mul(g.add(first, at), self.depth), g.mul(k, width))
        panel = g.gep(self.to, start, element)

        def strip(offset: Index, lanes: int) -> None:
            where = g.add(at, offset)
            places = [g.load(g.gep(table, where, "i64"), vector("i64", _LANES)) for table in self.row_tables]
            bounds = [g.cast("trunc", place, "i32") for place in places[1:]]

            def column(i: Value) -> None:
                value = self._gathered(i, places[0], bounds)
                target = g.gep(panel, g.add(g.mul(i, width), offset), element)
                _store_first(g, value, target, lanes)

            g.loop(0, depth, 1, column)

        whole = width - width % _LANES
        g.loop(0, whole, _LANES, lambda offset: strip(offset, _LANES))
        if width % _LANES:
            strip(whole, width % _LANES)

    def _gathered(self, column: Value, places: Value, bounds: Sequence[Value]) -> Value:
        """Eight elements of one column, zero outside the windows, in the accumulator dtype."""
        g, stored = self.g, convert.storage_type(self.dtype)
        terms = [g.load(g.gep(table, column, "i64"), "i64") for table in self.column_tables]
        offsets = g.op("add", places, g.splat(terms[0], _LANES))
        mask = g.const("i1", True, _LANES)
        for bound, term, extent in zip(bounds, terms[1:], self.extents, strict=True):
            coordinate = g.op("add", bound, g.splat(g.cast("trunc", term, "i32"), _LANES))
            mask = g.op("and", mask, g.icmp("ult", coordinate, extent))
        pointers = g.raw(vector("ptr", _LANES), f"getelementptr {stored}, {self.base}, {offsets}")
        type_ = vector(stored, _LANES)
        name = f"llvm.masked.gather.{mangled(type_)}.{mangled(pointers.type)}"
        value = g.call(name, [pointers, mask, Value(type_, "zeroinitializer")], type_)
        return convert.cast(g, convert.widened(g, value, self.dtype), self.dtype, self.accumulator)


def _store_first(g: FunctionText, value: Value, target: Value, lanes: int) -> None:
    """Write the first lanes of a vector, in pieces of powers of two."""
    at = 0
    for piece in (8, 4, 2, 1):
        if lanes & piece:
            part = value if piece == value.lanes else g.shuffle(value, None, range(at, at + piece))
            part = g.extract(value, at) if piece == 1 else part
            g.store(part, g.gep(target, at, value.element))
            at += piece
