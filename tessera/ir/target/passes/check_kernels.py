"""Check that lowered kernels hold together, and ask for no more than the machine has."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in, verify
from tessera.types.frozen import frozen


@frozen
class CheckKernels(Pass):
    """Check every kernel of Target IR by the verifiers of its ops, limits of its machine included (T0601).

    A kernel whose author gave it blocks or warps may ask for more registers or shared memory than there are: that is
    the author's to change, so it is said here, and not by the runner, for which a wrong module is a mistake of ours.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in symbols_in(module):
            if kernel.name.startswith("ttarget."):
                check_kernel(kernel)


def check_kernel(kernel: SpecOp) -> None:
    """Verify one kernel; raises TargetVerifyError (T0601)."""
    try:
        verify(kernel)
    except OpError as error:
        raise TargetVerifyError(error.message, span=error.span, fix=error.advice) from error
