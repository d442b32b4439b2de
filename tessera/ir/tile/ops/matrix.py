"""Dots of tiles."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.choices import INSTRUCTIONS, WAITS, check_waits
from tessera.types.machine import PLAIN


def _check_dot(op: SpecOp) -> None:
    types = [operand.type for operand in op.operands]
    lhs, rhs, acc = types
    if not isinstance(lhs, TileAttr) or not isinstance(rhs, TileAttr) or not isinstance(acc, TileAttr):
        op.fail(f"`ttile.dot` multiplies tiles, got {types}")
    if len(lhs.shape) != 2 or len(rhs.shape) != 2 or lhs.shape[1] != rhs.shape[0]:
        op.fail(f"`ttile.dot` multiplies [M, K] by [K, N], got {list(lhs.shape)} by {list(rhs.shape)}")
    if acc.shape != (lhs.shape[0], rhs.shape[1]):
        op.fail(f"the accumulator must be {[lhs.shape[0], rhs.shape[1]]}, got {list(acc.shape)}")
    if op.results[0].type != acc:
        op.fail(f"`ttile.dot` gives its accumulator's type {acc}, not {op.results[0].type}")
    check_waits(op)
    _check_unit(op, [*(dim.value or 0 for dim in acc.shape), lhs.shape[1].value or 0])


def _check_unit(op: SpecOp, sizes: list[int]) -> None:
    """What was chosen for a dot is an instruction that there is, and divides it."""
    unit, instruction = op.value("unit"), op.value("instruction")
    if unit not in ("", PLAIN, *INSTRUCTIONS):
        op.fail(f"`unit` is one of {', '.join(INSTRUCTIONS)} and {PLAIN}, got {unit}")
    if instruction and unit not in INSTRUCTIONS:
        op.fail(f"`instruction` is that of a `unit`, and there is {unit or 'none'}", "name the unit too")
    if instruction and (problem := INSTRUCTIONS[unit].problem(instruction, sizes)):
        op.fail(problem)


def _check_transpose(op: SpecOp) -> None:
    tile, out = op.operands[0].type, op.results[0].type
    if not isinstance(tile, TileAttr) or not isinstance(out, TileAttr) or tile.shape[::-1] != out.shape:
        op.fail(f"`ttile.transpose` makes [B, A] of [A, B], got {out} of {tile}")


SPECS = (
    OpSpec(
        name="ttile.dot",
        summary="`acc + lhs @ rhs`: each element a chain of fused multiply-adds over k, in order.",
        operands=("lhs", "rhs", "acc"),
        attributes=(
            Attribute("unit", "str", "", "the matrix instruction that computes it, by name; or multiply-adds"),
            Attribute("instruction", "ints", (), "rows, columns and K of one instruction of them"),
            *WAITS,
        ),
        verify=_check_dot,
    ),
    OpSpec(
        name="ttile.transpose", summary="A tile with its two axes swapped.", operands=("tile",), verify=_check_transpose
    ),
)
