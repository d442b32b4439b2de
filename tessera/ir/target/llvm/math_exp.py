"""Exponentials and the functions made of them, on vectors of f32 or f64; no library is called.

All follow one scheme: `x = n * ln 2 + r` with |r| <= ln 2 / 2, a minimax polynomial (`Tables`) for `e**r`, and
`2**n` put on through the exponent bits. Every lane runs the same steps whatever the vector width, so a value's result
depends on the value alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    at_least,
    at_most,
    bits,
    fma,
    from_bits,
    horner,
    integer,
    is_thread,
    is_whole_register,
    larger,
    mul,
    plus,
    shift,
    sub,
    times,
    two_product,
    two_sum,
    with_sign,
)
from tessera.types.frozen import frozen

# Coefficients of the math functions, one set per float format.


@frozen
class Tables:
    """The numbers one float format needs."""

    mantissa: int
    bias: int
    magic: float  # 1.5 * 2**mantissa: adding it rounds to an integer and leaves that integer in the low bits
    magic_bits: int
    largest: float
    smallest_normal: float
    ln2: tuple[float, float]  # high part with trailing zeros, so that n * high is exact; low part
    exp_range: tuple[float, float]  # outside, exp is 0 and infinity
    exp2_range: tuple[float, float]
    tanh_one: float  # from here on tanh rounds to 1
    expm1_floor: float  # from here down expm1 rounds to -1
    exp: tuple[float, ...]  # exp(r), |r| <= ln2 / 2
    exp2: tuple[float, ...]  # 2**r, |r| <= 1/2
    expm1: tuple[float, ...]  # (exp(r) - 1 - r) / r**2, |r| <= ln2 / 2
    log: tuple[float, ...]  # (log(1 + r) - r + r**2 / 2) / r**3, 1 + r from sqrt(1/2) to sqrt(2)
    log2e: tuple[float, float]
    erf_small: tuple[float, ...]  # erf(x) / x - 1 over x**2, |x| <= 1
    erf_tail: tuple[float, ...]  # -log(erfc(a)), a from 1 to `erf_one`; empty where one polynomial is not enough
    erf_one: float  # from here on erf rounds to 1
    gelu_near: tuple[float, ...]  # erf(x / sqrt(2)) / (2 * x) over x**2, |x| <= 1
    normal_tail: tuple[float, ...]  # exp(a**2 / 2) * Phi(-a) / v over v = k / (a + k), a >= 1
    normal_k: float
    normal_limit: float  # from here on Phi(-a) is 0
    gelu_tanh: tuple[float, float, float, float]  # 2 * sqrt(2 / pi), high and low, and 0.044715 times that
    gelu_tanh_limit: float  # from here on the exponential inside is 0
    sqrt_half_bits: int


SINGLE = Tables(
    mantissa=23,
    bias=127,
    magic=12582912.0,
    magic_bits=0x4B400000,
    largest=3.4028234663852886e38,
    smallest_normal=2.0**-126,
    ln2=(0.693145751953125, 1.428606765330187e-06),
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 129.0),
    tanh_one=9.02,
    expm1_floor=-20.0,
    exp=(
        0.0013921157224103808, 0.008369221352040768, 0.04166710376739502, 0.1666652262210846, 0.4999999701976776, 1.0,
        1.0,
    ),
    exp2=(
        0.00015820233966223896, 0.0013418213929980993, 0.009617063216865063, 0.05550272390246391, 0.24022655189037323,
        0.6931472420692444, 1.0,
    ),
    expm1=(0.0013874582946300507, 0.008369221352040768, 0.041667453944683075, 0.1666652262210846, 0.4999999701976776),
    log=(
        0.05338423326611519, -0.10916363447904587, 0.12108922749757767, -0.12549687922000885, 0.14209559559822083,
        -0.16659367084503174, 0.20002223551273346, -0.2500016689300537, 0.3333331346511841,
    ),
    log2e=(1.4426950216293335, 1.925963033500011e-08),
    erf_small=(
        7.806903158780187e-05, -0.0007997853099368513, 0.005187162198126316, -0.026853347197175026, 0.11283578723669052,
        -0.3761262595653534, 0.12837916612625122,
    ),
    erf_tail=(
        2.1695104805985466e-05, -0.0004414486757013947, 0.0042051891796290874, -0.02521013654768467,
        0.10842185467481613, 0.6332165598869324, 1.1295802593231201, -0.00018846294551622123,
    ),
    erf_one=3.93,
    gelu_near=(
        9.353071800433099e-05, -0.0011681305477395654, 0.009966555051505566, -0.06648948043584824, 0.3989422619342804,
    ),
    normal_tail=(
        -0.04644644632935524, 0.10835239291191101, -0.021276777610182762, 0.09158121049404144, 0.07380333542823792,
        0.09455802291631699, 0.09966013580560684, 0.09973721951246262,
    ),
    normal_k=4.0,
    normal_limit=14.5,
    gelu_tanh=(1.5957691669464111, -4.534068054340423e-08, 0.07135481387376785, 2.3988324659995897e-09),
    gelu_tanh_limit=12.0,
    sqrt_half_bits=0x3F3504F3,
)  # fmt: skip

DOUBLE = Tables(
    mantissa=52,
    bias=1023,
    magic=6755399441055744.0,
    magic_bits=0x4338000000000000,
    largest=1.7976931348623157e308,
    smallest_normal=2.0**-1022,
    ln2=(0.6931471805601177, -1.7239444525614835e-13),
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1025.0),
    tanh_one=19.1,
    expm1_floor=-40.0,
    exp=(
        2.0507385804771506e-09, 2.5106483482358762e-08, 2.755856527808899e-07, 2.7557252115363034e-06,
        2.480158593604131e-05, 0.0001984126987816544, 0.001388888888945492, 0.008333333333324462, 0.04166666666666597,
        0.16666666666666674, 0.5, 1.0, 1.0,
    ),
    exp2=(
        2.875669933197245e-11, 4.473572996038631e-10, 7.0529219526288895e-09, 1.0177931167490533e-07,
        1.3215491409786042e-06, 1.5252734168391734e-05, 0.0001540353038880855, 0.0013333558146032779,
        0.009618129107630253, 0.05550410866482338, 0.2402265069591007, 0.6931471805599453, 1.0,
    ),
    expm1=(
        2.082972301191323e-09, 2.5109096203120222e-08, 2.7557454816116433e-07, 2.755724425232447e-06,
        2.4801587231919767e-05, 0.00019841269885898972, 0.0013888888888880229, 0.008333333333321735,
        0.04166666666666669, 0.16666666666666677, 0.5,
    ),
    log=(
        0.02694429732443916, -0.060471830457828925, 0.064740343115346, -0.0564328104505074, 0.056714383926942946,
        -0.06204341751158984, 0.06684747352501631, -0.07148501725270563, 0.07691469597379262, -0.08332982587549952,
        0.09090929372944997, -0.10000012089059881, 0.1111111090781341, -0.12499999774913262, 0.14285714285487963,
        -0.1666666666863396, 0.20000000000011228, -0.24999999999994732, 0.3333333333333332,
    ),
    log2e=(1.4426950408889634, 2.0355273740931033e-17),
    erf_small=(
        1.4592950159713284e-10, -1.6594468503941837e-09, 1.6042077506242648e-08, -1.6560702937937775e-07,
        1.6481327697478445e-06, -1.4926893996565388e-05, 0.00012055386545304278, -0.0008548328541203847,
        0.005223977652726721, -0.02686617064803105, 0.11283791670971098, -0.376126389031841, 0.1283791670955126,
    ),
    erf_tail=(),
    erf_one=5.95,
    gelu_near=(
        -9.008118490676418e-11, 2.226313486656162e-09, -4.117174681383463e-08, 6.659304231214969e-07,
        -9.444639115559408e-06, 0.00011543468300968838, -0.0011873282147686296, 0.009973557009979917,
        -0.06649038006690375, 0.39894228040143265,
    ),
    normal_tail=(
        -0.004636881818838017, 0.03987755028190889, -0.15444608554346198, 0.35344899272293767, -0.5292190402754746,
        0.5493519489149337, -0.4203603706226578, 0.2541983895684161, -0.11800111466753188, 0.038398046003087744,
        -0.019406605139412184, -6.0635280649377576e-05, 0.00662656878782472, 0.023481022949852617, 0.04323558964745494,
        0.06350428070255543, 0.08103510327631899, 0.09350209894880598, 0.09973557005031579, 0.09973557010093308,
    ),
    normal_k=4.0,
    normal_limit=39.0,
    gelu_tanh=(1.5957691216057308, -9.96930880911092e-17, 0.07135481627260025, -6.175149918155315e-19),
    gelu_tanh_limit=22.0,
    sqrt_half_bits=0x3FE6A09E667F3BCD,
)  # fmt: skip


def tables_of(element: str) -> Tables:
    """The numbers of an LLVM float type."""
    return SINGLE if element == "float" else DOUBLE


def tables(x: Value) -> Tables:
    """The coefficients for a value's format."""
    return tables_of(x.element)


class Reduced(NamedTuple):
    """`x` as `n * unit + remainder`; the integer is a float in `n`, and in the low bits of `marked`.

    Of an `x` known not to be positive, a GPU's thread has `2**(n + LIFTED)` in `power`.
    """

    n: Value
    remainder: Value
    marked: Value
    power: Value | None = None


LIFTED = 65
"""Even with the bias, so that ties round as they do elsewhere; large enough that no power below 1 is a denormal."""


def nearest(f: FunctionText, x: Value, scale: float, lift: int = 0) -> tuple[Value, Value]:
    """The integer nearest to `x * scale`: as a float, and in the low bits of another, there with `lift` added."""
    magic = f.const_like(x, tables(x).magic + lift)
    marked = fma(f, x, f.const_like(x, scale), magic)
    return sub(f, marked, magic), marked


def reduce_ln2(f: FunctionText, x: Value, tail: Value | None = None, falling: bool = False) -> Reduced:
    """`x + tail` as `n * ln 2 + remainder`, the remainder at most about half of ln 2; `falling` promises `x <= 0`."""
    t = tables(x)
    high, low = t.ln2
    is_lifted = falling and is_thread(f, x)
    # Lifted, the low bits are the exponent of a power that is a normal number: it takes a shift to make it.
    n, marked = nearest(f, x, math.log2(math.e), t.bias + LIFTED if is_lifted else 0)
    power = from_bits(f, shift(f, "shl", bits(f, marked), t.mantissa)) if is_lifted else None
    remainder = fma(f, n, f.const_like(x, -high), x)
    if tail is not None:
        remainder = add(f, remainder, tail)
    return Reduced(n, fma(f, n, f.const_like(x, -low), remainder), marked, power)


def power_of_two(f: FunctionText, marked: Value, offset: int = 0) -> Value:
    """`2**(n + offset)` of an integer left in low bits, its exponent being that of a normal number."""
    t = tables(marked)
    shifted = shift(f, "shl", bits(f, marked), t.mantissa)
    return from_bits(f, add(f, shifted, f.const_like(shifted, (t.bias + offset) << t.mantissa)))


def scale(f: FunctionText, x: Value, reduced: Reduced) -> Value:
    """`x * 2**n`, rounded once, down through denormals and up to infinity."""
    if reduced.power is not None:
        return times(f, mul(f, x, reduced.power), 2.0**-LIFTED)
    if f.target.scale_intrinsic and is_whole_register(f, x):
        suffix, mask = ("ps", "i16") if x.element == "float" else ("pd", "i8")
        name = f.target.scale_intrinsic.format(suffix=suffix)
        return f.intrinsic(name, x, reduced.n, x, f.const(mask, -1), f.const("i32", 4), overloads=())
    # Two powers, each a normal number: the first multiplication is exact, the second rounds.
    t = tables(x)
    if is_thread(f, x):
        marked = bits(f, reduced.marked)
        half = f.op("and", shift(f, "shl", marked, t.mantissa - 1), f.const_like(marked, -1 << t.mantissa))
        remainder = sub(f, shift(f, "shl", marked, t.mantissa), half)
        for exponent in (half, remainder):
            x = mul(f, x, from_bits(f, add(f, exponent, f.const_like(marked, t.bias << t.mantissa))))
        return x
    n = sub(f, bits(f, reduced.marked), integer(f, x, t.magic_bits))
    first = shift(f, "ashr", n, 1)
    for half in (first, sub(f, n, first)):
        exponent = shift(f, "shl", add(f, half, f.const_like(half, t.bias)), t.mantissa)
        x = mul(f, x, from_bits(f, exponent))
    return x


def _exp_parts(
    f: FunctionText, x: Value, tail: Value | None, low: float | None, high: float | None
) -> tuple[Value, Reduced]:
    """`e**(x + tail)` before its power of two is put on; without a bound above, `x <= 0` is promised."""
    if low is not None:
        x = at_least(f, x, low)
    if high is not None:
        x = at_most(f, x, high)
    reduced = reduce_ln2(f, x, tail, falling=high is None)
    return horner(f, reduced.remainder, tables(x).exp), reduced


def exp(
    f: FunctionText, x: Value, tail: Value | None = None, negative: bool = False, factor: Value | None = None
) -> Value:
    """`factor * e**(x + tail)`; `negative` promises `x <= 0` and saves a bound.

    The factor is put on before the power of two, so a denormal result is rounded once.
    """
    low, high = tables(x).exp_range
    gone, x = clamp_vanishing(f, x, low)
    mantissa, reduced = _exp_parts(f, x, tail, None, None if negative else high)
    found = scale(f, mantissa if factor is None else mul(f, mantissa, factor), reduced)
    return f.select(gone, f.const_like(found, 0.0), found)


ORDINARY = -87.0
"""From here up to 0, powers of e are normal numbers: the smallest of those is `e**-87.3`."""


def exp_normal(f: FunctionText, x: Value) -> Value:
    """`e**x` of an `x` from `ORDINARY` to 0: nothing is bounded, and its power of two is added to the exponent."""
    n, marked = nearest(f, x, math.log2(math.e))
    high, low = tables(x).ln2
    remainder = fma(f, n, f.const_like(x, -low), fma(f, n, f.const_like(x, -high), x))
    mantissa = bits(f, horner(f, remainder, tables(x).exp))
    # What else is in `marked` is shifted out.
    return from_bits(f, add(f, mantissa, shift(f, "shl", bits(f, marked), tables(x).mantissa)))


def clamp_vanishing(f: FunctionText, x: Value, low: float) -> tuple[Value, Value]:
    """Where a power would round to 0, and the exponent with 0 there instead.

    Computing it would cost far more than all the others: a result below the denormals traps into microcode.
    """
    if is_thread(f, x):
        # Denormals cost a GPU nothing: a little below where the result is 0, it is computed to be 0.
        return f.const("i1", False), at_least(f, x, low - 2.0)
    gone = f.fcmp("olt", x, f.const_like(x, low))
    return gone, f.select(gone, f.const_like(x, 0.0), x)


def reduce_one(f: FunctionText, x: Value, tail: Value | None = None, falling: bool = False) -> Reduced:
    """`x + tail` as `n + remainder`, the remainder at most about a half; `falling` promises `x <= 0`."""
    t, is_lifted = tables(x), falling and is_thread(f, x)
    n, marked = nearest(f, x, 1.0, t.bias + LIFTED if is_lifted else 0)
    power = from_bits(f, shift(f, "shl", bits(f, marked), t.mantissa)) if is_lifted else None
    remainder = sub(f, x, n)
    return Reduced(n, remainder if tail is None else add(f, remainder, tail), marked, power)


def exp2(f: FunctionText, x: Value, tail: Value | None = None, negative: bool = False) -> Value:
    """`2**(x + tail)`; `negative` promises `x <= 0` and saves a bound."""
    low, high = tables(x).exp2_range
    gone, x = clamp_vanishing(f, x, low)
    reduced = reduce_one(f, x if negative else at_most(f, x, high), tail, falling=negative)
    found = scale(f, horner(f, reduced.remainder, tables(x).exp2), reduced)
    return f.select(gone, f.const_like(found, 0.0), found)


def _expm1_reduced(f: FunctionText, remainder: Value) -> Value:
    """`e**remainder - 1` of a reduced argument."""
    return fma(f, mul(f, remainder, remainder), horner(f, remainder, tables(remainder).expm1), remainder)


def expm1(f: FunctionText, x: Value) -> Value:
    """`e**x - 1`, exact in relative terms near zero."""
    t = tables(x)
    bounded = at_most(f, at_least(f, x, t.expm1_floor), t.exp_range[1])
    reduced = reduce_ln2(f, bounded)
    # Half the power of two, so that 2**n does not overflow before the result does.
    half = power_of_two(f, reduced.marked, -1)
    result = fma(f, _expm1_reduced(f, reduced.remainder), half, plus(f, half, -0.5))
    return with_sign(f, add(f, result, result), x)


def tanh(f: FunctionText, x: Value) -> Value:
    """`t / (t + 2)` with `t = e**(2|x|) - 1`: one formula near zero and far out."""
    magnitude = at_most(f, absolute(f, x), tables(x).tanh_one)
    reduced = reduce_ln2(f, add(f, magnitude, magnitude))
    power = power_of_two(f, reduced.marked)
    grown = fma(f, _expm1_reduced(f, reduced.remainder), power, plus(f, power, -1.0))
    return with_sign(f, over(f, grown, plus(f, grown, 2.0)), x)


def over(f: FunctionText, top: Value, bottom: Value) -> Value:
    """`top / bottom`, rounded once, for a finite `top` and a `bottom` from 1 to 2**64 that is 1 or 2 if `top` is tiny.

    A GPU's division also does what is neither, in a branch that keeps it from doing several at a time. This is the
    other branch: a reciprocal and its correction, a quotient corrected twice.
    """
    if not is_thread(f, top):
        return f.op("fdiv", top, bottom)
    negated = f.fneg(bottom)
    guess = f.call("llvm.nvvm.rcp.approx.ftz.f", [bottom], "float")
    inverse = fma(f, guess, fma(f, negated, guess, f.const_like(top, 1.0)), guess)
    quotient = mul(f, top, inverse)
    for _ in range(2):
        # What is too much, so that a zero is taken away from a zero, which keeps its sign.
        excess = fma(f, bottom, quotient, f.fneg(top))
        quotient = fma(f, f.fneg(excess), inverse, quotient)
    return quotient


GATE_OPEN = 32.0
"""From here on `x / (1 + e**-power)` is `x`: the power is at least as large, and 1 plus `e**-32` is 1 in f32."""


def _gate(f: FunctionText, x: Value, power: Value, tail: Value | None = None, is_own: bool = False) -> Value:
    """`x / (1 + e**-power)` with `power` the size of an odd function of `x`, by the formula that does not overflow.

    `is_own` says that the power is the size of `x` itself.
    """
    # A margin, so that `x * e**-|x|` is 0 where both are clamped.
    low = tables(x).exp_range[0] - 10.0
    fallen = at_least(f, f.fneg(power), low)
    mantissa, reduced = _exp_parts(f, fallen, None if tail is None else f.fneg(tail), None, None)
    if not is_thread(f, x):
        small, below = (scale(f, part, reduced) for part in (mantissa, mul(f, mantissa, at_least(f, x, low))))
        top = f.select(f.fcmp("oge", x, f.const_like(x, 0.0)), x, below)
        return f.op("fdiv", top, plus(f, small, 1.0))
    assert reduced.power is not None
    # Exact, and so where `x` is put on later; of a denormal `x` the mantissa is 1.
    lifted, down = mul(f, mantissa, reduced.power), f.const_like(x, 2.0**-LIFTED)
    below = mul(f, mul(f, lifted, fallen if is_own else at_least(f, x, low)), down)
    top = f.select(f.fcmp("oge", x, f.const_like(x, 0.0)), x, below)
    # Rounded once, as it would be after scaling: that is exact, or far below the last bit of 1.
    quotient = over(f, top, fma(f, lifted, down, f.const_like(x, 1.0)))
    return f.select(f.fcmp("ogt", x, f.const_like(x, GATE_OPEN)), x, quotient)


def sigmoid(f: FunctionText, x: Value) -> Value:
    """`1 / (1 + e**-x)`."""
    small = exp(f, f.fneg(absolute(f, x)), negative=True)
    top = f.select(f.fcmp("oge", x, f.const_like(x, 0.0)), f.const_like(x, 1.0), small)
    return over(f, top, plus(f, small, 1.0))


def silu(f: FunctionText, x: Value) -> Value:
    """`x * sigmoid(x)`; its limit -0 at minus infinity."""
    return _gate(f, x, absolute(f, x), is_own=True)


def gelu_tanh(f: FunctionText, x: Value) -> Value:
    """`x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))`.

    The exponent is carried as a pair: a rounding of it would be multiplied by its size in the tail.
    """
    t = tables(x)
    linear, linear_low, cubic, cubic_low = (f.const_like(x, c) for c in t.gelu_tanh)
    # Beyond this bound the exponential is 0; the cube must not reach infinity before it.
    magnitude = at_most(f, absolute(f, x), t.gelu_tanh_limit)
    square, square_low = two_product(f, magnitude, magnitude)
    curve, curve_low = two_product(f, cubic, square)
    slope, slope_low = two_sum(f, curve, linear)
    slope_low = add(f, slope_low, add(f, curve_low, fma(f, cubic, square_low, fma(f, cubic_low, square, linear_low))))
    power, power_low = two_product(f, magnitude, slope)
    power_low = fma(f, magnitude, slope_low, power_low)
    return _gate(f, x, power, power_low)


# The error function and the exact gelu: polynomials up to 1, and beyond it the tail of the normal distribution, which
# is `e**(-a**2 / 2)` times a smooth function of a. The square is carried as a pair: exp multiplies its error.


def _normal_tail(f: FunctionText, a: Value) -> Value:
    """`e**(a**2 / 2)` times the probability of a normal number above `a >= 0`: smooth, from 1/2 down like `0.4 / a`."""
    t = tables(a)
    ratio = over(f, f.const_like(a, t.normal_k), plus(f, a, t.normal_k))
    return mul(f, horner(f, ratio, t.normal_tail), ratio)


def erf(f: FunctionText, x: Value) -> Value:
    """A polynomial up to 1; beyond, 1 less the tail."""
    t = tables(x)
    magnitude = at_most(f, absolute(f, x), t.erf_one)
    square = mul(f, x, x)
    near = fma(f, x, horner(f, square, t.erf_small), x)
    if t.erf_tail:
        far = sub(f, f.const_like(x, 1.0), exp(f, f.fneg(horner(f, magnitude, t.erf_tail)), negative=True))
    else:
        high, low = two_product(f, magnitude, magnitude)
        tail_value = _normal_tail(f, times(f, magnitude, math.sqrt(2.0)))
        decay = exp(f, f.fneg(high), f.fneg(low), negative=True)
        far = fma(f, times(f, decay, -2.0), tail_value, f.const_like(x, 1.0))
    return f.select(f.fcmp("olt", absolute(f, x), f.const_like(x, 1.0)), near, with_sign(f, far, x))


_TAIL_FROM = 0.7072
"""A little above `sqrt(1/2)`, from where on the tail of the normal distribution has a polynomial."""


def erfc(f: FunctionText, x: Value) -> Value:
    """1 less the error function; beyond about 0.7 the tail itself, which has all its digits."""
    bounded = at_most(f, larger(f, x, f.const_like(x, _TAIL_FROM)), tables(x).normal_limit / math.sqrt(2.0))
    high, low = two_product(f, bounded, bounded)
    tail_value = times(f, _normal_tail(f, times(f, bounded, math.sqrt(2.0))), 2.0)
    far = exp(f, f.fneg(high), f.fneg(low), negative=True, factor=tail_value)
    near = sub(f, f.const_like(x, 1.0), erf(f, x))
    return f.select(f.fcmp("ogt", x, f.const_like(x, _TAIL_FROM)), far, near)


def gelu_erf(f: FunctionText, x: Value) -> Value:
    """`x` times the probability of a normal number below `x`, without cancellation.

    A polynomial up to 1; beyond, `max(x, 0) - |x| * tail(|x|)`.
    """
    t = tables(x)
    magnitude = absolute(f, x)
    near = fma(f, mul(f, x, x), horner(f, mul(f, x, x), t.gelu_near), times(f, x, 0.5))
    bounded = at_most(f, magnitude, t.normal_limit)
    high, low = two_product(f, bounded, bounded)
    tail_value = mul(f, bounded, _normal_tail(f, bounded))
    lost = exp(f, times(f, high, -0.5), times(f, low, -0.5), negative=True, factor=tail_value)
    positive = f.select(f.fcmp("olt", x, f.const_like(x, 0.0)), f.const_like(x, -0.0), x)
    return f.select(f.fcmp("olt", magnitude, f.const_like(x, 1.0)), near, sub(f, positive, lost))
