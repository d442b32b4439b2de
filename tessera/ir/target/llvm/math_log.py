"""Logarithms on vectors of f32 or f64; no library is called."""

from __future__ import annotations

from typing import NamedTuple

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import exp, tables
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    bits,
    fma,
    from_bits,
    horner,
    integer,
    mul,
    plus,
    shift,
    sub,
    times,
    with_sign,
)


class Split(NamedTuple):
    """`x = 2**exponent * (1 + fraction)`, `1 + fraction` between sqrt(1/2) and sqrt(2)."""

    exponent: Value
    fraction: Value


def _exponent_bits(f: FunctionText, x: Value) -> Value:
    """The integer exponent that brings `x` between sqrt(1/2) and sqrt(2)."""
    t = tables(x)
    return shift(f, "ashr", sub(f, bits(f, x), integer(f, x, t.sqrt_half_bits)), t.mantissa)


def split(f: FunctionText, x: Value) -> Split:
    """The exponent and fraction of a positive number, denormals included."""
    t = tables(x)
    tiny = f.fcmp("olt", x, f.const_like(x, t.smallest_normal))
    lifted = f.select(tiny, times(f, x, 2.0 ** (t.mantissa + 2)), x)
    n = _exponent_bits(f, lifted)
    mantissa = from_bits(f, sub(f, bits(f, lifted), shift(f, "shl", n, t.mantissa)))
    lift = f.select(tiny, f.const_like(x, -float(t.mantissa + 2)), f.const_like(x, 0.0))
    return Split(add(f, f.cast("sitofp", n, x.element), lift), plus(f, mantissa, -1.0))


def _curve(f: FunctionText, r: Value) -> Value:
    """`log(1 + r) - r`."""
    square = mul(f, r, r)
    cubic = mul(f, mul(f, square, r), horner(f, r, tables(r).log))
    return fma(f, square, f.const_like(r, -0.5), cubic)


def _natural(f: FunctionText, parts: Split) -> Value:
    """The natural logarithm of a split number."""
    high, low = tables(parts.fraction).ln2
    small = fma(f, parts.exponent, f.const_like(parts.fraction, low), _curve(f, parts.fraction))
    return fma(f, parts.exponent, f.const_like(parts.fraction, high), add(f, parts.fraction, small))


def _edges(f: FunctionText, x: Value, result: Value, zero_at: float) -> Value:
    """Infinity where `x` is, minus infinity where it is `zero_at`, NaN below that and where `x` is."""
    infinity = f.const_like(x, float("inf"))
    result = f.select(f.fcmp("olt", x, infinity), result, x)
    result = f.select(f.fcmp("oeq", x, f.const_like(x, zero_at)), f.fneg(infinity), result)
    return f.select(f.fcmp("olt", x, f.const_like(x, zero_at)), f.const_like(x, float("nan")), result)


def log(f: FunctionText, x: Value) -> Value:
    """The natural logarithm."""
    return _edges(f, x, _natural(f, split(f, x)), 0.0)


def log2(f: FunctionText, x: Value) -> Value:
    """The logarithm to base 2; exact at powers of two."""
    parts = split(f, x)
    high, low = (f.const_like(x, c) for c in tables(x).log2e)
    fraction, curve = parts.fraction, _curve(f, parts.fraction)
    small = fma(f, fraction, low, mul(f, curve, high))
    return _edges(f, x, add(f, parts.exponent, fma(f, fraction, high, small)), 0.0)


def log1p(f: FunctionText, x: Value) -> Value:
    """`log(1 + x)`, exact in relative terms near zero."""
    return with_sign(f, _edges(f, x, _log1p_inside(f, x), -1.0), x)


def _log1p_inside(f: FunctionText, x: Value) -> Value:
    """`log(1 + x)` for finite `x > -1`."""
    t = tables(x)
    whole = plus(f, x, 1.0)
    n = _exponent_bits(f, whole)
    moved = shift(f, "shl", n, t.mantissa)
    # 2**-n, so that (1 + x) * 2**-n - 1 comes from x itself in one rounding.
    scale = from_bits(f, sub(f, integer(f, x, t.bias << t.mantissa), moved))
    fraction = fma(f, x, scale, plus(f, scale, -1.0))
    # Far out the 1 is lost anyway, and 2**-n would leave the range.
    far = f.fcmp("ogt", x, f.const_like(x, 2.0**100))
    fraction = f.select(far, plus(f, from_bits(f, sub(f, bits(f, whole), moved)), -1.0), fraction)
    return _natural(f, Split(f.cast("sitofp", n, x.element), fraction))


def softplus(f: FunctionText, x: Value) -> Value:
    """`log(1 + e**x)`, without overflow."""
    small = exp(f, f.fneg(absolute(f, x)), negative=True)
    positive = f.select(f.fcmp("olt", x, f.const_like(x, 0.0)), f.const_like(x, 0.0), x)
    return add(f, positive, _log1p_inside(f, small))
