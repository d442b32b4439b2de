"""Running a program in any order that its arcs allow: what comes next is drawn, and the results are always the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from tessera.ir.base.arrays import Array
from tessera.ir.base.interpret import Run
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.accesses import Memory
from tessera.ir.schedule.fusions import programs_in
from tessera.ir.schedule.interpret import run_program
from tessera.ir.schedule.launch_order import LaunchOrder, ops_of, order_in

Kernels: TypeAlias = Callable[[str, Sequence[Array], Sequence[int]], None]
"""Runs a kernel by its name, on buffers, with its sizes."""


class AnyOrder:
    """A program and the orders of its blocks; `kernels` runs calls, the interpreter of tiles where there is none."""

    def __init__(self, module: ModuleOp, kernels: Kernels | None = None) -> None:
        self.module, self.kernels = module, kernels
        (self.program,) = programs_in(module)
        self._memory = Memory(self.program, symbol_table(module))
        self._blocks: dict[Block, tuple[LaunchOrder, list[SpecOp]]] = {}

    @property
    def order(self) -> LaunchOrder:
        """That of the whole program."""
        return self.block(self.program.regions[0].block)[0]

    def block(self, block: Block) -> tuple[LaunchOrder, list[SpecOp]]:
        """The order of a block, and its ops by number."""
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = (order_in(block, self._memory), ops_of(block))
        return found

    def forget(self, arc: tuple[int, int]) -> None:
        """Leave an arc of the whole program out from now on."""
        block = self.program.regions[0].block
        order, ops = self.block(block)
        self._blocks[block] = (order.without(arc), ops)

    def run(self, *arrays: Array, seed: int) -> tuple[Array, ...]:
        """The results, with each block in an order of its own, and each round of a loop."""
        return run_program(self.module, *arrays, runner=partial(_Drawn, self, Random(seed)))


class _Drawn(Run):
    """One execution."""

    def __init__(
        self, program: AnyOrder, random: Random, dims: Mapping[str, int], functions: Mapping[str, SpecOp]
    ) -> None:
        super().__init__(dims, functions)
        self._program, self._random = program, random

    def block(self, block: Block, arguments: Sequence[Any]) -> tuple[Any, ...]:
        for argument, content in zip(block.args, arguments, strict=True):
            self[argument] = content
        order, ops = self._program.block(block)
        for number in order.drawn(self._random):
            self.op(ops[number])
        last = block.last_op
        return tuple(self.operands(last)) if isinstance(last, SpecOp) and last.spec.is_terminator else ()

    def op(self, op: SpecOp) -> None:
        kernels = self._program.kernels
        if kernels is None or op.name != "tsched.call":
            super().op(op)
        else:
            kernels(op.value("kernel"), self.operands(op), [self.size(size) for size in op.value("sizes")])
