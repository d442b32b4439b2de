"""Say in what lines tiles of a kernel on tensor cores lie in shared memory, and so what is copied at a time."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.boxes import shared_stores, stores_in
from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices
from tessera.backends.nvptx.mma.plan import CopiedOperand, Plan, plan_of
from tessera.backends.nvptx.mma.rings import swizzle_of
from tessera.backends.nvptx.tensor_cores import SPAN, WGMMA, TensorCores, UnfitError
from tessera.ir.base.passes import Pass
from tessera.ir.tile.choices import SHARED
from tessera.ir.tile.typed_ops import KernelOp


class SwizzleTiles(Pass):
    """Give each load and store through shared memory its `swizzle`, and the `box` that is copied: a line wide.

    Before: `ttile.load %w, %j, %k {space = "shared", layout = "columns"}` of 64 x 256 elements of 2 bytes, along k.
    After: the same with `swizzle = 128` and `box = [256, 64]`. Where k is 32, lines are of 64 bytes, and of 32 where it
    is 16: pieces of 16 bytes are exchanged so that of eight lines of any kind no two are read from the same banks.
    A kernel whose threads compute A operands of what is contiguous across k gets `row_pairs`.
    Swizzles and boxes that are said are kept, or refused (T0501): lines along k divide a row, and only warpgroups read
    others than the widest. Kernels without units are left alone.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "swizzle", "box"):
                swizzle_tiles(kernel, units)


def swizzle_tiles(kernel: KernelOp, units: TensorCores) -> None:
    """Write how tiles of a kernel with spaces lie; raises `UnfitError` for one that says what cannot be."""
    plan, stores = plan_of(kernel, units), shared_stores(kernel, units)
    for operand in (operand for dot in plan.dots.values() for operand in dot.operands):
        if isinstance(operand, CopiedOperand):
            if operand.load.value("space") != SHARED:
                raise UnfitError("an operand that is copied has no `space`: run `nvptx-choose-spaces` before")
            operand.load.set_value("swizzle", swizzle_of(operand))
            operand.load.set_value("box", operand.box.sizes)
    for op in stores_in(kernel):
        if op.value("space") == SHARED:
            op.set_value("swizzle", SPAN)
            # Threads put rows that leave together by themselves.
            op.set_value("box", stores[op].sizes if units.sends else ())
    able = units is WGMMA and may_pair_rows(kernel, plan)
    if kernel.row_pairs and not able:
        raise UnfitError("rows of a thread are neighbours, and instructions have them 8 apart")
    kernel.row_pairs = able


def may_pair_rows(kernel: KernelOp, plan: Plan) -> bool:
    """Whether threads may have neighbours as their two rows, and read both together: columns are contiguous in memory.

    Dots then have their A operand in registers, and what is stored leaves from there.
    """
    inputs = [one for dot in plan.dots.values() for one in dot.inputs]
    is_held = all(dot.lhs.load is None and dot.inputs for dot in plan.dots.values())
    is_across = bool(inputs) and all(one.major == "mn" for one in inputs)
    return is_held and is_across and all(op.value("space") != SHARED for op in stores_in(kernel))
