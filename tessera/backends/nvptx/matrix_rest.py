"""Which programs leave what they do with their sums to the next: few registers, and products to hide it behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.matrix_plan import Product
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.reach import is_multiple
from tessera.types.dim import product as product_of
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.matrix_lower import MatrixLowering

PART = 64
"""Columns of a part: as many as leave through shared memory together."""
_MOST = {1: 192, 2: 192, 3: 104}
"""Registers of a thread for sums and what is left of those before, by the number of consumers."""
_AFTER = (
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.broadcast", "ttile.load", "ttile.store", "ttile.index", "ttile.program_id", "ttile.return"),
)


@frozen
class Rest:
    """The loop of products, the op that rounds its sums, if one does, and all ops that come after."""

    loop: SpecOp
    last: SpecOp
    ops: tuple[SpecOp, ...]

    @property
    def value(self) -> SSAValue:
        """What the rest is computed from."""
        return self.last.results[0]


def rest_of(lowering: MatrixLowering, blocks: int) -> Rest | None:
    """What programs leave to the next; None where they do not, or where none of `blocks` CTAs has a next one."""
    ops = [op for op in lowering.source.ops if isinstance(op, SpecOp)]
    loops = [op for op in ops if op.name == "ttile.for"]
    total = product_of(lowering.kernel.value("grid")).value
    if len(loops) != 1 or len(lowering.plan.products) != 1 or total is None or total <= blocks:
        return None
    (product,) = lowering.plan.products.values()
    loop = loops[0]
    last = _rounded(loop) or loop
    after = [op for op in ops[ops.index(loop) + 1 :] if op is not last]
    if product.op.parent_block() is not loop.regions[0].block or len(loop.results) != 1:
        return None
    if any(op.name not in _AFTER for op in after) or not _fits(lowering, product, last) or not after:
        return None
    if not all(_is_plain(lowering, op, product) for op in after):
        return None
    return Rest(loop, last, tuple(_needed(ops, after, {loop, last})))


def _rounded(loop: SpecOp) -> SpecOp | None:
    """The one reader of the sums, where it makes two bytes of each."""
    users = [use.operation for use in loop.results[0].uses]
    user = users[0] if len(users) == 1 else None
    if not isinstance(user, SpecOp) or user.name != "ttile.cast":
        return None
    type = user.results[0].type
    return user if isinstance(type, TileAttr) and type.dtype.is_float and type.dtype.bytes == 2 else None


def _fits(lowering: MatrixLowering, product: Product, last: SpecOp) -> bool:
    type = last.results[0].type
    assert isinstance(type, TileAttr)
    plan = lowering.plan
    rows, columns = (dim.value or 0 for dim in type.shape)
    sums = rows * columns // (128 * plan.consumers)
    left = sums * type.dtype.bytes // 4
    return sums + left <= _MOST[plan.consumers]


def _is_plain(lowering: MatrixLowering, op: SpecOp, product: Product) -> bool:
    """Whether an op is done some columns at a time, without a branch."""
    wanted = product.op.results[0].type
    assert isinstance(wanted, TileAttr)
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TileAttr) and len(value.type.shape) == 2 and value.type.shape != wanted.shape:
            return False
    if op.name != "ttile.store":
        return True
    buffer = op.operands[1].type
    assert isinstance(buffer, BufferAttr)
    return op in lowering.stores and is_multiple(buffer.shape[-1] * buffer.dtype.bytes, 16)


def _needed(ops: Sequence[SpecOp], after: Sequence[SpecOp], known: set[SpecOp]) -> list[SpecOp]:
    """The ops of the rest, with what they read of those before the loop, in order."""
    found: set[Operation] = set(after)
    for op in reversed(ops):
        if op in found:
            owners = {value.owner for value in op.operands}
            found.update(owner for owner in owners if isinstance(owner, SpecOp) and owner not in known)
    return [op for op in ops if op in found]
