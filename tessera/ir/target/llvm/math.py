"""Scalar functions on vectors of any width: `emit` writes the one of a name for a dtype; here too are exact ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_integer import any_lane
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    bits,
    fma,
    from_bits,
    larger,
    mul,
    plus,
    shift,
    smaller,
    sub,
    times,
    with_sign,
)
from tessera.types.dtype import DType

Writer: TypeAlias = Callable[[FunctionText, Sequence[Value], bool], Value]
"""Writes one function of the table: the operands, and whether integers are signed."""


def emit(f: FunctionText, name: str, args: Sequence[Value], dtype: DType) -> Value:
    """One function of the table on vectors (or scalars) of a compute dtype; comparisons and tests give i1 lanes.

    Floats are f32 or f64, integers of their own width, bools i1 lanes; all lanes are computed, nothing traps.
    """
    emission = SCALAR_FUNCTIONS[name].emission_for(dtype)
    if not emission:
        raise ValueError(f"no `{name}` for {dtype.name}")
    return _writer(emission, dtype.is_float)(f, args, dtype.kind == "int")


@cache
def _writer(emission: str, is_float: bool) -> Writer:
    """What an entry of the table says of its LLVM: a function of this package, an intrinsic, or an instruction."""
    if ":" in emission:
        module, _, name = emission.partition(":")
        function = getattr(importlib.import_module(f"tessera.ir.target.llvm.{module}"), name)
        if is_float:
            return lambda f, args, signed: function(f, *args)
        return lambda f, args, signed: function(f, *args, signed)
    if emission.startswith("llvm."):
        intrinsic = emission.removeprefix("llvm.")
        return lambda f, args, signed: f.intrinsic(intrinsic, *args)
    instruction, _, predicate = emission.partition(" ")
    if instruction == "fcmp":
        return lambda f, args, signed: f.fcmp(predicate, args[0], args[1])
    if instruction == "icmp":
        prefixes = ("", "") if predicate in ("eq", "ne") else ("u", "s")
        return lambda f, args, signed: f.icmp(prefixes[signed] + predicate, args[0], args[1])
    if instruction == "fneg":
        return lambda f, args, signed: f.fneg(args[0])
    return lambda f, args, signed: f.op(instruction, args[0], args[1])


# Functions of floats that need a line or two.


def sign(f: FunctionText, x: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    zero = f.const_like(x, 0.0)
    # Adding zero makes -0 a 0 and leaves NaN.
    others = f.select(f.fcmp("olt", x, zero), f.const_like(x, -1.0), add(f, x, zero))
    return f.select(f.fcmp("ogt", x, zero), f.const_like(x, 1.0), others)


def relu(f: FunctionText, x: Value) -> Value:
    """0 below 0; NaN stays."""
    zero = f.const_like(x, 0.0)
    return f.select(f.fcmp("olt", x, zero), zero, x)


def maximum(f: FunctionText, a: Value, b: Value) -> Value:
    """The larger; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, larger(f, a, b))


def minimum(f: FunctionText, a: Value, b: Value) -> Value:
    """The smaller; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, smaller(f, a, b))


def isnan(f: FunctionText, x: Value) -> Value:
    """Whether `x` is not a number."""
    return f.fcmp("uno", x, x)


def isinf(f: FunctionText, x: Value) -> Value:
    """Whether `x` is infinite."""
    return f.fcmp("oeq", absolute(f, x), f.const_like(x, float("inf")))


def reciprocal(f: FunctionText, x: Value) -> Value:
    """`1 / x`."""
    return f.op("fdiv", f.const_like(x, 1.0), x)


def rsqrt(f: FunctionText, x: Value) -> Value:
    """`1 / sqrt(x)`."""
    return reciprocal(f, f.intrinsic("sqrt", x))


def copysign(f: FunctionText, x: Value, y: Value) -> Value:
    """The magnitude of one with the sign of the other."""
    return with_sign(f, x, y)


def hypot(f: FunctionText, x: Value, y: Value) -> Value:
    """`sqrt(x**2 + y**2)`: f32 in f64, whose squares are exact; f64 relative to the larger one. Infinite beside NaN."""
    infinity, zero = f.const_like(x, float("inf")), f.const_like(x, 0.0)
    a, b = absolute(f, x), absolute(f, y)
    infinite = f.op("or", f.fcmp("oeq", a, infinity), f.fcmp("oeq", b, infinity))
    if x.element == "float":
        wide, high = _wide(f, a, b)
        size = f.cast("fptrunc", f.intrinsic("sqrt", fma(f, wide, wide, mul(f, high, high))), "float")
        return f.select(infinite, infinity, size)
    long, short = larger(f, a, b), smaller(f, a, b)
    ratio = f.op("fdiv", short, long)
    size = mul(f, long, f.intrinsic("sqrt", fma(f, ratio, ratio, f.const_like(ratio, 1.0))))
    size = f.select(f.fcmp("oeq", long, zero), zero, size)
    return f.select(infinite, infinity, f.select(f.fcmp("uno", a, b), add(f, a, b), size))


# Floor division and modulo of floats, exact at any ratio of the operands. An f64 has 53 bits, and a quotient of two may
# need 2000: each iteration of a loop takes 51 bits of it, by a divisor that a power of two makes large enough.

_STEP = 51
"""Bits of the quotient that one iteration takes."""


def _remainder(f: FunctionText, a: Value, b: Value) -> Value:
    """`a - b * trunc(a / b)` of f64, exact: powers of two scale the divisor until f64 holds the quotient."""
    size, divisor = absolute(f, a), absolute(f, b)
    nan = f.const_like(a, float("nan"))
    bad = f.op("or", f.fcmp("oeq", size, f.const_like(a, float("inf"))), f.fcmp("oeq", b, f.const_like(b, 0.0)))
    size = f.select(f.op("or", bad, f.fcmp("uno", a, b)), nan, size)

    def reduce(values: list[Value]) -> list[Value]:
        (remainder,) = values
        scaled = _scale_divisor(f, divisor, remainder)
        quotient = f.intrinsic("trunc", f.op("fdiv", remainder, scaled))
        less = fma(f, f.fneg(quotient), scaled, remainder)
        # The quotient may have been rounded up to the next integer.
        less = f.select(f.fcmp("olt", less, f.const_like(less, 0.0)), add(f, less, scaled), less)
        return [f.select(f.fcmp("oge", remainder, divisor), less, remainder)]

    (remainder,) = f.while_([size], lambda values: any_lane(f, f.fcmp("oge", values[0], divisor)), reduce)
    return with_sign(f, remainder, a)


def _scale_divisor(f: FunctionText, b: Value, a: Value) -> Value:
    """`b` times the power of two that makes `a / b` less than 2**52, or `b`."""
    count = sub(f, sub(f, _exponent(f, a), _exponent(f, b)), f.const("i64", _STEP, a.lanes))
    count = f.intrinsic("smax", count, f.const_like(count, 0))
    half = shift(f, "lshr", count, 1)
    for part in (half, sub(f, count, half)):
        b = mul(f, b, from_bits(f, shift(f, "shl", add(f, part, f.const_like(part, 1023)), 52)))
    return b


def _exponent(f: FunctionText, x: Value) -> Value:
    """The binary exponent of a positive f64, denormals included."""
    tiny = f.fcmp("olt", x, f.const_like(x, 2.0**-1022))
    raised = f.select(tiny, times(f, x, 2.0**60), x)
    exponent = shift(f, "lshr", bits(f, raised), 52)
    return sub(f, exponent, f.select(tiny, f.const_like(exponent, 60), f.const_like(exponent, 0)))


def _wide(f: FunctionText, a: Value, b: Value) -> tuple[Value, Value]:
    return f.cast("fpext", a, "double"), f.cast("fpext", b, "double")


def modulo(f: FunctionText, a: Value, b: Value) -> Value:
    """The remainder with the sign of the divisor, as Python's `%`."""
    if a.element == "float":
        return f.cast("fptrunc", modulo(f, *_wide(f, a, b)), "float")
    remainder = _remainder(f, a, b)
    zero = f.const_like(a, 0.0)
    opposed = f.op("xor", f.fcmp("olt", remainder, zero), f.fcmp("olt", b, zero))
    moved = f.select(opposed, add(f, remainder, b), remainder)
    return f.select(f.fcmp("oeq", remainder, zero), with_sign(f, zero, b), moved)


def floor_divide(f: FunctionText, a: Value, b: Value) -> Value:
    """The quotient rounded down; where that of a finite number, or by zero, is infinite, that infinity."""
    if a.element == "float":
        return f.cast("fptrunc", floor_divide(f, *_wide(f, a, b)), "float")
    remainder = _remainder(f, a, b)
    zero, one = f.const_like(a, 0.0), f.const_like(a, 1.0)
    exact = f.op("fdiv", sub(f, a, remainder), b)
    opposed = f.op("xor", f.fcmp("olt", remainder, zero), f.fcmp("olt", b, zero))
    opposed = f.op("and", opposed, f.fcmp("une", remainder, zero))
    exact = f.select(opposed, sub(f, exact, one), exact)
    down = f.intrinsic("floor", exact)
    near = f.select(f.fcmp("ogt", sub(f, exact, down), f.const_like(a, 0.5)), plus(f, down, 1.0), down)
    quotient = f.op("fdiv", a, b)
    result = f.select(f.fcmp("oeq", exact, zero), with_sign(f, zero, quotient), near)
    infinity = f.const_like(a, float("inf"))
    kept = f.op("or", f.fcmp("one", absolute(f, a), infinity), f.fcmp("oeq", b, zero))
    infinite = f.op("and", f.fcmp("oeq", absolute(f, quotient), infinity), kept)
    return f.select(infinite, quotient, result)
