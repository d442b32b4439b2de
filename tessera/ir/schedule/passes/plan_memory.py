"""Place all temporaries of a program in one workspace, reusing memory that is no longer needed."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.host_program.accesses import refuse_unplaced
from tessera.ir.schedule.host_program.memory import Lifetime, lay_out
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import AllocOp, FreeOp


class PlanMemory(Pass):
    """Give every `alloc` of the workspace its offset, and the program the bytes that it needs.

    Before: `%a = tsched.alloc`. After: `%a = tsched.alloc {offset = 4*B}` in a `tsched.module` with `workspace`.
    Buffers whose lifetimes are disjoint may share bytes. A buffer allocated in a loop lives for one iteration.
    """

    def run(self, module: ModuleOp) -> None:
        for program in programs_in(module):
            refuse_unplaced(program)
            allocs, lifetimes = lifetimes_in(program)
            layout = lay_out(lifetimes)
            for op, offset in zip(allocs, layout.offsets, strict=True):
                op.offset = offset
            program.workspace = layout.total


def lifetimes_in(program: SpecOp) -> tuple[list[AllocOp], list[Lifetime]]:
    """The allocations of the workspace, and the lifetime of each in steps of a walk through the program."""
    walk = _Clock()
    walk.block(program.regions[0].block)
    lifetimes = [
        Lifetime(op.result.type.data.bytes, walk.starts[op.result], walk.ends.get(op.result, walk.now))
        for op in walk.allocs
        if isinstance(op.result.type, BufferAttr)
    ]
    return walk.allocs, lifetimes


class _Clock:
    """Numbers the steps of a program; an op with regions takes all the steps in them."""

    def __init__(self) -> None:
        self.now = 0
        self.allocs: list[AllocOp] = []
        self.starts: dict[SSAValue, int] = {}
        self.ends: dict[SSAValue, int] = {}

    def block(self, block: Block) -> None:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self.now += 1
            if isinstance(op, AllocOp) and op.output < 0:
                self.allocs.append(op)
                self.starts[op.result] = self.now
            elif isinstance(op, FreeOp):
                self.ends[op.buffer] = self.now
            for region in op.regions:
                self.block(region.block)
