"""The passes that a tile kernel goes through before it is written for matrix units, in order."""

from __future__ import annotations

from tessera.backends.nvptx.mma.fit import check_fit
from tessera.backends.nvptx.mma.programs import PAIRS
from tessera.backends.nvptx.passes.choose_spaces import choose_spaces
from tessera.backends.nvptx.passes.overlap_mma import LAGS, overlap_mma
from tessera.backends.nvptx.passes.pipeline_copies import pipeline_copies
from tessera.backends.nvptx.passes.place_barriers import place_barriers
from tessera.backends.nvptx.passes.schedule_programs import schedule_programs
from tessera.backends.nvptx.passes.select_mma import select_mma
from tessera.backends.nvptx.passes.specialize_warps import specialize_warps
from tessera.backends.nvptx.passes.swizzle_tiles import swizzle_tiles
from tessera.backends.nvptx.passes.use_exp2 import narrowed_exps, use_exp2
from tessera.backends.nvptx.tensor_cores import WGMMA, TensorCores
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.choices import EPILOGUES
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class Choices:
    """What a chooser says of kernels on warpgroups."""

    pairs: str = PAIRS[0]
    lag: int = LAGS[0]
    epilogue: str = EPILOGUES[0]


def prepared(kernel: SpecOp, machine: Machine, units: TensorCores, choices: Choices | None = None) -> SpecOp:
    """A copy of a kernel with everything chosen that its lowering reads; raises `UnfitError` where it does not fit."""
    choices = choices or Choices()
    check_fit(kernel, units, machine)
    kernel = kernel.clone()
    # First: all that follows depends on how many warps share a tile.
    select_mma(kernel, units)
    if units is WGMMA and narrowed_exps(kernel):
        use_exp2(kernel)
    # Before stages are counted, which are of what is in shared memory.
    choose_spaces(kernel, units)
    # Boxes are a line wide, and stages hold boxes.
    swizzle_tiles(kernel, units)
    # Rings before their stages.
    place_barriers(kernel)
    pipeline_copies(kernel, units, machine)
    schedule_programs(kernel, units, machine, choices.pairs)
    specialize_warps(kernel, units)
    # Last: how far groups of warps are apart depends on stages, and what is left to a next program on there being one.
    overlap_mma(kernel, units, machine, choices.lag, choices.epilogue)
    return kernel
