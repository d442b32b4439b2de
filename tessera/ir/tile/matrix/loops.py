"""What loops of a kernel do: how long they are, and whether they do nothing but add up one product."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import BlockArgument, OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.target.hopper_limits import FORMS
from tessera.ir.tile.index_exprs import size_expr
from tessera.ir.tile.matrix.plan import Plan, Product
from tessera.ir.tile.matrix.rings import Ring
from tessera.types.dim import Dim
from tessera.types.shape import is_at_least


def is_longer(op: SpecOp, length: int) -> bool:
    """Whether a loop runs over more than a length, whenever all sizes are at least 1."""
    low, high = (size_expr(value) for value in op.operands[:2])
    if low is None or high is None:
        return False
    sizes = {name: Dim.symbol(name) + 1 for name in (high - low).symbols}
    return is_at_least((high - low).substitute(sizes), length + 1)


def rings_read(product: Product, rings: Sequence[Ring]) -> list[int]:
    """The rings that a product reads."""
    loads = [side.load for side in product.sides if side.load is not None]
    return [at for at, ring in enumerate(rings) if any(side.load in loads for side in ring.loads)]


def sum_of(op: SpecOp, plan: Plan, rings: Sequence[Ring]) -> Product | None:
    """The product that a loop does nothing but add up, with both sides from memory."""
    source = op.regions[0].block
    found = [plan.products[part] for part in source.ops if isinstance(part, SpecOp) and part in plan.products]
    rest = [part for part in source.ops if part not in plan.hidden and part.name != "ttile.index"]
    if len(found) != 1 or len(rest) != 2 or len(op.results) != 1 or found[0].lhs.load is None:
        return None
    if FORMS[found[0].rhs.dtype].is_promoted:
        return None
    acc = found[0].op.operands[2]
    is_carried = isinstance(acc, BlockArgument) and acc.block is source
    # A ring that another loop fills is not left here.
    own = all(rings[at].last is found[0].op for at in rings_read(found[0], rings))
    # A loop has a step whenever all sizes are at least 1, which is when a matrix kernel is launched.
    return found[0] if is_carried and own and is_longer(op, 0) else None


def is_zero(value: SSAValue) -> bool:
    """Whether a tile is nothing but zeros, seen from its form."""
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, SpecOp) and op.name == "ttile.constant" and op.value("value") == 0
