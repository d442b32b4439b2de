"""Lower tile kernels that add up products to kernels with tensor memory; what comes of them was never executed."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.gpus import GPUS
from tessera.backends.nvptx.tensor_cores import TCGEN05
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import replace_ops


@dataclass(frozen=True)
class LowerToBlackwell(Pass):
    """Put a `ttarget.tensor_kernel` in the place of each `ttile.kernel` that is one sum of products.

    Before: a loop of `ttile.load` and `ttile.dot`. After: columns of tensor memory (`tensor_alloc`) that products of
    one thread sum in (`tensor_mma`), stages that are left as products get done (`tensor_release`), and the sum in
    registers (`tensor_commit`, `tensor_wait`, `tensor_load`) before memory is given back (`tensor_dealloc`).
    """

    machine: str = "sm_100a"

    def run(self, module: ModuleOp) -> None:
        backend = NvptxBackend(GPUS[self.machine], units=TCGEN05.name)
        replace_ops(module, "ttile.kernel", backend.matrix)
