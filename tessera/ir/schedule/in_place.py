"""Results that lie in the memory of an operand: who may be written over, and that nobody reads what was there before.

A caller gives arguments up by their numbers, in the promise `tessera.donated` of a program. Their memory, and that of
values that the program has made itself, may be written over by the last who reads them: a group says by `in_place`
which operand its first result takes the memory of.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import DONATED
from tessera.ir.base.types import ValueAttr

_NOTES = ("tsched.tile", "tsched.layout", "tsched.collective")


def donated_in(program: Operation) -> tuple[int, ...]:
    """The numbers of the arguments that are given up."""
    found = program.attributes.get(DONATED)
    return tuple(found.data) if isinstance(found, ValueAttr) else ()


def kept_in(program: Operation) -> tuple[tuple[int, int], ...]:
    """Pairs (result, argument): the results of a host program that lie in the memory of an argument."""
    last = program.regions[0].block.last_op
    assert last is not None
    roots = ((number, root_of(value)) for number, value in enumerate(last.operands))
    return tuple((number, root.index) for number, root in roots if isinstance(root, BlockArgument))


def is_in_place(op: Operation) -> bool:
    """Whether a group writes its first result over an operand."""
    return isinstance(op, SpecOp) and op.name == "tsched.fuse" and op.value("in_place") >= 0


def root_of(value: SSAValue) -> SSAValue:
    """The value whose memory holds `value`: itself seen in another shape, or what it was written over."""
    while isinstance(value, OpResult):
        op = value.owner
        if op.name == "tsched.alias":
            value = op.operands[0]
        elif is_in_place(op) and value.index == 0:
            value = overwritten(op)
        else:
            break
    return value


def overwritten(op: Operation) -> SSAValue:
    """The operand that a group writes its first result over."""
    assert isinstance(op, SpecOp)
    number: int = op.value("in_place")
    return op.operands[number]


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read a value, in any shape, before it is written over; the one that does so among them."""
    yield from _readers(_seen_in(value))


def is_written_over(value: SSAValue, op: Operation) -> bool:
    """Whether an op writes its first result over a value, in whatever shape it sees that."""
    return is_in_place(op) and _seen_in(overwritten(op)) is _seen_in(value)


def _seen_in(value: SSAValue) -> SSAValue:
    """The value that this one is, in another shape."""
    while isinstance(value, OpResult) and value.owner.name == "tsched.alias":
        value = value.owner.operands[0]
    return value


def _readers(value: SSAValue) -> Iterator[Operation]:
    for use in value.uses:
        op = use.operation
        if op.name == "tsched.alias":
            yield from _readers(op.results[0])
        elif op.name not in _NOTES:
            yield op


def at_level(op: Operation, block: Block) -> Operation:
    """The op of a block that is, or holds, an op."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def may_be_written(program: Operation, value: SSAValue) -> bool:
    """Whether the memory of a value is the program's own, or was given up by its caller."""
    root = root_of(value)
    if isinstance(root, BlockArgument):
        return root.block is program.regions[0].block and root.index in donated_in(program)
    return isinstance(root, OpResult) and root.owner.name == "tsched.fuse"


def check_in_place(program: SpecOp) -> None:
    """Fails at a group that may not write over its operand, and at an op that reads what was written over."""
    block = program.regions[0].block
    donated = donated_in(program)
    if any(not 0 <= number < len(block.args) for number in donated):
        program.fail(f"`{DONATED}` names arguments {list(donated)}, and there are {len(block.args)}")
    order = {op: at for at, op in enumerate(block.ops)}
    for op in block.ops:
        if is_in_place(op):
            assert isinstance(op, SpecOp)
            _check_group(program, op, order)
        if op.name == "tsched.return":
            _check_returned(op, program, donated)


def _check_group(program: SpecOp, op: SpecOp, order: dict[Operation, int]) -> None:
    number: int = op.value("in_place")
    block = program.regions[0].block
    if number >= len(op.operands) or not op.results or overwritten(op).type != op.results[0].type:
        op.fail(f"`in_place` is the number of an operand with the type of the first result, got {number}")
    old = overwritten(op)
    if not may_be_written(program, old):
        op.fail(
            f"`{op.name}` writes over operand {number}, which is neither given up by the caller nor made here",
            f"name its argument in `{DONATED}`, or leave `in_place` out",
        )
    if sum(root_of(value) is root_of(old) for value in op.operands) > 1:
        op.fail(f"`{op.name}` writes over operand {number}, and reads it as another one too")
    for reader in readers_of(old):
        if reader is not op and order[at_level(reader, block)] >= order[op]:
            op.fail(
                f"`{op.name}` writes over operand {number}, which `{reader.name}` reads later",
                "leave `in_place` out, so that the result has memory of its own",
            )


def _check_returned(op: Operation, program: SpecOp, donated: tuple[int, ...]) -> None:
    """Once buffers are placed, an argument is returned as it lies only where it was given up, and once."""
    assert isinstance(op, SpecOp)
    roots = [root_of(value) for value in op.operands]
    if not any(other.name == "tsched.alloc" for other in program.regions[0].block.ops) and not _is_placed(program):
        return
    given = [root for root in roots if isinstance(root, BlockArgument)]
    for root in given:
        if root.index not in donated:
            op.fail(f"argument {root.index} is returned as it lies, and its caller has not given it up")
    if len(set(given)) != len(given):
        op.fail("an argument is returned twice as it lies: two results would be one memory")


def _is_placed(program: SpecOp) -> bool:
    return program.value("workspace") is not None
