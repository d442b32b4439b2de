"""The area in which a host program keeps the tensor maps that it made, and what it counts there."""

from __future__ import annotations

import ctypes
from weakref import WeakSet

_LINE = 64
_PROGRAMS: WeakSet[TensorMaps] = WeakSet()


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
