"""Take away bounds of accesses that no tile can reach, and clips that clip nothing."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Block

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.base.types import TileAttr
from tessera.ir.target.limits import IndexRanges, is_multiple, largest
from tessera.types.dim import Dim

_NONE = Dim.constant(-1)
_FIRST = {"ttile.load": 1, "ttile.store": 2}


class DropBounds(KernelPass):
    """Leave out the ragged edge where sizes show that there is none.

    Before: `ttile.load %x, %i {bounds = [128*s0]}` of 32 elements, in a loop to `128*s0` by 32. After: no bounds.
    Kernels with dots keep theirs: a dot on tensor cores takes its extents from them.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        if not any(inner.name == "ttile.dot" for inner in kernel.walk()):
            _Walk(kernel).block(kernel.regions[0].block)


class _Walk(IndexRanges):
    """Goes through a kernel in order and knows how far each index reaches."""

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            assert isinstance(op, SpecOp)
            if op.name == "ttile.program_id":
                self.name_program(op)
            elif op.name == "ttile.index":
                self.substitute_index(op)
            elif op.name == "ttile.for":
                self._loop(op)
            elif op.name in _FIRST:
                self._access(op, _FIRST[op.name])
            elif op.name == "ttile.clip" and self.is_clip_safe(op):
                op.result.replace_all_uses_with(op.operands[0])
                op.detach()
                op.erase()

    def _loop(self, op: SpecOp) -> None:
        low, high, step = self.expr(op.operands[0]), self.expr(op.operands[1]), op.value("step")
        end, body = largest(high, self.tops), op.regions[0].block
        is_whole = is_multiple(high - low, step)
        self.name_index(body.args[0], None if end is None else end - (step if is_whole else 1))
        self.block(body)

    def _access(self, op: SpecOp, first: int) -> None:
        tile: Any = (op.results if first == 1 else op.operands)[0].type
        assert isinstance(tile, TileAttr)
        where = dict(zip(op.value("coords"), op.operands[first:], strict=False))
        bounds: tuple[Dim, ...] = op.value("bounds")
        kept = tuple(
            _NONE if bound != _NONE and self.is_safe(where[axis], bound, size) else bound
            for axis, bound, size in zip(op.value("axes"), bounds, tile.sizes, strict=True)
        )
        if kept != bounds:
            op.set_value("bounds", kept)
