"""NumPy arrays as the values of reference semantics: their dtypes, and rounding into and out of arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tessera.ir.base.spec import Attribute
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import FORMATS, DType, NumberFormat, conversion_fault

if TYPE_CHECKING:
    from tessera.ir.base.op import SpecOp  # graph ops are declared without the IR library


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


def widen_array(array: Array) -> Array:
    """The array in the dtype arithmetic is done in: narrow floats become f32."""
    return array.astype(numpy_dtype(dtype_of(array).compute), copy=False)


def exact(array: Array) -> Array:
    """The array in the widest dtype of its kind, where a reference works before rounding once at its end."""
    dtype = dtype_of(array)
    if dtype.is_float:
        return array.astype(np.float64, copy=False)
    return array.astype(np.uint64 if dtype.kind == "uint" else np.int64, copy=False)


def round_as(array: Any, dtype: DType) -> Array:
    """The values rounded to nearest even in `dtype`; integers wrap, i4 keeps its four low bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.asarray(array).astype(numpy_dtype(dtype))
    if dtype is dt.i4:
        result = ((result + 8) & 15) - 8
    return result


def narrow(array: Any, dtype: DType) -> Array:
    """The values as the nearest floats of `dtype`, from any dtype: rounded once, as arrays alone do not below f32."""
    values = np.asarray(array)
    if dtype.compute is dtype or values.dtype.kind not in "fiu" or values.dtype.itemsize < 4:
        return round_as(values, dtype)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        values = _few_bits(values)
    return round_as(_odd(values.astype(np.float64)), dtype)


RANK_REDUCTIONS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "mean": np.add,
}
"""Reductions over ranks; a mean divides what was added."""


def reduce_ranks(ranks: Sequence[Array], kind: str) -> Array:
    """The reduction of the arrays of all ranks, rank 0 first; narrow floats in f32, rounded once at the end."""
    total = widen_array(ranks[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for other in ranks[1:]:
            total = RANK_REDUCTIONS[kind](total, widen_array(other))
    if kind == "mean":
        total = total / total.dtype.type(len(ranks))
    return round_as(total, dtype_of(ranks[0]))


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


def added_once(x: Array, total: Array) -> Array:
    """`x + total` in f32, rounded once: what a fused multiply-add gives, for the exact product `x` of two f32 in f64.

    The sum in f64 is rounded already, and where that makes it a tie of f32 the second rounding may go the wrong way. So
    a sum that lost something there ends in an odd bit, which no tie does.
    """
    wide = total.astype(np.float64)
    near = np.asarray(x + wide)
    bits = near.view(np.uint64)
    with np.errstate(invalid="ignore", over="ignore"):
        is_suspect = (bits & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        # Below the normal numbers of f32, where ties lie elsewhere; but not zero, which has lost nothing.
        is_suspect |= (bits << np.uint64(1)) - np.uint64(1) < _TWICE_LEAST_NORMAL
        if is_suspect.any():
            near[is_suspect] = _ending_odd(*(array[is_suspect] for array in np.broadcast_arrays(x, wide, near)))
    return near.astype(np.float32)


def _ending_odd(x: Array, wide: Array, near: Array) -> Array:
    """Sums in f64 that end in an odd bit where they lost something."""
    part = near - x
    lost = (x - (near - part)) + (wide - part)
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


# What rounding to a number format means, on NumPy arrays of f32: the executable text of `docs/guide/numerics.md`.

# Rounding ops of all dialects: the attributes that say how, and their check.

CONVERSION = (
    Attribute("format", "str", doc="the numbers that are kept: a float or integer dtype, tf32 or f4e2m1"),
    Attribute("rounding", "str", "nearest_even", "nearest_even, toward_zero or stochastic"),
    Attribute("saturation", "str", "", "saturate or wrap; else floats overflow and integers stop at their ends"),
    Attribute("denormals", "str", "keep", "keep or flush"),
)


def check_conversion(op: SpecOp) -> None:
    """Raises unless the attributes say how to round, and random bits are there where they are needed."""
    fault = conversion_fault(*(op.value(attribute.name) for attribute in CONVERSION))
    if fault:
        op.fail(f"`{op.name}`: {fault}")
    wanted = 2 if op.value("rounding") == "stochastic" else 1
    if len(op.operands) != wanted:
        given = "random bits beside its values" if wanted == 2 else "its values and nothing else"
        op.fail(f"`{op.name}` that rounds {op.value('rounding')} takes {given}, got {len(op.operands)} operands")


STEPS = 24
"""Random bits that decide a stochastic rounding: it goes up where they, as a fraction, are below what is lost."""


def round_to(
    x: Array,
    *,
    format: str,
    rounding: str = "nearest_even",
    saturation: str = "",
    denormals: str = "keep",
    bits: Array | None = None,
) -> Array:
    """The values of `x` as numbers of a format, still in f32; `bits` are 32 random ones for each element."""
    kind, exact = FORMATS[format], np.asarray(x, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        if not kind.is_float:
            return _to_integer(exact, kind, rounding, saturation, bits)
        magnitude = np.abs(exact)
        quantum = _quantum(magnitude, kind)
        steps = np.where(np.isfinite(magnitude), magnitude, 0.0) / quantum
        rounded = np.where(np.isfinite(magnitude), _whole(steps, rounding, bits) * quantum, magnitude)
        rounded = _limit(rounded, magnitude, kind, rounding, saturation)
        if denormals == "flush":
            rounded = np.where(rounded < kind.smallest_normal, 0.0, rounded)
        result = np.copysign(rounded, exact)
        return np.where(np.isnan(exact), np.nan, result).astype(np.float32)


def _quantum(magnitude: Array, kind: NumberFormat) -> Array:
    """The distance between neighbours of the format around each number."""
    _, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    normal = np.where(magnitude > 0, exponent - 1, 1 - kind.bias)
    return np.ldexp(1.0, np.maximum(normal, 1 - kind.bias) - kind.mantissa)


def _whole(steps: Array, rounding: str, bits: Array | None) -> Array:
    """Integers from any numbers; toward zero only what is not negative."""
    if rounding == "nearest_even":
        return np.rint(steps)
    low = np.floor(steps)
    if rounding == "toward_zero":
        return low
    assert bits is not None, "stochastic rounding needs random bits"
    share = (bits.astype(np.uint32) >> np.uint32(32 - STEPS)).astype(np.float64) * 2.0**-STEPS
    return low + (share < steps - low)


def _limit(rounded: Array, magnitude: Array, kind: NumberFormat, rounding: str, saturation: str) -> Array:
    """What becomes of numbers beyond the largest, and of infinity."""
    beyond: Any = np.inf if kind.has_infinity else np.nan if kind.has_nan else kind.largest
    if saturation == "saturate":
        beyond = kind.largest
    outside = rounded > kind.largest
    if rounding == "toward_zero":
        # What is finite stops at the largest; what was infinite is not.
        beyond = np.where(np.isinf(magnitude), beyond, kind.largest)
    return np.where(outside, beyond, rounded)


def _to_integer(exact: Array, kind: NumberFormat, rounding: str, saturation: str, bits: Array | None) -> Array:
    if rounding == "stochastic":
        whole = _whole(exact, rounding, bits)
    else:
        whole = np.rint(exact) if rounding == "nearest_even" else np.trunc(exact)
    if saturation == "wrap":
        span = kind.largest - kind.lowest + 1
        offset = whole - span * np.floor(whole / span)
        whole = np.where(offset > kind.largest, offset - span, offset)
    else:
        whole = np.clip(whole, kind.lowest, kind.largest)
    # Adding zero makes an integer's zero positive.
    return (np.where(np.isnan(whole), 0.0, whole) + 0.0).astype(np.float32)
