"""What scalar functions mean on NumPy arrays: floats in f64 and rounded once, integers in their own width.

`ir/base/scalar_functions.py` names these functions, and those of NumPy, as the references of its entries; graph ops and
the tile interpreter both compute by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, added_once, dtype_of, narrow, numpy_dtype, round_as
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, resolve
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

Meaning: TypeAlias = Callable[..., Any]
"""A function of arrays of one dtype."""

_erf: Any = np.vectorize(math.erf, otypes=[np.float64])
_erfc: Any = np.vectorize(math.erfc, otypes=[np.float64])


def round_to_storage(values: Any, dtype: DType) -> Array:
    """Values rounded to the dtype arithmetic is done in, and then to the dtype they are stored in."""
    return round_as(round_as(values, dtype.compute), dtype)


def graph_reference(choose: Callable[..., Meaning], *, to_bool: bool = False) -> Callable[..., Array]:
    """The reference of an elementwise graph op: `choose(dtype, **attributes)` is its meaning for a dtype."""

    def reference(*arrays: Array, **attributes: Any) -> Array:
        dtype = dtype_of(arrays[0])
        meaning = choose(dtype, **attributes)
        values = [array.astype(np.float64) for array in arrays] if dtype.is_float else arrays
        with np.errstate(all="ignore"):
            result = meaning(*values)
        return np.asarray(result, np.bool_) if to_bool else round_to_storage(result, dtype)

    return reference


def meaning_of(name: str, dtype: DType) -> Meaning:
    """The reference of a scalar function for operands of a dtype."""
    function = SCALAR_FUNCTIONS[name]
    return resolve(function.reference if dtype.is_float else function.integer_reference or function.reference)


def apply(name: str, tiles: Sequence[Array], dtype: DType) -> Array:
    """A scalar function on tiles of `dtype`.

    f32 is computed in f64 and rounded once: for sums, products, quotients and roots that is the rounding IEEE asks for,
    and a fused_multiply_add multiply-add sees to it; for others it is the nearest f32.
    """
    meaning = (
        (fused_multiply_add if dtype.bits == 64 else _fused_f32)
        if name == "fma" and dtype.is_float
        else meaning_of(name, dtype)
    )
    values = [tile.astype(np.float64) for tile in tiles] if dtype.is_float else tiles
    with np.errstate(all="ignore"):
        result = np.asarray(meaning(*values))
    return result.astype(np.bool_) if SCALAR_FUNCTIONS[name].is_predicate else round_as(result, dtype)


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


def gelu_erf(x: Array) -> Array:
    """`x` times the normal distribution's share below `x`: by way of erfc, so that the lower tail does not cancel."""
    return 0.5 * x * _erfc(x * -math.sqrt(0.5))


def gelu_tanh(x: Array) -> Array:
    """The tanh form of the same."""
    return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def erf(x: Array) -> Array:
    """The error function."""
    return _erf(x)


def erfc(x: Array) -> Array:
    """1 less the error function."""
    return _erfc(x)


def count_bits(x: Array) -> Array:
    """How many bits are set, of a negative number in two's complement."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.bitwise_count(x.view(unsigned)).astype(x.dtype)


def silu(x: Array) -> Array:
    """`x * sigmoid(x)`."""
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """`log(1 + exp(x))`, which does not overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def floordiv(x: Array, y: Array) -> Array:
    """The quotient rounded down; where that of a finite number is infinite, that infinity."""
    quotient = x / y
    return np.where(np.isinf(quotient) & np.isfinite(x), quotient, np.floor_divide(x, y))


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


_SPLIT = float(2**27 + 1)
"""Multiplying by this cuts a double in two halves of 26 bits (Dekker)."""


def _halves(x: Array) -> tuple[Array, Array]:
    carried = _SPLIT * x
    high = carried - (carried - x)
    return high, x - high


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of doubles rounded as if once: the error of product and sum is found exactly, and added last."""
    product = x * y
    (xh, xl), (yh, yl) = _halves(x), _halves(y)
    lost = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    part = total - product
    lost = lost + ((product - (total - part)) + (z - part))
    return np.where(np.isfinite(lost), total + lost, total)


def _fused_f32(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of f32, which come as f64: there the product is exact."""
    return added_once(np.asarray(x * y), np.asarray(z))


def fma(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of integers."""
    return x * y + z


def clamp(x: Array, low: Array, high: Array) -> Array:
    """`x` held within `low..high`; `high` where they cross."""
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
        return narrow(x, dtype)
    if not source.is_float:
        return round_as(x, dtype)
    low, high = integer_range(dtype)
    wide = np.trunc(x.astype(np.float64))
    # 2**63 - 1 and 2**64 - 1 are not floats: compare with the power of two above, and convert only what is inside
    inside = (wide >= low) & (wide < float(high + 1))
    whole = np.where(inside, wide, 0.0).astype(np.uint64 if dtype.kind == "uint" else np.int64)
    ends = np.where(wide > 0, whole.dtype.type(high), whole.dtype.type(low))
    result = np.where(inside, whole, np.where(np.isnan(wide), np.zeros_like(ends), ends))
    return np.asarray(result).astype(numpy_dtype(dtype))


def bitcast(x: Array, *, dtype: DType, source: DType) -> Array:
    """The same bits read as another dtype of the same width."""
    assert source is dtype_of(x) or source is dt.i4
    return np.ascontiguousarray(x).view(numpy_dtype(dtype)).reshape(x.shape)


def dot(lhs: Array, rhs: Array, acc: Array) -> Array:
    """`acc + lhs @ rhs` as one chain of fused multiply-adds over k, in order, in the accumulator's dtype."""
    total = acc
    with np.errstate(all="ignore"):
        if acc.dtype.kind != "f":
            return acc + np.matmul(lhs.astype(acc.dtype), rhs.astype(acc.dtype))
        left, right = lhs.astype(np.float64), rhs.astype(np.float64)
        for k in range(lhs.shape[1]):
            x, y = left[:, k : k + 1], right[k : k + 1, :]
            # A product of two f32 is exact in f64.
            total = (
                fused_multiply_add(x, y, total)
                if acc.dtype == np.float64
                else added_once(x * y, total).astype(acc.dtype)
            )
    return total
