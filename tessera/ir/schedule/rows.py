"""The space of a group with reductions: its full shape, the axes folded, and where each value stands in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.ir.base.index_maps import IndexMap
from tessera.types.dim import Dim
from tessera.types.shape import ZERO


@dataclass
class RowSpace:
    """`shape` with `axes` folded. A value of the group is full, or of the row: with the folded dims 1, or without them.

    `rows` maps each row value to whether it kept the folded dims.
    """

    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    rows: dict[int, bool] = field(default_factory=dict[int, bool])

    def is_row(self, value: int) -> bool:
        return value in self.rows

    def row_shape(self, keepdims: bool) -> tuple[Dim, ...]:
        if keepdims:
            return tuple(Dim.constant(1) if axis in self.axes else dim for axis, dim in enumerate(self.shape))
        return tuple(dim for axis, dim in enumerate(self.shape) if axis not in self.axes)

    def at(self, value: int, full: IndexMap) -> IndexMap:
        """Where a value of the group is, for coordinates of the full space."""
        if value not in self.rows:
            return full
        if self.rows[value]:
            return tuple(ZERO if axis in self.axes else expr for axis, expr in enumerate(full))
        return tuple(expr for axis, expr in enumerate(full) if axis not in self.axes)
