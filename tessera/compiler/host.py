"""The last room of a program for the processor it is called on: kernels and host program as objects of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.backends.cpu.backend import CpuBackend
from tessera.backends.cpu.host import host_text
from tessera.backends.cpu.machine import host_machine, machine_of, target_text
from tessera.compiler.line import Begin
from tessera.compiler.options import Options
from tessera.ir.base.choice import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.pipeline import Stages
from tessera.ir.target.door import check_kernels
from tessera.ir.target.machine_code import begin, compile_texts
from tessera.types.machine import Machine


@dataclass(frozen=True)
class HostParts:
    """The `Code` of a program for a processor; the last texts are modules that kernels share."""

    backend: CpuBackend
    targets: tuple[SpecOp, ...]
    texts: tuple[str, ...]
    host: str

    def objects(self) -> Sequence[bytes]:
        """One object for each text, the host program's first."""
        begin(self.host, self.backend.host_target)  # beside the kernels
        kernels = compile_texts(self.texts, self.backend.code_target)
        return [*compile_texts([self.host], self.backend.host_target), *kernels]

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """The features without which the code must not run."""
        return {"features": list(self.backend.machine.features)}

    def facts(self) -> dict[str, Any]:
        """Nothing: the machine is this one."""
        return {}

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """Nothing: all functions are the house's own."""
        return {}


@dataclass(frozen=True)
class HostLine:
    """The `Line` of a processor."""

    backend: CpuBackend

    @staticmethod
    def of(options: Options) -> HostLine:
        """For the machine at hand, or one with the features that are asked for."""
        features = options.features
        return HostLine(CpuBackend(host_machine() if features is None else machine_of(frozenset(features))))

    @property
    def machine(self) -> Machine:
        """The processor."""
        return self.backend.machine

    def finish(
        self, program: SpecOp, kernels: Sequence[SpecOp], stages: Stages, chooser: Chooser, begin: Begin | None
    ) -> HostParts:
        """Kernels lowered, checked and written as text."""
        backend = self.backend
        with stages.measure("target", "lower"):
            targets = tuple(backend.lower(kernel) for kernel in kernels)
        with stages.measure("target", "door"):
            check_kernels(targets, backend.machine, are_verified=True)  # by the lowering, and nothing changed since
        with stages.measure("target", "emit"):
            texts, shared = backend.parts(targets, begin)
            host = host_text(program, target_text(backend.machine))
        return HostParts(backend, targets, (*texts, *shared.values()), host)
