"""Refuse kernels whose results depend on the size of their blocks."""

from __future__ import annotations

from math import gcd
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import BlockValueError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.block_dependence import FIX, RULE, BlockDependence, describe_dependence
from tessera.ir.tile.block_facts import Coordinate
from tessera.ir.tile.records import INDEX, Body, Memory, TileOp
from tessera.ir.tile.typed_ops import ForOp, IndexOp, ProgramIdOp
from tessera.types.dim import Dim


class CheckBlocks(KernelPass):
    """Check that no result of a kernel depends on block sizes (T0504); before and after are the same text.

    Blocks start at program ids that are scaled by a number, and at the steps of loops with a `block`. A value that is
    meant for one block goes through `ttile.per_block`.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        reader = _Reader(kernel)
        body = reader.body(kernel.regions[0].block)
        walk = BlockDependence(reader.types, reader.coordinates)
        walk.run(body)
        for found in walk.found:
            cause = found.cause or found.store
            raise BlockValueError(
                f"{describe_dependence(found)}, in `@{kernel.value('symbol')}`",
                span=cause.span or found.store.span,
                notes=(f"it is stored at {found.store.span}", RULE),
                fix=FIX,
            )


class _Reader:
    """The records of a kernel, and the values at which its blocks start."""

    def __init__(self, kernel: SpecOp) -> None:
        self.grid: tuple[Dim, ...] = kernel.value("grid")
        self.types: list[Any] = []
        self.numbers: dict[SSAValue, int] = {}
        self.programs: dict[SSAValue, int] = {}
        self.coordinates: dict[int, Coordinate] = {}

    def number(self, value: SSAValue) -> int:
        if value not in self.numbers:
            self.numbers[value] = len(self.types)
            type = value.type
            data = type.data if isinstance(type, BufferAttr | TileAttr) else None
            self.types.append(INDEX if data is None else Memory(data) if isinstance(type, BufferAttr) else data)
        return self.numbers[value]

    def body(self, block: Block) -> Body:
        made = Body(arguments=tuple(map(self.number, block.args)))
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if op.name == "ttile.yield":
                made.results = tuple(map(self.number, op.operands))
            elif op.name != "ttile.return":
                made.ops.append(self._op(op))
        return made

    def _op(self, op: SpecOp) -> TileOp:
        if isinstance(op, ForOp) and op.block:
            step = op.body.block.args[0]
            name = f"%{self.number(step)}"
            self.coordinates[self.number(step)] = Coordinate(name, op.block, op.step, is_loop=True)
        if isinstance(op, ProgramIdOp) and self.grid[op.axis].value not in (0, 1):
            self.programs[op.result] = op.axis
        if isinstance(op, IndexOp) and op.at and all(value in self.programs for value in op.at):
            self._start(op)
        inner = self.body(op.regions[0].block) if op.regions else None
        operands, results = tuple(map(self.number, op.operands)), tuple(map(self.number, op.results))
        return TileOp(op.spec.short_name, operands, op.values(), results, op.span, inner)

    def _start(self, op: IndexOp) -> None:
        """The start of a block: a program id times the elements of a block."""
        size = 0
        for monomial, coefficient in op.expr.terms:
            size = gcd(size, coefficient) if monomial else size
        if size > 1:
            number = self.number(op.result)
            axes = ", ".join(str(self.programs[value]) for value in op.at)
            self.coordinates[number] = Coordinate(f"%{number}", f"grid axis {axes}", size)
