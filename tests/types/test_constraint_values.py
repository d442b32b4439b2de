"""Arithmetic of what is known of an integer: never too little, and intervals no wider than they have to be."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.types.constraint_store import (
    BIG,
    Value,
    exactly,
    intersect_classes,
    min_or_max,
    plus,
    quotient,
    remainder,
    scale,
    solve_class,
    times,
)

Arithmetic = Callable[[Value, Value], Value]
Plain = Callable[[int, int], int]
EXACT: dict[str, tuple[Arithmetic, Plain]] = {
    "plus": (plus, operator.add),
    "times": (times, operator.mul),
    "min": (lambda a, b: min_or_max("min", a, b), min),
    "max": (lambda a, b: min_or_max("max", a, b), max),
}
"""Whose intervals are those of all results, where operands have no residue class."""
OPERATIONS: dict[str, tuple[Arithmetic, Plain]] = {
    **EXACT,
    "quotient": (quotient, lambda x, y: 0 if y == 0 else x // y),
    "remainder": (remainder, lambda x, y: 0 if y == 0 else x % y),
}


def members(value: Value) -> list[int]:
    return [x for x in range(value.low, value.high + 1) if x % value.modulus == value.residue]


@st.composite
def values(draw: st.DrawFn) -> Value:
    """A few numbers around zero, some of them of one class."""
    low = draw(st.integers(-9, 9))
    high = low + draw(st.integers(0, 8))
    modulus = draw(st.sampled_from([1, 1, 2, 3, 4]))
    return Value(low, high, modulus, draw(st.integers(0, modulus - 1)), draw(st.sampled_from([0, 1, 2])))


@pytest.mark.parametrize("name", OPERATIONS)
@given(a=values(), b=values())
def test_every_result_is_a_member(name: str, a: Value, b: Value) -> None:
    operation, plain = OPERATIONS[name]
    found = operation(a, b)
    assert found.why & ~(a.why | b.why) == 0
    for x, y in product(members(a), members(b)):
        result = plain(x, y)
        assert found.low <= result <= found.high, (x, y)
        assert result % found.modulus == found.residue, (x, y)


@pytest.mark.parametrize("name", EXACT)
def test_intervals_are_no_wider_than_results(name: str) -> None:
    operation, plain = EXACT[name]
    ends = [(low, high) for low in range(-3, 4) for high in range(low, 4)]
    for (low, high), (start, end) in product(ends, ends):
        found = operation(Value(low, high), Value(start, end))
        results = [plain(x, y) for x in range(low, high + 1) for y in range(start, end + 1)]
        assert (found.low, found.high) == (min(results), max(results)), (low, high, start, end)


@pytest.mark.parametrize("name", ["quotient", "remainder"])
def test_what_is_divided_by_one_positive_number_is_known_exactly(name: str) -> None:
    operation, plain = OPERATIONS[name]
    for low, by in product(range(12), range(1, 6)):
        found = operation(exactly(low), exactly(by))
        assert (found.low, found.high) == (plain(low, by), plain(low, by))


def test_what_has_no_end_has_none_behind_arithmetic() -> None:
    many = Value(0, BIG)
    assert plus(many, exactly(3))[:2] == (3, BIG)
    assert plus(Value(-BIG, 5), many)[:2] == (-BIG, BIG)
    assert times(many, exactly(2))[:2] == (0, BIG)
    assert times(Value(1, BIG), exactly(-1))[:2] == (-BIG, -1)
    assert scale(Value(2, 5), 1) == Value(2, 5)
    assert scale(Value(2, 5), -3)[:2] == (-15, -6)


@given(st.integers(1, 12), st.integers(0, 11), st.integers(1, 12), st.integers(0, 11))
def test_two_classes_meet_in_one(modulus: int, residue: int, other: int, rest: int) -> None:
    both = [x for x in range(144) if x % modulus == residue % modulus and x % other == rest % other]
    found = intersect_classes(modulus, residue % modulus, other, rest % other)
    assert (found is None) == (not both)
    if found is not None:
        assert both == [x for x in range(144) if x % found[0] == found[1]]


@given(st.integers(1, 12), st.integers(-20, 20), st.integers(1, 12))
def test_solutions_of_a_factor_are_one_class(factor: int, target: int, modulus: int) -> None:
    some = [x for x in range(144) if (factor * x - target) % modulus == 0]
    found = solve_class(factor, target, modulus)
    assert (found is None) == (not some)
    if found is not None:
        assert some == [x for x in range(144) if x % found[0] == found[1] % found[0]]


def test_a_divisor_that_may_be_zero_still_bounds_a_quotient() -> None:
    found = quotient(Value(0, 9), Value(0, 3))
    assert (found.low, found.high) == (0, 9)
    found = remainder(Value(0, 9), Value(0, 3))
    assert found.low == 0
    assert found.high <= 9
