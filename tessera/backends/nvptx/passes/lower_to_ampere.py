"""Lower tile kernels with products to kernels of warps: copies some stages ahead, `mma.sync`, rows out."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.gpus import GPUS
from tessera.backends.nvptx.tensor_cores import MMA_SYNC
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import replace_ops


@dataclass(frozen=True)
class LowerToAmpere(Pass):
    """Put a `ttarget.warp_kernel` in the place of each `ttile.kernel` that fits matrix units of single warps.

    Before: loops of `ttile.load` and `ttile.dot`. After: swizzled `shared_tile`s that all threads copy into some stages
    ahead (`copy_async`, `commit_copies`), waits that count groups of copies (`wait_copies`), products that are done
    when they return (`mma_sync`) and rows that leave 16 bytes at a time (`store_rows`).
    """

    machine: str = "sm_80"

    def run(self, module: ModuleOp) -> None:
        backend = NvptxBackend(GPUS[self.machine], units=MMA_SYNC.name)
        replace_ops(module, "ttile.kernel", backend.matrix)
