"""Functions whose result is rounded to bf16 at once: the machine's own powers and reciprocals are close enough.

`ex2.approx` is within 2 and `rcp.approx` within 1 unit of the last place of f32 (PTX ISA), so before the rounding each
is within 0.01 units of bf16; `gelu_erf` within 0.1 above -4, where it is 1e-4, and within 4 below. Both machine
functions share one slow unit: two reciprocals are made of one, and a gate is computed on the side where it is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tessera.backends.nvptx.hopper_assembly import pure
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, at_least, at_most, fma, horner, mul, plus, times

_LOG2E = math.log2(math.e)
_LOG2E_HIGH = 1.4426950216293335
"""The nearest f32."""
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Coefficients of `erfc(z) exp(z * z)` in `1 / (1 + p z)`, highest power first (Abramowitz and Stegun 7.1.26)."""
_ERFC_P = 0.3275911
_FLAT = 24.0
"""Beyond this both gelu are 0 on one side and their argument on the other."""
_FLAT_SILU = 160.0
"""The same of silu."""
_LARGE, _SMALL = 2.0**100, 2.0**-100
"""Divisors beyond these are brought between them, since reciprocals of some would be flushed to 0 or infinite."""


def power(f: FunctionText, x: Value) -> Value:
    """2 to the power of x."""
    return pure(f, "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], "float")


def exponential(f: FunctionText, x: Value) -> Value:
    """`e` to the power of x, within 3 units of the last place of f32.

    The machine's power of two, and what the rounding of its argument left out; what is below the smallest normal number
    is 0.
    """
    # Between the ends nothing overflows but the result, and there is nothing to add to an infinite one.
    inside = at_most(f, at_least(f, x, -128.0), 128.0)
    high = times(f, inside, _LOG2E_HIGH)
    low = fma(f, inside, f.const_like(x, _LOG2E_HIGH), f.fneg(high))
    low = fma(f, inside, f.const_like(x, _LOG2E - _LOG2E_HIGH), low)
    first = power(f, high)
    whole = fma(f, first, times(f, low, math.log(2)), first)
    return f.select(f.fcmp("oeq", first, f.const_like(x, math.inf)), first, whole)


def reciprocal(f: FunctionText, x: Value) -> Value:
    """1 / x."""
    return pure(f, "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], "float")


def _reciprocals(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    """1 / x of each, whose products in pairs are far from overflow: one reciprocal for two."""
    found: list[Value] = []
    for at in range(0, len(values) - 1, 2):
        one, other = values[at : at + 2]
        both = reciprocal(f, mul(f, one, other))
        found += [mul(f, both, other), mul(f, both, one)]
    return found + [reciprocal(f, value) for value in values[len(found) :]]


def _exp(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    return [power(f, times(f, x, _LOG2E)) for x in values]


def _sigmoid(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    tails = [power(f, times(f, absolute(f, x), -_LOG2E)) for x in values]
    shares = _reciprocals(f, [plus(f, tail, 1.0) for tail in tails])
    zero, one = f.const_like(values[0], 0.0), f.const_like(values[0], 1.0)
    above = [f.select(f.fcmp("olt", x, zero), tail, one) for x, tail in zip(values, tails, strict=True)]
    return [mul(f, a, share) for a, share in zip(above, shares, strict=True)]


def _with_tails(
    f: FunctionText, values: Sequence[Value], sizes: Sequence[Value], tails: Sequence[Value]
) -> list[Value]:
    """`x / (1 + t)` where `x` is positive, else `x t / (1 + t)`: without cancellation, and no infinity times 0.

    Both are what is positive of `x`, or -0, less `|x| t / (1 + t)`.
    """
    shares = _reciprocals(f, [plus(f, tail, 1.0) for tail in tails])
    found: list[Value] = []
    for x, size, tail, share in zip(values, sizes, tails, shares, strict=True):
        rest = f.intrinsic("maximum", x, f.const_like(x, -0.0))
        found.append(fma(f, f.fneg(mul(f, size, tail)), share, rest))
    return found


def _silu(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    sizes = [at_most(f, absolute(f, x), _FLAT_SILU) for x in values]
    return _with_tails(f, values, sizes, [power(f, times(f, size, -_LOG2E)) for size in sizes])


def _gelu_tanh(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    """`x / (1 + exp(-2 u))`, which is `x / 2 (1 + tanh u)`."""
    linear, cubic = -2 * _LOG2E * _TANH_SCALE, -2 * _LOG2E * _TANH_CUBE * _TANH_SCALE
    sizes = [at_most(f, absolute(f, x), _FLAT) for x in values]
    slopes = [fma(f, mul(f, x, x), f.const_like(x, cubic), f.const_like(x, linear)) for x in sizes]
    return _with_tails(f, values, sizes, [power(f, mul(f, x, slope)) for x, slope in zip(sizes, slopes, strict=True)])


def _gelu_erf(f: FunctionText, values: Sequence[Value]) -> list[Value]:
    """`x / 2 erfc(-x / sqrt 2)`, from the tail that is small."""
    sizes = [at_most(f, absolute(f, x), _FLAT) for x in values]
    scale = _ERFC_P * math.sqrt(0.5)
    turned = _reciprocals(f, [fma(f, x, f.const_like(x, scale), f.const_like(x, 1.0)) for x in sizes])
    found: list[Value] = []
    for x, size, t in zip(values, sizes, turned, strict=True):
        tail = mul(f, t, horner(f, t, [0.5 * one for one in _ERFC]))
        tail = mul(f, tail, power(f, times(f, mul(f, size, size), -0.5 * _LOG2E)))
        rest = f.intrinsic("maximum", x, f.const_like(x, -0.0))
        found.append(fma(f, f.fneg(size), tail, rest))
    return found


NARROW: Mapping[str, Callable[[FunctionText, Sequence[Value]], list[Value]]] = {
    "exp": _exp,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
"""By name, for f32."""


def narrow_math(f: FunctionText, fn: str, values: Sequence[Value]) -> list[Value]:
    """A function of f32 whose results are rounded to bf16; equal values are computed once."""
    distinct = {value.text: value for value in values}
    made = dict(zip(distinct, NARROW[fn](f, list(distinct.values())), strict=True))
    return [made[value.text] for value in values]


def quotients(f: FunctionText, above: Sequence[Value], below: Sequence[Value]) -> list[Value]:
    """Quotients that are rounded to bf16; a divisor that many share is turned over once."""
    scales: dict[str, Value] = {}
    turned: dict[str, Value] = {}
    for value in dict.fromkeys(below):
        size, one = absolute(f, value), f.const_like(value, 1.0)
        is_large = f.fcmp("ogt", size, f.const_like(value, _LARGE))
        is_small = f.fcmp("olt", size, f.const_like(value, _SMALL))
        scale = f.select(is_small, f.const_like(value, 2.0**64), one)
        scales[value.text] = f.select(is_large, f.const_like(value, 2.0**-64), scale)
        turned[value.text] = reciprocal(f, mul(f, value, scales[value.text]))
    return [mul(f, mul(f, a, scales[b.text]), turned[b.text]) for a, b in zip(above, below, strict=True)]


PAIRED = ("add", "sub", "mul")
"""Functions of two bf16 that are rounded to bf16: f32 has more than twice its bits, so rounding once is the same."""


def paired_math(f: FunctionText, fn: str, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """A function of pairs of bf16, rounded to bf16."""
    text = f"{fn}.rn.bf16x2 $0, $1, $2;"
    return [pure(f, text, "=r,r,r", pair, "i32") for pair in zip(left, right, strict=True)]
