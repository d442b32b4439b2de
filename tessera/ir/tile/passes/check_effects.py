"""Check that kernels declare no effect that a kernel cannot have, and change nothing."""

from __future__ import annotations

from tessera.ir.base.effects import check_kernel_effects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass


class CheckEffects(KernelPass):
    """Check that `tessera.effects` of a `ttile.kernel` is a set of effects, and none but `random` and `memory`.

    Before and after are the same text.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        check_kernel_effects(kernel)
