"""How far a place can go that programs compute: from the grid, the loops and the arithmetic around it, by intervals."""

from __future__ import annotations

from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder
from tessera.types.dim import Atom, Dim, maximum, minimum

ZERO, ONE = Dim.constant(0), Dim.constant(1)


class Reach:
    """The ends of expressions over the coordinates that a kernel has here; what is not known has no end.

    Sizes are natural numbers. Those that a loop or the grid runs over are at least 1, since a step is being taken;
    `afterwards`, when the kernel is written, it is a step of every loop that it had.
    """

    def __init__(self, b: KernelBuilder, *, afterwards: bool = False) -> None:
        coords = dict.fromkeys([*b.axes, "_z", *b.named]) if afterwards else b.coords
        self.values = b.values
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        runs = dict(b.runs)
        runs |= {axis.name: (axis.extent, axis.size) for axis in b.axes.values() if axis.extent != UNKNOWN}
        for name, (extent, step) in runs.items():
            if name in coords:
                self.ranges[name] = (ZERO, _last(extent, step))
        self.ranges |= {name: ends for name, ends in b.ends.items() if name in coords}
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
        """The largest or smallest that an expression can be, over sizes alone; None where that is not found."""
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
        """The expression with quotients, remainders, and larger and smaller ones of coordinates replaced by ends."""
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
        # The smaller of two is at most either, the larger at least either.
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
    """The last place of a run that begins at 0, or one that is not before it."""
    if extent.value is None:
        return extent - ONE
    return Dim.constant(max(0, -(-extent.value // step) - 1) * step)


__all__ = ["Reach"]
