"""Windows of operands whose place is a Dim expression that splits into a part of the row and a part of the column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim

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
        (_, row, column), *places = self._parts
        dims = (row, column, *(part for parts in places for part in parts), *self._extents)
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
