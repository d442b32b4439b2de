"""NVIDIA GPUs as a device: the protocol of `runtime/devices` on the CUDA driver.

What is here is the plain interface, one call of the driver for each method. Compiled programs do not launch by it:
their host programs are native code that calls the driver itself (`program.py`), a hundred times faster than Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda import memory
from tessera.runtime.devices.cuda.assembler import machine_code
from tessera.runtime.devices.cuda.driver import Module, driver, synchronize
from tessera.runtime.devices.cuda.program import CudaProgram, code_for
from tessera.runtime.devices.cuda.streams import Stream, wait_for
from tessera.runtime.executable import Executable


class CudaKernel:
    """A function of the driver's, and the module that it is part of."""

    def __init__(self, code: bytes, name: str, shared: int) -> None:
        self.module = Module(machine_code(code, driver().architecture))
        self.handle, self.shared = self.module.function(name, shared), shared


class CudaDevice:
    """The GPU that this process works on, which `TESSERA_CUDA_DEVICE` names."""

    name = "cuda"
    is_asynchronous = True
    has_addresses = True

    def __init__(self) -> None:
        self._owners: dict[int, memory.FreeList] = {}
        self._streams: list[Stream] = []

    @property
    def index(self) -> int:
        return driver().ordinal

    def at(self, index: int) -> CudaDevice:
        if index != self.index:
            raise DeviceError(f"this process works on gpu[{self.index}], which TESSERA_CUDA_DEVICE says")
        return self

    def architecture(self) -> str:
        return driver().architecture

    def features(self) -> tuple[str, ...]:
        return (code_for(driver().architecture),)

    def allocate(self, size: int, stream: int = 0) -> int:
        free_list = memory.POOL.free_list(max(size, 1), stream)
        address = free_list.take()
        self._owners[address] = free_list
        return address

    def free(self, address: int, stream: int = 0) -> None:
        self._owners.pop(address).free.append(address)

    def copy_in(self, target: int, source: int, size: int, stream: int = 0) -> None:
        memory.copy_in(target, source, size, stream)

    def copy_out(self, target: int, source: int, size: int, stream: int = 0) -> None:
        memory.copy_out(target, source, size, stream)

    def copy_within(self, target: int, source: int, size: int, stream: int = 0) -> None:
        memory.copy_within(target, source, size, stream)

    def load_kernel(self, code: bytes, name: str, shared: int = 0) -> CudaKernel:
        """Of PTX or a cubin."""
        return CudaKernel(code, name, shared)

    def launch(
        self,
        kernel: CudaKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
        stream: int = 0,
    ) -> None:
        values = (ctypes.c_int64 * max(1, len(arguments)))(*arguments)
        start, step = ctypes.addressof(values), ctypes.sizeof(ctypes.c_int64)
        parameters = (ctypes.c_void_p * len(values))(*(start + step * at for at in range(len(values))))
        sizes = (*grid, *block, kernel.shared)
        function, where = ctypes.c_void_p(kernel.handle), ctypes.c_void_p(stream)
        driver().call("cuLaunchKernel", function, *sizes, where, parameters, None)

    def create_stream(self) -> int:
        self._streams.append(Stream())
        return self._streams[-1].handle

    def wait(self, stream: int, other: int) -> None:
        wait_for(stream, other)

    def synchronize(self, stream: int | None = None) -> None:
        synchronize(stream)

    def load(self, executable: Executable, functions: Sequence[Callable[..., Any]] = ()) -> CudaProgram:
        return CudaProgram(executable, functions)


DEVICE = CudaDevice()
