"""Lower tile kernels with products to matrix kernels of warpgroups: layouts, rings of copies, roles, order of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.gpus import DEFAULT, GPUS
from tessera.backends.nvptx.mma.programs import PAIRS
from tessera.backends.nvptx.passes.overlap_mma import LAGS
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import replace_ops
from tessera.ir.tile.choices import EPILOGUES


@dataclass(frozen=True)
class LowerToHopper(Pass):
    """Put a `ttarget.matrix_kernel` in the place of each `ttile.kernel` that fits matrix units; leave all others alone.

    Before: loops of `ttile.load` and `ttile.dot`. After: swizzled `shared_tile`s in a `ring` of stages, a producer that
    copies into it (`acquire`, `copy`) and consumers that multiply out of it (`await`, `mma_issue`, `release`), both in
    `tiles`, the persistent walk through the grid. `pairs`, `lag` and `epilogue` are its choices: whether two CTAs copy
    for each other, how far consumers are apart, and whether results are made beside the next products.
    """

    machine: str = DEFAULT
    pairs: str = PAIRS[0]
    lag: int = LAGS[0]
    epilogue: str = EPILOGUES[0]

    def run(self, module: ModuleOp) -> None:
        backend = NvptxBackend(GPUS[self.machine], pairs=self.pairs, lag=self.lag, epilogue=self.epilogue)
        replace_ops(module, "ttile.kernel", backend.matrix)
