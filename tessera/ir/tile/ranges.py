"""How large an index can get: an interval argument on expressions, which also works where strides are free sizes."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.tile.sites import Site
from tessera.types.dim import Atom, Dim

ZERO, ONE = Dim.constant(0), Dim.constant(1)


@dataclass(frozen=True)
class Range:
    """All values of a name: from `low` up to and with `high`, over names bound before it."""

    name: str
    low: Dim
    high: Dim


def is_in_bounds(site: Site, dim: int) -> bool:
    """Whether `0 <= index < extent` follows for one dim of a site; False means that no proof was found."""
    return any(_Proof(site, by_windows).holds(dim) for by_windows in (False, True))


class _Proof:
    """Bounds of expressions of one site: variables are replaced by their ends, innermost first.

    With `by_windows`, a coordinate is measured by the window it stands in rather than by its own range.
    """

    def __init__(self, site: Site, by_windows: bool) -> None:
        self.site = site
        self.ranges: list[Range] = []
        self.positive: set[str] = set()
        self.natural: set[str] = set()
        self.coordinates: dict[str, Dim] = {}
        for variable in site.variables:
            if variable.kind != "element":
                self._bind(variable.name, variable.low, variable.high - ONE)
        for axis in site.axes:
            self._axis(axis.start, axis.element.name, axis.element.high, axis.bound)
        self.known = {**self.coordinates}
        if by_windows:
            for number, (expr, extent) in enumerate(site.windows):
                self._window(f"%w{number}", expr.substitute(self.coordinates), extent)
        self.unknown = set(site.gathered) - self.known.keys()

    def holds(self, dim: int) -> bool:
        index = self.opened(self.site.indices[dim])
        if index is None:
            return False
        low, high = self.extreme(index, up=False), self.extreme(index, up=True)
        if low is None or high is None:
            return False
        return self.is_not_negative(low) and self.is_not_negative(self.site.shape[dim] - ONE - high)

    def _bind(self, name: str, low: Dim, high: Dim) -> None:
        self.ranges.append(Range(name, low, high))
        if self.is_not_negative(low):
            self.natural.add(name)
            # The site is only reached where there is a value: a size that would leave none is at least 1.
            count = high + ONE
            for symbol in count.symbols - {known.name for known in self.ranges}:
                at_zero = count.substitute({symbol: 0}).value
                if at_zero is not None and at_zero <= 0:
                    self.positive.add(symbol)

    def _axis(self, start: Dim, element: str, size: Dim, bound: Dim | None) -> None:
        """One name for `start + element`, so that a bound on the sum is not lost on its parts."""
        name = f"{element}@"
        low = self.extreme(start, up=False)
        high = self.extreme(start, up=True) if bound is None else bound - size
        if low is None or high is None:
            self._bind(element, ZERO, size - ONE)
            return
        self._bind(name, low, high + size - ONE)
        # `element` stands for the coordinate less its start, wherever an index has both.
        self.coordinates[element] = Dim.symbol(name) - start

    def _window(self, name: str, expr: Dim, extent: Dim) -> None:
        """Put the window's own value in place of one name that the expression counts once."""
        for symbol in sorted(expr.symbols, reverse=True):
            parts = expr.coefficient(symbol)
            if symbol.startswith("%") and symbol not in self.known and parts is not None and parts[0] == ONE:
                self._bind(name, ZERO, extent - ONE)
                self.known[symbol] = Dim.symbol(name) - parts[1]
                return

    def opened(self, expr: Dim) -> Dim | None:
        """The expression over coordinates, with division and remainder as names of their own; None if unknown."""
        expr = expr.substitute(self.coordinates).substitute(self.known)
        if expr.symbols & self.unknown:
            return None
        total = ZERO
        for monomial, coefficient in expr.terms:
            product = Dim.constant(coefficient)
            for atom in monomial:
                factor = self._factor(atom)
                if factor is None:
                    return None
                product = product * factor
            total = total + product
        return total

    def _factor(self, atom: Atom) -> Dim | None:
        whole = Dim((((atom,), 1),))
        names = {known.name for known in self.ranges}
        if atom.kind == "symbol" or not (whole.symbols & names):
            return whole
        first, second = (self.opened(arg) for arg in atom.args)
        if first is None or second is None or atom.kind not in ("floordiv", "mod"):
            return None
        name = f"%a{len(self.ranges)}"
        low, high = self.extreme(first, up=False), self.extreme(first, up=True)
        if atom.kind == "mod":
            self._bind(name, ZERO, second - ONE)
        elif low is None or high is None or not self.is_not_negative(low):
            return None
        else:
            is_whole = ((high + ONE) % second).value == 0
            self._bind(name, ZERO, (high + ONE) // second - ONE if is_whole else high // second)
        return Dim.symbol(name)

    def extreme(self, expr: Dim, *, up: bool) -> Dim | None:
        """The largest or smallest value over all variables; None where the expression is not linear in one."""
        for known in reversed(self.ranges):
            expr = _relaxed(expr, up=up)
            if known.name not in expr.symbols:
                continue
            parts = expr.coefficient(known.name)
            if parts is None:
                return None
            factor, rest = parts
            if self.is_not_negative(factor):
                end = known.high if up else known.low
            elif self.is_not_negative(-factor):
                end = known.low if up else known.high
            else:
                return None
            expr = factor * end + rest
        return expr

    def is_not_negative(self, expr: Dim) -> bool:
        """Whether an expression is at least 0: no term is negative, once sizes count from the least they can be."""
        return self._is_natural(expr.substitute({name: Dim.symbol(name) + ONE for name in self.positive}))

    def _is_natural(self, expr: Dim) -> bool:
        return all(
            coefficient >= 0 and all(self._is_natural_atom(atom) for atom in monomial)
            for monomial, coefficient in expr.terms
        )

    def _is_natural_atom(self, atom: Atom) -> bool:
        if atom.kind == "symbol":
            # Sizes are natural numbers; our own names are where their range says so.
            return not atom.name.startswith("%") or atom.name in self.natural
        return all(self._is_natural(arg) for arg in atom.args)


def _relaxed(expr: Dim, *, up: bool) -> Dim:
    """The expression with `min` (going up; `max` going down) replaced by one side of it, best by one of sizes alone."""
    kind = "min" if up else "max"
    for monomial, coefficient in expr.terms:
        if coefficient > 0 and len(monomial) == 1 and monomial[0].kind == kind:
            sides = sorted(monomial[0].args, key=lambda side: any(name.startswith("%") for name in side.symbols))
            return _relaxed(expr - Dim(((monomial, coefficient),)) + sides[0] * coefficient, up=up)
    return expr
