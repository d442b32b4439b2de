"""NVIDIA GPUs as a device: what the CUDA driver finds, and programs loaded onto it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.runtime.devices.cuda.driver import driver, synchronize
from tessera.runtime.devices.cuda.program import CudaProgram, code_for
from tessera.runtime.executable import Executable


class CudaDevice:
    """The GPU that this process works on."""

    def load(self, executable: Executable, functions: Sequence[Any] = ()) -> CudaProgram:
        return CudaProgram(executable, functions)

    def features(self) -> tuple[str, ...]:
        return (code_for(driver().architecture),)

    def architecture(self) -> str:
        return driver().architecture

    def synchronize(self) -> None:
        synchronize()


DEVICE = CudaDevice()
