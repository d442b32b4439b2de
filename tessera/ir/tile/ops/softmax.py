"""Softmax and attention of tiles: whole recipes as one op each, which `tile-expand-softmax` expands.

`ttile.softmax` is of whole rows. `ttile.attend` takes one block of keys into account: what was summed so far and the
block are scaled to the larger of their maxima, row by row, so that a loop over blocks ends with the sums of all.
"""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.ops.blocks import OPS
from tessera.types.dtype import f32


def _check_softmax(op: SpecOp) -> None:
    tile, out = op.operands[0].type, op.results[0].type
    if not isinstance(tile, TileAttr) or len(tile.shape) != 2 or not tile.shape[1].value:
        op.fail(f"`{op.name}` is of rows that have elements, got {tile}")
    if not tile.dtype.is_float or tile.dtype.compute is not tile.dtype:
        op.fail(f"`{op.name}` is computed in f32 or f64, got {tile.dtype}", "cast the tile to f32 first")
    if out != tile:
        op.fail(f"`{op.name}` of {tile} gives {tile}, not {out}")
    if not 0 <= op.value("eps") < float("inf"):
        op.fail(f"`eps` is added to sums, and is 0 or more, got {op.value('eps')}")


def _check_attend(op: SpecOp) -> None:
    scores, values, acc, top, total = types = OPS.blocks(op, op.operands)
    if len(scores.shape) != 2 or len(values.shape) != 2 or scores.shape[1] != values.shape[0]:
        op.fail(f"`{op.name}` takes scores [M, N] and values [N, D], got {list(scores.shape)} and {list(values.shape)}")
    rows, wanted = scores.shape[:1], (scores.shape[0], values.shape[1])
    if acc.shape != wanted:
        op.fail(f"the accumulators must be {list(wanted)}, got {list(acc.shape)}")
    if top.shape != rows or total.shape != rows:
        op.fail(f"maxima and sums must be {list(rows)}, got {list(top.shape)} and {list(total.shape)}")
    if any(type.dtype is not f32 for type in (scores, acc, top, total)) or not values.dtype.is_float:
        op.fail(f"`{op.name}` is computed in f32, on values of floats, got {', '.join(map(str, types))}")
    if [result.type for result in op.results] != [acc, top, total]:
        op.fail(f"`{op.name}` gives accumulators, maxima and sums of exp as it took them")


SPECS = (
    OpSpec(
        name="ttile.softmax",
        summary="The softmax of whole rows, each less its maximum first; a row of nothing but -inf gives zeros.",
        operands=("tile",),
        attributes=(Attribute("eps", "float", 0.0, "what is added to the sums of exp"),),
        verify=_check_softmax,
    ),
    OpSpec(
        name="ttile.attend",
        summary="One more block of an attention: exp of its scores times values, added to what was summed before.",
        operands=("scores", "values", "acc", "max", "sum"),
        results=("new_acc", "new_max", "new_sum"),
        verify=_check_attend,
    ),
)
