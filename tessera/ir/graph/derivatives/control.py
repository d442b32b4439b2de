"""Derivatives of control flow: a body becomes two, one that computes and one that is linear in the tangents.

A `cond` and a `scan` are split so, and the linear one is transposed like any other op: the cotangents of a `scan` run
through its body from the last row to the first. A loop of which nobody knows how often it runs carries its tangents
beside its values: forward mode alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.base.tape import Tape
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, zeros
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.ops.checkpoint import is_saved
from tessera.ir.graph.transforms.linearize import Dual, LinearizedTape, Linearizer, linearize
from tessera.ir.graph.transforms.reverse import KeepCheapest, partition, transpose_tape
from tessera.ir.graph.transforms.tape_builder import DerivativeBuilder, TapeBuilder, add_inputs
from tessera.types.dim import Dim, maximum
from tessera.types.shape import is_at_least


def _active(values: Sequence[Dual]) -> list[int]:
    return [at for at, value in enumerate(values) if value.tangent is not None]


def _duals(results: Sequence[int], tangents: dict[int, int]) -> list[Dual]:
    return [Dual(result, tangents.get(at)) for at, result in enumerate(results)]


# Conditionals.


def cond_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """Two conditionals on one predicate: the second takes what each body of the first kept for it."""
    b = linearizer.builder
    predicate, operands = given[0].primal, given[1:]
    active = _active(operands)
    bodies = [linearize(attributes[name], active) for name in ("then", "otherwise")]
    count = len(attributes["then"].outputs)
    changed = [at for at in range(count) if any(body.tangents_out[at] is not None for body in bodies)]
    choose = KeepCheapest([1] * len(operands), range(count))
    parts = [partition(body, changed, always=changed, choose=choose, shared=range(count)) for body in bodies]
    kept = [[part.primal.types[part.primal.outputs[at]] for at in part.held] for part in parts]
    own = [part.primal.outputs[count:] for part in parts]
    types = [[part.primal.types[value] for value in one] for part, one in zip(parts, own, strict=True)]
    for number, part in enumerate(parts):
        # Each body also gives zeros in place of what the other one keeps.
        builder = TapeBuilder(part.primal)
        others = [builder.zeros(type) for type in types[1 - number]]
        part.primal.outputs[count:] = [*own[0], *others] if number == 0 else [*others, *own[1]]
    primals = [operand.primal for operand in operands]
    bodies_now = {"then": parts[0].primal, "otherwise": parts[1].primal}
    results = b.emit("cond", predicate, *primals, **bodies_now)
    behind = [at if at < count else at + len(own[0]) for at in parts[1].held]
    residuals = [results[at] for at in (*parts[0].held, *behind)]
    tangents = [operands[at].tangent for at in active]
    reads = sorted({at for part in parts for at in part.reads})
    linear = [
        _with_inputs(part.linear, part.reads, reads, kept, number, primals, b) for number, part in enumerate(parts)
    ]
    made = b.emit("cond", predicate, *(primals[at] for at in reads), *residuals, *tangents,
                  then=linear[0], otherwise=linear[1])  # fmt: skip
    return _duals(results[:count], dict(zip(changed, made, strict=True)))


def _with_inputs(
    tape: Tape,
    own: Sequence[int],
    reads: Sequence[int],
    kept: Sequence[Sequence[Any]],
    number: int,
    primals: Any,
    b: Any,
) -> Tape:
    """A linear body that takes all inputs that one of two bodies reads, and the residuals of both."""
    count = len(own)
    mine = dict(zip(own, tape.inputs[:count], strict=True))
    ours = tape.inputs[count : count + len(kept[number])]
    tangents = tape.inputs[count + len(kept[number]) :]
    read = [mine[at] if at in mine else tape.new_value(b.type_of(primals[at])) for at in reads]
    others = [tape.new_value(type) for type in kept[1 - number]]
    tape.inputs = [*read, *(ours if number == 0 else others), *(others if number == 0 else ours), *tangents]
    tape.names = [f"input_{at}" for at in range(len(tape.inputs))]
    return tape


def cond_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """One conditional on the same predicate, whose bodies are those of the first backwards."""
    is_linear = [isinstance(operand, Linear) for operand in operands[1:]]
    bodies = {name: transpose_tape(attributes[name], is_linear) for name in ("then", "otherwise")}
    plain = [operand for operand in operands[1:] if not isinstance(operand, Linear)]
    then: Tape = attributes["then"]
    seeds = _seeds(b, cotangents, then)
    made = iter(b.emit("cond", operands[0], *plain, *seeds, **bodies))
    return (None, *(next(made) if one else None for one in is_linear))


def _seeds(b: Builder, cotangents: Values, body: Tape, types: Sequence[Any] = ()) -> list[Any]:
    """The cotangents of a body's outputs, zeros where there are none."""
    kinds = types or [body.types[output] for output in body.outputs]
    made: list[Any] = []
    for value, type in zip(cotangents, kinds, strict=True):
        made.append(zeros(b, type) if value is None else value)
    return made


# Loops over rows.


def scan_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """Two loops: the first stacks what the second needs of each round."""
    b, body = linearizer.builder, attributes["body"]
    carried, scanned = int(attributes["carried"]), int(attributes["scanned"])
    linearized, active = _linearize_loop(body, given, carried)
    changing = [at for at in active if at < carried]
    wanted = [*changing, *(at for at in range(carried, len(body.outputs)) if linearized.tangents_out[at] is not None)]
    count = len(body.outputs)
    stacked = range(carried, count)
    # Rows are in memory, and what is captured is so once for all trips.
    choose = KeepCheapest([2] * carried + [1] * scanned + [0] * (len(given) - carried - scanned), stacked)
    part = partition(linearized, wanted, range(carried), changing, choose, stacked)
    primals = [value.primal for value in given]
    results = b.emit("scan", *primals, **{**attributes, "body": part.primal})
    residuals = [results[at] for at in part.held]
    tangents = {at: _tangent(b, given[at]) for at in active}
    rows = [at for at in part.reads if at < carried + scanned]
    captured = [at for at in part.reads if at >= carried + scanned]
    row_tangents = [at for at in active if carried <= at < carried + scanned]
    other_tangents = [at for at in active if at >= carried + scanned]
    operands = [
        *(tangents[at] for at in changing),
        *(primals[at] for at in rows), *residuals, *(tangents[at] for at in row_tangents),
        *(primals[at] for at in captured), *(tangents[at] for at in other_tangents),
    ]  # fmt: skip
    tape = part.linear
    places = {("read", at): v for at, v in zip(part.reads, tape.inputs, strict=False)}
    kept = tape.inputs[len(part.reads) : len(part.reads) + len(residuals)]
    places |= {("tangent", at): v for at, v in zip(active, tape.inputs[len(part.reads) + len(kept) :], strict=True)}
    tape.inputs = [
        *(places["tangent", at] for at in changing),
        *(places["read", at] for at in rows), *kept, *(places["tangent", at] for at in row_tangents),
        *(places["read", at] for at in captured), *(places["tangent", at] for at in other_tangents),
    ]  # fmt: skip
    tape.names = [f"input_{at}" for at in range(len(tape.inputs))]
    made = b.emit(
        "scan", *operands, body=tape, carried=len(changing), scanned=len(rows) + len(kept) + len(row_tangents),
        length=_length(b, primals, attributes), reverse=attributes["reverse"],
    )  # fmt: skip
    return _duals(results[:count], dict(zip(part.changes, made, strict=True)))


def _length(b: Builder, primals: Sequence[int], attributes: Attributes) -> tuple[Dim, ...]:
    if attributes["length"]:
        return tuple(attributes["length"])
    return (b.type_of(primals[int(attributes["carried"])]).shape[0],)


def _tangent(b: Any, value: Dual) -> int:
    return b.zeros(b.type_of(value.primal)) if value.tangent is None else value.tangent


def _linearize_loop(
    body: Tape, given: Sequence[Dual], carried: int, first: int = 0
) -> tuple[LinearizedTape, list[int]]:
    """The body with its tangents, and the inputs that have any: a carried value does once the body gives it one.

    Carried are the outputs from number `first` on of what the body takes.
    """
    # Bodies in bodies would be linearized again for each of these trips, so most inputs are found before.
    active = _reach_carried(body, set(_active(given)), carried, first)
    while True:
        ordered = sorted(active)
        linearized = linearize(body, [at + first for at in ordered])
        new = {at for at in range(carried) if linearized.tangents_out[at] is not None} - active
        if not new:
            return linearized, ordered
        active |= new


def _reach_carried(body: Tape, active: set[int], carried: int, first: int) -> set[int]:
    """The inputs with tangents, and the carried floats that depend on them, trip after trip."""
    found = set(active)
    while True:
        values = {body.inputs[first + at] for at in found}
        for record in body.records:
            if not values.isdisjoint(record.operands) and REGISTRY[record.op].jvp != "zero":
                values.update(value for value in record.results if body.types[value].dtype.is_float)
        new = {at for at in range(carried) if body.outputs[at] in values} - found
        if not new:
            return found
        found |= new


def scan_transpose(b: Any, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The loop from its other end: cotangents of what is carried and of captured values run through it."""
    body: Tape = attributes["body"]
    carried, scanned = int(attributes["carried"]), int(attributes["scanned"])
    is_linear = [at < carried or isinstance(operand, Linear) for at, operand in enumerate(operands)]
    back = transpose_tape(body, is_linear)
    plain = [at for at, one in enumerate(is_linear) if not one]
    rows = [at for at in plain if at < carried + scanned]
    captured = [at for at in plain if at >= carried + scanned]
    row_cts = [at for at in range(carried, carried + scanned) if is_linear[at]]
    captured_cts = [at for at in range(carried + scanned, len(operands)) if is_linear[at]]
    length = tuple(attributes["length"]) or (_row_count(b, operands[carried]),)
    out_types = [
        type if at < carried else type.with_shape((length[0], *type.shape))
        for at, type in enumerate(body.types[output] for output in body.outputs)
    ]
    seeds = _seeds(b, cotangents, body, out_types)
    loop = _accumulate(b, back, len(plain), len(rows), carried, len(row_cts))
    sums = [b.zeros(b.accumulator(operands[at].type)) for at in captured_cts]
    made = b.emit(
        "scan", *seeds[:carried], *sums, *(operands[at] for at in rows), *seeds[carried:],
        *(operands[at] for at in captured), body=loop, carried=carried + len(sums),
        scanned=len(rows) + len(seeds) - carried, length=length, reverse=not attributes["reverse"],
    )  # fmt: skip
    cts = {**dict(zip(range(carried), made, strict=False)), **dict(zip(captured_cts, made[carried:], strict=False))}
    cts |= {at: b.convert(cts[at], operands[at].type) for at in captured_cts}
    cts |= dict(zip(row_cts, made[carried + len(sums) :], strict=True))
    return [cts.get(at) if isinstance(operand, Linear) else None for at, operand in enumerate(operands)]


def _row_count(b: Builder, operand: Any) -> Dim:
    return (operand.type if isinstance(operand, Linear) else b.type_of(operand)).shape[0]


def _accumulate(b: DerivativeBuilder, back: Tape, plain: int, rows: int, carried: int, row_cts: int) -> Tape:
    """A transposed body whose inputs and outputs stand as a loop has them, and which adds to running cotangents.

    `back` takes the plain inputs and cotangents of the outputs; it gives cotangents of carried values, rows and
    captured values, in this order.
    """
    builder = DerivativeBuilder(back)
    builder.span, builder.policy, builder.device, builder.region = b.span, b.policy, b.device, b.region
    builder.rounded = 1 << 20  # far from the roundings of `back`, however many it has
    inputs, seeds = back.inputs[:plain], back.inputs[plain:]
    given = list(back.outputs)
    own, by_row, by_capture = given[:carried], given[carried : carried + row_cts], given[carried + row_cts :]
    totals = [back.new_value(builder.accumulator(back.types[value])) for value in by_capture]
    sums = [builder.add_cotangents(total, value) for total, value in zip(totals, by_capture, strict=True)]
    back.inputs = [*seeds[:carried], *totals, *inputs[:rows], *seeds[carried:], *inputs[rows:]]
    back.names = [f"input_{at}" for at in range(len(back.inputs))]
    back.outputs = [*own, *sums, *by_row]
    return back


def linear_recurrence(b: Any, factors: Any, terms: Any, axis: int, *, reverse: bool) -> Any:
    """`y[k] = y[k-1] factors[k] + terms[k]` along an axis, from zero; linear in the terms."""
    type = b.type_of(terms)
    order = (axis, *(own for own in range(type.rank) if own != axis))
    inverse = tuple(order.index(own) for own in range(type.rank))
    rows = [b.emit("transpose", value, axes=order) for value in (factors, terms)]
    row = type.with_shape(tuple(type.shape[own] for own in order[1:]))
    builder = TapeBuilder()
    state, factor, term = add_inputs(builder.tape, [row] * 3, ["state", "factor", "term"])
    new = builder.emit("add", builder.emit("mul", state, factor), term)
    builder.tape.outputs = [new, new]
    start = zeros(b, row)
    given = {"carried": 1, "scanned": 2, "length": (type.shape[axis],), "reverse": reverse}
    _, stacked = b.emit("scan", start, *rows, body=builder.tape, **given)
    return b.emit("transpose", stacked, axes=inverse)


# Loops that count, and loops that end when a condition says so.


def fori_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """A loop over rows of indices where the number of rounds is known; else with its tangents carried along."""
    b = linearizer.builder
    lower, upper, *operands = given
    ends = [known_size(b.tape, value.primal) for value in (lower, upper)]
    if ends[0] is None or ends[1] is None:
        return _carry_tangents(linearizer, given, attributes, "fori", 2)
    carried, body = int(attributes["carried"]), attributes["body"]
    count = ends[1] - ends[0]
    if not is_at_least(count, 0):
        count = maximum(count, 0)
    kind = b.type_of(lower.primal).dtype
    indices = b.emit("add", b.emit("iota", shape=(count,), axis=0, dtype=kind), lower.primal)
    order = [*body.inputs[1 : 1 + carried], body.inputs[0], *body.inputs[1 + carried :]]
    moved = replace(body, inputs=order, names=[f"input_{at}" for at in range(len(order))])
    loop = {"body": moved, "carried": carried, "scanned": 1, "length": (count,), "reverse": False}
    return scan_jvp(linearizer, [*operands[:carried], Dual(indices, None), *operands[carried:]], loop)


def while_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """A loop over so many trips as there are at most, where that is known; else with its tangents carried along."""
    if not attributes["max_trips"]:
        return _carry_tangents(linearizer, given, attributes, "while", 0)
    b = linearizer.builder
    types, carried = [b.type_of(value.primal) for value in given], int(attributes["carried"])
    names = [f"input_{at}" for at in range(len(types))]
    builder, stay = TapeBuilder(), Tape()
    builder.span = b.span
    inputs = add_inputs(builder.tape, types, names)
    stay.outputs = add_inputs(stay, types, names)[:carried]
    # Once the condition is false the state stays what it is, and so does the condition.
    (goes_on,) = builder.inline(attributes["condition"], inputs)
    builder.tape.outputs = list(builder.emit("cond", goes_on, *inputs, then=attributes["body"], otherwise=stay))
    loop = {"body": builder.tape, "carried": carried, "scanned": 0, "reverse": False}
    return scan_jvp(linearizer, given, {**loop, "length": tuple(attributes["max_trips"])})


def _carry_tangents(
    linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes, op: str, first: int
) -> list[Dual]:
    """The loop as it is, and one that carries tangents beside values, which forward mode runs in its place."""
    b, body, carried = linearizer.builder, attributes["body"], int(attributes["carried"])
    ends, operands = given[:first], given[first:]
    # A `fori` body takes the index before what is carried.
    skip = 1 if op == "fori" else 0
    linearized, active = _linearize_loop(body, operands, carried, skip)
    changing = [at for at in active if at < carried]
    primals = [value.primal for value in operands]
    bounds = [value.primal for value in ends]
    results = b.emit(op, *bounds, *primals, **attributes)
    linearized.merge_loops()
    joint = linearized.tape
    count = len(body.inputs)
    tangents = dict(zip(active, joint.inputs[count:], strict=True))
    captured = [at for at in active if at >= carried]
    inside = joint.inputs[skip:count]
    joint.inputs = [
        *joint.inputs[:skip], *inside[:carried], *(tangents[at] for at in changing),
        *inside[carried:], *(tangents[at] for at in captured),
    ]  # fmt: skip
    joint.names = [f"input_{at}" for at in range(len(joint.inputs))]
    builder = TapeBuilder(joint)
    for at in changing:
        tangent = linearized.tangents_out[at]
        joint.outputs.append(builder.zeros(joint.types[joint.outputs[at]]) if tangent is None else tangent)
    more: dict[str, Any] = {"body": joint, "carried": carried + len(changing)}
    if op == "while":
        more["condition"] = _with_more_inputs(attributes["condition"], carried, b, operands, changing, captured)
    values = [
        *bounds, *primals[:carried], *(_tangent(b, operands[at]) for at in changing),
        *primals[carried:], *(_tangent(b, operands[at]) for at in captured),
    ]  # fmt: skip
    made = b.emit(op, *values, **{**attributes, **more})
    b.linear.update(made)
    b.replaced.update(zip(results, made, strict=False))
    return _duals(results, dict(zip(changing, made[carried:], strict=True)))


def _with_more_inputs(
    tape: Tape, carried: int, b: Any, operands: Sequence[Dual], changing: Sequence[int], captured: Sequence[int]
) -> Tape:
    """A condition that is given tangents, and does not look at them."""
    made = replace(tape, types=list(tape.types))
    own = [made.new_value(b.type_of(operands[at].primal)) for at in changing]
    others = [made.new_value(b.type_of(operands[at].primal)) for at in captured]
    made.inputs = [*tape.inputs[:carried], *own, *tape.inputs[carried:], *others]
    made.names = [f"input_{at}" for at in range(len(made.inputs))]
    return made


def loop_transpose(b: Any, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Refused: how often the loop runs is not known, so neither is what its rounds would have to keep."""
    raise DifferentiationError(
        "a loop that ends by a condition has no reverse-mode derivative: nobody knows how many rounds to keep",
        span=b.span,
        fix="say how many trips it makes at most, as in `tessera.while_loop(condition, body, state, max_trips=100)`; "
        "or use `tessera.scan`, `tessera.fori_loop` with bounds that are sizes, or `tessera.jvp`",
    )


def known_size(tape: Tape, value: int) -> Dim | None:
    """The size that a scalar is, where the program says so: a number, or a dim."""
    record = next((record for record in reversed(tape.records) if value in record.results), None)
    if record is None:
        return None
    if record.op == "tgraph.full":
        return Dim.of(int(record.attributes["value"]))
    if record.op == "tgraph.dim_size":
        return Dim.of(record.attributes["dims"][0]) if len(record.attributes["dims"]) == 1 else None
    return known_size(tape, record.operands[0]) if record.op in ("tgraph.cast", "tgraph.reshape") else None


# Checkpointed bodies. The linear one is checkpointed too, and rematerializes what the first does not keep. Backwards
# (`transforms/reverse.py`) it is in place, so that cotangents are added in the order that they have without it, and
# reads what it rematerializes from behind barriers: nothing merges it with what the first computed.


def checkpoint_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """The body with what its policy keeps as further results, and a linear one that takes those."""
    b, body = linearizer.builder, attributes["body"]
    active = _active(given)
    linearized = linearize(body, active, b.rounded)
    b.rounded = linearized.rounded

    def choose(linearized: LinearizedTape, needed: Sequence[int]) -> set[int]:
        return saved_by(attributes["policy"], linearized, needed)

    part = partition(linearized, range(len(body.outputs)), choose=choose)
    primals = [value.primal for value in given]
    results = b.emit("checkpoint", *primals, **{**attributes, "body": part.primal})
    count = len(body.outputs)
    tangents = [given[at].tangent for at in active]
    operands = [*(primals[at] for at in part.reads), *(results[at] for at in part.held), *tangents]
    made = b.emit("checkpoint", *operands, **{**attributes, "body": part.linear}) if part.changes else ()
    return _duals(results[:count], dict(zip(part.changes, made, strict=True)))


def saved_by(policy: Any, linearized: LinearizedTape, needed: Sequence[int]) -> set[int]:
    """The values of a tape that a policy keeps: of those that carry a name, what the name was given to."""
    found = set(needed) if policy[0] == "everything_saveable" else set[int]()
    tape = linearized.tape
    for record in tape.records:
        if linearized.linear.isdisjoint(record.results) and is_saved(policy, record, tape):
            found.update(record.operands if record.op == "tgraph.checkpoint_name" else record.results)
    return found


def checkpoint_transpose(b: Any, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The linear body backwards, which rematerializes on the way."""
    is_linear = [isinstance(operand, Linear) for operand in operands]
    plain = [operand for operand in operands if not isinstance(operand, Linear)]
    body: Tape = attributes["body"]
    made = iter(b.inline(transpose_tape(body, is_linear), [*plain, *_seeds(b, cotangents, body)]))
    return [next(made) if one else None for one in is_linear]


def barrier_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent as it is: what is waited for has no part in the result."""
    return (cotangents[0], *(None for _ in operands[1:]))


def same_jvp(b: Builder, op: Applied) -> Any:
    """The tangent as it is: names, and when something is computed, are for values."""
    return op.tangents[0]
