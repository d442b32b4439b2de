"""How far indices of a kernel reach, by interval arithmetic over symbolic sizes, and whether their dtypes hold that."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from tessera.diagnostics.codes import KernelError
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder
from tessera.ir.tile.records import TileOp
from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.dtype import DType
from tessera.types.tensor_type import TensorType

# Interval arithmetic over symbolic sizes: the bounds of an index are expressions of sizes, found by replacing each
# coordinate, last defined first, by the end of its range at which the expression is largest or smallest.

ZERO, ONE = Dim.constant(0), Dim.constant(1)


class IndexBounds:
    """Bounds of expressions over the coordinates in scope; None where no bound is found.

    Sizes are at least 0. Those that a loop or the grid runs over are at least 1, since an iteration is running;
    `afterwards`, once the kernel is built, all loops that it had count.
    """

    def __init__(self, b: KernelBuilder, *, afterwards: bool = False) -> None:
        coords = dict.fromkeys([*b.axes, "_z", *b.coordinate_names]) if afterwards else b.coords
        self.values = b.values
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        runs = dict(b.loop_extents)
        runs |= {axis.name: (axis.extent, axis.size) for axis in b.axes.values() if axis.extent != UNKNOWN}
        for name, (extent, step) in runs.items():
            if name in coords:
                self.ranges[name] = (ZERO, _last(extent, step))
        self.ranges |= {name: ends for name, ends in b.coordinate_ranges.items() if name in coords}
        self.order = [name for name in coords if name in self.ranges or name in self.values]
        self.unknown = set(coords) - set(self.order)
        named = (extent.symbol_name for name, (extent, _) in runs.items() if name in self.ranges)
        self.positive = {size for size in named if size is not None and size not in coords}

    def is_inside(self, at: Dim, extent: Dim) -> bool:
        """Whether `0 <= at < extent` follows."""
        low, high = self.end(at, up=False), self.end(at, up=True)
        return low is not None and high is not None and self._natural(low) and self._natural(extent - ONE - high)

    def is_natural(self, at: Dim) -> bool:
        """Whether `0 <= at` follows."""
        low = self.end(at, up=False)
        return low is not None and self._natural(low)

    def end(self, expr: Dim, *, up: bool) -> Dim | None:
        """The upper or lower bound of an expression, over sizes only; None where none is found."""
        found: Dim | None = expr
        for name in reversed(self.order):
            found = self._opened(found, up)
            if found is None:
                return None
            if name not in found.symbols:
                continue
            if name in self.values:
                found = found.substitute({name: self.values[name]})
                continue
            parts = found.coefficient(name)
            if parts is None:
                return None
            factor, rest = parts
            low, high = self.ranges[name]
            if self._natural(factor):
                found = factor * (high if up else low) + rest
            elif self._natural(-factor):
                found = factor * (low if up else high) + rest
            else:
                return None
        found = self._opened(found, up)
        return None if found is None or found.symbols & self.unknown else found

    def _opened(self, expr: Dim | None, up: bool) -> Dim | None:
        """The expression with `//`, `%`, `max` and `min` of coordinates replaced by their bounds."""
        if expr is None:
            return None
        total: Dim = ZERO
        for monomial, coefficient in expr.terms:
            whole = Dim(((monomial, 1),))
            if any(atom.kind != "symbol" and self._moves(Dim((((atom,), 1),))) for atom in monomial):
                end = self._atom(monomial[0], up == (coefficient > 0)) if len(monomial) == 1 else None
                if end is None:
                    return None
                whole = end
            total = total + whole * coefficient
        return total

    def _moves(self, expr: Dim) -> bool:
        return bool(expr.symbols & (set(self.order) | self.unknown))

    def _atom(self, atom: Atom, up: bool) -> Dim | None:
        first, second = atom.args
        if atom.kind == "mod" and second.value is not None and second.value > 0:
            return second - ONE if up else ZERO
        left, right = self.end(first, up=up), self.end(second, up=up)
        if atom.kind == "floordiv" and second.value is not None and second.value > 0:
            return None if left is None else left // second
        if atom.kind not in ("min", "max"):
            return None
        if left is not None and right is not None:
            return minimum(left, right) if atom.kind == "min" else maximum(left, right)
        # min(a, b) is at most either, max(a, b) at least either.
        either = right if left is None else left
        return either if up == (atom.kind == "min") else None

    def _natural(self, expr: Dim) -> bool:
        counted = expr.substitute({name: Dim.symbol(name) + ONE for name in self.positive})
        return self._has_no_minus(counted)

    def _has_no_minus(self, expr: Dim) -> bool:
        return all(
            coefficient >= 0 and all(self._is_natural_atom(atom) for atom in monomial)
            for monomial, coefficient in expr.terms
        )

    def _is_natural_atom(self, atom: Atom) -> bool:
        if atom.kind == "symbol":
            return atom.name not in self.unknown
        if atom.kind == "max":
            return any(self._has_no_minus(arg) for arg in atom.args)
        return all(self._has_no_minus(arg) for arg in atom.args)


def _last(extent: Dim, step: int) -> Dim:
    """The last value of a loop coordinate that starts at 0, or an upper bound of it."""
    if extent.value is None:
        return extent - ONE
    return Dim.constant(max(0, -(-extent.value // step) - 1) * step)


# Overflow of index arithmetic. Row and column indices are i64, which holds every index. Where a kernel computes indices
# in a narrower dtype, they are followed back to what they are computed from; expressions that grow with coordinates and
# sizes reach their maximum at the last element, so an overflow is proved and not guessed.

WIDE = 64
"""Bits of a dtype that holds every index."""


def check_positions(b: KernelBuilder) -> None:
    """Require that index tiles, and all they are computed from, fit their dtypes: proved, refuted, or guarded."""
    for name, number in dict.fromkeys(b.positions):
        _check(b, name, number)


def _check(b: KernelBuilder, name: str, number: int) -> None:
    follower = _OverflowCheck(b)
    follower.end(number)
    for op, dtype, end in follower.narrow:
        last = (1 << dtype.bits - (dtype.kind == "int")) - 1
        if end.value is not None and end.value > last:
            raise KernelError(
                f"indices into `{name}` are computed in {dtype}, whose maximum is {last}, and reach {end}",
                span=op.span,
                notes=("rule: index arithmetic does not overflow",),
                fix="compute in i64: `tile.row_index()` and `tile.col_index(step)` do, and `tile.cast(x, i64)`",
            )
        if end.value is None and not follower.is_within_another(dtype, end):
            b.require_equal(
                minimum(end, last), end, f"indices into `{name}` are computed in {dtype}, whose maximum is {last}"
            )


class _OverflowCheck:
    """Follows a tile back to its operands; `narrow` are the ops whose dtype may be too narrow."""

    def __init__(self, b: KernelBuilder) -> None:
        self.b, self.reach = b, IndexBounds(b, afterwards=True)
        self.narrow: list[tuple[TileOp, DType, Dim]] = []
        self._ends: dict[int, Dim | None] = {}

    def end(self, number: int) -> Dim | None:
        """The maximum of a non-negative integer tile; None where that is unknown."""
        if number not in self._ends:
            self._ends[number] = None
            self._ends[number] = self._end(number)
        return self._ends[number]

    def is_within_another(self, dtype: DType, end: Dim) -> bool:
        """Whether an op of the same dtype has a larger maximum, for all sizes."""
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
        """The maximum of an expression over coordinates, those of axes at their last element."""
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
        """The extent of an axis: of the grid, or of its loop."""
        if axis in self.b.loop_extents:
            return self.b.loop_extents[axis][0]
        found = self.b.axes.get(axis)
        return None if found is None or found.extent.value == -1 else found.extent


_GROWING: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "add": operator.add,
    "mul": operator.mul,
    "max": maximum,
    "min": minimum,
}
"""Functions that are monotone in both operands: the maximum of the result is that of the maxima."""
