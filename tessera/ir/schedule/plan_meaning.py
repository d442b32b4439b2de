"""What a plan computes, whatever its groups are: the check that a plan written by hand is one of the same program.

Each value of a plan gets a number that stands for what it is computed from, all the way back to the arguments: an op,
its attributes and the numbers of its operands. Groups do not matter to it, nor how often something is computed, nor
names. Two plans compute the same where their results have the same numbers and effects happen in the same order. A
number stands for elements in the order of memory, so a view that moves none has that of its operand, and an elementwise
op on operands of its own shape has one number whatever that shape is: a group may see its operands as rows. Branches by
a size that give the same numbers mean those numbers: which of two kernels computes a value does not matter either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import user_error
from tessera.ir.base.tape import Guard, Record, Tape, attribute_text
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule import typed_ops
from tessera.ir.schedule.bodies import multiples, with_sizes
from tessera.ir.schedule.conversions import order_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.host_program.memory import ANNOTATIONS, donated_in
from tessera.ir.schedule.layouts import Order, identity
from tessera.ir.schedule.plan import body_of, programs_in, tape_in, tensor_of
from tessera.ir.schedule.program import Program, data_of
from tessera.ir.tile.facets import Pointwise, View
from tessera.types.dim import Dim
from tessera.types.effect import Effects
from tessera.types.shape import TensorType

Number: TypeAlias = int
Made: TypeAlias = "tuple[Number, TensorType]"
"""What a value holds, in the order of memory, and the shape that it is seen in."""

IN_PLACE = "in_place"
"""The attribute by which an op is told that it may write over its operand."""
_SILENT = frozenset({"flops", "bytes", "time", "trips"})
"""Attributes of the host program that say nothing of what an op computes."""


def refuse(op: Operation, message: str, advice: str) -> NoReturn:
    """Raise ScheduleError (T0401) at an op of a plan, be it one of a body."""
    raise user_error("schedule", OpError(op, message, advice))


def check_meaning(plan: ModuleOp, own: ModuleOp) -> None:
    """Raise ScheduleError (T0401), at the op that differs, unless a plan computes what the compiler's own one does."""
    (program,), (compiled,) = programs_in(plan), programs_in(own)
    check_interface(program, compiled)
    sizes = {name: Dim.symbol(name) * factor for name, factor in multiples(guards_of(compiled)).items()}
    numbers: dict[Any, Number] = {}
    wanted = _Numbering(numbers, symbol_table(own), sizes)
    wanted.program(compiled)
    known = len(numbers)
    found = _Numbering(numbers, symbol_table(plan), sizes)
    found.program(program)
    if (found.results, found.effects) != (wanted.results, wanted.effects):
        _refuse_other(program, found, wanted, known)


def check_interface(program: typed_ops.ModuleOp, compiled: typed_ops.ModuleOp) -> None:
    """Raise ScheduleError (T0401) unless two programs take and give the same, under the same guards."""
    advice = "leave the first line of `tsched.module` as it was exported"
    if program.symbol != compiled.symbol:
        refuse(program, f"this is a plan of `@{program.symbol}`, and the program is `@{compiled.symbol}`", advice)
    ours, theirs = (tuple(map(str, one.body.block.arg_types)) for one in (program, compiled))
    if ours != theirs:
        refuse(program, f"the plan takes ({', '.join(ours)}), and the program ({', '.join(theirs)})", advice)
    given, donated = donated_in(program), donated_in(compiled)
    if given != donated:
        refuse(program, f"the plan has arguments {list(given)} donated, and the program {list(donated)}", advice)
    if tuple(map(str, program.guards)) != tuple(map(str, compiled.guards)):
        refuse(program, f"the plan has {len(program.guards)} guards, and the program {len(compiled.guards)}", advice)


def _refuse_other(program: typed_ops.ModuleOp, found: _Numbering, wanted: _Numbering, known: int) -> None:
    """Say where a plan differs: at the first op that computes what the program does not, or else at its end."""
    for number, op, span_op in found.made:
        if number >= known and isinstance(span_op, typed_ops.IfOp) and span_op.size is not None:
            refuse(
                span_op,
                f"the branches of this `{op}` compute different values, or others than the program's",
                "let both give the same value: which of them runs is only a matter of speed",
            )
        if number >= known:
            refuse(
                span_op,
                f"`{op}` computes something here that the program does not: a plan moves ops between groups, and "
                "changes neither them nor what they read",
                "restore the op as it was exported",
            )
    last = program.body.block.last_op
    assert last is not None
    if found.effects != wanted.effects:
        refuse(last, "effects happen in another order than in the program", "restore their order")
    for at, (ours, theirs) in enumerate(zip(found.results, wanted.results, strict=False)):
        if ours != theirs:
            refuse(last, f"result {at} of the plan is not result {at} of the program", "return what was exported")
    counts = len(found.results), len(wanted.results)
    refuse(last, f"the plan gives {counts[0]} results, and the program {counts[1]}", "return what was exported")


def guards_of(program: SpecOp) -> list[Guard]:
    """The guards of a program, or of a body, as those of a tape."""
    return [Guard(left, right, what) for left, right, what in program.value("guards")]


class _Numbering:
    """Numbers the values of one plan; `numbers` are shared by the plans that are compared."""

    def __init__(self, numbers: dict[Any, Number], functions: Mapping[str, SpecOp], sizes: Mapping[str, Dim]) -> None:
        self.numbers, self.functions, self.sizes = numbers, functions, sizes
        self.values: dict[SSAValue, Made] = {}
        self.made: list[tuple[Number, str, Operation]] = []
        """What was numbered, in order: the number, the name of the op, and where to show it."""
        self.results: tuple[Made, ...] = ()
        self.effects: list[Number] = []
        self.orders: dict[Number, tuple[Made, Order, tuple[Dim, ...]]] = {}
        """Of a value with its dims in another order, what it was before, the order, and the shape that it has then."""

    def number(self, key: Any) -> Number:
        """The number of a key: one more than there are, where it is new."""
        return self.numbers.setdefault(key, len(self.numbers))

    def _effect(self, key: Any) -> Number:
        """The number of something with an effect: another one each time, as two draws of a key are two keys."""
        self.effects.append(self.number((len(self.effects), key)))
        return self.effects[-1]

    def program(self, program: typed_ops.ModuleOp) -> None:
        """Number a whole program."""
        block = program.body.block
        for at, argument in enumerate(block.args):
            self.values[argument] = self.number(("argument", at)), self._type(argument)
        self.results = self._block(block, 0)

    def _type(self, value: SSAValue) -> TensorType:
        return tensor_of(value).substitute(self.sizes)

    def _block(self, block: Block, depth: int) -> tuple[Made, ...]:
        """Number the ops of a block; what its last one gives."""
        last = block.last_op
        assert last is not None
        for op in block.ops:
            if op is last or isinstance(op, ANNOTATIONS):
                continue
            assert isinstance(op, SpecOp)
            if isinstance(op, typed_ops.FuseOp):
                self._fuse(op)
            elif isinstance(op, typed_ops.AliasOp):
                number, source = self.values[op.operands[0]]
                seen = self._type(op.results[0])
                if source.size != seen.size:
                    message = f"an alias has all elements of {source}, and {seen} has {seen.size}"
                    refuse(op, message, "restore the line as it was exported")
                self.values[op.results[0]] = number, seen
            else:
                self._other(op, depth)
        return tuple(self.values[value] for value in last.operands)

    def _other(self, op: SpecOp, depth: int) -> None:
        """Number an op of the host program, with its bodies."""
        values = [(name, op.values()[name]) for name in sorted(op.values()) if name not in _SILENT]
        said = tuple((name, attribute_text(_substitute(value, self.sizes))) for name, value in values)
        bodies = self._bodies(op, depth)
        if isinstance(op, typed_ops.IfOp) and op.size is not None and bodies[0] == bodies[1]:
            made, effects = bodies[0]
            self.effects += effects
            self.values.update(zip(op.results, made, strict=True))
            return
        operands = tuple(self.values[value] for value in op.operands)
        key = (op.name, said, operands, tuple(bodies))
        # A wait may pass other effects: ranks are matched where collectives start.
        has_effect = bool(op.spec.effects) and not isinstance(op, typed_ops.CollectiveWaitOp)
        number = self._effect(key) if has_effect or any(after for _, after in bodies) else self.number(key)
        self.made.append((number, op.name, op))
        for at, result in enumerate(op.results):
            self.values[result] = self.number(("of", number, at)), self._type(result)

    def _bodies(self, op: SpecOp, depth: int) -> list[tuple[tuple[Made, ...], tuple[Number, ...]]]:
        """What each body of an op gives, and its effects, which are not yet those of the program."""
        bodies: list[tuple[tuple[Made, ...], tuple[Number, ...]]] = []
        # What a branch gives does not depend on how many are around it: it carries nothing.
        inner = depth if isinstance(op, typed_ops.IfOp) else depth + 1
        for region in op.regions:
            for at, argument in enumerate(region.block.args):
                self.values[argument] = self.number(("carried", depth, len(bodies), at)), self._type(argument)
            before = len(self.effects)
            bodies.append((self._block(region.block, inner), tuple(self.effects[before:])))
            del self.effects[before:]
        return bodies

    def _fuse(self, fuse: typed_ops.FuseOp) -> None:
        function = body_of(fuse, self.functions)
        env = {name: Dim.of(dim).substitute(self.sizes) for name, dim in fuse.sizes}
        tape = with_sizes(tape_in(function), {**self.sizes, **env})
        check_types(fuse, tape, [self._type(value) for value in (*fuse.operands, *fuse.results)])
        numbers = {inner: self.values[value][0] for inner, value in zip(tape.inputs, fuse.operands, strict=True)}
        ops = [op for op in function.regions[0].block.ops if isinstance(op, SpecOp)]
        self._records(tape, numbers, dict(zip(map(id, tape.records), ops, strict=False)), fuse)
        for inner, value in zip(tape.outputs, fuse.results, strict=True):
            self.values[value] = numbers[inner], self._type(value)

    def _records(
        self, tape: Tape, numbers: dict[int, Number], ops: Mapping[int, SpecOp], fuse: typed_ops.FuseOp
    ) -> None:
        """Number the records of a body, from those of its inputs."""
        program = Program(tape)
        spans = {record.results: ops.get(id(record), fuse) for record in tape.records}
        for record in program.tape.records:
            operands = [(numbers[value], tape.types[value]) for value in record.operands]
            if isinstance(spec_of(record).lower, View) and all(
                program.keeps_layout(record, value) for value in record.results
            ):
                numbers.update(dict.fromkeys(record.results, operands[0][0]))
                continue
            order = order_of(record)
            if order is not None:
                numbers[record.results[0]] = self._in_order(operands[0], order, spans[record.results], record)
                continue
            key = _key(record, operands, [tape.types[value] for value in record.results])
            has_effect = Effects(spec_of(record).effects_for(record.attributes)).without(["random"])
            number = self._effect(key) if has_effect else self.number(key)
            self.made.append((number, record.op, spans[record.results]))
            for at, value in enumerate(record.results):
                numbers[value] = number if len(record.results) == 1 else self.number(("of", number, at))
        # A view that waits is not among them: what it shows is in its place.
        numbers.update(zip(tape.outputs, [numbers[real] for real in program.tape.outputs], strict=True))

    def _in_order(self, source: Made, order: Order, where: Operation, record: Record) -> Number:
        """The number of a value with its dims in another order: of what that was in its first one."""
        (number, type), whole = source, order
        known = self.orders.get(number)
        if known is not None and known[2] == type.shape:
            number, type = known[0]
            whole = tuple(known[1][axis] for axis in order)
        if whole == identity(len(whole)):
            return number
        found = self.number(("order", number, type, whole))
        self.orders[found] = (number, type), whole, tuple(type.shape[axis] for axis in whole)
        self.made.append((found, record.op, where))
        return found


def _key(record: Record, operands: Sequence[Made], outs: Sequence[TensorType]) -> Any:
    """What the results of a record follow from."""
    # Whether its result is in the memory of an operand changes no element.
    said = tuple(
        (name, attribute_text(record.attributes[name])) for name in sorted(record.attributes) if name != IN_PLACE
    )
    about = (record.op, said, str(record.policy), record.device)
    lower = spec_of(record).lower
    is_elementwise = isinstance(lower, Pointwise) and not lower.asks_where
    is_plain = is_elementwise and data_of(record) is None and len(outs) == 1
    if is_plain and operands and all(type.shape in ((), outs[0].shape) for _, type in operands):
        # Element by element: the shape in which they are seen does not matter.
        parts = tuple((number, type.rank == 0 < outs[0].rank, type.dtype) for number, type in operands)
        return (*about, parts, outs[0].dtype)
    return (*about, tuple(operands), tuple(outs))


def check_types(fuse: typed_ops.FuseOp, tape: Tape, types: Sequence[TensorType]) -> None:
    """Raise ScheduleError (T0401) unless a group is given, and gives, what its body says."""
    inner = [tape.types[value] for value in (*tape.inputs, *tape.outputs)]
    counts = [(len(fuse.operands), len(fuse.results)), (len(tape.inputs), len(tape.outputs))]
    if counts[0] != counts[1]:
        refuse(
            fuse,
            f"`@{fuse.body}` takes {counts[1][0]} values and gives {counts[1][1]}, and this group {counts[0][0]} and "
            f"{counts[0][1]}",
            "give the group an operand for each argument of its body, and a result for each that it returns",
        )
    for at, (given, wanted) in enumerate(zip(types, inner, strict=True)):
        if given != wanted:
            what = f"operand {at}" if at < len(fuse.operands) else f"result {at - len(fuse.operands)}"
            refuse(fuse, f"{what} of this group is {given}, and {wanted} in `@{fuse.body}`", "make both the same")


def _substitute(value: Any, sizes: Mapping[str, Dim]) -> Any:
    return value.substitute(sizes) if isinstance(value, Dim | TensorType) else value
