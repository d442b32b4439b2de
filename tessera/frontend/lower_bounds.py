"""Dims under lower bounds of their symbols: which `min` and `max` they decide, and which dim they make 1."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.shape import is_at_least


def resolved(dim: Dim, at_least: Mapping[str, int]) -> Dim:
    """The dim without those `min` and `max` that are decided where symbols are at least so large.

    >>> n = Dim.symbol("N")
    >>> str(resolved(minimum(n, 4) + maximum(n - 1, 0), {"N": 4}))
    'N + 3'
    """
    if dim.symbols.isdisjoint(at_least):
        return dim
    total = Dim.constant(0)
    for monomial, count in dim.terms:
        part = Dim.constant(count)
        for atom in monomial:
            part = part * _resolved_atom(atom, at_least)
        total = total + part
    return total


def _resolved_atom(atom: Atom, at_least: Mapping[str, int]) -> Dim:
    if atom.kind == "symbol":
        return Dim.symbol(atom.name)
    left, right = (resolved(part, at_least) for part in atom.args)
    if atom.kind in ("min", "max"):
        # Symbols are 0 and up, so those of the shifted difference stand for what is above the bounds.
        gap = (left - right).substitute({name: Dim.symbol(name) + least for name, least in at_least.items()})
        if is_at_least(gap, 0):
            return right if atom.kind == "min" else left
        if is_at_least(-gap, 0):
            return left if atom.kind == "min" else right
        return minimum(left, right) if atom.kind == "min" else maximum(left, right)
    return left // right if atom.kind == "floordiv" else left % right


_LARGE = (1_000_003, 2_000_029)


def one_from(dim: Dim) -> tuple[str, int] | None:
    """The symbol and the least value of it from which on a dim is 1; None where there is none.

    >>> one_from(minimum(Dim.symbol("N"), 1))
    ('N', 1)
    """
    if len(dim.symbols) != 1:
        return None
    (symbol,) = dim.symbols
    if any(dim.evaluate({symbol: value}) != 1 for value in _LARGE):
        return None
    for least in sorted({1, *(value for number in _numbers(dim) for value in (number, number + 1) if value > 1)}):
        if resolved(dim, {symbol: least}).value == 1:
            return symbol, least
    return None


def _numbers(dim: Dim) -> set[int]:
    """Every number that stands in a dim, without its sign."""
    found = {abs(count) for _, count in dim.terms}
    for monomial, _ in dim.terms:
        for atom in monomial:
            found |= {number for part in atom.args for number in _numbers(part)}
    return found
