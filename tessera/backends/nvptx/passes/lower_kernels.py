"""Lower every tile kernel of a module to Target IR for a GPU, on tensor cores chosen for it or on plain threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.ampere.lower import WarpLowering
from tessera.backends.nvptx.approximate_functions import EXACT_MATH
from tessera.backends.nvptx.blackwell.lower import TensorLowering
from tessera.backends.nvptx.mma.fit import refuse_choices, units_in
from tessera.backends.nvptx.mma.lower import MatrixLowering
from tessera.backends.nvptx.mma.lower_uniform import UniformLowering
from tessera.backends.nvptx.row_plan import (
    ALIGN,
    MULTIPLE,
    ROW_BLOCKS,
    SPACE,
    THREADS,
    UNROLL,
    WARPS_PER_ROW,
    symbol_of_width,
    tile_width,
)
from tessera.backends.nvptx.tensor_cores import DEFAULT, MMA_SYNC, TCGEN05, WGMMA, gpu_of
from tessera.backends.nvptx.text import fallback_symbol
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import attribute_of, shaped_type
from tessera.ir.tile.choices import UNIFORM
from tessera.ir.tile.lower_to_target import KernelLowering
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


def lower_warpgroups(kernel: SpecOp) -> SpecOp:
    """A kernel on `wgmma`, with a producer or without one, as it says."""
    return (UniformLowering if kernel.value("roles") == UNIFORM else MatrixLowering).lower(kernel)


LOWERINGS: dict[str, Callable[[SpecOp], SpecOp]] = {
    WGMMA.name: lower_warpgroups,
    MMA_SYNC.name: WarpLowering.lower,
    TCGEN05.name: TensorLowering.lower,
}
"""By the tensor cores that were chosen for a kernel."""


@frozen
class LowerKernels(Pass):
    """Put a kernel of Target IR in the place of each `ttile.kernel`, for the GPU `machine`.

    Before: `ttile.kernel @k` with tiles that no thread holds. After, where its dots have no tensor cores:
    `ttarget.kernel @k` with `threads` for a program, `vector` neighbours to a thread, accesses at linear offsets, and
    shared memory where threads exchange tiles. Where they have some, for which everything was chosen: on `wgmma` a
    `ttarget.matrix_kernel`, a ring of stages that a producer fills, or one thread of them, and consumers multiply out
    of; on `mma.sync` a `ttarget.warp_kernel`, whose threads copy some stages ahead; on `tcgen05` a
    `ttarget.tensor_kernel`, whose accumulators are in tensor memory. With `exact_math` tensor-core kernels too use no
    approximation of the GPU.
    """

    is_lowering = True
    machine: Machine | str = DEFAULT
    exact_math: bool = False

    def run(self, module: ModuleOp) -> None:
        machine = gpu_of(self.machine)
        for op in list(module.ops):
            if isinstance(op, KernelOp):
                module.body.block.insert_op_before(self._lower(op, machine), op)
                op.detach()  # and not erased: what shows a program still reads it

    def _lower(self, kernel: KernelOp, machine: Machine) -> SpecOp:
        units = units_in(kernel)
        if units is None:
            target = lower_thread_kernel(kernel, machine)
            target.set_value("symbol", kernel.symbol.removesuffix(fallback_symbol("")))
            return target
        with refuse_choices(kernel, "box", "instruction"):
            target = LOWERINGS[units.name](kernel)
        keep_promises(kernel, target)
        if self.exact_math:
            target.attributes[EXACT_MATH] = attribute_of("bool", True)
        return target


# Kernels of plain threads.


def lower_thread_kernel(kernel: KernelOp, machine: Machine) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel` that was planned: nothing is decided here."""
    lowering = ThreadLowering(kernel, machine)
    lowering.lower_programs()
    schedule: dict[str, Any] = kernel.schedule or {}
    caps = {name: schedule[name] for name in ("max_registers", "max_shared") if name in schedule}
    # The oldest architecture will do: instructions of newer ones are for those who choose them.
    features = [name for name in machine.features if name.startswith("sm_")][:1]
    if ROW_BLOCKS.of(kernel) > 1:
        features += ["sm_90", "cluster"]
    if MULTIPLE.of(kernel) > 1:
        width = symbol_of_width(tile_width(kernel))
        caps["multiples"] = [MULTIPLE.of(kernel) if name == width else 1 for name in kernel.symbols]
    made = lowering.finish(
        features, threads=THREADS.of(kernel), align=ALIGN.of(kernel), warps_per_row=WARPS_PER_ROW.of(kernel), **caps
    )
    keep_promises(kernel, made)
    return made


class ThreadLowering(KernelLowering):
    """The lowering of one kernel."""

    def lower_dot(self, op: SpecOp) -> None:
        """A dot of plain multiply-adds: what was chosen for tensor cores says nothing here."""
        self.replace(op, "dot", {})

    def lower_transpose(self, op: SpecOp) -> None:
        self.lower_same(op)

    def lower_scratch(self, op: SpecOp) -> None:
        space = SPACE.of(op)
        swizzle = op.value("swizzle") if space == "shared" else 0
        self.values[op.result] = self.allocate(shaped_type(op.result), space=space, swizzle=swizzle)

    def lower_barrier(self, op: SpecOp) -> None:
        self.emit("barrier")

    def loop_values(self, op: SpecOp, name: str) -> dict[str, Any]:
        return {**super().loop_values(op, name), "unroll": UNROLL.of(op) if name == "loop" else 1}
