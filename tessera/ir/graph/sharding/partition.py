"""Partitioning: the program of one rank from that of all, one mesh axis after the other.

The program is written for whole tensors. Along each axis a plan says which part of each op a rank computes and which
collectives convert values; the program that comes out is again one of whole tensors to the next axis, which sees the
collectives of the first as ops like others. Sums over a cut axis are divided by sizes of the whole, since composite ops
(means, variances) are decomposed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.diagnostics.codes import ShardingError
from tessera.diagnostics.error import Span, format_count
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.passes.canonicalize import Canonicalize
from tessera.ir.graph.passes.decompose import Decompose
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.passes.fold_constants import FoldConstants
from tessera.ir.graph.passes.inline_checkpoints import InlineCheckpoints
from tessera.ir.graph.passes.inline_custom import InlineCustom
from tessera.ir.graph.passes.resolve_placeholders import ResolvePlaceholders
from tessera.ir.graph.sharding.factors import cut_type, local_attributes
from tessera.ir.graph.sharding.insertion import (
    ANY,
    TERMS,
    WHOLE,
    AxisPlan,
    AxisProgram,
    Conversion,
    Costs,
    plan_axis,
    refuse_terms,
)
from tessera.ir.graph.sharding.propagate import CONSTRAINT, Conflict, ProgramRules, Propagation
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, remove_dead
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType
from tessera.types.sharding import Sharding

PASSES = (
    # As in the pipeline of the stage, up to where every op has a lowering.
    ResolvePlaceholders,
    InlineCustom,
    InlineCheckpoints,
    Canonicalize,
    EliminateCommon,
    Decompose,
    Canonicalize,
    FoldConstants,
    EliminateCommon,
)


def lower_composites(tape: Tape) -> Tape:
    """A tape of ops that have a lowering, control flow and effects alone; it computes the same."""
    module = from_tape(tape)
    for make in PASSES:
        make().run(module)
    (function,) = [op for op in module.ops if isinstance(op, SpecOp)]
    made = to_tape(function)
    made.promises, made.functions, made.guards = dict(tape.promises), tape.functions, list(tape.guards)
    return made


@frozen
class InsertedCollective:
    """A collective that partitioning put in: what it converts, along which axis, and the bytes a rank sends."""

    call: str
    axis: str
    value: str
    before: str
    after: str
    bytes: int
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.call} over {self.axis} of `{self.value}`, {self.before} to {self.after}: {self.bytes} bytes"


@frozen
class PartitionReport:
    """The sharding of each value by name, collectives in order, conflicts, and what ran whole for lack of a rule."""

    mesh: Mapping[str, int]
    inputs: tuple[tuple[str, Sharding], ...]
    outputs: tuple[Sharding, ...]
    values: tuple[tuple[str, Sharding], ...]
    collectives: tuple[InsertedCollective, ...]
    conflicts: tuple[Conflict, ...]
    whole: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """What a rank sends in all."""
        return sum(one.bytes for one in self.collectives)

    def __str__(self) -> str:
        axes = ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        count = format_count(len(self.collectives), "collective")
        lines = [f"partitioned over mesh({axes}): {count}, a rank sends {format_count(self.bytes, 'byte')}"]
        lines += [f"  argument {name}: {sharding}" for name, sharding in self.inputs]
        lines += [f"  value {name}: {sharding}" for name, sharding in self.values]
        lines += [f"  result {at}: {sharding}" for at, sharding in enumerate(self.outputs)]
        lines += [f"  {one}" for one in self.collectives]
        lines += [f"  conflict: {one}" for one in self.conflicts]
        lines += [f"  on whole operands: {', '.join(self.whole)}"] if self.whole else []
        return "\n".join(lines)

    __repr__ = __str__


def partition_tape(
    tape: Tape,
    mesh: Mapping[str, int],
    inputs: Sequence[Sharding | None],
    outputs: Sequence[Sharding | None] = (),
    costs: Costs | None = None,
) -> tuple[Tape, PartitionReport]:
    """One rank's program of a tape without composite ops, and what was done; None leaves a sharding to propagation.

    Raises ShardingError (T0307) where a tensor cannot be sharded as asked.
    """
    _refuse_collectives(tape)
    given = _collect_given(tape, inputs, outputs)
    rules = ProgramRules(tape)
    found = Propagation(tape, mesh, given, rules)
    wanted_in = [found.shardings[value] for value in tape.inputs]
    wanted_out = [
        found.shardings[value] if at >= len(outputs) or outputs[at] is None else outputs[at]
        for at, value in enumerate(tape.outputs)
    ]
    made, collectives = tape, list[InsertedCollective]()
    for axis, ranks in mesh.items():
        if ranks > 1:
            one_axis = _OneAxis(made, axis, ranks, costs or Costs())
            made = one_axis.run(wanted_in, [one for one in wanted_out if one is not None])
            collectives += one_axis.collectives
    made = _without_constraints(made)
    remove_dead(made)
    whole = sorted(
        {record.op.partition(".")[2] for record, rule in zip(tape.records, rules.rules, strict=True) if rule is None}
    )
    report = PartitionReport(
        dict(mesh),
        tuple(zip(tape.names, wanted_in, strict=True)),
        tuple(one for one in wanted_out if one is not None),
        tuple((rules.names[v], found.shardings[v]) for record in tape.records for v in record.results),
        tuple(collectives),
        found.conflicts,
        tuple(whole),
    )
    return made, report


def _refuse_collectives(tape: Tape) -> None:
    """Raise where the program, or a body in it, communicates by itself."""
    for record in tape.records:
        for body in record.bodies:
            _refuse_collectives(body)
        spec = REGISTRY[record.op]
        if "collective" in spec.effects or spec.short_name in ("axis_index", "replicated"):
            raise ShardingError(
                f"`{spec.short_name}` over mesh axis `{record.attributes['axis']}` is in a program for whole tensors",
                span=record.span,
                notes=("rule: in such a program tensors have the sizes of all ranks, and the compiler communicates",),
                fix="leave it out, or write what one rank does without `partition`",
            )


def _collect_given(
    tape: Tape, inputs: Sequence[Sharding | None], outputs: Sequence[Sharding | None]
) -> dict[int, Sharding]:
    """The shardings that somebody gave; an output that is an input, or is there twice, has that of the first."""
    given = {value: one for value, one in zip(tape.inputs, inputs, strict=False) if one is not None}
    for value, one in zip(tape.outputs, outputs, strict=False):
        if one is not None:
            given.setdefault(value, one)
    return given


def state_of(sharding: Sharding, axis: str) -> str:
    """The state of a value along one axis."""
    dim = sharding.dim_of(axis)
    return f"S{dim}" if dim is not None else f"{TERMS}sum" if axis in sharding.partial else WHOLE


class _OneAxis:
    """Rewrites a tape for one axis of the mesh."""

    def __init__(self, tape: Tape, axis: str, ranks: int, costs: Costs) -> None:
        self.tape, self.axis, self.ranks = tape, axis, ranks
        self.rules = ProgramRules(tape)
        self.program = AxisProgram(tape, ranks, costs, self.rules)
        self.builder = TapeBuilder(Tape(guards=list(tape.guards)))
        self.values: dict[tuple[int, str], int] = {}
        self.collectives: list[InsertedCollective] = []

    def run(self, inputs: Sequence[Sharding], outputs: Sequence[Sharding]) -> Tape:
        """The program of one rank along the axis."""
        tape = self.tape
        states = {value: state_of(one, self.axis) for value, one in zip(tape.inputs, inputs, strict=True)}
        ending = [state_of(one, self.axis) for one in outputs]
        # A value that is two outputs in different states is converted to one of them, and then to the others: terms
        # first, since nothing is converted to them.
        wanted = sorted(zip(tape.outputs, ending, strict=True), key=lambda pair: pair[1][0] != TERMS)
        fixed = dict(reversed(wanted))
        fixed |= {
            record.results[0]: state_of(Sharding.parse(record.attributes["sharding"]), self.axis)
            for record in tape.records
            if record.op == CONSTRAINT
        }
        ends = {value: one.only(self.axis) for value, one in zip(tape.outputs, outputs, strict=True)}
        starts = {value: one.only(self.axis) for value, one in zip(tape.inputs, inputs, strict=True)}
        found = Propagation(tape, {self.axis: self.ranks}, {**ends, **starts}, self.rules, is_part=True)
        expected = {value: state_of(one, self.axis) for value, one in found.shardings.items()}
        plan = plan_axis(self.program, states, fixed, expected)
        types = [self._part(value, states[value]) for value in tape.inputs]
        made = add_inputs(self.builder.tape, types, tape.names)
        self.values.update({(value, states[value]): new for value, new in zip(tape.inputs, made, strict=True)})
        self._write(plan)
        for value, state in zip(tape.outputs, ending, strict=True):
            self._have(value, state)
        self.builder.tape.outputs = [self.values[pair] for pair in zip(tape.outputs, ending, strict=True)]
        self.builder.tape.promises, self.builder.tape.functions = dict(tape.promises), list(tape.functions)
        return self.builder.tape

    def _write(self, plan: AxisPlan) -> None:
        for at, record in enumerate(self.tape.records):
            self.builder.follow(record)
            for conversion in plan.conversions[at]:
                self._convert(conversion, record.span)
            strategy = plan.strategies[at]
            operands = [
                self._any(value) if state == ANY else self.values[value, state]
                for value, state in zip(record.operands, strategy.operands, strict=True)
            ]
            results = self._emit(at, record, operands, strategy.cut)
            for value, state, new in zip(record.results, strategy.results, results, strict=True):
                self.values[value, state] = new
        for conversion in plan.ending:
            self._convert(conversion, None)

    def _any(self, value: int) -> int:
        return next(new for (own, _), new in self.values.items() if own == value)

    def _have(self, value: int, state: str) -> None:
        """Convert a value to a state that its plan did not ask for: a second output of it."""
        if (value, state) in self.values:
            return
        sources = [own for other, own in self.values if other == value]
        ways = [self.program.convert(value, source, state) for source in sources]
        found = [way for way in ways if way is not None]
        if not found:
            raise refuse_terms(self.program, value)
        self._convert(min(found, key=self.program.price), None)

    def _part(self, value: int, state: str) -> TensorType:
        """The type of a value in a state."""
        type = self.tape.types[value]
        if state[0] != "S":
            return type
        axis = int(state[1:])
        size = type.shape[axis].value
        assert size is not None
        return type.with_shape(
            Dim.constant(size // self.ranks) if own == axis else dim for own, dim in enumerate(type.shape)
        )

    def _emit(self, at: int, record: Record, operands: Sequence[int], cut: int | None) -> tuple[int, ...]:
        """The record on parts."""
        types = [self.tape.types[value] for value in record.results]
        rule = self.rules.rules[at]
        if cut is None or rule is None:
            # Along this axis everything has the shape it had; a constraint on a part has that of its part.
            same = [self.builder.type_of(operands[0])] if record.op == CONSTRAINT else types
            return self.builder.copy(record, operands, same)
        parts = [cut_type(type, dims, {cut: self.ranks}) for type, dims in zip(types, rule.results, strict=True)]
        first = self.tape.types[record.operands[0]] if record.operands else None
        attributes = local_attributes(
            REGISTRY[record.op],
            record.attributes,
            {"operand": first, "result": types[0]},
            {"operand": self.builder.type_of(operands[0]) if operands else None, "result": parts[0]},
        )
        made = self.builder.append(REGISTRY[record.op], operands, attributes)
        for new, part in zip(made, parts, strict=True):
            assert self.builder.type_of(new) == part, (record.op, str(self.builder.type_of(new)), str(part))
        return made

    def _convert(self, conversion: Conversion, span: Span | None) -> None:
        value, source, target = conversion.value, conversion.source, conversion.target
        if (value, target) in self.values:
            return
        b, given = self.builder, self.values[value, source]
        mesh: dict[str, Any] = {"axis": self.axis, "size": (Dim.constant(self.ranks),)}
        into = int(target[1:]) if target[0] == "S" else 0
        match conversion.call:
            case "all_reduce":
                made = b.emit("all_reduce", given, op=source[1:], **mesh)
            case "reduce_scatter":
                made = b.emit("reduce_scatter", given, op=source[1:], dim=into, **mesh)
            case "all_gather":
                made = b.emit("all_gather", given, dim=int(source[1:]), **mesh)
            case "all_to_all":
                made = b.emit("all_to_all", given, split=into, concat=int(source[1:]), **mesh)
            case _:
                made = self._slice(given, into, mesh)
        self.values[value, target] = made
        if conversion.call != "slice":
            name = self.rules.names[value]
            facts = conversion.call, self.axis, name, source, target, conversion.bytes, span
            self.collectives.append(InsertedCollective(*facts))

    def _slice(self, value: int, axis: int, mesh: Mapping[str, Any]) -> int:
        """The part of this rank of a value that every rank has: at its position among equal parts of an axis."""
        b, shape = self.builder, self.builder.type_of(value).shape
        size = shape[axis].value
        assert size is not None
        parts = (Dim.constant(self.ranks), Dim.constant(size // self.ranks))
        apart = b.emit("reshape", value, shape=(*shape[:axis], *parts, *shape[axis + 1 :]))
        return b.emit("index_legal", apart, b.emit("axis_index", **mesh), axes=(axis,), out_axis=axis)


def _without_constraints(tape: Tape) -> Tape:
    """The tape without the ops that say how their operand is sharded, which hold for whole tensors."""
    names: dict[int, int] = {}
    records: list[Record] = []
    for record in tape.records:
        operands = tuple(names.get(value, value) for value in record.operands)
        if record.op == CONSTRAINT:
            names[record.results[0]] = operands[0]
            continue
        records.append(replace(record, operands=operands))
    return replace(tape, records=records, outputs=[names.get(value, value) for value in tape.outputs])
