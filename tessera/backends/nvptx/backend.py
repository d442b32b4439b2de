"""The NVIDIA backend: its machine, and the way from a tile kernel to LLVM text for PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tessera.backends.nvptx.ampere.emit import emit_warp_kernel
from tessera.backends.nvptx.approximate_functions import EXACT_MATH, approximations
from tessera.backends.nvptx.blackwell.emit import emit_tensor_kernel
from tessera.backends.nvptx.emit import emit_kernel
from tessera.backends.nvptx.gpus import DEFAULT, GPUS
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.matrix_units import Lowered, lower_to_units
from tessera.backends.nvptx.mma.lower import lower_matrix_kernel
from tessera.backends.nvptx.mma.programs import PAIRS
from tessera.backends.nvptx.passes.overlap_mma import LAGS
from tessera.backends.nvptx.row_pipeline import lower_planned, plan_kernel
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.values import EXACT
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.types import attribute_of
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import CodeTarget
from tessera.ir.target.typed_ops import KernelOp as TargetKernelOp
from tessera.ir.tile.choices import EPILOGUES
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.machine import AUTOMATIC, Machine


def _check(target: SpecOp) -> None:
    try:
        verify(target)
    except OpError as error:
        raise TargetVerifyError(error.message, span=error.span, fix=error.advice) from error


@dataclass(frozen=True)
class NvptxBackend:
    """Compiles for one GPU."""

    machine: Machine = field(default_factory=lambda: GPUS[DEFAULT])
    name: str = "cuda"
    exponential: str = EXACT
    pairs: str = PAIRS[0]
    """Whether two CTAs copy for each other where their products share a side."""
    epilogue: str = EPILOGUES[0]
    """When a program does what follows its products."""
    lag: int = LAGS[0]
    """By how many quarters of a ring the last consumer of a sum is behind the first."""
    units: str = AUTOMATIC
    """The matrix units that products run on."""
    bounded: bool = False
    """Whether waits that never end say where they are, and stop the kernel."""
    exact_matrices: bool = False
    """Whether kernels for matrix units too use no function of the machine's own."""

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told: PTX, which an assembler or the driver finishes."""
        return CodeTarget(
            triple="nvptx64-nvidia-cuda", cpu=self.machine.cpu, features=self.machine.isa, opt=3, emit="assembly"
        )

    def lower(self, kernel: SpecOp, aligned: bool = True) -> SpecOp:
        """A `ttile.kernel` as a `ttarget` kernel; `aligned` says that its arguments begin at multiples of 16 bytes.

        Raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        return self.lower_variants(kernel, aligned)[-1]

    def lower_variants(self, kernel: SpecOp, aligned: bool = True) -> list[SpecOp]:
        """The same, and before it the one for wide rows of a symbolic width, which warps share, where there is one."""
        assert isinstance(kernel, KernelOp)
        found = [lower_planned(planned, self.machine) for planned in plan_kernel(kernel, self.machine, aligned)]
        for target in found:
            _check(target)
        return found

    def matrix(self, kernel: SpecOp) -> SpecOp | None:
        """A `ttile.kernel` as one that runs on matrix units; None where it does not fit them."""
        return self.fitted(kernel).kernel

    def fitted(self, kernel: SpecOp) -> Lowered:
        """A `ttile.kernel` for the matrix units that take it, and what others said that do not."""
        found = lower_to_units(kernel, self.machine, self.units, self._warpgroups)
        if found.kernel is not None:
            keep_promises(kernel, found.kernel)
            if self.exact_matrices:
                found.kernel.attributes[EXACT_MATH] = attribute_of("bool", True)
            _check(found.kernel)
        return found

    def _warpgroups(self, kernel: SpecOp, machine: Machine) -> SpecOp:
        return lower_matrix_kernel(kernel, machine, pairs=self.pairs, lag=self.lag, epilogue=self.epilogue)

    def approximations(self, kernel: SpecOp) -> tuple[str, ...]:
        """What a `ttarget` kernel computes by functions of the machine's own, each with its bound."""
        return approximations(kernel, self.exponential)

    def code(self, kernel: SpecOp) -> KernelCode:
        """A `ttarget` kernel as LLVM text, with what a launch must know."""
        if kernel.name == "ttarget.matrix_kernel":
            return emit_matrix_kernel(kernel, self.machine, bounded=self.bounded)
        if kernel.name == "ttarget.warp_kernel":
            return emit_warp_kernel(kernel, self.machine, bounded=self.bounded)
        if kernel.name == "ttarget.tensor_kernel":
            return emit_tensor_kernel(kernel, self.machine, bounded=self.bounded)
        assert isinstance(kernel, TargetKernelOp)
        return emit_kernel(kernel, self.machine, self.exponential)

    def codes(
        self, kernels: Sequence[SpecOp], begin: Callable[[str, CodeTarget], None] | None = None
    ) -> list[KernelCode]:
        """All kernels; each text goes to `begin` when it is done, so that its PTX is made while the next is written."""
        found: list[KernelCode] = []
        for kernel in kernels:
            found.append(self.code(kernel))
            if begin is not None:
                begin(found[-1].text, self.code_target)
        return found
