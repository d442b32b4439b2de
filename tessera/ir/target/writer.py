"""Writing Target IR from tile kernels: ops at the end of a block, and what stands for each value there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.target.dialect import DIALECT


class Writer:
    """Where ops are written, and what stands for each value of the tile kernel there."""

    def __init__(self) -> None:
        self.block: Block = Block()
        self.values: dict[SSAValue, SSAValue] = {}
        self.span: Span | None = None

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue] = (),
        values: Mapping[str, Any] | None = None,
        types: Sequence[Any] = (),
        regions: Sequence[Any] = (),
    ) -> SpecOp:
        """Write an op at the end of the block."""
        op = make(DIALECT[name], list(operands), values, types=types, regions=regions, span=self.span)
        self.block.add_op(op)
        return op

    def of(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """What stands for values of the tile kernel."""
        return [self.values[value] for value in values]
