"""Place all temporaries of a program in one workspace, reusing memory that is no longer needed."""

from __future__ import annotations

from xdsl.dialects import builtin
from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.host_program.accesses import refuse_unplaced, separate_launches
from tessera.ir.schedule.host_program.memory import Lifetime, lay_out
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import AllocOp, FreeOp, ModuleOp


class PlanMemory(Pass):
    """Give every `alloc` of the workspace its offset, and the program the bytes that it needs.

    Before: `%a = tsched.alloc`. After: `%a = tsched.alloc {offset = 4*B}` in a `tsched.module` with `workspace`.
    Buffers whose lifetimes are disjoint may share bytes. A buffer allocated in a loop lives for one iteration. Those in
    host memory have offsets in bytes of their own, of which the program says how many it `offloaded`. Launches of
    several calls are taken apart where symbolic offsets leave open whether one writes what another touches.
    """

    def run(self, module: builtin.ModuleOp) -> None:
        for program in programs_in(module):
            plan_memory(program)


def plan_memory(program: ModuleOp) -> None:
    """Plan the memory of one program: its workspace, and host memory where values are offloaded."""
    refuse_unplaced(program)
    allocs, lifetimes = lifetimes_in(program)
    for is_host in (False, True):
        chosen = [number for number, op in enumerate(allocs) if bool(op.space) is is_host]
        layout = lay_out([lifetimes[number] for number in chosen])
        for number, offset in zip(chosen, layout.offsets, strict=True):
            allocs[number].offset = offset
        if not is_host:
            program.workspace = layout.total
        elif chosen:
            program.offloaded = layout.total
    separate_launches(program)


def lifetimes_in(program: SpecOp) -> tuple[list[AllocOp], list[Lifetime]]:
    """The allocations of workspace and host memory, and the lifetime of each in steps of a walk through the program."""
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
