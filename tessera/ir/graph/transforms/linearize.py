"""Linearize: a program, and beside it the program that is linear in the tangents of its inputs.

The records of the program are copied as they are, so that its bits stay what they were. Beside each, its `jvp` rule
writes how a change of the operands changes the results: records of the same tape, some of which depend on tangents, and
are linear in them by construction (`LinearBuilder` checks each one), while the others are of the program alone. So one
pass gives both modes: forward mode runs the whole tape, reverse mode transposes the linear records (`reverse.py`).

A value that does not depend on any input that is differentiated has no tangent (None), which rules treat as zero;
neither have integers and bools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tessera.diagnostics.codes import DifferentiationError
from tessera.diagnostics.error import Span
from tessera.ir.base.spec import Attributes, OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.derivatives.shared import Applied, jvp_rule
from tessera.ir.graph.ops import REGISTRY, why_no_derivative
from tessera.ir.graph.ops.custom import LINEAR, Step, check_tangent_effects, refuse_forward, rules_of
from tessera.ir.graph.transforms.tape_builder import (
    DerivativeBuilder,
    add_inputs,
    as_values,
    effects_of,
    remove_dead,
    replace_values,
)
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

Tangent = int | None
"""The value that a change of another one is, or None for no change."""


class LinearBuilder(DerivativeBuilder):
    """A builder that knows which values are linear in the tangents, and writes none that would not be."""

    first_rounding = 1 << 31

    def __init__(self, tape: Tape | None = None) -> None:
        super().__init__(tape)
        self.linear: set[int] = set()
        self.replaced: dict[int, int] = {}
        """Results of loops that forward mode runs once, with their tangents, and those of the loops with both."""
        self.forward_span: Span | None = None

    def follow(self, source: Record) -> None:
        """Let what is emitted next come from the line of a record: linear in its tangents, or of its derivative."""
        super().follow(source)
        self.forward_span = source.span

    def append(self, spec: OpSpec, operands: Sequence[int], attributes: Attributes) -> tuple[int, ...]:
        is_linear = not self.linear.isdisjoint(operands)
        # Control flow is split in two ops, of which the one without tangents is the program's own.
        is_forward = not is_linear and bool(spec.region_names)
        if self.forward_span is not None:
            span = self.forward_span
            self.span = span if is_forward else span.with_role("tangent" if is_linear else "derivative")
        if not is_linear:
            return super().append(spec, operands, attributes)
        if spec.transpose is None:
            if spec.decompose is None:
                raise TypeError(f"a `jvp` rule takes `{spec.name}` of a tangent, and it has no `transpose`")
            made = spec.decompose(self, tuple(operands), attributes)
            return as_values(made)
        results = super().append(spec, operands, attributes)
        self.linear.update(results)
        return results


@frozen
class Dual:
    """A value and its tangent."""

    primal: int
    tangent: Tangent


def with_residuals(spec: OpSpec, given: Sequence[Dual]) -> OpSpec:
    """The op that an op is linearized as: where it has tangents, one that gives what its derivative needs too."""
    is_active = any(value.tangent is not None for value in given)
    return REGISTRY[spec.with_residuals] if is_active and spec.with_residuals else spec


class DualBuilder:
    """The builder that `decompose` of an op gets: what it emits is linearized on the way."""

    def __init__(self, linearizer: Linearizer) -> None:
        self._linearizer = linearizer

    def type_of(self, value: Dual) -> TensorType:
        return self._linearizer.builder.type_of(value.primal)

    def emit(self, name: str, *operands: Dual, **attributes: Any) -> Any:
        spec, builder = REGISTRY[name], self._linearizer.builder
        full = spec.complete(attributes, [self.type_of(one) for one in operands])
        count = None if spec.results[-1].endswith("*") else len(spec.results)
        spec = with_residuals(spec, operands)
        results = builder.append(spec, [operand.primal for operand in operands], full)
        tangents = self._linearizer.push(spec, operands, results, full)
        duals = tuple(map(Dual, results, tangents))
        return duals[0] if REGISTRY[name].has_one_result else duals[:count]


class Linearizer:
    """Puts a program on a tape record by record, each with its tangents."""

    def __init__(self, builder: LinearBuilder) -> None:
        self.builder = builder

    def run(self, tape: Tape, operands: Sequence[Dual]) -> list[Dual]:
        """The outputs of a tape on these values, and their tangents."""
        values = dict(zip(tape.inputs, operands, strict=True))
        for record in tape.records:
            given = [values[operand] for operand in record.operands]
            self.builder.follow(record)
            types = [tape.types[result] for result in record.results]
            # An op may have given residuals beside its results.
            values.update(zip(record.results, self._step(record, given, types), strict=False))
        return [values[output] for output in tape.outputs]

    def _step(self, record: Record, given: Sequence[Dual], types: Sequence[TensorType]) -> list[Dual]:
        spec = REGISTRY[record.op]
        is_active = any(value.tangent is not None for value in given)
        if is_active and spec.region_names:
            rule = jvp_rule(spec)
            if rule is not None:
                return rule(self, given, record.attributes)
        operands, spec = [value.primal for value in given], with_residuals(spec, given)
        if spec.name != record.op:
            record, types = replace(record, op=spec.name), self.builder.infer(spec, operands, record.attributes)
        results = self.builder.copy(record, operands, types)
        if not is_active:
            return [Dual(result, None) for result in results]
        return list(map(Dual, results, self.push(spec, given, results, record.attributes)))

    def push(
        self, spec: OpSpec, given: Sequence[Dual], results: Sequence[int], attributes: Attributes
    ) -> Sequence[Tangent]:
        """The tangents of an op's results."""
        b = self.builder
        is_constant = all(value.tangent is None for value in given)
        if is_constant or not any(b.type_of(result).dtype.is_float for result in results):
            return [None] * len(results)
        rule = jvp_rule(spec)
        if rule is not None:
            operands, tangents = [value.primal for value in given], [value.tangent for value in given]
            made = rule(b, Applied(operands, tangents, results, attributes, spec))
            found: list[Tangent] = list(as_values(made))
        elif spec.decompose is not None:
            made = spec.decompose(DualBuilder(self), tuple(given), attributes)
            found = [dual.tangent for dual in as_values(made)]
        else:
            raise self.no_rule(spec)
        return [t if b.type_of(result).dtype.is_float else None for t, result in zip(found, results, strict=True)]

    def no_rule(self, spec: OpSpec) -> DifferentiationError:
        return DifferentiationError(
            f"`{spec.short_name}` has no derivative: {why_no_derivative(spec)}",
            span=self.builder.forward_span,
            fix="wrap its operands in `tessera.stop_gradient` where its result may be taken as constant",
        )


@frozen
class LinearizedTape:
    """A tape with its tangents: `tangents_in` are inputs, `tangents_out` one for each output, None for zero.

    `linear` are the values that depend on tangents. Forward mode reads those that are `replaced` elsewhere.
    """

    tape: Tape
    tangents_in: tuple[int, ...]
    tangents_out: tuple[Tangent, ...]
    linear: frozenset[int]
    replaced: Mapping[int, int]
    rounded: int = 0
    """How many ops drew random bits, in what was linearized before too."""

    def jvp_tape(self) -> Tape:
        """The program from values and tangents to results and their tangents."""
        builder = LinearBuilder(self.tape)
        outputs = list(self.tape.outputs)
        for output, tangent in zip(outputs, self.tangents_out, strict=True):
            made = builder.zeros(self.tape.types[output]) if tangent is None else tangent
            self.tape.outputs.append(made)
        self.merge_loops()
        remove_dead(self.tape)
        run_forward(self.tape)
        return self.tape

    def merge_loops(self) -> None:
        """Leave the loops with tangents alone on the tape, for forward mode: effects of loops happen once."""
        tape, gone = self.tape, self.replaced.keys()
        replace_values(tape, self.replaced)
        tape.records[:] = [record for record in tape.records if not record.results or not gone >= {*record.results}]


def run_forward(tape: Tape) -> None:
    """Put the tangents that a custom function computes in the place of its linear ops, also inside of bodies.

    An op that is there to be transposed, and is nothing but linear, becomes its parts, under the policy of its op.
    Raises DifferentiationError (T0306) for a function that has a rule for reverse mode alone.
    """
    if not any(_has_linear(record) for record in tape.records):
        return
    records, builder, values = list(tape.records), DerivativeBuilder(tape), dict[int, int]()
    tape.records.clear()
    for record in records:
        operands = tuple(values.get(value, value) for value in record.operands)
        if record.op == LINEAR:
            rule = forward_of(record.attributes, record.span)
            values.update(zip(record.results, builder.inline(rule, operands), strict=True))
            continue
        decompose = REGISTRY[record.op].decompose if _is_linear(record) else None
        if decompose is not None:
            builder.follow(record)
            values.update(zip(record.results, as_values(decompose(builder, operands, record.attributes)), strict=True))
            continue
        given = {name: _run_bodies(value) for name, value in record.attributes.items()} if record.bodies else {}
        tape.records.append(replace(record, operands=operands, attributes=given or record.attributes))
    tape.outputs[:] = [values.get(value, value) for value in tape.outputs]


def forward_of(attributes: Attributes, span: Span | None) -> Tape:
    """The program of a `custom_linear` for forward mode, which is run apart from the function.

    Raises DifferentiationError (T0306) where it has none, and where its tangents take a value from another effect.
    """
    rules, name = rules_of(attributes), attributes["function"]
    if "forward" not in rules:
        raise refuse_forward(name, span)
    rule = rules["forward"]
    steps = [
        Step(one.operands, one.results, effects_of(one), one.op.split(".", 1)[1], one.span) for one in rule.records
    ]
    check_tangent_effects(name, steps, rule.inputs[int(attributes["residuals"]) :], rule.outputs)
    return rule


def _is_linear(record: Record) -> bool:
    """Whether an op is there to be transposed, and its `decompose` is what forward mode runs."""
    spec = REGISTRY[record.op]
    return spec.transpose is not None and spec.jvp is None and spec.lower is None and not spec.region_names


def _has_linear(record: Record) -> bool:
    return (
        record.op == LINEAR
        or _is_linear(record)
        or any(_has_linear(inner) for body in record.bodies for inner in body.records)
    )


def _run_bodies(value: Any) -> Any:
    """An attribute with `run_forward` done to copies of the tapes in it."""
    if isinstance(value, tuple):
        return tuple(_run_bodies(one) for one in cast("tuple[Any, ...]", value))
    if not isinstance(value, Tape):
        return value
    made = replace(value, records=list(value.records), outputs=list(value.outputs), types=list(value.types))
    run_forward(made)
    return made


def linearize(tape: Tape, active: Sequence[int], rounded: int = 0) -> LinearizedTape:
    """A tape with its tangents by the inputs of these numbers, which are floats.

    Roundings at random are counted on from `rounded`, those of the program that the tape is a part of.
    """
    builder = LinearBuilder(Tape(guards=list(tape.guards)))
    builder.rounded = rounded
    joint = builder.tape
    joint.promises, joint.functions = dict(tape.promises), list(tape.functions)
    primals = add_inputs(joint, [tape.types[value] for value in tape.inputs], tape.names)
    types = [tape.types[tape.inputs[number]] for number in active]
    tangents = add_inputs(joint, types, [f"tangent of {tape.names[number]}" for number in active])
    builder.linear.update(tangents)
    by_number = dict(zip(active, tangents, strict=True))
    outputs = Linearizer(builder).run(tape, [Dual(value, by_number.get(at)) for at, value in enumerate(primals)])
    joint.outputs = [output.primal for output in outputs]
    found = tuple(output.tangent for output in outputs)
    return LinearizedTape(joint, tuple(tangents), found, frozenset(builder.linear), builder.replaced, builder.rounded)
