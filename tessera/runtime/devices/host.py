"""The host as a device: memory of this process, and native functions that have ended when their call returns."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError, OutOfMemoryError
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tessera.runtime.loader import link
from tessera.runtime.tensor import native


class HostKernel:
    """A native function, and the code that it is part of."""

    def __init__(self, code: bytes, name: str) -> None:
        self._code = link([code], native().code.symbols)
        self.address = self._code.address(name)


class HostDevice:
    """The CPU and its memory; there is one, its only stream is the thread that calls, and nothing is ever under way.

    A kernel is a function of a compiled object that takes pointers and 64-bit integers, and runs its whole grid itself:
    compiled programs share their work out among threads below this, in native code.
    """

    name = "host"
    is_asynchronous = False
    has_addresses = True
    index = 0

    def at(self, index: int) -> HostDevice:
        if index:
            raise DeviceError("a machine has one `cpu`")
        return self

    def architecture(self) -> str:
        return platform.machine()

    def features(self) -> tuple[str, ...]:
        """None: the backend reads those of the CPU itself."""
        return ()

    def allocate(self, size: int, stream: int = 0) -> int:
        address = native().alloc(size)
        if not address:
            raise OutOfMemoryError(f"no memory for {size} bytes", fix="free tensors that are no longer needed")
        return address

    def free(self, address: int, stream: int = 0) -> None:
        native().free(address)

    def copy_in(self, target: int, source: int, size: int, stream: int = 0) -> None:
        ctypes.memmove(target, source, size)

    copy_out = copy_within = copy_in

    def load_kernel(self, code: bytes, name: str, shared: int = 0) -> HostKernel:
        return HostKernel(code, name)

    def launch(
        self,
        kernel: HostKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
        stream: int = 0,
    ) -> None:
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))(kernel.address)(*arguments)

    def create_stream(self) -> int:
        return 0

    def wait(self, stream: int, other: int) -> None:
        """Nothing is under way."""

    def synchronize(self, stream: int | None = None) -> None:
        """Nothing is under way."""

    def load(self, executable: Executable, functions: Sequence[Callable[..., Any]] = ()) -> LoadedExecutable:
        return LoadedExecutable(executable, functions=functions)


DEVICE = HostDevice()
