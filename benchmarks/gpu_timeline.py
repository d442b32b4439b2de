"""The timeline of a GPU as CUPTI lists it in this process: ranges, launches by the host, kernels on the device.

`with Timeline() as timeline:` watches what runs inside. Programs that are loaded there open a range around each launch,
as for any other profiler: the timeline names CUPTI's library in NVTX_INJECTION64_PATH, where they look for one.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tessera.runtime.devices.cuda.driver import synchronize

_NAMED = "NVTX_INJECTION64_PATH"
_PLACES = ("/usr/local/cuda*/lib*", "/usr/local/cuda*/extras/CUPTI/lib*", "/usr/local/cuda*/targets/*/lib")
_DRIVER, _KERNEL, _MARKER = 4, 10, 12
"""Kinds of records: calls of the driver, kernels that may run beside each other, beginnings and ends of ranges."""
_KINDS = _DRIVER, _KERNEL, _MARKER
_START, _END = 2, 4
"""Flag bits of a record of a range."""
_BUFFER = 4 << 20
_ALL = 1
"""Flush what is not complete either."""

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class MarkerRecord(ctypes.Structure):
    """A range begins or ends (`CUpti_ActivityMarker2`); the end has the number of its beginning, and no name."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("timestamp", ctypes.c_uint64),
        ("id", ctypes.c_uint32),
        ("object", ctypes.c_uint32 * 5),
        ("name", ctypes.c_char_p),
        ("domain", ctypes.c_char_p),
    ]


class CallRecord(ctypes.Structure):
    """A call of the driver (`CUpti_ActivityAPI`)."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("function", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("process", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("correlation", ctypes.c_uint32),
        ("answer", ctypes.c_uint32),
    ]


class KernelRecord(ctypes.Structure):
    """A kernel: the beginning of `CUpti_ActivityKernel4` and all later ones, which are the same that far."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("settings", ctypes.c_uint32 * 3),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("completed", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("sizes", ctypes.c_int32 * 10),
        ("correlation", ctypes.c_uint32),
        ("grid", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Span:
    """Something with a name that took from `start` to `end`, in nanoseconds of one clock.

    A kernel has its CUDA stream in `stream`; `correlation` is that of the call that launched it, and of that call.
    """

    name: str
    start: int
    end: int
    stream: int = 0
    correlation: int = 0

    def overlap(self, other: Span) -> int:
        """For how long both went on."""
        return max(0, min(self.end, other.end) - max(self.start, other.start))


@dataclass
class Seen:
    """What records say."""

    kernels: list[Span] = field(default_factory=list[Span])
    calls: list[Span] = field(default_factory=list[Span])
    ranges: list[Span] = field(default_factory=list[Span])
    _open: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])

    def take(self, address: int) -> None:
        """Read one record where it is."""
        kind = ctypes.c_uint32.from_address(address).value
        if kind == _KERNEL:
            kernel = KernelRecord.from_address(address)
            name = (kernel.name or b"").decode()
            self.kernels.append(Span(name, kernel.start, kernel.end, kernel.stream, kernel.correlation))
        elif kind == _DRIVER:
            call = CallRecord.from_address(address)
            self.calls.append(Span(str(call.function), call.start, call.end, 0, call.correlation))
        elif kind == _MARKER:
            marker = MarkerRecord.from_address(address)
            if marker.flags & _START:
                self._open[marker.id] = (marker.name or b"").decode(), marker.timestamp
            elif marker.flags & _END and marker.id in self._open:
                name, start = self._open.pop(marker.id)
                self.ranges.append(Span(name, start, marker.timestamp))

    def in_ranges(self) -> dict[str, bool]:
        """For each kernel: whether every launch of it stood in a range of its name."""
        calls = {call.correlation: call for call in self.calls}
        found: dict[str, bool] = {}
        for kernel in self.kernels:
            call = calls.get(kernel.correlation)
            around = [one.name for one in self.ranges if call and one.start <= call.start and call.end <= one.end]
            found[kernel.name] = found.get(kernel.name, True) and kernel.name in around
        return found


def library() -> Path | None:
    """Where CUPTI is: with CUDA, or among the packages of this Python."""
    places = [*_PLACES, *(f"{path}/nvidia/*/lib" for path in sys.path if path)]
    found = [Path(file) for place in places for file in sorted(glob.glob(f"{place}/libcupti.so*"), reverse=True)]
    return found[0] if found else None


class Timeline:
    """Watches this process while it is open; raises OSError where there is no CUPTI, or it does not want to."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or library()
        if self.path is None:
            raise OSError("there is no libcupti here")
        self._library: Any = ctypes.CDLL(str(self.path))
        self._buffers: dict[int, Any] = {}
        self._seen = Seen()
        self._callbacks = _Requested(self._requested), _Completed(self._completed)

    def __enter__(self) -> Self:
        self._ask("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in _KINDS:
            self._ask("cuptiActivityEnable", kind)
        os.environ[_NAMED] = str(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ[_NAMED]
        self.cut()
        for kind in _KINDS:
            self._ask("cuptiActivityDisable", kind)

    def cut(self) -> Seen:
        """What ran since the last cut, once all of it is done."""
        synchronize()
        self._ask("cuptiActivityFlushAll", _ALL)
        found, self._seen = self._seen, Seen()
        return found

    def _ask(self, name: str, *given: Any) -> None:
        code = getattr(self._library, name)(*given)
        if code:
            raise OSError(f"`{name}` failed: error {code} of CUPTI")

    def _requested(self, place: Any, size: Any, records: Any) -> None:
        made = ctypes.create_string_buffer(_BUFFER + 8)
        address = -(-ctypes.addressof(made) // 8) * 8
        self._buffers[address] = made
        place[0], size[0], records[0] = address, _BUFFER, 0

    def _completed(self, context: int | None, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        following = self._library.cuptiActivityGetNextRecord
        while not following(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)):
            self._seen.take(record.value or 0)
        self._buffers.pop(buffer, None)
