"""Let groups write over operands that nothing reads after them, where that saves a copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    carried_in,
    enclosing_op,
    kept_by,
    may_be_written,
    overwritten_by,
    readers_of,
    root_of,
    strip_aliases,
    writable_arguments,
)
from tessera.ir.schedule.plan import body_of, programs_in, tensor_of
from tessera.ir.schedule.typed_ops import ForOp, FuseOp, IfOp, WhileOp
from tessera.ir.schedule.typed_ops import ModuleOp as PlanOp
from tessera.ir.tile.facets import Contraction, Library, Pointwise
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class UpdateInPlace(Pass):
    """Write over the operand of an update, if the program may and nothing reads it later; mark group and op.

    Before: `%1 = tsched.fuse @group0(%cache, %length, %row)`, whose `tgraph.kv_write` copies the cache. After: the same
    with `{in_place = [0]}`, and `tgraph.kv_write {in_place = true}`, which writes the row alone. The program may write
    over values of its own, and over arguments that `tessera.donated` names. An update comes after all readers of the
    old value: for that its group may move down to where the new one is first needed. Donated counters are updated so,
    too.

    A body of a loop may write over what the loop carries. What each iteration leaves in the memory where it found it
    stays in one buffer: `tsched.for %s {in_place = [0]}` is that of `%s`, where nobody reads `%s` later, else the loop
    starts from a copy.

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
            _update_block(program.regions[0].block, functions, kinds, _BodyReads())


def _update_block(block: Block, functions: Mapping[str, SpecOp], kinds: Collection[str], reads: _BodyReads) -> None:
    """Let groups and loops of a block, those inside loops before, write over their operands."""
    pairs = _pair_results(block)
    writers = [op for op in block.ops if isinstance(op, FuseOp | WhileOp | ForOp | IfOp)]
    written = _Overwritten(writers)
    for op in writers:
        for region in op.regions:
            _update_block(region.block, functions, kinds, reads)
        if isinstance(op, WhileOp | ForOp):
            _take_operands(block, op, written)
        elif isinstance(op, FuseOp) and op.body in functions:
            _update(block, op, functions, written)
            if op.kind in kinds and not op.in_place and pairs:
                _overwrite_arguments(block, op, functions, pairs, written, reads)
        written.note(op)


def _take_operands(block: Block, loop: WhileOp | ForOp, written: _Overwritten) -> None:
    """Let a loop work in the memory of the values that it starts from, as far as its body stays in one memory."""
    count, first, _ = carried_in(loop)
    found = [-1] * count
    for at in kept_by(loop):
        if _may_write(block, loop, loop.operands[first + at], loop, at, written):
            found[at] = first + at
    loop.in_place = tuple(found) if max(found, default=-1) >= 0 else ()


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
    """The groups and loops that write over each value: few, though all updates read the scalars of an optimizer."""

    def __init__(self, groups: Iterable[Operation]) -> None:
        self._groups: dict[SSAValue, list[Operation]] = {}
        for group in groups:
            self.note(group)

    def note(self, group: Operation) -> None:
        """Count one among them, if it writes over any."""
        for old in overwritten_by(group).values():
            known = self._groups.setdefault(strip_aliases(old), [])
            known += [] if group in known else [group]

    def is_before(self, value: SSAValue, fuse: Operation, before: Operation) -> bool:
        """Whether one other than `fuse` writes over a value in front of an op."""
        groups = self._groups.get(strip_aliases(value), ())
        return any(group is not fuse and group.is_before_in_block(before) for group in groups)


# Maps and contractions over arguments that a block may write over.


def _pair_results(block: Block) -> dict[tuple[FuseOp, int], int]:
    """The argument that each result of a group is to be written over: a donated one, where the program returns it.

    What an iteration of a loop computes goes over what the loop carried there.
    """
    last = block.last_op
    assert last is not None
    numbers = writable_arguments(block)
    free: dict[Attribute, list[int]] = {}
    for number in numbers:
        free.setdefault(block.args[number].type, []).append(number)
    is_loop = not isinstance(block.parent_op(), PlanOp)
    found: dict[tuple[FuseOp, int], int] = {}
    for at, output in enumerate(last.operands[: len(numbers)] if is_loop else last.operands):
        queue = [numbers[at]] if is_loop else free.get(output.type)
        if not queue:
            continue
        number, value = queue.pop(0), strip_aliases(output)
        if isinstance(value, OpResult) and isinstance(value.owner, FuseOp) and value.type == output.type:
            found.setdefault((value.owner, value.index), number)
    return found


def _overwrite_arguments(
    block: Block,
    fuse: FuseOp,
    functions: Mapping[str, SpecOp],
    pairs: Mapping[tuple[FuseOp, int], int],
    written: _Overwritten,
    reads: _BodyReads,
) -> None:
    """Write the results of a group over the arguments they are paired with, as far as it may; it may move for it."""
    function = body_of(fuse, functions)
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
        if is_early and is_apart and _may_write(block, fuse, old, position, result, written):
            chosen[result], before = old, position
    if not chosen or not all(_may_write(block, fuse, old, before, result, written) for result, old in chosen.items()):
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


def _update(block: Block, fuse: FuseOp, functions: Mapping[str, SpecOp], written: _Overwritten) -> None:
    body = body_of(fuse, functions).regions[0].block
    writer = _writer(body)
    if writer is not None:
        number = _argument(body, writer)
        if number >= 0 and _move_and_write(block, fuse, number, written):
            writer.set_value("in_place", True)
            if fuse.bytes is not None:
                # What is not updated is neither read nor written.
                fuse.bytes = fuse.bytes - tensor_of(fuse.operands[number]).bytes * 2
        return
    for number in _counters(fuse, body):
        if _move_and_write(block, fuse, number, written):
            return


def _move_and_write(block: Block, fuse: FuseOp, number: int, written: _Overwritten) -> bool:
    """Let a group write its result over an operand, behind all others that read it; whether it may."""
    old = fuse.operands[number]
    if not may_be_written(block, old):
        return False
    position = _after_readers(fuse, old, fuse, block)
    limit = _first_reader(fuse)
    is_early = position is limit or position.is_before_in_block(limit)
    if not is_early or not _may_write(block, fuse, old, position, 0, written):
        return False
    if position is not fuse:
        fuse.detach()
        block.insert_op_before(fuse, position)
    fuse.in_place = (number,)
    return True


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
    block: Block, fuse: SpecOp, old: SSAValue, before: Operation, result: int, written: _Overwritten
) -> bool:
    """Whether nothing but the group or loop reads a value from op `before` on, in front of which it will be.

    Nor may the group move behind one that has written over anything it reads.
    """
    if old.type != fuse.results[result].type or not may_be_written(block, old):
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
