"""What rounding to a number format means, on NumPy arrays of f32: the executable text of `docs/guide/numerics.md`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.types.dtype import FORMATS, NumberFormat

STEPS = 24
"""Random bits that decide a stochastic rounding: it goes up where they, as a fraction, are below what is lost."""


def round_to(
    x: Array,
    *,
    format: str,
    rounding: str = "nearest_even",
    saturation: str = "",
    denormals: str = "keep",
    bits: Array | None = None,
) -> Array:
    """The values of `x` as numbers of a format, still in f32; `bits` are 32 random ones for each element."""
    kind, exact = FORMATS[format], np.asarray(x, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        if not kind.is_float:
            return _to_integer(exact, kind, rounding, saturation, bits)
        magnitude = np.abs(exact)
        quantum = _quantum(magnitude, kind)
        steps = np.where(np.isfinite(magnitude), magnitude, 0.0) / quantum
        rounded = np.where(np.isfinite(magnitude), _whole(steps, rounding, bits) * quantum, magnitude)
        rounded = _limited(rounded, magnitude, kind, rounding, saturation)
        if denormals == "flush":
            rounded = np.where(rounded < kind.smallest_normal, 0.0, rounded)
        result = np.copysign(rounded, exact)
        return np.where(np.isnan(exact), np.nan, result).astype(np.float32)


def _quantum(magnitude: Array, kind: NumberFormat) -> Array:
    """The distance between neighbours of the format around each number."""
    _, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    normal = np.where(magnitude > 0, exponent - 1, 1 - kind.bias)
    return np.ldexp(1.0, np.maximum(normal, 1 - kind.bias) - kind.mantissa)


def _whole(steps: Array, rounding: str, bits: Array | None) -> Array:
    """Whole numbers from any; toward zero only what is not negative."""
    if rounding == "nearest_even":
        return np.rint(steps)
    low = np.floor(steps)
    if rounding == "toward_zero":
        return low
    assert bits is not None, "stochastic rounding needs random bits"
    share = (bits.astype(np.uint32) >> np.uint32(32 - STEPS)).astype(np.float64) * 2.0**-STEPS
    return low + (share < steps - low)


def _limited(rounded: Array, magnitude: Array, kind: NumberFormat, rounding: str, saturation: str) -> Array:
    """What becomes of numbers beyond the largest, and of infinity."""
    beyond: Any = np.inf if kind.has_infinity else np.nan if kind.has_nan else kind.largest
    if saturation == "saturate":
        beyond = kind.largest
    outside = rounded > kind.largest
    if rounding == "toward_zero":
        # What is finite stops at the largest; what was infinite is not.
        beyond = np.where(np.isinf(magnitude), beyond, kind.largest)
    return np.where(outside, beyond, rounded)


def _to_integer(exact: Array, kind: NumberFormat, rounding: str, saturation: str, bits: Array | None) -> Array:
    if rounding == "stochastic":
        whole = _whole(exact, rounding, bits)
    else:
        whole = np.rint(exact) if rounding == "nearest_even" else np.trunc(exact)
    if saturation == "wrap":
        span = kind.largest - kind.lowest + 1
        offset = whole - span * np.floor(whole / span)
        whole = np.where(offset > kind.largest, offset - span, offset)
    else:
        whole = np.clip(whole, kind.lowest, kind.largest)
    # Adding zero makes an integer's zero positive.
    return (np.where(np.isnan(whole), 0.0, whole) + 0.0).astype(np.float32)
