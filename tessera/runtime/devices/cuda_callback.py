"""Calls from a host program of a GPU back into Python: what they are given is fetched first, in the queue's order."""

from __future__ import annotations

from tessera.runtime.callback import Callbacks
from tessera.runtime.devices.cuda_memory import copy_in, copy_out
from tessera.runtime.devices.cuda_stream import current_stream
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import BY_NAME


class CudaCallbacks(Callbacks):
    """The callbacks of a program whose buffers are on the device; they run in the thread that called the program."""

    def copied(self, address: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """A copy in host memory."""
        made = Tensor.empty(shape, BY_NAME[dtype])
        copy_out(made.address, address, made.nbytes, current_stream())
        return made

    def put(self, address: int, source: int, size: int) -> None:
        """Bytes of host memory to the device."""
        copy_in(address, source, size, current_stream())
