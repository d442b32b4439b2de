"""Random systems of constraints over small sizes, and what trying all sizes says of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tessera.types.constraint import Constraint

NAMES: tuple[str, ...] = ("a", "b", "c")
HIGHEST = 6


@dataclass(frozen=True)
class System:
    """Rules over a few names, most of them in a small range, and a question."""

    rules: tuple[Constraint, ...]
    question: Constraint

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.rules))} ? {self.question}"

    def solutions(self) -> Iterator[dict[str, int]]:
        """All sizes up to `HIGHEST` that satisfy the rules."""
        for values in product(range(HIGHEST + 1), repeat=len(NAMES)):
            sizes = dict(zip(NAMES, values, strict=True))
            if all(rule.holds(sizes) for rule in self.rules):
                yield sizes


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
    if kind in ("//", "%") and chosen.random() < 0.7:
        second = str(chosen.randrange(1, 6))
    return f"({first}) {kind} ({second})"
