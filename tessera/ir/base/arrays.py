"""NumPy arrays as the values of reference semantics: their dtypes, and rounding into and out of arithmetic."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType

Array: TypeAlias = "np.ndarray[Any, Any]"

_NUMPY: dict[DType, np.dtype[Any]] = {
    dt.f64: np.dtype(np.float64),
    dt.f32: np.dtype(np.float32),
    dt.f16: np.dtype(np.float16),
    dt.i64: np.dtype(np.int64),
    dt.i32: np.dtype(np.int32),
    dt.i16: np.dtype(np.int16),
    dt.i8: np.dtype(np.int8),
    dt.i4: np.dtype(np.int8),
    dt.u64: np.dtype(np.uint64),
    dt.u32: np.dtype(np.uint32),
    dt.u16: np.dtype(np.uint16),
    dt.u8: np.dtype(np.uint8),
    dt.bool_: np.dtype(np.bool_),
}
_DTYPES = {array_dtype: dtype for dtype, array_dtype in _NUMPY.items() if dtype is not dt.i4}


@cache
def _load_narrow() -> None:
    """Fill in the floats that NumPy has not; tracing never asks for them, and they take a while to load."""
    import ml_dtypes  # noqa: PLC0415

    found: dict[DType, Any] = {
        dt.bf16: ml_dtypes.bfloat16,
        dt.f8e4m3: ml_dtypes.float8_e4m3fn,
        dt.f8e5m2: ml_dtypes.float8_e5m2,
    }
    _NUMPY.update({dtype: np.dtype(kind) for dtype, kind in found.items()})
    _DTYPES.update({np.dtype(kind): dtype for dtype, kind in found.items()})


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The array dtype that stores `dtype`; i4 lives in int8."""
    if dtype not in _NUMPY:
        _load_narrow()
    return _NUMPY[dtype]


def dtype_of(array: Array) -> DType:
    """The dtype an array holds; int8 is i8, as an array cannot say i4."""
    if array.dtype not in _DTYPES:
        _load_narrow()
    return _DTYPES[array.dtype]


def widened(array: Array) -> Array:
    """The array in the dtype arithmetic is done in: narrow floats become f32."""
    return array.astype(numpy_dtype(dtype_of(array).compute), copy=False)


def exact(array: Array) -> Array:
    """The array in the widest dtype of its kind, where a reference works before rounding once at its end."""
    dtype = dtype_of(array)
    if dtype.is_float:
        return array.astype(np.float64, copy=False)
    return array.astype(np.uint64 if dtype.kind == "uint" else np.int64, copy=False)


def rounded(array: Any, dtype: DType) -> Array:
    """The values rounded to nearest even in `dtype`; integers wrap, i4 keeps its four low bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.asarray(array).astype(numpy_dtype(dtype))
    if dtype is dt.i4:
        result = ((result + 8) & 15) - 8
    return result


def narrowed(array: Any, dtype: DType) -> Array:
    """The values as the nearest floats of `dtype`, from any dtype: rounded once, as arrays alone do not below f32."""
    values = np.asarray(array)
    if dtype.compute is dtype or values.dtype.kind not in "fiu" or values.dtype.itemsize < 4:
        return rounded(values, dtype)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        values = _few_bits(values)
    return rounded(_odd(values.astype(np.float64)), dtype)


def _few_bits(values: Array) -> Array:
    """64-bit integers that f64 holds: of large ones the lowest 12 bits become one, set where any was."""
    kind = values.dtype.type
    low: Array = values & kind(4095)
    marked: Array = (low != 0) * kind(2048)
    cut = np.bitwise_or(values ^ low, marked)
    small = values <= kind(2**53)
    return np.where(small & (values >= -(2**53)) if values.dtype.kind == "i" else small, values, cut)


def _odd(values: Array) -> Array:
    """f64 as f32, cut toward zero with the last bit set where that loses anything: no tie is made or lost by it."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        near = values.astype(np.float32)
    back = near.astype(np.float64)
    cut = near.view(np.uint32) - (np.abs(back) > np.abs(values)).astype(np.uint32)
    is_changed = (back != values) & ~np.isnan(values)
    return np.where(is_changed, (cut | np.uint32(1)).view(np.float32), near)


_TWICE_LEAST_NORMAL = np.float64(2.0**-126).view(np.uint64) * np.uint64(2) - np.uint64(1)


def added_once(product: Array, total: Array) -> Array:
    """`product + total` in f32, rounded once: what a fused multiply-add gives, for the exact product of two f32 in f64.

    The sum in f64 is rounded already, and where that makes it a tie of f32 the second rounding may go the wrong way. So
    a sum that lost something there ends in an odd bit, which no tie does.
    """
    wide = total.astype(np.float64)
    near = np.asarray(product + wide)
    bits = near.view(np.uint64)
    with np.errstate(invalid="ignore", over="ignore"):
        is_suspect = (bits & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        # Below the normal numbers of f32, where ties lie elsewhere; but not zero, which has lost nothing.
        is_suspect |= (bits << np.uint64(1)) - np.uint64(1) < _TWICE_LEAST_NORMAL
        if is_suspect.any():
            near[is_suspect] = _ending_odd(*(array[is_suspect] for array in np.broadcast_arrays(product, wide, near)))
    return near.astype(np.float32)


def _ending_odd(product: Array, wide: Array, near: Array) -> Array:
    """Sums in f64 that end in an odd bit where they lost something."""
    part = near - product
    lost = (product - (near - part)) + (wide - part)
    is_even = (near.view(np.uint64) & np.uint64(1)) == 0
    odd = np.nextafter(near, np.where(lost > 0, np.inf, -np.inf))
    return np.where(is_even & (lost != 0) & np.isfinite(lost), odd, near)


def static(dim: Dim | int) -> int:
    """The number a dim is when a reference runs, where every symbol has its value."""
    value = dim if isinstance(dim, int) else dim.value
    if value is None:
        raise ValueError(f"`{dim}` has no value yet")
    return value


def static_shape(dims: Any) -> tuple[int, ...]:
    """The numbers of a `dims` attribute."""
    return tuple(static(dim) for dim in dims)
