"""Tensors of a GPU given to other libraries through DLPack, and kept until they are let go."""

from __future__ import annotations

import ctypes
from typing import Any

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.runtime import dlpack
from tessera.types.dtype import DType


class _Managed(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_NAME = ctypes.c_char_p(b"dltensor")
_held: dict[int, Any] = {}
"""What was given away, by the address of its record."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _let_go(address: int) -> None:
    """The consumer needs it no more."""
    _held.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _end_capsule(capsule: int) -> None:
    """A capsule that nobody took: what it holds goes with it."""
    if _is_valid(capsule, _NAME):
        _held.pop(_pointer(capsule, _NAME), None)


# By address: when a capsule ends, nobody may hold on to it.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def export(owner: Any, address: int, dtype: DType, shape: tuple[int, ...], ordinal: int) -> Any:
    """A capsule of a contiguous tensor that `owner` keeps alive; raises RuntimeArgumentError (T0701) for i4."""
    pair = dlpack.BY_DTYPE.get(dtype.name)
    if pair is None:
        raise RuntimeArgumentError(f"DLPack has no name for {dtype}")
    rank = len(shape)
    item = dtype.bytes
    strides = [step // item for step in dlpack.c_strides(shape, item)]
    words = (ctypes.c_int64 * max(1, 2 * rank))(*shape, *strides)
    record = _Managed()
    record.data, record.device_type, record.device_id = address, dlpack.CUDA, ordinal
    record.rank, record.code, record.bits, record.lanes = rank, *pair, 1
    record.shape = ctypes.addressof(words)
    record.strides = ctypes.addressof(words) + 8 * rank
    record.deleter = ctypes.cast(_let_go, ctypes.c_void_p).value
    place = ctypes.addressof(record)
    _held[place] = (record, words, owner)
    return _capsule_new(place, _NAME, ctypes.cast(_end_capsule, ctypes.c_void_p).value)
