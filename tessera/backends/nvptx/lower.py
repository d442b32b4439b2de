"""Tile IR to Target IR for the threads of NVIDIA GPUs: what passes have decided becomes attributes of the kernel."""

from __future__ import annotations

from typing import Any

from tessera.backends.nvptx.row_plan import ALIGN, SPACE, THREADS, UNROLL, WARPS_PER_ROW
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.lower_to_target import KernelLowering
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.machine import Machine


def lower_kernel(kernel: KernelOp, machine: Machine) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel` that was planned: nothing is decided here."""
    lowering = ThreadLowering(kernel, machine)
    lowering.lower_programs()
    schedule: dict[str, Any] = kernel.schedule or {}
    caps = {name: schedule[name] for name in ("max_registers", "max_shared") if name in schedule}
    # The oldest architecture will do: instructions of newer ones are for those who choose them.
    features = [name for name in machine.features if name.startswith("sm_")][:1]
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
        type, space = op.result.type, SPACE.of(op)
        assert isinstance(type, BufferAttr)
        swizzle = op.value("swizzle") if space == "shared" else 0
        self.values[op.result] = self.allocate(type.data, space=space, swizzle=swizzle)

    def lower_barrier(self, op: SpecOp) -> None:
        self.emit("barrier")

    def loop_values(self, op: SpecOp, name: str) -> dict[str, Any]:
        return {**super().loop_values(op, name), "unroll": UNROLL.of(op) if name == "loop" else 1}
