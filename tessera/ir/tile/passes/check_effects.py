"""Check that kernels declare no effect that a kernel cannot have, and change nothing."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.effects import check_kernel_effects
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in


class CheckEffects(Pass):
    """`tessera.effects` of a `ttile.kernel` is a set of effects, and none but `random` and `memory`.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in symbols_in(module):
            if kernel.name == "ttile.kernel":
                check_kernel_effects(kernel)
