"""What programs of many threads need beside vectors: waiting for each other, and tiles that change hands."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import OpSpec
from tessera.ir.target.scope import kernel_around
from tessera.ir.target.types import VectorAttr


def _check_threads(op: SpecOp) -> None:
    kernel = kernel_around(op)
    if kernel is not None and not kernel.value("threads"):
        op.fail(f"`{op.name}` is for programs of several threads, and `@{kernel.value('symbol')}` has one")


def _check_dot(op: SpecOp) -> None:
    _check_threads(op)
    types = [value.type for value in (*op.operands, *op.results)]
    blocks = [type for type in types if isinstance(type, VectorAttr)]
    if len(blocks) != 4:
        op.fail(f"`{op.name}` multiplies blocks, got {', '.join(map(str, types))}")
    lhs, rhs, acc, out = blocks
    if len(lhs.shape) != 2 or len(rhs.shape) != 2 or lhs.shape[1] != rhs.shape[0]:
        op.fail(f"`{op.name}` multiplies [M, K] by [K, N], got {list(lhs.shape)} by {list(rhs.shape)}")
    if acc != out or acc.shape != (lhs.shape[0], rhs.shape[1]):
        op.fail(f"`{op.name}` gives {[lhs.shape[0], rhs.shape[1]]} as its accumulator is, got {acc} and {out}")


def _check_transpose(op: SpecOp) -> None:
    _check_threads(op)
    block, out = op.operands[0].type, op.results[0].type
    if not isinstance(block, VectorAttr) or not isinstance(out, VectorAttr):
        op.fail(f"`{op.name}` turns blocks, got {block} into {out}")
    if block.shape[::-1] != out.shape or block.dtype is not out.dtype:
        op.fail(f"`{op.name}` turns [A, B] into [B, A], got {block} into {out}")


SPECS = (
    OpSpec(
        name="ttarget.barrier",
        summary="All threads of the program wait for each other: what one stored before, all see after.",
        results=(),
        effects=frozenset(["memory"]),
        verify=_check_threads,
    ),
    OpSpec(
        name="ttarget.dot",
        summary="`acc + lhs @ rhs` of blocks that threads hold: each element one chain of multiply-adds over k.",
        operands=("lhs", "rhs", "acc"),
        verify=_check_dot,
    ),
    OpSpec(
        name="ttarget.transpose",
        summary="A block with its two axes swapped; elements change hands.",
        operands=("block",),
        verify=_check_transpose,
    ),
)
