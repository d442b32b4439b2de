"""Reorder the launches of a program at random, in a way that keeps its meaning: for tests of the launch order."""

from __future__ import annotations

from random import Random

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.accesses import Memory
from tessera.ir.schedule.host_program.launch_order import ops_of, order_in
from tessera.ir.schedule.plan import programs_in
from tessera.types.frozen import frozen


@frozen
class ReorderLaunches(Pass):
    """Draw a topological order of the ops of each block; `seed` says which.

    Before: `call @f(%x, %a)`, `call @g(%y, %b)`. After, for some seeds: `call @g(%y, %b)`, `call @f(%x, %a)`.
    """

    seed: int = 0

    def run(self, module: ModuleOp) -> None:
        kernels, random = symbol_table(module), Random(self.seed)
        for program in programs_in(module):
            memory = Memory(program, kernels)
            blocks = [region.block for op in program.walk() for region in op.regions]
            orders = [(block, order_in(block, memory).draw(random)) for block in blocks]
            for block, order in orders:
                _rewrite(block, order)


def _rewrite(block: Block, order: list[int]) -> None:
    ops = ops_of(block)
    for op in ops:
        op.detach()
    first = block.first_op
    for number in order:
        if first is None:
            block.add_op(ops[number])
        else:
            block.insert_op_before(ops[number], first)
