"""Exponentials whose arguments are not positive, differences to the largest of a row: those take fewer instructions.

Nothing is known of what a row holds; what is looked at is how both sides of the difference are computed.
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
"""A loop, and a value of its turns that is not above something."""


def falling(kernel: SpecOp) -> dict[SpecOp, Bound]:
    """The `exp` ops of a kernel whose arguments are at most 0, or NaN, wherever anybody looks at the result.

    Each with the same values as they were before, where the largest was taken from them.
    """
    written: set[SSAValue] = {kernel.regions[0].block.args[place] for place in kernel.value("writes")}
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
    value, top = shifted.operands
    for there, other in _at_most(top):
        if other is value:
            return there, other
        if there.name == here.name in _LOOPS and _has_same_turns(there, here, written):
            turn, other_turn = (loop.regions[0].block.args[0] for loop in (here, there))
            places: dict[SSAValue, SSAValue] = {turn: other_turn}
            if _is_same(value, other, places, written):
                return there, other
    return None


def _at_most(top: SSAValue, axes: tuple[int, ...] | None = None) -> Iterator[tuple[SpecOp, SSAValue]]:
    """Values that are not above another, each with the loop in which it is so for every turn.

    `axes` are those that the value is spread along afterwards: a row's largest is no bound of a column.
    """
    owner = top.owner
    if not isinstance(owner, SpecOp):
        return
    if owner.name == "ttarget.broadcast" and axes is None:
        yield from _at_most(owner.operands[0], owner.value("axes"))
    elif owner.name == "ttarget.reduce" and owner.value("kind") == "max":
        rank = len(getattr(owner.operands[0].type, "shape", ()))
        if axes in (None, tuple(axis for axis in range(rank) if axis != owner.value("axis"))):
            place = owner.parent_op()
            assert isinstance(place, SpecOp)
            yield place, owner.operands[0]
            yield from _at_most(owner.operands[0])
    elif owner.name == "ttarget.select" and _is_lowest(owner.operands[0], owner.operands[2]):
        # Of nothing but -inf, any number is the largest that is as good as -inf.
        yield from _at_most(owner.operands[2], axes)
    elif _function(owner) == "max":
        for part in owner.operands:
            yield from _at_most(part, axes)
    elif owner.name in _LOOPS:
        assert isinstance(top, OpResult)
        yield from _at_most_of_turns(owner, top.index, axes)


def _at_most_of_turns(loop: SpecOp, number: int, axes: tuple[int, ...] | None) -> Iterator[tuple[SpecOp, SSAValue]]:
    """The same of what a loop gives: what it begins with, and what it joins by taking the larger."""
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
    """What is clipped: beyond the bound nobody looks."""
    owner = value.owner
    return _unclipped(owner.operands[0]) if isinstance(owner, SpecOp) and owner.name == "ttarget.clip" else value


def _has_same_turns(a: SpecOp, b: SpecOp, written: set[SSAValue]) -> bool:
    ends = zip(a.operands[:2], b.operands[:2], strict=True)
    return a.value("step") == b.value("step") and all(_is_same(left, right, {}, written) for left, right in ends)


def _is_same(
    a: SSAValue, b: SSAValue, places: Mapping[SSAValue, SSAValue], written: set[SSAValue], depth: int = 32
) -> bool:
    """Whether two values are computed alike, where `places` are turns of two loops that are taken to be the same."""
    if a is b or places.get(a) is b:
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
    return left.values() == right.values() and all(_is_same(x, y, places, written, depth - 1) for x, y in pairs)
