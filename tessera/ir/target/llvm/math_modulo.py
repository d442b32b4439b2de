"""Quotients rounded down and remainders of floats, exact at any ratio of the operands."""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_integer import any_lane
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    add,
    bits,
    fma,
    from_bits,
    mul,
    plus,
    shift,
    sub,
    times,
    with_sign,
)

_STEP = 51  # bits of quotient taken off in one turn


def _remainder(f: FunctionText, a: Value, b: Value) -> Value:
    """`a - b * trunc(a / b)` of f64, exact: powers of two lift the divisor until the quotient is a whole f64."""
    size, divisor = absolute(f, a), absolute(f, b)
    nan = f.const_like(a, float("nan"))
    bad = f.op("or", f.fcmp("oeq", size, f.const_like(a, float("inf"))), f.fcmp("oeq", b, f.const_like(b, 0.0)))
    size = f.select(f.op("or", bad, f.fcmp("uno", a, b)), nan, size)

    def reduce(values: list[Value]) -> list[Value]:
        (rest,) = values
        lifted = _lifted(f, divisor, rest)
        quotient = f.intrinsic("trunc", f.op("fdiv", rest, lifted))
        less = fma(f, f.fneg(quotient), lifted, rest)
        # The quotient may have been rounded up to the next whole number.
        less = f.select(f.fcmp("olt", less, f.const_like(less, 0.0)), add(f, less, lifted), less)
        return [f.select(f.fcmp("oge", rest, divisor), less, rest)]

    (rest,) = f.while_([size], lambda values: any_lane(f, f.fcmp("oge", values[0], divisor)), reduce)
    return with_sign(f, rest, a)


def _lifted(f: FunctionText, b: Value, a: Value) -> Value:
    """`b` times the power of two that brings `a / b` below 2**52, or `b`."""
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
    rest = _remainder(f, a, b)
    zero = f.const_like(a, 0.0)
    opposed = f.op("xor", f.fcmp("olt", rest, zero), f.fcmp("olt", b, zero))
    moved = f.select(opposed, add(f, rest, b), rest)
    return f.select(f.fcmp("oeq", rest, zero), with_sign(f, zero, b), moved)


def floor_divide(f: FunctionText, a: Value, b: Value) -> Value:
    """The quotient rounded down; where the quotient is infinite, that infinity."""
    if a.element == "float":
        return f.cast("fptrunc", floor_divide(f, *_wide(f, a, b)), "float")
    rest = _remainder(f, a, b)
    zero, one = f.const_like(a, 0.0), f.const_like(a, 1.0)
    exact = f.op("fdiv", sub(f, a, rest), b)
    opposed = f.op("xor", f.fcmp("olt", rest, zero), f.fcmp("olt", b, zero))
    opposed = f.op("and", opposed, f.fcmp("une", rest, zero))
    exact = f.select(opposed, sub(f, exact, one), exact)
    down = f.intrinsic("floor", exact)
    near = f.select(f.fcmp("ogt", sub(f, exact, down), f.const_like(a, 0.5)), plus(f, down, 1.0), down)
    quotient = f.op("fdiv", a, b)
    result = f.select(f.fcmp("oeq", exact, zero), with_sign(f, zero, quotient), near)
    infinite = f.fcmp("oeq", absolute(f, quotient), f.const_like(a, float("inf")))
    return f.select(infinite, quotient, result)
