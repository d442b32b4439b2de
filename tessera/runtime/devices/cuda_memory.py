"""Memory of a CUDA device: blocks that are given back are used again in the order of their queue, without waiting."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict

from tessera.diagnostics.codes import OutOfMemoryError
from tessera.runtime.devices.cuda_driver import OUT_OF_MEMORY, driver, error_of

_SMALL, _LARGE = 512, 2 << 20
ALIGNMENT = 256
"""Bytes that every block begins at a multiple of; the driver sees to it."""


def rounded(size: int) -> int:
    """The bytes of the block that is taken for a size: few different ones, so that blocks find new owners."""
    if size <= _LARGE:
        return max(_SMALL, 1 << (size - 1).bit_length()) if size else 0
    return -(-size // _LARGE) * _LARGE


class Pool:
    """Free blocks by queue and size.

    A block that is given back may still be read by work that its queue has not come to; whoever takes it next uses it
    in the same queue, and so after that. Blocks never change queues, except when memory runs out: then all free ones go
    back to the driver once the device is idle.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._lock = threading.Lock()
        self.reserved = 0
        """Bytes that were got from the driver."""
        self.held = 0
        """Bytes of them that have owners."""

    def take(self, size: int, stream: int = 0) -> int:
        """A block of `rounded(size)` bytes; 0 for none. Raises OutOfMemoryError (T0707)."""
        if not size:
            return 0
        whole = rounded(size)
        free = self._free[stream, whole]
        self.held += whole
        if free:
            return free.pop()
        return self._new(whole)

    def give(self, address: int, size: int, stream: int = 0) -> None:
        """Give a block back; the queue may still be using it."""
        if size:
            whole = rounded(size)
            self.held -= whole
            self._free[stream, whole].append(address)

    def _new(self, whole: int) -> int:
        cuda = driver()
        cuda.enter()
        address = ctypes.c_uint64()
        code = cuda.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(whole))
        if code == OUT_OF_MEMORY and self.trim():
            code = cuda.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(whole))
        if code == OUT_OF_MEMORY:
            self.held -= whole
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            raise OutOfMemoryError(
                f"no memory for {whole} bytes on cuda:{cuda.ordinal}",
                notes=(f"{free.value} of {total.value} bytes are free, tensors here hold {self.held}",),
                fix="free tensors that are no longer needed, or use smaller ones",
            )
        if code:
            raise error_of(code, "cuMemAlloc", cuda.library)
        self.reserved += whole
        return address.value

    def trim(self) -> int:
        """Give all free blocks back to the driver, after the device is idle; how many bytes that were."""
        cuda = driver()
        cuda.call("cuCtxSynchronize")
        with self._lock:
            blocks = [(address, size) for (_, size), free in self._free.items() for address in free]
            self._free.clear()
        for address, _ in blocks:
            cuda.call("cuMemFree_v2", ctypes.c_uint64(address))
        released = sum(size for _, size in blocks)
        self.reserved -= released
        return released


POOL = Pool()
"""The memory of this process on its device."""


def copy_in(address: int, source: int, size: int, stream: int = 0) -> None:
    """Host memory to the device; it may be changed again when this returns."""
    if size:
        driver().call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(source),
            ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )
        driver().call("cuStreamSynchronize", ctypes.c_void_p(stream))


def copy_out(target: int, address: int, size: int, stream: int = 0) -> None:
    """The device to host memory, once the queue has come so far."""
    if size:
        driver().call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(target),
            ctypes.c_uint64(address),
            ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )
    driver().call("cuStreamSynchronize", ctypes.c_void_p(stream))


def copy_within(target: int, source: int, size: int, stream: int = 0) -> None:
    """From one place of the device to another, in the order of the queue."""
    if size:
        driver().call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )
