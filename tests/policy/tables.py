"""Number formats written out from their definitions, bit by bit, as tables to compare with."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache

SPLITS = {"f8e4m3": (4, 3), "f8e5m2": (5, 2), "f4e2m1": (2, 1)}


def decoded(format: str, code: int) -> float:
    """The number that a code stands for."""
    exponent, mantissa = SPLITS[format]
    sign = -1.0 if code >> (exponent + mantissa) else 1.0
    bias = (1 << (exponent - 1)) - 1
    field, fraction = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    if format == "f8e4m3" and code & 0x7F == 0x7F:
        return math.nan
    if format == "f8e5m2" and field == 31:
        return math.nan if fraction else sign * math.inf
    if field == 0:
        return sign * math.ldexp(fraction, 1 - bias - mantissa)
    return sign * math.ldexp((1 << mantissa) + fraction, field - bias - mantissa)


@cache
def magnitudes(format: str) -> list[float]:
    """All finite numbers of a format that are not negative, in order; their places are their codes."""
    bits = sum(SPLITS[format])
    return [value for value in (decoded(format, code) for code in range(1 << bits)) if math.isfinite(value)]


def nearest(format: str, value: float, *, saturate: bool, toward_zero: bool = False) -> float:
    """A number rounded by looking at its two neighbours; ties go to the even code."""
    if math.isnan(value):
        return math.nan
    known, size = magnitudes(format), abs(value)
    above = known[-1] + (known[-1] - known[-2]) if format != "f4e2m1" else math.inf
    listed = [*known, above]
    at = bisect_left(listed, size) if math.isfinite(size) else len(known)
    if at < len(known) and listed[at] == size:
        made = size
    elif at >= len(listed) or math.isinf(size):
        made = math.inf
    else:
        low, high = listed[at - 1], listed[at]
        is_up = False if toward_zero else _is_nearer_to_upper(size, low, high, at)
        made = high if is_up else low
    if made > known[-1]:
        without = {"f8e5m2": math.inf, "f8e4m3": math.nan, "f4e2m1": known[-1]}[format]
        made = known[-1] if saturate or (toward_zero and math.isfinite(size)) else without
    return math.copysign(made, value)


def _is_nearer_to_upper(size: float, low: float, high: float, code: int) -> bool:
    if math.isinf(high):
        return False
    # Exact wherever the two are near one another, which is where it counts.
    below, above = size - low, high - size
    return above < below or (above == below and code % 2 == 0)
