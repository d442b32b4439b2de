"""Take away bounds of accesses that no tile can reach, and clips that clip nothing."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.target.limits import fits, is_multiple, largest
from tessera.types.dim import Dim

_NONE = Dim.constant(-1)
_FIRST = {"ttile.load": 1, "ttile.store": 2}


class DropBounds(Pass):
    """Leave out the ragged edge where sizes show that there is none.

    Before: `ttile.load %x, %i {bounds = [128*s0]}` of 32 elements, in a loop to `128*s0` by 32. After: no bounds.
    Kernels with products keep theirs: a machine's product takes its extents from them.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            is_kernel = isinstance(op, SpecOp) and op.name == "ttile.kernel"
            if is_kernel and not any(inner.name == "ttile.dot" for inner in op.walk()):
                assert isinstance(op, SpecOp)
                _Walk(op).block(op.regions[0].block)


class _Walk:
    """Goes through a kernel in order and knows how far each index reaches."""

    def __init__(self, kernel: SpecOp) -> None:
        self.kernel = kernel
        self.sizes = set(kernel.value("symbols"))
        self.exprs: dict[SSAValue, Dim] = {}
        self.tops: dict[str, Dim | None] = {}

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            assert isinstance(op, SpecOp)
            if op.name == "ttile.program_id":
                self.name(op.result, self.kernel.value("grid")[op.value("axis")] - 1)
            elif op.name == "ttile.index":
                names = {name: self.expr(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
                self.exprs[op.result] = op.value("expr").substitute(names)
            elif op.name == "ttile.for":
                self._loop(op)
            elif op.name in _FIRST:
                self._access(op, _FIRST[op.name])
            elif op.name == "ttile.clip":
                self._clip(op)

    def name(self, index: SSAValue, top: Dim | None) -> None:
        """Let an index be known by a name, which no size has, and its largest value."""
        name = f"%{len(self.tops)}"
        self.exprs[index], self.tops[name] = Dim.symbol(name), top

    def expr(self, index: SSAValue) -> Dim:
        if index not in self.exprs:
            self.name(index, None)
        return self.exprs[index]

    def _loop(self, op: SpecOp) -> None:
        low, high, step = self.expr(op.operands[0]), self.expr(op.operands[1]), op.value("step")
        end, body = largest(high, self.tops), op.regions[0].block
        is_whole = is_multiple(high - low, step)
        self.name(body.args[0], None if end is None else end - (step if is_whole else 1))
        self.block(body)

    def _is_safe(self, start: SSAValue, bound: Dim, size: Dim) -> bool:
        if not bound.symbols <= self.sizes or size.value is None:
            return False
        top = largest(self.expr(start), self.tops)
        return top is not None and fits(top, size.value, bound)

    def _access(self, op: SpecOp, first: int) -> None:
        tile: Any = (op.results if first == 1 else op.operands)[0].type
        assert isinstance(tile, TileAttr)
        where = dict(zip(op.value("coords"), op.operands[first:], strict=False))
        bounds: tuple[Dim, ...] = op.value("bounds")
        kept = tuple(
            _NONE if bound != _NONE and self._is_safe(where[axis], bound, size) else bound
            for axis, bound, size in zip(op.value("axes"), bounds, tile.shape, strict=True)
        )
        if kept != bounds:
            op.set_value("bounds", kept)

    def _clip(self, op: SpecOp) -> None:
        tile, axis = op.operands[0].type, op.value("axis")
        assert isinstance(tile, TileAttr)
        where = dict(zip(op.value("coords"), op.operands[1:], strict=True))
        axes: tuple[str, ...] = op.value("axes")
        if self._is_safe(where[axis], op.value("bound"), tile.shape[axes.index(axis)]):
            op.result.replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()
