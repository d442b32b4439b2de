"""What programs of a GPU leave to be read: TMA descriptors kept and counted, waits that were counted, and hangs."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tessera.diagnostics.codes import DeviceError
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.runtime.devices.cuda.driver import Module


# Ranges of a profiler (NVTX): kernels by name in its timeline, where one looks on; without one nothing is loaded.

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
        self._version = _Version(ctypes.sizeof(_Version), _PROTOCOL, 0, _SET_VERSION(_ignore_version))
        # It may come back for tables later, so they stay.
        self._export = _EXPORT(self._export_table)
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

    def _export_table(self, number: int) -> int:
        found = {_CALLBACKS: self._tables, _VERSION: self._version}.get(number)
        return 0 if found is None else ctypes.addressof(found)


def _slots(functions: Any) -> Any:
    """Where the functions of a group go; there is none with the number 0, and none behind the last."""
    start, size = ctypes.addressof(functions), ctypes.sizeof(ctypes.c_void_p)
    found = [0, *(start + at * size for at in range(1, len(functions))), 0]
    return (ctypes.c_void_p * len(found))(*found)


def _ignore_version(_: int) -> None:
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


# Records of waits: kernels made with `debug=True` write where they hang, which errors say, and count all others.

_BYTES = 64
_PORTABLE_AND_MAPPED = 1 | 2
_WORDS = 6
_COUNTS, _MOST_COUNTED = 3, 64
"""Words for each wait on the device, and how many waits have some."""
_ELSEWHERE = 0xFFFFFFFF
"""In place of a barrier's address: a wait for a word in global memory."""


@frozen
class Watched:
    """A kernel, what its waits are by number, where its record is, and where on the device its counts are."""

    kernel: str
    waits: tuple[str, ...]
    address: int
    counts: int = 0
    driver: Any = None

    def describe_hang(self) -> str:
        """Where the kernel hangs; nothing while it does not."""
        words: list[int] = list((ctypes.c_uint32 * _WORDS).from_address(self.address))
        is_written, number, block, thread, barrier, parity = words
        if not is_written:
            return ""
        where = self.waits[number] if number < len(self.waits) else f"wait {number}"
        who = f"{where}, thread {thread} of CTA {block}"
        if barrier == _ELSEWHERE:
            return f"`{self.kernel}` waits for another CTA, which says nothing: {who}"
        at = f"barrier at shared address {barrier}, phase {parity}"
        return f"`{self.kernel}` waits for a barrier that never opens: {who}, {at}"

    def read_counters(self) -> list[dict[str, Any]]:
        """The counters of each wait: how often warps came, how often they stalled, and for how many cycles."""
        words = (ctypes.c_uint64 * (_COUNTS * min(len(self.waits), _MOST_COUNTED)))()
        self.driver.call("cuCtxSynchronize")
        size = ctypes.c_size_t(ctypes.sizeof(words))
        self.driver.call("cuMemcpyDtoH_v2", words, ctypes.c_uint64(self.counts), size)
        rows = zip(self.waits, *[list(words[at::_COUNTS]) for at in range(_COUNTS)], strict=False)
        found = [dict(zip(("wait", "times", "stalls", "cycles"), row, strict=True)) for row in rows]
        return [{"kernel": self.kernel, **one} for one in found]


_WATCHED: list[Watched] = []


def watch(module: Module, kernel: str, waits: Sequence[str]) -> None:
    """Give the kernel of a module a record."""
    cuda = module.driver
    pointer = ctypes.c_void_p()
    cuda.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(_BYTES), _PORTABLE_AND_MAPPED)
    address = pointer.value or 0
    ctypes.memset(address, 0, _BYTES)
    own = ctypes.c_uint64()
    cuda.call("cuMemHostGetDevicePointer_v2", ctypes.byref(own), ctypes.c_void_p(address), 0)
    target, counts, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    cuda.call("cuModuleGetGlobal_v2", ctypes.byref(counts), ctypes.byref(size), module.handle, b"wait_counts")
    cuda.call("cuModuleGetGlobal_v2", ctypes.byref(target), ctypes.byref(size), module.handle, b"wait_record")
    cuda.call("cuMemcpyHtoD_v2", target, ctypes.byref(own), size)
    _WATCHED.append(Watched(kernel, tuple(waits), address, counts.value, cuda))


def wait_counts() -> list[dict[str, Any]]:
    """The counters of the waits of all kernels that were made with `debug=True` and loaded here; plain values."""
    return [one for watched in _WATCHED for one in watched.read_counters()]


def hanging() -> str:
    """Where some kernel of this process hangs; nothing where none is known to."""
    return next((found for watched in _WATCHED if (found := watched.describe_hang())), "")


# The area in which a host program caches its TMA descriptors, and what it counts there, as plain values.

_LINE = 64
_DESCRIPTORS, _ENTRY = 16, 256
"""Descriptors that are cached for each site of a program that needs one, and the bytes of each."""
_PROGRAMS: WeakSet[TensorMaps] = WeakSet()
_BEGUN = time.monotonic()

MOST_ELEMENTS = (1 << 31) - 1
"""The elements of a dim that the TMA can address: its coordinates are 32 bits with a sign."""
TOO_FAR = 1 << 16
"""What the entry of a program returns where a dim has more; no error code of the driver."""


class TensorMaps:
    """Memory for the maps of a program, which native code writes; `reused` and `created` are counted there too."""

    def __init__(self, size: int) -> None:
        """`size` is the bytes that the program asks for, 0 where it has no maps."""
        self._area = ctypes.create_string_buffer(max(size, 2 * ctypes.sizeof(ctypes.c_int64)) + _LINE)
        self.address = -(-ctypes.addressof(self._area) // _LINE) * _LINE
        self._counters = (ctypes.c_int64 * 2).from_address(self.address)
        self._sites = max(0, size - _LINE) // (_LINE + _DESCRIPTORS * _ENTRY)
        _PROGRAMS.add(self)

    @property
    def reused(self) -> int:
        """How often a map was found that had been made before."""
        return self._counters[0]

    @property
    def created(self) -> int:
        """How often the driver was asked for one."""
        return self._counters[1]

    @property
    def kept(self) -> int:
        """Maps that are there to be found again: an entry that was written has a version."""
        lines = (self.address + _LINE + at * (_LINE + _DESCRIPTORS * _ENTRY) for at in range(self._sites))
        entries = (line + _LINE + entry * _ENTRY for line in lines for entry in range(_DESCRIPTORS))
        return sum(1 for entry in entries if ctypes.c_int64.from_address(entry).value)


def tensor_map_counts() -> dict[str, int]:
    """Maps that all programs of this process, as far as they live, made and used again; those that were let go.

    One is dropped where another takes its entry.
    """
    programs = list(_PROGRAMS)
    created, reused, kept = (sum(getattr(maps, name) for maps in programs) for name in ("created", "reused", "kept"))
    return {"created": created, "reused": reused, "kept": kept, "dropped": max(0, created - kept)}


def metrics() -> dict[str, Any]:
    """What programs of this process did with TMA descriptors, as plain values that JSON holds.

    `maps` are the counts, `seconds` since the first program, `per_second` how many of them launches used per second.
    `waits` are those of kernels made with `debug=True`, by warps: a producer that came to its wait for an empty stage
    filled it afterwards by a map, one that stalled found no stage empty; a consumer that stalled waited for data.
    """
    counts, seconds = tensor_map_counts(), time.monotonic() - _BEGUN
    per_second = (counts["created"] + counts["reused"]) / max(seconds, 1e-9)
    return {"maps": counts, "seconds": seconds, "per_second": per_second, "waits": wait_counts()}


def too_far(kernel: str) -> DeviceError:
    """The error for a kernel that is given such a dim."""
    return DeviceError(
        f"`{kernel}` cannot be launched: a tensor that the TMA reads or writes has a dim of more than "
        f"{MOST_ELEMENTS} elements",
        fix="declare such a dim with its size, and its kernel does without the TMA; or take the tensor in parts",
    )
