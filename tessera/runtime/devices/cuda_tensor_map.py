"""Tensor maps, by which the copy engine of Hopper finds boxes of a tensor; each is made once and kept."""

from __future__ import annotations

import ctypes
from collections import OrderedDict

from tessera.runtime.devices.cuda_driver import driver
from tessera.types.frozen import frozen

BYTES = 128
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""The driver's number for a swizzle of so many bytes."""
_DTYPES = {
    "u8": 0,
    "i8": 0,
    "bool": 0,
    "f8e4m3": 0,
    "f8e5m2": 0,
    "u16": 1,
    "i16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
_KEPT = 4096


@frozen
class TensorMap:
    """What a map is made from: `dims` and `box` in elements, innermost first; `strides` in bytes, of all dims but that.

    `promotion` is bytes fetched into the second cache at a time (0, 64, 128, 256).
    """

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    promotion: int = 256


class TensorMaps:
    """Maps that were made before, the least recently used out first; `hits` and `misses` count."""

    def __init__(self) -> None:
        self.hits = self.misses = 0
        self._kept: OrderedDict[TensorMap, bytes] = OrderedDict()

    def get(self, wanted: TensorMap) -> bytes:
        """The 128 bytes of a map, to be given to a kernel by value."""
        found = self._kept.get(wanted)
        if found is None:
            self.misses += 1
            found = self._kept[wanted] = encode(wanted)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self.hits += 1
            self._kept.move_to_end(wanted)
        return found


MAPS = TensorMaps()
"""The maps of this process."""


def encode(wanted: TensorMap) -> bytes:
    """Ask the driver for a map; raises DeviceError (T0720) where it does not like the numbers."""
    rank = len(wanted.dims)
    raw = ctypes.create_string_buffer(BYTES + 64)
    start = -(-ctypes.addressof(raw) // 64) * 64
    promotion = {0: 0, 64: 1, 128: 2, 256: 3}[wanted.promotion]
    driver().call(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(start),
        _DTYPES[wanted.dtype],
        rank,
        ctypes.c_void_p(wanted.address),
        (ctypes.c_uint64 * rank)(*wanted.dims),
        (ctypes.c_uint64 * max(1, rank - 1))(*wanted.strides),
        (ctypes.c_uint32 * rank)(*wanted.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        SWIZZLES[wanted.swizzle],
        promotion,
        0,
    )
    return ctypes.string_at(start, BYTES)
