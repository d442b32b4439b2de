"""Builtins of Python made of native code: their definitions, and the objects that are called."""

from __future__ import annotations

import ctypes
from typing import Any

FASTCALL, ONE_ARGUMENT = 0x80, 0x08
"""How native code is given its arguments: METH_FASTCALL and METH_O of the C interface."""

_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]


class MethodDefinition(ctypes.Structure):
    """`PyMethodDef`, which must live as long as builtins made of it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]

    def builtin(self, itself: object, module: object) -> Any:
        """A builtin that hands `itself` to native code; it keeps that and `module` alive, not this definition."""
        return _new_function(ctypes.addressof(self), itself, module)
