"""NumPy arrays in and out, without a copy; NumPy is imported only when one of these is called."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Collection, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tessera.diagnostics.codes import OutOfMemoryError, RuntimeArgumentError
from tessera.runtime.native.support import Support, check_arrays
from tessera.types.dtype import ALL, DType, find_dtype

if TYPE_CHECKING:
    import numpy as np


# Elements of tensors as bytes, as Python numbers and as text.

Scalar: TypeAlias = "bool | int | float"

# What `struct` and `memoryview` call the dtypes they know; i4 is stored in an int8.
FORMATS = {
    "f64": "d",
    "f32": "f",
    "f16": "e",
    "i64": "q",
    "i32": "i",
    "i16": "h",
    "i8": "b",
    "i4": "b",
    "u64": "Q",
    "u32": "I",
    "u16": "H",
    "u8": "B",
    "bool": "?",
}
_BITS = {8: "B", 16: "H"}


def decode(dtype: DType, data: bytes) -> list[Scalar]:
    """The numbers in `data`."""
    count = len(data) // dtype.bytes
    known = FORMATS.get(dtype.name)
    if known is not None:
        return list(struct.unpack(f"<{count}{known}", data))
    return [decode_bits(dtype, bits) for bits in struct.unpack(f"<{count}{_BITS[dtype.bits]}", data)]


def encode(dtype: DType, values: Iterable[Scalar]) -> bytes:
    """The bytes of `values`, floats rounded to nearest even; raises RuntimeArgumentError for an unfit integer."""
    items = list(values)
    known = FORMATS.get(dtype.name)
    if dtype.is_float:
        if dtype.bits == 64:
            return struct.pack(f"<{len(items)}d", *items)
        if dtype.bits == 32:
            # The C conversion rounds to nearest even and overflows to infinity, where `struct` would refuse.
            return bytes((ctypes.c_float * len(items))(*items))
        return struct.pack(f"<{len(items)}{_BITS[dtype.bits]}", *(encode_bits(dtype, float(item)) for item in items))
    if dtype.is_bool:
        return bytes(bool(item) for item in items)
    low, high = integer_range(dtype)
    for item in items:
        if item != int(item) or not low <= item <= high:
            raise RuntimeArgumentError(f"{item} is not a value of {dtype}, which holds {low}..{high}")
    return struct.pack(f"<{len(items)}{known}", *map(int, items))


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1


def _is_finite_only(dtype: DType) -> bool:
    # f8e4m3 spends its top exponent on numbers and keeps one pattern for NaN (OCP 8-bit floating point, 5.1).
    return dtype.name == "f8e4m3"


def decode_bits(dtype: DType, bits: int) -> float:
    """The number a float's bit pattern stands for."""
    mantissa_bits, exponent_bits = dtype.mantissa, dtype.exponent
    sign = -1.0 if bits >> mantissa_bits + exponent_bits & 1 else 1.0
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    bias, top = (1 << exponent_bits - 1) - 1, (1 << exponent_bits) - 1
    if exponent == top:
        if _is_finite_only(dtype):
            if mantissa == (1 << mantissa_bits) - 1:
                return math.nan
        else:
            return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


def encode_bits(dtype: DType, value: float) -> int:
    """The bit pattern nearest to a number, ties to even; too large becomes infinity, or NaN where there is none."""
    mantissa_bits, exponent_bits = dtype.mantissa, dtype.exponent
    sign = (1 if math.copysign(1.0, value) < 0 else 0) << mantissa_bits + exponent_bits
    bias, top = (1 << exponent_bits - 1) - 1, (1 << exponent_bits) - 1
    finite_only = _is_finite_only(dtype)
    nan = top << mantissa_bits | ((1 << mantissa_bits) - 1 if finite_only else 1 << mantissa_bits - 1)
    overflow = nan if finite_only else top << mantissa_bits
    if math.isnan(value):
        return sign | nan
    if math.isinf(value):
        return sign | overflow
    if value == 0.0:
        return sign
    _, power = math.frexp(abs(value))
    exponent = max(power - 1, 1 - bias)
    # Python rounds to even, and scaling by a power of two is exact.
    steps = round(math.ldexp(abs(value), mantissa_bits - exponent))
    # The hidden bit of a normal number carries into the exponent field by itself, and so does a rounding up.
    bits = (exponent + bias - 1 << mantissa_bits) + steps
    largest = nan if finite_only else overflow
    return sign | (bits if bits < largest else overflow)


# A tensor as text: its dims, its dtype and its values, the middle left out where there are many.

_SHOW_ALL = 200  # elements up to which every one is shown
_EDGE = 3  # elements shown at each end of a longer axis


def render(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, address: int) -> str:
    """`Tensor([2, 3] f32, ...)`, with the values as nested lists."""
    head = f"Tensor([{', '.join(map(str, shape))}] {dtype}, "
    every = math.prod(shape) <= _SHOW_ALL
    return head + _values(shape, strides, dtype, address, " " * len(head), every) + ")"


def _values(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, address: int, indent: str, every: bool
) -> str:
    if not shape:
        return _number(decode(dtype, ctypes.string_at(address, dtype.bytes))[0])
    length = shape[0]
    whole = every or length <= 2 * _EDGE
    parts = [
        _values(shape[1:], strides[1:], dtype, address + index * strides[0], indent + " ", every)
        for index in (range(length) if whole else (*range(_EDGE), *range(length - _EDGE, length)))
    ]
    if not whole:
        parts.insert(_EDGE, "...")
    separator = ", " if len(shape) == 1 else ",\n" + indent + " "
    return f"[{separator.join(parts)}]"


def _number(value: Scalar) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_ML_NAMES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
NARROW = frozenset(_ML_NAMES)
"""Floats that NumPy's protocols have no name for."""
_NUMPY_NAMES = {
    dtype.name: "bool" if dtype.is_bool else f"{dtype.kind}{8 * dtype.bytes}"
    for dtype in ALL
    if dtype.name not in NARROW
}
_FIRST_NARROW = next(code for code, dtype in enumerate(ALL) if dtype.name in _ML_NAMES)


def is_array(value: object) -> bool:
    """Whether `value` is a NumPy array or scalar; never imports NumPy to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_masked(value: object) -> bool:
    """Whether `value` is a masked array, whose mask no tensor keeps."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(value, module.MaskedArray)


def type_string(dtype: DType) -> str:
    """What NumPy's array interface, and CUDA's, call a dtype."""
    return f"{'|' if dtype.bytes == 1 else '<'}{dtype.kind[0]}{dtype.bytes}"


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype elements of `dtype` are stored in; bf16 and the 8-bit floats are those of ml_dtypes."""
    import numpy  # noqa: PLC0415 (executables run without NumPy)

    if dtype.name in _ML_NAMES:
        import ml_dtypes  # noqa: PLC0415 (only these three dtypes need it)

        return numpy.dtype(getattr(ml_dtypes, _ML_NAMES[dtype.name]))
    return numpy.dtype(_NUMPY_NAMES[dtype.name])


def dtype_of(array: np.ndarray[Any, Any]) -> DType:
    """Our dtype of an array; raises RuntimeArgumentError (T0701) if there is none for it."""
    # An array in another byte order is converted.
    found = find_dtype(array.dtype.name)
    if found is None:
        raise RuntimeArgumentError(f"arrays of NumPy dtype `{array.dtype}` have no Tessera dtype")
    return found


def plain(array: Any, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """`array` itself, or a copy of it that is C-contiguous, aligned and in native byte order; i4 values are checked.

    An array of ml_dtypes' int4 is copied to bytes that hold the sign.
    """
    import numpy  # noqa: PLC0415 (executables run without NumPy)

    if is_masked(array):
        raise RuntimeArgumentError(
            "a masked array is no tensor: its mask would be lost",
            fix="pass `x.filled(value)`, or `x.data` and `x.mask` as two tensors",
        )
    ready = numpy.asarray(array)
    if ready.dtype.name == "int4":
        ready = ready.astype(numpy.int8)  # ml_dtypes leaves the upper half of each byte 0, also below zero
    try:
        if not ready.dtype.isnative:
            ready = ready.astype(ready.dtype.newbyteorder("="))
        ready = numpy.require(ready, requirements=["C_CONTIGUOUS", "ALIGNED"])
    except MemoryError:
        raise OutOfMemoryError(
            f"no memory for {ready.nbytes} bytes: a copy of an array of {list(ready.shape)} {ready.dtype}",
            notes=("an array that is not contiguous, aligned and in native byte order is copied",),
        ) from None
    if dtype is not None and dtype.name == "i4" and ready.size:
        low, high = integer_range(dtype)
        least, greatest = int(ready.min()), int(ready.max())
        if least < low or greatest > high:
            raise RuntimeArgumentError(f"i4 holds {low}..{high}, but the array has values in {least}..{greatest}")
    shape = numpy.shape(array)
    # `require` makes rank 0 into rank 1.
    return ready if ready.shape == shape else ready.reshape(shape)


def attach(support: Support) -> None:
    """Let the native call path read NumPy arrays, if NumPy has been imported; checks the layout it relies on first."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    if not support.environment.array_type:
        check_arrays(numpy.zeros((2, 3), numpy.float32))
        # Values of i4 arrays need a look at each call, which is the slow path's business.
        _describe(support, {name for name in _NUMPY_NAMES if name != "i4"})
        support.environment.array_type = id(numpy.ndarray)
    if "ml_dtypes" in sys.modules and not support.environment.descriptors[_FIRST_NARROW]:
        _describe(support, _ML_NAMES.keys())


def _describe(support: Support, names: Collection[str]) -> None:
    for code, dtype in enumerate(ALL):
        if dtype.name in names:
            support.environment.descriptors[code] = id(numpy_dtype(dtype))
