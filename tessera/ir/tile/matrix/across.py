"""How single warps share a tile: below each other, with whole rows, or side by side, with some of the columns."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.ampere_limits import ACROSS
from tessera.ir.target.hopper_limits import ROWS
from tessera.ir.tile.matrix.plan import Plan
from tessera.ir.tile.matrix.stores import stores_in


def across_of(kernel: SpecOp, plan: Plan) -> int:
    """Warps of a group side by side, so that what each reads of both sides is the least: nearly a square."""
    (first, *_) = plan.products.values()
    columns, rows = _columns_of(first.op.results[0]), plan.rows // plan.consumers
    fitting = [count for count in ACROSS if not across_problem(kernel, plan, count)]
    return min(fitting, key=lambda count: rows // 4 * count + columns // count)


def across_problem(kernel: SpecOp, plan: Plan, across: int) -> str:
    """Why warps cannot stand so, empty where they can: rows that are folded or multiplied again have to be whole."""
    if across not in ACROSS:
        return f"{', '.join(map(str, ACROSS))} warps stand side by side, not {across}"
    if across == 1:
        return ""
    products = list(plan.products.values())
    if len(products) != 1 or products[0].lhs.load is None or any(op.name == "ttile.reduce" for op in kernel.walk()):
        return f"{across} warps side by side share rows, and rows are folded here or multiplied again"
    if any(_columns_of(op.operands[0]) == 0 for op in stores_in(kernel)):
        return f"a vector is stored by who has it, and {across} warps side by side do"
    columns = _columns_of(products[0].op.results[0])
    if columns % (across * ROWS):
        return f"{across} warps side by side have {ROWS} columns each, or multiples of them, and there are {columns}"
    return ""


def _columns_of(value: SSAValue) -> int:
    """The columns of a tile; 0 where it has none."""
    assert isinstance(value.type, TileAttr)
    return (value.type.shape[1].value or 0) if len(value.type.shape) == 2 else 0
