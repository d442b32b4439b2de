"""Make tiles of single numbers as large as what they are broadcast to, where only tiles of rows and columns will do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import INDEX, TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.typed_ops import BroadcastOp, KernelOp, LoadOp
from tessera.types.dim import Dim
from tessera.types.machine import PLAIN

_ELEMENTS = ("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant")
"""What is done to each element by itself, and so to one as to many."""


class BroadcastScalars(Pass):
    """Put the element that a `ttile.broadcast` repeats in the place of each of its elements.

    Before: `%one = ttile.load %key {map = [0]}` of no axes, and a `ttile.broadcast %one` to 64 x 64. After: one
    `ttile.load %key` of 64 x 64 elements, all of which are at that index. What is computed from such numbers on the
    way is computed for each element. Tensor cores have tiles of rows and columns alone, so kernels with dots go
    through this; others are left alone, and so are numbers that a loop carries, or of a buffer that the kernel writes.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp) and broadcast_scalars_in(op):
                broadcast_scalars(op)


def broadcast_scalars_in(kernel: SpecOp) -> list[SpecOp]:
    """The ops of a kernel with dots that broadcast a single number which can be had for each element."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp)]
    if all(op.name != "ttile.dot" or op.value("unit") == PLAIN for op in ops):
        return []
    written: set[SSAValue] = {kernel.regions[0].block.args[number] for number in kernel.value("writes")}
    return [op for op in ops if isinstance(op, BroadcastOp) and _is_repeatable(op.operands[0], written)]


def broadcast_scalars(kernel: SpecOp) -> None:
    """Do it to one kernel."""
    for op in broadcast_scalars_in(kernel):
        tile = op.results[0].type
        assert isinstance(tile, TileAttr)
        Rewriter.replace_op(op, [], [_wide(op, op.operands[0], tile.shape)])
    for op in reversed(list(kernel.walk())):
        is_known = isinstance(op, SpecOp) and op.name in ("ttile.load", *_ELEMENTS)
        if is_known and _is_one(op.results[0]) and not list(op.results[0].uses):
            Rewriter.erase_op(op)


def _is_one(value: SSAValue) -> bool:
    return isinstance(value.type, TileAttr) and not value.type.shape


def _is_repeatable(value: SSAValue, written: Collection[SSAValue]) -> bool:
    op = value.op if isinstance(value, OpResult) else None
    if not _is_one(value) or not isinstance(op, SpecOp):
        return False
    if isinstance(op, LoadOp):
        # It is read again where it is broadcast, and there may be something else by then.
        is_still = isinstance(op.operands[0], BlockArgument) and op.operands[0] not in written
        return is_still and len(op.operands) == 1 + len(op.coords)
    return op.name in _ELEMENTS and all(_is_repeatable(part, written) for part in op.operands)


def _wide(before: SpecOp, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """A number at every element of a shape, computed before an op."""
    assert isinstance(value, OpResult)
    op = value.op
    assert isinstance(op, SpecOp)
    assert isinstance(value.type, TileAttr)
    values, type = op.values(), TileAttr.of(value.type.data.with_shape(shape))
    if op.name != "ttile.load":
        operands = [_wide(before, part, shape) for part in op.operands]
        made = make(op.spec, operands, values, types=[type], span=op.span)
        Rewriter.insert_op(made, InsertPoint.before(before))
        return made.result
    axes = tuple(f"_of{axis}" for axis in range(len(shape)))
    zero = make(DIALECT["index"], [], {"names": (), "expr": Dim.constant(0)}, types=[INDEX], span=op.span)
    values.update(coords=(*values["coords"], *axes), axes=axes, bounds=(Dim.constant(-1),) * len(axes))
    wide = make(op.spec, [*op.operands, *[zero.result] * len(axes)], values, types=[type], span=op.span)
    Rewriter.insert_op([zero, wide], InsertPoint.before(before))
    return wide.result
