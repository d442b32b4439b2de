"""The cpu backend: its machine, and the way from a tile kernel to LLVM text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tessera.backends.cpu.emit import emit_kernel, emit_parts
from tessera.backends.cpu.lower import lower_kernel
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.target.architectures import host_machine, level_of, target_text
from tessera.ir.target.machine_code import CodeTarget
from tessera.types.machine import Machine


@dataclass(frozen=True)
class CpuBackend:
    """Compiles for one cpu machine."""

    machine: Machine = field(default_factory=host_machine)
    name: str = "cpu"

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told."""
        architecture, level = level_of(self.machine)
        return CodeTarget(triple=architecture.triple, cpu=level.text.cpu, features=level.text.features)

    @property
    def host_target(self) -> CodeTarget:
        """What it is told for host programs: to take no pains.

        They compare, multiply a few sizes and call kernels; well selected instructions take four times as long to
        make, ten milliseconds for each function that is compiled, and save a call some five nanoseconds of 500.
        """
        return replace(self.code_target, opt=0)

    def lower(self, kernel: SpecOp) -> SpecOp:
        """A `ttile.kernel` as a `ttarget.kernel`.

        Raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        target = lower_kernel(kernel, self.machine)
        try:
            verify(target)
        except OpError as error:
            raise TargetVerifyError(error.message, span=error.span, fix=error.advice) from error
        return target

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
