"""Which `exp` of a kernel have arguments of at most 0, differences to the maximum of a row: they cannot overflow.

A softmax computes `exp(x - max)`. Nothing is known of what a row holds; what is compared is how both operands of the
difference are computed. Where the maximum was taken of values that are computed by the same ops from the same
arguments, in a loop with the same iterations, no argument of the exp is positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import BlockArgument, OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.target.typed_ops import (
    BroadcastOp,
    ClipOp,
    ConstantOp,
    ElementwiseOp,
    KernelOp,
    LoadOp,
    LoopOp,
    ReduceOp,
    SelectOp,
    TailOp,
)

_PURE = frozenset(
    f"ttarget.{name}"
    for name in ("load", "cast", "elementwise", "select", "constant", "broadcast", "index", "coordinate")
)
"""Ops that give the same for the same operands; loads of arguments that are not written do."""
_DEPTH = 32
"""Ops that two values are compared through at most."""

Bound = tuple[SpecOp, SSAValue]
"""A loop, and a value of its iterations that is at most something."""


def find_exp_bounds(kernel: KernelOp) -> dict[SpecOp, Bound]:
    """The `exp` ops of a kernel whose arguments are at most 0, or NaN, wherever the result is used.

    Each with the same values where the maximum was taken of them.
    """
    written: set[SSAValue] = {kernel.body.block.args[number] for number in kernel.writes}
    bounds = ((op, _bound(op, written)) for op in kernel.walk() if isinstance(op, ElementwiseOp) and op.fn == "exp")
    return {op: bound for op, bound in bounds if bound is not None}


def _operands_of(value: SSAValue, fn: str) -> tuple[SSAValue, ...]:
    """The operands of the function that gives a value; none where it is another."""
    op = value.owner
    return tuple(op.operands) if isinstance(op, ElementwiseOp) and op.fn == fn else ()


def _bound(op: ElementwiseOp, written: set[SSAValue]) -> Bound | None:
    difference, here = _operands_of(op.operands[0], "sub"), op.parent_op()
    if not difference:
        return None
    value, maximum = difference
    for there, other in _at_most(maximum):
        if other is value:
            return there, other
        if not isinstance(here, LoopOp | TailOp) or type(there) is not type(here):
            continue
        assert isinstance(there, LoopOp | TailOp)
        indices: dict[SSAValue, SSAValue] = {here.body.block.args[0]: there.body.block.args[0]}
        if _has_same_iterations(there, here, written) and _is_same(value, other, indices, written):
            return there, other
    return None


def _at_most(maximum: SSAValue, axes: tuple[int, ...] | None = None) -> Iterator[Bound]:
    """Values that are at most another, each with the loop in which it is so for every iteration.

    `axes` are those that the value is broadcast along afterwards: the maximum of a row is no bound of a column.
    """
    owner = maximum.owner
    if isinstance(owner, BroadcastOp) and axes is None:
        yield from _at_most(owner.operands[0], owner.axes)
    elif isinstance(owner, ReduceOp) and owner.kind == "max":
        rank = len(getattr(owner.operands[0].type, "shape", ()))
        if axes in (None, tuple(axis for axis in range(rank) if axis != owner.axis)):
            around = owner.parent_op()
            assert isinstance(around, SpecOp)
            yield around, owner.operands[0]
            yield from _at_most(owner.operands[0])
    elif isinstance(owner, SelectOp) and _is_lowest(owner.operands[0], owner.operands[2]):
        # Where all of a row is -inf, any number will do as its maximum.
        yield from _at_most(owner.operands[2], axes)
    elif isinstance(owner, LoopOp | TailOp):
        assert isinstance(maximum, OpResult)
        yield from _at_most_of_iterations(owner, maximum.index, axes)
    else:
        for part in _operands_of(maximum, "max"):
            yield from _at_most(part, axes)


def _at_most_of_iterations(loop: LoopOp | TailOp, number: int, axes: tuple[int, ...] | None) -> Iterator[Bound]:
    """The same of what a loop gives: what it begins with, and what it takes the maximum with."""
    yield from _at_most(loop.carried[number], axes)
    block = loop.body.block
    assert block.last_op is not None
    joined, carried = _operands_of(block.last_op.operands[number], "max"), block.args[1 + number]
    if carried in joined:
        yield from ((loop, _unclip(part)) for part in joined if part is not carried)


def _is_lowest(test: SSAValue, value: SSAValue) -> bool:
    """Whether a test is whether a value is -inf."""
    others = [part.owner for part in _operands_of(test, "eq") if part is not value]
    return len(others) == 1 and isinstance(others[0], ConstantOp) and others[0].value("value") == float("-inf")


def _unclip(value: SSAValue) -> SSAValue:
    """What is clipped: elements beyond the bound are not used."""
    return _unclip(value.owner.operands[0]) if isinstance(value.owner, ClipOp) else value


def _has_same_iterations(a: LoopOp | TailOp, b: LoopOp | TailOp, written: set[SSAValue]) -> bool:
    return a.step == b.step and _is_same(a.low, b.low, {}, written) and _is_same(a.high, b.high, {}, written)


def _is_same(
    a: SSAValue, b: SSAValue, indices: Mapping[SSAValue, SSAValue], written: set[SSAValue], depth: int = _DEPTH
) -> bool:
    """Whether two values are computed alike, where `indices` are those of two loops that are taken to be equal."""
    if a is b or indices.get(a) is b:
        return a not in written
    left, right = a.owner, b.owner
    if not depth or a.type != b.type or not isinstance(left, SpecOp) or not isinstance(right, SpecOp):
        return False
    if left.name != right.name or left.name not in _PURE or len(left.operands) != len(right.operands):
        return False
    if isinstance(left, LoadOp) and not isinstance(left.buffer, BlockArgument):
        return False
    pairs = zip(left.operands, right.operands, strict=True)
    return left.values() == right.values() and all(_is_same(x, y, indices, written, depth - 1) for x, y in pairs)
