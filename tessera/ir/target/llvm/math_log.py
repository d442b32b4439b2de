"""Logarithms and powers on vectors of f32 or f64; no library is called.

`x = 2**n * (1 + r)` with `1 + r` between sqrt(1/2) and sqrt(2), and a minimax polynomial for `log(1 + r)`
(`Tables` of `math_exp.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import exp, exp2, tables
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
    two_product,
    two_sum,
    with_sign,
)


class Split(NamedTuple):
    """`x = 2**exponent * (1 + fraction)`, `1 + fraction` between sqrt(1/2) and sqrt(2)."""

    exponent: Value
    fraction: Value


def _exponent_bits(f: FunctionText, x: Value) -> Value:
    """The integer exponent that scales `x` to between sqrt(1/2) and sqrt(2)."""
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


def split_normal(f: FunctionText, x: Value) -> Split:
    """The exponent and fraction of a positive normal number."""
    n = _exponent_bits(f, x)
    mantissa = from_bits(f, sub(f, bits(f, x), shift(f, "shl", n, tables(x).mantissa)))
    return Split(f.cast("sitofp", n, x.element), plus(f, mantissa, -1.0))


def is_normal(f: FunctionText, x: Value) -> Value:
    """Whether a number is positive, finite and no denormal."""
    least, infinity = f.const_like(x, tables(x).smallest_normal), f.const_like(x, float("inf"))
    return f.op("and", f.fcmp("oge", x, least), f.fcmp("olt", x, infinity))


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


def log_normal(f: FunctionText, x: Value) -> Value:
    """The natural logarithm of what `is_normal`: the bits of `log`."""
    return _natural(f, split_normal(f, x))


def _binary(f: FunctionText, parts: Split) -> Value:
    """The logarithm to base 2 of a split number."""
    fraction, curve = parts.fraction, _curve(f, parts.fraction)
    high, low = (f.const_like(fraction, c) for c in tables(fraction).log2e)
    small = fma(f, fraction, low, mul(f, curve, high))
    return add(f, parts.exponent, fma(f, fraction, high, small))


def log2(f: FunctionText, x: Value) -> Value:
    """The logarithm to base 2; exact at powers of two."""
    return _edges(f, x, _binary(f, split(f, x)), 0.0)


def log2_normal(f: FunctionText, x: Value) -> Value:
    """The logarithm to base 2 of what `is_normal`: the bits of `log2`."""
    return _binary(f, split_normal(f, x))


_LOG10 = {
    "float": ((0.301025390625, 4.605039066518657e-06), (0.4342944920063019, -1.0103049952192578e-08)),
    "double": ((0.30102999566361177, 3.694239077158931e-13), (0.4342944819032518, 1.098319650216765e-17)),
}
"""Logarithms to base 10 of 2, whose high part times an exponent is exact, and of e, each in two parts."""


def log10(f: FunctionText, x: Value) -> Value:
    """The logarithm to base 10."""
    exponent, fraction = split(f, x)
    (high, low), (scale, scale_low) = ([f.const_like(x, part) for part in pair] for pair in _LOG10[x.element])
    small = fma(f, exponent, low, fma(f, fraction, scale_low, mul(f, _curve(f, fraction), scale)))
    return _edges(f, x, fma(f, exponent, high, fma(f, fraction, scale, small)), 0.0)


_FAR = 2.0**100
"""Beyond this the 1 of `1 + x` is lost anyway, and the power of two that scales it would leave the range."""


def log1p(f: FunctionText, x: Value) -> Value:
    """`log(1 + x)`, exact in relative terms near zero."""
    return with_sign(f, _edges(f, x, _log1p_inside(f, x), -1.0), x)


def is_inside(f: FunctionText, x: Value) -> Value:
    """Whether a number is above -1, and so near that the 1 of `1 + x` may matter."""
    least, most = f.const_like(x, -1.0), f.const_like(x, _FAR)
    return f.op("and", f.fcmp("ogt", x, least), f.fcmp("ole", x, most))


def log1p_inside(f: FunctionText, x: Value) -> Value:
    """`log(1 + x)` of what `is_inside`: the bits of `log1p`."""
    return with_sign(f, _log1p_inside(f, x, is_near=True), x)


def _log1p_inside(f: FunctionText, x: Value, *, is_near: bool = False) -> Value:
    """`log(1 + x)` for finite `x > -1`, which `is_near` says is not far out."""
    t = tables(x)
    whole = plus(f, x, 1.0)
    n = _exponent_bits(f, whole)
    moved = shift(f, "shl", n, t.mantissa)
    # 2**-n, so that (1 + x) * 2**-n - 1 comes from x itself in one rounding.
    scale = from_bits(f, sub(f, integer(f, x, t.bias << t.mantissa), moved))
    fraction = fma(f, x, scale, plus(f, scale, -1.0))
    if not is_near:
        far = f.fcmp("ogt", x, f.const_like(x, _FAR))
        fraction = f.select(far, plus(f, from_bits(f, sub(f, bits(f, whole), moved)), -1.0), fraction)
    return _natural(f, Split(f.cast("sitofp", n, x.element), fraction))


def softplus(f: FunctionText, x: Value) -> Value:
    """`log(1 + e**x)`, without overflow."""
    small = exp(f, f.fneg(absolute(f, x)), negative=True)
    positive = f.select(f.fcmp("olt", x, f.const_like(x, 0.0)), f.const_like(x, 0.0), x)
    return add(f, positive, _log1p_inside(f, small, is_near=True))


# Powers: f32 through f64, f64 through a logarithm that is carried as a pair, since the exponent multiplies its error.

# (log((1 + s) / (1 - s)) / s - 2 - 2/3 * z) / z**2 over z = s**2, s up to (sqrt(2) - 1) / (sqrt(2) + 1).
_ATANH = (
    0.11731200796144274, 0.11705458723567848, 0.13334834177326477, 0.15384594410969443, 0.18181818340658637,
    0.22222222221632107, 0.2857142857142941, 0.4,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def power(f: FunctionText, x: Value, y: Value) -> Value:
    """`x ** y`, with the corners of IEEE 754: `x**0` and `1**y` are 1, a negative base takes integer exponents only."""
    size = absolute(f, x)
    if x.element == "float":
        logarithm = log2(f, f.cast("fpext", size, "double"))
        wide = exp2(f, mul(f, logarithm, f.cast("fpext", y, "double")))
        magnitude = f.cast("fptrunc", wide, "float")
    else:
        magnitude = _power_of_positive(f, size, y)
    return _select_corners(f, x, y, size, magnitude)


def _select_corners(f: FunctionText, x: Value, y: Value, size: Value, magnitude: Value) -> Value:
    one, zero = f.const_like(x, 1.0), f.const_like(x, 0.0)
    is_one = f.op("or", f.fcmp("oeq", y, zero), f.fcmp("oeq", x, one))
    is_even_one = f.op("and", f.fcmp("oeq", size, one), f.fcmp("ord", y, y))
    magnitude = f.select(f.op("or", is_one, is_even_one), one, magnitude)
    whole = f.fcmp("oeq", f.intrinsic("trunc", y), y)
    half = times(f, y, 0.5)
    odd = f.op("and", whole, f.fcmp("une", f.intrinsic("trunc", half), half))
    result = f.select(odd, with_sign(f, magnitude, x), magnitude)
    below = f.op("and", f.fcmp("olt", x, zero), f.fcmp("ogt", x, f.const_like(x, float("-inf"))))
    impossible = f.op("and", below, f.op("xor", whole, f.const_like(whole, True)))
    result = f.select(impossible, f.const_like(x, float("nan")), result)
    return f.select(is_one, one, result)


def _power_of_positive(f: FunctionText, x: Value, y: Value) -> Value:
    """`x ** y` of f64, the exponent exact enough for a last place at any size."""
    high, low = _log2_pair(f, x)
    # Zero and infinity have no fraction to take a logarithm of.
    edge = log2(f, x)
    plain = f.fcmp("olt", absolute(f, edge), f.const_like(x, float("inf")))
    high, low = f.select(plain, high, edge), f.select(plain, low, f.const_like(x, 0.0))
    exponent, remainder = two_product(f, y, high)
    remainder = fma(f, y, low, remainder)
    inside = f.fcmp("olt", absolute(f, exponent), f.const_like(x, 2000.0))
    return exp2(f, exponent, f.select(inside, remainder, f.const_like(x, 0.0)))


def _log2_pair(f: FunctionText, x: Value) -> tuple[Value, Value]:
    """The logarithm to base 2 as a sum of two, good to some 65 bits."""
    parts = split(f, x)
    r = parts.fraction
    # s = r / (2 + r), as a pair.
    bottom = plus(f, r, 2.0)
    bottom_low = sub(f, r, plus(f, bottom, -2.0))
    s = f.op("fdiv", r, bottom)
    left = fma(f, f.fneg(s), bottom_low, fma(f, f.fneg(s), bottom, r))
    s_low = f.op("fdiv", left, bottom)
    z, z_low = two_product(f, s, s)
    z_low = fma(f, add(f, s, s), s_low, z_low)
    # 2/3 + z * Q(z), then times z, then times s: each product as a pair.
    u, u_low = two_sum(f, f.const_like(x, _TWO_THIRDS[0]), mul(f, z, horner(f, z, _ATANH)))
    u_low = plus(f, u_low, _TWO_THIRDS[1])
    v, v_low = _multiply_pairs(f, (z, z_low), (u, u_low))
    w, w_low = _multiply_pairs(f, (s, s_low), (v, v_low))
    natural, natural_low = two_sum(f, add(f, s, s), w)
    natural_low = add(f, natural_low, add(f, w_low, add(f, s_low, s_low)))
    scale = tuple(f.const_like(x, c) for c in tables(x).log2e)
    log_high, log_low = _multiply_pairs(f, (natural, natural_low), (scale[0], scale[1]))
    high, remainder = two_sum(f, parts.exponent, log_high)
    return two_sum(f, high, add(f, remainder, log_low))


def _multiply_pairs(f: FunctionText, a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """The two_product of two pairs."""
    high, low = two_product(f, a[0], b[0])
    return high, add(f, low, fma(f, a[0], b[1], mul(f, a[1], b[0])))
