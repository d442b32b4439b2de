"""Functions on one element at a time, with NumPy's broadcasting."""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, parse_dtype, promoted
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops.elementwise import OP_CLASSES
from tessera.types.dtype import DType, bool_


def _unary(op: str, x: Any) -> Any:
    return apply(op, promoted(op, (x,), OP_CLASSES[op]))


def _binary(op: str, x: Any, y: Any) -> Any:
    return apply(op, promoted(op, (x, y), OP_CLASSES[op]))


def neg(x: Any) -> Any:
    """`-x`; unsigned integers wrap."""
    return _unary("neg", x)


def abs(x: Any) -> Any:
    """`|x|`."""
    return _unary("abs", x)


def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign of `x`."""
    return _unary("sign", x)


def exp(x: Any) -> Any:
    """e to the power `x`."""
    return _unary("exp", x)


def exp2(x: Any) -> Any:
    """2 to the power `x`."""
    return _unary("exp2", x)


def expm1(x: Any) -> Any:
    """`exp(x) - 1` without cancellation near zero."""
    return _unary("expm1", x)


def log(x: Any) -> Any:
    """Natural logarithm; of a negative number NaN."""
    return _unary("log", x)


def log2(x: Any) -> Any:
    """Logarithm to base 2."""
    return _unary("log2", x)


def log1p(x: Any) -> Any:
    """`log(1 + x)` without cancellation near zero."""
    return _unary("log1p", x)


def sqrt(x: Any) -> Any:
    """Square root."""
    return _unary("sqrt", x)


def rsqrt(x: Any) -> Any:
    """One over the square root."""
    return _unary("rsqrt", x)


def reciprocal(x: Any) -> Any:
    """One over `x`."""
    return _unary("reciprocal", x)


def sin(x: Any) -> Any:
    """Sine."""
    return _unary("sin", x)


def cos(x: Any) -> Any:
    """Cosine."""
    return _unary("cos", x)


def tan(x: Any) -> Any:
    """Tangent."""
    return _unary("tan", x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _unary("tanh", x)


def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`."""
    return _unary("sigmoid", x)


def erf(x: Any) -> Any:
    """Error function."""
    return _unary("erf", x)


def relu(x: Any) -> Any:
    """`max(x, 0)`; NaN stays."""
    return _unary("relu", x)


def silu(x: Any) -> Any:
    """`x * sigmoid(x)`."""
    return _unary("silu", x)


def softplus(x: Any) -> Any:
    """`log(1 + exp(x))` without overflow."""
    return _unary("softplus", x)


def floor(x: Any) -> Any:
    """Largest whole number not above `x`."""
    return _unary("floor", x)


def ceil(x: Any) -> Any:
    """Smallest whole number not below `x`."""
    return _unary("ceil", x)


def round(x: Any) -> Any:
    """Nearest whole number, halves to the even one."""
    return _unary("round", x)


def trunc(x: Any) -> Any:
    """`x` without its fraction."""
    return _unary("trunc", x)


def isnan(x: Any) -> Any:
    """Whether `x` is not a number."""
    return _unary("isnan", x)


def isinf(x: Any) -> Any:
    """Whether `x` is infinite."""
    return _unary("isinf", x)


def logical_not(x: Any) -> Any:
    """Whether `x` is false."""
    return _unary("logical_not", x)


def bitwise_not(x: Any) -> Any:
    """All bits turned."""
    return _unary("bitwise_not", x)


def add(x: Any, y: Any) -> Any:
    """`x + y`."""
    return _binary("add", x, y)


def sub(x: Any, y: Any) -> Any:
    """`x - y`."""
    return _binary("sub", x, y)


def mul(x: Any, y: Any) -> Any:
    """`x * y`."""
    return _binary("mul", x, y)


def div(x: Any, y: Any) -> Any:
    """`x / y`; integers become floats first."""
    return _binary("div", x, y)


def floordiv(x: Any, y: Any) -> Any:
    """`x / y` rounded down; an integer by zero is 0."""
    return _binary("floordiv", x, y)


def mod(x: Any, y: Any) -> Any:
    """What `x // y` leaves, with the sign of `y`."""
    return _binary("mod", x, y)


def pow(x: Any, y: Any) -> Any:
    """`x` to the power `y`."""
    return _binary("pow", x, y)


def atan2(x: Any, y: Any) -> Any:
    """Angle of the point (`y`, `x`), from -pi to pi."""
    return _binary("atan2", x, y)


def maximum(x: Any, y: Any) -> Any:
    """The larger of each pair; NaN wins."""
    return _binary("maximum", x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller of each pair; NaN wins."""
    return _binary("minimum", x, y)


def eq(x: Any, y: Any) -> Any:
    """`x == y`."""
    return _binary("eq", x, y)


def ne(x: Any, y: Any) -> Any:
    """`x != y`."""
    return _binary("ne", x, y)


def lt(x: Any, y: Any) -> Any:
    """`x < y`."""
    return _binary("lt", x, y)


def le(x: Any, y: Any) -> Any:
    """`x <= y`."""
    return _binary("le", x, y)


def gt(x: Any, y: Any) -> Any:
    """`x > y`."""
    return _binary("gt", x, y)


def ge(x: Any, y: Any) -> Any:
    """`x >= y`."""
    return _binary("ge", x, y)


def logical_and(x: Any, y: Any) -> Any:
    """Whether both are true."""
    return _binary("logical_and", x, y)


def logical_or(x: Any, y: Any) -> Any:
    """Whether at least one is true."""
    return _binary("logical_or", x, y)


def logical_xor(x: Any, y: Any) -> Any:
    """Whether exactly one is true."""
    return _binary("logical_xor", x, y)


def bitwise_and(x: Any, y: Any) -> Any:
    """Bits set in both."""
    return _binary("bitwise_and", x, y)


def bitwise_or(x: Any, y: Any) -> Any:
    """Bits set in either."""
    return _binary("bitwise_or", x, y)


def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits set in exactly one."""
    return _binary("bitwise_xor", x, y)


def shift_left(x: Any, y: Any) -> Any:
    """`x << y`; counts outside the width give 0."""
    return _binary("shift_left", x, y)


def shift_right(x: Any, y: Any) -> Any:
    """`x >> y`, filled with the sign."""
    return _binary("shift_right", x, y)


def gelu(x: Any, approximate: str = "none") -> Any:
    """`x` times the share of the normal distribution below `x`; `approximate` is "none" (by erf) or "tanh".

    >>> ts.ops.gelu(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0.841345])
    """
    return apply("gelu", promoted("gelu", (x,), OP_CLASSES["gelu"]), {"approximate": approximate})


def square(x: Any) -> Any:
    """`x * x`."""
    return mul(x, x)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` holds, else `y`; all three broadcast.

    >>> ts.ops.where(ts.array([True, False]), 1.0, ts.array([5.0, 6.0]))
    Tensor([2] f32, [1, 6])
    """
    return apply("where", (as_tensor(condition, bool_), *promoted("where", (x, y))))


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """`x` held within `low..high`; an end left out does not bind.

    >>> ts.ops.clamp(ts.array([-2.0, 0.5, 9.0]), 0.0, 1.0)
    Tensor([3] f32, [0, 0.5, 1])
    """
    if low is None or high is None:
        x = x if low is None else maximum(x, low)
        return x if high is None else minimum(x, high)
    return apply("clamp", promoted("clamp", (x, low, high)))


def astype(x: Any, dtype: Any) -> Any:
    """`x` in another dtype: floats round to the nearest even, floats to integers truncate and saturate."""
    return cast(x, parse_dtype(dtype))


def cast_like(x: Any, like: Any) -> Any:
    """`x` in the dtype of `like`."""
    return cast(x, dtype_of(like))


def bitcast(x: Any, dtype: DType) -> Any:
    """The bits of `x` read as another dtype of the same width."""
    return apply("bitcast", (x,), {"dtype": parse_dtype(dtype), "source": dtype_of(x)})
