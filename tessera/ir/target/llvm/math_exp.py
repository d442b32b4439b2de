"""Exponentials and the functions made of them, on vectors of f32 or f64; no library is called.

Every lane runs the same steps whatever the vector width, so a value's result depends on the value alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tessera.ir.target.llvm.math_tables import Tables, tables_of
from tessera.ir.target.llvm.text import FunctionText, Value
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
    product,
    shift,
    sub,
    total,
    with_sign,
)


def tables(x: Value) -> Tables:
    """The coefficients for a value's format."""
    return tables_of(x.element)


class Reduced(NamedTuple):
    """`x` as `n * unit + rest`; the integer is a float in `n`, and sits in the low bits of `marked`."""

    n: Value
    rest: Value
    marked: Value


def nearest(f: FunctionText, x: Value, scale: float) -> tuple[Value, Value]:
    """The integer nearest to `x * scale`: as a float, and left in the low bits of another."""
    magic = f.const_like(x, tables(x).magic)
    marked = fma(f, x, f.const_like(x, scale), magic)
    return sub(f, marked, magic), marked


def reduce_ln2(f: FunctionText, x: Value, tail: Value | None = None) -> Reduced:
    """`x + tail` as `n * ln 2 + rest`, the rest at most about half of ln 2."""
    high, low = tables(x).ln2
    n, marked = nearest(f, x, math.log2(math.e))
    rest = fma(f, n, f.const_like(x, -high), x)
    if tail is not None:
        rest = add(f, rest, tail)
    return Reduced(n, fma(f, n, f.const_like(x, -low), rest), marked)


def power_of_two(f: FunctionText, marked: Value, offset: int = 0) -> Value:
    """`2**(n + offset)` of an integer left in low bits, its exponent being that of a normal number."""
    t = tables(marked)
    shifted = shift(f, "shl", bits(f, marked), t.mantissa)
    return from_bits(f, add(f, shifted, f.const_like(shifted, (t.bias + offset) << t.mantissa)))


def scaled(f: FunctionText, x: Value, reduced: Reduced) -> Value:
    """`x * 2**n`, rounded once, down through denormals and up to infinity."""
    if is_whole_register(f, x):
        suffix, mask = ("ps", "i16") if x.element == "float" else ("pd", "i8")
        name = f"x86.avx512.mask.scalef.{suffix}.512"
        return f.intrinsic(name, x, reduced.n, x, f.const(mask, -1), f.const("i32", 4))
    # Two powers, each a normal number: the first product is exact, the second rounds.
    t = tables(x)
    if is_thread(f, x):
        marked = bits(f, reduced.marked)
        half = f.op("and", shift(f, "shl", marked, t.mantissa - 1), f.const_like(marked, -1 << t.mantissa))
        rest = sub(f, shift(f, "shl", marked, t.mantissa), half)
        for exponent in (half, rest):
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
    """`e**(x + tail)` before its power of two is put on."""
    if low is not None:
        x = at_least(f, x, low)
    if high is not None:
        x = at_most(f, x, high)
    reduced = reduce_ln2(f, x, tail)
    return horner(f, reduced.rest, tables(x).exp), reduced


def exp(
    f: FunctionText, x: Value, tail: Value | None = None, negative: bool = False, factor: Value | None = None
) -> Value:
    """`factor * e**(x + tail)`; `negative` promises `x <= 0` and saves a bound.

    The factor is put on before the power of two, so a denormal result is rounded once.
    """
    low, high = tables(x).exp_range
    gone, x = without_vanishing(f, x, low)
    mantissa, reduced = _exp_parts(f, x, tail, None, None if negative else high)
    found = scaled(f, mantissa if factor is None else mul(f, mantissa, factor), reduced)
    return f.select(gone, f.const_like(found, 0.0), found)


def without_vanishing(f: FunctionText, x: Value, low: float) -> tuple[Value, Value]:
    """Where a power would round to 0, and the exponent with 0 there instead.

    Computing it would cost far more than the rest: a result below the denormals traps into microcode.
    """
    if is_thread(f, x):
        # Denormals cost a GPU nothing: a little below where the result is 0, it is computed to be 0.
        return f.const("i1", False), at_least(f, x, low - 2.0)
    gone = f.fcmp("olt", x, f.const_like(x, low))
    return gone, f.select(gone, f.const_like(x, 0.0), x)


def reduce_one(f: FunctionText, x: Value, tail: Value | None = None) -> Reduced:
    """`x + tail` as `n + rest`, the rest at most about a half."""
    n, marked = nearest(f, x, 1.0)
    rest = sub(f, x, n)
    return Reduced(n, rest if tail is None else add(f, rest, tail), marked)


def exp2(f: FunctionText, x: Value, tail: Value | None = None) -> Value:
    """`2**(x + tail)`."""
    low, high = tables(x).exp2_range
    gone, x = without_vanishing(f, x, low)
    reduced = reduce_one(f, at_most(f, x, high), tail)
    found = scaled(f, horner(f, reduced.rest, tables(x).exp2), reduced)
    return f.select(gone, f.const_like(found, 0.0), found)


def _expm1_rest(f: FunctionText, rest: Value) -> Value:
    """`e**rest - 1` of a reduced argument."""
    return fma(f, mul(f, rest, rest), horner(f, rest, tables(rest).expm1), rest)


def expm1(f: FunctionText, x: Value) -> Value:
    """`e**x - 1`, exact in relative terms near zero."""
    t = tables(x)
    bounded = at_most(f, at_least(f, x, t.expm1_floor), t.exp_range[1])
    reduced = reduce_ln2(f, bounded)
    # Half the power of two, so that 2**n does not overflow before the result does.
    half = power_of_two(f, reduced.marked, -1)
    result = fma(f, _expm1_rest(f, reduced.rest), half, plus(f, half, -0.5))
    return with_sign(f, add(f, result, result), x)


def tanh(f: FunctionText, x: Value) -> Value:
    """`t / (t + 2)` with `t = e**(2|x|) - 1`: one formula near zero and far out."""
    magnitude = at_most(f, absolute(f, x), tables(x).tanh_one)
    reduced = reduce_ln2(f, add(f, magnitude, magnitude))
    power = power_of_two(f, reduced.marked)
    grown = fma(f, _expm1_rest(f, reduced.rest), power, plus(f, power, -1.0))
    return with_sign(f, f.op("fdiv", grown, plus(f, grown, 2.0)), x)


def _gated(f: FunctionText, x: Value, power: Value, tail: Value | None = None) -> Value:
    """`x / (1 + e**-power)` with `power` the size of an odd function of `x`, from the side that does not overflow."""
    # A margin, so that `x * e**-|x|` has reached 0 where both stop falling.
    low = tables(x).exp_range[0] - 10.0
    mantissa, reduced = _exp_parts(f, f.fneg(power), None if tail is None else f.fneg(tail), low, None)
    small = scaled(f, mantissa, reduced)
    below = scaled(f, mul(f, mantissa, at_least(f, x, low)), reduced)
    top = f.select(f.fcmp("oge", x, f.const_like(x, 0.0)), x, below)
    return f.op("fdiv", top, plus(f, small, 1.0))


def sigmoid(f: FunctionText, x: Value) -> Value:
    """`1 / (1 + e**-x)`."""
    small = exp(f, f.fneg(absolute(f, x)), negative=True)
    top = f.select(f.fcmp("oge", x, f.const_like(x, 0.0)), f.const_like(x, 1.0), small)
    return f.op("fdiv", top, plus(f, small, 1.0))


def silu(f: FunctionText, x: Value) -> Value:
    """`x * sigmoid(x)`; its limit -0 at minus infinity."""
    return _gated(f, x, absolute(f, x))


def gelu_tanh(f: FunctionText, x: Value) -> Value:
    """`x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))`.

    The exponent is carried as a pair: a rounding of it would be multiplied by its size in the tail.
    """
    t = tables(x)
    linear, linear_low, cubic, cubic_low = (f.const_like(x, c) for c in t.gelu_tanh)
    # Beyond this bound the exponential is 0; the cube must not reach infinity before it.
    magnitude = at_most(f, absolute(f, x), t.gelu_tanh_limit)
    square, square_low = product(f, magnitude, magnitude)
    curve, curve_low = product(f, cubic, square)
    slope, slope_low = total(f, curve, linear)
    slope_low = add(f, slope_low, add(f, curve_low, fma(f, cubic, square_low, fma(f, cubic_low, square, linear_low))))
    power, power_low = product(f, magnitude, slope)
    power_low = fma(f, magnitude, slope_low, power_low)
    return _gated(f, x, power, power_low)
