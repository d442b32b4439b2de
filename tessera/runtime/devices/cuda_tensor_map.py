"""The area in which a host program keeps the tensor maps that it made, and what it counts there."""

from __future__ import annotations

import ctypes
from weakref import WeakSet

from tessera.diagnostics.codes import DeviceError

_LINE = 64
_PROGRAMS: WeakSet[TensorMaps] = WeakSet()

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
        _PROGRAMS.add(self)

    @property
    def reused(self) -> int:
        """How often a map was found that had been made before."""
        return self._counters[0]

    @property
    def created(self) -> int:
        """How often the driver was asked for one."""
        return self._counters[1]


def tensor_map_counts() -> dict[str, int]:
    """Maps that all programs of this process, as far as they live, made and used again."""
    programs = list(_PROGRAMS)
    return {"created": sum(maps.created for maps in programs), "reused": sum(maps.reused for maps in programs)}


def too_far(kernel: str) -> DeviceError:
    """The error for a kernel that is given such a dim."""
    return DeviceError(
        f"`{kernel}` cannot be launched: a tensor that the copy engine reads or writes has a dim of more than "
        f"{MOST_PLACES} elements",
        fix="declare such a dim with its size, and its kernel does without the engine; or take the tensor in parts",
    )
