"""Lower every tile kernel of a module to Target IR."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.x86.lower import lower_kernel
from tessera.backends.x86.machine import host_features, machine_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass


@dataclass(frozen=True)
class LowerKernels(Pass):
    """Put a `ttarget.kernel` in the place of each `ttile.kernel`, for a machine with `features`, or for this one.

    Before: `ttile.kernel @k` with loads of tiles at index maps. After: `ttarget.kernel @k` with loads of vectors at
    linear offsets, loops of whole steps with tails, products as one op.
    """

    features: tuple[str, ...] = ()

    def run(self, module: ModuleOp) -> None:
        machine = machine_of(frozenset(self.features) or host_features())
        for op in list(module.ops):
            if isinstance(op, SpecOp) and op.name == "ttile.kernel":
                module.body.block.insert_op_before(lower_kernel(op, machine), op)
                op.detach()
                op.erase()
