"""Control flow over traced bodies: cond, while, fori, scan.

A body takes the carried values first and then captured values, which it may read and not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, static
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import KEEP, Attribute, Attributes, Builder, InferContext, OpSpec
from tessera.ir.base.tape import Tape
from tessera.ir.graph.building import Types, constant, size_value
from tessera.types.dim import Dim
from tessera.types.dtype import i64
from tessera.types.shape import TensorType, equal_dims, is_refuted, path

Body: TypeAlias = "Callable[..., tuple[Array, ...]]"
"""A tape as a reference sees it."""


def types_of(tape: Tape, values: Sequence[int]) -> list[TensorType]:
    """The types of values of a tape."""
    return [tape.types[value] for value in values]


def check_same_types(ctx: InferContext, op: str, what: str, given: Types, wanted: Types) -> None:
    """Raises at the first value whose type is not the one it must have; dims that may be equal are guarded."""
    if len(given) != len(wanted):
        raise ctx.fail(f"`{op}`: {what} has {len(given)} values where {len(wanted)} are needed")
    for number, (left, right) in enumerate(zip(given, wanted, strict=True)):
        if left.dtype is not right.dtype:
            raise ctx.fail_dtype(
                f"`{op}`: value {number} of {what} is {left}, and must be {right}",
                help=f"cast it, as in `x.cast({right.dtype})`",
            )
        refuted = left.rank != right.rank or any(map(is_refuted, left.shape, right.shape))
        if refuted:
            raise ctx.fail(f"`{op}`: value {number} of {what} is {left}, and must be {right}")
        for axis, (own, other) in enumerate(zip(left.shape, right.shape, strict=True)):
            equal_dims(ctx, op, own, other, f"{path(f'value {number} of {what}', axis, own)} and {other}")


def _scalar(ctx: InferContext, op: str, name: str, value: TensorType, kind: str) -> None:
    wanted = value.dtype.is_bool if kind == "bool" else value.dtype.is_integer
    if value.rank or not wanted:
        raise ctx.fail(f"`{op}` needs one {kind} as {name}, got {value}")


def _check_carried(ctx: InferContext, op: str, types: Types, count: int) -> Types:
    if not 0 <= count <= len(types):
        raise ctx.fail(f"`{op}` carries {count} of {len(types)} operands")
    return types[:count]


def check_body(ctx: InferContext, op: str, what: str, tape: Tape, operands: Types) -> Types:
    """The types of what a body gives that must take what an op is given."""
    check_same_types(ctx, op, f"what {what} takes", types_of(tape, tape.inputs), operands)
    return types_of(tape, tape.outputs)


def _infer_cond(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    predicate, *operands = types
    _scalar(ctx, "cond", "its predicate", predicate, "bool")
    then, otherwise = attributes["then"], attributes["otherwise"]
    for name, tape in (("the first branch", then), ("the second branch", otherwise)):
        check_same_types(ctx, "cond", f"what {name} takes", types_of(tape, tape.inputs), operands)
    results = types_of(then, then.outputs)
    check_same_types(ctx, "cond", "what the second branch gives", types_of(otherwise, otherwise.outputs), results)
    return results


def _infer_size_cond(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    then, otherwise = attributes["then"], attributes["otherwise"]
    results = check_body(ctx, "size_cond", "the first branch", then, types)
    given = check_body(ctx, "size_cond", "the second branch", otherwise, types)
    check_same_types(ctx, "size_cond", "what the second branch gives", given, results)
    return results


def size_cond_reference(*operands: Array, size: Dim, then: Body, otherwise: Body) -> tuple[Array, ...]:
    """One branch runs."""
    return tuple((then if static(size) > 0 else otherwise)(*operands))


def cond_reference(predicate: Array, *operands: Array, then: Body, otherwise: Body) -> tuple[Array, ...]:
    """One branch runs."""
    return tuple((then if bool(predicate) else otherwise)(*operands))


def _infer_while(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    carried = _check_carried(ctx, "while", types, attributes["carried"])
    condition, body = attributes["condition"], attributes["body"]
    for name, tape in (("the condition", condition), ("the body", body)):
        check_same_types(ctx, "while", f"what {name} takes", types_of(tape, tape.inputs), types)
    tested = types_of(condition, condition.outputs)
    if len(tested) != 1:
        raise ctx.fail(f"the condition of `while` gives {len(tested)} values, not one bool")
    _scalar(ctx, "while", "its condition", tested[0], "bool")
    check_same_types(ctx, "while", "what the body gives", types_of(body, body.outputs), carried)
    limit = attributes["max_trips"]
    if len(limit) > 1 or any((Dim.of(most).value or 0) < 0 for most in limit):
        raise ctx.fail(f"`while` takes one number from 0 as `max_trips`, got {', '.join(map(str, limit))}")
    return carried


def while_reference(
    *operands: Array, condition: Body, body: Body, carried: int, max_trips: Sequence[Dim] = ()
) -> tuple[Array, ...]:
    """The body runs as long as the condition holds, which is asked first, and `max_trips` times at most."""
    values, captured = operands[:carried], operands[carried:]
    trips = 0
    while (not max_trips or trips < static(max_trips[0])) and bool(condition(*values, *captured)[0]):
        values, trips = body(*values, *captured), trips + 1
    return tuple(values)


def _count_trips(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """A loop that counts its trips in one more carried value, and ends at the last one; None where none is."""
    if not attributes["max_trips"]:
        return None
    from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs  # noqa: PLC0415 - it needs all ops

    carried, counter = int(attributes["carried"]), TensorType((), i64)
    types = [b.type_of(operand) for operand in operands]
    made: dict[str, Tape] = {}
    for name in ("condition", "body"):
        builder = TapeBuilder()
        trips, *given = add_inputs(builder.tape, [counter, *types], [f"input_{at}" for at in range(1 + len(types))])
        results = builder.inline(attributes[name], given)
        if name == "condition":
            goes_on = builder.emit("lt", trips, size_value(builder, attributes["max_trips"][0]))
            builder.tape.outputs = [builder.emit("logical_and", goes_on, results[0])]
        else:
            builder.tape.outputs = [builder.emit("add", trips, constant(builder, 1, i64)), *results]
        made[name] = builder.tape
    results = b.emit("while", constant(b, 0, i64), *operands, **made, carried=carried + 1)
    return tuple(results[1:])


def _infer_fori(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    lower, upper, *operands = types
    _scalar(ctx, "fori", "its lower bound", lower, "integer")
    _scalar(ctx, "fori", "its upper bound", upper, "integer")
    check_same_types(ctx, "fori", "its bounds", [upper], [lower])
    carried = _check_carried(ctx, "fori", operands, attributes["carried"])
    body = attributes["body"]
    check_same_types(ctx, "fori", "what the body takes", types_of(body, body.inputs), [lower, *operands])
    check_same_types(ctx, "fori", "what the body gives", types_of(body, body.outputs), carried)
    return carried


def fori_reference(lower: Array, upper: Array, *operands: Array, body: Body, carried: int) -> tuple[Array, ...]:
    """The body runs with each index from `lower` up to and without `upper`."""
    values, captured = operands[:carried], operands[carried:]
    for index in range(int(lower), int(upper)):
        values = body(np.array(index, lower.dtype), *values, *captured)
    return tuple(values)


def _infer_scan(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    count, scanned, body = int(attributes["carried"]), int(attributes["scanned"]), attributes["body"]
    carried = _check_carried(ctx, "scan", types, count)
    if not 0 <= scanned <= len(types) - count:
        raise ctx.fail(f"`scan` runs over {scanned} of {len(types) - count} operands")
    length: Dim | None = Dim.of(attributes["length"][0]) if attributes["length"] else None
    rows: list[TensorType] = []
    for number, x in enumerate(types[count : count + scanned]):
        if not x.rank:
            raise ctx.fail(f"`scan` runs over the first axis of its inputs, and input {number} is a scalar")
        what = f"{path(f'input {number}', 0, x.shape[0])} and the length {length}"
        length = x.shape[0] if length is None else equal_dims(ctx, "scan", x.shape[0], length, what)
        rows.append(x.with_shape(x.shape[1:]))
    if length is None:
        raise ctx.fail("`scan` over nothing needs `length`", help="say how often the body runs")
    taken = [*carried, *rows, *types[count + scanned :]]
    check_same_types(ctx, "scan", "what the body takes", types_of(body, body.inputs), taken)
    given = types_of(body, body.outputs)
    if len(given) < count:
        raise ctx.fail(f"the body of `scan` gives {len(given)} values, and {count} are carried")
    check_same_types(ctx, "scan", "what the body carries on", given[:count], carried)
    return [*carried, *(y.with_shape((length, *y.shape)) for y in given[count:])]


def scan_reference(
    *operands: Array, body: Body, carried: int, scanned: int, length: Sequence[Dim] = (), reverse: bool = False
) -> tuple[Array, ...]:
    """The body runs over rows of the inputs, first to last or back; what it gives beyond the carried is stacked."""
    values, captured = operands[:carried], operands[carried + scanned :]
    inputs = operands[carried : carried + scanned]
    steps = inputs[0].shape[0] if inputs else int(length[0].value or 0)
    stacked: list[tuple[Array, ...]] = []
    for step in reversed(range(steps)) if reverse else range(steps):
        given = body(*values, *(x[step] for x in inputs), *captured)
        values = given[:carried]
        stacked.append(given[carried:])
    if reverse:
        stacked.reverse()
    if stacked:
        return (*values, *(np.stack(rows) for rows in zip(*stacked, strict=True)))
    # No round at all: what the body makes of zeros says what would have been stacked.
    with np.errstate(all="ignore"):
        shown = body(*values, *(np.zeros(x.shape[1:], x.dtype) for x in inputs), *captured)
    return (*values, *(np.zeros((0, *y.shape), y.dtype) for y in shown[carried:]))


CARRIED = Attribute("carried", "int", doc="how many operands, from the first, change from round to round")


def region_op(
    name: str,
    summary: str,
    attributes: tuple[Attribute, ...],
    infer: Callable[[InferContext, Types, Attributes], Types],
    reference: Callable[..., tuple[Array, ...]],
    *,
    operands: tuple[str, ...] = ("operands*",),
    rules: str = "control",
    jvp: str = "",
    transpose: str | None = "",
    batch: str = "",
    **facets: Any,
) -> OpSpec:
    """The declaration of an op with bodies: any operands and results, and what is computed is up to the bodies.

    Its rules of derivatives are in the file `rules`, and named after the op where no name is given.
    """
    transposed = f"{name}_transpose" if transpose == "" else transpose
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=operands,
        results=("results*",),
        attributes=attributes,
        infer=infer,
        reference=reference,
        policy=KEEP,
        interval=ANYTHING,
        jvp=f"{rules}:{jvp or f'{name}_jvp'}",
        transpose=None if transposed is None else f"{rules}:{transposed}",
        batch=f"control:{batch or name}",
        **facets,
    )


SPECS: tuple[OpSpec, ...] = (
    region_op(
        "cond",
        "The results of one of two bodies on the same operands, by a bool.",
        (Attribute("then", "tape"), Attribute("otherwise", "tape")),
        _infer_cond,
        cond_reference,
        operands=("predicate", "operands*"),
    ),
    OpSpec(
        name="tgraph.size_cond",
        summary="The results of one of two bodies on the same operands: of the first where a size is above 0.",
        operands=("operands*",),
        results=("results*",),
        attributes=(Attribute("size", "dim"), Attribute("then", "tape"), Attribute("otherwise", "tape")),
        infer=_infer_size_cond,
        reference=size_cond_reference,
        policy=KEEP,
        interval=ANYTHING,
        no_derivative="it is made of contractions behind all transforms",
        batch="loop",
    ),
    region_op(
        "while",
        "Carried values put through a body as long as a condition on them holds.",
        (
            Attribute("condition", "tape"),
            Attribute("body", "tape"),
            CARRIED,
            Attribute("max_trips", "dims", (), "how often the body runs at most, as one dim; reverse mode needs it"),
        ),
        _infer_while,
        while_reference,
        decompose=_count_trips,
        transpose="loop_transpose",
        batch="while_loop",
    ),
    region_op(
        "fori",
        "Carried values put through a body with each index from `lower` up to and without `upper`.",
        (Attribute("body", "tape"), CARRIED),
        _infer_fori,
        fori_reference,
        operands=("lower", "upper", "operands*"),
        transpose="loop_transpose",
    ),
    region_op(
        "scan",
        "Carried values put through a body with each row of the inputs; what else the body gives is stacked.",
        (
            Attribute("body", "tape"),
            CARRIED,
            Attribute("scanned", "int", 0, "how many operands after the carried are gone through row by row"),
            Attribute("length", "dims", (), "how often the body runs; needed where nothing is scanned"),
            Attribute("reverse", "bool", False, "from the last row to the first"),
        ),
        _infer_scan,
        scan_reference,
    ),
)
