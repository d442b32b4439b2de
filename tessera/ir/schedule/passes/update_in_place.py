"""Let groups write over what nobody reads after them, where that saves a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation

from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.fusions import programs_in
from tessera.ir.schedule.host_builder import tensor_of
from tessera.ir.schedule.in_place import at_level, is_written_over, may_be_written, readers_of, root_of
from tessera.ir.tile.facets import Library, Pointwise


@dataclass(frozen=True)
class UpdateInPlace(Pass):
    """Write over the operand of an update, if the program may and nobody reads it later; mark group and op.

    Before: `%1 = tsched.fuse @group0(%cache, %length, %row)`, whose `tgraph.kv_write` copies the cache. After: the same
    with `{in_place = 0}`, and `tgraph.kv_write {in_place = true}`, which writes the row alone. The program may write
    over what it made itself, and over arguments that `tessera.donated` names. A number that is counted up, given up by
    the caller, is written over too, once all who read the old one have: for that its group may go down to where the new
    one is first needed.
    """

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        for program in programs_in(module):
            if any(op.name.startswith("tsched.collective") for op in program.walk()):
                continue  # they overlap other work, which is moved for it
            for op in list(program.regions[0].block.ops):
                if isinstance(op, SpecOp) and op.name == "tsched.fuse" and op.value("body") in functions:
                    _update(program, op, functions)


def _update(program: SpecOp, fuse: SpecOp, functions: Mapping[str, SpecOp]) -> None:
    body = functions[fuse.value("body")].regions[0].block
    writer = _writer(body)
    if writer is not None:
        number = _argument(body, writer)
        if number >= 0 and _is_free(program, fuse, number, fuse):
            writer.set_value("in_place", True)
            fuse.set_value("in_place", number)
            if fuse.value("bytes") is not None:
                # What stays is neither read nor written.
                fuse.set_value("bytes", fuse.value("bytes") - tensor_of(fuse.operands[number]).bytes * 2)
        return
    for number in _counters(fuse, body):
        place = _first_reader(fuse)
        if _is_free(program, fuse, number, place):
            fuse.detach()
            fuse_block = place.parent
            assert fuse_block is not None
            fuse_block.insert_op_before(fuse, place)
            fuse.set_value("in_place", number)
            return


def _writer(body: Block) -> SpecOp | None:
    """The one op of a body that can write over an operand, where that is all the body gives."""
    found = [op for op in body.ops if isinstance(op, SpecOp) and _overwrites(op) >= 0]
    last = body.last_op
    assert last is not None
    return found[0] if len(found) == 1 and list(last.operands) == list(found[0].results) else None


def _overwrites(op: SpecOp) -> int:
    lower = op.spec.lower
    return lower.overwrites if isinstance(lower, Library) else -1


def _argument(body: Block, writer: SpecOp) -> int:
    """The number of the body's argument that the op writes over, -1 where that is a view of one, or read otherwise."""
    old = writer.operands[_overwrites(writer)]
    if not isinstance(old, BlockArgument) or len(list(old.uses)) != 1:
        return -1
    return old.index


def _counters(fuse: SpecOp, body: Block) -> list[int]:
    """Operands of a group that computes one number from numbers of its type: one thread reads it, and then writes."""
    if fuse.value("kind") != "map" or len(fuse.results) != 1 or tensor_of(fuse.results[0]).size.value != 1:
        return []
    specs = [find_spec(op.name) for op in body.ops if op is not body.last_op]
    if not all(spec is not None and isinstance(spec.lower, Pointwise) for spec in specs):
        return []
    return [at for at, value in enumerate(fuse.operands) if value.type == fuse.results[0].type]


def _is_free(program: SpecOp, fuse: SpecOp, number: int, place: Operation) -> bool:
    """Whether nobody but the group reads an operand from `place` on, before which the group will stand.

    Nor may the group come to stand behind one that has written over anything it reads.
    """
    old, block = fuse.operands[number], program.regions[0].block
    if old.type != fuse.results[0].type or not may_be_written(program, old):
        return False
    if sum(root_of(value) is root_of(old) for value in fuse.operands) > 1:
        return False
    for value in fuse.operands:
        for reader in readers_of(value):
            if reader is not fuse and is_written_over(value, reader) and reader.is_before_in_block(place):
                return False
    others = [at_level(reader, block) for reader in readers_of(old) if reader is not fuse]
    return all(other is not place and other.is_before_in_block(place) for other in others)


def _first_reader(fuse: SpecOp) -> Operation:
    """The first op that reads what a group gives; the end of the program at the latest."""
    block = fuse.parent
    assert block is not None
    found = block.last_op
    assert found is not None
    for use in fuse.results[0].uses:  # views of it and notes on it name it, too
        at = at_level(use.operation, block)
        found = at if at.is_before_in_block(found) else found
    return found
