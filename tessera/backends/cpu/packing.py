"""Packed panels: operands of matmuls converted, transposed and laid out in the order they are consumed.

A panel of `width` holds, for each k, `width` elements side by side: `panel[k * width + i] = source(i, k)`. Panels of A
are strips of its rows, panels of B strips of its columns, both as wide as the register block, so that the micro-kernel
reads each of them with stride 1 from its first element to its last, whatever the strides, dtype or windows of the
matrix are. Packing costs one pass over an operand and is paid back by every strip of the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

from tessera.backends.cpu.micro_kernel import (
    FirstBlock,
    FirstRows,
    MicroForm,
    MicroShape,
    multiply_panel,
    outline_micro_kernel,
)
from tessera.backends.cpu.registers import transpose
from tessera.backends.cpu.windows import Area, TransposedWindows, WindowElement, WindowPanels, Windows, pack_windows
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

Element: TypeAlias = Callable[[FunctionText, Value, Value, Sequence[Value]], Value]
"""`element(f, row, column, frame)`: one element in its compute type, read anywhere it likes."""


@frozen
class Operand:
    """A matrix to be packed: strided memory, memory seen through windows, or elements by a function.

    Strides count elements. `frame` holds the values of the kernel that `windows` or `element` need, since they are
    written in functions of their own.
    """

    dtype: DType
    base: Value | None = None
    row_stride: Index = 0
    column_stride: Index = 1
    element: Element | None = None
    frame: tuple[Value, ...] = field(default=())
    windows: Windows | None = None

    @property
    def is_memory(self) -> bool:
        """Whether it is strided memory."""
        return self.base is not None and self.element is None and self.windows is None

    def is_rows_of(self, dtype: DType) -> bool:
        """Whether every row is contiguous in the accumulator's dtype: then nothing is gained by packing rows."""
        return self.is_runs and self.dtype is dtype

    @property
    def is_runs(self) -> bool:
        """Whether every row is contiguous: transposing it into a panel costs more than reading it along k."""
        return self.is_memory and constant_of(self.column_stride) == 1

    @property
    def transposed(self) -> Operand:
        """Rows for columns."""
        swapped = None if self.element is None else _Swapped(self.element)
        windows = None if self.windows is None else TransposedWindows(self.windows)
        return Operand(self.dtype, self.base, self.column_stride, self.row_stride, swapped, self.frame, windows)


def split_offset(offset: Dim, axes: tuple[str, str]) -> tuple[Dim, Dim, Dim] | None:
    """The strides along two axes, and the offset of the first element; None for an offset that is not linear."""
    rows = offset.coefficient(axes[0])
    columns = rows[1].coefficient(axes[1]) if rows is not None else None
    if rows is None or columns is None or axes[1] in rows[0].symbols:
        return None
    return rows[0], columns[0], columns[1]


def strided_operand(
    f: FunctionText, base: Value, dtype: DType, parts: tuple[Dim, Dim, Dim], env: Mapping[str, Index]
) -> Operand:
    """An operand in strided memory, from the parts of its offset."""
    start = f.gep(base, dim_value(f, parts[2], env), convert.storage_type(dtype))
    return Operand(dtype, start, dim_value(f, parts[0], env), dim_value(f, parts[1], env))


@frozen
class _Swapped:
    function: Element

    def __call__(self, f: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
        return self.function(f, column, row, frame)


def pack_panel(
    f: FunctionText, panel: Value, source: Operand, width: int, to: DType, area: Area, register: int
) -> None:
    """Pack an area of `source`, of up to `width` rows, as one panel of accumulator dtype `to`.

    Rows beyond those of the area are filled with something harmless. Up to a register beyond the panel may be
    overwritten, so panels are packed in the order of their addresses.
    """
    if source.windows is not None:
        source = replace(source, windows=None, element=WindowElement(source.windows, source.dtype))
    if source.element is not None:
        _pack_elements(f, panel, source, width, to, area)
        return
    assert source.base is not None, "an operand is memory or a function"
    across, along = source.row_stride, source.column_stride
    offset = f.add(f.mul(area.row, across), f.mul(area.k, along))
    start = f.gep(source.base, offset, convert.storage_type(source.dtype))
    args = [panel, start, *(f.index(one) for one in (across, along, area.rows, area.k_count))]

    def pack(kind: str) -> None:
        _call_strided(f, kind, source.dtype, width, to, register, args)

    if constant_of(across) == 1:
        pack("copied")
    elif constant_of(along) == 1:
        pack("transposed")
    elif constant_of(along) is not None and constant_of(across) is not None:
        pack("gathered")
    else:
        by_rows, by_k = f.icmp("eq", across, 1), f.icmp("eq", along, 1)

        def without_rows() -> None:
            f.if_(by_k, lambda: pack("transposed"), lambda: pack("gathered"))

        f.if_(by_rows, lambda: pack("copied"), without_rows)


def _call_strided(
    f: FunctionText, kind: str, dtype: DType, width: int, to: DType, register: int, args: Sequence[Value]
) -> None:
    """Call the outlined function that packs strided memory: copied, transposed or gathered."""
    sizes, key = ["across", "along", "count", "k_count"], (kind, dtype, width, to, register)
    write = partial(_write_copied, dtype=dtype, width=width, to=to, register=register)
    if kind != "copied":
        # These take the width as an argument: one function serves all that transpose squares of one size.
        square = 1 if kind == "gathered" else _square_size(width, register)
        key = (kind, dtype, square, to, width == 1)
        writer = _write_gathered if kind == "gathered" else _write_run if width == 1 else _write_transposed
        write = partial(writer, dtype=dtype, square=square, to=to)
        sizes, args = [*sizes, "width"], [*args, f.const_i(width)]
    arguments = [("ptr", "panel"), ("ptr", "source"), *(("i64", name) for name in sizes)]
    f.call(f.module.outline(("pack", *key), f"pack_{kind}", arguments, write, shared=True), args)


def _square_size(width: int, register: int) -> int:
    """The size of the squares a panel is transposed in: the power of two that holds its width, up to a register."""
    if width == 1:
        return register
    square = register
    while square >= 2 * width and square > 4:
        square //= 2
    return square


_PREFETCHED_ROWS = 12
"""How many rows beyond its own packing prefetches."""


def pieces(width: int, register: int) -> list[tuple[int, int]]:
    """A width as powers of two that fit a register: (start, lanes)."""
    result: list[tuple[int, int]] = []
    start, lanes = 0, register
    while start < width:
        if lanes <= width - start:
            result.append((start, lanes))
            start += lanes
        else:
            lanes //= 2
    return result


def _prefetch_row(g: FunctionText, line: Value, along: Value, stored: str, width: int) -> None:
    """Ask for a row beyond one: rows far apart are each a page of their own, which no prefetcher crosses."""
    prefetched = g.gep(line, g.mul(along, _PREFETCHED_ROWS), stored)
    for start in range(0, width, 64 // bytes_of(stored)):
        g.prefetch(g.gep(prefetched, start, stored))


def _write_copied(g: FunctionText, dtype: DType, width: int, to: DType, register: int) -> None:
    """Unit stride across the panel: copy `width` contiguous elements for each k."""
    panel, source, _, along, count, k_count = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)

    def every_k(load: Callable[[Value, int, int], Value]) -> None:
        def body(k: Value) -> None:
            line = g.gep(source, g.mul(k, along), stored)
            target = g.gep(panel, g.mul(k, width), element)
            _prefetch_row(g, line, along, stored, width)
            for start, lanes in pieces(width, register):
                value = convert.cast(g, load(line, start, lanes), dtype, to)
                g.store(value, g.gep(target, start, element))

        g.loop(0, k_count, 1, body)

    def part(line: Value, start: int, lanes: int) -> Value:
        return convert.load_some(g, g.gep(line, start, stored), dtype, lanes, g.sub(count, start))

    g.if_(
        g.icmp("sge", count, width),
        lambda: every_k(lambda line, start, lanes: convert.load(g, g.gep(line, start, stored), dtype, lanes)),
        lambda: every_k(part),
    )
    g.ret()


def _write_transposed(g: FunctionText, dtype: DType, square: int, to: DType) -> None:
    """Unit stride along k: load runs of k from each row and transpose them in registers."""
    panel, source, across, _, count, k_count, width = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)
    whole = g.round_down(k_count, square)
    last = g.sub(count, 1)

    def block(start: Value) -> None:
        # Rows that do not exist repeat the last one: what they are multiplied to is never read.
        rows = [g.gep(source, g.mul(g.smin(g.add(start, i), last), across), stored) for i in range(square)]

        def body(k: Value) -> None:
            values = [convert.load(g, g.gep(row, k, stored), dtype, square) for row in rows]
            values = [convert.cast(g, value, dtype, to) for value in values]
            target = g.gep(panel, g.add(g.mul(k, width), start), element)
            for column in transpose(g, values):
                g.store(column, target)
                target = g.gep(target, width, element)

        g.loop(0, whole, square, body)

    # The last block first: where it reaches beyond the panel, the first block writes over what it spilled.
    top = g.sub(g.round_up(width, square), square)
    g.loop(0, width, square, lambda down: block(g.sub(top, down)))
    _write_each(g, dtype, to, whole)
    g.ret()


def _write_run(g: FunctionText, dtype: DType, square: int, to: DType) -> None:
    """A panel of width 1 with unit stride along k: copy."""
    panel, source, _, _, _, k_count, _ = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)
    whole = g.round_down(k_count, square)

    def body(k: Value) -> None:
        value = convert.cast(g, convert.load(g, g.gep(source, k, stored), dtype, square), dtype, to)
        g.store(value, g.gep(panel, k, element))

    g.loop(0, whole, square, body)
    _write_each(g, dtype, to, whole)
    g.ret()


def _write_gathered(g: FunctionText, dtype: DType, square: int, to: DType) -> None:
    """Any strides: one element after the other."""
    _write_each(g, dtype, to, g.const_i(0))
    g.ret()


def _write_each(g: FunctionText, dtype: DType, to: DType, first: Value) -> None:
    """Pack columns `first..k_count` by single elements."""
    panel, source, across, along, count, k_count, width = g.arguments
    stored = convert.storage_type(dtype)

    def read(row: Value, k: Value) -> Value:
        offset = g.add(g.mul(row, across), g.mul(k, along))
        return convert.cast(g, convert.load(g, g.gep(source, offset, stored), dtype, 1), dtype, to)

    _loop_elements(g, panel, width, count, first, k_count, convert.compute_type(to), read)


def _loop_elements(
    g: FunctionText,
    panel: Value,
    width: Value,
    count: Value,
    first: Index,
    k_count: Value,
    element: str,
    read: Callable[[Value, Value], Value],
) -> None:
    """Store `read(row, k)` for columns `first..k_count`; rows beyond `count` repeat the last."""

    def column(k: Value) -> None:
        def item(i: Value) -> None:
            value = read(g.smin(i, g.sub(count, 1)), k)
            g.store(value, g.gep(panel, g.add(g.mul(k, width), i), element))

        g.loop(0, width, 1, item)

    g.loop(first, k_count, 1, column)


def _pack_elements(f: FunctionText, panel: Value, source: Operand, width: int, to: DType, area: Area) -> None:
    """Pack by the operand's own function."""
    function, frame = source.element, source.frame
    assert function is not None, "the caller has looked"
    arguments = [("ptr", "panel"), *(("i64", name) for name in ("row", "k", "count", "k_count", "width"))]
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(frame)]

    def write(g: FunctionText) -> None:
        panel, row, k, count, k_count, width, *inner = g.arguments

        def read(i: Value, step: Value) -> Value:
            at = g.add(row, i)
            return convert.cast(g, function(g, at, g.add(k, step), inner), source.dtype, to)

        _loop_elements(g, panel, width, count, 0, k_count, convert.compute_type(to), read)
        g.ret()

    name = f.module.outline(("pack", function, source.dtype, to), "pack_elements", arguments, write)
    sizes = [f.index(one) for one in (area.row, area.k, area.rows, area.k_count)]
    f.call(name, [panel, *sizes, f.const_i(width), *frame])


# Whole operands as panels: how rows and columns are cut for the register block, and the kernel for each cut.


def for_each_height(
    f: FunctionText, shape: MicroShape, rows: Index, block: Callable[[Value, int], None], known_rows: int | None = None
) -> None:
    """`block(at, height)` for whole register blocks, then for the powers of two that make up the remainder of the rows.

    Code is written only for the heights that `known_rows`, the rows of the whole matrix, can leave.
    """
    heights = shape.heights_of(known_rows)
    whole = f.round_down(rows, shape.rows)
    if shape.rows in heights:
        f.loop(0, whole, shape.rows, lambda at: block(at, shape.rows))
    remainder, at = f.sub(rows, whole), whole
    for height in shape.heights[1:]:
        if height in heights:
            part = f.op("and", remainder, f.const_i(height))
            f.if_(f.icmp("ne", part, 0), lambda at=at, height=height: block(at, height))
            at = f.add(at, part)


def choose_kernels(
    f: FunctionText,
    shape: MicroShape,
    left: Index,
    form: MicroForm,
    known_rows: int | None = None,
    known_columns: int | None = None,
) -> list[Value]:
    """The kernel of each of `shape.heights` for the columns that are left: narrower ones for the last few.

    Heights that `known_rows` does not need have a null.
    """
    widths = shape.widths_of(known_columns)
    needed = shape.heights_of(known_rows)
    chosen: list[Value] = []
    for height in shape.heights:
        if height not in needed:
            chosen.append(Value("ptr", "null"))
            continue
        kernels = [outline_micro_kernel(f.module, shape, height, vectors, form) for vectors in widths]
        kernel = kernels[0] if kernels else Value("ptr", "null")
        for vectors, narrower in zip(widths[1:], kernels[1:], strict=True):
            kernel = f.select(f.icmp("sle", left, vectors * shape.lanes), narrower, kernel)
        chosen.append(kernel)
    return chosen


def pack_lhs(
    f: FunctionText, shape: MicroShape, to: Value, lhs: Operand, area: Area, known_rows: int | None = None
) -> None:
    """Pack an area of A: the panel that begins at row `i` is at `i * k_count`."""
    if lhs.windows is not None:

        def cut(g: FunctionText, rows: Value, panel: Callable[[Value, Index], None]) -> None:
            for_each_height(g, shape, rows, panel, known_rows)

        key, chunk, lanes = ("rows", shape, known_rows), 16 * shape.rows, min(shape.lanes, 8)
        panels = WindowPanels(lhs.windows, lhs.dtype, shape.dtype, key, cut, chunk, 1, lanes)
        pack_windows(f, to, panels, area, lhs.frame)
        return

    def block(at: Value, height: int) -> None:
        panel = f.gep(to, f.mul(at, area.k_count), shape.element)
        strip = replace(area, row=f.add(area.row, at), rows=height)
        pack_panel(f, panel, lhs, height, shape.dtype, strip, shape.lanes)

    for_each_height(f, shape, area.rows, block, known_rows)


def can_multiply(lhs: Operand, rhs: Operand, shape: MicroShape) -> bool:
    """Whether B is packed with loads and stores of whole registers, beside which rows of A can be multiplied."""
    is_copied = rhs.is_memory and constant_of(rhs.column_stride) == 1
    return lhs.is_rows_of(shape.dtype) and (is_copied or rhs.windows is not None)


def pack_rhs(
    f: FunctionText,
    shape: MicroShape,
    to: Value,
    rhs: Operand,
    area: Area,
    known_columns: int | None = None,
    first: FirstRows | None = None,
) -> None:
    """Pack an area of B, whose rows are columns of B: the panel that begins at column `j` is at `j * k_count`.

    The last panel is as wide as the narrowest kernel that holds what is left. With `first` rows, B is multiplied too.
    """
    transposed = rhs.transposed
    if transposed.windows is not None:

        def cut(g: FunctionText, columns: Value, panel: Callable[[Value, Index], None]) -> None:
            def strip(at: Value) -> None:
                panel(at, _width_for(g, shape, g.sub(columns, at), known_columns))

            g.loop(0, columns, shape.columns, strip)

        key, chunk = ("columns", shape, known_columns), 8 * shape.columns
        block = None if first is None else shape
        sizes = (chunk, shape.columns, shape.lanes)
        panels = WindowPanels(transposed.windows, rhs.dtype, shape.dtype, key, cut, *sizes, block)
        pack_windows(f, to, panels, area, rhs.frame, first)
        return

    def panel(at: Value, vectors: int, count: Index) -> None:
        start = f.gep(to, f.mul(at, area.k_count), shape.element)
        strip = replace(area, row=f.add(area.row, at), rows=count)
        if first is None:
            pack_panel(f, start, transposed, vectors * shape.lanes, shape.dtype, strip, shape.lanes)
            return
        rows = first.at(f, shape.element, at, 0, first.accumulate)
        if vectors == shape.vectors:
            _multiply_copied(f, start, transposed, shape, strip, rows)
            return
        pack_panel(f, start, transposed, vectors * shape.lanes, shape.dtype, strip, shape.lanes)
        multiply_panel(f, shape, rows, start, vectors * shape.lanes, f.index(area.k_count))

    _each_width(f, shape, area.rows, panel, known_columns)


def _multiply_copied(
    f: FunctionText, panel: Value, source: Operand, shape: MicroShape, area: Area, first: FirstRows
) -> None:
    """Pack a whole panel of contiguous runs, and multiply it on the way."""
    assert source.base is not None, "the caller has looked"
    stored = convert.storage_type(source.dtype)
    arguments = [("ptr", "panel"), ("ptr", "source"), ("i64", "along"), ("i64", "k"), *first.arguments]

    def write(g: FunctionText) -> None:
        panel, source_at, along, k_count, *others = g.arguments
        block = FirstBlock(g, shape, shape.vectors, FirstRows.of(others))

        def step(at: Value, accs: list[Value]) -> list[Value]:
            line = g.gep(source_at, g.mul(at, along), stored)
            _prefetch_row(g, line, along, stored, shape.columns)
            target = g.gep(panel, g.mul(at, shape.columns), shape.element)
            values: list[Value] = []
            for start in range(0, shape.columns, shape.lanes):
                value = convert.load(g, g.gep(line, start, stored), source.dtype, shape.lanes)
                values.append(convert.cast(g, value, source.dtype, shape.dtype))
                g.store(values[-1], g.gep(target, start, shape.element))
            return block.step(at, values, accs)

        block.store(g.loop(0, k_count, 1, step, block.start))
        g.ret()

    name = f.module.outline(("copied", source.dtype, shape), "multiply_copied", arguments, write, shared=True)
    offset = f.add(f.mul(area.row, source.row_stride), f.mul(area.k, source.column_stride))
    sizes = [f.index(one) for one in (source.column_stride, area.k_count)]
    f.call(name, [panel, f.gep(source.base, offset, stored), *sizes, *first.values(f)])


def _each_width(
    f: FunctionText,
    shape: MicroShape,
    columns: Index,
    panel: Callable[[Value, int, Index], None],
    known_columns: int | None,
) -> None:
    """`panel(at, vectors, count)` for whole panels, then for one that holds the columns left."""
    widths = shape.widths_of(known_columns)
    whole = f.round_down(columns, shape.columns)
    if shape.vectors in widths:
        f.loop(0, whole, shape.columns, lambda at: panel(at, shape.vectors, shape.columns))
    left = f.sub(columns, whole)
    above: Index = 0
    for vectors in reversed(widths):
        inside = f.op("and", f.icmp("sgt", left, above), f.icmp("sle", left, vectors * shape.lanes))
        f.if_(inside, lambda vectors=vectors: panel(whole, vectors, left))
        above = vectors * shape.lanes


def _width_for(f: FunctionText, shape: MicroShape, left: Value, known_columns: int | None) -> Index:
    """Columns of the panel where so many are left."""
    widths = shape.widths_of(known_columns)
    width: Index = widths[0] * shape.lanes if widths else shape.columns
    for vectors in widths[1:]:
        narrower = vectors * shape.lanes
        width = f.select(f.icmp("sle", left, narrower), f.const_i(narrower), f.index(width))
    return width


def panel_elements(shape: MicroShape, rows_or_columns: int, k_count: int) -> int:
    """Elements that panels take: packing may write two registers past the end."""
    return -(-rows_or_columns // shape.lanes) * shape.lanes * k_count + 2 * shape.lanes
