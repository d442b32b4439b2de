"""Memory of a CUDA device: freed blocks are reused in the order of their stream, without waiting."""

from __future__ import annotations

import ctypes
import threading

from tessera.diagnostics.codes import OutOfMemoryError
from tessera.runtime.devices.cuda.driver import OUT_OF_MEMORY, driver, error_of
from tessera.runtime.timeline import WATCH, HostWait, Launch

_SMALL, LARGE = 512, 2 << 20
"""Blocks up to the larger one have sizes that are powers of two, others are multiples of it."""
_PORTABLE = 1
"""`CU_MEMHOSTALLOC_PORTABLE` of cuda.h: pinned for every context."""
ALIGNMENT = 256
"""Bytes that every block begins at a multiple of; the driver sees to it."""


def round_size(size: int) -> int:
    """The bytes of the block that is taken for a size: few different ones, so that blocks find new owners."""
    if size <= LARGE:
        return max(_SMALL, 1 << (size - 1).bit_length()) if size else 0
    return -(-size // LARGE) * LARGE


class FreeList:
    """The free blocks of one size and stream."""

    __slots__ = ("free", "pool", "size")

    def __init__(self, pool: Pool, size: int) -> None:
        self.pool, self.size = pool, size
        self.free: list[int] = []

    def take(self) -> int:
        """A block; raises OutOfMemoryError (T0707)."""
        try:
            return self.free.pop()
        except IndexError:
            return self.pool.new(self.size)


class Pool:
    """Free blocks by stream and size.

    A block that is freed may still be read by work that its stream has not reached; whoever takes it next uses it in
    the same stream, and so after that. Blocks never change streams, except when memory runs out: then all free ones go
    back to the driver once the device is idle.
    """

    def __init__(self) -> None:
        self._free_lists: dict[tuple[int, int], FreeList] = {}
        self._lock = threading.Lock()
        self.reserved = 0
        """Bytes that were got from the driver."""

    def free_list(self, size: int, stream: int = 0) -> FreeList:
        """The free list of blocks of at least `size` bytes for a stream."""
        key = stream, round_size(size)
        found = self._free_lists.get(key)
        if found is None:
            with self._lock:
                found = self._free_lists.setdefault(key, FreeList(self, key[1]))
        return found

    def free_lists(self, stream: int) -> list[FreeList]:
        """The free lists of a stream, of all sizes."""
        return [free_list for (owner, _), free_list in list(self._free_lists.items()) if owner == stream]

    @property
    def held(self) -> int:
        """Bytes that have owners."""
        return self.reserved - sum(
            free_list.size * len(free_list.free) for free_list in list(self._free_lists.values())
        )

    def new(self, size: int) -> int:
        """A block from the driver, after giving back to it what is free where that is needed; 0 for no bytes."""
        if not size:
            return 0
        cuda = driver()
        cuda.enter()
        address = ctypes.c_uint64()
        code = cuda.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if code == OUT_OF_MEMORY and self.trim():
            code = cuda.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if code == OUT_OF_MEMORY:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            raise OutOfMemoryError(
                f"no memory for {size} bytes on cuda:{cuda.ordinal}",
                notes=(f"{free.value} of {total.value} bytes are free, tensors here hold {self.held}",),
                fix="free tensors that are no longer needed, or use smaller ones",
            )
        if code:
            raise error_of(code, "cuMemAlloc", cuda.library)
        self.reserved += size
        return address.value

    def trim(self) -> int:
        """Give all free blocks back to the driver, after the device is idle; how many bytes that were."""
        cuda = driver()
        cuda.call("cuCtxSynchronize")
        released = 0
        with self._lock:
            for free_list in self._free_lists.values():
                while free_list.free and free_list.size:
                    cuda.call("cuMemFree_v2", ctypes.c_uint64(free_list.free.pop()))
                    released += free_list.size
        self.reserved -= released
        return released


POOL = Pool()
"""The memory of this process on its device."""


class PinnedMemory:
    """Host memory that copies to and from the device can read and write while the host goes on.

    It belongs to calls in one stream, one at a time: whoever launches has its `lock`. It is freed when that is idle.
    """

    held = 0
    """Bytes of all that there is."""

    def __init__(self, size: int, stream: int) -> None:
        """Raises OutOfMemoryError (T0707)."""
        cuda, address, self.lock = driver(), ctypes.c_void_p(), threading.Lock()
        cuda.enter()
        self._library, self._stream, self.size, self.address = cuda.library, ctypes.c_void_p(stream), size, 0
        code = cuda.library.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), _PORTABLE)
        if code == OUT_OF_MEMORY:
            raise OutOfMemoryError(
                f"no pinned host memory for {size} bytes of offloaded values",
                notes=(f"programs here hold {PinnedMemory.held} bytes of it",),
                fix="allow more bytes on the device: `memory=`",
            )
        if code:
            raise error_of(code, "cuMemHostAlloc", cuda.library)
        self.address = address.value or 0
        PinnedMemory.held += size

    def __del__(self) -> None:
        if getattr(self, "address", 0):  # without memory there was never one
            self._library.cuStreamSynchronize(self._stream)
            self._library.cuMemFreeHost(ctypes.c_void_p(self.address))
            PinnedMemory.held -= self.size


def _copy(function: str, target: int, source: int, size: int, stream: int) -> None:
    if size:
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        driver().call(function, *addresses, ctypes.c_size_t(size), ctypes.c_void_p(stream))


def copy_in(address: int, source: int, size: int, stream: int = 0) -> None:
    """Host memory to the device; it may be changed again when this returns."""
    if WATCH.note is not None:
        WATCH.note(Launch("a copy from the host", stream, (), ((address, address + size),)))
        WATCH.note(HostWait(stream))
    _copy("cuMemcpyHtoDAsync_v2", address, source, size, stream)
    if size:
        driver().call("cuStreamSynchronize", ctypes.c_void_p(stream))


def copy_out(target: int, address: int, size: int, stream: int = 0) -> None:
    """The device to host memory, after the work before it in the stream."""
    if WATCH.note is not None:
        WATCH.note(Launch("a copy to the host", stream, ((address, address + size),)))
        WATCH.note(HostWait(stream))
    _copy("cuMemcpyDtoHAsync_v2", target, address, size, stream)
    driver().call("cuStreamSynchronize", ctypes.c_void_p(stream))


def copy_within(target: int, source: int, size: int, stream: int = 0) -> None:
    """From one address of the device to another, in the order of the stream."""
    if WATCH.note is not None:
        WATCH.note(Launch("a copy", stream, ((source, source + size),), ((target, target + size),)))
    _copy("cuMemcpyDtoDAsync_v2", target, source, size, stream)
