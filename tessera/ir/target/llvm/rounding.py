"""Rounding f32 vectors to a number format, by lane: the instructions for what `ir/base/rounding.py` means."""

from __future__ import annotations

from tessera.ir.target.llvm.text import FunctionText, Value
from tessera.ir.target.llvm.vector_ops import absolute, add, bits, from_bits, mul, shift, sub, times, with_sign
from tessera.types.dtype import FORMATS, NumberFormat
from tessera.types.frozen import frozen

_INFINITY = 0x7F800000
_STEPS = 24  # random bits that decide, as in `ir/base/rounding.py`


@frozen
class Rounding:
    """One way to round; `random` are 32 bits for each lane, for stochastic rounding only."""

    format: str
    rounding: str
    saturation: str
    denormals: str
    random: Value | None = None

    @property
    def kind(self) -> NumberFormat:
        return FORMATS[self.format]


def round_to(f: FunctionText, value: Value, way: Rounding) -> Value:
    """The numbers of a format that f32 values become, still as f32."""
    if not way.kind.is_float:
        return _integer(f, value, way)
    magnitude = absolute(f, value)
    # With all of f32's exponents a format is f32 with fewer bits; with fewer, small numbers lose more of theirs.
    rounded = _by_bits(f, magnitude, way) if way.kind.exponent == 8 else _by_steps(f, magnitude, way)
    rounded = _limited(f, rounded, magnitude, way)
    if way.denormals == "flush":
        is_small = f.fcmp("olt", rounded, f.const_like(rounded, way.kind.smallest_normal))
        rounded = f.select(is_small, f.const_like(rounded, 0.0), rounded)
    signed = with_sign(f, rounded, value)
    return f.select(f.fcmp("uno", value, value), f.const_like(value, float("nan")), signed)


def _share(f: FunctionText, way: Rounding) -> Value:
    assert way.random is not None, "stochastic rounding needs random bits"
    return shift(f, "lshr", way.random, 32 - _STEPS)


def _by_bits(f: FunctionText, magnitude: Value, way: Rounding) -> Value:
    drop = 23 - way.kind.mantissa
    if not drop:
        return magnitude
    whole = bits(f, magnitude)
    kept = f.op("and", whole, f.const_like(whole, ~((1 << drop) - 1)))
    if way.rounding == "toward_zero":
        return from_bits(f, kept)
    unit = f.const_like(whole, 1 << drop)
    if way.rounding == "stochastic":
        lost = shift(f, "shl", f.op("and", whole, f.const_like(whole, (1 << drop) - 1)), _STEPS - drop)
        goes_up = f.icmp("ult", _share(f, way), lost)
        return from_bits(f, f.select(goes_up, add(f, kept, unit), kept))
    odd = f.op("and", shift(f, "lshr", whole, drop), f.const_like(whole, 1))
    nearest = add(f, add(f, whole, f.const_like(whole, (1 << (drop - 1)) - 1)), odd)
    # An infinity has no bits to lose, so it stays one.
    return from_bits(f, f.op("and", nearest, f.const_like(whole, ~((1 << drop) - 1))))


def _by_steps(f: FunctionText, magnitude: Value, way: Rounding) -> Value:
    """Count in steps of the format, which are powers of two and cost no accuracy, and round the count."""
    kind, whole = way.kind, bits(f, magnitude)
    exponent = shift(f, "lshr", whole, 23)
    exponent = f.intrinsic("umax", exponent, f.const_like(whole, 128 - kind.bias))
    step = sub(f, exponent, f.const_like(whole, kind.mantissa))
    size = from_bits(f, shift(f, "shl", step, 23))
    inverse = from_bits(f, shift(f, "shl", sub(f, f.const_like(whole, 254), step), 23))
    rounded = mul(f, _whole(f, mul(f, magnitude, inverse), way), size)
    is_infinite = f.icmp("uge", whole, f.const_like(whole, _INFINITY))
    return f.select(is_infinite, magnitude, rounded)


def _whole(f: FunctionText, value: Value, way: Rounding) -> Value:
    """Whole numbers from any."""
    if way.rounding == "nearest_even":
        return f.intrinsic("roundeven", value)
    if way.rounding == "toward_zero":
        return f.intrinsic("trunc", value)
    low = f.intrinsic("floor", value)
    share = times(f, f.cast("uitofp", _share(f, way), "float"), 2.0**-_STEPS)
    goes_up = f.fcmp("olt", share, sub(f, value, low))
    return f.select(goes_up, add(f, low, f.const_like(low, 1.0)), low)


def _limited(f: FunctionText, rounded: Value, magnitude: Value, way: Rounding) -> Value:
    kind = way.kind
    largest = f.const_like(rounded, kind.largest)
    outside = f.fcmp("ogt", rounded, largest)
    if way.saturation == "saturate" or not (kind.has_infinity or kind.has_nan):
        return f.select(outside, largest, rounded)
    beyond = f.const_like(rounded, float("inf") if kind.has_infinity else float("nan"))
    if way.rounding == "toward_zero":
        is_infinite = f.fcmp("oeq", magnitude, f.const_like(rounded, float("inf")))
        beyond = f.select(is_infinite, beyond, largest)
    return f.select(outside, beyond, rounded)


def _integer(f: FunctionText, value: Value, way: Rounding) -> Value:
    kind, whole = way.kind, _whole(f, value, way)
    if way.saturation == "wrap":
        span = kind.largest - kind.lowest + 1
        turns = f.intrinsic("floor", times(f, whole, 1.0 / span))
        offset = sub(f, whole, times(f, turns, span))
        above = f.fcmp("ogt", offset, f.const_like(offset, kind.largest))
        whole = f.select(above, sub(f, offset, f.const_like(offset, span)), offset)
    else:
        low, high = f.const_like(whole, kind.lowest), f.const_like(whole, kind.largest)
        whole = f.select(f.fcmp("olt", whole, low), low, whole)
        whole = f.select(f.fcmp("ogt", whole, high), high, whole)
    zero = f.const_like(whole, 0.0)
    return f.select(f.fcmp("uno", whole, whole), zero, add(f, whole, zero))
