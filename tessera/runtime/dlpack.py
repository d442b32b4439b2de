"""DLPack tensors in and out: a producer's capsule is read without a copy, and ours keeps what it shows alive."""

from __future__ import annotations

import ctypes
from typing import Any

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.types.dtype import ALL, BY_NAME, DType

CPU, CUDA, CUDA_HOST = 1, 2, 3
HOST = (CPU, CUDA_HOST)
OWNER_MANAGED, OWNER_VERSIONED = 3, 4
_READ_ONLY = 1

# DLDataTypeCode of dlpack.h; i4 is one to a byte, as int8 is, and goes to nobody.
_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_NARROW_FLOATS = {"bf16": 4, "f8e4m3": 10, "f8e5m2": 12}
CODES = {dtype.name: (_NARROW_FLOATS.get(dtype.name, _KINDS[dtype.kind]), 8 * dtype.bytes) for dtype in ALL}
"""DLPack's code and bits of each dtype."""
_BY_CODE = {pair: name for name, pair in CODES.items() if name != "i4"}


class _DLTensor(ctypes.Structure):
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
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


class _Managed(_DLTensor):
    """`DLManagedTensor`: the tensor, and whom its consumer calls when it is done."""

    _fields_ = [("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


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

    __slots__ = ("_capsule", "_used", "address", "data", "dtype", "kind", "read_only", "shape", "strides")

    def __init__(self, capsule: Any, devices: tuple[int, ...] = HOST) -> None:
        self._capsule = capsule
        self.read_only = False
        if _is_valid(id(capsule), _VERSIONED):
            self.address = int(_pointer_of(id(capsule), _VERSIONED))
            managed = _Versioned.from_address(self.address)
            if managed.major != 1:
                raise RuntimeArgumentError(f"the producer has DLPack {managed.major}, this is DLPack 1")
            tensor, self.kind, self._used = managed.tensor, OWNER_VERSIONED, _USED_VERSIONED
            self.read_only = bool(managed.flags & _READ_ONLY)
        elif _is_valid(id(capsule), _PLAIN):
            self.address = int(_pointer_of(id(capsule), _PLAIN))
            tensor, self.kind, self._used = _DLTensor.from_address(self.address), OWNER_MANAGED, _USED_PLAIN
        else:
            raise RuntimeArgumentError("not a DLPack capsule, or one that was used before")
        _check_device(tensor.device_type, devices)
        self.dtype = _dtype(tensor)
        self.shape: tuple[int, ...] = tuple(tensor.shape[: tensor.rank]) if tensor.rank else ()
        self.data = (tensor.data or 0) + tensor.byte_offset
        self.strides = _strides(tensor, self.shape, self.dtype)

    def take(self) -> None:
        """From here on the producer's deleter is ours to call."""
        _rename(id(self._capsule), self._used)


def _check_device(found: int, devices: tuple[int, ...]) -> None:
    if found not in devices:
        where = "in host memory" if devices == HOST else "on a CUDA device"
        raise RuntimeArgumentError(f"the tensor is on DLPack device {found}, not {where}")


def _dtype(tensor: Any) -> DType:
    name = _BY_CODE.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise RuntimeArgumentError(
            f"DLPack dtype (code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) has no Tessera dtype"
        )
    return BY_NAME[name]


def _strides(tensor: Any, shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Strides in bytes; a producer may leave them out where they are those of C order."""
    if tensor.rank and tensor.strides:
        return tuple(stride * dtype.bytes for stride in tensor.strides[: tensor.rank])
    return c_strides(shape, dtype.bytes)


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
    _check_device(producer.__dlpack_device__()[0], devices)
    try:
        return producer.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        # A producer from before DLPack 1.0 does not know the argument.
        return producer.__dlpack__(**options)


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
