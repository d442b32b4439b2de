"""Place all temporaries of a program in one workspace, reusing what is no longer needed."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.fusions import programs_in
from tessera.ir.schedule.memory import Life, lay_out


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Give every `alloc` of the workspace its offset, and the program the bytes that it needs.

    Before: `%a = tsched.alloc`. After: `%a = tsched.alloc {offset = 4*B}` in a `tsched.module` with `workspace`.
    Buffers whose lives do not meet may share bytes. A buffer made inside a loop lives for one round of it.
    """

    def run(self, module: ModuleOp) -> None:
        for program in programs_in(module):
            allocs, lives = lives_in(program)
            layout = lay_out(lives)
            for op, offset in zip(allocs, layout.offsets, strict=True):
                op.set_value("offset", offset)
            program.set_value("workspace", layout.total)


def lives_in(program: SpecOp) -> tuple[list[SpecOp], list[Life]]:
    """The allocations of the workspace, and the life of each on the clock of a walk through the program."""
    walk = _Clock()
    walk.block(program.regions[0].block)
    lives = [
        Life(op.result.type.data.bytes, walk.starts[op.result], walk.ends.get(op.result, walk.now))
        for op in walk.allocs
        if isinstance(op.result.type, BufferAttr)
    ]
    return walk.allocs, lives


class _Clock:
    """Numbers the steps of a program; an op with regions takes all the steps in them."""

    def __init__(self) -> None:
        self.now = 0
        self.allocs: list[SpecOp] = []
        self.starts: dict[SSAValue, int] = {}
        self.ends: dict[SSAValue, int] = {}

    def block(self, block: Block) -> None:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self.now += 1
            if op.name == "tsched.alloc" and op.value("output") < 0:
                self.allocs.append(op)
                self.starts[op.result] = self.now
            elif op.name == "tsched.free":
                self.ends[op.operands[0]] = self.now
            for region in op.regions:
                self.block(region.block)
