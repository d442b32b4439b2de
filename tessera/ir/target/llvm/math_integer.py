"""Integer and bool arithmetic on vectors, with the corners of `docs/numerics.md`: nothing traps, everything wraps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tessera.ir.target.llvm.text import FunctionText, Value
from tessera.ir.target.llvm.vector_ops import add, mul, sub

Emitter: TypeAlias = Callable[[FunctionText, Sequence[Value], bool], Value]
"""Writes one function of the table: the operands, and whether integers are signed."""

_PREDICATES = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def compare(f: FunctionText, name: str, a: Value, b: Value, signed: bool) -> Value:
    """eq, ne, lt, le, gt or ge."""
    if name in ("eq", "ne"):
        return f.icmp(name, a, b)
    return f.icmp(("s" if signed else "u") + _PREDICATES[name], a, b)


def sign(f: FunctionText, x: Value, signed: bool) -> Value:
    """-1, 0 or 1."""
    zero = f.const_like(x, 0)
    positive = f.cast("zext", f.icmp("ne" if not signed else "sgt", x, zero), x.element)
    return sub(f, positive, f.cast("zext", f.icmp("slt", x, zero), x.element)) if signed else positive


def extreme(f: FunctionText, name: str, a: Value, b: Value, signed: bool) -> Value:
    """max or min."""
    return f.intrinsic(("s" if signed else "u") + name, a, b)


def shift_left(f: FunctionText, x: Value, count: Value) -> Value:
    """0 where the count is negative, or the width or more."""
    inside = f.icmp("ult", count, f.const_like(x, _bits(x)))
    zero = f.const_like(x, 0)
    return f.select(inside, f.op("shl", x, f.select(inside, count, zero)), zero)


def shift_right(f: FunctionText, x: Value, count: Value, signed: bool) -> Value:
    """Arithmetic on signed, logical on unsigned; all sign bits where the count is negative, or the width or more."""
    inside = f.icmp("ult", count, f.const_like(x, _bits(x)))
    if signed:
        return f.op("ashr", x, f.select(inside, count, f.const_like(x, _bits(x) - 1)))
    zero = f.const_like(x, 0)
    return f.select(inside, f.op("lshr", x, f.select(inside, count, zero)), zero)


def floor_divide(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The quotient rounded down; 0 for a zero divisor, and the smallest number by -1 wraps."""
    zero = f.const_like(a, 0)
    by_zero = f.icmp("eq", b, zero)
    special = f.op("or", by_zero, f.icmp("eq", b, f.const_like(b, -1))) if signed else by_zero
    divisor = f.select(special, f.const_like(b, 1), b)
    quotient = _quotient(f, a, divisor, signed)
    if not signed:
        return f.select(by_zero, zero, quotient)
    by_minus_one = f.icmp("eq", b, f.const_like(b, -1))
    return f.select(by_zero, zero, f.select(by_minus_one, sub(f, zero, a), quotient))


def modulo(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The remainder of `floor_divide`, with the sign of the divisor; 0 for a zero divisor."""
    rest = sub(f, a, mul(f, floor_divide(f, a, b, signed), b))
    zero = f.const_like(a, 0)
    return f.select(f.icmp("eq", b, zero), zero, rest)


def _quotient(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The floor of a quotient that neither traps nor overflows."""
    if _bits(a) <= 32:
        # f64 holds both exactly, and no quotient of them lies within a rounding of an integer without being one.
        up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        exact = f.op("fdiv", f.cast(up, a, "double"), f.cast(up, b, "double"))
        return f.cast(down, f.intrinsic("floor", exact), a.element)
    if not signed:
        return f.op("udiv", a, b)
    quotient, rest = f.op("sdiv", a, b), f.op("srem", a, b)
    zero = f.const_like(a, 0)
    opposed = f.icmp("slt", f.op("xor", rest, b), zero)
    inexact = f.icmp("ne", rest, zero)
    return sub(f, quotient, f.cast("zext", f.op("and", opposed, inexact), a.element))


def power(f: FunctionText, base: Value, exponent: Value, signed: bool) -> Value:
    """`base ** exponent` by squaring, modulo 2**bits; a negative exponent gives the power's integer part."""
    zero, one = f.const_like(base, 0), f.const_like(base, 1)

    def more(values: list[Value]) -> Value:
        return any_lane(f, f.icmp("ne", values[2], zero))

    def square(values: list[Value]) -> list[Value]:
        result, factor, left = values
        odd = f.icmp("ne", f.op("and", left, one), zero)
        return [
            f.select(odd, mul(f, result, factor), result),
            mul(f, factor, factor),
            f.op("lshr", left, one),
        ]

    if not signed:
        return f.while_([one, base, exponent], more, square)[0]
    negative = f.icmp("slt", exponent, zero)
    # Only 1 and -1 have reciprocals; their power to -n is that to n, of which the parity of n is all that matters.
    unit = f.op("or", f.icmp("eq", base, one), f.icmp("eq", base, f.const_like(base, -1)))
    count = f.select(negative, f.op("and", exponent, one), exponent)
    result = f.while_([one, base, count], more, square)[0]
    return f.select(f.op("and", negative, f.op("xor", unit, f.const_like(unit, True))), zero, result)


def any_lane(f: FunctionText, mask: Value) -> Value:
    """Whether a mask holds in some lane."""
    return mask if mask.lanes == 1 else f.intrinsic("vector.reduce.or", mask, ret="i1")


def _bits(x: Value) -> int:
    return int(x.element[1:])


def unary(function: Callable[[FunctionText, Value], Value]) -> Emitter:
    """A function of one operand that does not ask for signedness."""
    return lambda f, args, signed: function(f, args[0])


def binary(function: Callable[[FunctionText, Value, Value], Value]) -> Emitter:
    """A function of two operands that does not ask for signedness."""
    return lambda f, args, signed: function(f, args[0], args[1])


def plain(instruction: str) -> Emitter:
    """A binary instruction."""
    return lambda f, args, signed: f.op(instruction, args[0], args[1])


INTEGER: dict[str, Emitter] = {
    "neg": unary(lambda f, x: sub(f, f.const_like(x, 0), x)),
    "not": unary(lambda f, x: f.op("xor", x, f.const_like(x, -1))),
    "abs": lambda f, args, signed: f.intrinsic("abs", args[0], f.const("i1", False)) if signed else args[0],
    "sign": lambda f, args, signed: sign(f, args[0], signed),
    "relu": lambda f, args, signed: extreme(f, "max", args[0], f.const_like(args[0], 0), True) if signed else args[0],
    "isnan": unary(lambda f, x: f.const("i1", False, x.lanes)),
    "isinf": unary(lambda f, x: f.const("i1", False, x.lanes)),
    "add": plain("add"),
    "sub": plain("sub"),
    "mul": plain("mul"),
    "and": plain("and"),
    "or": plain("or"),
    "xor": plain("xor"),
    "fma": lambda f, args, signed: add(f, mul(f, args[0], args[1]), args[2]),
    "floordiv": lambda f, args, signed: floor_divide(f, args[0], args[1], signed),
    "mod": lambda f, args, signed: modulo(f, args[0], args[1], signed),
    "pow": lambda f, args, signed: power(f, args[0], args[1], signed),
    "shl": lambda f, args, signed: shift_left(f, args[0], args[1]),
    "shr": lambda f, args, signed: shift_right(f, args[0], args[1], signed),
    "max": lambda f, args, signed: extreme(f, "max", args[0], args[1], signed),
    "min": lambda f, args, signed: extreme(f, "min", args[0], args[1], signed),
    **{name: unary(lambda f, x: x) for name in ("floor", "ceil", "round", "trunc")},
}

BOOL: dict[str, Emitter] = {
    "not": unary(lambda f, x: f.op("xor", x, f.const_like(x, True))),
    "isnan": INTEGER["isnan"],
    "isinf": INTEGER["isinf"],
    **{name: plain("and") for name in ("and", "mul", "min")},
    **{name: plain("or") for name in ("or", "add", "max")},
    "xor": plain("xor"),
}
