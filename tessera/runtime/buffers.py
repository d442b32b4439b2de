"""Where the bytes of a Python object with a buffer are, those that may not be written included."""

from __future__ import annotations

import ctypes


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    ]


def buffer_address(view: memoryview) -> int:
    """The address of the first byte; 0 where there is none."""
    if not view.nbytes:
        return 0
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))
    # ctypes refuses read-only buffers; the buffer record itself says where they are.
    record = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(record), 0)
    try:
        return int(record.buf)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(record))
