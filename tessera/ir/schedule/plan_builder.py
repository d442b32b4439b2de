"""Building a plan from a tape: one `tsched.fuse` for each group, and functions of Graph IR as the groups' bodies.

Groups are written in an order in which they can run. What they read is defined by then, but for values that no group
computes: a constant, or a value in the memory of another one, is written where it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tessera.diagnostics.codes import FusionError
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import REGION, Guard, Record, Tape, tape_key
from tessera.ir.base.types import TensorAttr, attribute_of
from tessera.ir.schedule.bodies import Body, GroupNames, bodies_of
from tessera.ir.schedule.costs import cost_of
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import size_names
from tessera.ir.schedule.grouping import FusionRule, Group, Grouping, group_tape
from tessera.ir.schedule.kinds.flow import plan_flow
from tessera.ir.schedule.oriented_operands import Orientation, with_oriented_operands
from tessera.ir.schedule.plan import function_of
from tessera.ir.schedule.program import Program, data_of
from tessera.ir.tile.facets import Library, Pointwise
from tessera.types.dim import Dim, maximum
from tessera.types.policy import Policy


class PlanBuilder:
    """Builds plans, and collects the bodies of all their groups; bodies of control flow are plans inside plans."""

    def __init__(
        self, ask: Callable[[str, str], bool], rules: Sequence[type[FusionRule]], whole_tiles: bool = False
    ) -> None:
        """`ask` says whether a kind of fusion may happen at a group, by the name that comes of its content."""
        self.ask, self.rules, self.whole_tiles = ask, rules, whole_tiles
        self._names = GroupNames()
        self.guards: Sequence[Guard] = ()
        self.rounded: Policy | None = None
        """The policy of contractions that have none of their own, on machines whose copies round; else None."""
        self.computes = False
        """Whether contractions compute operands of one-byte elements where they multiply them."""
        self.orientation: Orientation | None = None
        """In which orders of their dims operands of contractions are taken; None where all are."""
        self._functions: list[SpecOp] = []
        self._costs: dict[Any, Cost] = {}
        """What bodies cost that were found right: a model of many equal layers has few of them."""
        self._count = self._collectives = 0

    def fill(self, block: Block, tape: Tape, inputs: Sequence[SSAValue]) -> list[SSAValue]:
        """Build the plan of a tape at the end of a block; its results."""
        tape = tape if self.orientation is None else with_oriented_operands(tape, self.orientation)
        program = Program(tape, self.whole_tiles, self.rounded, self.computes, self.orientation)
        writer = _Writer(self, block, program, dict(zip(tape.inputs, inputs, strict=True)))

        def ask(knob: str, group: Group) -> bool:
            return self.ask(knob, self._names.name(program, group))

        grouping = group_tape(program, ask, self.rules)
        check_promises(grouping)
        for body in bodies_of(grouping):
            writer.write(body)
        return [writer.value(output) for output in program.tape.outputs]

    def body_function(self, body: Body) -> str:
        """Put a group's body among the functions, with the guards on its sizes; its name."""
        name = f"group{self._count}"
        self._count += 1
        sizes = frozenset(size_names(body.tape))
        guards = [guard for guard in self.guards if guard.left.symbols | guard.right.symbols <= sizes]
        if any(record.region for record in body.tape.records):
            # The group says it: equal groups have one body, in whichever regions they are.
            body.tape.records[:] = [replace(record, region="") for record in body.tape.records]
        self._functions.append(function_of(body.tape, name, guards))
        return name

    def check_body(self, body: Body) -> Cost:
        """What a body costs; raises ValueError where the kernel of its group would not compute it."""
        kind, own = body.group.kind, tape_key(body.tape)
        key = None if own is None else (kind.name, body.axes, own)
        found = self._costs.get(key)
        if found is None or key is None:
            kind.check(body.tape, body.axes)
            found = self._costs[key] = cost_of(body.tape)
        return found

    def next_collective(self) -> int:
        """The number of one more collective; ranks match them in this order."""
        self._collectives += 1
        return self._collectives - 1

    def take_functions(self) -> list[SpecOp]:
        """The bodies written since the last time."""
        found, self._functions = self._functions, []
        return found


class _Writer:
    """The plan of one tape being built."""

    def __init__(self, builder: PlanBuilder, block: Block, program: Program, values: Mapping[int, SSAValue]) -> None:
        self.builder, self.block, self.program = builder, block, program
        self.values = dict(values)

    def write(self, body: Body) -> None:
        group = body.group
        records = self.program.tape.records
        span = next((records[number].span for number in group.records if records[number].span), None)
        operands = [self.value(value) for value in body.inputs]
        region = records[group.first].region if group.records else ""
        if not group.kind.is_kernel:
            (record,) = [records[number] for number in group.records]
            last = self.block.last_op
            self._write_flow(record)
            self._mark_region(region, last)
            return
        cost, name = self.builder.check_body(body), self.builder.body_function(body)
        values = {"kind": group.kind.name, "axes": body.axes, "flops": cost.flops, "bytes": cost.bytes}
        types = [TensorAttr.of(self.program.type(value)) for value in body.outputs]
        op = make(DIALECT["fuse"], operands, {"body": name, **values}, types=types, span=span)
        last = self.block.last_op
        self.block.add_op(op)
        self._mark_region(region, last)
        self.values.update(zip(body.outputs, op.results, strict=True))

    def _mark_region(self, region: str, last: Operation | None) -> None:
        """Say of all ops behind `last` in which mesh axes they stand."""
        op = self.block.first_op if last is None else last.next_op
        while region and op is not None:
            op.attributes[REGION] = attribute_of("str", region)
            op = op.next_op

    def _write_flow(self, record: Record) -> None:
        operands = [self.value(operand) for operand in record.operands]
        types = [self.program.type(result) for result in record.results]
        results = plan_flow(self.builder, self.block, record, operands, types, self._trips(record))
        self.values.update(zip(record.results, results, strict=True))

    def _trips(self, record: Record) -> Dim | None:
        """The iterations of a loop between its first two operands, where those are numbers or sizes."""
        ends = [_number_of(self.program.maker(value)) for value in record.operands[:2]]
        return None if len(ends) < 2 or None in ends else maximum(ends[1] - ends[0], 0)

    def value(self, value: int) -> SSAValue:
        """The SSA value of a value of the tape: defined already, a constant, or an alias of another."""
        found = self.values.get(value)
        if found is not None:
            return found
        record = self.program.maker(value)
        assert record is not None
        type = TensorAttr.of(self.program.type(value))
        data = data_of(record)
        if data is not None:
            op = make(DIALECT["constant"], (), {"value": data}, types=[type], span=record.span)
        else:
            root = self.program.alias_of(value)
            assert root != value, f"{record.op} is read before it is computed"
            space = {"space": self.program.alias_space(value)}
            op = make(DIALECT["alias"], [self.value(root)], space, types=[type], span=record.span)
        self.block.add_op(op)
        self.values[value] = op.result
        return op.result


def _number_of(record: Record | None) -> Any:
    """The dim that a scalar is, where an op without operands makes it of a number or of sizes."""
    if record is None or record.operands:
        return None
    value, dims = record.attributes.get("value"), record.attributes.get("dims", ())
    if isinstance(value, int | float) and float(value).is_integer() and record.attributes.get("shape") == ():
        return Dim.constant(int(value))
    return dims[0] if len(dims) == 1 and isinstance(dims[0], Dim) else None


PLAIN_OPS = "apply the steps as plain ops, which may become kernels of their own"
OWN_KERNEL = "write the steps into a kernel of your own, on its block before it is stored; or apply them as plain ops"


def check_promises(grouping: Grouping) -> None:
    """Raises FusionError (T0403) for the first op that must share a kernel with what it reads and does not."""
    program = grouping.program
    for number, record in enumerate(program.tape.records):
        lower = spec_of(record).lower
        if not isinstance(lower, Pointwise) or not lower.is_promise:
            continue
        source = program.alias_of(record.operands[1])
        maker = program.makers.get(source, -1)
        own, other = grouping.owner.get(number), grouping.owner.get(maker)
        if own is None or own is not other or not own.kind.takes_epilogue:
            raise _error(record, program.tape.records[maker] if maker >= 0 else None, own, other)


def _error(record: Record, source: Record | None, own: Group | None, other: Group | None) -> FusionError:
    """`source` is what the epilogue is applied to; `own` and `other` are the groups of the two."""
    fix, notes = PLAIN_OPS, ["rule: `epilogue.chain` is one kernel with the contraction it follows, or an error"]
    if source is None or other is None:
        reason = "what it is applied to is no contraction of this program"
    else:
        name = source.op.split(".", 1)[1]
        if other.kind.is_only_promised and not _takes_epilogue(source):
            reason, fix = f"`{name}` is a kernel of its own, which takes no epilogue", OWN_KERNEL
        elif not other.kind.takes_epilogue:
            reason = f"`{name}` is no contraction"
        elif own is not None and not own.kind.takes_epilogue:
            reason = f"fusion with `{name}` is switched off, or one of the steps reads other elements than its own"
        else:
            reason = f"the steps belong to another contraction than `{name}`"
    if source is not None and source.span is not None:
        notes.insert(0, f"the contraction is at {source.span}")
    message = f"this epilogue cannot be one kernel with its contraction: {reason}"
    return FusionError(message, span=record.span, notes=tuple(notes), fix=fix)


def _takes_epilogue(record: Record) -> bool:
    lower = spec_of(record).lower
    return isinstance(lower, Library) and lower.takes_epilogue
