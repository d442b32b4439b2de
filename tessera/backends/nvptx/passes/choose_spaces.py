"""Say of every tile of a kernel on tensor cores whether it goes through shared memory, and how it lies there."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.boxes import Box, layout_of, shared_stores
from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices
from tessera.backends.nvptx.mma.plan import CopiedOperand, plan_of
from tessera.backends.nvptx.tensor_cores import TensorCores
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.choices import REGISTERS, SHARED
from tessera.ir.tile.typed_ops import KernelOp


class ChooseSpaces(Pass):
    """Give each load and store its `space`; those in shared memory their `layout`.

    Before: `ttile.load %w, %j, %k` of 64 x 256 elements that a `wgmma` reads, along k. After: the same with
    `space = "shared"` and `layout = "columns"`; what only elements read, such as a bias, has `space = "registers"`.
    What an access says itself is kept, or refused (T0501): an A operand of 2-byte floats may be in registers, a right
    operand may not. Kernels without units are left alone.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "space", "layout"):
                choose_spaces(kernel, units)


def choose_spaces(kernel: KernelOp, units: TensorCores) -> None:
    """Write where tiles of a kernel go; raises `UnfitError` for one that says what cannot be."""
    plan, stores = plan_of(kernel, units), shared_stores(kernel, units)
    copied: dict[SpecOp, Box] = {}
    for side in (side for dot in plan.dots.values() for side in dot.operands):
        if isinstance(side, CopiedOperand):
            copied.setdefault(side.load, side.box)
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name not in ("ttile.load", "ttile.store"):
            continue
        box = copied.get(op) or stores.get(op)
        op.set_value("space", REGISTERS if box is None else SHARED)
        if box is not None:
            op.set_value("layout", layout_of(box))
