"""Make the descriptors of TMA once, before everything else that a kernel does."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from tessera.backends.nvptx.passes.place_shared import KERNELS
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass


class HoistDescriptors(Pass):
    """Move each `ttarget.tensor_map` out of loops and roles, one for all that see a buffer in the same boxes.

    Before: in a loop of the producer, two `ttarget.tensor_map %x {box = [64, 64]}`, one before each `ttarget.copy`.
    After: one of them at the start of the kernel, which both copies take. A map is of an argument, which nothing in a
    kernel changes, so it says the same wherever it stands; the host makes it, and a kernel only has it.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, SpecOp) and op.name in KERNELS:
                hoist_descriptors(op)


def hoist_descriptors(kernel: SpecOp) -> None:
    """Move the TMA descriptors of a kernel behind its memory, each once."""
    block = kernel.regions[0].block
    kept: dict[tuple[SSAValue, Any], SpecOp] = {}
    for op in [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]:
        first = kept.setdefault((op.operands[0], str(op.values())), op)
        if first is not op:
            Rewriter.replace_op(op, [], first.results)
    last = next(op for op in block.ops if op.regions)
    for op in kept.values():
        if op.parent_op() is not kernel:
            op.detach()
            block.insert_op_before(op, last)
