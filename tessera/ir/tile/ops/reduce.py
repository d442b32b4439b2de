"""Reducing a tile along an axis: the halving tree of `docs/guide/numerics.md`, and the index of the min or max."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr

KINDS = ("sum", "prod", "max", "min", "any", "all")


def _check_axis(op: SpecOp, tile: TileAttr) -> None:
    axis: int = op.value("axis")
    if not 0 <= axis < len(tile.shape):
        op.fail(f"`axis` must be in 0..{len(tile.shape) - 1}, got {axis}")
    if not tile.shape[axis].value:
        op.fail(f"the reduced axis must have elements, got {tile.shape[axis]}")
    out = op.results[0].type
    rest = tile.shape[:axis] + tile.shape[axis + 1 :]
    if not isinstance(out, TileAttr) or out.shape != rest:
        op.fail(f"reducing axis {axis} of {list(tile.shape)} gives {list(rest)}, not {out}")


def _check_reduce(op: SpecOp) -> None:
    tile = op.operands[0].type
    if not isinstance(tile, TileAttr):
        op.fail(f"`{op.name}` reduces a tile, got {tile}")
    if op.value("kind") not in KINDS:
        op.fail(f"`kind` is one of {', '.join(KINDS)}, got {op.value('kind')}")
    _check_axis(op, tile)


def _check_arg_reduce(op: SpecOp) -> None:
    values, indices = (operand.type for operand in op.operands)
    if not isinstance(values, TileAttr) or not isinstance(indices, TileAttr) or values.shape != indices.shape:
        op.fail(f"`{op.name}` takes values and their indices, of one shape, got {values} and {indices}")
    if op.value("kind") not in ("argmax", "argmin"):
        op.fail(f"`kind` is argmax or argmin, got {op.value('kind')}")
    _check_axis(op, values)


SPECS = (
    OpSpec(
        name="ttile.reduce",
        summary="Reduce an axis in a halving tree: element i with i + h, h half of the next power of two, down to one.",
        operands=("tile",),
        attributes=(Attribute("kind", "str", doc=", ".join(KINDS)), Attribute("axis", "int", doc="the axis to reduce")),
        verify=_check_reduce,
    ),
    OpSpec(
        name="ttile.arg_reduce",
        summary="The index of the min or max along an axis; the lowest index of equals; NaN propagates.",
        operands=("values", "indices"),
        attributes=(
            Attribute("kind", "str", doc="argmax or argmin"),
            Attribute("axis", "int", doc="the axis to reduce"),
        ),
        verify=_check_arg_reduce,
    ),
)
