"""Check that the kernels of a program carry a numerics policy if it does, and change nothing."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import PolicyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import POLICY, policies_of, policy_text
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import CallOp


class CheckPolicy(Pass):
    """Check that a program with a `tessera.numerics.policy` calls no kernel without one.

    Before and after are the same text. Kernels may say more than their program: its ops may have policies of their own.
    """

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        for program in programs_in(module):
            if not policies_of(program):
                continue
            for op in program.walk():
                if isinstance(op, CallOp):
                    _check(program, op, kernels.get(op.kernel))


def _check(program: SpecOp, call: SpecOp, kernel: SpecOp | None) -> None:
    if kernel is None or policies_of(kernel):
        return
    name, caller = kernel.value("symbol"), program.value("symbol")
    raise PolicyError(
        f"`@{name}` carries no policy, and `@{caller}`, which calls it, keeps `{policy_text(program)}`",
        span=call.span,
        fix=f"write `{POLICY}` on the kernel too",
    )
