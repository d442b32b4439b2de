"""Functions of one bf16 that are rounded to bf16 at once: the machine's powers and reciprocals, every bit as it was.

There are 65536 such arguments, so that a short formula can be held against the long one at each of them. With powers
off by up to 2 units of the last place of f32 and reciprocals by 1, as PTX promises, both `gelu` round to the same bf16
everywhere; the others do at all arguments but a few, of which a Hopper was asked (`tests/device/test_rows.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tessera.backends.nvptx.values import cast, halves, minmax_pairs, word_of
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, at_least, at_most, fma, horner, mul, times
from tessera.types.dtype import bf16, f32

_LOG2E = math.log2(math.e)
_LOWEST = 0xFF7F
"""The bits of the lowest finite bf16, which stands for minus infinity: what is multiplied by a power of 0 is then 0."""
_ALL_OF_IT = 13.0
"""Half an exponent from which on the gate is 1."""
_ONE = 1.0 - 2.0**-24
"""The last f32 before 1: with it a Hopper's tables are right where they would not be with 1, at -2**-8."""
_TANH_LINEAR, _TANH_CUBIC = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
TAIL_SLOPE = 0.30000001192092896
TAIL = (
    0.03575434908270836, -0.15749506652355194, 0.20679397881031036, -0.054036643356084824, 0.12872348725795746,
    0.09987112134695053, 0.12075981497764587, 0.11962896585464478,
)  # fmt: skip
"""`exp(a**2 / 2)` times the normal distribution's share above `a`, over `v = 1 / (1 + slope * a)`, divided by `v`.

A minimax fit of the relative error from 0 to 14, with a half at 0 to the last bit; highest power first.
"""
_TAIL_END = 14.5


def _power(f: FunctionText, x: Value) -> Value:
    return f.call("llvm.nvvm.ex2.approx.ftz.f", [x], "float")


def _reciprocal(f: FunctionText, x: Value) -> Value:
    return f.call("llvm.nvvm.rcp.approx.ftz.f", [x], "float")


def _gate(f: FunctionText, half: Value) -> tuple[Value, Value]:
    """Factors of `1 / (1 + 2**(-2 * half))`: a power that is a normal number where the gate is not, and the rest."""
    power = _power(f, at_most(f, half, _ALL_OF_IT))
    return power, mul(f, power, _reciprocal(f, fma(f, power, power, f.const_like(half, _ONE))))


def _sigmoid(f: FunctionText, x: Value) -> Value:
    power, rest = _gate(f, times(f, x, _LOG2E / 2))
    return mul(f, rest, power)


def _silu(f: FunctionText, x: Value) -> Value:
    power, rest = _gate(f, times(f, x, _LOG2E / 2))
    return mul(f, mul(f, x, rest), power)


def _gelu_tanh(f: FunctionText, x: Value) -> Value:
    linear, cubic = (f.const_like(x, number * _LOG2E / 2) for number in (_TANH_LINEAR, _TANH_CUBIC))
    power, rest = _gate(f, mul(f, x, fma(f, mul(f, x, x), cubic, linear)))
    return mul(f, mul(f, x, rest), power)


def _gelu_erf(f: FunctionText, x: Value) -> Value:
    size = at_most(f, absolute(f, x), _TAIL_END)
    v = _reciprocal(f, fma(f, size, f.const_like(x, TAIL_SLOPE), f.const_like(x, 1.0)))
    tail = mul(f, horner(f, v, TAIL), v)
    # The square root of the density's power, which is a normal number where its square is not.
    root = _power(f, times(f, mul(f, size, size), -_LOG2E / 4))
    return fma(f, f.fneg(mul(f, size, root)), mul(f, root, tail), at_least(f, x, 0.0))


SHORT: Mapping[str, Callable[[FunctionText, Value], Value]] = {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
"""By name: f32 with the value of a bf16 to f32 that is rounded to bf16."""
ASKED = ("sm_90", "sm_90a")
"""The machines whose own powers and reciprocals have been seen to do."""
_FLOORED = ("silu", "gelu_tanh")
"""Those that are 0 times their argument at minus infinity."""


def short(f: FunctionText, name: str, given: Sequence[Value]) -> list[Value]:
    """A function of `SHORT` on bf16, an even number of them, rounded to bf16."""
    elements = list(given)
    if name in _FLOORED:
        floor = Value("i32", str(_LOWEST << 16 | _LOWEST))
        words = (word_of(f, low, high) for low, high in zip(given[::2], given[1::2], strict=True))
        elements = [part for word in words for part in halves(f, minmax_pairs(f, "max", word, floor))]
    return cast(f, [SHORT[name](f, x) for x in cast(f, elements, bf16, f32)], f32, bf16)
