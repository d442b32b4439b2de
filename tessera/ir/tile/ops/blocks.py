"""Ops on tiles: those that all kernels have on blocks, with what Tile IR asks beyond, and butterflies."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.block_ops import MODES, WIDTH, BlockOps, check_exchange, shuffle
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.choices import INSTRUCTIONS, WAITS, check_waits, is_shared
from tessera.types.machine import PLAIN


def _check_elementwise(op: SpecOp) -> None:
    (dtype, *_) = (value.type.dtype for value in op.operands if isinstance(value.type, TileAttr))
    if dtype.compute != dtype:
        op.fail(f"`{op.value('fn')}` does not compute in {dtype}", f"cast to {dtype.compute} first")


def _check_sort(op: SpecOp) -> None:
    if any(is_shared(operand) for operand in op.operands):
        op.fail("`ttile.sort` works in the memory of one worker", "give it private scratch")


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


OPS = BlockOps(
    "ttile",
    TileAttr,
    "tile",
    {"elementwise": _check_elementwise, "sort": _check_sort, "dot": _check_dot},
    modes=MODES[:3],
)
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
)
