"""Control flow, collectives and callbacks in a plan: ops that no kernel computes; bodies become plans inside plans.

Ops are recognized by what they declare: the names of their bodies, and their effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.build import OpWriter
from tessera.ir.base.dialect_of import make
from tessera.ir.base.tape import Record, Tape
from tessera.ir.base.types import TensorAttr
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.kinds import GroupKind
from tessera.ir.schedule.ops.host import CALLS
from tessera.ir.schedule.plan import tensor_of
from tessera.types.dim import Dim
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.ir.schedule.grouping import Group, Groups
    from tessera.ir.schedule.plan_builder import PlanBuilder


def plan_flow(
    builder: PlanBuilder,
    block: Block,
    record: Record,
    operands: Sequence[SSAValue],
    types: Sequence[TensorType],
    trips: Dim | None,
) -> Sequence[SSAValue]:
    """The results of an op that no kernel computes, built at the end of a block; a loop has `trips`, where known."""
    bodies = tuple(a.name for a in spec_of(record).attributes if a.kind == "tape")
    flow = _Flow(builder, block, record, operands, types)
    if bodies == ("then", "otherwise"):
        return flow.branch()
    if bodies == ("condition", "body"):
        return flow.repeat()
    if bodies == ("body",):
        return flow.count(trips) if "scanned" not in record.attributes else flow.scan()
    if "collective" in spec_of(record).effects:
        return flow.collective()
    if not record.operands and "axis" in record.attributes:
        return flow.axis_index()
    if "io" in spec_of(record).effects:
        return flow.call_back()
    raise ScheduleError(f"`{record.op}` has no lowering to a host program", span=record.span)


class _Flow(OpWriter):
    """One such op being built."""

    dialect = DIALECT

    def __init__(
        self,
        builder: PlanBuilder,
        block: Block,
        record: Record,
        operands: Sequence[SSAValue],
        types: Sequence[TensorType],
    ) -> None:
        super().__init__(block)
        self.builder, self.record, self.span = builder, record, record.span
        self.operands, self.types = list(operands), [TensorAttr.of(type) for type in types]
        self.attributes = record.attributes

    def branch(self) -> Sequence[SSAValue]:
        size: Dim | None = self.attributes.get("size")
        count = int(size is None)
        bodies = [self._fill(Block(), self.attributes[name], self.operands[count:]) for name in ("then", "otherwise")]
        return self.emit("if", self.operands[:count], {"size": size}, self.types, bodies).results

    def repeat(self) -> Sequence[SSAValue]:
        count = self.attributes["carried"]
        starts, captured = self.operands[:count], self.operands[count:]
        tests, body = self.attributes["condition"], self.attributes["body"]
        blocks = [self._with_arguments(tape, count, captured) for tape in (tests, body)]
        return self.emit("while", starts, types=self.types, regions=blocks).results

    def count(self, trips: Dim | None) -> Sequence[SSAValue]:
        count = self.attributes["carried"]
        values = {"carried": count, "trips": trips}
        block = self._with_arguments(self.attributes["body"], 1 + count, self.operands[2 + count :])
        return self.emit("for", self.operands[: 2 + count], values, self.types, [block]).results

    def scan(self) -> Sequence[SSAValue]:
        count, scanned = int(self.attributes["carried"]), int(self.attributes["scanned"])
        given: list[SSAValue] = self.operands[: count + scanned]
        captured: list[SSAValue] = self.operands[count + scanned :]
        length: Any = self.attributes["length"] or (tensor_of(given[count]).shape[0],)
        known = {"length": length[0], "trips": length[0], "reverse": self.attributes["reverse"]}
        values = {"carried": count, "scanned": scanned, **known}
        block = self._with_arguments(self.attributes["body"], count + scanned, captured)
        return self.emit("for", given, values, self.types, [block]).results

    def collective(self) -> Sequence[SSAValue]:
        """A collective over one rank is the identity; over more it is started, and waited for right away."""
        ranks, call = self.attributes["size"][0].value, spec_of(self.record).short_name
        if ranks == 1:
            return [self.emit("alias", self.operands, types=[type]).result for type in self.types]
        if ranks is None or call not in CALLS or any(self.attributes.get(name) for name in ("dim", "split", "concat")):
            raise ScheduleError(
                f"`{self.record.op}` over `{self.attributes['axis']}` does more than move bytes between ranks",
                span=self.record.span,
                fix="run `graph-split-collectives` first",
            )
        values = {"call": call, "ranks": ranks, **{name: self.attributes[name] for name in ("axis", "purpose")}}
        number = {"number": self.builder.next_collective()}
        started = self.emit("collective_start", self.operands, {**number, **values}, self.types)
        return self.emit("collective_wait", [*self.operands, *started.results], number, self.types).results

    def axis_index(self) -> Sequence[SSAValue]:
        """The index of this rank along an axis of the mesh, which is known at run time."""
        ranks = self.attributes["size"][0].value
        if ranks is None:
            raise ScheduleError(
                f"`{self.record.op}` over `{self.attributes['axis']}` has {self.attributes['size'][0]} ranks, a number "
                "that is not known at compile time",
                span=self.record.span,
                fix="give the axis of the mesh a size",
            )
        values = {"call": "axis_index", "slot": ranks, "text": self.attributes["axis"]}
        return self.emit("callback", (), values, self.types).results

    def call_back(self) -> Sequence[SSAValue]:
        """A call of Python at this point of the program."""
        slot, text = self.attributes.get("slot", -1), self.attributes.get("format", "")
        values = {"call": spec_of(self.record).short_name, "slot": slot, "text": text}
        return self.emit("callback", self.operands, values, self.types).results

    def _with_arguments(self, tape: Tape, count: int, captured: Sequence[SSAValue]) -> Block:
        """The plan of a body whose first inputs are its arguments, and whose others are captured values."""
        block = Block(arg_types=[TensorAttr.of(tape.types[value]) for value in tape.inputs[:count]])
        return self._fill(block, tape, [*block.args, *captured])

    def _fill(self, block: Block, tape: Tape, inputs: Sequence[SSAValue]) -> Block:
        block.add_op(make(DIALECT["yield"], self.builder.fill(block, tape, inputs)))
        return block


class FlowKind(GroupKind):
    """One op that no kernel computes, in its order among others with effects."""

    name = "flow"

    def take(self, groups: Groups, group: Group, number: int) -> None:
        record = groups.tape.records[number]
        groups.order_effects(group, record)
        if "collective" in spec_of(record).effects and record.attributes["size"][0].value != 1:
            groups.collectives.append(group.number)


KIND = FlowKind()
