"""Take away bounds of accesses that no tile can reach, and clips that clip nothing."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.base.types import TileAttr
from tessera.ir.target.limits import IndexRanges, is_multiple, largest
from tessera.ir.tile.typed_ops import ClipOp, DotOp, ForOp, IndexOp, LoadOp, ProgramIdOp, StoreOp
from tessera.types.dim import Dim

_NONE = Dim.constant(-1)


class DropBounds(KernelPass):
    """Leave out the ragged edge where sizes show that there is none.

    Before: `ttile.load %x, %i {bounds = [128*s0]}` of 32 elements, in a loop to `128*s0` by 32. After: no bounds.
    Kernels with dots keep theirs: a dot on tensor cores takes its extents from them.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        if not any(isinstance(inner, DotOp) for inner in kernel.walk()):
            _Walk(kernel).block(kernel.regions[0].block)


class _Walk(IndexRanges):
    """Goes through a kernel in order and knows how far each index reaches."""

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            assert isinstance(op, SpecOp)
            if isinstance(op, ProgramIdOp):
                self.name_program(op)
            elif isinstance(op, IndexOp):
                self.substitute_index(op)
            elif isinstance(op, ForOp):
                self._loop(op)
            elif isinstance(op, LoadOp):
                self._access(op, op.result, op.at)
            elif isinstance(op, StoreOp):
                self._access(op, op.tile, op.at)
            elif isinstance(op, ClipOp) and self.is_clip_safe(op):
                op.result.replace_all_uses_with(op.operands[0])
                op.detach()
                op.erase()

    def _loop(self, op: ForOp) -> None:
        low, high = self.expr(op.low), self.expr(op.high)
        end, body = largest(high, self.tops), op.body.block
        is_whole = is_multiple(high - low, op.step)
        self.name_index(body.args[0], None if end is None else end - (op.step if is_whole else 1))
        self.block(body)

    def _access(self, op: LoadOp | StoreOp, tile: SSAValue, at: Sequence[SSAValue]) -> None:
        assert isinstance(tile.type, TileAttr)
        where = dict(zip(op.coords, at, strict=False))
        kept = tuple(
            _NONE if bound != _NONE and self.is_safe(where[axis], bound, size) else bound
            for axis, bound, size in zip(op.axes, op.bounds, tile.type.sizes, strict=True)
        )
        if kept != op.bounds:
            op.set_value("bounds", kept)
