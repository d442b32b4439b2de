"""The passes that a tile kernel goes through before it is written for matrix units, in order."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.matrix.fit import check_fit
from tessera.ir.tile.matrix.plan import Units
from tessera.ir.tile.matrix.units import WARPGROUPS
from tessera.ir.tile.passes.choose_spaces import choose_spaces
from tessera.ir.tile.passes.fold_powers import fold_powers, narrowed_powers
from tessera.ir.tile.passes.pipeline_copies import pipeline_copies
from tessera.ir.tile.passes.select_matrix_units import select_matrix_units
from tessera.types.machine import Machine


def prepared(kernel: SpecOp, machine: Machine, units: Units) -> SpecOp:
    """A copy of a kernel with everything chosen that its lowering reads; raises `UnfitError` where it does not fit."""
    check_fit(kernel, units, machine)
    kernel = kernel.clone()
    # First: all that follows depends on how many warps share a tile.
    select_matrix_units(kernel, units)
    if units is WARPGROUPS and narrowed_powers(kernel):
        fold_powers(kernel)
    # Before stages are counted, which are of what is in shared memory.
    choose_spaces(kernel, units)
    pipeline_copies(kernel, units, machine)
    return kernel
