"""The body of each group as a tape of its own: what it loads, computes and stores.

A body has the records of its group and the free ones that they read through, repeated wherever they are read. Its
sizes are then renamed by their first use (`canonicalize`), so that groups of one structure have equal texts whatever
their programs call things: a model of many equal layers has the kernels of one. What a guard proves of a size is put
into the body as well (`16*s0` for a multiple of 16), and two groups that know different things have different bodies.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from tessera.ir.base.tape import Guard, Record, Tape, tape_key, tape_text
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.grouping import Group, Grouping
from tessera.ir.schedule.program import Program
from tessera.ir.tile.facets import Assembly, Pointwise, Reduction, View
from tessera.types.dim import Dim, Monomial
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

# The canonical form of a group's body: sizes renamed by their first use, so that equal groups are equal.

_LONGEST = 40
"""Characters of a kernel's name before its digest."""


def canonicalize(body: Tape) -> tuple[Tape, dict[str, Dim]]:
    """The body with sizes `s0`, `s1`, ..., and what each of them is in the original.

    A size that a guard proves to be a multiple of a number is written as that number times a size: whatever is made
    from the body then knows that there is no remainder, and guards that hold by that are dropped.
    """
    names: dict[str, str] = {}
    for type in body.types:
        _name_sizes(type.shape, names)
    for record in body.records:
        for _, value in sorted(record.attributes.items()):
            _name_sizes(value, names)
    factors = multiples(body.guards)
    tape = with_sizes(body, {old: Dim.symbol(new) * factors.get(old, 1) for old, new in names.items()})
    tape.guards = [guard for guard in tape.guards if guard.left != guard.right]
    tape.names = [f"a{number}" for number in range(len(body.inputs))]
    return tape, {new: Dim.symbol(old) // factors.get(old, 1) for old, new in names.items()}


def multiples(guards: Iterable[Guard]) -> dict[str, int]:
    """Numbers above 1 that sizes are multiples of, by guards `size % number == 0` or `number*(size // number) == size`.

    >>> N = Dim.symbol("N")
    >>> multiples([Guard(N % 6, Dim.constant(0), ""), Guard(4 * (N // 4), N, ""), Guard(N, N * N, "")])
    {'N': 12}
    """
    found: dict[str, int] = {}
    for guard in guards:
        gap = guard.left - guard.right
        for monomial, coefficient in gap.terms:
            name, number = _size_and_divisor(monomial)
            size, remainder = Dim.symbol(name), gap if coefficient > 0 else -gap
            if number > 1 and remainder in (size % number, size // number * number - size):
                found[name] = math.lcm(found.get(name, 1), number)
    return found


def _size_and_divisor(monomial: Monomial) -> tuple[str, int]:
    """The size and the number of a lone `size % number` or `size // number`; the number is 1 for anything else."""
    if len(monomial) == 1 and monomial[0].kind in ("mod", "floordiv"):
        above, below = monomial[0].args
        if above.symbol_name is not None and (below.value or 0) > 1:
            return above.symbol_name, below.value or 1
    return "", 1


def with_sizes(tape: Tape, env: Mapping[str, Dim]) -> Tape:
    """The tape with other dims in place of some sizes, in bodies of control flow too."""
    return Tape(
        inputs=list(tape.inputs),
        names=list(tape.names),
        records=[_rename_sizes(record, env) for record in tape.records] if env else list(tape.records),
        outputs=list(tape.outputs),
        types=[type.substitute(env) for type in tape.types] if env else list(tape.types),
        guards=[Guard(g.left.substitute(env), g.right.substitute(env), g.what) for g in tape.guards],
    )


_COORDINATE = re.compile(r"(?:[dbmnkt]\d+|_.*)$")
"""Names of coordinates in index maps."""


def with_safe_sizes(tape: Tape) -> Tape:
    """The tape with sizes renamed that look like coordinates of index maps: `d0` becomes `d0.size`."""
    names: dict[str, str] = {}
    for type in tape.types:
        _name_sizes(type.shape, names)
    taken = {name: Dim.symbol(f"{name.lstrip('_')}.size") for name in names if _COORDINATE.match(name)}
    return with_sizes(tape, taken) if taken else tape


def with_gathers(tape: Tape) -> Tape:
    """The tape with boxes put together only where nothing reads them element by element."""

    def gather_of(record: Record) -> Record:
        lower = spec_of(record).lower
        return replace(record, op=lower.gather) if isinstance(lower, Assembly) and lower.gather else record

    return replace(tape, records=[gather_of(record) for record in tape.records])


def _name_sizes(value: Any, names: dict[str, str]) -> None:
    """Give each size in a value that has none yet the next name."""
    if isinstance(value, Dim):
        for monomial, _ in value.terms:
            for atom in monomial:
                if atom.kind == "symbol":
                    names.setdefault(atom.name, f"s{len(names)}")
                else:
                    _name_sizes(atom.args, names)
    elif isinstance(value, TensorType):
        _name_sizes(value.shape, names)
    elif isinstance(value, tuple | list):
        for part in cast("Iterable[Any]", value):
            _name_sizes(part, names)


def _rename_sizes(record: Record, env: Mapping[str, Dim]) -> Record:
    return replace(record, attributes={name: _substitute(value, env) for name, value in record.attributes.items()})


def _substitute(value: Any, env: Mapping[str, Dim]) -> Any:
    if isinstance(value, Dim | TensorType):
        return value.substitute(env)
    if isinstance(value, Tape):
        return with_sizes(value, env)
    if isinstance(value, tuple | list):
        return tuple(_substitute(part, env) for part in cast("Iterable[Any]", value))
    return value


def files_of(body: Tape) -> tuple[str, ...]:
    """The files of the user that ops of a body carry the location of."""
    checks = [record.attributes.get("checked") for record in body.records]
    return tuple(one["location"][0] for one in checks if one is not None and one.get("location") is not None)


def name_of(body: Tape, kind: str, axes: tuple[int, ...], in_place: tuple[int, ...] = ()) -> str:
    """The name of the kernel of a canonical body: its ops, and a digest that differs wherever the body does.

    A kernel that writes over its arguments (`in_place`) is another than one that does not. Only the files of locations
    in debug builds are left out, so that a program has one name wherever it is stored.
    """
    text = tape_text(body)
    for file in files_of(body):
        text = text.replace(file, "")
    over = f" over {in_place}" if in_place else ""
    digest = hashlib.sha256(f"{kind} {axes}{over}\n{text}".encode()).hexdigest()[:10]
    words: list[str] = []
    for record in body.records:
        word = record.op.split(".", 1)[1]
        if record.operands and not isinstance(spec_of(record).lower, View) and word not in words:
            words.append(word)
    text = "_".join(words) or kind
    while len(text) > _LONGEST and "_" in text:
        text = text.rpartition("_")[0]
    return f"{text[:_LONGEST]}_{digest}"


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


def _key_of(record: Record, operands: tuple[int, ...]) -> Any:
    """What the results of a record follow from, where equal keys have equal results; None where they may not.

    A value that was rematerialized for a later reader is computed once more than needed where one group has both.
    """
    attributes = tuple(sorted(record.attributes.items()))
    spec = spec_of(record)
    is_plain = isinstance(spec.lower, Pointwise | View | Reduction) and not spec.effects_for(record.attributes)
    try:
        hash(attributes)
    except TypeError:
        return None
    # `1`, `1.0` and `True` are equal numbers, and other constants.
    return (record.op, operands, attributes, repr(attributes), record.policy, record.device) if is_plain else None


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
        made, stored = dict[Any, tuple[int, ...]](), set(outputs)
        for number in self._in_order():
            record = source.records[number]
            operands = tuple(new[operand] for operand in record.operands)
            key = _key_of(record, operands)
            # Each output is a value of its own.
            results = made.get(key) if stored.isdisjoint(record.results) else None
            if results is None:
                results = tuple(tape.new_value(source.types[result]) for result in record.results)
                tape.records.append(replace(record, operands=operands, results=results))
                made.update({} if key is None else {key: results})
            new.update(zip(record.results, results, strict=True))
        tape.outputs = [new[value] for value in outputs]
        return Body(self.group, tape, tuple(self.inputs), tuple(outputs))


# Names of groups that are still being formed.


class GroupNames:
    """Names of groups by what they compute so far; equal ones, as in equal layers, share one, and so one answer.

    A number would do for one program. Plans are kept, and a record that somebody adds in front of all others would
    give each group the choices of its neighbour.
    """

    def __init__(self) -> None:
        self._known: dict[Any, str] = {}

    def name(self, program: Program, group: Group) -> str:
        """The ops of a group and a digest of them, their attributes and the types of all values, not their names."""
        axes = group.space.axes if group.space is not None else ()
        tape = _own_tape(program, group)
        own = tape_key(tape)
        key = None if own is None else (group.kind.name, axes, own)
        if key is None:
            return name_of(canonicalize(tape)[0], group.kind.name, axes)
        if key not in self._known:
            self._known[key] = name_of(canonicalize(tape)[0], group.kind.name, axes)
        return self._known[key]


def _own_tape(program: Program, group: Group) -> Tape:
    """The records of a group with their values numbered anew; what they read of others are the inputs."""
    tape, numbers = Tape(), dict[int, int]()

    def number(value: int) -> int:
        if value not in numbers:
            numbers[value] = tape.new_value(program.type(value))
        return numbers[value]

    for position in sorted(group.records):
        record = program.tape.records[position]
        tape.inputs += [number(value) for value in record.operands if value not in numbers]
        operands = tuple(number(value) for value in record.operands)
        results = tuple(number(value) for value in record.results)
        given = record.attributes, results
        tape.records.append(Record(record.op, operands, *given, policy=record.policy, device=record.device))
    tape.names = [""] * len(tape.inputs)
    return tape
