"""What is known of one integer: an interval and a residue class, with arithmetic that never claims too much."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

BIG = 1 << 62
"""Bounds at or beyond it are no bounds: larger numbers would only make the solver slow."""
_LARGEST_MODULUS = 1 << 40


class ContradictionError(Exception):
    """Two facts exclude each other; `why` is the set of facts, a bit each."""

    def __init__(self, why: int) -> None:
        super().__init__("the constraints contradict each other")
        self.why = why


class Value(NamedTuple):
    """All `x` with `low <= x <= high` and `x % modulus == residue`; a modulus of 1 says nothing.

    `why` is the set of facts this rests on, a bit each.
    """

    low: int = -BIG
    high: int = BIG
    modulus: int = 1
    residue: int = 0
    why: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.low == self.high

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0 or self.residue % self.modulus != 0


def exactly(number: int, why: int = 0) -> Value:
    """One number; beyond the bounds of the domain it is only known by its residues."""
    if -BIG < number < BIG:
        return Value(number, number, 1, 0, why)
    low, high = (BIG - 1, BIG) if number > 0 else (-BIG, 1 - BIG)
    return Value(low, high, _LARGEST_MODULUS, number % _LARGEST_MODULUS, why)


def residue_class(value: Value) -> tuple[int, int]:
    """The modulus and residue; a fixed number is a class of modulus 0."""
    return (0, value.low) if value.low == value.high else (value.modulus, value.residue)


def _classed(low: int, high: int, modulus: int, residue: int, why: int) -> Value:
    """A value with its class in range; a class of modulus 0 is a number, which its interval may be too wide to say."""
    if modulus == 0:
        return exactly(residue, why)
    if modulus > _LARGEST_MODULUS:
        modulus = gcd(modulus, _LARGEST_MODULUS)
    return Value(max(-BIG, min(low, BIG - 1)), min(BIG, max(high, 1 - BIG)), modulus, residue % modulus, why)


def _bounded_product(x: int, y: int) -> int:
    """`x * y` of two bounds, where BIG stands for infinity."""
    return max(-BIG, min(BIG, x * y))


def plus(a: Value, b: Value) -> Value:
    """All sums."""
    low = -BIG if a.low <= -BIG or b.low <= -BIG else a.low + b.low
    high = BIG if a.high >= BIG or b.high >= BIG else a.high + b.high
    (first, one), (second, other) = residue_class(a), residue_class(b)
    return _classed(low, high, gcd(first, second), one + other, a.why | b.why)


def scaled(a: Value, factor: int) -> Value:
    """All multiples by one number."""
    return times(a, exactly(factor)) if factor != 1 else a


def times(a: Value, b: Value) -> Value:
    """All products."""
    if a.low >= 0 and b.low >= 0:
        low, high = a.low * b.low, min(BIG, a.high * b.high)
    else:
        corners = [_bounded_product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        low, high = min(corners), max(corners)
    (first, one), (second, other) = residue_class(a), residue_class(b)
    modulus = gcd(first * second, first * other, second * one)
    return _classed(low, high, modulus, one * other, a.why | b.why)


def quotient(a: Value, b: Value) -> Value:
    """All `x // y`, which is 0 for a `y` of 0."""
    why = a.why | b.why
    if b.is_fixed and b.low == 0:
        return exactly(0, why)
    if b.low < 0:
        return Value(why=why)
    if a.low >= 0 and b.low >= 1 and a.high < b.low:
        return exactly(0, why)
    # A divisor of at least 1 moves every number towards zero, and one of 0 gives 0.
    least, most = max(b.low, 1), max(b.high, 1)
    low = a.low if a.low <= -BIG else a.low // (most if a.low >= 0 and most < BIG else least)
    if a.low >= 0 and most >= BIG:
        low = 0
    high = a.high if a.high >= BIG else (a.high // least if a.high >= 0 else -1)
    if b.low == 0:
        low, high = min(low, 0), max(high, 0)
    return Value(low, high, 1, 0, why)


def remainder(a: Value, b: Value) -> Value:
    """All `x % y`, which is 0 for a `y` of 0."""
    why = a.why | b.why
    if b.low < 0:
        return Value(why=why)
    if a.low >= 0 and b.low >= 1 and a.high < b.low:
        return a._replace(why=why)
    high = BIG if b.high >= BIG else max(0, b.high - 1)
    if a.low >= 0:
        high = min(high, a.high)
    if not b.is_fixed:
        # x % y differs from x by a multiple of y, so it keeps the class of both.
        modulus = gcd(residue_class(a)[0], residue_class(b)[0], residue_class(b)[1])
    else:
        modulus = gcd(residue_class(a)[0], b.low)
    modulus, residue = (modulus, residue_class(a)[1] % modulus) if modulus else (1, 0)
    if b.is_fixed and b.low and modulus == b.low:
        return exactly(residue, why)
    return Value(0, high, modulus, residue, why) if b.low >= 1 else Value(0, high, 1, 0, why)


def extreme(kind: str, a: Value, b: Value) -> Value:
    """All `max(x, y)` or `min(x, y)`."""
    choose = max if kind == "max" else min
    (first, one), (second, other) = residue_class(a), residue_class(b)
    modulus = gcd(first, second, one - other)
    return _classed(choose(a.low, b.low), choose(a.high, b.high), modulus, one, a.why | b.why)


def applied(kind: str, a: Value, b: Value) -> Value:
    """An atom of a dim (`floordiv`, `mod`, `max`, `min`) on all values of its two arguments."""
    if kind == "floordiv":
        return quotient(a, b)
    return remainder(a, b) if kind == "mod" else extreme(kind, a, b)


def meet_classes(modulus: int, residue: int, other: int, rest: int) -> tuple[int, int] | None:
    """The class of numbers in both classes; None when there is none. A class too fine to keep leaves the first."""
    common = gcd(modulus, other)
    if (residue - rest) % common:
        return None
    step = other // common
    joined = modulus * step
    if joined > _LARGEST_MODULUS:
        return modulus, residue
    shift = (rest - residue) // common * pow(modulus // common, -1, step) % step if step > 1 else 0
    return joined, (residue + modulus * shift) % joined


def solve_class(factor: int, target: int, modulus: int) -> tuple[int, int] | None:
    """The class of `x` with `factor * x == target` modulo `modulus`; None when there is no such `x`."""
    common = gcd(factor, modulus)
    if target % common:
        return None
    step = abs(modulus // common)
    if step <= 1:
        return 1, 0
    return step, target // common * pow(factor // common, -1, step) % step
