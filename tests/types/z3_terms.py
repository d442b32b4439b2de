"""Dims as terms of z3, for tests that ask it for a second opinion."""

from __future__ import annotations

from functools import reduce
from typing import Any

from tessera.types.constraint import Constraint
from tessera.types.dim import Atom, Dim


def formula(z3: Any, constraint: Constraint) -> Any:
    """The constraint as one formula."""
    parts: list[Any] = []
    for kind, gap in constraint.goals():
        value = term(z3, gap)
        parts.append(value >= 0 if kind == "ge" else value == 0 if kind == "eq" else value != 0)
    return z3.And(*parts)


def term(z3: Any, dim: Dim) -> Any:
    """The dim over integer variables of its names, with Tessera's rule that division by zero is zero."""
    total: Any = z3.IntVal(0)
    for monomial, coefficient in dim.terms:
        factors = [_atom(z3, atom) for atom in monomial]
        total = total + reduce(lambda a, b: a * b, factors, z3.IntVal(coefficient))
    return total


def _atom(z3: Any, atom: Atom) -> Any:
    if atom.kind == "symbol":
        return z3.Int(atom.name)
    first, second = (term(z3, arg) for arg in atom.args)
    if atom.kind in ("max", "min"):
        return z3.If(first >= second if atom.kind == "max" else first <= second, first, second)
    # z3 rounds so that the remainder is never negative, Python so that it has the sign of the divisor.
    quotient = z3.If(z3.Or(second > 0, first % second == 0), first / second, first / second - 1)
    whole = quotient if atom.kind == "floordiv" else first - second * quotient
    return z3.If(second == 0, 0, whole)
