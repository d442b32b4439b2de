"""The passes that NVIDIA GPUs add to the tile and target stages, in order, on one page."""

from __future__ import annotations

from tessera.backends.nvptx.mma.programs import MULTICAST
from tessera.backends.nvptx.passes.add_fallbacks import AddFallbacks
from tessera.backends.nvptx.passes.broadcast_loads import BroadcastLoads
from tessera.backends.nvptx.passes.broadcast_scalars import BroadcastScalars
from tessera.backends.nvptx.passes.choose_spaces import ChooseSpaces
from tessera.backends.nvptx.passes.choose_vectors import ChooseVectors
from tessera.backends.nvptx.passes.fit_steps import FitSteps
from tessera.backends.nvptx.passes.hoist_descriptors import HoistDescriptors
from tessera.backends.nvptx.passes.insert_barriers import InsertBarriers
from tessera.backends.nvptx.passes.lower_kernels import LowerKernels
from tessera.backends.nvptx.passes.orient_operands import OrientOperands
from tessera.backends.nvptx.passes.overlap_mma import LAGS, OverlapMma
from tessera.backends.nvptx.passes.pipeline_copies import PipelineCopies
from tessera.backends.nvptx.passes.place_barriers import PlaceBarriers
from tessera.backends.nvptx.passes.place_scratch import PlaceScratch
from tessera.backends.nvptx.passes.place_shared import PlaceShared
from tessera.backends.nvptx.passes.plan_matmuls import PlanMatmuls
from tessera.backends.nvptx.passes.plan_rows import PlanRows
from tessera.backends.nvptx.passes.plan_threads import PlanThreads
from tessera.backends.nvptx.passes.prune_fallbacks import PruneFallbacks
from tessera.backends.nvptx.passes.schedule_programs import SchedulePrograms
from tessera.backends.nvptx.passes.schedule_rows import ScheduleRows
from tessera.backends.nvptx.passes.select_mma import SelectMma
from tessera.backends.nvptx.passes.separate_vectors import SeparateVectors
from tessera.backends.nvptx.passes.specialize_warps import SpecializeWarps
from tessera.backends.nvptx.passes.swizzle_tiles import SwizzleTiles
from tessera.backends.nvptx.passes.unroll_loops import UnrollLoops
from tessera.backends.nvptx.passes.use_exp2 import UseExp2
from tessera.backends.nvptx.tensor_cores import gpu_name
from tessera.ir.base.passes import Pass
from tessera.ir.target.passes.check_kernels import CheckKernels
from tessera.ir.tile.choices import EPILOGUES, ROLES
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, Machine


@frozen
class MmaChoices:
    """What a chooser says of kernels on tensor cores.

    `units` are the tensor cores that dots run on, `multicast` whether two CTAs copy for each other where they share an
    operand, `roles` whether a producer copies for warps that multiply, `lag` by how many quarters of a ring the last
    consumer is behind the first, `epilogue` when a program does what follows its dots. With `exact_math` no function of
    the machine's own is used.
    """

    units: str = AUTOMATIC
    multicast: str = MULTICAST[0]
    roles: str = ROLES[0]
    lag: int = LAGS[0]
    epilogue: str = EPILOGUES[0]
    exact_math: bool = False


def tile_passes(machine: Machine, choices: MmaChoices) -> list[Pass]:
    """Passes over tile kernels with dots; all others are left alone."""
    name = gpu_name(machine)
    return [
        # First: passes that follow rewrite a kernel for tensor cores, and some launches need it as it was.
        AddFallbacks(),
        # All before tensor cores are selected: they make tiles and steps that those take.
        BroadcastScalars(),
        SeparateVectors(),
        FitSteps(),
        # All that follows depends on how many warps share a tile, which the instruction says.
        SelectMma(name, choices.units),
        # Before spaces: it adds and drops ops of elements, and nothing that is copied.
        UseExp2(),
        # Before stages are counted, which are of what is in shared memory.
        ChooseSpaces(),
        # As soon as it is known what TMA copies, so that nothing more is done to kernels that are dropped.
        PruneFallbacks(),
        # Boxes are a line wide, and stages hold boxes.
        SwizzleTiles(),
        # Rings before their stages.
        PlaceBarriers(),
        PipelineCopies(name),
        # Before the order of programs: producers of two CTAs can copy for each other.
        SpecializeWarps(choices.roles),
        SchedulePrograms(name, choices.multicast),
        # Last of these: lags depend on stages, and what overlaps with the next program on their order.
        OverlapMma(name, choices.lag, choices.epilogue),
        # Kernels that tensor cores take have their threads; all others are planned now.
        *thread_tile_passes(machine),
    ]


def thread_tile_passes(machine: Machine) -> list[Pass]:
    """What is decided on Tile IR for kernels of plain threads."""
    return [
        # First: it changes tiles, and all others ask of those.
        BroadcastLoads(),
        # Before those that ask how many threads a program has.
        PlanThreads(),
        # Before rows and loops are planned, which go by what is loaded where.
        OrientOperands(),
        # Before scratch and loops, which go by where rows are.
        PlanRows("cluster" in machine.features),
        PlaceScratch(),
        UnrollLoops(),
        # Last: a loop with barriers of its author is not unrolled, one with these may be.
        InsertBarriers(),
    ]


def target_passes(machine: Machine, choices: MmaChoices) -> list[Pass]:
    """Tile kernels to Target IR, one by one, and what is placed once a kernel is there."""
    return [
        LowerKernels(gpu_name(machine), choices.exact_math),
        *thread_target_passes(machine),
        # Before parts of shared memory are placed: a descriptor is made once, whatever reads it.
        HoistDescriptors(),
        PlaceShared(),
        # Last: sizes of shared memory and of registers are known.
        CheckKernels(machine.shared),
    ]


def thread_target_passes(machine: Machine) -> list[Pass]:
    """What is decided on Target IR for kernels of plain threads, where offsets and guards of accesses are known."""
    return [
        # First: how many neighbours a thread has depends on how many threads there are.
        PlanMatmuls(machine.cpu),
        ChooseVectors(),
        ScheduleRows(machine.cpu),
    ]
