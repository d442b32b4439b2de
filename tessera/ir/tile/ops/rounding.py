"""Rounding tiles to a number format: every way in which a value loses bits is an op that says how."""

from __future__ import annotations

from tessera.ir.base.arrays import CONVERSION, check_conversion
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.types import TileAttr


def _check_round(op: SpecOp) -> None:
    check_conversion(op)
    types = [value.type for value in (*op.operands, *op.results)]
    tiles = [type for type in types if isinstance(type, TileAttr)]
    if len(tiles) != len(types) or len({tile.shape for tile in tiles}) != 1:
        op.fail(f"`{op.name}` works on tiles of one shape, got {', '.join(map(str, types))}")
    dtypes = [tile.dtype.name for tile in tiles]
    if dtypes[0] != "f32" or dtypes[-1] != "f32" or "u32" not in (*dtypes[1:-1], "u32"):
        op.fail(f"`{op.name}` rounds f32 by bits of u32, got {' '.join(dtypes)}")


SPECS = (
    OpSpec(
        name="ttile.round",
        summary="The values as numbers of a format, still in f32; stochastic rounding takes 32 random bits for each.",
        operands=("tile", "bits*"),
        attributes=CONVERSION,
        verify=_check_round,
    ),
)
