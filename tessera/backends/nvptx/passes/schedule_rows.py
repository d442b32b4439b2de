"""Decide how blocks go through the programs of a kernel: how many side by side, and whether blocks stay."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.matmul_plan import STAGES
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
DEEP = 32
"""Iterations unrolled whose loads all come first: a kernel with such a loop has few blocks and many registers."""
LAUNCHED_SYMBOLIC = 8
"""Blocks for each multiprocessor that share rows of a symbolic width: twice as many as it holds."""


@frozen
class ScheduleRows(Pass):
    """Write on every `ttarget.kernel` of threads how blocks go through its grid.

    Small programs run side by side in a block of 128 threads (`nvptx.programs`). Blocks of rows whose width is
    symbolic stay and take several rows one after the other (`nvptx.launched`), and so do those of programs with scratch
    in global memory, each of which has its own (`nvptx.slots`).

    Before: `ttarget.kernel @softmax` with `threads = 32`. After: `nvptx.programs = 4`.
    """

    machine: str = "sm_90a"

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if not isinstance(op, KernelOp) or not op.threads:
                continue
            if not op.warps_per_row:
                schedule_programs(op)
            elif row_plan.row_width(op).value is None:
                row_plan.LAUNCHED.write(op, LAUNCHED_SYMBOLIC)
            if any(map(_is_global_scratch, op.walk())):
                row_plan.SLOTS.write(op, GPUS[self.machine].blocks * RESIDENT * row_plan.PROGRAMS.of(op))


def _is_global_scratch(op: Operation) -> bool:
    """Whether an op gives memory of which every program that runs has its own."""
    return isinstance(op, ScratchOp) and op.space == "private" and shaped_type(op.result).bytes.value != 0


def schedule_programs(kernel: KernelOp) -> None:
    """Decide for a kernel whose programs have all of their threads in every iteration."""
    if STAGES.of(kernel):
        return  # a product: a block to each program
    row_plan.PROGRAMS.write(kernel, max(1, BLOCK // kernel.threads))
    has_deep_loop = any(isinstance(op, LoopOp) and op.unroll >= DEEP for op in kernel.walk())
    row_plan.FETCHES_LINES.write(kernel, has_deep_loop)
    row_plan.BLOCKS.write(kernel, int(has_deep_loop))
