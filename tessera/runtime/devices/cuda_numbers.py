"""Single numbers beside tensors of a GPU: each is copied there once, and found there the next time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.runtime.devices.cuda_stream import QUEUE, current_stream
from tessera.runtime.devices.cuda_tensor import CudaTensor
from tessera.runtime.tensor import Tensor

KEPT = 256
"""Numbers that are kept; the oldest are let go."""
_NUMBERS: dict[tuple[int, str, bytes], CudaTensor] = {}


def number(value: Any) -> Any:
    """A tensor of no dims in host memory as one of the device, of the queue at hand; all else as it is."""
    if isinstance(value, CudaTensor) or value.shape:
        return value
    host = Tensor.of(value)
    key = current_stream(), host.dtype.name, host.tobytes()
    found = _NUMBERS.get(key)
    if found is None and QUEUE.recording is not None:
        return value  # a copy that is recorded has not been made
    if found is None:
        found = _NUMBERS[key] = CudaTensor.of(host)
        if len(_NUMBERS) > KEPT:
            _NUMBERS.pop(next(iter(_NUMBERS)), None)
    return found


class WithNumbers:
    """A program that takes numbers from host memory; see `CudaProgram`."""

    def __init__(self, program: Any) -> None:
        self.program = program

    @property
    def calls(self) -> int:
        """How often it ran."""
        return self.program.calls

    def call(self, *tensors: Any) -> Any:
        """NotImplemented where the program gives it."""
        return self.program.call(*[number(tensor) for tensor in tensors])

    def run(self, arguments: Sequence[Any]) -> Any:
        """The way that takes all that can be made to fit."""
        return self.program.run([number(argument) for argument in arguments])
