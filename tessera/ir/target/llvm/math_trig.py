"""Trigonometric and hyperbolic functions and their inverses, on vectors of f32 or f64; no library is called.

Arguments are reduced to within pi/4 of a multiple of pi/2, by three parts of pi/2 that the fused multiply-add subtracts
without loss (Cody and Waite) up to a bound; the rare larger ones go lane by lane through an exact product with as many
bits of 2/pi as they need (Payne and Hanek).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import exp, expm1, nearest, tables
from tessera.ir.target.llvm.math_integer import any_lane
from tessera.ir.target.llvm.math_log import log1p
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    at_most,
    bits,
    fma,
    from_bits,
    horner,
    integer,
    is_thread,
    mul,
    plus,
    shift,
    sub,
    times,
    with_sign,
)
from tessera.types.frozen import frozen


@frozen
class _AngleTables:
    """Numbers for one format: pi/2 in three parts, polynomials over r**2 for |r| <= pi/4, and over z**2 for z <= 1."""

    half_pi: tuple[float, float, float]
    limit: float  # largest argument the three parts are enough for
    sin: tuple[float, ...]  # (sin r - r) / r**3
    cos: tuple[float, ...]  # (cos r - 1 + r**2 / 2) / r**4
    atan: tuple[float, ...]  # (atan z - z) / z**3


_SINGLE = _AngleTables(
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    limit=2.0**17,
    sin=(-0.0001951828453456983, 0.008332189172506332, -0.16666655242443085),
    cos=(2.4432327336398885e-05, -0.0013887309469282627, 0.04166664555668831),
    atan=(
        -0.0017821125220507383, 0.01086614839732647, -0.03109334595501423, 0.057878728955984116, -0.08399202674627304,
        0.10950860381126404, -0.1426401436328888, 0.1999852955341339, -0.33333298563957214,
    ),
)  # fmt: skip

_DOUBLE = _AngleTables(
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    limit=2.0**30,
    sin=(
        1.5895431679671854e-10, -2.5050734362944276e-08, 2.7557313538383676e-06, -0.0001984126982935833,
        0.00833333333332184, -0.1666666666666663,
    ),
    cos=(
        -1.1358738594598686e-11, 2.0875705220694863e-09, -2.7557314216004226e-07, 2.4801587288999525e-05,
        -0.001388888888887334, 0.041666666666666595,
    ),
    atan=(
        9.349899168453177e-06, -0.00011403961396964845, 0.0006580967080343521, -0.002402626609464541,
        0.006276314477371978, -0.01262572087424468, 0.020659076882701015, -0.028848651236005496, 0.035992449949871226,
        -0.04188156078767602, 0.04710846191403816, -0.05250256314867885, 0.05879825058150319, -0.06666291781734905,
        0.07692266956583789, -0.09090905991474131, 0.11111110956693082, -0.14285714281191045, 0.19999999999936197,
        -0.3333333333333307,
    ),
)  # fmt: skip

# The bits of 2/pi after the binary point, after one word of zeros so that small exponents find their bits too.
_TWO_OVER_PI = (
    0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
    0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4,
    0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
    0xA9E391615EE61B08,
)  # fmt: skip


class ReducedAngle(NamedTuple):
    """An angle as `quadrant` multiples of pi/2 and a remainder of at most pi/4."""

    remainder: Value
    quadrant: Value


def _tables(x: Value) -> _AngleTables:
    return _SINGLE if x.element == "float" else _DOUBLE


def _reduce_near(f: FunctionText, x: Value) -> ReducedAngle:
    """An angle up to the limit, relative to the nearest multiple of pi/2."""
    n, marked = nearest(f, x, 2.0 / math.pi)
    remainder = x
    for part in _tables(x).half_pi:
        remainder = fma(f, n, f.const_like(x, -part), remainder)
    return ReducedAngle(remainder, bits(f, marked))


def is_near(f: FunctionText, x: Value) -> Value:
    """Whether an angle is up to the limit, so that three parts of pi/2 reduce it; NaN is not."""
    return f.fcmp("ole", absolute(f, x), f.const_like(x, _tables(x).limit))


def _reduce(f: FunctionText, x: Value) -> ReducedAngle:
    """An angle relative to the nearest multiple of pi/2."""
    remainder, quadrant = _reduce_near(f, x)
    size = absolute(f, x)
    finite = f.fcmp("olt", size, f.const_like(x, float("inf")))
    large = f.op("and", finite, f.fcmp("ogt", size, f.const_like(x, _tables(x).limit)))
    remainder, quadrant = f.if_(
        any_lane(f, large), lambda: _reduce_lanes(f, x, large, remainder, quadrant), lambda: [remainder, quadrant]
    )
    return ReducedAngle(remainder, quadrant)


def _reduce_lanes(f: FunctionText, x: Value, large: Value, remainder: Value, quadrant: Value) -> list[Value]:
    """Replace the lanes with large angles by their exact reduction."""
    name = f.module.outline(
        "reduce_angle", "reduce_angle", [("double", "x"), ("ptr", "quadrant")], _write_exact, "double", shared=True
    )
    angles, remainders, quadrants = (f.alloca(v.element, v.lanes) for v in (x, remainder, quadrant))
    flags, whole = f.alloca("i8", x.lanes), f.alloca("i64")
    for value, slot in (
        (x, angles),
        (remainder, remainders),
        (quadrant, quadrants),
        (f.cast("zext", large, "i8"), flags),
    ):
        f.store(value, slot)

    def lane(i: Value) -> None:
        def reduce() -> None:
            angle = f.cast("fpext", f.load(f.gep(angles, i, x.element), x.element), "double")
            exact = f.call(name, [angle, whole], "double")
            f.store(f.cast("fptrunc", exact, x.element), f.gep(remainders, i, x.element))
            count = f.cast("trunc", f.load(whole, "i64"), quadrant.element)
            f.store(count, f.gep(quadrants, i, quadrant.element))

        f.if_(f.icmp("ne", f.load(f.gep(flags, i, "i8"), "i8"), f.const("i8", 0)), reduce)

    f.loop(0, x.lanes, 1, lane)
    return [f.load(remainders, remainder.type), f.load(quadrants, quadrant.type)]


def _write_exact(g: FunctionText) -> None:
    """Reduce one f64 of any size.

    With `x = m * 2**e`, the bits of 2/pi worth 4 or more after multiplying by 2**e do not matter; the 192 that follow
    are multiplied by m, modulo 2**192: two bits of quadrant and 190 of fraction.
    """
    x, where = g.arguments
    code = g.bitcast(x, "i64")
    exponent = g.op("and", g.op("lshr", code, g.const_i(52)), g.const_i(0x7FF))
    mantissa = g.op("or", g.op("and", code, g.const_i((1 << 52) - 1)), g.const_i(1 << 52))
    # The first bit wanted is number e - 1, counted from 1 behind the point; the table begins 64 bits earlier.
    first = g.add(g.sub(exponent, 1075), 62)
    word, shift = g.udiv(first, 64), g.urem(first, 64)
    table = g.module.constant("i64", [_as_signed(w) for w in _TWO_OVER_PI])
    words = [g.load(g.gep(table, g.add(word, i), "i64"), "i64") for i in range(4)]
    high, middle, low = (g.intrinsic("fshl", words[i], words[i + 1], shift) for i in range(3))
    wide = g.cast("zext", mantissa, "i128")

    def times_word(value: Value, carry: Value | None) -> tuple[Value, Value]:
        product = g.op("mul", wide, g.cast("zext", value, "i128"))
        if carry is not None:
            product = g.op("add", product, g.cast("zext", carry, "i128"))
        return g.cast("trunc", g.op("lshr", product, Value("i128", "64")), "i64"), g.cast("trunc", product, "i64")

    carry, _ = times_word(low, None)
    carry, below = times_word(middle, carry)
    _, above = times_word(high, carry)
    # Round to the nearest quadrant: add half of one; the remaining fraction is signed.
    quadrant = g.op("lshr", g.op("add", above, g.const_i(1 << 61)), g.const_i(62))
    fraction = g.op("or", g.op("shl", above, g.const_i(2)), g.op("lshr", below, g.const_i(62)))
    tail = g.op("shl", below, g.const_i(2))
    small = g.op("fmul", g.cast("uitofp", tail, "double"), g.const("double", 2.0**-64))
    remainder = g.op("fadd", g.cast("sitofp", fraction, "double"), small)
    angle = g.op("fmul", remainder, g.const("double", math.pi / 2 * 2.0**-64))
    negative = g.icmp("slt", code, g.const_i(0))
    g.store(g.select(negative, g.op("sub", g.const_i(0), quadrant), quadrant), where)
    g.ret(g.select(negative, g.fneg(angle), angle))


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


Reduce: TypeAlias = Callable[[FunctionText, Value], ReducedAngle]
"""How an angle is reduced: whatever its size, or one that is near."""


def _sin_reduced(f: FunctionText, r: Value) -> Value:
    """The sine of a reduced angle."""
    square = mul(f, r, r)
    return fma(f, mul(f, square, r), horner(f, square, _tables(r).sin), r)


def _cos_reduced(f: FunctionText, r: Value) -> Value:
    """The cosine of a reduced angle."""
    square = mul(f, r, r)
    flat = fma(f, square, f.const_like(r, -0.5), f.const_like(r, 1.0))
    return fma(f, mul(f, square, square), horner(f, square, _tables(r).cos), flat)


def _has_bit(f: FunctionText, quadrant: Value, bit: int) -> Value:
    return f.icmp("ne", f.op("and", quadrant, f.const_like(quadrant, bit)), f.const_like(quadrant, 0))


def _shifted_sine(f: FunctionText, x: Value, quarters: int, reduce: Reduce) -> Value:
    """The sine of `x + quarters * pi / 2`."""
    remainder, quadrant = reduce(f, x)
    if quarters:
        quadrant = f.op("add", quadrant, f.const_like(quadrant, quarters))
    value = f.select(_has_bit(f, quadrant, 1), _cos_reduced(f, remainder), _sin_reduced(f, remainder))
    if is_thread(f, x):
        # The second bit is the sign: an instruction less than a test of it and a choice.
        sign = f.op("and", shift(f, "shl", quadrant, 30), f.const_like(quadrant, -1 << 31))
        return from_bits(f, f.op("xor", bits(f, value), sign))
    return f.select(_has_bit(f, quadrant, 2), f.fneg(value), value)


def sin(f: FunctionText, x: Value, reduce: Reduce = _reduce) -> Value:
    """The sine of any finite angle; -0 stays."""
    return f.select(f.fcmp("oeq", x, f.const_like(x, 0.0)), x, _shifted_sine(f, x, 0, reduce))


def cos(f: FunctionText, x: Value, reduce: Reduce = _reduce) -> Value:
    """The cosine of any finite angle."""
    return _shifted_sine(f, x, 1, reduce)


def tan(f: FunctionText, x: Value, reduce: Reduce = _reduce) -> Value:
    """The tangent of any finite angle; -0 stays."""
    remainder, quadrant = reduce(f, x)
    sine, cosine, odd = _sin_reduced(f, remainder), _cos_reduced(f, remainder), _has_bit(f, quadrant, 1)
    value = f.op("fdiv", f.select(odd, f.fneg(cosine), sine), f.select(odd, sine, cosine))
    return f.select(f.fcmp("oeq", x, f.const_like(x, 0.0)), x, value)


def sin_near(f: FunctionText, x: Value) -> Value:
    """The sine of an angle that `is_near`: the bits of `sin`."""
    return sin(f, x, _reduce_near)


def cos_near(f: FunctionText, x: Value) -> Value:
    """The cosine of an angle that `is_near`: the bits of `cos`."""
    return cos(f, x, _reduce_near)


def tan_near(f: FunctionText, x: Value) -> Value:
    """The tangent of an angle that `is_near`: the bits of `tan`."""
    return tan(f, x, _reduce_near)


def atan2(f: FunctionText, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), signs of zeros and infinities included."""
    up, across = absolute(f, y), absolute(f, x)
    steep = f.fcmp("ogt", up, across)
    long, short = f.select(steep, up, across), f.select(steep, across, up)
    # Equal sizes, infinities too, make 45 degrees; 0 / 0 makes 0.
    ratio = f.select(f.fcmp("oeq", long, short), f.const_like(x, 1.0), f.op("fdiv", short, long))
    ratio = f.select(f.fcmp("oeq", up, f.const_like(x, 0.0)), f.const_like(x, 0.0), ratio)
    ratio = f.select(f.fcmp("uno", x, y), f.const_like(x, float("nan")), ratio)
    square = mul(f, ratio, ratio)
    angle = fma(f, mul(f, square, ratio), horner(f, square, _tables(x).atan), ratio)
    high, low, _ = _tables(x).half_pi
    complement = sub(f, f.const_like(x, high), sub(f, angle, f.const_like(x, low)))
    angle = f.select(steep, complement, angle)
    behind = f.icmp("slt", bits(f, x), integer(f, x, 0))
    beyond = sub(f, f.const_like(x, 2 * high), sub(f, angle, f.const_like(x, 2 * low)))
    return with_sign(f, f.select(behind, beyond, angle), y)


def atan(f: FunctionText, x: Value) -> Value:
    """The angle of a slope."""
    return atan2(f, x, f.const_like(x, 1.0))


def _complement(f: FunctionText, x: Value) -> Value:
    """`sqrt(1 - x**2)`, the difference rounded once; NaN beyond 1."""
    return f.intrinsic("sqrt", fma(f, f.fneg(x), x, f.const_like(x, 1.0)))


def asin(f: FunctionText, x: Value) -> Value:
    """The angle whose sine is `x`."""
    return atan2(f, x, _complement(f, x))


def acos(f: FunctionText, x: Value) -> Value:
    """The angle whose cosine is `x`."""
    return atan2(f, _complement(f, x), x)


# Hyperbolic functions and their inverses, made of exponentials and logarithms: each formula is the one of its range
# that neither cancels nor overflows, and signs are put on at the end. All but `cosh` and `acosh` are odd.

_FAR = 2.0**60
"""From here on the 1 under the root of `asinh` and `acosh` is below the last bit; squares of f32 still are finite."""


def _half_exp(f: FunctionText, magnitude: Value) -> Value:
    """`e**magnitude / 2`, which is finite a little longer than the exponential: ln 2 is subtracted without loss."""
    high, low = tables(magnitude).ln2
    return exp(f, plus(f, magnitude, -high), f.const_like(magnitude, -low))


def _quarter_over(f: FunctionText, half: Value) -> Value:
    """`e**-magnitude / 2` from `e**magnitude / 2`."""
    return f.op("fdiv", f.const_like(half, 0.25), half)


def sinh(f: FunctionText, x: Value) -> Value:
    """Up to 1 from `e**|x| - 1`, where the two exponentials would cancel."""
    magnitude = absolute(f, x)
    grown = expm1(f, at_most(f, magnitude, 1.0))
    near = times(f, add(f, grown, f.op("fdiv", grown, plus(f, grown, 1.0))), 0.5)
    half = _half_exp(f, magnitude)
    far = sub(f, half, _quarter_over(f, half))
    return with_sign(f, f.select(f.fcmp("olt", magnitude, f.const_like(x, 1.0)), near, far), x)


def cosh(f: FunctionText, x: Value) -> Value:
    """The mean of two exponentials, of which one is the inverse of the other."""
    half = _half_exp(f, absolute(f, x))
    return add(f, half, _quarter_over(f, half))


def _log_of_sum(f: FunctionText, magnitude: Value, small: Value) -> Value:
    """`log(1 + small)`, or `log(2 * magnitude)` where that is all that is left of it."""
    far = f.fcmp("ogt", magnitude, f.const_like(magnitude, _FAR))
    logarithm = log1p(f, f.select(far, magnitude, small))
    return add(f, logarithm, f.select(far, f.const_like(magnitude, math.log(2.0)), f.const_like(magnitude, 0.0)))


def asinh(f: FunctionText, x: Value) -> Value:
    """`log(a + sqrt(a**2 + 1))` of the magnitude, as `log1p(a + a**2 / (1 + sqrt(a**2 + 1)))`."""
    magnitude = absolute(f, x)
    bounded = at_most(f, magnitude, _FAR)
    square = mul(f, bounded, bounded)
    root = f.intrinsic("sqrt", plus(f, square, 1.0))
    small = add(f, bounded, f.op("fdiv", square, plus(f, root, 1.0)))
    return with_sign(f, _log_of_sum(f, magnitude, small), x)


def acosh(f: FunctionText, x: Value) -> Value:
    """`log(x + sqrt(x**2 - 1))`, as `log1p(t + sqrt(t**2 + 2 * t))` with `t = x - 1`; NaN below 1."""
    excess = plus(f, at_most(f, x, 2 * _FAR), -1.0)
    root = f.intrinsic("sqrt", fma(f, excess, excess, add(f, excess, excess)))
    made = _log_of_sum(f, x, add(f, excess, root))
    return f.select(f.fcmp("olt", x, f.const_like(x, 1.0)), f.const_like(x, float("nan")), made)


def atanh(f: FunctionText, x: Value) -> Value:
    """Half of `log((1 + a) / (1 - a))` of the magnitude; infinite at 1, NaN beyond it."""
    magnitude = absolute(f, x)
    ratio = f.op("fdiv", add(f, magnitude, magnitude), sub(f, f.const_like(x, 1.0), magnitude))
    return with_sign(f, times(f, log1p(f, ratio), 0.5), x)
