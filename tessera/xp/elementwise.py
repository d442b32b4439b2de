"""Functions of the array API standard on one element at a time, with broadcasting.

They are those of `tessera.ops` under the standard's names; what the standard leaves undefined for a kind of dtypes, as
the sine of integers, raises DTypeError (T0102).
"""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions import public as ops
from tessera.xp.data_types import check_kind
from tessera.xp.operands import dtype_of, is_tensor


def _check(name: str, kinds: tuple[str, ...], *values: Any) -> None:
    for value in values:
        check_kind(name, value, *kinds)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """`x` clamped to `min..max`; an end left out does not bind."""
    check_kind("clip", x, "real numeric")
    made = x
    for end, bound in ((min, ops.maximum), (max, ops.minimum)):
        if end is not None:
            made = bound(made, ops.astype(end, dtype_of(x)) if is_tensor(end) else end)
    return made


def conj(x: Any, /) -> Any:
    """The complex conjugate, which of a real number is itself."""
    return ops.conj(check_kind("conj", x, "numeric"))


def real(x: Any, /) -> Any:
    """The real part, which of a real number is itself."""
    return ops.real(check_kind("real", x, "numeric"))


def imag(x: Any, /) -> Any:
    """The imaginary part, which of a real number is 0."""
    return ops.imag(check_kind("imag", x, "numeric"))


def positive(x: Any, /) -> Any:
    """`x` itself."""
    return check_kind("positive", x, "numeric")


def abs(x: Any, /) -> Any:
    """The magnitude of each element."""
    _check("abs", ("numeric",), x)
    return ops.abs(x)


def acos(x: Any, /) -> Any:
    """Angles whose cosines are the elements."""
    _check("acos", ("floating",), x)
    return ops.acos(x)


def acosh(x: Any, /) -> Any:
    """Inverse of `cosh`."""
    _check("acosh", ("floating",), x)
    return ops.acosh(x)


def asin(x: Any, /) -> Any:
    """Angles whose sines are the elements."""
    _check("asin", ("floating",), x)
    return ops.asin(x)


def asinh(x: Any, /) -> Any:
    """Inverse of `sinh`."""
    _check("asinh", ("floating",), x)
    return ops.asinh(x)


def atan(x: Any, /) -> Any:
    """Angles whose tangents are the elements."""
    _check("atan", ("floating",), x)
    return ops.atan(x)


def atanh(x: Any, /) -> Any:
    """Inverse of `tanh`."""
    _check("atanh", ("floating",), x)
    return ops.atanh(x)


def bitwise_invert(x: Any, /) -> Any:
    """All bits inverted."""
    _check(
        "bitwise_invert",
        (
            "bool",
            "integral",
        ),
        x,
    )
    return ops.bitwise_not(x)


def ceil(x: Any, /) -> Any:
    """Smallest integers not below."""
    _check("ceil", ("real numeric",), x)
    return ops.ceil(x) if dtype_of(x).is_float else x


def cos(x: Any, /) -> Any:
    """Cosine."""
    _check("cos", ("floating",), x)
    return ops.cos(x)


def cosh(x: Any, /) -> Any:
    """Hyperbolic cosine."""
    _check("cosh", ("floating",), x)
    return ops.cosh(x)


def exp(x: Any, /) -> Any:
    """e to the power of each element."""
    _check("exp", ("floating",), x)
    return ops.exp(x)


def expm1(x: Any, /) -> Any:
    """`exp(x) - 1` without cancellation near zero."""
    _check("expm1", ("floating",), x)
    return ops.expm1(x)


def floor(x: Any, /) -> Any:
    """Largest integers not above."""
    _check("floor", ("real numeric",), x)
    return ops.floor(x) if dtype_of(x).is_float else x


def isfinite(x: Any, /) -> Any:
    """Whether elements are neither infinite nor NaN."""
    _check("isfinite", ("numeric",), x)
    return ops.isfinite(x)


def isinf(x: Any, /) -> Any:
    """Whether elements are infinite."""
    _check("isinf", ("numeric",), x)
    return ops.isinf(x)


def isnan(x: Any, /) -> Any:
    """Whether elements are NaN."""
    _check("isnan", ("numeric",), x)
    return ops.isnan(x)


def log(x: Any, /) -> Any:
    """Natural logarithm."""
    _check("log", ("floating",), x)
    return ops.log(x)


def log1p(x: Any, /) -> Any:
    """`log(1 + x)` without cancellation near zero."""
    _check("log1p", ("floating",), x)
    return ops.log1p(x)


def log2(x: Any, /) -> Any:
    """Logarithm to base 2."""
    _check("log2", ("floating",), x)
    return ops.log2(x)


def log10(x: Any, /) -> Any:
    """Logarithm to base 10."""
    _check("log10", ("floating",), x)
    return ops.log10(x)


def logical_not(x: Any, /) -> Any:
    """The opposite of each bool."""
    _check("logical_not", ("bool",), x)
    return ops.logical_not(x)


def negative(x: Any, /) -> Any:
    """`-x`."""
    _check("negative", ("numeric",), x)
    return ops.neg(x)


def reciprocal(x: Any, /) -> Any:
    """One over each element."""
    _check("reciprocal", ("floating",), x)
    return ops.reciprocal(x)


def round(x: Any, /) -> Any:
    """Nearest integers, halves to the even one; of both parts of a complex number."""
    _check("round", ("numeric",), x)
    return x if dtype_of(x).is_integer else ops.round(x)


def sign(x: Any, /) -> Any:
    """-1, 0 or 1 by the sign."""
    _check("sign", ("numeric",), x)
    return ops.sign(x)


def signbit(x: Any, /) -> Any:
    """Whether signs are negative, of -0.0 too."""
    _check("signbit", ("real floating",), x)
    return ops.signbit(x)


def sin(x: Any, /) -> Any:
    """Sine."""
    _check("sin", ("floating",), x)
    return ops.sin(x)


def sinh(x: Any, /) -> Any:
    """Hyperbolic sine."""
    _check("sinh", ("floating",), x)
    return ops.sinh(x)


def square(x: Any, /) -> Any:
    """`x * x`."""
    _check("square", ("numeric",), x)
    return ops.square(x)


def sqrt(x: Any, /) -> Any:
    """Square root."""
    _check("sqrt", ("floating",), x)
    return ops.sqrt(x)


def tan(x: Any, /) -> Any:
    """Tangent."""
    _check("tan", ("floating",), x)
    return ops.tan(x)


def tanh(x: Any, /) -> Any:
    """Hyperbolic tangent."""
    _check("tanh", ("floating",), x)
    return ops.tanh(x)


def trunc(x: Any, /) -> Any:
    """Elements without their fractions."""
    _check("trunc", ("real numeric",), x)
    return ops.trunc(x) if dtype_of(x).is_float else x


def add(x1: Any, x2: Any, /) -> Any:
    """`x1 + x2`."""
    _check("add", ("numeric",), x1, x2)
    return ops.add(x1, x2)


def atan2(x1: Any, x2: Any, /) -> Any:
    """Angles of points (`x1`, `x2`), `x1` being ordinates."""
    _check("atan2", ("real floating",), x1, x2)
    return ops.atan2(x1, x2)


def bitwise_and(x1: Any, x2: Any, /) -> Any:
    """Bits set in both."""
    _check(
        "bitwise_and",
        (
            "bool",
            "integral",
        ),
        x1,
        x2,
    )
    return ops.bitwise_and(x1, x2)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Any:
    """Bits shifted to the left."""
    _check("bitwise_left_shift", ("integral",), x1, x2)
    return ops.shift_left(x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> Any:
    """Bits set in either."""
    _check(
        "bitwise_or",
        (
            "bool",
            "integral",
        ),
        x1,
        x2,
    )
    return ops.bitwise_or(x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """Bits shifted to the right."""
    _check("bitwise_right_shift", ("integral",), x1, x2)
    return ops.shift_right(x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> Any:
    """Bits set in exactly one."""
    _check(
        "bitwise_xor",
        (
            "bool",
            "integral",
        ),
        x1,
        x2,
    )
    return ops.bitwise_xor(x1, x2)


def copysign(x1: Any, x2: Any, /) -> Any:
    """Magnitudes of `x1` with signs of `x2`."""
    _check("copysign", ("real floating",), x1, x2)
    return ops.copysign(x1, x2)


def divide(x1: Any, x2: Any, /) -> Any:
    """`x1 / x2`."""
    _check("divide", ("floating",), x1, x2)
    return ops.div(x1, x2)


def equal(x1: Any, x2: Any, /) -> Any:
    """Whether elements are equal."""
    return ops.eq(x1, x2)


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """Quotients rounded down."""
    _check("floor_divide", ("real numeric",), x1, x2)
    made = ops.floordiv(x1, x2)
    if not dtype_of(made).is_float:
        return made
    # An infinite dividend stays so, and what an infinite divisor leaves is a zero; Python has NaN and -1 there.
    quotient = ops.div(x1, x2)
    own, other = (
        ops.astype(one, dtype_of(made)) if is_tensor(one) else ops.full((), float(one), dtype_of(made))
        for one in (x1, x2)
    )
    made = ops.where(ops.logical_and(ops.isinf(own), ops.isfinite(other)), quotient, made)
    return ops.where(ops.logical_and(ops.isfinite(own), ops.isinf(other)), ops.copysign(0.0, quotient), made)


def greater(x1: Any, x2: Any, /) -> Any:
    """`x1 > x2`."""
    _check("greater", ("real numeric",), x1, x2)
    return ops.gt(x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Any:
    """`x1 >= x2`."""
    _check("greater_equal", ("real numeric",), x1, x2)
    return ops.ge(x1, x2)


def hypot(x1: Any, x2: Any, /) -> Any:
    """`sqrt(x1**2 + x2**2)` without overflow."""
    _check("hypot", ("real floating",), x1, x2)
    return ops.hypot(x1, x2)


def less(x1: Any, x2: Any, /) -> Any:
    """`x1 < x2`."""
    _check("less", ("real numeric",), x1, x2)
    return ops.lt(x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Any:
    """`x1 <= x2`."""
    _check("less_equal", ("real numeric",), x1, x2)
    return ops.le(x1, x2)


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """`log(exp(x1) + exp(x2))` without overflow."""
    _check("logaddexp", ("real floating",), x1, x2)
    return ops.logaddexp(x1, x2)


def logical_and(x1: Any, x2: Any, /) -> Any:
    """Whether both are true."""
    _check("logical_and", ("bool",), x1, x2)
    return ops.logical_and(x1, x2)


def logical_or(x1: Any, x2: Any, /) -> Any:
    """Whether at least one is true."""
    _check("logical_or", ("bool",), x1, x2)
    return ops.logical_or(x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> Any:
    """Whether exactly one is true."""
    _check("logical_xor", ("bool",), x1, x2)
    return ops.logical_xor(x1, x2)


def maximum(x1: Any, x2: Any, /) -> Any:
    """The larger."""
    _check("maximum", ("real numeric",), x1, x2)
    return ops.maximum(x1, x2)


def minimum(x1: Any, x2: Any, /) -> Any:
    """The smaller."""
    _check("minimum", ("real numeric",), x1, x2)
    return ops.minimum(x1, x2)


def multiply(x1: Any, x2: Any, /) -> Any:
    """`x1 * x2`."""
    _check("multiply", ("numeric",), x1, x2)
    return ops.mul(x1, x2)


def nextafter(x1: Any, x2: Any, /) -> Any:
    """Numbers next to `x1` towards `x2`."""
    _check("nextafter", ("real floating",), x1, x2)
    return ops.nextafter(x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Any:
    """Whether elements differ."""
    return ops.ne(x1, x2)


def pow(x1: Any, x2: Any, /) -> Any:
    """`x1` to the power `x2`."""
    _check("pow", ("numeric",), x1, x2)
    return ops.pow(x1, x2)


def remainder(x1: Any, x2: Any, /) -> Any:
    """What `x1 // x2` leaves, with the sign of `x2`."""
    _check("remainder", ("real numeric",), x1, x2)
    return ops.mod(x1, x2)


def subtract(x1: Any, x2: Any, /) -> Any:
    """`x1 - x2`."""
    _check("subtract", ("numeric",), x1, x2)
    return ops.sub(x1, x2)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]
