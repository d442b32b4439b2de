"""DLPack tensors in and out: a producer's capsule is read without a copy, and ours keeps what it shows alive."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.types.dtype import ALL, BY_NAME, DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
HOST = (CPU, CUDA_HOST)
OWNER_MANAGED, OWNER_VERSIONED = 3, 4
_READ_ONLY = 1

# DLDataTypeCode of dlpack.h; i4 is one to a byte, as int8 is, and goes to nobody.
_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_NARROW_FLOATS = {"bf16": 4, "f8e4m3": 10, "f8e5m2": 12}
CODES = {dtype.name: (_NARROW_FLOATS.get(dtype.name, _KINDS[dtype.kind]), 8 * dtype.bytes) for dtype in ALL}
"""DLPack's code and bits of each dtype."""
_BY_CODE = {pair: name for name, pair in CODES.items() if name != "i4"}


# `DLTensor` of dlpack.h: data, device type and id, rank, code, bits, lanes, shape, strides, byte offset.
_TENSOR = struct.Struct("=QiiiBBHQQQ")
# `DLManagedTensorVersioned` begins with its version, a context, a deleter and flags.
_HEAD = struct.Struct("=IIQQQ")


class _Managed(ctypes.Structure):
    """`DLManagedTensor`: the tensor, and whom its consumer calls when it is done."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


# Capsules by their addresses: when one ends, nobody may hold on to it.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
# A capsule keeps the pointer to its name, not a copy; these live as long as the module.
_USED_PLAIN, _USED_VERSIONED = ctypes.c_char_p(b"used_dltensor"), ctypes.c_char_p(b"used_dltensor_versioned")


class Import:
    """A producer's tensor: where it is, what it is, and who is notified when it is no longer needed."""

    __slots__ = ("_capsule", "_used", "address", "data", "device", "dtype", "kind", "read_only", "shape", "strides")

    def __init__(self, capsule: Any, devices: tuple[int, ...] = HOST) -> None:
        self._capsule = capsule
        self.read_only, start = False, 0
        if _is_valid(id(capsule), _VERSIONED):
            self.address = int(_pointer_of(id(capsule), _VERSIONED))
            start, self.kind, self._used = _HEAD.size, OWNER_VERSIONED, _USED_VERSIONED
            major, _, _, _, flags = _HEAD.unpack(ctypes.string_at(self.address, start))
            if major != 1:
                raise RuntimeArgumentError(f"the producer has DLPack {major}, this is DLPack 1")
            self.read_only = bool(flags & _READ_ONLY)
        elif _is_valid(id(capsule), _PLAIN):
            self.address = int(_pointer_of(id(capsule), _PLAIN))
            self.kind, self._used = OWNER_MANAGED, _USED_PLAIN
        else:
            raise RuntimeArgumentError("not a DLPack capsule, or one that was used before")
        # One read of the whole record: field by field, ctypes takes longer than all the rest of an import.
        record = _TENSOR.unpack(ctypes.string_at(self.address + start, _TENSOR.size))
        data, device, number, rank, code, bits, lanes, shape, strides, offset = record
        check_device(device, devices)
        self.device, self.dtype, self.data = (device, number), _dtype(code, bits, lanes), data + offset
        self.shape: tuple[int, ...] = _numbers(shape, rank)
        if not data and 0 not in self.shape:
            raise RuntimeArgumentError(
                f"a tensor of shape {list(self.shape)} has no memory", fix="make a copy with its own library first"
            )
        item = self.dtype.bytes
        # A producer may leave strides out where they are those of C order.
        given = [stride * item for stride in _numbers(strides, rank)] if strides else c_strides(self.shape, item)
        self.strides: tuple[int, ...] = tuple(given)

    def take(self) -> None:
        """From here on the producer's deleter is ours to call."""
        _rename(id(self._capsule), self._used)


def _numbers(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}q", ctypes.string_at(address, 8 * count)) if count else ()


_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda_managed"}
"""What dlpack.h calls devices."""


def check_device(found: int, devices: tuple[int, ...]) -> None:
    """Raises RuntimeArgumentError (T0701) for a device of DLPack that is not one of these."""
    if found not in devices:
        where = "in host memory" if devices == HOST else "on a CUDA device"
        called = _DEVICES.get(found, "unknown")
        raise RuntimeArgumentError(
            f"the tensor is on DLPack device {found} ({called}), not {where}",
            fix="copy it to the host first, as in `x.cpu()`, or to an NVIDIA GPU",
        )


_COMPLEX = 5


def _dtype(code: int, bits: int, lanes: int) -> DType:
    name = _BY_CODE.get((code, bits)) if lanes == 1 else None
    if name is None:
        what = f"complex{bits}" if code == _COMPLEX else f"DLPack dtype (code {code}, {bits} bits, {lanes} lanes)"
        raise RuntimeArgumentError(
            f"elements of {what} have no Tessera dtype", fix=f"the dtypes are {', '.join(BY_NAME)}"
        )
    return BY_NAME[name]


def c_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Byte strides of a C-contiguous tensor."""
    strides: list[int] = []
    for dim in reversed(shape):
        strides.append(item)
        item *= dim
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """Whether elements follow one another in C order; strides of dims of size 1, or of nothing, do not matter."""
    if 0 in shape:
        return True
    expected = c_strides(shape, item)
    return all(dim == 1 or a == b for dim, a, b in zip(shape, strides, expected, strict=True))


def capsule_from(producer: Any, devices: tuple[int, ...] = HOST, **options: Any) -> Any:
    """Ask a producer for its capsule, the newer form first; `options` are those of `__dlpack__`."""
    check_device(producer.__dlpack_device__()[0], devices)
    return request_capsule(producer, **options)


def request_capsule(producer: Any, **options: Any) -> Any:
    """As `capsule_from`, of a producer whose device is known."""
    try:
        return producer.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        # A producer from before DLPack 1.0 does not know the argument.
        return producer.__dlpack__(**options)


_EXCHANGE = b"dlpack_exchange_api"


def exchange_table(capsule: Any) -> int | None:
    """Where a `DLPackExchangeAPI` of version 1 is; None for any other, and for what is no capsule of one."""
    if not _is_valid(id(capsule), _EXCHANGE):
        return None
    address = int(_pointer_of(id(capsule), _EXCHANGE))
    while address:
        major, _, older = struct.unpack("=IIQ", ctypes.string_at(address, 16))
        if major == 1:
            return address
        address = older
    return None


# Contiguous tensors of a device, given to other libraries and kept until they are let go.

_NAME = ctypes.c_char_p(_PLAIN)
_held: dict[int, Any] = {}
"""What was given away, by the address of its record."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _let_go(address: int) -> None:
    """The consumer needs it no more."""
    _held.pop(address, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _end_capsule(capsule: int) -> None:
    """A capsule that nobody took: what it holds goes with it."""
    if _is_valid(capsule, _NAME):
        _held.pop(_pointer_of(capsule, _NAME), None)


def export(owner: Any, address: int, dtype: DType, shape: tuple[int, ...], device: tuple[int, int]) -> Any:
    """A capsule of a contiguous tensor that `owner` keeps alive; raises RuntimeArgumentError (T0701) for i4."""
    if dtype.name == "i4":
        raise RuntimeArgumentError(f"DLPack has no name for {dtype}")
    rank, item = len(shape), dtype.bytes
    strides = [step // item for step in c_strides(shape, item)]
    dims, steps = ((ctypes.c_int64 * max(1, rank))(*numbers) for numbers in (shape, strides))
    record = _Managed(address, *device, rank, *CODES[dtype.name], 1, dims, steps)
    record.deleter = ctypes.cast(_let_go, ctypes.c_void_p).value
    address_of_record = ctypes.addressof(record)
    _held[address_of_record] = (record, dims, steps, owner)
    return new_capsule(address_of_record, _NAME, ctypes.cast(_end_capsule, ctypes.c_void_p).value)
