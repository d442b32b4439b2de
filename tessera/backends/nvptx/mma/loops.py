"""Forms of loops over dots: those that add up one dot, those with two dots to overlap, and row sums that they carry."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.backends.nvptx.mma.plan import MmaDot, Plan
from tessera.backends.nvptx.mma.rings import Ring
from tessera.backends.nvptx.tensor_cores import WGMMA_FORMS_TF32
from tessera.backends.nvptx.types import shaped_type, spec_ops, yielded_values
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.indexing import size_expr
from tessera.ir.tile.typed_ops import ConstantOp, ElementwiseOp
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least

# What loops of a kernel do: how long they are, and whether they do nothing but add up one dot.


def is_longer(op: SpecOp, length: int) -> bool:
    """Whether a loop runs over more than a length, whenever all sizes are at least 1."""
    low, high = (size_expr(value) for value in op.operands[:2])
    if low is None or high is None:
        return False
    sizes = {name: Dim.symbol(name) + 1 for name in (high - low).symbols}
    return is_at_least((high - low).substitute(sizes), length + 1)


def rings_read(dot: MmaDot, rings: Sequence[Ring]) -> list[int]:
    """The rings that a dot reads."""
    loads = [operand.load for operand in dot.operands if operand.load is not None]
    return [at for at, ring in enumerate(rings) if any(operand.load in loads for operand in ring.loads)]


def _dots_in(block: Block, plan: Plan) -> list[MmaDot]:
    return [plan.dots[op] for op in spec_ops(block) if op in plan.dots]


def sum_of(op: SpecOp, plan: Plan, rings: Sequence[Ring]) -> MmaDot | None:
    """The dot that a loop does nothing but add up, with both operands from memory, or A computed from what is."""
    source = op.regions[0].block
    found = _dots_in(source, plan)
    if len(found) != 1 or not (_is_only_dot(op, plan, found[0]) or (found[0].inputs and _has_even_steps(op))):
        return None
    readers = {use.operation for use in found[0].op.results[0].uses}
    if readers != {source.last_op} or list(yielded_values(source)).index(found[0].op.results[0]) != 0:
        return None
    if WGMMA_FORMS_TF32[found[0].rhs.dtype].is_promoted:
        return None
    acc = found[0].op.operands[2]
    is_carried = acc is source.args[1] and _only(acc)
    # A ring that another loop fills is not released here.
    own = all(rings[at].last is found[0].op for at in rings_read(found[0], rings))
    # A loop has a step whenever all sizes are at least 1, which is when a matrix kernel is launched.
    return found[0] if is_carried and own and is_longer(op, 0) else None


def _is_only_dot(op: SpecOp, plan: Plan, dot: MmaDot) -> bool:
    """Whether a loop has a dot of operands from memory, and nothing else."""
    others = [part for part in op.regions[0].block.ops if part not in plan.hidden and part.name != "ttile.index"]
    return len(others) == 2 and len(op.results) == 1 and dot.lhs.load is not None


def _has_even_steps(op: SpecOp) -> bool:
    """Whether a loop has a known and even number of steps: those two in flight have registers of their own."""
    low, high = (size_expr(value) for value in op.operands[:2])
    length = None if low is None or high is None else (high - low).value
    return length is not None and length % (2 * op.value("step")) == 0


def is_zero(value: SSAValue) -> bool:
    """Whether a tile is nothing but zeros, seen from its form."""
    op = value.owner
    return isinstance(op, ConstantOp) and op.value("value") == 0


# Loops with two dots, one of which reads what is computed from the other: what of a step can be one step late.


@frozen
class Skew:
    """A loop of this form. `slow` are the carried values that wait for the second dot.

    `before` are the ops that make its accumulator from them, `after` those that read what it gives, both in order;
    `kept` are values of a step that `after` reads: one step later, when the dot is done.
    """

    first: MmaDot
    second: MmaDot
    slow: tuple[int, ...]
    before: tuple[SpecOp, ...]
    after: tuple[SpecOp, ...]
    kept: tuple[SSAValue, ...]
    root: SpecOp
    """What makes the A operand of the second dot: it is done when nothing is in flight."""

    @property
    def late(self) -> tuple[SpecOp, ...]:
        return (*self.before, *self.after)


def skew_of(op: SpecOp, plan: Plan) -> Skew | None:
    """A loop as two dots, the second one step behind; None where its values do not allow it."""
    source = op.regions[0].block
    dots = _dots_in(source, plan)
    if len(dots) != 2:
        return None
    first, second = dots
    root = second.lhs.value.owner
    if first.lhs.load is None or second.lhs.load is not None or not isinstance(root, SpecOp):
        return None
    if any(dot.rhs.load is not None and dot.rhs.load.parent_block() is not source for dot in dots):
        return None
    after = _readers(source, [second.op.results[0]])
    slow = _find_slow(source, second, after)
    reached = _readers(source, [source.args[1 + at] for at in slow])
    needed = makers_of(second.op.operands[2], source)
    before = [part for part in reached if part in needed]
    after = [*after, *(part for part in reached if part not in before and part not in after)]
    after = _with_broadcasts([part for part in after if part is not second.op], source)
    if {first.op, root, second.op} & {*before, *after}:
        return None
    readers = {use.operation for use in root.results[0].uses} - {second.op}
    if root.parent_block() is not source or not readers <= plan.hidden:
        return None
    kept = _find_kept(source, slow, second, before, after)
    return None if kept is None else Skew(first, second, slow, tuple(before), tuple(after), kept, root)


def _readers(source: Block, values: Sequence[SSAValue]) -> list[SpecOp]:
    """The ops of a block that values reach, in order."""
    reached: set[SSAValue] = set(values)
    found: list[SpecOp] = []
    for op in spec_ops(source)[:-1]:
        if reached.intersection(op.operands):
            found.append(op)
            reached.update(op.results)
    return found


def makers_of(value: SSAValue, source: Block) -> set[Operation]:
    """The ops of a block that a value is made by."""
    if not isinstance(value, OpResult) or value.op.parent_block() is not source:
        return set()
    return {value.op}.union(*(makers_of(operand, source) for operand in value.op.operands))


def _find_slow(source: Block, second: MmaDot, after: Sequence[SpecOp]) -> tuple[int, ...]:
    """The carried values that the second dot gives, or what reads it; then those that are computed from them."""
    slow: set[int] = set()
    while True:
        reached = _readers(source, [source.args[1 + at] for at in slow])
        made = {second.op.results[0], *(value for part in (*after, *reached) for value in part.results)}
        grown = {at for at, value in enumerate(yielded_values(source)) if value in made}
        if grown <= slow:
            return tuple(sorted(slow))
        slow |= grown


_REPEATED = ("ttile.broadcast", "ttile.constant")
"""Ops that cost nothing to repeat, and registers to carry."""


def _with_broadcasts(after: Sequence[SpecOp], source: Block) -> list[SpecOp]:
    """The ops, with those whose results they alone read, and which are better repeated than carried."""
    found: set[Operation] = set(after)
    for op in reversed(list(source.ops)):
        users = {use.operation for result in op.results for use in result.uses}
        if op.name in _REPEATED and users and users <= found:
            found.add(op)
    return [op for op in source.ops if op in found and isinstance(op, SpecOp)]


def _find_kept(
    source: Block, slow: Sequence[int], second: MmaDot, before: Sequence[SpecOp], after: Sequence[SpecOp]
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


# Sums of rows that a loop carries and scales from step to step: threads keep their parts of them until it ends.


@frozen
class RunningReduction:
    """`carried * factor + sum of the rows of a tile`, which begins at 0 and is read by nothing else in the loop."""

    carried: SSAValue
    factor: SSAValue
    scaled: SpecOp
    reduction: SpecOp
    last: SpecOp


def running_reductions(op: SpecOp) -> dict[int, RunningReduction]:
    """The running sums of a loop, by which of its carried values they are."""
    source = op.regions[0].block
    found: dict[int, RunningReduction] = {}
    for at, (start, value) in enumerate(zip(op.operands[2:], yielded_values(source), strict=True)):
        made = _sum_of(source.args[1 + at], value)
        if made is not None and is_zero(start) and made.last.parent_block() is source:
            found[at] = made
    return found


def is_function(op: object, fn: str) -> bool:
    """Whether an op computes a function of elements."""
    return isinstance(op, ElementwiseOp) and op.fn == fn


def _only(value: SSAValue) -> bool:
    return len(list(value.uses)) == 1


def _sum_of(carried: BlockArgument, value: SSAValue) -> RunningReduction | None:
    last = value.owner
    if not isinstance(last, SpecOp) or not is_function(last, "add") or not _only(value):
        return None
    for scaled, added in (last.operands, reversed(last.operands)):
        scaling, reduction = scaled.owner, added.owner
        if not isinstance(scaling, SpecOp) or not isinstance(reduction, SpecOp) or not is_function(scaling, "mul"):
            continue
        if not _is_row_sum(reduction) or carried not in scaling.operands or not _only(scaled) or not _only(added):
            continue
        left, right = scaling.operands
        if _only(carried):
            return RunningReduction(carried, right if left is carried else left, scaling, reduction, last)
    return None


def _is_row_sum(op: SpecOp) -> bool:
    is_sum = op.name == "ttile.reduce" and op.value("kind") == "sum" and op.value("axis") == 1
    return is_sum and shaped_type(op.results[0]).dtype is f32
