"""Bounds of values proved over a tape: what stays inside, what can leave, and what nobody can tell."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.diagnostics.codes import RangeError
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.interval import Interval, range_of
from tessera.ir.graph.interval_rules import intervals

Bounds = tuple[float, float]


def unproved(tape: Tape, bounded: Bounds | None, inputs: Mapping[str, Bounds]) -> list[int]:
    """The numbers of records whose values intervals do not prove finite and `bounded`.

    Inputs lie where `inputs` says, else in `bounded`. Raises RangeError (T0305) at a value that inputs can bring out.
    """
    known_inputs: dict[int, Interval] = {}
    for value, name in zip(tape.inputs, tape.names, strict=False):
        limits = inputs.get(name, bounded)
        if limits is not None and tape.types[value].dtype.is_float:
            known_inputs[value] = Interval(*limits, is_reached=True)
    known = intervals(tape, known_inputs)
    return [
        number
        for number, record in enumerate(tape.records)
        if not all(_is_proved(tape, record, value, known, bounded) for value in record.results)
    ]


def _is_proved(tape: Tape, record: Record, value: int, known: Mapping[int, Interval], bounded: Bounds | None) -> bool:
    dtype = tape.types[value].dtype
    if not dtype.is_float or _is_literal(tape, record, value):
        return True
    largest, found = range_of(dtype), known[value]
    low, high = bounded or (largest.low, largest.high)
    if found.within(max(low, largest.low), min(high, largest.high)):
        return True
    # The ends of an interval are moved outward by roundings: what leaves by no more than those is not refuted.
    slack = 8 * dtype.epsilon
    leaves = found.low < low - abs(low) * slack or found.high > high + abs(high) * slack
    if found.is_reached and leaves:
        raise _refuted(tape, record, found, known, bounded)
    return False


def _is_literal(tape: Tape, record: Record, value: int) -> bool:
    """Whether a value is a number that stands in the program: what comes of it is bounded, not the number itself."""
    is_number = record.op == "tgraph.full" and not tape.types[value].shape and value not in tape.outputs
    return is_number and abs(float(record.attributes["value"])) <= range_of(tape.types[value].dtype).high


def _refuted(
    tape: Tape, record: Record, found: Interval, known: Mapping[int, Interval], bounded: Bounds | None
) -> RangeError:
    name, dtype = record.op.split(".", 1)[1], tape.types[record.results[0]].dtype
    notes = tuple(
        f"its operand {_named(tape, value)} lies in {known[value]}" for value in dict.fromkeys(record.operands)
    )
    if bounded is None:
        message = f"`{name}` can give {found}, and the largest {dtype} is {range_of(dtype).high:.6g}"
        fix = "scale its operands, clamp them, or compute in a wider dtype"
    else:
        message = f"`{name}` can give {found}, outside of [{bounded[0]:g}, {bounded[1]:g}]"
        fix = "clamp it, or declare tighter `inputs`"
    return RangeError(message, span=record.span, notes=notes, fix=fix)


def _named(tape: Tape, value: int) -> str:
    if value in tape.inputs:
        return f"`{tape.names[tape.inputs.index(value)]}`"
    made = next(record for record in tape.records if value in record.results)
    return f"from `{made.op.split('.', 1)[1]}`" + (f" at line {made.span.line}" if made.span else "")
