"""Integer and bool arithmetic on vectors, by `docs/guide/numerics.md`: nothing traps, everything wraps.

Functions that the table of scalar functions names take whether integers are `signed` as their last argument.
"""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import add, fma, mul, sub, with_sign


def negate(f: FunctionText, x: Value, signed: bool) -> Value:
    """`-x`."""
    return sub(f, f.const_like(x, 0), x)


def invert(f: FunctionText, x: Value, signed: bool) -> Value:
    """All bits inverted."""
    return f.op("xor", x, f.const_like(x, -1))


def invert_bool(f: FunctionText, x: Value, signed: bool) -> Value:
    """The opposite of a bool."""
    return f.op("xor", x, f.const_like(x, True))


def absolute(f: FunctionText, x: Value, signed: bool) -> Value:
    """The magnitude; that of the smallest signed number wraps to itself."""
    return f.intrinsic("abs", x, f.const("i1", False)) if signed else x


def identity(f: FunctionText, x: Value, signed: bool) -> Value:
    """What rounding to an integer makes of one."""
    return x


def never(f: FunctionText, x: Value, signed: bool) -> Value:
    """False: no integer is NaN or infinite."""
    return f.const("i1", False, x.lanes)


def multiply_add(f: FunctionText, a: Value, b: Value, c: Value, signed: bool) -> Value:
    """`a * b + c`."""
    return add(f, mul(f, a, b), c)


def sign(f: FunctionText, x: Value, signed: bool) -> Value:
    """-1, 0 or 1."""
    zero = f.const_like(x, 0)
    positive = f.cast("zext", f.icmp("ne" if not signed else "sgt", x, zero), x.element)
    return sub(f, positive, f.cast("zext", f.icmp("slt", x, zero), x.element)) if signed else positive


def maximum(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The larger."""
    return f.intrinsic("smax" if signed else "umax", a, b)


def minimum(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The smaller."""
    return f.intrinsic("smin" if signed else "umin", a, b)


def relu(f: FunctionText, x: Value, signed: bool) -> Value:
    """0 below 0."""
    return maximum(f, x, f.const_like(x, 0), True) if signed else x


def count_bits(f: FunctionText, x: Value, signed: bool) -> Value:
    """How many bits are set."""
    return f.intrinsic("ctpop", x)


def shift_left(f: FunctionText, x: Value, count: Value, signed: bool) -> Value:
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
    if _is_short(f, a):
        quotient = _divide_short(f, a, b, signed)[0]
        return f.select(f.icmp("eq", b, zero), zero, _to_short(f, quotient, a))
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
    if _is_short(f, a):
        remainder = _divide_short(f, a, b, signed)[1]
        return f.select(f.icmp("eq", b, f.const_like(b, 0)), f.const_like(a, 0), _to_short(f, remainder, a))
    remainder = sub(f, a, mul(f, floor_divide(f, a, b, signed), b))
    zero = f.const_like(a, 0)
    return f.select(f.icmp("eq", b, zero), zero, remainder)


def _is_short(f: FunctionText, a: Value) -> bool:
    """Whether f32 holds integers of a thread of a GPU, with as many bits again for their quotients."""
    return f.target.lanes == 1 and a.lanes == 1 and _bits(a) <= 16


def _divide_short(f: FunctionText, a: Value, b: Value, signed: bool) -> tuple[Value, Value]:
    """The floor of a quotient, and the remainder, as f32; anything for a zero divisor.

    Half a unit of the dividend more is at least half a unit from every multiple of the divisor, which is 2**-17 of it,
    and a guess at the reciprocal is nearer than that.
    """
    top, bottom = (f.cast("sitofp" if signed else "uitofp", value, "float") for value in (a, b))
    half = with_sign(f, f.const_like(top, 0.5), bottom)
    guess = f.call("llvm.nvvm.rcp.approx.ftz.f", [bottom], "float")
    quotient = f.intrinsic("floor", mul(f, add(f, top, half), guess))
    return quotient, fma(f, f.fneg(quotient), bottom, top)


def _to_short(f: FunctionText, whole: Value, like: Value) -> Value:
    """An f32 without a fraction as an integer; what does not fit wraps."""
    return f.cast("trunc", f.cast("fptosi", whole, "i32"), like.element)


def _quotient(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """The floor of a quotient that neither traps nor overflows."""
    if _bits(a) <= 32:
        # f64 holds both exactly, and no quotient of them lies within a rounding of an integer without being one.
        up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        exact = f.op("fdiv", f.cast(up, a, "double"), f.cast(up, b, "double"))
        return f.cast(down, f.intrinsic("floor", exact), a.element)
    if not signed:
        return f.op("udiv", a, b)
    quotient, remainder = f.op("sdiv", a, b), f.op("srem", a, b)
    zero = f.const_like(a, 0)
    opposed = f.icmp("slt", f.op("xor", remainder, b), zero)
    inexact = f.icmp("ne", remainder, zero)
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


def greatest_common_divisor(f: FunctionText, a: Value, b: Value, signed: bool) -> Value:
    """Euclid's algorithm on magnitudes, which are unsigned: that of the smallest signed number has its own bits."""
    zero = f.const_like(a, 0)

    def more(values: list[Value]) -> Value:
        return any_lane(f, f.icmp("ne", values[1], zero))

    def divide(values: list[Value]) -> list[Value]:
        large, small = values
        done = f.icmp("eq", small, zero)
        rest = f.op("urem", large, f.select(done, f.const_like(a, 1), small))
        return [f.select(done, large, small), f.select(done, zero, rest)]

    return f.while_([absolute(f, a, signed), absolute(f, b, signed)], more, divide)[0]


def any_lane(f: FunctionText, mask: Value) -> Value:
    """Whether a mask holds in some lane."""
    return mask if mask.lanes == 1 else f.intrinsic("vector.reduce.or", mask, ret="i1")


def _bits(x: Value) -> int:
    return int(x.element[1:])
