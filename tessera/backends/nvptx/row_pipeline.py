"""The passes by which kernels of threads are planned, in order, and the lowering between them."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.lower import lower_kernel
from tessera.backends.nvptx.passes.choose_vectors import ChooseVectors
from tessera.backends.nvptx.passes.defer_sums import DeferSums
from tessera.backends.nvptx.passes.insert_barriers import InsertBarriers
from tessera.backends.nvptx.passes.place_scratch import PlaceScratch
from tessera.backends.nvptx.passes.plan_rows import PlanRows
from tessera.backends.nvptx.passes.plan_threads import PlanThreads
from tessera.backends.nvptx.passes.rematerialize_rows import RematerializeRows
from tessera.backends.nvptx.passes.schedule_rows import ScheduleRows
from tessera.backends.nvptx.passes.unroll_loops import UnrollLoops
from tessera.backends.nvptx.row_plan import ALIGN
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.machine import Machine


def tile_passes(machine: Machine) -> list[Pass]:
    """What is decided on Tile IR for kernels of threads."""
    return [
        # First: all others ask how many threads a program has.
        PlanThreads(),
        # Before scratch and loops, which go by where rows are.
        PlanRows(machine.cpu),
        # Before scratch is placed: what is computed again has none.
        RematerializeRows(),
        PlaceScratch(),
        UnrollLoops(),
        # Last: a loop with barriers of its author is not unrolled, one with these may be.
        InsertBarriers(),
    ]


def target_passes(machine: Machine) -> list[Pass]:
    """What is decided on Target IR, where offsets and guards of accesses are known."""
    return [
        # First: what is prefetched by 16 bytes goes by how accesses are aligned.
        ChooseVectors(),
        ScheduleRows(machine.cpu),
        DeferSums(),
    ]


def plan_kernel(kernel: KernelOp, machine: Machine, aligned: bool = True) -> list[KernelOp]:
    """A copy of a tile kernel with all decisions written on it; before it the one for wide rows, where there is one.

    `aligned` says that its arguments begin at multiples of 16 bytes.
    """
    copy = kernel.clone()
    if not aligned:
        ALIGN.write(copy, 0)
    module = ModuleOp([copy])
    for one in tile_passes(machine):
        one.run(module)
    return [op for op in module.ops if isinstance(op, KernelOp)]


def lower_planned(kernel: KernelOp, machine: Machine) -> SpecOp:
    """A planned tile kernel as a `ttarget.kernel` with all decisions written on it."""
    target = lower_kernel(kernel, machine)
    module = ModuleOp([target])
    for one in target_passes(machine):
        one.run(module)
    target.detach()
    return target
