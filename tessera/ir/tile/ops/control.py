"""Kernels, programs and loops."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import KERNEL, STEP, around, check_arguments, check_grid, check_loop
from tessera.ir.tile.choices import MAX_STAGES, ORDER, OVERLAP, WAITS, check_order, check_overlap, check_waits


def _check_kernel(op: SpecOp) -> None:
    check_arguments(op)
    check_grid(op)
    check_order(op)
    schedule: dict[str, Any] = op.value("schedule") or {}
    for name, value in schedule.items():
        if name in _COUNTS and not (type(value) is int and value >= 0):
            op.fail(f"`{name}` of a schedule is a count, got {value}")


_COUNTS = ("warps", "stages", "max_registers", "max_shared")


def _check_program(op: SpecOp) -> None:
    kernel = around(op, "ttile.kernel")
    if kernel is not None and not 0 <= op.value("axis") < len(kernel.value("grid")):
        op.fail(f"the grid has {len(kernel.value('grid'))} axes, got axis {op.value('axis')}")


def _check_for(op: SpecOp) -> None:
    if op.value("prefetch") < 0:
        op.fail(f"`prefetch` counts steps ahead, got {op.value('prefetch')}")
    if op.value("buffers") and not op.value("prefetch") < op.value("buffers"):
        op.fail(
            f"{op.value('buffers')} buffers hold what is copied up to {op.value('buffers') - 1} steps ahead, and "
            f"`prefetch` is {op.value('prefetch')}"
        )
    if not 0 <= op.value("stages") <= MAX_STAGES:
        op.fail(f"a loop has 1 to {MAX_STAGES} stages, got {op.value('stages')}")
    check_overlap(op)
    check_waits(op)
    if any(isinstance(value.type, BufferAttr) for value in op.operands[2:]):
        # Whoever reads a kernel knows a buffer by where it was made.
        op.fail("a loop carries tiles, not memory", "give the buffer a dim more, and index it by the step")
    check_loop(op)


SPECS = (
    OpSpec(
        name="ttile.kernel",
        summary="One program for every point of the grid; arguments are buffers, sizes are known by name.",
        results=(),
        attributes=(
            *KERNEL,
            Attribute("kind", "str", "map", "what it was made from: map, row, contraction, assembly, library"),
            Attribute(
                "schedule", "options", None, "what its author chose, by name: block, warps, stages, vector, swizzle"
            ),
            *ORDER,
        ),
        regions=("body",),
        form="function",
        verify=_check_kernel,
    ),
    OpSpec(
        name="ttile.program_id",
        summary="This program's index along an axis of the grid.",
        results=("index",),
        attributes=(Attribute("axis", "int", doc="an axis of the grid"),),
        verify=_check_program,
    ),
    OpSpec(
        name="ttile.for",
        summary="A loop over an index from `low` up to `high`, carrying tiles.",
        operands=("low", "high", "carried*"),
        results=("carried*",),
        attributes=(
            STEP,
            Attribute("block", "str", "", "which blocks of the schedule its step is: m, n, k; empty for a number"),
            Attribute("prefetch", "int", 0, "how many steps ahead to copy what is loaded, where the machine can"),
            Attribute("buffers", "int", 0, "buffers of each tile that is loaded; 0 for as many as the machine likes"),
            Attribute("stages", "int", 0, "buffers that it has in shared memory; 0 where nothing is copied there"),
            *OVERLAP,
            *WAITS,
        ),
        regions=("body",),
        verify=_check_for,
    ),
)
