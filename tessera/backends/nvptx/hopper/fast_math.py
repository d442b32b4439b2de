"""Functions whose result is then rounded to bf16: the machine's approximate exp2 and reciprocals are close enough.

`ex2.approx` is within 2 and `rcp.approx` within 1 unit of the last place of f32 (PTX ISA), so before the rounding each
is within 0.01 units of bf16. As few instructions as can be: beside dots they take no time of their own, but energy,
and that is what large dots are bound by.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tessera.backends.nvptx.mma.assembly import pure
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, at_least, at_most, fma, horner, mul, plus, times

_Key = TypeVar("_Key")

_LOG2E = math.log2(math.e)
_LOG2E_HIGH = 1.4426950216293335
"""The nearest f32."""
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
"""Constants of the definition of gelu by tanh."""
ERFC = (-0.182126836, 0.39767227, 0.169269007, 0.316070734, 0.299086977)
"""Coefficients of `erfc(z) exp(z * z)` in `t = 1 / (1 + p z)`, times t, highest power first.

They have the smallest relative error between 0 and 9.5, beyond which the gate is below 2^-126: 2.8e-5, or 0.007
units of bf16. An absolute error would not do: the tail is a result of its own where x is negative.
"""
ERFC_P = 0.532
"""`p` above, found with the coefficients."""
FLOORS = {"gelu_tanh": -24.0, "gelu_erf": -24.0, "silu": -160.0}
"""Below these functions are -0, and what they are made of is an infinity times 0: arguments are held there."""
_LARGE, _SMALL = 2.0**100, 2.0**-100
"""Divisors beyond these are scaled between them, since reciprocals of some would be flushed to 0 or infinite."""


def map_once(make: Callable[[_Key], Value], keys: Sequence[_Key]) -> list[Value]:
    """A value for each key; equal keys have one value, which is made where the first of them is."""
    made: dict[_Key, Value] = {}
    for key in keys:
        if key not in made:
            made[key] = make(key)
    return [made[key] for key in keys]


def exp2(f: FunctionText, x: Value) -> Value:
    """2 to the power of x."""
    return pure(f, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], "float")


def exponential(f: FunctionText, x: Value) -> Value:
    """`e` to the power of x, within 3 units of the last place of f32.

    The machine's exp2, and what the rounding of its argument left out; what is below the smallest normal number
    is 0.
    """
    # Between the ends nothing overflows but the result, and there is nothing to add to an infinite one.
    inside = at_most(f, at_least(f, x, -128.0), 128.0)
    high = times(f, inside, _LOG2E_HIGH)
    low = fma(f, inside, f.const_like(x, _LOG2E_HIGH), f.fneg(high))
    low = fma(f, inside, f.const_like(x, _LOG2E - _LOG2E_HIGH), low)
    first = exp2(f, high)
    whole = fma(f, first, times(f, low, math.log(2)), first)
    return f.select(f.fcmp("oeq", first, f.const_like(x, math.inf)), first, whole)


def reciprocal(f: FunctionText, x: Value) -> Value:
    """1 / x."""
    return pure(f, "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], "float")


def share(f: FunctionText, x: Value) -> Value:
    """The sigmoid of x, within 6 units of the last place of f32; what is below the smallest normal number is 0."""
    return reciprocal(f, plus(f, exponential(f, f.fneg(x)), 1.0))


def _exp(f: FunctionText, x: Value) -> Value:
    return exp2(f, times(f, x, _LOG2E))


def _sigmoid(f: FunctionText, x: Value) -> Value:
    return reciprocal(f, plus(f, exp2(f, times(f, x, -_LOG2E)), 1.0))


def _silu(f: FunctionText, x: Value) -> Value:
    return mul(f, x, _sigmoid(f, x))


def _gelu_tanh(f: FunctionText, x: Value) -> Value:
    """`x / (1 + exp(-2 u))`, which is `x / 2 (1 + tanh u)` without its cancellation."""
    linear, cubic = -2 * _LOG2E * _TANH_SCALE, -2 * _LOG2E * _TANH_CUBE * _TANH_SCALE
    slope = fma(f, mul(f, x, x), f.const_like(x, cubic), f.const_like(x, linear))
    return mul(f, x, reciprocal(f, plus(f, exp2(f, mul(f, x, slope)), 1.0)))


def _gelu_erf(f: FunctionText, x: Value) -> Value:
    """`x / 2 erfc(-x / sqrt 2)`: what is positive of `x`, or -0, less `|x|` times the tail that is small."""
    size = at_most(f, absolute(f, x), -FLOORS["gelu_erf"])
    t = reciprocal(f, fma(f, size, f.const_like(x, ERFC_P * math.sqrt(0.5)), f.const_like(x, 1.0)))
    tail = mul(f, t, horner(f, t, [0.5 * one for one in ERFC]))
    tail = mul(f, tail, exp2(f, times(f, mul(f, size, size), -0.5 * _LOG2E)))
    return fma(f, f.fneg(size), tail, f.intrinsic("maximum", x, f.const_like(x, -0.0)))


NARROW: Mapping[str, Callable[[FunctionText, Value], Value]] = {
    "exp": _exp,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
"""By name, for f32."""


def narrow_math(f: FunctionText, fn: str, values: Sequence[Value], is_floored: bool = False) -> list[Value]:
    """A function of f32 whose results are rounded to bf16; equal values are computed once."""
    floor = None if is_floored else FLOORS.get(fn)
    return map_once(lambda x: NARROW[fn](f, x if floor is None else at_least(f, x, floor)), values)


def hold_above_floor(f: FunctionText, fn: str, pairs: Sequence[Value]) -> list[Value]:
    """Pairs of bf16, none of them below the floor of a function; NaN stays."""
    (word,) = struct.unpack("<I", struct.pack("<f", FLOORS[fn]))
    both = Value("i32", str((word >> 16) * 0x10001))
    return [pure(f, "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [pair, both], "i32") for pair in pairs]


def quotients(f: FunctionText, above: Sequence[Value], below: Sequence[Value]) -> list[Value]:
    """Quotients that are rounded to bf16; a divisor that many share is inverted once."""
    scales: dict[str, Value] = {}
    inverses: dict[str, Value] = {}
    for value in dict.fromkeys(below):
        size, one = absolute(f, value), f.const_like(value, 1.0)
        is_large = f.fcmp("ogt", size, f.const_like(value, _LARGE))
        is_small = f.fcmp("olt", size, f.const_like(value, _SMALL))
        scale = f.select(is_small, f.const_like(value, 2.0**64), one)
        scales[value.text] = f.select(is_large, f.const_like(value, 2.0**-64), scale)
        inverses[value.text] = reciprocal(f, mul(f, value, scales[value.text]))
    return [mul(f, mul(f, a, scales[b.text]), inverses[b.text]) for a, b in zip(above, below, strict=True)]


PAIRED = ("add", "sub", "mul")
"""Functions of two bf16 that are rounded to bf16: f32 has more than twice its bits, so rounding once is the same."""


def paired_math(f: FunctionText, fn: str, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """A function of pairs of bf16, rounded to bf16."""
    text = f"{fn}.rn.bf16x2 $0, $1, $2;"
    return [pure(f, text, "=r,r,r", pair, "i32") for pair in zip(left, right, strict=True)]
