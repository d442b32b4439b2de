"""The NVIDIA backend: its machine, and the way from a tile kernel to LLVM text for PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.ampere.emit import emit_warp_kernel
from tessera.backends.nvptx.approximate_functions import approximations
from tessera.backends.nvptx.blackwell.emit import emit_tensor_kernel
from tessera.backends.nvptx.emit import emit_kernel
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.mma.fit import tile_kernels, units_in
from tessera.backends.nvptx.mma.programs import PAIRS
from tessera.backends.nvptx.passes.overlap_mma import LAGS
from tessera.backends.nvptx.pipeline import MmaChoices, lower_planned, plan_kernel, target_passes, tile_passes
from tessera.backends.nvptx.tensor_cores import DEFAULT, GPUS
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.values import EXACT
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.target.machine_code import CodeTarget
from tessera.ir.target.passes.check_kernels import check_kernel
from tessera.ir.target.typed_ops import KernelOp as TargetKernelOp
from tessera.ir.tile.choices import EPILOGUES
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, Machine


@frozen
class Lowered:
    """A kernel on tensor cores, or None where none take it; `reasons` are those of each that does not."""

    kernel: SpecOp | None
    reasons: tuple[str, ...]


@frozen
class NvptxBackend:
    """Compiles for one GPU."""

    machine: Machine = field(default_factory=lambda: GPUS[DEFAULT])
    name: str = "cuda"
    exponential: str = EXACT
    pairs: str = PAIRS[0]
    """Whether two CTAs copy for each other where their dots share an operand."""
    epilogue: str = EPILOGUES[0]
    """When a program does what follows its dots."""
    lag: int = LAGS[0]
    """By how many quarters of a ring the last consumer of a sum is behind the first."""
    units: str = AUTOMATIC
    """The tensor cores that dots run on."""
    bounded: bool = False
    """Whether waits that never end say where they are, and stop the kernel."""
    exact_matrices: bool = False
    """Whether kernels for tensor cores too use no function of the machine's own."""

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told: PTX, which an assembler or the driver finishes."""
        return CodeTarget(
            triple="nvptx64-nvidia-cuda", cpu=self.machine.cpu, features=self.machine.isa, opt=3, emit="assembly"
        )

    @property
    def choices(self) -> MmaChoices:
        """What passes over kernels on tensor cores are told."""
        return MmaChoices(self.units, self.pairs, self.lag, self.epilogue, self.exact_matrices)

    def tile_passes(self) -> list[Pass]:
        """Passes over Tile IR that follow the general ones."""
        return tile_passes(self.machine, self.choices)

    def target_passes(self) -> list[Pass]:
        """The lowering, and passes over Target IR."""
        return target_passes(self.machine, self.choices)

    def lower(self, kernel: SpecOp, aligned: bool = True) -> SpecOp:
        """A `ttile.kernel` on plain threads; `aligned` says that its arguments begin at multiples of 16 bytes.

        Raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        return self.lower_variants(kernel, aligned)[-1]

    def lower_variants(self, kernel: SpecOp, aligned: bool = True) -> list[SpecOp]:
        """The same, and before it the one for wide rows of a symbolic width, which warps share, where there is one."""
        assert isinstance(kernel, KernelOp)
        found = [lower_planned(planned, self.machine) for planned in plan_kernel(kernel, self.machine, aligned)]
        for target in found:
            check_kernel(target)
        return found

    def matrix(self, kernel: SpecOp) -> SpecOp | None:
        """A `ttile.kernel` as one that runs on tensor cores; None where it does not fit them."""
        return self.fit_tensor_cores(kernel).kernel

    def fit_tensor_cores(self, kernel: SpecOp) -> Lowered:
        """A copy of a `ttile.kernel` on the tensor cores that take it, and why others do not."""
        module = ModuleOp([kernel.clone()])
        for one in self.tile_passes():
            one.run(module)
        made = next(kernel for kernel in tile_kernels(module) if not kernel.value("variant_of"))
        if units_in(made) is None:
            return Lowered(None, made.value("reasons"))
        for one in self.target_passes():
            one.run(module)
        (target,) = (op for op in module.ops if isinstance(op, SpecOp))
        target.detach()
        return Lowered(target, made.value("reasons"))

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
