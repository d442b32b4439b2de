"""Intervals of values: where the elements of a tensor lie, whether they may be NaN, whether the ends are reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.number_format import FORMATS
from tessera.types.promotion import integer_range

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
        return f"[{_shown(self.low)}, {_shown(self.high)}]{nan}"

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def within(self, low: float, high: float) -> bool:
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

    def guessed(self) -> Interval:
        """The same, without the claim that all of it is reached."""
        return replace(self, is_reached=False)


UNKNOWN = Interval(-INF, INF, True)
"""Nothing is known."""


def _shown(number: float) -> str:
    return f"{number:.6g}"


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


def monotone(function: Callable[[float], float], x: Interval, *, falls: bool = False) -> Interval:
    """The image under a function that only rises, or only falls; it must be defined on all of the interval."""
    ends = _at(function, x.low), _at(function, x.high)
    low, high = ends[::-1] if falls else ends
    return replace(x, low=low, high=high)


def _at(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except OverflowError:
        return math.copysign(INF, value)


def combined(x: Interval, y: Interval, low: float, high: float) -> Interval:
    """An interval made from two; NaN ends (inf - inf, 0 * inf) stand for anything."""
    nan = x.may_be_nan or y.may_be_nan
    if math.isnan(low) or math.isnan(high):
        return Interval(-INF, INF, True, False, x.sources | y.sources)
    reached = x.is_reached and y.is_reached and not (x.sources & y.sources)
    return Interval(low, high, nan, reached, x.sources | y.sources)


def products(x: Interval, y: Interval) -> Interval:
    """All products of two elements."""
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    if any(math.isnan(corner) for corner in corners):
        return combined(x, y, math.nan, math.nan)
    return combined(x, y, min(corners), max(corners))


def rounded(x: Interval, dtype: DType) -> Interval:
    """An interval of f64 as values of a dtype: its ends moved outward by a rounding, to infinity beyond the largest."""
    if not dtype.is_float:
        return x
    slack, least = 4 * dtype.epsilon, 2.0**-149
    largest = largest_of(dtype)

    def end(value: float, side: float) -> float:
        moved = value + side * (abs(value) * slack + least) if value and math.isfinite(value) else value
        if abs(value) <= largest < abs(moved):
            return math.copysign(largest, value)  # what rounds to the largest is not beyond it
        return math.copysign(INF, moved) if abs(moved) > largest else moved

    return replace(x, low=end(x.low, -1.0), high=end(x.high, 1.0))
