"""Check that lowered kernels hold together, and ask for no more than the machine has."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in, verify
from tessera.ir.target.ops.kernel import shared_bytes
from tessera.types.frozen import frozen


@frozen
class CheckKernels(Pass):
    """Check every kernel of Target IR by the verifiers of its ops, limits of its machine included (T0601).

    A kernel whose author gave it blocks or warps may ask for more registers or shared memory than there are: that is
    the author's to change, so it is said here, and not by the runner, for which a wrong module is a mistake of ours.

    `shared` is how many bytes of shared memory a block has on the machine, 0 where that is not to be checked. Before
    and after are the same text.
    """

    shared: int = 0

    def run(self, module: ModuleOp) -> None:
        for kernel in symbols_in(module):
            if kernel.name.startswith("ttarget."):
                check_kernel(kernel, self.shared)


def check_kernel(kernel: SpecOp, shared: int = 0) -> None:
    """Verify one kernel, and that it fits a block of so many shared bytes; raises TargetVerifyError (T0601)."""
    try:
        verify(kernel)
    except OpError as error:
        raise TargetVerifyError(error.message, span=error.span, fix=error.advice) from error
    if shared and kernel.name == "ttarget.kernel" and (taken := shared_bytes(kernel)) > shared:
        raise TargetVerifyError(
            f"a block has {shared} bytes of shared memory here, and `@{kernel.value('symbol')}` takes {taken}",
            span=kernel.span,
            fix="use smaller blocks, or fewer tiles in shared memory",
        )
