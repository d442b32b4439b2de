"""Check that kernels keep the numerics policy that they carry, and change nothing."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import check_kernel_policy
from tessera.ir.base.verify import symbols_in


class CheckPolicy(Pass):
    """`tessera.numerics.policy` of a `ttarget.kernel` is a policy, and the kernel rounds and sums as it says.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in symbols_in(module):
            if kernel.name.startswith("ttarget."):
                check_kernel_policy(kernel)
