"""How far an index of a kernel goes: its largest value over the sizes, by which guards are left out."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.types.dim import Atom, Dim
from tessera.types.shape import is_at_least


def largest(expr: Dim, tops: Mapping[str, Dim | None]) -> Dim | None:
    """The largest value of an expression, where `tops` has that of each index; None where it is not known.

    An expression that falls as an index grows, or goes up and down, is not known.
    """
    known = {name: top for name, top in tops.items() if name in expr.symbols and top is not None}
    if len(known) < len(expr.symbols & tops.keys()) or not _grows(expr, known):
        return None
    return expr.substitute(known)


def _grows(expr: Dim, names: Mapping[str, Dim]) -> bool:
    """Whether an expression does not fall when one of the names grows; sizes and indices are not negative."""
    return all(
        not _meets(atom, names) or (coefficient > 0 and _atom_grows(atom, names))
        for monomial, coefficient in expr.terms
        for atom in monomial
    )


def _meets(atom: Atom, names: Mapping[str, Dim]) -> bool:
    return bool(Dim((((atom,), 1),)).symbols & names.keys())


def _atom_grows(atom: Atom, names: Mapping[str, Dim]) -> bool:
    if atom.kind == "symbol":
        return True
    first, second = atom.args
    if atom.kind == "floordiv":
        return (second.value or 0) > 0 and _grows(first, names)
    return atom.kind in ("min", "max") and _grows(first, names) and _grows(second, names)


def fits(top: Dim, size: int, bound: Dim) -> bool:
    """Whether `size` elements from `top` end below the bound, for all sizes."""
    return is_at_least(bound - top - size, 0)


def is_multiple(dim: Dim, size: int) -> bool:
    """Whether a dim is a multiple of a number for all sizes; False means not proven."""
    return all(
        coefficient % size == 0 or any(_is_multiple_atom(atom, size) for atom in monomial)
        for monomial, coefficient in dim.terms
    )


def _is_multiple_atom(atom: Atom, size: int) -> bool:
    return atom.kind in ("min", "max") and all(is_multiple(arg, size) for arg in atom.args)
