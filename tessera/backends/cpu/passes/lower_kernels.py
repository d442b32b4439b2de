"""Lower every tile kernel of a module to Target IR."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.cpu.lower import lower_kernel
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import replace_ops
from tessera.ir.target.architectures import host_features, machine_of


@dataclass(frozen=True)
class LowerKernels(Pass):
    """Put a `ttarget.kernel` in the place of each `ttile.kernel`, for a machine with `features`, or for this one.

    Before: `ttile.kernel @k` with loads of tiles at index maps. After: `ttarget.kernel @k` with loads of vectors at
    linear offsets, loops of whole steps with tails, products as one op.
    """

    features: tuple[str, ...] = ()

    def run(self, module: ModuleOp) -> None:
        machine = machine_of(frozenset(self.features) or host_features())
        replace_ops(module, "ttile.kernel", lambda op: lower_kernel(op, machine))
