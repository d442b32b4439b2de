"""Intervals of values against dense samples: sound everywhere, tight where ends are finite, NaN where it can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tessera.ir.base import interval as rules
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.interval import INF, Interval, IntervalQuery, IntervalRule, point
from tessera.types.dtype import ALL, DType, bf16, bool_, f8e4m3, f16, f32, f64, i8, i32, u8
from tessera.types.shape import TensorType

ENDS = (-INF, -3.0, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, INF)
INTERVALS = [(low, high) for low in ENDS for high in ENDS if low <= high and math.isfinite(low + high)]
ENDLESS = [(low, high) for low in ENDS for high in ENDS if low <= high and (low, high) not in INTERVALS]
SCALAR = TensorType.of((), f64)

UNARY: dict[str, tuple[IntervalRule, Callable[[Any], Any]]] = {
    "absolute": (rules.ABSOLUTE, np.abs),
    "reciprocal": (rules.RECIPROCAL, lambda x: 1 / x),
    "rsqrt": (rules.RSQRT, lambda x: 1 / np.sqrt(x)),
    "square": (IntervalRule(lambda query: rules.square(query.x)), lambda x: x * x),
    "negate": (rules.monotone(lambda x: -x, falls=True), np.negative),
    "exp": (rules.monotone(math.exp), np.exp),
    "log": (rules.rising_from(0.0, -INF, math.log), np.log),
    "log1p": (rules.rising_from(-1.0, -INF, math.log1p), np.log1p),
    "sqrt": (rules.rising_from(0.0, 0.0, math.sqrt), np.sqrt),
    "logistic": (rules.monotone(rules.logistic), lambda x: 1 / (1 + np.exp(-x))),
    "softplus": (rules.monotone(rules.softplus), lambda x: np.logaddexp(x, 0)),
    "same": (rules.SAME, lambda x: x),
}
BINARY: dict[str, tuple[IntervalRule, Callable[[Any, Any], Any]]] = {
    "add": (rules.ADD, np.add),
    "subtract": (rules.SUBTRACT, np.subtract),
    "multiply": (rules.MULTIPLY, np.multiply),
    "divide": (rules.DIVIDE, np.divide),
    "maximum": (rules.MAXIMUM, np.maximum),
    "minimum": (rules.MINIMUM, np.minimum),
}


def elements(low: float, high: float) -> Any:
    """Its ends, numbers between them, zeros of both signs where it has them, and huge ones where it has no end."""
    finite = np.linspace(max(low, -1e30), min(high, 1e30), 9) if low < INF and high > -INF else ()
    near = [value for value in (-1e30, -1.0, -0.0, 0.0, 1.0, 1e30, 1e-30, -1e-30) if low <= value <= high]
    return np.array([low, high, *finite, *near])


def ask(rule: IntervalRule, *operands: Interval, is_rounded: bool = False, **named: Any) -> Interval:
    query = IntervalQuery(operands, (SCALAR,) * len(operands), {}, SCALAR, **named)
    assert rule.rule is not None
    return rule.result(query) if is_rounded else rule.rule(query)


def check(rule: IntervalRule, operands: list[Interval], values: Any, is_tight: bool) -> None:
    """All values lie in what the rule says, which is no wider than they are where it `is_tight`."""
    found = ask(rule, *operands, is_rounded=True)
    numbers = values[~np.isnan(values)]
    text = f"{operands}: {found}, values in {values.min()}..{values.max()}"
    assert found.may_be_nan or len(numbers) == len(values), text
    if len(numbers):
        assert found.low <= numbers.min(), text
        assert numbers.max() <= found.high, text
    if is_tight:
        exact = ask(rule, *operands)
        assert exact.may_be_nan is found.may_be_nan is (len(numbers) < len(values)), text
        if len(numbers):
            assert (exact.low, exact.high) == pytest.approx((numbers.min(), numbers.max()), rel=1e-14), text


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_are_sound_and_tight(name: str) -> None:
    rule, function = UNARY[name]
    for low, high in [*INTERVALS, *ENDLESS]:
        with np.errstate(all="ignore"):
            values = function(elements(low, high))
        # Below its domain nothing is a number, and a rule may say any.
        is_tight = (low, high) in INTERVALS and not (name == "rsqrt" and low < 0)
        check(rule, [Interval(low, high)], values, is_tight)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_are_sound_and_tight(name: str) -> None:
    rule, function = BINARY[name]
    for (x, y), is_finite in [(pair, True) for pair in product(INTERVALS, INTERVALS)] + [
        (pair, False) for pair in product(ENDLESS, [*INTERVALS, *ENDLESS])
    ]:
        for first, second in ((x, y), (y, x)):
            with np.errstate(all="ignore"):
                values = function.outer(elements(*first), elements(*second)).ravel()  # type: ignore[attr-defined]
            has_zero = second[0] <= 0 <= second[1]
            is_tight = is_finite and not (name == "divide" and has_zero)
            check(rule, [Interval(*first), Interval(*second)], values, is_tight)
            if is_finite and name == "divide" and has_zero:
                found = ask(rule, Interval(*first), Interval(*second))
                assert (found.low, found.high) == (-INF, INF)
                assert found.may_be_nan is (first[0] <= 0 <= first[1])


def test_powers_are_sound_and_squares_tight() -> None:
    for x, y in product([*INTERVALS, *ENDLESS], [*INTERVALS, *ENDLESS]):
        with np.errstate(all="ignore"):
            values = np.power.outer(elements(*x), elements(*y)).ravel()
        check(rules.POWER, [Interval(*x), Interval(*y)], values, False)
    assert ask(rules.POWER, Interval(-3, 2), point(2.0)) == Interval(0.0, 9.0)
    assert ask(rules.POWER, Interval(-3, 2), Interval(2.0, 3.0)).may_be_nan
    assert ask(rules.POWER, Interval(-3, 2), Interval(1.0, 2.0)).may_be_nan
    assert ask(rules.POWER, Interval(0, 2), Interval(0, 3)) == Interval(0.0, 8.0)
    assert ask(rules.POWER, Interval(0, 0.5), Interval(0, 3)) == Interval(0.0, 1.0)
    assert ask(rules.POWER, Interval(0, 1e300), Interval(0, 3)) == Interval(0.0, INF)
    for x, y in (((-1, 2), (0, 3)), ((0, 2), (-1, 3)), ((0, INF), (0, 3)), ((0, 2), (0, INF))):
        assert ask(rules.POWER, Interval(*x), Interval(*y)) == Interval(-INF, INF, may_be_nan=True)


NAN = Interval(1.0, 2.0, may_be_nan=True, is_reached=True, sources=frozenset({1}))
PLAIN = Interval(1.0, 2.0, is_reached=True, sources=frozenset({2}))
OTHERS = (rules.POWER, rules.HULL, IntervalRule(None), rules.always_within(0.0, 1.0))
INVERTED = Interval(-2.0, 2.0, is_reached=True, sources=frozenset({4}))


def test_nan_and_sources_come_from_every_operand() -> None:
    for rule in (*(rule for rule, _ in BINARY.values()), *OTHERS):
        for x, y in ((NAN, PLAIN), (PLAIN, NAN), (NAN, INVERTED), (INVERTED, NAN)):
            found = rule.result(IntervalQuery((x, y), (SCALAR, SCALAR), {}, SCALAR))
            assert found.may_be_nan
            assert found.sources == x.sources | y.sources
        if rule.rule is not None:
            assert not ask(rule, PLAIN, PLAIN).may_be_nan
            for x in (PLAIN, INVERTED, replace(INVERTED, low=-INF, high=INF)):
                assert ask(rule, x, replace(x, sources=frozenset({5}))).sources == {5, *x.sources}
                assert ask(rule, x, replace(INVERTED, sources=frozenset({6}))).sources == {6, *x.sources}
    for rule in (*(rule for rule, _ in UNARY.values()), rules.gate(-0.5), rules.WITH_ZERO):
        assert ask(rule, NAN).may_be_nan
        assert not ask(rule, PLAIN).may_be_nan
        assert ask(rule, PLAIN).sources == {2}
        assert ask(rule, INVERTED).sources == {4}


def test_ends_are_reached_by_operands_that_nothing_ties_together() -> None:
    apart = Interval(1.0, 2.0, is_reached=True, sources=frozenset({7}))
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        rule, _ = BINARY[name]
        assert ask(rule, PLAIN, apart).is_reached
        assert not ask(rule, PLAIN, PLAIN).is_reached
        assert not ask(rule, PLAIN, apart.without_reach()).is_reached
        assert not ask(rule, PLAIN.without_reach(), apart).is_reached
    assert not ask(rules.POWER, PLAIN, apart).is_reached
    assert not PLAIN.hull(apart).is_reached
    assert all(ask(rule, PLAIN).is_reached for rule, _ in UNARY.values())


def test_a_product_with_itself_is_a_square() -> None:
    assert ask(rules.MULTIPLY, Interval(-3, 2), Interval(-3, 2), is_repeated=True) == Interval(0.0, 9.0)
    assert ask(rules.MULTIPLY, Interval(-3, 2), Interval(-3, 2)) == Interval(-6.0, 9.0)


def test_what_is_computed_from_infinities_may_be_nan() -> None:
    endless, finite, spanning = Interval(1.0, INF), Interval(1.0, 2.0), Interval(-1.0, 2.0)
    for x, y, is_nan in ((endless, endless, True), (endless, spanning, True), (endless, finite, False)):
        assert ask(rules.ADD, x, y, is_rounded=True).may_be_nan is is_nan
        assert ask(rules.MULTIPLY, y, x, is_rounded=True).may_be_nan is is_nan
    for zero in ((0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)):
        assert ask(rules.MAXIMUM, endless, Interval(*zero), is_rounded=True).may_be_nan
    assert not ask(rules.SAME, Interval(-INF, INF), is_rounded=True).may_be_nan
    assert ask(rules.always_within(0.0, 1.0), endless).may_be_nan
    assert ask(rules.always_within(0.0, 1.0), finite) == Interval(0.0, 1.0)


def test_a_gate_is_a_little_below_zero_and_never_above_its_operand() -> None:
    rule = rules.gate(-0.5)
    for low, high, expected in (
        (-4.0, 3.0, (-0.5, 3.0)),
        (-0.25, 3.0, (-0.25, 3.0)),
        (1.0, 3.0, (0.0, 3.0)),
        (-4.0, -1.0, (-0.5, 0.0)),
        (-4.0, INF, (-0.5, INF)),
    ):
        found = ask(rule, Interval(low, high, is_reached=True))
        assert (found.low, found.high, found.may_be_nan, found.is_reached) == (*expected, False, False)
    assert ask(rule, Interval(-INF, 3.0)).may_be_nan


def test_elements_of_several_and_of_one_and_zero() -> None:
    found = ask(rules.HULL, Interval(1, 2), Interval(-1, 0), Interval(5, 6, may_be_nan=True))
    assert found == Interval(-1, 6, may_be_nan=True)
    assert ask(rules.HULL, Interval(5, 6, may_be_nan=True), Interval(1, 2)) == Interval(1, 6, may_be_nan=True)
    assert ask(rules.WITH_ZERO, Interval(1, 2)) == Interval(0, 2)
    assert ask(rules.WITH_ZERO, Interval(-2, -1)) == Interval(-2, 0)


def test_numbers_magnitudes_and_bounds() -> None:
    assert point(3.0) == Interval(3.0, 3.0, is_reached=True)
    assert point(math.nan) == rules.UNKNOWN
    assert (Interval(-3, 2).magnitude, Interval(-1, 2).magnitude) == (3, 2)
    assert Interval(1, 2).is_within(1, 2)
    assert not Interval(1, 2).is_within(1.5, 2)
    assert not Interval(1, 2).is_within(1, 1.5)
    assert not NAN.is_within(0, 5)
    assert (str(NAN), str(PLAIN)) == ("[1, 2] or NaN", "[1, 2]")


@pytest.mark.parametrize("dtype", [f32, f16, bf16, f64], ids=str)
def test_sums_of_a_known_count_are_sound_and_grow_by_their_roundings_alone(dtype: DType) -> None:
    for low, high in [*INTERVALS, *ENDLESS]:
        for count in (1.0, 2.0, 3.0, 1000.0):
            found = rules.total_of(Interval(low, high, is_reached=True, sources=frozenset({3})), count, dtype)
            assert found.low <= count * low
            assert count * high <= found.high
            slack = 2 * count * dtype.compute.epsilon
            assert found.low >= count * low - abs(count * low) * slack if math.isfinite(low) else True
            assert found.high <= count * high + abs(count * high) * slack if math.isfinite(high) else True
            assert found.may_be_nan is (low == -INF and high == INF)
            assert (found.is_reached, found.sources) == (True, {3})
        assert rules.total_of(Interval(low, high), 0.0, dtype) == Interval(0.0, 0.0)
        endless = rules.total_of(Interval(low, high), INF, dtype)
        assert (endless.low, endless.high) == (-INF if low < 0 else 0.0, INF if high > 0 else 0.0)
        assert endless.may_be_nan is (low < 0 < high)
        assert rules.total_of(Interval(low, high, may_be_nan=True), 1.0, dtype).may_be_nan


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype.is_float], ids=str)
def test_ends_move_outward_by_a_rounding_and_never_past_the_largest(dtype: DType) -> None:
    largest = rules.largest_of(dtype)
    assert rules.range_of(dtype) == Interval(-largest, largest, is_reached=True)
    for value in (0.0, 1e-45, 1e-30, 0.3, 1.0, largest * 0.9, largest * (1 - dtype.epsilon), largest):
        found = rules.round_outward(Interval(-value, value, is_reached=True), dtype)
        assert found.low == -found.high
        assert found.is_reached
        assert value <= found.high <= min(largest, value * (1 + 5 * dtype.epsilon) + rules.smallest_of(dtype))
        assert (found.high > value) is (0 < value < largest)
        above = rules.round_outward(Interval(value, 2 * largest), dtype)
        assert above.low <= value
        assert above.low >= value * (1 - 5 * dtype.epsilon) - rules.smallest_of(dtype)
        assert above.high == INF
    tiny = rules.round_outward(Interval(1e-60, 1e-60), dtype)
    assert (tiny.low, tiny.high) == pytest.approx((-rules.smallest_of(dtype), rules.smallest_of(dtype)), abs=1e-59)
    assert rules.round_outward(Interval(-INF, INF), dtype) == Interval(-INF, INF)
    assert rules.round_outward(Interval(-2 * largest, -1.5 * largest), dtype).low == -INF


@pytest.mark.parametrize("dtype", [f32, f16, bf16, f8e4m3], ids=str)
def test_what_lies_beyond_the_largest_may_round_to_it_and_no_further(dtype: DType) -> None:
    largest = rules.largest_of(dtype)
    just = largest / (1 - 4 * dtype.epsilon)
    for beyond in np.nextafter(just, INF) + np.spacing(just) * np.arange(-9, 9):
        found = rules.round_outward(Interval(float(beyond), float(beyond)), dtype)
        moved = float(beyond) - (float(beyond) * 4 * dtype.epsilon + rules.smallest_of(dtype))
        assert (found.low, found.high) == (moved if moved <= largest else INF, INF)


@pytest.mark.parametrize("dtype", [f16, bf16, f8e4m3], ids=str)
def test_numbers_are_rounded_to_what_their_interval_holds(dtype: DType) -> None:
    """Of every size, down to the least that the dtype has, where spacing is no longer relative."""
    for exponent in np.linspace(math.log(rules.smallest_of(dtype) / 4), math.log(rules.largest_of(dtype)), 200):
        value = math.exp(exponent)
        found, rounded = rules.round_outward(point(value), dtype), float(np.array(value, numpy_dtype(dtype)))
        assert found.low <= rounded <= found.high


def test_integers_are_not_rounded_and_have_their_own_ranges() -> None:
    assert rules.round_outward(Interval(-1.5, 7.25), i32) == Interval(-1.5, 7.25)
    for dtype, low, high in ((i8, -128.0, 127.0), (u8, 0.0, 255.0), (bool_, 0.0, 1.0)):
        assert rules.range_of(dtype) == Interval(low, high, is_reached=True)
    assert (rules.smallest_of(f8e4m3), rules.smallest_of(f16), rules.smallest_of(f64)) == (2**-9, 2**-24, 5e-324)
    assert (rules.largest_of(f8e4m3), rules.largest_of(f16), rules.largest_of(f64)) == (448, 65504, np.finfo("f8").max)


def test_where_nothing_is_known_a_result_is_in_the_range_of_its_dtype() -> None:
    for dtype, expected in ((f32, (-INF, INF, True)), (i8, (-128.0, 127.0, False))):
        found = rules.ANYTHING.result(IntervalQuery((PLAIN,), (SCALAR,), {}, TensorType.of((), dtype)))
        assert (found.low, found.high, found.may_be_nan) == expected


def test_what_is_exact_is_not_rounded() -> None:
    for is_exact in (True, False):
        found = ask(rules.monotone(lambda x: x, is_exact=is_exact), PLAIN, is_rounded=True)
        assert (found == PLAIN) is is_exact
    assert ask(rules.monotone(math.exp), Interval(1.0, 1e4)).high == INF


def test_elements_that_axes_span() -> None:
    query = IntervalQuery((PLAIN,), (TensorType.of((3, 4, 5), f32),), {}, SCALAR)
    assert (query.count((0,)), query.count((1, 2)), query.count(())) == (3.0, 20.0, 1.0)
    assert IntervalQuery((PLAIN,), (TensorType.of((3, "N"), f32),), {}, SCALAR).count((0, 1)) == INF
