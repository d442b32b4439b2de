"""Sums of rows that a loop carries and scales from step to step: threads keep their parts of them until it ends."""

from __future__ import annotations

from xdsl.ir import BlockArgument, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.types.dtype import f32
from tessera.types.frozen import frozen


@frozen
class RunningSum:
    """`carried * factor + sum of the rows of a tile`, which begins at 0 and is read by nothing else in the loop."""

    carried: SSAValue
    factor: SSAValue
    scaled: SpecOp
    fold: SpecOp
    last: SpecOp


def running_sums(op: SpecOp) -> dict[int, RunningSum]:
    """The running sums of a loop, by which of its carried values they are."""
    source = op.regions[0].block
    last = source.last_op
    assert last is not None
    found: dict[int, RunningSum] = {}
    for at, (start, value) in enumerate(zip(op.operands[2:], last.operands, strict=True)):
        made = _sum_of(source.args[1 + at], value)
        if made is not None and _is_zero(start) and made.last.parent_block() is source:
            found[at] = made
    return found


def is_function(op: object, fn: str) -> bool:
    """Whether an op computes a function of elements."""
    return isinstance(op, SpecOp) and op.name == "ttile.elementwise" and op.value("fn") == fn


def _only(value: SSAValue) -> bool:
    return len(list(value.uses)) == 1


def _sum_of(carried: BlockArgument, value: SSAValue) -> RunningSum | None:
    last = value.owner
    if not isinstance(last, SpecOp) or not is_function(last, "add") or not _only(value):
        return None
    for scaled, fold in (last.operands, reversed(last.operands)):
        product, sums = scaled.owner, fold.owner
        if not isinstance(product, SpecOp) or not isinstance(sums, SpecOp) or not is_function(product, "mul"):
            continue
        if not _is_row_sum(sums) or carried not in product.operands or not _only(scaled) or not _only(fold):
            continue
        left, right = product.operands
        if _only(carried):
            return RunningSum(carried, right if left is carried else left, product, sums, last)
    return None


def _is_row_sum(op: SpecOp) -> bool:
    type = op.results[0].type
    is_float = isinstance(type, TileAttr) and type.dtype is f32
    return op.name == "ttile.reduce" and op.value("kind") == "sum" and op.value("axis") == 1 and is_float


def _is_zero(value: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, SpecOp) and op.name == "ttile.constant" and op.value("value") == 0
