"""Check that kernels declare no effect that a kernel cannot have and keep what they promise; change nothing."""

from __future__ import annotations

from tessera.ir.base.effects import check_kernel_effects, check_kernel_order
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass


class CheckEffects(KernelPass):
    """Check that `tessera.effects` of a `ttile.kernel` is a set of effects, and none but `random` and `memory`.

    One that is `tessera.deterministic` adds no floats in any order (T0208). Before and after are the same text.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        check_kernel_effects(kernel)
        check_kernel_order(kernel)
