"""Check that kernels keep the numerics policy that they carry, and change nothing."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.base.policies import check_kernel_policy


class CheckPolicy(KernelPass):
    """Check that `tessera.numerics.policy` of a `ttile.kernel` is a policy, and that it rounds and sums so.

    Before and after are the same text.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        check_kernel_policy(kernel)
