"""Loops with two products, one of which reads what is computed from the other: what of a step can be one step late."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.matrix.plan import Plan, Product
from tessera.types.frozen import frozen


@frozen
class Skew:
    """A loop of this form. `slow` are the carried values that wait for the second product.

    `before` are the ops that make its accumulator from them, `after` those that read what it gives, both in order;
    `kept` are values of a step that `after` reads: one step later, when the product is done.
    """

    first: Product
    second: Product
    slow: tuple[int, ...]
    before: tuple[SpecOp, ...]
    after: tuple[SpecOp, ...]
    kept: tuple[SSAValue, ...]
    root: SpecOp
    """What makes the left side of the second product: it is done when nothing is in flight."""

    @property
    def late(self) -> tuple[SpecOp, ...]:
        return (*self.before, *self.after)


def skew_of(op: SpecOp, plan: Plan) -> Skew | None:
    """A loop as two products, the second one step behind; None where its values do not allow it."""
    source = op.regions[0].block
    products = [plan.products[part] for part in source.ops if isinstance(part, SpecOp) and part in plan.products]
    last = source.last_op
    if len(products) != 2 or last is None:
        return None
    first, second = products
    root = second.lhs.value.owner
    if first.lhs.load is None or second.lhs.load is not None or not isinstance(root, SpecOp):
        return None
    if any(load.parent_block() is not source for load in _right_loads(products)):
        return None
    after = _readers(source, [second.op.results[0]])
    slow = _grown(source, second, after)
    reached = _readers(source, [source.args[1 + at] for at in slow])
    needed = _makers(second.op.operands[2], source)
    before = [part for part in reached if part in needed]
    after = [*after, *(part for part in reached if part not in before and part not in after)]
    after = _with_spreads([part for part in after if part is not second.op], source)
    if {first.op, root, second.op} & {*before, *after}:
        return None
    readers = {use.operation for use in root.results[0].uses} - {second.op}
    if root.parent_block() is not source or not readers <= plan.hidden:
        return None
    kept = _kept(source, slow, second, before, after)
    return None if kept is None else Skew(first, second, slow, tuple(before), tuple(after), kept, root)


def _right_loads(products: Sequence[Product]) -> list[SpecOp]:
    return [product.rhs.load for product in products if product.rhs.load is not None]


def _readers(source: Block, values: Sequence[SSAValue]) -> list[SpecOp]:
    """The ops of a block that values reach, in order."""
    reached: set[SSAValue] = set(values)
    found: list[SpecOp] = []
    for op in source.ops:
        if op is not source.last_op and reached.intersection(op.operands):
            assert isinstance(op, SpecOp)
            found.append(op)
            reached.update(op.results)
    return found


def _makers(value: SSAValue, source: Block) -> set[Operation]:
    """The ops of a block that a value is made by."""
    if not isinstance(value, OpResult) or value.op.parent_block() is not source:
        return set()
    return {value.op}.union(*(_makers(operand, source) for operand in value.op.operands))


def _grown(source: Block, second: Product, after: Sequence[SpecOp]) -> tuple[int, ...]:
    """The carried values that the second product gives, or what reads it; then those that are computed from them."""
    last = source.last_op
    assert last is not None
    slow: set[int] = set()
    while True:
        reached = _readers(source, [source.args[1 + at] for at in slow])
        made = {second.op.results[0], *(value for part in (*after, *reached) for value in part.results)}
        grown = {at for at, value in enumerate(last.operands) if value in made}
        if grown <= slow:
            return tuple(sorted(slow))
        slow |= grown


_REPEATED = ("ttile.broadcast", "ttile.constant")
"""Ops that cost nothing to do again, and much to carry."""


def _with_spreads(after: Sequence[SpecOp], source: Block) -> list[SpecOp]:
    """The ops, with those whose results they alone read, and which are better repeated than carried."""
    found: set[Operation] = set(after)
    for op in reversed(list(source.ops)):
        users = {use.operation for result in op.results for use in result.uses}
        if op.name in _REPEATED and users and users <= found:
            found.add(op)
    return [op for op in source.ops if op in found and isinstance(op, SpecOp)]


def _kept(
    source: Block, slow: Sequence[int], second: Product, before: Sequence[SpecOp], after: Sequence[SpecOp]
) -> tuple[SSAValue, ...] | None:
    """What `after` reads of its step; None where it reads what the loop itself changes."""
    inside = {value for op in after for value in op.results} | {second.op.results[0]}
    fast = {argument for at, argument in enumerate(source.args) if at - 1 not in slow}
    found: dict[SSAValue, None] = {}
    for op in after:
        for value in op.operands:
            if value in fast or (isinstance(value, OpResult) and value.op in before):
                return None
            is_early = isinstance(value, OpResult) and value.op.parent_block() is source
            if is_early and value not in inside:
                found[value] = None
    return tuple(found)
