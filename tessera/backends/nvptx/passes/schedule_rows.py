"""Decide how blocks go through the programs of a kernel: how many side by side, and whether blocks stay."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.matmul_plan import STAGES
from tessera.backends.nvptx.row_accesses import can_stream
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import shaped_type
from tessera.ir.target.typed_ops import KernelOp, LoopOp, ScratchOp
from tessera.types.frozen import frozen

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

RESIDENT = 16
"""Blocks for each multiprocessor that share the programs, where those have scratch in global memory."""
BLOCK = 128
"""Threads of a block that runs several small programs side by side."""
WIDE = 19
"""Warps of a row from which on it is copied ahead: of fewer a multiprocessor holds several blocks, some of which load.

On an H200 rows of 32768 elements of bf16 reach 0.80 (softmax), 0.94 (rmsnorm) and 0.86 (layernorm) of a copy so, and
without 0.71, 0.91 and 0.69; rows of 16384 in two blocks of a multiprocessor 0.87 and 0.91, and without 0.90 and 0.92.
"""
DEEP = 32
"""Iterations unrolled whose loads all come first: a kernel with such a loop has few blocks and many registers."""


@frozen
class ScheduleRows(Pass):
    """Write on every `ttarget.kernel` of threads how blocks go through its grid.

    Small programs run side by side in a block of 128 threads (`nvptx.programs`). Blocks of programs with scratch in
    global memory stay and take several one after the other, and each has its own (`nvptx.slots`).

    Before: `ttarget.kernel @softmax` with `threads = 32`. After: `nvptx.programs = 4`.
    """

    machine: str = "sm_90a"

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if not isinstance(op, KernelOp) or not op.threads:
                continue
            if not op.warps_per_row:
                schedule_programs(op)
            elif is_wide(op) and "sm_90" in GPUS[self.machine].features and can_stream(op):
                row_plan.STREAMED.write(op, True)
                row_plan.LAUNCHED.write(op, max(1, row_plan.BLOCKS.of(op)))
            if any(map(_is_global_scratch, op.walk())):
                row_plan.SLOTS.write(op, GPUS[self.machine].blocks * RESIDENT * row_plan.PROGRAMS.of(op))


def _is_global_scratch(op: Operation) -> bool:
    """Whether an op gives memory of which every program that runs has its own."""
    return isinstance(op, ScratchOp) and op.space == "private" and shaped_type(op.result).bytes.value != 0


def is_wide(kernel: KernelOp) -> bool:
    """Whether a multiprocessor holds so few blocks of a kernel that rows are copied ahead."""
    is_known = row_plan.row_width(kernel).value is not None
    return is_known and kernel.warps_per_row >= WIDE and row_plan.ROW_BLOCKS.of(kernel) == 1


def schedule_programs(kernel: KernelOp) -> None:
    """Decide for a kernel whose programs have all of their threads in every iteration."""
    if STAGES.of(kernel):
        return  # a product: a block to each program
    row_plan.PROGRAMS.write(kernel, max(1, BLOCK // kernel.threads))
    has_deep_loop = any(isinstance(op, LoopOp) and op.unroll >= DEEP for op in kernel.walk())
    row_plan.FETCHES_LINES.write(kernel, has_deep_loop)
    row_plan.BLOCKS.write(kernel, int(has_deep_loop))
