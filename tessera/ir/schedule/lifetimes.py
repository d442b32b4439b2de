"""How long buffers live: from their `alloc` to the end of the last op that uses them, in any shape."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.in_place import at_level


def insert_frees(block: Block) -> None:
    """Put a `tsched.free` after the last use of every buffer of the workspace that the block allocates."""
    order = {op: number for number, op in enumerate(block.ops)}
    for op in list(order):
        if op.name != "tsched.alloc" or not isinstance(op, SpecOp) or op.value("output") >= 0:
            continue
        last = max(_uses(op.result, block), key=lambda user: order.get(user, -1), default=op)
        free = make(DIALECT["free"], [op.result], types=())
        if isinstance(last, SpecOp) and last.spec.is_terminator:
            block.insert_op_before(free, last)
        else:
            block.insert_op_after(free, last)


def _uses(value: SSAValue, block: Block) -> list[Operation]:
    """The ops of a block that use a value's memory, or hold an op that does."""
    found: list[Operation] = []
    for use in value.uses:
        op = use.operation
        if op.name == "tsched.tile":
            continue
        for result in op.results if shares_memory(op) else ():
            found += _uses(result, block)
        found.append(at_level(op, block))
    return found


def shares_memory(op: Operation) -> bool:
    """Whether the results of an op lie in the memory of its operands."""
    return op.name in ("tsched.alias", "tsched.while", "tsched.for")
