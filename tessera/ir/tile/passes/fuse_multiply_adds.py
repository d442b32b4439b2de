"""Round multiplications and the additions they go into once: fast math, which nobody gets without asking."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import KernelPass
from tessera.ir.base.types import TileAttr, attribute_of
from tessera.ir.tile.language import TileWriter

FUSED = "numerics.fused"
"""The attribute of a kernel that says how many sums were fused with a product."""


class FuseMultiplyAdds(KernelPass):
    """`a * b + c` of floats as one fused multiply-add, where the product goes nowhere else.

    Before: `%p = ttile.elementwise %a, %b {fn = "mul"}`, `%s = ttile.elementwise %p, %c {fn = "add"}`.
    After: `%s = ttile.elementwise %a, %b, %c {fn = "fma"}`. Bits change: the product is no longer rounded.
    """

    def run_kernel(self, kernel: SpecOp) -> None:
        count = sum(_fuse(op) for op in list(kernel.walk()) if isinstance(op, SpecOp))
        if count:
            kernel.attributes[FUSED] = attribute_of("any", count)


def _function(op: object) -> str:
    return op.value("fn") if isinstance(op, SpecOp) and op.name == "ttile.elementwise" else ""


def _multiplication(value: SSAValue) -> SpecOp | None:
    """The multiplication a value is, if it is used once."""
    op = value.op if isinstance(value, OpResult) else None
    return op if isinstance(op, SpecOp) and _function(op) == "mul" and len(list(value.uses)) == 1 else None


def _fuse(op: SpecOp) -> bool:
    type = op.results[0].type if op.results else None
    if _function(op) != "add" or not isinstance(type, TileAttr) or not type.dtype.is_float:
        return False
    for at in (0, 1):
        product = _multiplication(op.operands[at])
        if product is None or product.parent is not op.parent:
            continue
        assert op.parent is not None
        made = TileWriter(op.parent, op).elementwise("fma", *product.operands, op.operands[1 - at])
        op.results[0].replace_all_uses_with(made)
        for gone in (op, product):
            gone.detach()
            gone.erase()
        return True
    return False
