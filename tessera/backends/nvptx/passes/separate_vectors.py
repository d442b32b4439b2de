"""Compute vectors twice that go along rows and along columns: threads hold each in another way."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue, Use

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.typed_ops import BroadcastOp, KernelOp
from tessera.types.machine import PLAIN

_ELEMENTS = (
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.load"),
)
_LOOPS = ("ttile.for", "ttile.yield")


class SeparateVectors(Pass):
    """Give a vector that is broadcast along rows and along columns a copy for the latter.

    Before: `%a = ttile.load` of 128 elements, broadcast with `axes = [0]` and with `axes = [1]`. After: two such loads,
    one for each. The same holds for whatever is computed from it, element by element. Fragments of tensor cores have
    their rows and their columns in different threads, so that a kernel with dots needs both; others are left alone.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp):
                separate_vectors(op)


def separate_vectors(kernel: SpecOp) -> None:
    """Do it to one kernel; what no op of elements makes, as a reduction, is left to both."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp)]
    if all(op.name != "ttile.dot" or op.value("unit") == PLAIN for op in ops):
        return
    axes: dict[SSAValue, set[int]] = {}
    for op in reversed(ops):
        for value in op.results:
            if is_vector(value):
                axes[value] = {axis for use in value.uses for axis in _axes_of(use, axes)}
        if op.name in _ELEMENTS and axes.get(op.results[0]) == {0, 1}:
            copy = op.clone()
            assert isinstance(copy, SpecOp)
            block = op.parent_block()
            assert block is not None
            block.insert_op_after(copy, op)
            for use in list(op.results[0].uses):
                if set(_axes_of(use, axes)) == {1}:
                    use.operation.operands[use.index] = copy.results[0]
            axes[op.results[0]], axes[copy.results[0]] = {0}, {1}


def _axes_of(use: Use, axes: dict[SSAValue, set[int]]) -> Iterator[int]:
    """Along what one use has a vector: 0 for a number of each row, 1 for one of each column."""
    op = use.operation
    if isinstance(op, BroadcastOp):
        yield from op.axes
    elif op.name in _LOOPS:
        yield 0
    elif op.name in _ELEMENTS:
        yield from axes.get(op.results[0], ())


def is_vector(value: SSAValue) -> bool:
    """Whether a value is a tile of one dim."""
    return isinstance(value.type, TileAttr) and len(value.type.shape) == 1
