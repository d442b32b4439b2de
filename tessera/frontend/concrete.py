"""Concrete tensors, which hold data: ours, NumPy's arrays and those of other libraries, none of which are loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tessera.diagnostics.codes import ArgumentError, DeviceError, DTypeError
from tessera.ir.base import dispatch
from tessera.runtime.foreign import FOREIGN, adopt, is_foreign, share
from tessera.types.dtype import BY_NAME, DType, find_dtype
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.runtime.tensor import Tensor
    from tessera.types.device import Device


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of Tessera, on the host or a GPU; loads no module to find out."""
    module = sys.modules.get("tessera.runtime.tensor")
    if module is None:
        return False
    device = device_class()
    return isinstance(value, module.Tensor) or (device is not None and isinstance(value, device))


def device_class() -> type[Any] | None:
    """The class of GPU tensors; None where none exists yet. Loads no module to find out."""
    module = sys.modules.get("tessera.runtime.devices.cuda.tensor")
    return None if module is None else module.CudaTensor


class Tracer:
    """The base class of tracers, which tells them from concrete tensors."""

    __slots__ = ()
    dtype: DType


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array or scalar; NumPy is not loaded to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray | numpy.generic)


def is_concrete(value: Any) -> bool:
    """Whether a value is a concrete tensor."""
    return is_tensor(value) or (is_array(value) and not isinstance(value, bool | int | float)) or is_foreign(value)


def is_in_host_memory(value: Any) -> bool:
    """Whether a value is a concrete tensor whose elements the host may read without waiting for a device."""
    device = device_class()
    return (is_tensor(value) or is_array(value)) and (device is None or not isinstance(value, device))


def adopt_operand(value: Any) -> Any:
    """As `adopt`; inside a trace it is a captured tensor, which is read at each call."""
    if not is_foreign(value):
        return value
    trace: Any = dispatch.tracing()
    return share(value) if trace is None else trace.lift_operand(value)


PLAIN: set[type[Any]] = {bool, int, float, str, type(None)}
"""Classes of which it is known that their values are not of another library, nor contain any that are."""


def adopt_all(values: Sequence[Any]) -> Sequence[Any]:
    """Arguments with `adopt_operand` of each, in lists and tuples too; the same object where nothing is to be done."""
    for value in values:
        if value.__class__ not in PLAIN:
            break
    else:
        return values
    found = [value if value.__class__ in PLAIN else _adopt_item(value) for value in values]
    for new, old in zip(found, values, strict=True):
        if new is not old:
            return found
    return values


def _adopt_item(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if kind in FOREIGN and not dispatch.TRACES.stack:
        return share(value)
    if kind is list or kind is tuple:
        items = adopt_all(value)
        return value if items is value else list(items) if kind is list else tuple(items)
    if kind.__module__.partition(".")[0] in ("tessera", "numpy", "builtins"):
        if kind not in (dict, set, frozenset):
            PLAIN.add(kind)
        return value
    return adopt_operand(value)


def concrete_dtype(value: Any) -> DType | None:
    """The dtype of a concrete tensor, or None for any other value."""
    if is_tensor(value):
        return value.dtype
    if not is_array(value):
        return share(value).dtype if is_foreign(value) else None
    # Nearly all arrays are plain, which one comparison of names shows.
    if value.__class__.__name__ != "ndarray" and _is_masked(value):
        raise ArgumentError(
            "a masked array is not a tensor: its mask would be lost",
            fix="pass `x.filled(value)`, or `x.data` and `x.mask` as two tensors",
        )
    return array_dtype(value.dtype)


def _is_masked(value: Any) -> bool:
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(value, module.MaskedArray)


def array_dtype(given: Any) -> DType:
    """The dtype of a NumPy dtype; raises `DTypeError` (T0102) for one that Tessera lacks."""
    found = find_dtype(given)
    if found is None and given.byteorder == ">":
        fix = f'convert it first: `x.astype("{given.name}")`'
        raise DTypeError(f"arrays of `{given}` are not supported: they are big-endian", fix=fix)
    if found is None and given.kind == "c":
        fix = "make it a complex tensor first: `tessera.array(x)`"
        raise DTypeError(f"arrays of `{given}` are two tensors here, not one", fix=fix)
    if found is None:
        raise DTypeError(f"arrays of `{given}` are not supported", fix=f"the dtypes are {', '.join(BY_NAME)}")
    return found


def concrete_type(value: Any) -> TensorType | None:
    """The type of a concrete tensor, all dims static; None for any other value."""
    value = adopt(value)
    dtype = concrete_dtype(value)
    return None if dtype is None else TensorType.of(value.shape, dtype)


def scalar_tensor(value: bool | float, dtype: DType | None = None) -> Tensor:
    """A Python number as a scalar tensor; by default of f32, i64 or bool."""
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - see `is_own`

    return Tensor.of(value, dtype or scalar_dtype(value))


def scalar_dtype(value: bool | float) -> DType:
    """The dtype of a Python number where no tensor determines it."""
    name = "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32"
    return BY_NAME[name]


def common_device(what: str, tensors: Sequence[Any], names: Sequence[str] = ()) -> Device | None:
    """The GPU that holds the tensors; None where all are in host memory.

    Scalars and random keys in host memory are copied implicitly, larger tensors are not. Raises DeviceError (T0720).
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
    """Tensors in host memory: those of a GPU are copied, for a program that runs on the host."""
    kind = device_class()
    if kind is None or not any(isinstance(tensor, kind) for tensor in tensors):
        return tensors
    return [tensor.cpu() if isinstance(tensor, kind) else tensor for tensor in tensors]


def place_like(x: Any, made: Any) -> Any:
    """A literal of the program as a tensor on the device of `x`: it has no memory of its own yet."""
    kind = device_class()
    return made if kind is None or not isinstance(x, kind) else kind.of(made)


def _two_memories(
    what: str, there: tuple[int, Any], here: tuple[int, Any], device: Device, names: Sequence[str]
) -> DeviceError:
    def describe(number: int, tensor: Any) -> str:
        name = f"`{names[number]}`" if number < len(names) else f"argument {number}"
        return f"{name}, {list(tensor.shape)} {tensor.dtype},"

    return DeviceError(
        f"`{what}` got tensors in two memories: {describe(*there)} is on {device!r}, and {describe(*here)} on the cpu",
        notes=(
            "rule: only scalars and random keys are copied between host and device implicitly, since copies are slow",
        ),
        fix="copy one of them: `tessera.cuda.array(x)` copies to the GPU, `x.cpu()` to the host; "
        f"within `with tessera.device(tessera.{device!r}):` everything is copied there",
    )
