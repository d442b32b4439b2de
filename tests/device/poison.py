"""Memory of a GPU that is full of NaN before it is given out: what a kernel does not write shows."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager

from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.memory import FreeList

_ALL_ONES = 0xFF
"""Bytes of all ones are NaN in every float, and an index that no buffer has."""


@contextmanager
def poisoned() -> Generator[None]:
    """Blocks are filled before somebody gets them."""
    take = FreeList.take

    def take_filled(self: FreeList) -> int:
        address = take(self)
        if self.size:
            driver().call("cuMemsetD8_v2", ctypes.c_uint64(address), _ALL_ONES, ctypes.c_size_t(self.size))
        return address

    FreeList.take = take_filled
    try:
        yield
    finally:
        FreeList.take = take
