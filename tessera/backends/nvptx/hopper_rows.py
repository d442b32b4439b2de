"""Sums of rows of fragments that threads keep apart until a loop ends."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.hopper_elements import across_threads, fold_own, math_of
from tessera.backends.nvptx.hopper_fragments import Layout, Registers
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType


def partial_rows(f: FunctionText, layout: Layout, dtype: DType) -> Registers:
    """Sums that have not begun."""
    return Registers(layout, dtype, [f.const("float", 0.0)] * layout.count)


def grow_rows(f: FunctionText, partial: Registers, factor: Registers, tile: Registers) -> Registers:
    """Sums of the thread, scaled, and its own columns added."""
    own = fold_own(f, tile, "sum")
    parts: Sequence[tuple[Value, ...]] = list(zip(partial.floats(f), factor.floats(f), own, strict=True))
    return Registers(partial.layout, tile.dtype, [math_of(f, "fma", part, tile.dtype) for part in parts])


def join_rows(f: FunctionText, partial: Registers) -> Registers:
    """One sum for each row, of its four threads."""
    values = [across_threads(f, value, "sum", partial.dtype) for value in partial.floats(f)]
    return Registers(partial.layout, partial.dtype, values)
