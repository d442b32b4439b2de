"""A tape as a plan: one `tsched.fuse` for each group, and the functions of Graph IR that are the groups' bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.infer import GuardedPair
from tessera.ir.base.op import SpecOp
from tessera.ir.base.region_tape import block_of
from tessera.ir.base.tape import Record, Tape
from tessera.ir.base.types import TensorAttr
from tessera.ir.schedule.bodies import Body, bodies_of
from tessera.ir.schedule.cost import cost_of
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.emit.frame import size_names
from tessera.ir.schedule.flow_plan import plan_flow
from tessera.ir.schedule.grouping import Ask, group_tape
from tessera.ir.schedule.movements import space_of_alias
from tessera.ir.schedule.program import Program, data_of
from tessera.ir.schedule.promises import check_promises
from tessera.types.policy import Policy


class PlanBuilder:
    """Writes plans, and collects the bodies of all their groups; bodies of control flow are plans inside plans."""

    def __init__(self, ask: Ask, whole_tiles: bool = False) -> None:
        self.ask, self.whole_tiles = ask, whole_tiles
        self.guards: Sequence[GuardedPair] = ()
        self.rounded: Policy | None = None
        """What products work under that have no policy of their own, on machines whose copies round; else None."""
        self._functions: list[SpecOp] = []
        self._count = self._collectives = 0

    def fill(self, block: Block, tape: Tape, inputs: Sequence[SSAValue]) -> list[SSAValue]:
        """Write the plan of a tape at the end of a block; its results."""
        program = Program(tape, self.whole_tiles, self.rounded)
        writer = _Writer(self, block, program, dict(zip(tape.inputs, inputs, strict=True)))
        grouping = group_tape(program, self.ask)
        check_promises(grouping)
        for body in bodies_of(grouping):
            writer.write(body)
        return [writer.value(output) for output in tape.outputs]

    def body_function(self, body: Body) -> str:
        """Put a group's body among the functions, with the guards that speak of its sizes; its name."""
        name = f"group{self._count}"
        self._count += 1
        sizes = frozenset(size_names(body.tape))
        guards = tuple(guard for guard in self.guards if guard[0].symbols | guard[1].symbols <= sizes)
        values = {"symbol": name, "names": tuple(body.tape.names), "guards": guards}
        self._functions.append(
            make("tgraph.func", values=values, types=(), regions=[block_of(body.tape, "tgraph.return")])
        )
        return name

    def next_collective(self) -> int:
        """The number of one more collective; they are written in the order in which ranks meet them."""
        self._collectives += 1
        return self._collectives - 1

    def take_functions(self) -> list[SpecOp]:
        """The bodies written since the last time."""
        found, self._functions = self._functions, []
        return found


class _Writer:
    """The plan of one tape being written."""

    def __init__(self, builder: PlanBuilder, block: Block, program: Program, values: Mapping[int, SSAValue]) -> None:
        self.builder, self.block, self.program = builder, block, program
        self.values = dict(values)

    def write(self, body: Body) -> None:
        group = body.group
        records = self.program.tape.records
        span = next((records[number].span for number in group.records if records[number].span), None)
        operands = [self.value(value) for value in body.inputs]
        if group.kind == "flow":
            (record,) = [records[number] for number in group.records]
            self._write_flow(record)
            return
        cost = cost_of(body.tape)
        op = make(
            DIALECT["fuse"],
            operands,
            {
                "body": self.builder.body_function(body),
                "kind": group.kind,
                "axes": body.axes,
                "flops": cost.flops,
                "bytes": cost.bytes,
            },
            types=[TensorAttr.of(self.program.type(value)) for value in body.outputs],
            span=span,
        )
        self.block.add_op(op)
        self.values.update(zip(body.outputs, op.results, strict=True))

    def _write_flow(self, record: Record) -> None:
        operands = [self.value(operand) for operand in record.operands]
        types = [self.program.type(result) for result in record.results]
        results = plan_flow(self.builder, self.block, record, operands, types)
        self.values.update(zip(record.results, results, strict=True))

    def value(self, value: int) -> SSAValue:
        """The value of a number of the tape: made already, a constant, or another's memory in another shape."""
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
            space = {"space": space_of_alias(self.program, value)}
            op = make(DIALECT["alias"], [self.value(root)], space, types=[type], span=record.span)
        self.block.add_op(op)
        self.values[value] = op.result
        return op.result
