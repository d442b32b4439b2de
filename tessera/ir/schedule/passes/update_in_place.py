"""Let groups write over operands that nothing reads after them, where that saves a copy."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation

from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.memory import enclosing_op, is_overwritten, may_be_written, readers_of, root_of
from tessera.ir.schedule.plan import body_of, programs_in, tensor_of
from tessera.ir.schedule.typed_ops import FuseOp
from tessera.ir.tile.facets import Library, Pointwise


class UpdateInPlace(Pass):
    """Write over the operand of an update, if the program may and nothing reads it later; mark group and op.

    Before: `%1 = tsched.fuse @group0(%cache, %length, %row)`, whose `tgraph.kv_write` copies the cache. After: the same
    with `{in_place = 0}`, and `tgraph.kv_write {in_place = true}`, which writes the row alone. The program may write
    over values of its own, and over arguments that `tessera.donated` names. A donated counter is written over too,
    after all readers of the old value: for that its group may move down to where the new one is first needed.
    """

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        for program in programs_in(module):
            if any(op.name.startswith("tsched.collective") for op in program.walk()):
                continue  # other work is moved between their start and wait
            for op in list(program.regions[0].block.ops):
                if isinstance(op, FuseOp) and op.body in functions:
                    _update(program, op, functions)


def _update(program: SpecOp, fuse: FuseOp, functions: Mapping[str, SpecOp]) -> None:
    body = body_of(fuse, functions).regions[0].block
    writer = _writer(body)
    if writer is not None:
        number = _argument(body, writer)
        if number >= 0 and _can_overwrite(program, fuse, number, fuse):
            writer.set_value("in_place", True)
            fuse.in_place = number
            if fuse.bytes is not None:
                # What is not updated is neither read nor written.
                fuse.bytes = fuse.bytes - tensor_of(fuse.operands[number]).bytes * 2
        return
    for number in _counters(fuse, body):
        reader = _first_reader(fuse)
        if _can_overwrite(program, fuse, number, reader):
            block = fuse.parent
            assert block is not None
            fuse.detach()
            block.insert_op_before(fuse, reader)
            fuse.in_place = number
            return


def _writer(body: Block) -> SpecOp | None:
    """The one op of a body that can write over an operand, where its result is that of the body."""
    found = [op for op in body.ops if isinstance(op, SpecOp) and _overwrites(op) >= 0]
    last = body.last_op
    assert last is not None
    return found[0] if len(found) == 1 and list(last.operands) == list(found[0].results) else None


def _overwrites(op: SpecOp) -> int:
    lower = op.spec.lower
    return lower.overwrites if isinstance(lower, Library) else -1


def _argument(body: Block, writer: SpecOp) -> int:
    """The number of the body's argument that the op writes over; -1 for a view, or where something else reads it."""
    old = writer.operands[_overwrites(writer)]
    if not isinstance(old, BlockArgument) or len(list(old.uses)) != 1:
        return -1
    return old.index


def _counters(fuse: FuseOp, body: Block) -> list[int]:
    """Operands that a group of pointwise ops on scalars could overwrite: one thread reads each, and then writes."""
    if len(fuse.results) != 1 or tensor_of(fuse.results[0]).size.value != 1:
        return []
    specs = [find_spec(op.name) for op in body.ops if op is not body.last_op]
    if not all(spec is not None and isinstance(spec.lower, Pointwise) for spec in specs):
        return []
    return [at for at, value in enumerate(fuse.operands) if value.type == fuse.results[0].type]


def _can_overwrite(program: SpecOp, fuse: FuseOp, number: int, before: Operation) -> bool:
    """Whether nothing but the group reads an operand from op `before` on, in front of which the group will be.

    Nor may the group move behind one that has written over anything it reads.
    """
    old, block = fuse.operands[number], program.regions[0].block
    if old.type != fuse.results[0].type or not may_be_written(program, old):
        return False
    if sum(root_of(value) is root_of(old) for value in fuse.operands) > 1:
        return False
    for value in fuse.operands:
        for reader in readers_of(value):
            if reader is not fuse and is_overwritten(value, reader) and reader.is_before_in_block(before):
                return False
    others = [enclosing_op(reader, block) for reader in readers_of(old) if reader is not fuse]
    return all(other is not before and other.is_before_in_block(before) for other in others)


def _first_reader(fuse: FuseOp) -> Operation:
    """The first op that reads the result of a group; the end of the program at the latest."""
    block = fuse.parent
    assert block is not None
    found = block.last_op
    assert found is not None
    for use in fuse.results[0].uses:  # aliases and annotations name it, too
        at = enclosing_op(use.operation, block)
        found = at if at.is_before_in_block(found) else found
    return found
