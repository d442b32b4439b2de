"""Say how many stages the copies of a kernel on tensor cores have: how far they are ahead of dots."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices, stages_of
from tessera.backends.nvptx.mma.plan import read_plan
from tessera.backends.nvptx.mma.rings import rings_of
from tessera.backends.nvptx.tensor_cores import DEFAULT, TensorCores, gpu_of
from tessera.ir.base.passes import Pass
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class PipelineCopies(Pass):
    """Give each loop that copies its `stages`, and so each load to shared memory outside of loops.

    Before: `ttile.for %low, %high, %zero {step = 64}` with loads of 128 x 64 and 64 x 256 in bf16. After, on sm_90a:
    the same with `stages = 4`, which fit. What is loaded once for each program gets a second stage where
    one is left, so that the next program's comes early. Stages that a schedule asks for, or a loop by `buffers`, are
    the most that there are; `stages` that are written are kept, or refused with the bytes that are missing (T0501).
    """

    machine: Machine | str = DEFAULT

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "stages"):
                pipeline_copies(kernel, units, gpu_of(self.machine))


def pipeline_copies(kernel: KernelOp, units: TensorCores, machine: Machine) -> None:
    """Write the stages of a kernel whose spaces are chosen; raises `UnfitError` for some that do not fit."""
    plan = read_plan(kernel)
    rings = rings_of(plan)
    for ring, stages in zip(rings, stages_of(kernel, plan, rings, units, machine), strict=True):
        if ring.loop is not None:
            ring.loop.set_value("stages", stages)
            continue
        for side in ring.loads:
            assert side.load is not None
            side.load.set_value("stages", stages)
