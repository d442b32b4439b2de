"""Which `exp` of a kernel have arguments of at most 0, differences to the maximum of a row: they cannot overflow.

Nothing is known of what a row holds; what is compared is how both operands of the difference are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import BlockArgument, OpResult, SSAValue

from tessera.ir.base.op import SpecOp

_SAME = frozenset(
    f"ttarget.{name}"
    for name in ("load", "cast", "elementwise", "select", "constant", "broadcast", "index", "coordinate")
)
"""Ops that give the same for the same operands; loads of arguments that are not written do."""


_LOOPS = ("ttarget.loop", "ttarget.tail")
Bound = tuple[SpecOp, SSAValue]
"""A loop, and a value of its iterations that is at most something."""


def find_exp_bounds(kernel: SpecOp) -> dict[SpecOp, Bound]:
    """The `exp` ops of a kernel whose arguments are at most 0, or NaN, wherever the result is used.

    Each with the same values where the maximum was taken of them.
    """
    written: set[SSAValue] = {kernel.regions[0].block.args[number] for number in kernel.value("writes")}
    found = (op for op in kernel.walk() if isinstance(op, SpecOp) and _function(op) == "exp")
    bounds = ((op, _bound(op, written)) for op in found)
    return {op: bound for op, bound in bounds if bound is not None}


def _function(op: object) -> str:
    return op.value("fn") if isinstance(op, SpecOp) and op.name == "ttarget.elementwise" else ""


def _bound(op: SpecOp, written: set[SSAValue]) -> Bound | None:
    shifted, here = op.operands[0].owner, op.parent_op()
    if _function(shifted) != "sub" or not isinstance(here, SpecOp):
        return None
    assert isinstance(shifted, SpecOp)
    value, maximum = shifted.operands
    for there, other in _at_most(maximum):
        if other is value:
            return there, other
        if there.name == here.name in _LOOPS and _has_same_iterations(there, here, written):
            index, other_index = (loop.regions[0].block.args[0] for loop in (here, there))
            indices: dict[SSAValue, SSAValue] = {index: other_index}
            if _is_same(value, other, indices, written):
                return there, other
    return None


def _at_most(maximum: SSAValue, axes: tuple[int, ...] | None = None) -> Iterator[Bound]:
    """Values that are at most another, each with the loop in which it is so for every iteration.

    `axes` are those that the value is broadcast along afterwards: the maximum of a row is no bound of a column.
    """
    owner = maximum.owner
    if not isinstance(owner, SpecOp):
        return
    if owner.name == "ttarget.broadcast" and axes is None:
        yield from _at_most(owner.operands[0], owner.value("axes"))
    elif owner.name == "ttarget.reduce" and owner.value("kind") == "max":
        rank = len(getattr(owner.operands[0].type, "shape", ()))
        if axes in (None, tuple(axis for axis in range(rank) if axis != owner.value("axis"))):
            around = owner.parent_op()
            assert isinstance(around, SpecOp)
            yield around, owner.operands[0]
            yield from _at_most(owner.operands[0])
    elif owner.name == "ttarget.select" and _is_lowest(owner.operands[0], owner.operands[2]):
        # Where all of a row is -inf, any number will do as its maximum.
        yield from _at_most(owner.operands[2], axes)
    elif _function(owner) == "max":
        for part in owner.operands:
            yield from _at_most(part, axes)
    elif owner.name in _LOOPS:
        assert isinstance(maximum, OpResult)
        yield from _at_most_of_iterations(owner, maximum.index, axes)


def _at_most_of_iterations(loop: SpecOp, number: int, axes: tuple[int, ...] | None) -> Iterator[Bound]:
    """The same of what a loop gives: what it begins with, and what it takes the maximum with."""
    yield from _at_most(loop.operands[2 + number], axes)
    block = loop.regions[0].block
    last = block.last_op
    assert last is not None
    joined, carried = last.operands[number].owner, block.args[1 + number]
    if _function(joined) == "max":
        assert isinstance(joined, SpecOp)
        if carried in joined.operands:
            yield from ((loop, _unclipped(part)) for part in joined.operands if part is not carried)


def _is_lowest(test: SSAValue, value: SSAValue) -> bool:
    """Whether a test is whether a value is -inf."""
    if _function(test.owner) != "eq":
        return False
    assert isinstance(test.owner, SpecOp)
    other = [part.owner for part in test.owner.operands if part is not value]
    if len(other) != 1 or not isinstance(other[0], SpecOp) or other[0].name != "ttarget.constant":
        return False
    return other[0].value("value") == float("-inf")


def _unclipped(value: SSAValue) -> SSAValue:
    """What is clipped: elements beyond the bound are not used."""
    owner = value.owner
    return _unclipped(owner.operands[0]) if isinstance(owner, SpecOp) and owner.name == "ttarget.clip" else value


def _has_same_iterations(a: SpecOp, b: SpecOp, written: set[SSAValue]) -> bool:
    ends = zip(a.operands[:2], b.operands[:2], strict=True)
    return a.value("step") == b.value("step") and all(_is_same(left, right, {}, written) for left, right in ends)


def _is_same(
    a: SSAValue, b: SSAValue, indices: Mapping[SSAValue, SSAValue], written: set[SSAValue], depth: int = 32
) -> bool:
    """Whether two values are computed alike, where `indices` are those of two loops that are taken to be equal."""
    if a is b or indices.get(a) is b:
        return a not in written
    if not depth or isinstance(a, BlockArgument) or isinstance(b, BlockArgument) or a.type != b.type:
        return False
    left, right = a.owner, b.owner
    if not isinstance(left, SpecOp) or not isinstance(right, SpecOp):
        return False
    if left.name != right.name or left.name not in _SAME or len(left.operands) != len(right.operands):
        return False
    if left.name == "ttarget.load" and not isinstance(left.operands[0], BlockArgument):
        return False
    pairs = zip(left.operands, right.operands, strict=True)
    return left.values() == right.values() and all(_is_same(x, y, indices, written, depth - 1) for x, y in pairs)
