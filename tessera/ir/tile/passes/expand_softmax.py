"""Expand softmax and attention of tiles into the ops that backends know."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.tile.interpret import attend, softmax
from tessera.ir.tile.language import TileWriter, tile_type
from tessera.ir.tile.typed_ops import AttendOp, PerBlockOp, SoftmaxOp


class ExpandSoftmax(KernelPass):
    """Expand the composite softmax ops, `ttile.softmax` and `ttile.attend`, into reductions and elementwise ops.

    Marks, `ttile.per_block`, are for `tile-check-blocks`, and go. Before: `%y = ttile.softmax %x`. After: `reduce`
    to maxima, `exp` of the rows less them, `reduce` to sums, `div`.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        for op in list(kernel.walk()):
            if isinstance(op, SoftmaxOp | AttendOp):
                _expand(op)
            elif isinstance(op, PerBlockOp):
                op.result.replace_all_uses_with(op.tile)
                op.detach()
                op.erase()


def _expand(op: SpecOp) -> None:
    steps = _Emitted(op)
    made = (softmax(steps, op.tile, op.eps),) if isinstance(op, SoftmaxOp) else attend(steps, *op.operands)
    for old, new in zip(op.results, made, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


class _Emitted:
    """Steps as ops before another one."""

    def __init__(self, at: SpecOp) -> None:
        assert at.parent is not None
        self.tile = TileWriter(at.parent, at)

    def fn(self, name: str, *tiles: SSAValue) -> SSAValue:
        return self.tile.elementwise(name, *tiles)

    def rows(self, kind: str, tile: SSAValue) -> SSAValue:
        return self.tile.reduce(tile, kind, 1)

    def broadcast(self, column: SSAValue, like: SSAValue) -> SSAValue:
        return self.tile.broadcast(column, tile_type(like).shape, (0,))

    def full(self, value: float, like: SSAValue) -> SSAValue:
        return self.tile.full(value, tile_type(like).shape, tile_type(like).dtype)

    def choose(self, flags: SSAValue, yes: SSAValue, no: SSAValue) -> SSAValue:
        return self.tile.select(flags, yes, no)

    def narrow_to(self, tile: SSAValue, like: SSAValue) -> SSAValue:
        return self.tile.cast(tile, tile_type(like).dtype)

    def dot(self, lhs: SSAValue, rhs: SSAValue, acc: SSAValue) -> SSAValue:
        return self.tile.dot(lhs, rhs, acc)
