"""Decide how threads divide matrix products by multiply-adds, and how far ahead they copy operands."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.matmul_blocks import divide_block
from tessera.backends.nvptx.matmul_plan import ACROSS, LANES_OF_K, STAGES, MatmulPlan, matmul_in
from tessera.backends.nvptx.passes.plan_threads import MOST_THREADS
from tessera.backends.nvptx.row_plan import BLOCKS, programs_in
from tessera.backends.nvptx.tensor_cores import GPUS, MULTIPROCESSORS
from tessera.ir.base.passes import Pass
from tessera.ir.target.typed_ops import KernelOp
from tessera.types.dim import product
from tessera.types.frozen import frozen
from tessera.types.machine import MAX_REGISTERS, RESERVED, Multiprocessor, registers_for

MOST_STAGES, LEAST_STAGES = 8, 3
"""Steps that are in shared memory at a time: fewer are not there when they are multiplied."""
_BESIDE, _FEW_ACCUMULATORS = 28, 32
"""Registers of a thread beside its accumulators, and half as many or what it reads; accumulators up to which it takes
what it wants."""
_SHARE = 60
"""Percent of shared memory that stages take; the remainder is L1, which copies of less than 16 bytes go through."""
_MOST_HELD = 8
"""Programs of a multiprocessor that shared memory is divided among at most."""


@frozen
class PlanMatmuls(Pass):
    """Write `threads`, `nvptx.across` and `nvptx.stages` on every `ttarget.kernel` that is a matmul of f32.

    Its threads then have a block of the accumulator each, and copy operands with `cp.async` some steps ahead; the more
    of shared memory is left to a program, the more of them.

    Before: `ttarget.kernel @matmul` with `threads = 256` and a loop that adds up `ttarget.dot` of 128 x 64. After:
    `threads = 64`, `nvptx.across = 8`, so that a thread has 16 x 8, and `nvptx.stages = 4`. Kernels that do more in a
    step than to load both operands, or whose author says how many threads or registers they have, are left alone.
    """

    machine: str = "sm_90a"

    def run(self, module: ModuleOp) -> None:
        if not GPUS[self.machine].has("cp.async"):
            return
        for op in module.ops:
            if isinstance(op, KernelOp) and op.threads == MOST_THREADS and not op.max_registers and not op.max_shared:
                plan_matmul(op, self.machine)


def plan_matmul(kernel: KernelOp, machine: str) -> None:
    """Decide for one kernel, if it is a matmul of blocks that threads divide."""
    found, programs = matmul_in(kernel), product(programs_in(kernel).grid).value
    count = 0 if programs is None else -(-programs // GPUS[machine].blocks)
    if found is None or found.lhs.depth % LANES_OF_K:
        return
    transposed = found.lhs.k_axis == 1, found.rhs.k_axis == 1
    divided = divide_block(found.lhs.extent, found.rhs.extent, found.lhs.depth, count, transposed)
    if divided is None:
        return
    plan = MatmulPlan(found, *divided)
    held = programs_held(plan, kernel, machine)
    stages = choose_stages(plan, held, machine)
    if stages:
        kernel.threads, across = divided
        ACROSS.write(kernel, across)
        STAGES.write(kernel, stages)
        if plan.rows * plan.columns > _FEW_ACCUMULATORS:
            BLOCKS.write(kernel, held)


def programs_held(plan: MatmulPlan, kernel: KernelOp, machine: str) -> int:
    """Programs that a multiprocessor has at a time: as many as it has registers for, or as there are."""
    programs = product(programs_in(kernel).grid).value
    held = _held_by_registers(plan, MULTIPROCESSORS[machine])
    return held if programs is None else min(held, max(1, -(-programs // GPUS[machine].blocks)))


def choose_stages(plan: MatmulPlan, held: int, machine: str) -> int:
    """Steps in shared memory, of which programs that are there at a time hold as many; 0: not even two fit."""
    gpu, has = GPUS[machine], MULTIPROCESSORS[machine]
    most = min(gpu.shared, has.shared * _SHARE // 100 // held - RESERVED) // plan.stage_bytes
    least = min(gpu.shared // plan.stage_bytes, LEAST_STAGES)
    wanted = max(least, min(most, MOST_STAGES)) if least >= 2 else 0
    steps = plan.matmul.steps
    return wanted if steps is None else min(wanted, max(2, steps))


def _held_by_registers(plan: MatmulPlan, has: Multiprocessor) -> int:
    """Programs that a multiprocessor has registers for."""
    own, ahead = plan.rows * plan.columns, plan.piece * (plan.rows + plan.columns)
    needed = min(MAX_REGISTERS, own + max(own // 2, 2 * ahead) + plan.staged + _BESIDE)
    fitting = (count for count in range(_MOST_HELD, 1, -1) if registers_for(has, plan.threads, count) >= needed)
    return next(fitting, 1)
