"""Numbers that positions are counted in: how far they reach, and whether a narrow dtype holds that.

Rows and columns are counted in i64, so arithmetic on them reaches every element. Where a kernel counts in less, its
positions are followed back to what they are computed from; what only grows with places and sizes reaches its end at
the last place, so that an overflow is proved and not guessed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from tessera.diagnostics.codes import KernelError
from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.reach import Reach
from tessera.ir.tile.records import TileOp
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType
from tessera.types.tensor_type import TensorType

WIDE = 64
"""Bits of a dtype that holds the place of every element there can be."""
ONE = Dim.constant(1)


def check_positions(b: KernelBuilder) -> None:
    """Positions of a kernel, and all that they are computed from, fit their dtypes: proved, refused, or a guard."""
    for name, number in dict.fromkeys(b.positions):
        _check(b, name, number)


def _check(b: KernelBuilder, name: str, number: int) -> None:
    follower = _Follower(b)
    follower.end(number)
    for op, dtype, end in follower.narrow:
        last = (1 << dtype.bits - (dtype.kind == "int")) - 1
        if end.value is not None and end.value > last:
            raise KernelError(
                f"positions in `{name}` are counted in {dtype}, which ends at {last}, and reach {end}",
                span=op.span,
                notes=("rule: arithmetic on positions does not overflow",),
                fix="count in i64: `tile.row_index()` and `tile.col_index(step)` do, and `tile.cast(x, i64)`",
            )
        if end.value is None and not follower.is_within_another(dtype, end):
            b.same(minimum(end, last), end, f"positions in `{name}` are counted in {dtype}, which ends at {last}")


class _Follower:
    """Goes from a tile to what it is computed from; `narrow` are the steps in dtypes that may not hold them."""

    def __init__(self, b: KernelBuilder) -> None:
        self.b, self.reach = b, Reach(b, afterwards=True)
        self.narrow: list[tuple[TileOp, DType, Dim]] = []
        self._ends: dict[int, Dim | None] = {}

    def end(self, number: int) -> Dim | None:
        """The most that a tile of whole numbers is, none of which is below 0; None where that is not known."""
        if number not in self._ends:
            self._ends[number] = None
            self._ends[number] = self._end(number)
        return self._ends[number]

    def is_within_another(self, dtype: DType, end: Dim) -> bool:
        """Whether a step of the same dtype reaches further, for all sizes."""
        others = [other for _, found, other in self.narrow if found is dtype and other != end]
        return any(self.reach.is_natural(other - end) for other in others)

    def _end(self, number: int) -> Dim | None:
        op, type = self.b.makers.get(number), self.b.types[number]
        if op is None or not isinstance(type, TensorType) or not type.dtype.is_integer:
            return None
        found = self._end_of(op)
        if found is not None and type.dtype.bits < WIDE and op.name != "constant":
            self.narrow.append((op, type.dtype, found))
        return found

    def _end_of(self, op: TileOp) -> Dim | None:
        if op.name == "coordinate":
            return self._place(op)
        if op.name == "constant":
            value = op.values["value"]
            return Dim.constant(int(value)) if value >= 0 else None
        ends = [self.end(operand) for operand in op.operands]
        known = [end for end in ends if end is not None]
        if len(known) != len(ends) or not known:
            return None
        if op.name in ("cast", "broadcast"):
            return known[0]
        rule = _GROWING.get(str(op.values.get("fn"))) if op.name == "elementwise" and len(known) == 2 else None
        return None if rule is None else rule(*known)

    def _place(self, op: TileOp) -> Dim | None:
        """The most that an expression over coordinates is, those of axes at the last element that there is."""
        expr: Dim = op.values["expr"]
        last: dict[str, Dim] = {}
        for axis in op.values["axes"]:
            extent = self._extent(axis)
            if axis in expr.symbols and extent is None:
                return None
            last[axis] = Dim.constant(0) if extent is None else extent - ONE
        parts = [expr.coefficient(axis) for axis in last if axis in expr.symbols]
        if any(part is None or not self.reach.is_natural(part[0]) for part in parts) or not self.reach.is_natural(expr):
            return None
        return self.reach.end(expr.substitute(last), up=True)

    def _extent(self, axis: str) -> Dim | None:
        """How far an axis goes: that of the grid, or of its loop."""
        if axis in self.b.runs:
            return self.b.runs[axis][0]
        found = self.b.axes.get(axis)
        return None if found is None or found.extent.value == -1 else found.extent


_GROWING: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "add": operator.add,
    "mul": operator.mul,
    "max": maximum,
    "min": minimum,
}
"""Functions of two natural numbers that grow with both: the end of the result is that of the ends."""

__all__ = ["check_positions"]
