"""What is kept for a backward part: a minimum cut, against all subsets of small programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.ir.graph.kept_values import USUAL, Value, choose_kept, estimate
from tessera.types.dim import Dim


def available(values: Mapping[int, Value], kept: Collection[int]) -> set[int]:
    """What can be had from some kept values; values come after what they are computed from."""
    found: set[int] = set()
    for number, value in values.items():
        if number in kept or (value.can_recompute and all(operand in found for operand in value.operands)):
            found.add(number)
    return found


def cheapest(values: Mapping[int, Value], needed: Collection[int]) -> float:
    subsets = (subset for size in range(len(values) + 1) for subset in combinations(values, size))
    prices = (sum(values[one].price for one in kept) for kept in subsets if available(values, kept) >= set(needed))
    return min(prices, default=inf)


@st.composite
def programs(draw: st.DrawFn) -> tuple[dict[int, Value], set[int]]:
    values: dict[int, Value] = {}
    for number in range(draw(st.integers(1, 8))):
        operands = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]()
        price = draw(st.sampled_from([0, 1, 2, 3, 5, inf]))
        values[number] = Value(price, tuple(sorted(operands)), draw(st.booleans()))
    return values, draw(st.sets(st.integers(0, len(values) - 1), max_size=3))


@given(programs())
@settings(max_examples=200, deadline=None)
def test_kept_values_are_enough_and_the_cheapest(program: tuple[dict[int, Value], set[int]]) -> None:
    values, needed = program
    best = cheapest(values, needed)
    if best == inf:
        with pytest.raises(ValueError, match="neither kept nor rematerialized"):
            choose_kept(values, needed)
        return
    kept = choose_kept(values, needed)
    assert available(values, kept) >= needed
    assert sum(values[one].price for one in kept) == best


def test_of_equal_cuts_the_one_is_taken_that_computes_least_again() -> None:
    chain = {0: Value(4), 1: Value(4, (0,), True), 2: Value(4, (1,), True)}
    assert choose_kept(chain, {2}) == {2}
    assert choose_kept({**chain, 1: Value(3, (0,), True)}, {2}) == {1}


def test_what_is_computed_from_nothing_takes_nothing_of_its_neighbours() -> None:
    """The fourth is free, as the second is; that the third is computed from the second too is no way to it."""
    values = {0: Value(5), 1: Value(5, (), True), 2: Value(3, (0, 1), True), 3: Value(5, (1,), True)}
    assert choose_kept(values, {2, 3}) == {2}


def test_dims_that_are_not_known_count_as_usual() -> None:
    assert [estimate(Dim.of(text)) for text in ("7", "N", "4*N*M + 1")] == [7, USUAL, 4 * USUAL * USUAL + 1]


def test_a_long_chain_takes_no_recursion() -> None:
    chain = {0: Value(1)} | {number: Value(2, (number - 1,), True) for number in range(1, 5000)}
    assert choose_kept(chain, {4999}) == {0}
