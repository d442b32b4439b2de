"""Records of waits: kernels made with `debug=True` write where they hang, which errors say, and count all others.

A record lies in memory of the host that the device can write, so that it can be read when the device cannot be asked
anything any more. Counts lie on the device, and are read when somebody asks for them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera.runtime.devices.cuda_driver import Module

_BYTES = 64
_PORTABLE_AND_MAPPED = 1 | 2
_WORDS = 6
_COUNTS, _MOST_COUNTED = 3, 64
"""Words for each wait on the device, and how many waits have some."""
_ELSEWHERE = 0xFFFFFFFF
"""In place of a barrier's address: a wait for a word in global memory."""


@dataclass(frozen=True)
class Watched:
    """A kernel, what its waits are by number, where its record is, and where on the device its counts are."""

    kernel: str
    waits: tuple[str, ...]
    address: int
    counts: int = 0
    driver: Any = None

    def said(self) -> str:
        """Where the kernel hangs; nothing while it does not."""
        words: list[int] = list((ctypes.c_uint32 * _WORDS).from_address(self.address))
        is_told, number, block, thread, barrier, parity = words
        if not is_told:
            return ""
        where = self.waits[number] if number < len(self.waits) else f"wait {number}"
        who = f"{where}, thread {thread} of CTA {block}"
        if barrier == _ELSEWHERE:
            return f"`{self.kernel}` waits for another CTA, which says nothing: {who}"
        at = f"barrier at shared address {barrier}, phase {parity}"
        return f"`{self.kernel}` waits for a barrier that never opens: {who}, {at}"

    def counted(self) -> list[dict[str, Any]]:
        """What warps met at each wait: how often they came, how often they were held up, and for how many cycles."""
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
    place = ctypes.c_void_p()
    cuda.call("cuMemHostAlloc", ctypes.byref(place), ctypes.c_size_t(_BYTES), _PORTABLE_AND_MAPPED)
    address = place.value or 0
    ctypes.memset(address, 0, _BYTES)
    own = ctypes.c_uint64()
    cuda.call("cuMemHostGetDevicePointer_v2", ctypes.byref(own), ctypes.c_void_p(address), 0)
    target, counts, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    cuda.call("cuModuleGetGlobal_v2", ctypes.byref(counts), ctypes.byref(size), module.handle, b"wait_counts")
    cuda.call("cuModuleGetGlobal_v2", ctypes.byref(target), ctypes.byref(size), module.handle, b"wait_record")
    cuda.call("cuMemcpyHtoD_v2", target, ctypes.byref(own), size)
    _WATCHED.append(Watched(kernel, tuple(waits), address, counts.value, cuda))


def wait_counts() -> list[dict[str, Any]]:
    """What warps met at the waits of all kernels that were made with `debug=True` and loaded here; plain values."""
    return [one for watched in _WATCHED for one in watched.counted()]


def hanging() -> str:
    """Where some kernel of this process hangs; nothing where none is known to."""
    return next((said for watched in _WATCHED if (said := watched.said())), "")
