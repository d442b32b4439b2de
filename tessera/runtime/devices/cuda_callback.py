"""Calls from a host program of a GPU back into Python: what they are given is fetched first, in the queue's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.callback import EXCHANGES, Callback, Callbacks
from tessera.runtime.devices.cuda_memory import copy_in, copy_out
from tessera.runtime.devices.cuda_stream import current_stream
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import BY_NAME


class CudaCallbacks(Callbacks):
    """The callbacks of a program whose buffers are on the device; they run in the thread that called the program."""

    def __init__(self, callbacks: Sequence[Callback], functions: Sequence[Callable[..., Any]]) -> None:
        if any(one.call in EXCHANGES for one in callbacks):
            raise DeviceError("ranks meet in the memory of processors, and this program is for a GPU", span=None)
        super().__init__(callbacks, functions)

    def copied(self, address: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """A copy in host memory."""
        made = Tensor.empty(shape, BY_NAME[dtype])
        copy_out(made.address, address, made.nbytes, current_stream())
        return made

    def put(self, address: int, source: int, size: int) -> None:
        """Bytes of host memory to the device."""
        copy_in(address, source, size, current_stream())
