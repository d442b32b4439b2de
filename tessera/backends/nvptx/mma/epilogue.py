"""Which programs leave what they do with their sums to the next: few registers, and dots to hide it behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.mma.loops import is_longer
from tessera.backends.nvptx.mma.plan import MmaDot, Plan
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.index_exprs import known_ends
from tessera.types.dim import product as product_of
from tessera.types.frozen import frozen

PART = 64
"""Columns of a part: as many as leave through shared memory together."""
PIECES = (4, 2)
"""In which a part is computed that is work, the best first: +2.5 % for gelu after 4096 x 4096 x 4096 on an H200."""
_MOST = {1: 192, 2: 192, 3: 104}
"""Registers of a thread for sums and what is left of those before, by the number of consumers."""
_AFTER = (
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.broadcast", "ttile.load", "ttile.store", "ttile.index", "ttile.program_id", "ttile.return"),
)


@frozen
class Epilogue:
    """The loop of dots, the op that rounds its sums, if one does, and all ops that come after."""

    loop: SpecOp
    last: SpecOp
    ops: tuple[SpecOp, ...]

    @property
    def value(self) -> SSAValue:
        """What the rest is computed from."""
        return self.last.results[0]


def has_next(kernel: SpecOp, blocks: int) -> bool:
    """Whether one of so many CTAs has a program after its first."""
    total = product_of(kernel.value("grid")).value
    return total is not None and total > blocks


def epilogue_of(kernel: SpecOp, plan: Plan, stores: Collection[SpecOp]) -> Epilogue | None:
    """What programs can leave to the next; `stores` are those that go through shared memory."""
    ops = [op for op in kernel.regions[0].block.ops if isinstance(op, SpecOp)]
    loops = [op for op in ops if op.name == "ttile.for"]
    if len(loops) != 1 or len(plan.products) != 1:
        return None
    (product,) = plan.products.values()
    loop = loops[0]
    last = _rounded(loop) or loop
    after = [op for op in ops[ops.index(loop) + 1 :] if op is not last]
    if product.op.parent_block() is not loop.regions[0].block or len(loop.results) != 1:
        return None
    if any(op.name not in _AFTER for op in after) or not _fits(plan, last) or not after:
        return None
    if not all(_is_plain(op, product, stores) for op in after):
        return None
    return Epilogue(loop, last, tuple(_needed(ops, after, {loop, last})))


def _rounded(loop: SpecOp) -> SpecOp | None:
    """The one reader of the sums, where it makes two bytes of each."""
    users = [use.operation for use in loop.results[0].uses]
    user = users[0] if len(users) == 1 else None
    if not isinstance(user, SpecOp) or user.name != "ttile.cast":
        return None
    type = user.results[0].type
    return user if isinstance(type, TileAttr) and type.dtype.is_float and type.dtype.bytes == 2 else None


def has_steps(rest: Epilogue, pieces: int = 1) -> bool:
    """Whether there is a step of dots for each piece of each part of the rest, and two more."""
    type = rest.value.type
    assert isinstance(type, TileAttr)
    parts = -(-(type.shape[1].value or 0) * pieces // PART)
    return known_ends(rest.loop) is not None and is_longer(rest.loop, (parts + 1) * rest.loop.value("step"))


def pieces_of(rest: Epilogue) -> int:
    """In how many steps a part is computed: more than one where it is work, so that dots never wait for it.

    A step starts its dots one after the other, and what is between them must not take longer than they do.
    """
    is_work = any(op.name == "ttile.elementwise" for op in rest.ops)
    return next((pieces for pieces in PIECES if is_work and has_steps(rest, pieces)), 1)


def _fits(plan: Plan, last: SpecOp) -> bool:
    type = last.results[0].type
    assert isinstance(type, TileAttr)
    rows, columns = (dim.value or 0 for dim in type.shape)
    sums = rows * columns // (128 * plan.consumers)
    left = sums * type.dtype.bytes // 4
    return sums + left <= _MOST[plan.consumers]


def _is_plain(op: SpecOp, product: MmaDot, stores: Collection[SpecOp]) -> bool:
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
    return op in stores and is_multiple(buffer.shape[-1] * buffer.dtype.bytes, 16)


def _needed(ops: Sequence[SpecOp], after: Sequence[SpecOp], known: set[SpecOp]) -> list[SpecOp]:
    """The ops of the rest, with what they read of those before the loop, in order."""
    found: set[Operation] = set(after)
    for op in reversed(ops):
        if op in found:
            owners = {value.owner for value in op.operands}
            found.update(owner for owner in owners if isinstance(owner, SpecOp) and owner not in known)
    return [op for op in ops if op in found]
