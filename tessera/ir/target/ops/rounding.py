"""Rounding blocks to a number format, by lane."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.rounding_op import WAY, check_way
from tessera.ir.base.spec import OpSpec
from tessera.ir.target.types import VectorAttr


def _check_round(op: SpecOp) -> None:
    check_way(op)
    types = [value.type for value in (*op.operands, *op.results)]
    blocks = [type for type in types if isinstance(type, VectorAttr)]
    if len(blocks) != len(types) or len({block.shape for block in blocks}) != 1:
        op.fail(f"`{op.name}` works on blocks of one shape, got {', '.join(map(str, types))}")
    if blocks[0].dtype.name != "f32" or blocks[-1].dtype.name != "f32":
        op.fail(f"`{op.name}` rounds f32, got {blocks[0].dtype} and {blocks[-1].dtype}")


SPECS = (
    OpSpec(
        name="ttarget.round",
        summary="The values as numbers of a format.",
        operands=("block", "bits*"),
        attributes=WAY,
        verify=_check_round,
    ),
)
