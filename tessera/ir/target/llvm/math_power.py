"""Powers of floats: f32 through f64, f64 through a logarithm carried as a pair."""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import exp2, tables
from tessera.ir.target.llvm.math_log import log2, split
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    fma,
    horner,
    mul,
    plus,
    product,
    sub,
    times,
    total,
    with_sign,
)

# (log((1 + s) / (1 - s)) / s - 2 - 2/3 * z) / z**2 over z = s**2, s up to (sqrt(2) - 1) / (sqrt(2) + 1).
_ATANH = (
    0.11731200796144274, 0.11705458723567848, 0.13334834177326477, 0.15384594410969443, 0.18181818340658637,
    0.22222222221632107, 0.2857142857142941, 0.4,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def power(f: FunctionText, x: Value, y: Value) -> Value:
    """`x ** y`, with the corners of IEEE 754: `x**0` and `1**y` are 1, a negative base takes whole exponents only."""
    size = absolute(f, x)
    if x.element == "float":
        logarithm = log2(f, f.cast("fpext", size, "double"))
        wide = exp2(f, mul(f, logarithm, f.cast("fpext", y, "double")))
        magnitude = f.cast("fptrunc", wide, "float")
    else:
        magnitude = _power_of_positive(f, size, y)
    return _with_corners(f, x, y, size, magnitude)


def _with_corners(f: FunctionText, x: Value, y: Value, size: Value, magnitude: Value) -> Value:
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
    exponent, rest = product(f, y, high)
    rest = fma(f, y, low, rest)
    inside = f.fcmp("olt", absolute(f, exponent), f.const_like(x, 2000.0))
    return exp2(f, exponent, f.select(inside, rest, f.const_like(x, 0.0)))


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
    z, z_low = product(f, s, s)
    z_low = fma(f, add(f, s, s), s_low, z_low)
    # 2/3 + z * Q(z), then times z, then times s: each product as a pair.
    u, u_low = total(f, f.const_like(x, _TWO_THIRDS[0]), mul(f, z, horner(f, z, _ATANH)))
    u_low = plus(f, u_low, _TWO_THIRDS[1])
    v, v_low = _pair_product(f, (z, z_low), (u, u_low))
    w, w_low = _pair_product(f, (s, s_low), (v, v_low))
    natural, natural_low = total(f, add(f, s, s), w)
    natural_low = add(f, natural_low, add(f, w_low, add(f, s_low, s_low)))
    scale = tuple(f.const_like(x, c) for c in tables(x).log2e)
    log_high, log_low = _pair_product(f, (natural, natural_low), (scale[0], scale[1]))
    high, rest = total(f, parts.exponent, log_high)
    return total(f, high, add(f, rest, log_low))


def _pair_product(f: FunctionText, a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """The product of two pairs."""
    high, low = product(f, a[0], b[0])
    return high, add(f, low, fma(f, a[0], b[1], mul(f, a[1], b[0])))
