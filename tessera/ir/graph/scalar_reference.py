"""What each elementwise op means on NumPy arrays: floats in f64 and rounded once, integers in their own width."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, narrowed, numpy_dtype, rounded
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

Scalars: TypeAlias = Callable[..., Any]
"""A function of arrays of one dtype; attributes come by name."""

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def stored(values: Any, dtype: DType) -> Array:
    """Values rounded to the dtype arithmetic is done in, and then to the dtype they are stored in."""
    return rounded(rounded(values, dtype.compute), dtype)


def elementwise(
    floats: Scalars | None, integers: Scalars | None = None, *, to_bool: bool = False
) -> Callable[..., Array]:
    """A reference from a function on f64 arrays, and one on integer and bool arrays (the same where not given)."""

    def reference(*arrays: Array, **attributes: Any) -> Array:
        dtype = dtype_of(arrays[0])
        function = floats if dtype.is_float else (integers or floats)
        assert function is not None, "dtypes outside the op's are refused by `infer`"
        values = [array.astype(np.float64) for array in arrays] if dtype.is_float else arrays
        with np.errstate(all="ignore"):
            result = function(*values, **attributes)
        return np.asarray(result, np.bool_) if to_bool else stored(result, dtype)

    return reference


def rsqrt(x: Array) -> Array:
    """`1 / sqrt(x)`."""
    return 1.0 / np.sqrt(x)


def reciprocal(x: Array) -> Array:
    """`1 / x`."""
    return 1.0 / x


def sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))`, from the side on which the exponential does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def relu(x: Array) -> Array:
    """0 below 0; everything else stays, NaN and the zero with a sign too."""
    return np.where(x < 0, np.zeros((), x.dtype), x)


def maximum(x: Array, y: Array) -> Array:
    """The larger, of two that are equal (zeros of both signs) the second; NaN where either is."""
    return np.where((x > y) | (x != x), x, y)


def minimum(x: Array, y: Array) -> Array:
    """The smaller, of two that are equal (zeros of both signs) the second; NaN where either is."""
    return np.where((x < y) | (x != x), x, y)


def gelu(x: Array, *, approximate: str = "none") -> Array:
    """`x` times the normal distribution's share below `x`, or its tanh form; the tails do not cancel."""
    if approximate == "tanh":
        return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * _erfc(x * -math.sqrt(0.5))


def erf(x: Array) -> Array:
    """The error function."""
    return _erf(x)


def silu(x: Array) -> Array:
    """`x * sigmoid(x)`."""
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """`log(1 + exp(x))`, which does not overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN for NaN."""
    return np.sign(x)


def floordiv(x: Array, y: Array) -> Array:
    """The quotient rounded down; where the quotient is infinite, that infinity."""
    quotient = x / y
    return np.where(np.isinf(quotient), quotient, np.floor_divide(x, y))


def integer_pow(x: Array, y: Array) -> Array:
    """`x` to the power `y` modulo 2**bits, by squaring; a negative exponent leaves only the powers of 1 and -1."""
    x, y = np.broadcast_arrays(x, y)
    one, unit = x.dtype.type(1), np.abs(x) == 1
    parity: Array = np.where(unit, np.bitwise_and(y, one), np.zeros_like(y))
    left: Array = np.where(y < 0, parity, y)
    result: Array = np.ones_like(x)
    factor: Array = x
    while np.any(left):
        result = np.where((left & one) != 0, result * factor, result)
        factor = factor * factor
        left = left >> one
    return np.where((y < 0) & ~unit, x.dtype.type(0), result)


def clamp(x: Array, low: Array, high: Array) -> Array:
    """`x` held within `low..high`; `high` wins where they cross."""
    return np.minimum(np.maximum(x, low), high)


def where(condition: Array, x: Array, y: Array) -> Array:
    """`x` where the condition holds, else `y`."""
    return np.where(condition, x, y)


def cast(x: Array, *, dtype: DType) -> Array:
    """The values in another dtype, by the table of `types/promotion.py`."""
    source = dtype_of(x)
    if dtype.is_bool:
        return np.asarray(x != 0)
    if dtype.is_float:
        return narrowed(x, dtype)
    if not source.is_float:
        return rounded(x, dtype)
    low, high = integer_range(dtype)
    wide = np.trunc(x.astype(np.float64))
    # 2**63 - 1 and 2**64 - 1 are not floats: compare with the power of two above, and convert only what is inside
    inside = (wide >= low) & (wide < float(high + 1))
    whole = np.where(inside, wide, 0.0).astype(np.uint64 if dtype.kind == "uint" else np.int64)
    ends = np.where(wide > 0, high, low).astype(whole.dtype)
    result = np.where(inside, whole, np.where(np.isnan(wide), np.zeros_like(ends), ends))
    return np.asarray(result).astype(numpy_dtype(dtype))


def bitcast(x: Array, *, dtype: DType, source: DType) -> Array:
    """The same bits read as another dtype of the same width."""
    assert source is dtype_of(x) or source is dt.i4
    return np.ascontiguousarray(x).view(numpy_dtype(dtype)).reshape(x.shape)
