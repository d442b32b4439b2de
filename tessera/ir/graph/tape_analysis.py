"""What is proved of a tape without xDSL: its effects, and the ranges of its values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tessera.diagnostics.codes import RangeError
from tessera.ir.base.interval import ANYTHING, INF, Interval, IntervalQuery, range_of, round_outward
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY, interval_of
from tessera.types.effect import PURE, Effects

# Effects: a state has the name of the argument that it belongs to.


def tape_effects(tape: Tape) -> Effects:
    """What the records of a tape do, and those of its bodies: `state(cache)` where a state is an argument's.

    A state that the program makes itself has no name.
    """
    return _effects(tape, dict(zip(tape.inputs, map(_owner, tape.names), strict=True)))


def _effects(tape: Tape, owners: Mapping[int, str]) -> Effects:
    found, known = PURE, dict(owners)
    for record in tape.records:
        effects = Effects(REGISTRY[record.op].effects_for(record.attributes))
        if "state" in effects:
            owner = known.get(record.operands[0], "") if record.operands else ""
            known.update(dict.fromkeys(record.results, owner))
            effects = effects.without(["state"]).join([f"state({owner})" if owner else "state"])
        found = found.join(effects)
        for body in bodies_of(record):
            found = found.join(_effects(body, _body_owners(record, body, known)))
        _carry_owners(record, known)
    return found


def _body_owners(record: Record, body: Tape, known: Mapping[int, str]) -> dict[int, str]:
    """The owners of what a body takes: its inputs are the last operands of its op, in order."""
    skipped = len(record.operands) - len(body.inputs)
    operands = record.operands[skipped:] if skipped >= 0 else ()
    return {inner: known[outer] for inner, outer in zip(body.inputs, operands, strict=False) if known.get(outer)}


def _carry_owners(record: Record, known: dict[int, str]) -> None:
    """What control flow carries of a state is still that state."""
    count = record.attributes.get("carried")
    if isinstance(count, int):
        skipped = 2 if record.op.endswith(".fori") else 0
        carried = zip(record.results[:count], record.operands[skipped : skipped + count], strict=True)
        known.update({result: known[start] for result, start in carried if known.get(start)})


def bodies_of(record: Record) -> Iterator[Tape]:
    """The tapes among the attributes of a record."""
    for value in record.attributes.values():
        if isinstance(value, Tape):
            yield value


def _owner(path: str) -> str:
    """The object that a path of a call leads into: `cache.K` belongs to `cache`."""
    owner = path.rpartition(".")[0] or path
    return "" if set(owner) & set("(),{}") else owner


# Ranges: each value is proved to stay in its bounds, refuted, or left unproved.

Bounds = tuple[float, float]


def infer_intervals(tape: Tape, inputs: Mapping[int, Interval]) -> dict[int, Interval]:
    """The interval of every value of a tape; inputs that are not given lie anywhere in their type."""
    known: dict[int, Interval] = {}
    for value in tape.inputs:
        # Nobody says that inputs go to the ends of their type: only what is given counts as reached.
        own = inputs.get(value) or range_of(tape.types[value].dtype).without_reach()
        known[value] = Interval(own.low, own.high, own.may_be_nan, own.is_reached, frozenset((value,)))
    for record in tape.records:
        known.update(zip(record.results, _result_intervals(record, tape, known), strict=True))
    return known


def _result_intervals(record: Record, tape: Tape, known: Mapping[int, Interval]) -> list[Interval]:
    facet = interval_of(REGISTRY[record.op]) or ANYTHING
    types = tuple(tape.types[value] for value in record.operands)
    operands = tuple(known[value] for value in record.operands)
    is_repeated = len(operands) > 1 and len(set(record.operands)) == 1
    found: list[Interval] = []
    for value in record.results:
        result = tape.types[value]
        if facet.rule is None:
            sources = frozenset[int]().union(*(one.sources for one in operands))
            found.append(Interval(-INF, INF, True, False, sources) if result.dtype.is_float else range_of(result.dtype))
            continue
        made = facet.rule(IntervalQuery(operands, types, record.attributes, result, is_repeated))
        made = _mark_nan(made, operands)
        found.append(made if facet.is_exact else round_outward(made, result.dtype))
    return found


def _mark_nan(made: Interval, operands: Sequence[Interval]) -> Interval:
    """What is computed from infinities may be NaN: inf - inf, 0 * inf, inf / inf."""
    if made.may_be_nan or len(operands) < 2:
        return made
    infinite = sum(math.isinf(one.magnitude) for one in operands)
    spans_zero = any(one.low <= 0 <= one.high for one in operands)
    if infinite > 1 or (infinite and spans_zero):
        return Interval(made.low, made.high, True, False, made.sources)
    return made


def find_unproved(tape: Tape, bounded: Bounds | None, inputs: Mapping[str, Bounds]) -> list[int]:
    """The numbers of records whose values intervals do not prove finite and `bounded`.

    Inputs lie where `inputs` says, else in `bounded`. Raises RangeError (T0305) at a value that inputs can bring out.
    """
    known_inputs: dict[int, Interval] = {}
    for value, name in zip(tape.inputs, tape.names, strict=False):
        limits = inputs.get(name, bounded)
        if limits is not None and tape.types[value].dtype.is_float:
            known_inputs[value] = Interval(*limits, is_reached=True)
    known = infer_intervals(tape, known_inputs)
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
    if found.is_within(max(low, largest.low), min(high, largest.high)):
        return True
    # The ends of an interval are moved outward by roundings: what leaves by no more than those is not refuted.
    slack = 8 * dtype.epsilon
    leaves = found.low < low - abs(low) * slack or found.high > high + abs(high) * slack
    if found.is_reached and leaves:
        raise _refute(tape, record, found, known, bounded)
    return False


def _is_literal(tape: Tape, record: Record, value: int) -> bool:
    """Whether a value is a literal of the program: what is computed from it is bounded, not the number itself."""
    is_number = record.op == "tgraph.full" and not tape.types[value].shape and value not in tape.outputs
    return is_number and abs(float(record.attributes["value"])) <= range_of(tape.types[value].dtype).high


def _refute(
    tape: Tape, record: Record, found: Interval, known: Mapping[int, Interval], bounded: Bounds | None
) -> RangeError:
    name, dtype = record.op.split(".", 1)[1], tape.types[record.results[0]].dtype
    notes = tuple(
        f"its operand {_name_of(tape, value)} lies in {known[value]}" for value in dict.fromkeys(record.operands)
    )
    if bounded is None:
        message = f"`{name}` can give {found}, and the largest {dtype} is {range_of(dtype).high:.6g}"
        fix = "scale its operands, clamp them, or compute in a wider dtype"
    else:
        message = f"`{name}` can give {found}, outside of [{bounded[0]:g}, {bounded[1]:g}]"
        fix = "clamp it, or declare tighter `inputs`"
    return RangeError(message, span=record.span, notes=notes, fix=fix)


def _name_of(tape: Tape, value: int) -> str:
    if value in tape.inputs:
        return f"`{tape.names[tape.inputs.index(value)]}`"
    made = next(record for record in tape.records if value in record.results)
    return f"from `{made.op.split('.', 1)[1]}`" + (f" at line {made.span.line}" if made.span else "")
