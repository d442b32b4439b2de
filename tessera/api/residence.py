"""Where tensors lie: what is called with those of a GPU runs there, and with tensors of two memories nowhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError
from tessera.types.device import Device


def device_class() -> type[Any] | None:
    """The class of tensors of a GPU; None where none was made yet, and nothing is loaded to find out."""
    module = sys.modules.get("tessera.runtime.devices.cuda_tensor")
    return None if module is None else module.CudaTensor


def residence(what: str, tensors: Sequence[Any], names: Sequence[str] = ()) -> Device | None:
    """The GPU that tensors lie on; None where all are in host memory.

    A single number in host memory goes along; more than one is not copied in silence. Raises DeviceError (T0720).
    """
    kind = device_class()
    if kind is None:
        return None
    there = next((at for at, tensor in enumerate(tensors) if isinstance(tensor, kind)), None)
    if there is None:
        return None
    device: Device = tensors[there].device
    for at, tensor in enumerate(tensors):
        if not isinstance(tensor, kind) and getattr(tensor, "shape", ()):
            raise _apart(what, (there, tensors[there]), (at, tensor), device, names)
    return device


def _apart(
    what: str, there: tuple[int, Any], here: tuple[int, Any], device: Device, names: Sequence[str]
) -> DeviceError:
    def told(number: int, tensor: Any) -> str:
        name = f"`{names[number]}`" if number < len(names) else f"argument {number}"
        return f"{name}, {list(tensor.shape)} {tensor.dtype},"

    return DeviceError(
        f"`{what}` is given tensors of two memories: {told(*there)} is on {device!r}, and {told(*here)} on the cpu",
        notes=("rule: nothing but single numbers is copied to a device or from it unasked, as that takes long",),
        fix="bring them together: `tessera.cuda.array(x)` copies to the GPU, and `x.cpu()` from it; "
        f"within `with tessera.device(tessera.{device!r}):` everything is copied there",
    )
