"""The area in which a host program keeps the tensor maps that it made, and what it counts there, as plain values."""

from __future__ import annotations

import ctypes
import time
from typing import Any
from weakref import WeakSet

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda_waits import wait_counts

_LINE = 64
_WAYS, _ENTRY = 16, 256
"""Maps that are kept for each place of a program that needs one, and bytes of each, behind a line for the place."""
_PROGRAMS: WeakSet[TensorMaps] = WeakSet()
_BEGUN = time.monotonic()

MOST_PLACES = (1 << 31) - 1
"""The elements of a dim that the copy engine can go to: it is told places in 32 bits with a sign."""
TOO_FAR = 1 << 16
"""What the entry of a program says where a dim has more; no number of the driver."""


class TensorMaps:
    """Memory for the maps of a program, which native code writes; `reused` and `created` are counted there too."""

    def __init__(self, size: int) -> None:
        """`size` is the bytes that the program asks for, 0 where it has no maps."""
        self._area = ctypes.create_string_buffer(max(size, 2 * ctypes.sizeof(ctypes.c_int64)) + _LINE)
        self.address = -(-ctypes.addressof(self._area) // _LINE) * _LINE
        self._counters = (ctypes.c_int64 * 2).from_address(self.address)
        self._places = max(0, size - _LINE) // (_LINE + _WAYS * _ENTRY)
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
        places = (self.address + _LINE + at * (_LINE + _WAYS * _ENTRY) for at in range(self._places))
        entries = (place + _LINE + way * _ENTRY for place in places for way in range(_WAYS))
        return sum(1 for entry in entries if ctypes.c_int64.from_address(entry).value)


def tensor_map_counts() -> dict[str, int]:
    """Maps that all programs of this process, as far as they live, made and used again; those that were let go.

    One is let go where there is no room for it any more.
    """
    programs = list(_PROGRAMS)
    created, reused, kept = (sum(getattr(maps, name) for maps in programs) for name in ("created", "reused", "kept"))
    return {"created": created, "reused": reused, "kept": kept, "dropped": max(0, created - kept)}


def metrics() -> dict[str, Any]:
    """What programs of this process did with tensor maps, as plain values that JSON holds.

    `maps` are the counts, `seconds` since the first program, `per_second` how many maps were handed to launches in
    one. `waits` are those of kernels made with `debug=True`, by warps: a producer that came to its wait for an empty
    stage filled it afterwards by a map, one that stalled found no stage empty; a consumer that stalled waited for data.
    """
    counts, seconds = tensor_map_counts(), time.monotonic() - _BEGUN
    per_second = (counts["created"] + counts["reused"]) / max(seconds, 1e-9)
    return {"maps": counts, "seconds": seconds, "per_second": per_second, "waits": wait_counts()}


def too_far(kernel: str) -> DeviceError:
    """The error for a kernel that is given such a dim."""
    return DeviceError(
        f"`{kernel}` cannot be launched: a tensor that the copy engine reads or writes has a dim of more than "
        f"{MOST_PLACES} elements",
        fix="declare such a dim with its size, and its kernel does without the engine; or take the tensor in parts",
    )
