"""The passes that a tile kernel goes through before it is written for matrix units, in order."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.matrix.fit import check_fit
from tessera.ir.tile.matrix.plan import Units
from tessera.ir.tile.matrix.programs import PAIRS
from tessera.ir.tile.matrix.units import WARPGROUPS
from tessera.ir.tile.order import EPILOGUES
from tessera.ir.tile.passes.choose_spaces import choose_spaces
from tessera.ir.tile.passes.fold_powers import fold_powers, narrowed_powers
from tessera.ir.tile.passes.overlap_products import LAGS, overlap_products
from tessera.ir.tile.passes.pipeline_copies import pipeline_copies
from tessera.ir.tile.passes.place_barriers import place_barriers
from tessera.ir.tile.passes.schedule_programs import schedule_programs
from tessera.ir.tile.passes.select_matrix_units import select_matrix_units
from tessera.ir.tile.passes.specialize_warps import specialize_warps
from tessera.ir.tile.passes.swizzle_tiles import swizzle_tiles
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class Choices:
    """What a chooser says of kernels on warpgroups."""

    pairs: str = PAIRS[0]
    lag: int = LAGS[0]
    epilogue: str = EPILOGUES[0]


def prepared(kernel: SpecOp, machine: Machine, units: Units, choices: Choices | None = None) -> SpecOp:
    """A copy of a kernel with everything chosen that its lowering reads; raises `UnfitError` where it does not fit."""
    choices = choices or Choices()
    check_fit(kernel, units, machine)
    kernel = kernel.clone()
    # First: all that follows depends on how many warps share a tile.
    select_matrix_units(kernel, units)
    if units is WARPGROUPS and narrowed_powers(kernel):
        fold_powers(kernel)
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
    overlap_products(kernel, units, machine, choices.lag, choices.epilogue)
    return kernel
