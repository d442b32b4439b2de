"""Reverse mode: the linear part of a program apart from the rest, and run backwards.

Each linear record is visited once, last first, when all cotangents of its results are known; its `transpose` rule gives
those of its linear operands. Cotangents that come together in a value are added in the order in which they come, which
is fixed by the program: gradients are the same on every run.

A body of control flow becomes two, one that computes and one that is linear in the tangents. What the second needs of
the first it gets in one of three ways: an input of the body is read again, a value that depends on nothing (a number,
an `iota`) is made again, and all else is a residual, one more output of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.derivatives.shared import Linear, transpose_rule
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.linearize import LinearizedTape, Tangent
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, remove_dead
from tessera.types.frozen import frozen


def transpose_records(
    builder: TapeBuilder, records: Sequence[Record], linear: frozenset[int], cotangents: Mapping[int, int]
) -> dict[int, int]:
    """The cotangents of all linear values, from those of some of them."""
    found = dict(cotangents)
    for record in reversed(records):
        given = [found.get(result) for result in record.results]
        if linear.isdisjoint(record.results) or all(one is None for one in given):
            continue
        spec = REGISTRY[record.op]
        rule = transpose_rule(spec)
        assert rule is not None, f"`LinearBuilder` let `{spec.name}` pass, which has no `transpose`"
        builder.follow(record if record.span is None else replace(record, span=record.span.as_backward()))
        operands = [Linear(builder.type_of(value)) if value in linear else value for value in record.operands]
        for value, made in zip(record.operands, rule(builder, given, operands, record.attributes), strict=True):
            if made is not None and value in linear:
                found[value] = made if value not in found else builder.emit("add", found[value], made)
    return found


def vjp_tape(linearized: LinearizedTape, seeds: Sequence[Tangent] | None = None) -> Tape:
    """The program from inputs and cotangents of outputs to outputs and cotangents of the inputs differentiated by.

    Cotangents are inputs, one for each float output, unless `seeds` are values of the tape.
    """
    tape, linear = linearized.tape, linearized.linear
    tape.inputs, tape.names = _without(tape, frozenset(linearized.tangents_in))
    builder = TapeBuilder(tape)
    records = list(tape.records)
    tape.records[:] = [record for record in records if linear.isdisjoint(record.results)]
    if seeds is None:
        floats = [output for output in tape.outputs if tape.types[output].dtype.is_float]
        made = iter(add_inputs(tape, [tape.types[v] for v in floats], [f"cotangent_{at}" for at in range(len(floats))]))
        seeds = [next(made) if tape.types[output].dtype.is_float else None for output in tape.outputs]
    given: dict[int, int] = {}
    for tangent, seed in zip(linearized.tangents_out, seeds, strict=True):
        if tangent is not None and seed is not None:
            given[tangent] = seed if tangent not in given else builder.emit("add", given[tangent], seed)
    found = transpose_records(builder, records, linear, given)
    for value in linearized.tangents_in:
        tape.outputs.append(found[value] if value in found else builder.zeros(tape.types[value]))
    remove_dead(tape)
    return tape


def _without(tape: Tape, dropped: frozenset[int]) -> tuple[list[int], list[str]]:
    kept = [(value, name) for value, name in zip(tape.inputs, tape.names, strict=True) if value not in dropped]
    return [value for value, _ in kept], [name for _, name in kept]


@frozen
class Partition:
    """A body that computes and one that is linear.

    `primal` gives the outputs of the body and then the residuals; `linear` takes the inputs `reads`, the residuals
    and the tangents, and gives the tangents of the outputs `changes`.
    """

    primal: Tape
    linear: Tape
    reads: tuple[int, ...]
    residuals: tuple[int, ...]
    changes: tuple[int, ...]


def partition(
    linearized: LinearizedTape, wanted: Sequence[int], kept: Sequence[int] = (), always: Sequence[int] = ()
) -> Partition:
    """The two bodies; the linear one gives tangents of the outputs `wanted` that change, and of all `always`.

    Inputs with the numbers `kept` are residuals where they are read: a loop changes them from round to round.
    """
    joint, linear_values = linearized.tape, linearized.linear
    changes = tuple(at for at in wanted if linearized.tangents_out[at] is not None or at in always)
    builder = TapeBuilder()
    tape = builder.tape
    primal_inputs = [value for value in joint.inputs if value not in linearized.tangents_in]
    numbers = {value: at for at, value in enumerate(primal_inputs)}
    linear_records = [record for record in joint.records if not linear_values.isdisjoint(record.results)]
    sources = {
        v: r for r in joint.records for v in r.results if not r.operands and len(r.results) == 1 and not r.bodies
    }
    needed = _live(linear_records, [linearized.tangents_out[at] for at in changes])
    used = [v for record in needed for v in record.operands if v not in linear_values]
    used = [value for value in dict.fromkeys(used) if value not in sources]
    reads = [value for value in used if value in numbers and numbers[value] not in kept]
    residuals = [value for value in used if value not in reads]
    values: dict[int, int] = {}
    for group, label in ((reads, "input"), (residuals, "residual"), (linearized.tangents_in, "tangent")):
        made = add_inputs(tape, [joint.types[v] for v in group], [f"{label}_{at}" for at in range(len(group))])
        values.update(zip(group, made, strict=True))
    for record in needed:
        for value in record.operands:
            if value in sources and value not in values:
                (values[value],) = builder.copy(sources[value], (), [joint.types[value]])
        made = builder.copy(record, [values[v] for v in record.operands], [joint.types[v] for v in record.results])
        values.update(zip(record.results, made, strict=True))
    for at in changes:
        tangent = linearized.tangents_out[at]
        tape.outputs.append(builder.zeros(joint.types[joint.outputs[at]]) if tangent is None else values[tangent])
    primal = Tape(
        inputs=primal_inputs,
        names=[name for value, name in zip(joint.inputs, joint.names, strict=True) if value in numbers],
        records=[record for record in joint.records if linear_values.isdisjoint(record.results)],
        outputs=[*joint.outputs, *residuals],
        types=joint.types,
        guards=joint.guards,
    )
    remove_dead(primal)
    return Partition(primal, tape, tuple(numbers[v] for v in reads), tuple(residuals), changes)


def _live(records: Sequence[Record], outputs: Sequence[int | None]) -> list[Record]:
    """The records that some outputs depend on."""
    needed = {value for value in outputs if value is not None}
    kept: list[Record] = []
    for record in reversed(records):
        if not needed.isdisjoint(record.results):
            needed.update(record.operands)
            kept.append(record)
    return kept[::-1]


def transpose_tape(tape: Tape, is_linear: Sequence[bool]) -> Tape:
    """A tape that is linear in some inputs, backwards: from the others and cotangents of all outputs, to cotangents."""
    builder = TapeBuilder()
    made = builder.tape
    plain = [value for value, one in zip(tape.inputs, is_linear, strict=True) if not one]
    given = [value for value, one in zip(tape.inputs, is_linear, strict=True) if one]
    linear = set(given)
    inputs = add_inputs(made, [tape.types[v] for v in plain], [f"input_{at}" for at in range(len(plain))])
    values = dict(zip(plain, inputs, strict=True))
    types = [tape.types[value] for value in tape.outputs]
    seeds = add_inputs(made, types, [f"cotangent_{at}" for at in range(len(types))])
    # The values of the tape are kept under their own numbers: its records are read, and not copied.
    offset = len(made.types)
    made.types += tape.types
    records: list[Record] = []
    for record in tape.records:
        if linear.isdisjoint(record.operands):
            results = builder.copy(
                record, [values[v] for v in record.operands], [tape.types[v] for v in record.results]
            )
            values.update(zip(record.results, results, strict=True))
            continue
        linear.update(record.results)
        records.append(record)
    for value in linear:
        values[value] = offset + value
    shifted = [
        replace(r, operands=tuple(values[v] for v in r.operands), results=tuple(offset + v for v in r.results))
        for r in records
    ]
    cotangents: dict[int, int] = {}
    for output, seed in zip(tape.outputs, seeds, strict=True):
        if output in linear:
            at = offset + output
            cotangents[at] = seed if at not in cotangents else builder.emit("add", cotangents[at], seed)
    found = transpose_records(builder, shifted, frozenset(offset + value for value in linear), cotangents)
    for value in given:
        at = offset + value
        made.outputs.append(found[at] if at in found else builder.zeros(tape.types[value]))
    remove_dead(made)
    return made
