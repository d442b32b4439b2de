"""The NVIDIA backend with lowerings of single kernels, for tests of what passes and emitters make of them."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx import compile
from tessera.backends.nvptx.mma.fit import tile_kernels, units_in
from tessera.backends.nvptx.passes.lower_kernels import lower_thread_kernel
from tessera.backends.nvptx.pipeline import thread_target_passes, thread_tile_passes
from tessera.backends.nvptx.row_plan import ALIGN
from tessera.ir.base.op import SpecOp
from tessera.ir.target.passes.check_kernels import check_kernel
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class Lowered:
    """A kernel on tensor cores, or None where none take it; `reasons` are those of each that does not."""

    kernel: SpecOp | None
    reasons: tuple[str, ...]


@frozen
class NvptxBackend(compile.NvptxBackend):
    """Compiles for one GPU, kernel by kernel."""

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


def plan_kernel(kernel: KernelOp, machine: Machine, aligned: bool = True) -> list[KernelOp]:
    """A copy of a tile kernel with all decisions written on it; before it the one for wide rows, where there is one.

    `aligned` says that its arguments begin at multiples of 16 bytes.
    """
    copy = kernel.clone()
    if not aligned:
        ALIGN.write(copy, 0)
    module = ModuleOp([copy])
    for one in thread_tile_passes(machine):
        one.run(module)
    return [op for op in module.ops if isinstance(op, KernelOp)]


def lower_planned(kernel: KernelOp, machine: Machine) -> SpecOp:
    """A planned tile kernel as a `ttarget.kernel` with all decisions written on it."""
    target = lower_thread_kernel(kernel, machine)
    module = ModuleOp([target])
    for one in thread_target_passes(machine):
        one.run(module)
    target.detach()
    return target
