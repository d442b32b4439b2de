"""Functions whose result is rounded to bf16 at once: the machine's own powers and reciprocals are close enough.

`ex2.approx` is within 2 and `rcp.approx` within 1 unit of the last place of f32 (PTX ISA), so before the rounding each
is within 0.01 units of bf16; `gelu_erf` within 0.1 above -4, where it is 1e-4, and within 4 below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tessera.backends.nvptx.hopper_assembly import pure
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, add, at_least, at_most, fma, horner, mul, plus, times

_LOG2E = math.log2(math.e)
_LOG2E_HIGH = 1.4426950216293335
"""The nearest f32."""
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Coefficients of `erfc(z) exp(z * z)` in `1 / (1 + p z)`, highest power first (Abramowitz and Stegun 7.1.26)."""
_ERFC_P = 0.3275911


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


def _sigmoid(f: FunctionText, x: Value) -> Value:
    return reciprocal(f, plus(f, power(f, times(f, x, -_LOG2E)), 1.0))


def _silu(f: FunctionText, x: Value) -> Value:
    return mul(f, x, _sigmoid(f, x))


def _gelu_tanh(f: FunctionText, x: Value) -> Value:
    """`x / (1 + exp(-2 u))`, which is `x / 2 (1 + tanh u)` without its cancellation."""
    cube = _TANH_CUBE * _TANH_SCALE
    inner = fma(f, mul(f, x, x), f.const_like(x, -2 * _LOG2E * cube), f.const_like(x, -2 * _LOG2E * _TANH_SCALE))
    return mul(f, x, reciprocal(f, plus(f, power(f, mul(f, x, inner)), 1.0)))


def _gelu_erf(f: FunctionText, x: Value) -> Value:
    """`x / 2 erfc(-x / sqrt 2)`, from the tail that is small."""
    size = times(f, absolute(f, x), math.sqrt(0.5))
    t = reciprocal(f, fma(f, size, f.const_like(x, _ERFC_P), f.const_like(x, 1.0)))
    tail = mul(
        f, mul(f, t, horner(f, t, [0.5 * one for one in _ERFC])), power(f, times(f, mul(f, size, size), -_LOG2E))
    )
    part = mul(f, x, tail)
    rest = add(f, x, f.fneg(part))
    return f.select(f.fcmp("olt", x, f.const_like(x, 0.0)), part, rest)


NARROW: Mapping[str, Callable[[FunctionText, Value], Value]] = {
    "exp": lambda f, x: power(f, times(f, x, _LOG2E)),
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
"""By name, for f32."""


def narrow_math(f: FunctionText, fn: str, args: Sequence[Value]) -> Value:
    """A function of one f32 whose result is rounded to bf16."""
    return NARROW[fn](f, args[0])


def quotients(f: FunctionText, above: Sequence[Value], below: Sequence[Value]) -> list[Value]:
    """Quotients that are rounded to bf16; a divisor that many share is turned over once."""
    turned = {value.text: reciprocal(f, value) for value in dict.fromkeys(below)}
    return [mul(f, a, turned[b.text]) for a, b in zip(above, below, strict=True)]
