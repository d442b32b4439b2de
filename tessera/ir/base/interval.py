"""Interval arithmetic on values: in which range the elements of a tensor lie, and the rules that ops declare for it.

An op's `interval` facet is an `IntervalRule`: from the intervals of its operands to that of its result, computed in
f64. The walk over a program (`ir/graph/tape_analysis.py`) then moves the ends outward by the rounding of the result's
dtype, unless the rule `is_exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tessera.types.dim import product
from tessera.types.dtype import FORMATS, DType
from tessera.types.frozen import frozen
from tessera.types.promotion import integer_range
from tessera.types.shape import TensorType

INF = math.inf


@frozen
class Interval:
    """`low <= every element <= high`, or NaN where `may_be_nan`.

    `is_reached` says that inputs exist for which all elements are `low`, and others for which all are `high`; `sources`
    are the inputs it depends on. Two reached intervals of different sources combine to a reached one: nothing ties
    their elements together.
    """

    low: float
    high: float
    may_be_nan: bool = False
    is_reached: bool = False
    sources: frozenset[int] = frozenset()

    def __str__(self) -> str:
        nan = " or NaN" if self.may_be_nan else ""
        return f"[{self.low:.6g}, {self.high:.6g}]{nan}"

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def least(self) -> float:
        """The smallest absolute value."""
        return max(self.low, -self.high, 0.0)

    def is_within(self, low: float, high: float) -> bool:
        return not self.may_be_nan and low <= self.low and self.high <= high

    def hull(self, other: Interval) -> Interval:
        """Elements of both."""
        return Interval(
            min(self.low, other.low),
            max(self.high, other.high),
            self.may_be_nan or other.may_be_nan,
            False,
            self.sources | other.sources,
        )

    def without_reach(self) -> Interval:
        """The same, without the claim that all of it is reached."""
        return replace(self, is_reached=False)


UNKNOWN = Interval(-INF, INF, True)
"""Nothing is known."""


def point(value: float) -> Interval:
    """One number."""
    return UNKNOWN if math.isnan(value) else Interval(value, value, is_reached=True)


def range_of(dtype: DType) -> Interval:
    """All finite values of a dtype."""
    if not dtype.is_float:
        low, high = integer_range(dtype)
        return Interval(float(low), float(high), is_reached=True)
    largest = largest_of(dtype)
    return Interval(-largest, largest, is_reached=True)


def largest_of(dtype: DType) -> float:
    """The largest finite number of a float."""
    if dtype.name in FORMATS:
        return FORMATS[dtype.name].largest
    return (2.0 - 2.0**-52) * 2.0**1023


def smallest_of(dtype: DType) -> float:
    """The least number of a float above zero."""
    return FORMATS[dtype.name].smallest if dtype.name in FORMATS else 2.0**-1074


def combine(x: Interval, y: Interval, low: float, high: float) -> Interval:
    """An interval made from two; NaN ends (inf - inf, 0 * inf) stand for anything."""
    nan = x.may_be_nan or y.may_be_nan
    if math.isnan(low) or math.isnan(high):
        return Interval(-INF, INF, True, False, x.sources | y.sources)
    reached = x.is_reached and y.is_reached and not (x.sources & y.sources)
    return Interval(low, high, nan, reached, x.sources | y.sources)


def multiply(x: Interval, y: Interval) -> Interval:
    """All products of two elements."""
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    if any(math.isnan(corner) for corner in corners):
        return combine(x, y, math.nan, math.nan)
    return combine(x, y, min(corners), max(corners))


def square(x: Interval) -> Interval:
    """All squares of an element: unlike the product with itself, none is negative."""
    return Interval(x.least * x.least, x.magnitude * x.magnitude, x.may_be_nan, x.is_reached, x.sources)


def total_of(x: Interval, count: float, dtype: DType) -> Interval:
    """The sum of so many elements, each of which may have rounded it."""

    def end(value: float, sign: float) -> float:
        if not value or not count:
            return 0.0
        total = value * count
        return total + sign * abs(total) * count * dtype.compute.epsilon if math.isfinite(total) else total

    low, high = end(x.low, -1.0), end(x.high, 1.0)
    if math.isinf(count):
        low, high = min(low, 0.0), max(high, 0.0)
    return Interval(low, high, x.may_be_nan or (low, high) == (-INF, INF), x.is_reached, x.sources)


def round_outward(x: Interval, dtype: DType) -> Interval:
    """An interval of f64 as values of a dtype: its ends moved outward by a rounding, to infinity beyond the largest."""
    if not dtype.is_float:
        return x
    largest, least = largest_of(dtype), smallest_of(dtype)

    def end(value: float, sign: float) -> float:
        moved = value + sign * (abs(value) * (4 * dtype.epsilon) + least) if value and math.isfinite(value) else value
        if abs(value) <= largest:
            return max(-largest, min(moved, largest))  # what rounds to the largest is not beyond it
        return math.copysign(INF, moved) if abs(moved) > largest else moved

    return replace(x, low=end(x.low, -1.0), high=end(x.high, 1.0))


# The facet.


@frozen
class IntervalQuery:
    """One op: intervals and types of its operands, its attributes, and the type of its result.

    `is_repeated` says that all operands are one value, so that their elements are not independent.
    """

    operands: tuple[Interval, ...]
    types: tuple[TensorType, ...]
    attributes: Mapping[str, Any]
    result: TensorType
    is_repeated: bool = False

    @property
    def x(self) -> Interval:
        return self.operands[0]

    @property
    def y(self) -> Interval:
        return self.operands[1]

    def count(self, axes: Sequence[int]) -> float:
        """How many elements of the first operand these axes span, or infinity where that is not known."""
        count = product(self.types[0].shape[axis] for axis in axes).value
        return INF if count is None else float(count)


Rule: TypeAlias = Callable[[IntervalQuery], Interval]


@frozen
class IntervalRule:
    """The `interval` facet of an op: `rule`, or None where results may be anything.

    Results of a rule that `is_exact` are elements of the operands, or stay inside the bounds to the last bit.
    """

    rule: Rule | None
    is_exact: bool = False

    def result(self, query: IntervalQuery) -> Interval:
        """The interval of one result: what the rule says, rounded outward to the result's dtype."""
        dtype = query.result.dtype
        if self.rule is None:
            sources = frozenset[int]().union(*(one.sources for one in query.operands))
            return Interval(-INF, INF, True, False, sources) if dtype.is_float else range_of(dtype)
        made = _mark_nan(self.rule(query), query.operands)
        return made if self.is_exact else round_outward(made, dtype)


def _mark_nan(made: Interval, operands: Sequence[Interval]) -> Interval:
    """What is computed from infinities may be NaN: inf - inf, 0 * inf, inf / inf."""
    if len(operands) < 2:
        return made
    infinite = sum(math.isinf(one.magnitude) for one in operands)
    spans_zero = any(one.low <= 0 <= one.high for one in operands)
    if infinite > 1 or (infinite and spans_zero):
        return Interval(made.low, made.high, True, False, made.sources)
    return made


ANYTHING = IntervalRule(None)
"""Nothing is known of the results."""


def monotone(function: Callable[[float], float], *, falls: bool = False, is_exact: bool = False) -> IntervalRule:
    """A function of one operand that only rises, or only falls, and is defined everywhere."""

    def rule(query: IntervalQuery) -> Interval:
        ends = _value_at(function, query.x.low), _value_at(function, query.x.high)
        low, high = ends[::-1] if falls else ends
        return replace(query.x, low=low, high=high)

    return IntervalRule(rule, is_exact)


def _value_at(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except OverflowError:
        return math.copysign(INF, value)


def rising_from(least: float, at_least: float, function: Callable[[float], float]) -> IntervalRule:
    """A function that rises from `at_least` at `least`, and is NaN below it."""

    def rule(query: IntervalQuery) -> Interval:
        x = query.x
        low = at_least if x.low <= least else function(x.low)
        high = at_least if x.high <= least else function(x.high)
        nan = x.may_be_nan or x.low < least
        return Interval(low, max(low, high), nan, x.is_reached, x.sources)

    return IntervalRule(rule)


def always_within(low: float, high: float, *, is_exact: bool = False) -> IntervalRule:
    """Values that lie in a range, whatever the operands are."""

    def rule(query: IntervalQuery) -> Interval:
        nan = any(one.may_be_nan or math.isinf(one.magnitude) for one in query.operands)
        sources = frozenset[int]().union(*(one.sources for one in query.operands))
        return Interval(low, high, nan, False, sources)

    return IntervalRule(rule, is_exact)


def gate(least: float) -> IntervalRule:
    """`x` times a factor that rises from 0 to 1: a little below zero, never above `x`; of minus infinity NaN."""

    def rule(query: IntervalQuery) -> Interval:
        x = query.x
        nan = x.may_be_nan or x.low == -INF
        return Interval(max(least, min(x.low, 0.0)), max(x.high, 0.0), nan, False, x.sources)

    return IntervalRule(rule)


def _hull(query: IntervalQuery) -> Interval:
    made = query.operands[0]
    for other in query.operands[1:]:
        made = made.hull(other)
    return made


SAME = IntervalRule(lambda query: query.x, is_exact=True)
"""Elements of the first operand."""

HULL = IntervalRule(_hull, is_exact=True)
"""Elements of any operand."""

WITH_ZERO = IntervalRule(lambda query: query.x.hull(point(0.0)), is_exact=True)
"""Elements of the first operand, or zero."""

BOOLEAN = always_within(0.0, 1.0)
"""False or true."""


# Rules of the scalar functions that are neither monotone nor bounded.


def _absolute(query: IntervalQuery) -> Interval:
    x = query.x
    return Interval(x.least, x.magnitude, x.may_be_nan, x.is_reached, x.sources)


def add(query: IntervalQuery) -> Interval:
    """The rule of `x + y`."""
    return combine(query.x, query.y, query.x.low + query.y.low, query.x.high + query.y.high)


def _invert(y: Interval) -> Interval:
    has_zero = y.low <= 0 <= y.high  # of either sign
    low, high = (-INF, INF) if has_zero else (1 / y.high, 1 / y.low)
    return Interval(low, high, y.may_be_nan, y.is_reached, y.sources)


def _divide(query: IntervalQuery) -> Interval:
    x, y = query.x, query.y
    if y.low <= 0 <= y.high:
        # Zero over zero is NaN; anything else over zero is infinite.
        has_zero = x.low <= 0 <= x.high
        return combine(x, y, *((math.nan, math.nan) if has_zero else (-INF, INF)))
    return multiply(x, _invert(y))


def _rsqrt(query: IntervalQuery) -> Interval:
    x = query.x
    low, high = (-INF, INF) if x.low <= 0 else (1 / math.sqrt(x.high), 1 / math.sqrt(x.low))  # -INF is of negative zero
    return Interval(low, high, x.may_be_nan or x.low < 0, x.is_reached, x.sources)


def _power(query: IntervalQuery) -> Interval:
    x, y = query.x, query.y
    if y.low == y.high == 2.0:
        return square(x)
    if x.low >= 0 and y.low >= 0 and math.isfinite(x.high) and math.isfinite(y.high):
        most = _value_at(lambda base: base**y.high, max(1.0, x.high))
        return combine(x, y, 0.0, most).without_reach()
    return Interval(-INF, INF, True, False, x.sources | y.sources)


def _hyperbolic_cosine(query: IntervalQuery) -> Interval:
    x = query.x
    low, high = (_value_at(math.cosh, size) for size in (x.least, x.magnitude))
    return Interval(low, high, x.may_be_nan, x.is_reached, x.sources)


ABSOLUTE = IntervalRule(_absolute, is_exact=True)
COSH = IntervalRule(_hyperbolic_cosine)
RECIPROCAL = IntervalRule(lambda query: _invert(query.x))
RSQRT = IntervalRule(_rsqrt)
ADD = IntervalRule(add)
SUBTRACT = IntervalRule(lambda query: combine(query.x, query.y, query.x.low - query.y.high, query.x.high - query.y.low))
MULTIPLY = IntervalRule(lambda query: square(query.x) if query.is_repeated else multiply(query.x, query.y))
DIVIDE = IntervalRule(_divide)
POWER = IntervalRule(_power)
MAXIMUM = IntervalRule(
    lambda query: combine(query.x, query.y, max(query.x.low, query.y.low), max(query.x.high, query.y.high)),
    is_exact=True,
)
MINIMUM = IntervalRule(
    lambda query: combine(query.x, query.y, min(query.x.low, query.y.low), min(query.x.high, query.y.high)),
    is_exact=True,
)


def logistic(x: float) -> float:
    """`1 / (1 + exp(-x))`, which does not overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else (math.exp(x) / (1 + math.exp(x)))


def softplus(x: float) -> float:
    """`log(1 + exp(x))`, which does not overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
