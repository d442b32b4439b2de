"""Elements of tensors as bytes, as Python numbers and as text."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterable
from typing import TypeAlias

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.types.dtype import DType

Scalar: TypeAlias = "bool | int | float"

# What `struct` and `memoryview` call the dtypes they know; i4 lies in an int8.
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
