"""How dtypes meet in one operation: what widens by itself, what Python scalars become, what each kind of op returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

Scalar: TypeAlias = "bool | int | float"

INTEGER_EDGES: dict[str, str] = {
    "add sub mul neg abs, integer sums and products": "wrap modulo 2**bits (two's complement)",
    "floordiv by zero": "0",
    "mod by zero": "0",
    "floordiv of the smallest signed number by -1": "wraps to the smallest number; mod gives 0",
    "floordiv and mod": "round to minus infinity, the remainder has the sign of the divisor",
    "pow": "wraps; a negative exponent gives 0, except for the bases 1 and -1, which have inverses",
    "shift_left by a negative count, or by the width or more": "0",
    "shift_right by a negative count, or by the width or more": "0, or -1 for a negative signed number",
    "shift_right": "arithmetic on signed, logical on unsigned",
    "cast int -> int": "wraps",
    "cast float -> int": "truncates, saturates at the ends of the range, NaN becomes 0",
    "cast int -> narrow float": "the nearest narrow float, rounded once",
    "cast to bool": "anything but zero is True (NaN too)",
}
"""What integer operations do where the mathematics has no answer; the same on every machine."""

WEAK_INT = dt.i64
"""What a Python int becomes beside a bool tensor."""

_FLOATS_BY_SIZE = (dt.bf16, dt.f16, dt.f32, dt.f64)
_SIGNED = (dt.i4, dt.i8, dt.i16, dt.i32, dt.i64)


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool dtype."""
    if dtype.is_bool:
        return 0, 1
    return (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    )


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`, so that the cast loses nothing."""
    if wide.is_bool:
        return narrow.is_bool
    if narrow.is_float:
        return wide.exponent >= narrow.exponent and wide.mantissa >= narrow.mantissa  # integers have neither
    low, high = integer_range(narrow)
    if wide.is_float:
        # a float holds every integer of up to mantissa + 1 bits; all have the exponents for those here
        return max(-low, high) <= 1 << (wide.mantissa + 1)
    wide_low, wide_high = integer_range(wide)
    return wide_low <= low and high <= wide_high


def _join(a: DType, b: DType) -> DType | None:
    """The narrowest dtype that holds both, within the rules of `promote`."""
    if a is b:
        return a
    if {a, b} & {dt.f8e4m3, dt.f8e5m2}:
        return None
    if a.is_float or b.is_float:
        if a.is_integer or b.is_integer:
            # f64 is slow and rarely meant: only an operand that is f64 already brings it in
            candidates = _FLOATS_BY_SIZE if dt.f64 in (a, b) else _FLOATS_BY_SIZE[:-1]
        else:
            candidates = _FLOATS_BY_SIZE
    else:
        candidates = (a, b, *_SIGNED)
    return next((wide for wide in candidates if holds(wide, a) and holds(wide, b)), None)


@cache
def promote(a: DType, b: DType) -> DType | None:
    """The dtype two operands meet in, or None where only a lossy cast would do.

    Bool widens to anything; integers to the narrowest integer that holds both; an integer beside a float to the
    narrowest float that holds both; bf16 with f16 to f32; a float8 meets only itself.

    >>> promote(dt.bf16, dt.f16), promote(dt.u8, dt.i8), promote(dt.i16, dt.bf16), promote(dt.i32, dt.f32)
    (f32, i16, f32, None)
    """
    return _join(a, b)


def promote_all(dtypes: Sequence[DType]) -> DType | None:
    """The dtype several operands meet in; the order does not matter where it exists."""
    # Widest first, so that no pair in between asks for more than the whole does.
    widest, *others = sorted(dtypes, key=lambda dtype: (dtype.is_float, dtype.bits, dtype.mantissa), reverse=True)
    joined: DType | None = widest
    for dtype in others:
        joined = None if joined is None else promote(joined, dtype)
    return joined


def promote_scalar(dtype: DType, scalar: Scalar) -> DType | None:
    """The dtype of a tensor of `dtype` met by a Python scalar, which is weak: it takes the tensor's kind.

    None where the scalar is an integer that the tensor's dtype cannot hold.

    >>> promote_scalar(dt.bf16, 2), promote_scalar(dt.i8, 0.5), promote_scalar(dt.u8, -1)
    (bf16, f32, None)
    """
    if isinstance(scalar, bool) or dtype.is_float:
        return dtype
    if isinstance(scalar, float):
        return float_of(dtype)
    target = WEAK_INT if dtype.is_bool else dtype
    low, high = integer_range(target)
    return target if low <= scalar <= high else None


def float_of(dtype: DType) -> DType:
    """The float an operation that has only float answers works in: f64 for 64 bit integers, f32 for the others."""
    if dtype.is_float:
        return dtype
    return dt.f64 if dtype.bits == 64 else dt.f32


def sum_of(dtype: DType) -> DType:
    """The result dtype of sums and products: integers in 64 bits, floats as they are."""
    if dtype.is_float:
        return dtype
    return dt.u64 if dtype.kind == "uint" else dt.i64


def _same(dtype: DType) -> DType:
    return dtype


def _bool(_: DType) -> DType:
    return dt.bool_


def _index(_: DType) -> DType:
    return dt.i64


def reduction_identity(kind: str, dtype: DType) -> bool | int | float:
    """The identity of a reduction or scan, to the bit: -0.0 for sums of floats, as 0.0 would make -0.0 positive.

    >>> reduction_identity("sum", dt.f32), reduction_identity("max", dt.i8), reduction_identity("all", dt.bool_)
    (-0.0, -128, True)
    """
    if kind in ("sum", "any", "prod", "all"):
        is_one = kind in ("prod", "all")
        return is_one if dtype.is_bool else int(is_one) if not dtype.is_float else 1.0 if is_one else -0.0
    if dtype.is_float:
        return float("-inf") if kind == "max" else float("inf")
    low, high = integer_range(dtype)
    return low if kind == "max" else high


@frozen
class OpClass:
    """What ops of one kind do with dtypes.

    `operand` maps the promoted dtype of the operands to the one they are cast to; `result` maps that to the result's.
    """

    name: str
    operand: Callable[[DType], DType]
    result: Callable[[DType], DType]


ARITHMETIC = OpClass("arithmetic", _same, _same)
"""add, mul, neg, max, floordiv, where, ...: the result is what the operands are."""
FLOATING = OpClass("floating", float_of, _same)
"""exp, tanh, div, mean, ...: integers become floats first."""
COMPARISON = OpClass("comparison", _same, _bool)
PREDICATE = OpClass("predicate", float_of, _bool)
"""isnan, isinf."""
LOGICAL = OpClass("logical", _bool, _bool)
BITWISE = OpClass("bitwise", _same, _same)
"""Integers and bool; a float is an error."""
SUM = OpClass("sum", _same, sum_of)
INDEX = OpClass("index", _same, _index)
"""argmax, argmin."""

CLASSES = (ARITHMETIC, FLOATING, COMPARISON, PREDICATE, LOGICAL, BITWISE, SUM, INDEX)


# What a conversion does to values that the other dtype lacks: the rule of each pair, by name.

ROUNDINGS = ("", "nearest_even", "toward_zero", "wrap")
"""None where nothing is lost; to the nearest float, ties to even; to integers toward zero, held at their ends and NaN
to 0; integers to integers by their low bits."""


def rounding_of(source: DType, target: DType) -> str:
    """The rule by which a conversion rounds; empty where it keeps every value, and for bool, which asks for zero.

    >>> from tessera.types.dtype import bf16, f32, i8
    >>> rounding_of(f32, bf16), rounding_of(bf16, f32), rounding_of(f32, i8), rounding_of(i8, f32)
    ('nearest_even', '', 'toward_zero', '')
    """
    if target.is_bool or holds(target, source):
        return ""
    if target.is_float:
        return "nearest_even"
    return "toward_zero" if source.is_float else "wrap"
