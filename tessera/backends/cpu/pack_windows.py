"""Packing operands read through windows: vectors of neighbouring rows, column after column, into panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tessera.backends.cpu.window_vectors import DEPTH, Read, WindowVectors
from tessera.backends.cpu.windows import Windows
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.text import FunctionText, Index, Value, known
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

Cut: TypeAlias = Callable[[FunctionText, Value, Callable[[Value, Index], None]], None]
"""`cut(f, rows, panel)` calls `panel(at, width)` for each panel of so many rows; one not known now is of vectors."""


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
    lanes: int,
    row: Index,
    rows: Index,
    k: Index,
    depth: Index,
    frame: Sequence[Value],
) -> None:
    """Pack rows `row..row+rows` and columns `k..k+depth` as panels; the one that begins at row `i` is at `i * depth`.

    `cut` names the panels of up to `chunk` rows at a time, the last up to a multiple of `pad`; `key` tells it apart.
    A vector has `lanes` rows.
    """
    arguments = [("ptr", "to"), *[("i64", name) for name in ("row", "rows", "k", "depth")]]
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(frame)]
    name = f.module.outline(
        ("windows", windows, dtype, accumulator, key),
        "pack_windows",
        arguments,
        lambda g: _Packer(g, windows, dtype, accumulator, chunk, pad, lanes).write(cut),
    )
    f.call(name, [to, f.index(row), f.index(rows), f.index(k), f.index(depth), *frame])


@frozen
class _Panel:
    """A panel: its first row among those tabled, how many it has, and where it is packed to."""

    at: Value
    width: Index
    to: Value


class _Packer:
    """The outlined function of one operand."""

    def __init__(
        self, g: FunctionText, windows: Windows, dtype: DType, accumulator: DType, chunk: int, pad: int, lanes: int
    ) -> None:
        self.g, self.chunk, self.pad, self.lanes = g, chunk, pad, lanes
        self.element = convert.compute_type(accumulator)
        self.to, self.row, self.rows, self.k, self.depth, *frame = g.arguments
        self.vectors = WindowVectors(g, windows, dtype, accumulator, frame, chunk, lanes)

    def write(self, cut: Cut) -> None:
        g = self.g

        def some_rows(first: Value) -> None:
            count = g.smin(self.chunk, g.sub(self.rows, first))
            self.vectors.fill_rows(g.add(self.row, first), count, self.pad)

            def some_columns(k: Value) -> None:
                depth = g.smin(DEPTH, g.sub(self.depth, k))
                self.vectors.fill_columns(g.add(self.k, k), depth)
                cut(g, count, lambda at, width: self._panel(first, at, width, k, depth))

            g.loop(0, self.depth, DEPTH, some_columns)

        g.loop(0, self.rows, self.chunk, some_rows)
        g.ret()

    def _panel(self, first: Value, at: Value, width: Index, k: Value, depth: Value) -> None:
        """Pack one panel's columns `k..k+depth`, side by side where it is the widest and its vectors are runs."""
        g = self.g
        start = g.add(g.mul(g.add(first, at), self.depth), g.mul(k, width))
        panel = _Panel(at, width, g.gep(self.to, start, self.element))
        if self.pad == 1:
            self._each_vector(panel, depth)
            return
        self.vectors.several(
            at,
            self.pad // self.lanes,
            g.icmp("eq", width, self.pad),
            lambda reads: self._side_by_side(panel, reads, depth),
            lambda: self._each_vector(panel, depth),
        )

    def _side_by_side(self, panel: _Panel, reads: Sequence[Read], depth: Value) -> None:
        g = self.g

        def column(i: Value) -> None:
            target = g.gep(panel.to, g.mul(i, panel.width), self.element)
            for number, value in enumerate([read(i) for read in reads]):
                g.store(value, g.gep(target, number * self.lanes, self.element))

        g.loop(0, depth, 1, column)

    def _each_vector(self, panel: _Panel, depth: Value) -> None:
        g, lanes = self.g, self.lanes

        def vector(offset: Index, count: int) -> None:
            def write(read: Read) -> None:
                def column(i: Value) -> None:
                    target = g.gep(panel.to, g.add(g.mul(i, panel.width), offset), self.element)
                    _store_first(g, read(i), target, count)

                g.loop(0, depth, 1, column)

            self.vectors.at(g.add(panel.at, offset), write)

        # Only a width known now may end within a vector.
        rest = (known(panel.width) or 0) % lanes
        whole = g.sub(panel.width, rest)
        g.loop(0, whole, lanes, lambda offset: vector(offset, lanes))
        if rest:
            vector(whole, rest)


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
