"""Ops on tiles: those that all kernels have on blocks, with what Tile IR asks beyond, butterflies, and softmax."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.block_ops import MODES, WIDTH, BlockOps, check_exchange, shuffle
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.choices import INSTRUCTIONS, WAITS, check_waits, is_shared
from tessera.types.dtype import f32
from tessera.types.machine import PLAIN


def _check_elementwise(op: SpecOp) -> None:
    (dtype, *_) = (value.type.dtype for value in op.operands if isinstance(value.type, TileAttr))
    if dtype.compute != dtype:
        op.fail(f"`{op.value('fn')}` does not compute in {dtype}", f"cast to {dtype.compute} first")


def _check_sort(op: SpecOp) -> None:
    if any(is_shared(operand) for operand in op.operands):
        op.fail("`ttile.sort` works in the memory of one worker", "give it private scratch")


def _check_tree(op: SpecOp) -> None:
    if is_shared(op.operands[0]):
        op.fail("`ttile.tree` works in the memory of one worker", "give it private scratch")


def _check_dot(op: SpecOp) -> None:
    """What was chosen for a dot is an instruction that there is, and divides it."""
    check_waits(op)
    unit, instruction = op.value("unit"), op.value("instruction")
    if unit not in ("", PLAIN, *INSTRUCTIONS):
        op.fail(f"`unit` is one of {', '.join(INSTRUCTIONS)} and {PLAIN}, got {unit}")
    if instruction and unit not in INSTRUCTIONS:
        op.fail(f"`instruction` is that of a `unit`, and there is {unit or 'none'}", "name the unit too")
    lhs, acc = op.operands[0].type, op.results[0].type
    assert isinstance(lhs, TileAttr)
    assert isinstance(acc, TileAttr)
    if instruction and (problem := INSTRUCTIONS[unit].problem(instruction, [*acc.sizes, lhs.sizes[1]])):
        op.fail(problem)


def _check_butterfly(op: SpecOp) -> None:
    check_exchange(op, "xor")


def _exchange(tile: Any, *, by: int, width: int) -> Any:
    return shuffle(tile, mode="xor", by=by, width=width)


def _check_per_block(op: SpecOp) -> None:
    if op.operands[0].type != op.results[0].type:
        op.fail(f"`{op.name}` of {op.operands[0].type} gives the same, not {op.results[0].type}")


def _same(tile: Any) -> Any:
    return tile


OPS = BlockOps(
    "ttile",
    TileAttr,
    "tile",
    {"elementwise": _check_elementwise, "sort": _check_sort, "tree": _check_tree, "dot": _check_dot},
    modes=MODES[:3],
)


# Softmax and attention: whole recipes as one op each, which `tile-expand-softmax` expands. `ttile.softmax` is of whole
# rows. `ttile.attend` takes one block of keys into account: what was summed so far and the block are scaled to the
# larger of their maxima, row by row, so that a loop over blocks ends with the sums of all.


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


_UNIT = (
    Attribute("unit", "str", "", "the matrix instruction that computes it, by name; or multiply-adds"),
    Attribute("instruction", "ints", (), "rows, columns and K of one instruction of them"),
)
SPECS = (
    *OPS.specs(dot=(*_UNIT, *WAITS)),
    OpSpec(
        name="ttile.butterfly",
        summary="Each element from the lane whose number differs in the bits of `by`.",
        operands=("tile",),
        attributes=(Attribute("by", "int", doc="the bits of the lane's number that differ"), WIDTH),
        reference=_exchange,
        verify=_check_butterfly,
    ),
    OpSpec(
        name="ttile.per_block",
        summary="The same tile; its author says that it depends on block sizes, which are fixed.",
        operands=("tile",),
        reference=_same,
        verify=_check_per_block,
    ),
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
