"""The body of each group as a tape of its own: what it loads, computes and stores, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.grouping import Group, Grouping
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, maximum, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class Body:
    """A group ready to become a kernel; `inputs` and `outputs` are values of the program, in the tape's order."""

    group: Group
    tape: Tape
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """The reduced axes of a row group."""
        return self.group.space.axes if self.group.space is not None else ()


def bodies_of(grouping: Grouping) -> list[Body]:
    """The bodies of all groups, in the order of the groups; a group whose results nothing reads is left out."""
    program = grouping.program
    needed = {program.alias_of(output) for output in program.tape.outputs}
    for group in grouping.groups:
        inputs = list(_Closure(grouping, group).from_values(_results(grouping, group)).inputs)
        if not group.kind.is_kernel:
            # An op without results has none to start from.
            inputs += [operand for number in group.records for operand in program.tape.records[number].operands]
        needed.update(program.alias_of(value) for value in inputs)
    found: list[Body] = []
    for group in grouping.groups:
        outputs = [value for value in _results(grouping, group) if value in needed]
        if outputs or not group.kind.is_kernel:
            closure = _Closure(grouping, group).from_values(outputs or _results(grouping, group))
            found.append(closure.body(outputs))
    return found


def _results(grouping: Grouping, group: Group) -> list[int]:
    """What a group computes and could store."""
    if group.copies is not None:
        return [group.copies]
    records = grouping.program.tape.records
    return [result for number in group.records for result in records[number].results if result not in grouping.inlined]


class _Closure:
    """The records behind some values of a group, up to what is in memory when the group runs."""

    def __init__(self, grouping: Grouping, group: Group) -> None:
        self.grouping, self.group, self.program = grouping, group, grouping.program
        self.inputs: dict[int, None] = {}
        self.numbers: set[int] = set()
        self._seen: set[int] = set()
        self._whole: set[int] = set()

    def from_values(self, values: Iterable[int]) -> _Closure:
        wanted, known = tuple(values), -1
        # A value that one record reads as a whole tensor is not computed for another that was visited before.
        while known != len(self._whole):
            known = len(self._whole)
            self.inputs, self.numbers, self._seen = {}, set(), set()
            for value in wanted:
                self._visit(value, top=True)
        return self

    def _visit(self, value: int, *, top: bool = False) -> None:
        if value in self._seen:
            return
        self._seen.add(value)
        if not top and (value in self._whole or self._is_in_memory(value)):
            self.inputs[value] = None
            return
        number = self.program.makers[value]
        record = self.program.tape.records[number]
        self.numbers.add(number)
        memory = self.program.memory_operands(record)
        self._whole.update(memory)
        for operand in record.operands:
            if operand in memory:
                self._seen.add(operand)
                self.inputs[operand] = None
            else:
                self._visit(operand)

    def _is_in_memory(self, value: int) -> bool:
        root = self.program.alias_of(value)
        if root in self.program.free:
            return False
        number = self.program.makers.get(root, -1)
        return self.grouping.owner.get(number) is not self.group

    def _in_order(self) -> list[int]:
        """The records, each free one just before the first that reads it, wherever it is in the program."""
        found: dict[int, None] = {}

        def visit(number: int) -> None:
            for operand in self.program.tape.records[number].operands:
                maker = self.program.makers.get(operand, -1)
                if maker in self.numbers and maker not in found:
                    visit(maker)
            found[number] = None

        solid = [number for number in sorted(self.numbers) if number in self.grouping.owner]
        for number in (*solid, *sorted(self.numbers)):
            if number not in found:
                visit(number)
        return list(found)

    def body(self, outputs: list[int]) -> Body:
        tape, source = Tape(), self.program.tape
        new: dict[int, int] = {value: tape.new_value(source.types[value]) for value in self.inputs}
        names = dict(zip(source.inputs, source.names, strict=True))
        tape.inputs = list(new.values())
        tape.names = [names.get(value, f"v{value}") for value in self.inputs]
        for number in self._in_order():
            record = source.records[number]
            new.update({result: tape.new_value(source.types[result]) for result in record.results})
            tape.records.append(
                Record(
                    record.op,
                    tuple(new[operand] for operand in record.operands),
                    record.attributes,
                    tuple(new[result] for result in record.results),
                    record.span,
                    record.policy,
                )
            )
        tape.outputs = [new[value] for value in outputs]
        return Body(self.group, tape, tuple(self.inputs), tuple(outputs))


CLOCK = 3
"""Cycles in a nanosecond, as an order of magnitude of CPUs: estimates compare plans, they predict no stopwatch."""
BANDWIDTH = 12
"""Bytes that one core moves to or from memory in a nanosecond, as an order of magnitude."""


def cost_of(body: Tape) -> Cost:
    """Flops of all records; every input read once and every output written once."""
    flops, moved = Dim.constant(0), Dim.constant(0)
    for record in body.records:
        flops = flops + _flops(body, record)
    for value in (*body.inputs, *body.outputs):
        moved = moved + body.types[value].bytes
    return Cost(flops, moved)


def _flops(body: Tape, record: Record) -> Dim:
    spec = spec_of(record)
    operands = [body.types[operand] for operand in record.operands]
    results = [body.types[result] for result in record.results]
    if spec.cost is not None:
        return spec.cost(operands, results, record.attributes).flops
    lower = spec.lower
    if isinstance(lower, Pointwise):
        return results[0].size * lower.flops
    if isinstance(lower, Reduction):
        return operands[0].size
    if isinstance(lower, Contraction):
        maps = lower.maps(operands, record.attributes)
        return product((*maps.batch, *maps.m, *maps.n, *maps.k)) * 2
    return Dim.constant(0)


def nanoseconds(cost: Cost, machine: Machine) -> Dim:
    """How long one core is busy: with arithmetic at two vector operations of two flops a cycle, or with memory."""
    return maximum(cost.flops // (machine.lanes * 4 * CLOCK), cost.bytes // BANDWIDTH)
