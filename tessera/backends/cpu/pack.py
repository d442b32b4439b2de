"""Packed panels: operands of matrix products converted, transposed and laid out in the order they are consumed.

A panel of `width` holds, for each k, `width` elements side by side: `panel[k * width + i] = source(i, k)`. The left
operand's panels are rows of it, the right operand's are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from tessera.backends.cpu.transpose import transpose
from tessera.backends.cpu.windows import Turned, WindowElement, Windows
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.text import FunctionText, Index, Value, known
from tessera.ir.target.llvm.types import bytes_of
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
        """Whether every row is a run of memory in the accumulator's dtype: then nothing is gained by packing rows."""
        return self.is_runs and self.dtype is dtype

    @property
    def is_runs(self) -> bool:
        """Whether every row is a run of memory: turning it into a panel costs more than reading it along k."""
        return self.is_memory and known(self.column_stride) == 1

    @property
    def transposed(self) -> Operand:
        """Rows for columns."""
        swapped = None if self.element is None else _Swapped(self.element)
        windows = None if self.windows is None else Turned(self.windows)
        return Operand(self.dtype, self.base, self.column_stride, self.row_stride, swapped, self.frame, windows)


@frozen
class _Swapped:
    function: Element

    def __call__(self, f: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
        return self.function(f, column, row, frame)


def pack_panel(
    f: FunctionText,
    panel: Value,
    source: Operand,
    width: int,
    to: DType,
    row: Index,
    k: Index,
    count: Index,
    depth: Index,
    register: int,
) -> None:
    """Pack rows `row..row+width` and columns `k..k+depth` of `source` as one panel of accumulator dtype `to`.

    Only the first `count` rows exist; the others are filled with something harmless. Up to a register beyond the panel
    may be overwritten, so panels are packed in the order they lie.
    """
    if source.windows is not None:
        source = replace(source, windows=None, element=WindowElement(source.windows, source.dtype))
    if source.element is not None:
        _pack_elements(f, panel, source, width, to, row, k, count, depth)
        return
    assert source.base is not None, "an operand is memory or a function"
    offset = f.add(f.mul(row, source.row_stride), f.mul(k, source.column_stride))
    start = f.gep(source.base, offset, convert.storage_type(source.dtype))
    args = [panel, start, f.index(source.row_stride), f.index(source.column_stride), f.index(count), f.index(depth)]
    along_k, along_rows = known(source.column_stride), known(source.row_stride)
    paths: dict[str, Callable[[], None]] = {
        kind: lambda kind=kind: _call_strided(f, kind, source.dtype, width, to, register, args)
        for kind in ("copied", "turned", "gathered")
    }
    if along_rows == 1:
        paths["copied"]()
    elif along_k == 1:
        paths["turned"]()
    elif along_k is not None and along_rows is not None:
        paths["gathered"]()
    else:
        by_rows = f.icmp("eq", source.row_stride, 1)
        by_k = f.icmp("eq", source.column_stride, 1)
        f.if_(by_rows, paths["copied"], lambda: _none(f.if_(by_k, paths["turned"], paths["gathered"])))


def _none(values: object) -> None:
    """Nothing: a branch that only has effects."""


_ARGUMENTS = (
    ("ptr", "panel"),
    ("ptr", "source"),
    ("i64", "across"),
    ("i64", "along"),
    ("i64", "count"),
    ("i64", "depth"),
)


def _call_strided(
    f: FunctionText, kind: str, dtype: DType, width: int, to: DType, register: int, args: Sequence[Value]
) -> None:
    """Call the outlined function that packs memory one of three ways."""
    arguments = list(_ARGUMENTS)
    if kind == "copied":
        key = ("pack", kind, dtype, width, to, register)
        name = f.module.outline(
            key, "pack_copied", arguments, lambda g: _write_copied(g, dtype, width, to, register), shared=True
        )
        f.call(name, args)
        return
    # These take the width as an argument: one function serves all that turn squares of one side.
    side = 1 if kind == "gathered" else _side(width, register)
    key = ("pack", kind, dtype, side, to)
    write = _write_gathered if kind == "gathered" else _write_run if width == 1 else _write_turned
    arguments.append(("i64", "width"))
    name = f.module.outline(
        (*key, width == 1), f"pack_{kind}", arguments, lambda g: write(g, dtype, side, to), shared=True
    )
    f.call(name, [*args, f.const_i(width)])


def _side(width: int, register: int) -> int:
    """The side of the squares a panel is turned in: the power of two that holds its width, up to a register."""
    if width == 1:
        return register
    side = register
    while side >= 2 * width and side > 4:
        side //= 2
    return side


_AHEAD = 12
"""Rows that packing asks for ahead of its own."""


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


def _write_copied(g: FunctionText, dtype: DType, width: int, to: DType, register: int) -> None:
    """Unit stride across the panel: copy `width` contiguous elements for each k."""
    panel, source, _, along, count, depth = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)

    def every_k(load: Callable[[Value, int, int], Value]) -> None:
        def body(k: Value) -> None:
            line = g.gep(source, g.mul(k, along), stored)
            target = g.gep(panel, g.mul(k, width), element)
            # Rows far apart are each a page of their own, which no prefetcher of the machine crosses.
            ahead = g.gep(line, g.mul(along, _AHEAD), stored)
            for start in range(0, width, 64 // bytes_of(stored)):
                g.prefetch(g.gep(ahead, start, stored))
            for start, lanes in pieces(width, register):
                value = convert.cast(g, load(line, start, lanes), dtype, to)
                g.store(value, g.gep(target, start, element))

        g.loop(0, depth, 1, body)

    def part(line: Value, start: int, lanes: int) -> Value:
        return convert.load_some(g, g.gep(line, start, stored), dtype, lanes, g.sub(count, start))

    g.if_(
        g.icmp("sge", count, width),
        lambda: every_k(lambda line, start, lanes: convert.load(g, g.gep(line, start, stored), dtype, lanes)),
        lambda: every_k(part),
    )
    g.ret()


def _write_turned(g: FunctionText, dtype: DType, side: int, to: DType) -> None:
    """Unit stride along k: load runs of k from each row and transpose them in registers."""
    panel, source, across, _, count, depth, width = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)
    whole = g.round_down(depth, side)
    last = g.sub(count, 1)

    def block(start: Value) -> None:
        # Rows that do not exist repeat the last one: their products are never looked at.
        rows = [g.gep(source, g.mul(g.smin(g.add(start, i), last), across), stored) for i in range(side)]

        def body(k: Value) -> None:
            values = [convert.load(g, g.gep(row, k, stored), dtype, side) for row in rows]
            values = [convert.cast(g, value, dtype, to) for value in values]
            target = g.gep(panel, g.add(g.mul(k, width), start), element)
            for column in transpose(g, values):
                g.store(column, target)
                target = g.gep(target, width, element)

        g.loop(0, whole, side, body)

    # The last block first: where it sticks out of the panel, the first block writes over what it spilled.
    top = g.sub(g.round_up(width, side), side)
    g.loop(0, width, side, lambda down: block(g.sub(top, down)))
    _write_each(g, dtype, to, whole)
    g.ret()


def _write_run(g: FunctionText, dtype: DType, side: int, to: DType) -> None:
    """A panel of width 1 with unit stride along k: copy."""
    panel, source, _, _, _, depth, _ = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)
    whole = g.round_down(depth, side)

    def body(k: Value) -> None:
        value = convert.cast(g, convert.load(g, g.gep(source, k, stored), dtype, side), dtype, to)
        g.store(value, g.gep(panel, k, element))

    g.loop(0, whole, side, body)
    _write_each(g, dtype, to, whole)
    g.ret()


def _write_gathered(g: FunctionText, dtype: DType, side: int, to: DType) -> None:
    """Any strides: one element after the other."""
    _write_each(g, dtype, to, g.const_i(0))
    g.ret()


def _write_each(g: FunctionText, dtype: DType, to: DType, first: Value) -> None:
    """Pack columns `first..depth` by single elements."""
    panel, source, across, along, count, depth, width = g.arguments
    stored, element = convert.storage_type(dtype), convert.compute_type(to)

    def column(k: Value) -> None:
        def item(i: Value) -> None:
            offset = g.add(g.mul(g.smin(i, g.sub(count, 1)), across), g.mul(k, along))
            value = convert.cast(g, convert.load(g, g.gep(source, offset, stored), dtype, 1), dtype, to)
            g.store(value, g.gep(panel, g.add(g.mul(k, width), i), element))

        g.loop(0, width, 1, item)

    g.loop(first, depth, 1, column)


def _pack_elements(
    f: FunctionText,
    panel: Value,
    source: Operand,
    width: int,
    to: DType,
    row: Index,
    k: Index,
    count: Index,
    depth: Index,
) -> None:
    """Pack by the operand's own function."""
    function, frame = source.element, source.frame
    assert function is not None, "the caller has looked"
    arguments = [("ptr", "panel"), ("i64", "row"), ("i64", "k"), ("i64", "count"), ("i64", "depth"), ("i64", "width")]
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(frame)]

    def write(g: FunctionText) -> None:
        panel, row, k, count, depth, width, *inner = g.arguments
        element = convert.compute_type(to)

        def column(step: Value) -> None:
            def item(i: Value) -> None:
                at = g.add(row, g.smin(i, g.sub(count, 1)))
                value = convert.cast(g, function(g, at, g.add(k, step), inner), source.dtype, to)
                g.store(value, g.gep(panel, g.add(g.mul(step, width), i), element))

            g.loop(0, width, 1, item)

        g.loop(0, depth, 1, column)
        g.ret()

    name = f.module.outline(("pack", function, source.dtype, to), "pack_elements", arguments, write)
    f.call(name, [panel, f.index(row), f.index(k), f.index(count), f.index(depth), f.const_i(width), *frame])
