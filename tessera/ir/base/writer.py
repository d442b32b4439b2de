"""Writing IR: ops of one dialect, one after the other, at the end of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Registry


class OpWriter:
    """A block that grows, and the line that its next ops come from; `dialect` finds ops by their short names."""

    dialect: Registry
    block: Block
    span: Span | None

    def __init__(self, block: Block) -> None:
        self.block = block
        self.span = None

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue] = (),
        values: Mapping[str, Any] | None = None,
        types: Sequence[Any] = (),
        regions: Sequence[Any] = (),
    ) -> SpecOp:
        """Write an op at the end of the block."""
        op = make(self.dialect[name], list(operands), values, types=types, regions=regions, span=self.span)
        self.block.add_op(op)
        return op
