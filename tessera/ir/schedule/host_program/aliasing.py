"""Which values of a program share memory: aliases, results written over an operand, and donated arguments.

A caller donates arguments by their numbers, in the attribute `tessera.donated` of a program. Their memory, and that of
values that the program has made itself, may be written over by the last op that reads them: a group says by `in_place`
which operand its first result takes the memory of.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import DONATED
from tessera.ir.base.types import ValueAttr
from tessera.ir.schedule.typed_ops import AliasOp, AllocOp, CollectiveOp, ForOp, FuseOp, LayoutOp, TileOp, WhileOp

ANNOTATIONS = (TileOp, LayoutOp, CollectiveOp)
"""Ops that say something of a group, and touch no memory."""


def donated_in(program: Operation) -> tuple[int, ...]:
    """The numbers of the arguments that are donated."""
    found = program.attributes.get(DONATED)
    return tuple(found.data) if isinstance(found, ValueAttr) else ()


def kept_in(program: Operation) -> tuple[tuple[int, int], ...]:
    """Pairs (result, argument): the results of a host program that are in the memory of an argument."""
    last = program.regions[0].block.last_op
    assert last is not None
    roots = ((number, root_of(value)) for number, value in enumerate(last.operands))
    return tuple((number, root.index) for number, root in roots if isinstance(root, BlockArgument))


def overwritten_by(op: Operation) -> SSAValue | None:
    """The operand that a group writes its first result over, if it does."""
    return op.operands[op.in_place] if isinstance(op, FuseOp) and op.in_place >= 0 else None


def root_of(value: SSAValue) -> SSAValue:
    """The value whose memory holds `value`: itself in another shape, or what it was written over."""
    while isinstance(value, OpResult):
        old = overwritten_by(value.owner)
        if isinstance(value.owner, AliasOp):
            value = value.owner.source
        elif old is not None and value.index == 0:
            value = old
        else:
            break
    return value


def unaliased(value: SSAValue) -> SSAValue:
    """The value that this one is, in another shape."""
    while isinstance(value, OpResult) and isinstance(value.owner, AliasOp):
        value = value.owner.source
    return value


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read a value, in any shape, before it is written over; the one that does so among them."""
    yield from _readers(unaliased(value))


def is_overwritten(value: SSAValue, op: Operation) -> bool:
    """Whether an op writes its first result over a value, in whatever shape it has that."""
    old = overwritten_by(op)
    return old is not None and unaliased(old) is unaliased(value)


def _readers(value: SSAValue) -> Iterator[Operation]:
    for use in value.uses:
        if isinstance(use.operation, AliasOp):
            yield from _readers(use.operation.results[0])
        elif not isinstance(use.operation, ANNOTATIONS):
            yield use.operation


def enclosing_op(op: Operation, block: Block) -> Operation:
    """The op of a block that is, or holds, an op."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def may_be_written(program: Operation, value: SSAValue) -> bool:
    """Whether the memory of a value is the program's own, or was donated by its caller."""
    root = root_of(value)
    if isinstance(root, BlockArgument):
        return root.block is program.regions[0].block and root.index in donated_in(program)
    return isinstance(root.owner, FuseOp)


def insert_frees(block: Block) -> None:
    """Put a `tsched.free` after the last use of every buffer of the workspace that the block allocates."""
    order = {op: number for number, op in enumerate(block.ops)}
    for op in list(order):
        if not isinstance(op, AllocOp) or op.output >= 0:
            continue
        last = max(_uses(op.result, block), key=lambda user: order.get(user, -1), default=op)
        free = make("tsched.free", [op.result], types=())
        if isinstance(last, SpecOp) and last.spec.is_terminator:
            block.insert_op_before(free, last)
        else:
            block.insert_op_after(free, last)


def _uses(value: SSAValue, block: Block) -> list[Operation]:
    """The ops of a block that use a value's memory, or hold an op that does."""
    found: list[Operation] = []
    for use in value.uses:
        op = use.operation
        if isinstance(op, TileOp):
            continue
        # Results of these are in the memory of their operands.
        for result in op.results if isinstance(op, AliasOp | WhileOp | ForOp) else ():
            found += _uses(result, block)
        found.append(enclosing_op(op, block))
    return found
