"""The cpu backend: kernels and host program of a compilation as objects for one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.backends.cpu.emit import emit_kernel, emit_parts
from tessera.backends.cpu.host import host_text
from tessera.backends.cpu.passes.lower_kernels import LowerKernels, lower_kernel
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.choice import Chooser, Model
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.target.architectures import host_machine, level_of, machine_of, target_text
from tessera.ir.target.machine_code import CodeTarget, begin, compile_texts
from tessera.ir.target.passes.check_kernels import CheckKernels, check_kernel
from tessera.ir.target.program import LLVM, Begin, CompileOptions, LlvmEmitter
from tessera.types.machine import Machine


@dataclass(frozen=True)
class CpuBackend:
    """Compiles for one CPU."""

    machine: Machine = field(default_factory=host_machine)
    name: str = "cpu"

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told."""
        architecture, level = level_of(self.machine)
        return CodeTarget(triple=architecture.triple, cpu=level.text.cpu, features=level.text.features)

    @property
    def host_target(self) -> CodeTarget:
        """What it is told for host programs: to optimize nothing.

        They compare, multiply a few sizes and call kernels; well selected instructions take four times as long to
        make, ten milliseconds for each function that is compiled, and save a call some five nanoseconds of 500.
        """
        return replace(self.code_target, opt=0)

    def lower(self, kernel: SpecOp) -> SpecOp:
        """A `ttile.kernel` as a `ttarget.kernel`.

        Raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        target = lower_kernel(kernel, self.machine)
        check_kernel(target)
        return target

    @property
    def emitter(self) -> LlvmEmitter:
        """How kernels leave: as LLVM text, and objects of it."""
        return LlvmEmitter(self.text, self.code_target)

    def text(self, kernel: SpecOp) -> str:
        """A `ttarget.kernel` as LLVM text."""
        return emit_kernel(kernel, target_text(self.machine))

    def parts(
        self, kernels: Sequence[SpecOp], begin: Callable[[str, CodeTarget], None] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Kernels as LLVM texts, and the modules they share, by symbol: each compiled once for all programs.

        Each text goes to `begin` when it is done, so that its machine code is made while the next one is written.
        """
        texts: list[str] = []
        shared: dict[str, str] = {}
        for kernel in kernels:
            text, common = emit_parts(kernel, target_text(self.machine))
            if begin is not None:
                for new in (text, *(common[symbol] for symbol in common.keys() - shared.keys())):
                    begin(new, self.code_target)
            texts.append(text)
            shared.update(common)
        return texts, shared


@dataclass(frozen=True)
class CpuCode:
    """The `Code` of a program for a CPU; the last texts are modules that kernels share."""

    backend: CpuBackend
    targets: tuple[SpecOp, ...]
    texts: tuple[str, ...]
    host: str
    language: str = LLVM

    def objects(self) -> Sequence[bytes]:
        """One object for each text, the host program's first."""
        begin(self.host, self.backend.host_target)  # beside the kernels
        kernels = self.backend.emitter.objects(self.texts)
        return [*compile_texts([self.host], self.backend.host_target), *kernels]

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """The features without which the code must not run."""
        return {"features": list(self.backend.machine.features)}

    def facts(self) -> dict[str, Any]:
        """Nothing: the machine is this one."""
        return {}

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """Nothing: all functions are the compiler's own."""
        return {}

    def lint(self) -> Sequence[Any]:
        raise OverrideError("only kernels for a GPU are looked at", fix='compile with `backend="cuda"`')


@dataclass(frozen=True)
class CpuCompilation:
    """One compilation for a CPU."""

    backend: CpuBackend

    @property
    def machine(self) -> Machine:
        """The CPU."""
        return self.backend.machine

    def tile_passes(self) -> Sequence[Pass]:
        return ()

    def target_passes(self) -> Sequence[Pass]:
        return (LowerKernels(self.machine.features), CheckKernels())

    def check_target(self, kernel: SpecOp) -> None:
        """Nothing beside the verifiers."""

    def emit(
        self, program: SpecOp, kernels: Sequence[SpecOp], targets: Sequence[SpecOp], begin: Begin | None
    ) -> CpuCode:
        backend = self.backend
        texts, shared = backend.parts(targets, begin)
        host = host_text(program, target_text(backend.machine))
        return CpuCode(backend, tuple(targets), (*texts, *shared.values()), host)

    def check_code(self, targets: Sequence[SpecOp]) -> None:
        for target in targets:
            self.backend.text(target)


class _Cpu:
    """The CPU backend, as `compiler/backend.py` describes one."""

    accumulation_units: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, Model]] = {}

    def compilation(self, options: CompileOptions, chooser: Chooser) -> CpuCompilation:
        """For the machine at hand, or one with the features that are asked for."""
        features = options.features
        return self.compilation_for(host_machine() if features is None else machine_of(frozenset(features)))

    def compilation_for(self, machine: Machine) -> CpuCompilation:
        return CpuCompilation(CpuBackend(machine))

    def accumulation_unit(self, kernel: SpecOp, machine: Machine) -> str:
        """None: every kernel adds up in the order that numerics fix."""
        return ""

    def resources(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        """Nothing: registers and caches are the CPU's own business."""
        return []


BACKEND = _Cpu()
