"""Writing Target IR from tile kernels: ops at the end of a block, and what stands for each value there."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.writer import OpWriter
from tessera.ir.target.dialect import DIALECT


class Writer(OpWriter):
    """Where ops are written, and what stands for each value of the tile kernel there."""

    dialect = DIALECT

    def __init__(self) -> None:
        super().__init__(Block())
        self.values: dict[SSAValue, SSAValue] = {}

    def of(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """What stands for values of the tile kernel."""
        return [self.values[value] for value in values]
