"""Ranges of a profiler (NVTX): kernels by name in its timeline, where one looks on; without one nothing is loaded.

A profiler names its library in NVTX_INJECTION64_PATH. That library asks for tables of pointers to functions,
and writes its own there; the host program calls what it finds in two of them around each launch.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_LIBRARY = "NVTX_INJECTION64_PATH"
_CALLBACKS, _VERSION = 1, 3
"""The tables a profiler asks for: where its functions go, and the version of the protocol."""
_PROTOCOL = 3
_GROUPS = {1: 16, 2: 9, 3: 15, 4: 7, 5: 16, 6: 7}
"""Groups of functions, each with how many it has: a profiler wants to see all of them, of which only the first is used.

Marks and ranges; names of what CUDA, OpenCL and CUDA's runtime have; domains; locks.
"""
_CORE, _PUSH, _POP = 1, 9, 11
"""The first group, and the indices of `nvtxRangePushA` and `nvtxRangePop` in it."""

_GET_TABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
_SET_VERSION = ctypes.CFUNCTYPE(None, ctypes.c_uint)
_EXPORT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint)


class _Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("table", _GET_TABLE)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_version", _SET_VERSION),
    ]


class Ranges:
    """What a profiler gave: functions to begin and end a range, or none where it did not want to know."""

    def __init__(self, initialize: Any) -> None:
        self._functions = {group: (ctypes.c_void_p * count)() for group, count in _GROUPS.items()}
        self._slots = {group: _slots(functions) for group, functions in self._functions.items()}
        self._tables = _Callbacks(ctypes.sizeof(_Callbacks), _GET_TABLE(self._table))
        self._version = _Version(ctypes.sizeof(_Version), _PROTOCOL, 0, _SET_VERSION(_ignored))
        # It may come back for tables later, so they stay.
        self._export = _EXPORT(self._exported)
        self._is_watched = bool(initialize(self._export))

    def functions(self) -> tuple[int, int]:
        """The addresses of the two functions as they are now: one that looks on later writes them later."""
        push, pop = (self._functions[_CORE][at] or 0 if self._is_watched else 0 for at in (_PUSH, _POP))
        return (push, pop) if push and pop else (0, 0)

    def _table(self, group: int, slots: int, count: int) -> int:
        if group not in _GROUPS:
            return 0
        if slots:
            ctypes.c_void_p.from_address(slots).value = ctypes.addressof(self._slots[group])
        if count:
            ctypes.c_uint.from_address(count).value = _GROUPS[group]
        return 1

    def _exported(self, number: int) -> int:
        found = {_CALLBACKS: self._tables, _VERSION: self._version}.get(number)
        return 0 if found is None else ctypes.addressof(found)


def _slots(functions: Any) -> Any:
    """Where the functions of a group go; there is none with the number 0, and none behind the last."""
    start, size = ctypes.addressof(functions), ctypes.sizeof(ctypes.c_void_p)
    found = [0, *(start + at * size for at in range(1, len(functions))), 0]
    return (ctypes.c_void_p * len(found))(*found)


def _ignored(_: int) -> None:
    """The version that the profiler has: it gets ours, and does as it likes."""


def ranges() -> tuple[int, int]:
    """The functions that begin and end a range, as addresses; zeros where no profiler looks on."""
    path = os.environ.get(_LIBRARY)
    found = _profiler(path) if path else None
    return (0, 0) if found is None else found.functions()


@cache
def _profiler(path: str) -> Ranges | None:
    """What a profiler's library gave; it keeps pointers to these tables as long as the process lives."""
    try:
        library = ctypes.CDLL(path)
        initialize = library.InitializeInjectionNvtx2
    except (OSError, AttributeError):
        return None
    initialize.argtypes, initialize.restype = [_EXPORT], ctypes.c_int
    return Ranges(initialize)
