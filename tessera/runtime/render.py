"""A tensor as text: its dims, its dtype and its values, the middle left out where there are many."""

from __future__ import annotations

import ctypes
import math

from tessera.runtime.element import Scalar, decode
from tessera.types.dtype import DType

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
