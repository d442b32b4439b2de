"""Exponentials and the functions made of them, on vectors of f32 or f64; no library is called.

All follow one scheme: `x = n * ln 2 + r` with |r| <= ln 2 / 2, a minimax polynomial (`math_tables.py`) for `e**r`, and
`2**n` put on through the exponent bits. Every lane runs the same steps whatever the vector width, so a value's result
depends on the value alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_tables import Tables, tables_of
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
    mul,
    plus,
    shift,
    sub,
    times,
    two_product,
    two_sum,
    with_sign,
)


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


def reduce_one(f: FunctionText, x: Value, tail: Value | None = None) -> Reduced:
    """`x + tail` as `n + remainder`, the remainder at most about a half."""
    n, marked = nearest(f, x, 1.0)
    remainder = sub(f, x, n)
    return Reduced(n, remainder if tail is None else add(f, remainder, tail), marked)


def exp2(f: FunctionText, x: Value, tail: Value | None = None) -> Value:
    """`2**(x + tail)`."""
    low, high = tables(x).exp2_range
    gone, x = clamp_vanishing(f, x, low)
    reduced = reduce_one(f, at_most(f, x, high), tail)
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
