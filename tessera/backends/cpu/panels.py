"""Whole operands as panels: how rows and columns are cut for the register block, and the kernels for each cut."""

from __future__ import annotations

from collections.abc import Callable

from tessera.backends.cpu.micro import MicroShape, micro_kernel
from tessera.backends.cpu.pack import Operand, pack_panel
from tessera.backends.cpu.pack_windows import pack_windows
from tessera.ir.target.llvm.text import FunctionText, Index, Value


def each_height(
    f: FunctionText,
    shape: MicroShape,
    rows: Index,
    block: Callable[[Value, int], None],
    known_rows: int | None = None,
) -> None:
    """`block(at, height)` for whole register blocks, then for the powers of two that make up the rest of the rows.

    Code is written only for the heights that `known_rows`, the rows of the whole matrix, can leave.
    """
    heights = shape.heights_of(known_rows)
    whole = f.round_down(rows, shape.rows)
    if shape.rows in heights:
        f.loop(0, whole, shape.rows, lambda at: block(at, shape.rows))
    rest, at = f.sub(rows, whole), whole
    for height in shape.heights[1:]:
        if height in heights:
            part = f.op("and", rest, f.const_i(height))
            f.if_(f.icmp("ne", part, 0), lambda at=at, height=height: block(at, height))
            at = f.add(at, part)


def kernels_for(
    f: FunctionText,
    shape: MicroShape,
    left: Index,
    known_rows: int | None = None,
    known_columns: int | None = None,
    strided: bool = False,
    in_rows: bool = False,
    cut: bool = False,
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
        kernels = [micro_kernel(f.module, shape, height, vectors, strided, in_rows, cut) for vectors in widths]
        kernel = kernels[0] if kernels else Value("ptr", "null")
        for vectors, narrower in zip(widths[1:], kernels[1:], strict=True):
            kernel = f.select(f.icmp("sle", left, vectors * shape.lanes), narrower, kernel)
        chosen.append(kernel)
    return chosen


def pack_lhs(
    f: FunctionText,
    shape: MicroShape,
    to: Value,
    lhs: Operand,
    row: Index,
    rows: Index,
    k: Index,
    depth: Index,
    known_rows: int | None = None,
) -> None:
    """Pack `rows` of the left operand, `depth` of its columns: the panel that begins at row `i` is at `i * depth`."""
    if lhs.windows is not None:

        def cut(g: FunctionText, rows: Value, panel: Callable[[Value, Index], None]) -> None:
            each_height(g, shape, rows, panel, known_rows)

        key, chunk = ("rows", shape, known_rows), 16 * shape.rows
        pack_windows(
            f,
            to,
            lhs.windows,
            lhs.dtype,
            shape.dtype,
            key,
            cut,
            chunk,
            1,
            min(shape.lanes, 8),
            row,
            rows,
            k,
            depth,
            lhs.frame,
        )
        return

    def block(at: Value, height: int) -> None:
        panel = f.gep(to, f.mul(at, depth), shape.element)
        pack_panel(f, panel, lhs, height, shape.dtype, f.add(row, at), k, height, depth, shape.lanes)

    each_height(f, shape, rows, block, known_rows)


def pack_rhs(
    f: FunctionText,
    shape: MicroShape,
    to: Value,
    rhs: Operand,
    column: Index,
    columns: Index,
    k: Index,
    depth: Index,
    known_columns: int | None = None,
) -> None:
    """Pack `columns` of the right operand, `depth` of its rows: the panel that begins at column `j` is at `j * depth`.

    The last panel is as wide as the narrowest kernel that holds what is left.
    """
    turned = rhs.transposed
    if turned.windows is not None:

        def cut(g: FunctionText, columns: Value, panel: Callable[[Value, Index], None]) -> None:
            g.loop(
                0,
                columns,
                shape.columns,
                lambda at: panel(at, _width_for(g, shape, g.sub(columns, at), known_columns)),
            )

        key, chunk = ("columns", shape, known_columns), 4 * shape.columns
        pack_windows(
            f,
            to,
            turned.windows,
            rhs.dtype,
            shape.dtype,
            key,
            cut,
            chunk,
            shape.columns,
            shape.lanes,
            column,
            columns,
            k,
            depth,
            rhs.frame,
        )
        return

    def panel(at: Value, vectors: int, count: Index) -> None:
        start = f.gep(to, f.mul(at, depth), shape.element)
        width = vectors * shape.lanes
        pack_panel(f, start, turned, width, shape.dtype, f.add(column, at), k, count, depth, shape.lanes)

    _each_width(f, shape, columns, panel, known_columns)


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


def panel_elements(shape: MicroShape, rows_or_columns: int, depth: int) -> int:
    """Elements of room that panels take: packing may write two registers past the end."""
    return -(-rows_or_columns // shape.lanes) * shape.lanes * depth + 2 * shape.lanes
