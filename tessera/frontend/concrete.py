"""Tensors that hold data, as tracing sees them: Tessera's own and NumPy's arrays, by their type."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import ArgumentError, DeviceError, DTypeError
from tessera.types.dtype import BY_NAME, DType
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.runtime.tensor import Tensor
    from tessera.types.device import Device

_BY_ARRAY_NAME = {
    "float64": "f64",
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "int4": "i4",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
}


# An array's dtype works its name out anew each time it is asked.
_SEEN: dict[Any, DType] = {}


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of ours, of a GPU too; where none was made yet, no module is loaded to find out."""
    module = sys.modules.get("tessera.runtime.tensor")
    if module is None:
        return False
    device = device_class()
    return isinstance(value, module.Tensor) or (device is not None and isinstance(value, device))


def device_class() -> type[Any] | None:
    """The class of tensors of a GPU; None where none was made yet, and nothing is loaded to find out."""
    module = sys.modules.get("tessera.runtime.devices.cuda.tensor")
    return None if module is None else module.CudaTensor


class Tracer:
    """What every stand-in for a tensor is, so that it can be told from a tensor with data."""

    __slots__ = ()
    dtype: DType


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array or scalar; NumPy is not loaded to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)


def is_concrete(value: Any) -> bool:
    """Whether a value is a tensor with data."""
    return is_tensor(value) or (is_array(value) and not isinstance(value, bool | int | float))


def concrete_dtype(value: Any) -> DType | None:
    """The dtype of a tensor with data, or None for any other value."""
    if is_tensor(value):
        return value.dtype
    if not is_array(value):
        return None
    # Arrays of the plain kind, which is nearly all of them, are told by one comparison.
    if value.__class__.__name__ != "ndarray" and _is_masked(value):
        raise ArgumentError(
            "a masked array is no tensor: its mask would be lost",
            fix="pass `x.filled(value)`, or `x.data` and `x.mask` as two tensors",
        )
    return array_dtype(value.dtype)


def _is_masked(value: Any) -> bool:
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(value, module.MaskedArray)


def array_dtype(given: Any) -> DType:
    """The dtype of an array's dtype; raises `DTypeError` (T0102) for one that Tessera does not have."""
    found = _SEEN.get(given)
    if found is None:
        name = _BY_ARRAY_NAME.get(given.name)
        if name is None:
            raise DTypeError(f"arrays of `{given}` are not supported", fix=f"the dtypes are {', '.join(BY_NAME)}")
        if given.byteorder == ">":
            fix = f'convert it first: `x.astype("{given.name}")`'
            raise DTypeError(f"arrays of `{given}` are not supported: their bytes are in the other order", fix=fix)
        found = _SEEN[given] = BY_NAME[name]
    return found


def concrete_type(value: Any) -> TensorType | None:
    """The type of a tensor with data, all dims static; None for any other value."""
    dtype = concrete_dtype(value)
    return None if dtype is None else TensorType.of(value.shape, dtype)


def scalar_tensor(value: bool | float, dtype: DType | None = None) -> Tensor:
    """A Python number as a tensor of no dims; without a dtype, f32, i64 or bool."""
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - see `is_own`

    return Tensor.of(value, dtype or scalar_dtype(value))


def scalar_dtype(value: bool | float) -> DType:
    """What a Python number is where no tensor decides."""
    name = "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32"
    return BY_NAME[name]


def common_device(what: str, tensors: Sequence[Any], names: Sequence[str] = ()) -> Device | None:
    """The GPU that tensors lie on; None where all are in host memory.

    A single number in host memory goes along, and so does a random key; more is not copied in silence. Raises
    DeviceError (T0720).
    """
    kind = device_class()
    if kind is None:
        return None
    there = next((at for at, tensor in enumerate(tensors) if isinstance(tensor, kind)), None)
    if there is None:
        return None
    device: Device = tensors[there].device
    for at, tensor in enumerate(tensors):
        if not isinstance(tensor, kind) and not _is_copied_silently(tensor):
            raise _two_memories(what, (there, tensors[there]), (at, tensor), device, names)
    return device


def _is_copied_silently(tensor: Any) -> bool:
    shape: tuple[int, ...] = getattr(tensor, "shape", ())
    return not shape or (shape == (2,) and str(tensor.dtype) in ("u64", "uint64"))


def copy_to_host(tensors: Sequence[Any]) -> Sequence[Any]:
    """Tensors in host memory: those of a GPU are copied, for what is said to run here."""
    kind = device_class()
    if kind is None or not any(isinstance(tensor, kind) for tensor in tensors):
        return tensors
    return [tensor.cpu() if isinstance(tensor, kind) else tensor for tensor in tensors]


def place_like(x: Any, made: Any) -> Any:
    """What was written out in a program, as a tensor where another lies: it is in no memory yet."""
    kind = device_class()
    return made if kind is None or not isinstance(x, kind) else kind.of(made)


def _two_memories(
    what: str, there: tuple[int, Any], here: tuple[int, Any], device: Device, names: Sequence[str]
) -> DeviceError:
    def told(number: int, tensor: Any) -> str:
        name = f"`{names[number]}`" if number < len(names) else f"argument {number}"
        return f"{name}, {list(tensor.shape)} {tensor.dtype},"

    return DeviceError(
        f"`{what}` is given tensors of two memories: {told(*there)} is on {device!r}, and {told(*here)} on the cpu",
        notes=("rule: only numbers and random keys are copied to a device or from it unasked, as that takes long",),
        fix="bring them together: `tessera.cuda.array(x)` copies to the GPU, and `x.cpu()` from it; "
        f"within `with tessera.device(tessera.{device!r}):` everything is copied there",
    )
