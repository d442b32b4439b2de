"""Let groups write over operands that nothing reads after them, where that saves a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.build import tape_of
from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape, tape_key
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.emit.evaluate import Leaves, spec_of
from tessera.ir.schedule.host_program.memory import (
    donated_in,
    enclosing_op,
    may_be_written,
    overwritten_by,
    readers_of,
    root_of,
    strip_aliases,
)
from tessera.ir.schedule.plan import body_of, programs_in, tensor_of
from tessera.ir.schedule.typed_ops import FuseOp
from tessera.ir.tile.facets import Contraction, Library, Pointwise
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class UpdateInPlace(Pass):
    """Write over the operand of an update, if the program may and nothing reads it later; mark group and op.

    Before: `%1 = tsched.fuse @group0(%cache, %length, %row)`, whose `tgraph.kv_write` copies the cache. After: the same
    with `{in_place = [0]}`, and `tgraph.kv_write {in_place = true}`, which writes the row alone. The program may write
    over values of its own, and over arguments that `tessera.donated` names. A donated counter is written over too,
    after all readers of the old value: for that its group may move down to where the new one is first needed.

    Results of maps are written over donated arguments that they read element by element, or do not read at all, as
    parameters and moments are by an optimizer: the first result of a type over the first donated argument of that
    type, and so on, so that what a program takes and gives in one order keeps its memory from call to call. On a CPU
    so are those of contractions, whose epilogue may be the update that takes the gradient they compute; what the
    contraction itself reads is never written over, as blocks of other elements read it too.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        # Kernels on tensor cores copy and store tiles in orders of their own.
        kinds = ("map",) if self.machine.is_gpu else ("map", "contraction")
        for program in programs_in(module):
            if any(op.name.startswith("tsched.collective") for op in program.walk()):
                continue  # other work is moved between their start and wait
            pairs = _pair_results(program)
            groups = [op for op in program.regions[0].block.ops if isinstance(op, FuseOp)]
            written, reads = _Overwritten(groups), _BodyReads()
            for op in groups:
                if op.body in functions:
                    _update(program, op, functions, written)
                    if op.kind in kinds and not op.in_place and pairs:
                        _overwrite_arguments(program, op, functions, pairs, written, reads)
                    written.note(op)


def may_overwrite(fuse: FuseOp, function: SpecOp, result: int, machine: Machine) -> bool:
    """Whether the kernel of a group may write a result over the operand that `in_place` says, for what its body reads.

    Who else reads that operand, and when, is what the verifier of a program looks at.
    """
    body, number = function.regions[0].block, fuse.in_place[result]
    writer = _writer(body)
    if writer is not None:
        return bool(writer.value("in_place")) and (result, number) == (0, _argument(body, writer))
    if number in _counters(fuse, body):
        return True
    if fuse.kind != "map" and (fuse.kind != "contraction" or machine.is_gpu):
        return False
    return not any(True for _ in body.args[number].uses) or _is_elementwise(tape_of(body), number, result)


class _Overwritten:
    """The groups that write over each value: few, though every update reads the scalars of an optimizer."""

    def __init__(self, groups: Iterable[FuseOp]) -> None:
        self._groups: dict[SSAValue, list[FuseOp]] = {}
        for group in groups:
            self.note(group)

    def note(self, group: FuseOp) -> None:
        """Count a group among them, if it is one."""
        for old in overwritten_by(group).values():
            known = self._groups.setdefault(strip_aliases(old), [])
            known += [] if group in known else [group]

    def is_before(self, value: SSAValue, fuse: FuseOp, before: Operation) -> bool:
        """Whether one other than `fuse` writes over a value in front of an op."""
        groups = self._groups.get(strip_aliases(value), ())
        return any(group is not fuse and group.is_before_in_block(before) for group in groups)


# Maps and contractions over donated arguments.


def _pair_results(program: SpecOp) -> dict[tuple[FuseOp, int], int]:
    """The donated argument that each result of a group is to be written over, where the program returns it."""
    block = program.regions[0].block
    last = block.last_op
    assert last is not None
    free: dict[Attribute, list[int]] = {}
    for number in donated_in(program):
        free.setdefault(block.args[number].type, []).append(number)
    found: dict[tuple[FuseOp, int], int] = {}
    for output in last.operands:
        queue = free.get(output.type)
        if not queue:
            continue
        number, value = queue.pop(0), strip_aliases(output)
        if isinstance(value, OpResult) and isinstance(value.owner, FuseOp) and value.type == output.type:
            found.setdefault((value.owner, value.index), number)
    return found


def _overwrite_arguments(
    program: SpecOp,
    fuse: FuseOp,
    functions: Mapping[str, SpecOp],
    pairs: Mapping[tuple[FuseOp, int], int],
    written: _Overwritten,
    reads: _BodyReads,
) -> None:
    """Write the results of a group over the arguments they are paired with, as far as it may; it may move for it."""
    function, block = body_of(fuse, functions), program.regions[0].block
    is_elementwise = reads.finder(tape_of(function.regions[0].block))
    chosen: dict[int, SSAValue] = {}
    before: Operation = fuse
    limit = _first_reader(fuse)
    for result in range(len(fuse.results)):
        if (fuse, result) not in pairs:
            continue
        old = block.args[pairs[fuse, result]]
        position = _after_readers(fuse, old, before, block)
        is_early = position is limit or position.is_before_in_block(limit)
        # What the group does not read is free once all others have read it.
        is_apart = old not in fuse.operands or is_elementwise(list(fuse.operands).index(old), result)
        if is_early and is_apart and _may_write(program, fuse, old, position, result, written):
            chosen[result], before = old, position
    if not chosen or not all(_may_write(program, fuse, old, before, result, written) for result, old in chosen.items()):
        return
    if before is not fuse:
        fuse.detach()
        block.insert_op_before(fuse, before)
    for old in chosen.values():
        if old not in fuse.operands:
            _add_operand(fuse, function, old)
    operands = list(fuse.operands)
    fuse.in_place = tuple(
        operands.index(chosen[result]) if result in chosen else -1 for result in range(len(fuse.results))
    )


def _add_operand(fuse: FuseOp, function: SpecOp, value: SSAValue) -> None:
    """One more operand of a group, which its body does not read."""
    block = function.regions[0].block
    fuse.operands = [*fuse.operands, value]
    block.insert_arg(value.type, len(block.args)).name_hint = f"a{len(block.args) - 1}"
    function.set_value("names", (*function.value("names"), f"a{len(block.args) - 1}"))


def _after_readers(fuse: FuseOp, old: SSAValue, start: Operation, block: Block) -> Operation:
    """The first op, from `start` on, in front of which all other readers of a value are done."""
    found = start
    for reader in readers_of(old):
        other = enclosing_op(reader, block)
        if other is not fuse and not other.is_before_in_block(found) and other.next_op is not None:
            found = other.next_op
    return found


class _Reads(Leaves):
    """What a body loads, with the index maps."""

    def __init__(self, body: Tape) -> None:
        super().__init__(body, body.inputs)
        self.maps: dict[int, set[IndexMap]] = {}
        self.whole: set[int] = set()
        """What a contraction is computed from: each of its blocks reads elements of many others."""

    def visit(self, value: int, at: IndexMap) -> None:
        if value in self.in_memory:
            self.maps.setdefault(value, set()).add(tuple(at))
        maker = self.makers.get(value)
        if maker is not None and isinstance(spec_of(maker).lower, Contraction):
            for operand in maker.operands:
                self._read_whole(operand)
            return
        super().visit(value, at)

    def _read_whole(self, value: int) -> None:
        self.whole.add(value)
        if value in self.makers:
            for operand in self.makers[value].operands:
                self._read_whole(operand)


class _BodyReads:
    """How bodies read their arguments; of equal ones, as of an optimizer's updates, one is looked at."""

    def __init__(self) -> None:
        self._known: dict[Any, bool] = {}

    def finder(self, body: Tape) -> Callable[[int, int], bool]:
        """What says whether a result of a body is elementwise in an operand, by their numbers."""
        own = tape_key(body)

        def is_elementwise(operand: int, result: int) -> bool:
            key = None if own is None else (own, operand, result)
            found = self._known.get(key)
            if found is None or key is None:
                found = self._known[key] = _is_elementwise(body, operand, result)
            return found

        return is_elementwise


def _is_elementwise(body: Tape, operand: int, result: int) -> bool:
    """Whether a result is computed from an operand, and the body reads that at the index of its results only.

    The store to an element then waits for its load, whichever threads do both, and no other element needs it.
    """
    at = coordinates(body.types[body.outputs[result]].rank)
    every, own = _Reads(body), _Reads(body)
    for output in body.outputs:
        every.visit(output, at)
    own.visit(body.outputs[result], at)
    value = body.inputs[operand]
    return value in own.maps and every.maps[value] == {tuple(at)} and value not in every.whole


# Ops that update an operand, and counters.


def _update(program: SpecOp, fuse: FuseOp, functions: Mapping[str, SpecOp], written: _Overwritten) -> None:
    body = body_of(fuse, functions).regions[0].block
    writer = _writer(body)
    if writer is not None:
        number = _argument(body, writer)
        if number >= 0 and _may_write(program, fuse, fuse.operands[number], fuse, 0, written):
            writer.set_value("in_place", True)
            fuse.in_place = (number,)
            if fuse.bytes is not None:
                # What is not updated is neither read nor written.
                fuse.bytes = fuse.bytes - tensor_of(fuse.operands[number]).bytes * 2
        return
    for number in _counters(fuse, body):
        reader = _first_reader(fuse)
        if _may_write(program, fuse, fuse.operands[number], reader, 0, written):
            block = fuse.parent
            assert block is not None
            fuse.detach()
            block.insert_op_before(fuse, reader)
            fuse.in_place = (number,)
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


def _may_write(
    program: SpecOp, fuse: FuseOp, old: SSAValue, before: Operation, result: int, written: _Overwritten
) -> bool:
    """Whether nothing but the group reads a value from op `before` on, in front of which the group will be.

    Nor may the group move behind one that has written over anything it reads.
    """
    block = program.regions[0].block
    if old.type != fuse.results[result].type or not may_be_written(program, old):
        return False
    if sum(root_of(value) is root_of(old) for value in fuse.operands) > (old in fuse.operands):
        return False
    if any(written.is_before(value, fuse, before) for value in (*fuse.operands, old)):
        return False
    others = [enclosing_op(reader, block) for reader in readers_of(old) if reader is not fuse]
    return all(other is not before and other.is_before_in_block(before) for other in others)


def _first_reader(fuse: FuseOp) -> Operation:
    """The first op that reads a result of a group; the end of the program at the latest."""
    block = fuse.parent
    assert block is not None
    found = block.last_op
    assert found is not None
    for use in (use for result in fuse.results for use in result.uses):  # aliases and annotations name it, too
        at = enclosing_op(use.operation, block)
        found = at if at.is_before_in_block(found) else found
    return found
