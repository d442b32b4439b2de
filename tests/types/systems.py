"""Random systems of constraints over small sizes, and what trying all sizes says of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tessera.types.constraint import Constraint
from tessera.types.dim import Atom, Dim

NAMES: tuple[str, ...] = ("a", "b", "c")
HIGHEST = 6
GRID: Any = np.array(list(product(range(HIGHEST + 1), repeat=len(NAMES))), np.int64)
"""Every choice of sizes, one a row."""


@dataclass(frozen=True)
class System:
    """Rules over a few names, most of them in a small range, and a question."""

    rules: tuple[Constraint, ...]
    question: Constraint

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.rules))} ? {self.question}"

    def solutions(self) -> list[dict[str, int]]:
        """All sizes up to `HIGHEST` that satisfy the rules."""
        kept = np.logical_and.reduce([holds(rule) for rule in self.rules])
        return [dict(zip(NAMES, point, strict=True)) for point in GRID[kept].tolist()]

    def answers(self) -> list[bool]:
        """Whether the question holds, for each of the solutions."""
        kept = np.logical_and.reduce([holds(rule) for rule in self.rules])
        return holds(self.question)[kept].tolist()


def holds(constraint: Constraint) -> Any:
    """Where a constraint holds, at all points of the grid together; defined here a second time, independently of it."""
    found: Any = np.ones(len(GRID), bool)
    for kind, gap in constraint.goals():
        value = _evaluated(gap)
        found &= value >= 0 if kind == "ge" else value == 0 if kind == "eq" else value != 0
    return found


def _evaluated(dim: Dim) -> Any:
    total: Any = np.zeros(len(GRID), np.int64)
    for monomial, coefficient in dim.terms:
        total = total + coefficient * reduce(np.multiply, map(_atom, monomial), np.int64(1))
    return total


def _atom(atom: Atom) -> Any:
    if atom.kind == "symbol":
        return GRID[:, NAMES.index(atom.name)]
    first, second = map(_evaluated, atom.args)
    if atom.kind in ("max", "min"):
        return (np.maximum if atom.kind == "max" else np.minimum)(first, second)
    divide = np.floor_divide if atom.kind == "floordiv" else np.remainder
    # Tessera's rule: what is divided by zero is zero.
    return np.where(second == 0, 0, divide(first, np.where(second == 0, 1, second)))


def random_system(seed: int) -> System:
    """The system of a seed, the same on every machine."""
    chosen = random.Random(seed)
    ranges = [Constraint.parse(_range(chosen, name), None) for name in NAMES if chosen.random() < 0.7]
    rules = [Constraint.parse(_constraint(chosen), None) for _ in range(chosen.choice((1, 1, 2, 2, 3, 5)))]
    rules = [*ranges, *rules]
    chosen.shuffle(rules)
    return System(tuple(rules), Constraint.parse(_constraint(chosen), None))


def _range(chosen: random.Random, name: str) -> str:
    low = chosen.choice((0, 0, 0, 1, 2))
    return f"{name} in {low}..={chosen.choice((HIGHEST, HIGHEST, chosen.randrange(low, HIGHEST + 1)))}"


def _constraint(chosen: random.Random) -> str:
    left = _expression(chosen, 2)
    kind = chosen.randrange(6)
    if kind == 0:
        modulus = chosen.randrange(2, 7)
        return f"({left}) % {modulus} == {chosen.randrange(modulus) if chosen.random() < 0.5 else 0}"
    if kind == 1:
        low = chosen.randrange(8)
        return f"{left} in {low}..={low + chosen.randrange(8)}"
    relation = chosen.choice(("==", "==", "=", "!=", "<=", "<", ">=", ">"))
    right = str(chosen.randrange(13)) if chosen.random() < 0.4 else _expression(chosen, 1)
    return f"{left} {relation} {right}"


def _expression(chosen: random.Random, depth: int) -> str:
    if depth == 0 or chosen.random() < 0.3:
        return chosen.choice(NAMES) if chosen.random() < 0.8 else str(chosen.randrange(6))
    first, second = _expression(chosen, depth - 1), _expression(chosen, depth - 1)
    kind = chosen.choice(("+", "+", "-", "*", "*", "//", "%", "max", "min"))
    if kind in ("max", "min"):
        return f"{kind}({first}, {second})"
    if kind in ("//", "%") and (chosen.random() < 0.7 or Dim.of(second).value == 0):  # no text may divide by 0
        second = str(chosen.randrange(1, 6))
    return f"({first}) {kind} ({second})"
