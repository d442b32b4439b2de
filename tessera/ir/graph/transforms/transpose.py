"""Transpose: the linear part of a program run backwards, from cotangents of its outputs to those of its inputs.

Each linear record is visited once, last first, when all cotangents of its results are known; its `transpose` rule gives
those of its linear operands. Cotangents that meet in a value are added in the order in which they come, which is fixed
by the program: gradients are the same on every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.facets import Linear, transpose_rule
from tessera.ir.graph.transforms.linearize import LinearizedTape, Tangent
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, remove_dead


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
        builder.follow(record)
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
