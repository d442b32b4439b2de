"""Who may write where a block lies: products and loops change blocks in place, so nobody may want them as they were."""

from __future__ import annotations

from xdsl.ir import Block, Operation, OpResult, SSAValue

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr

_CUTS = ("ttile.dot", "ttile.for", "ttile.barrier")
"""Between two of these rows go through all ops one after the other: each row is read before it is written."""


def check_owners(kernel: SpecOp) -> None:
    """Raises TargetVerifyError where a block that is changed in place is wanted later as it was before."""
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttile.dot" and not is_fresh(op.operands[2]):
            _check_given(op, op.operands[2])
        elif isinstance(op, SpecOp) and op.name == "ttile.for":
            for start in op.operands[2:]:
                if isinstance(start.type, TileAttr):
                    _check_given(op, start)
            _check_carried(op)


def is_fresh(accumulator: SSAValue) -> bool:
    """Whether a product starts from zero, and so from no block at all."""
    maker = accumulator.op if isinstance(accumulator, OpResult) else None
    return isinstance(maker, SpecOp) and maker.name == "ttile.constant" and not maker.value("value")


def _check_given(op: SpecOp, value: SSAValue) -> None:
    """A value that `op` changes is made beside it, and used before it alone."""
    block = op.parent
    assert block is not None
    places = {one: number for number, one in enumerate(block.ops)}
    others = [_beside(use.operation, block) for use in value.uses if use.operation is not op]
    is_once = sum(use.operation is op for use in value.uses) == 1
    is_before = all(other is not None and places[other] < places[op] for other in others)
    if _block_of(value) is not block or not is_once or not is_before:
        what = "a product adds to its accumulator" if op.name == "ttile.dot" else "a loop changes what it starts from"
        raise TargetVerifyError(
            f"{what} in place on CPUs, and this block is used once more",
            span=op.span,
            fix="make the block again where it is used, or store it first",
        )


def _check_carried(loop: SpecOp) -> None:
    """What a body ends with goes where the carried block lies, when nothing reads that any more."""
    body = loop.regions[0].block
    last = body.last_op
    assert last is not None
    places = {one: number for number, one in enumerate(body.ops)}
    cuts = [number for one, number in places.items() if one.name in _CUTS]
    for inner, end in zip(body.args[1:], last.operands, strict=True):
        if end is inner or not isinstance(end.type, TileAttr):
            continue
        maker = end.op if isinstance(end, OpResult) else None
        if maker is None or maker.parent is not body or sum(other is end for other in last.operands) > 1:
            raise _carried(loop)
        if maker.name == "ttile.for" and _start_of(maker, end) is not inner:
            raise _carried(loop)
        # The accumulator of the last product lies there too, and is the first to be written.
        first = _first_written(maker)
        for use in inner.uses:
            user = _beside(use.operation, body)
            if user is None or any(places.get(first, 0) <= cut <= places[user] and user is not first for cut in cuts):
                raise _carried(loop)


def _first_written(maker: Operation) -> Operation:
    """The op that first writes where the result of another goes: the accumulators of products lie there."""
    while maker.name == "ttile.dot":
        accumulator = maker.operands[2]
        if not isinstance(accumulator, OpResult) or is_fresh(accumulator):
            break
        maker = accumulator.op
    return maker


def _start_of(loop: Operation, result: SSAValue) -> SSAValue:
    """What a result of a loop starts from."""
    return next(value for one, value in zip(loop.results, loop.operands[2:], strict=True) if one is result)


def _carried(loop: SpecOp) -> TargetVerifyError:
    return TargetVerifyError(
        "a loop that multiplies tiles makes each block that it carries from the one before, in place, on CPUs",
        span=loop.span,
        fix="carry each block once and in its own place, and read it before the next one is made",
    )


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner if isinstance(owner, Block) else owner.parent


def _beside(op: Operation, block: Block) -> Operation | None:
    """The op of a block that another is, or is inside of."""
    found: Operation | None = op
    while found is not None and found.parent is not block:
        found = found.parent_op()
    return found
