"""Batching of control flow, and of collectives over the batch.

A branch or a loop whose predicate is one for all stays what it is, with batched bodies. Where each element has its own,
both branches are computed and one is chosen, and a loop runs as long as any element goes on, the others staying as they
are. In a collective over the name of the batch its elements are the ranks, and what they exchange is an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import Attributes, OpSpec
from tessera.ir.base.tape import Tape
from tessera.ir.graph.building import cast
from tessera.ir.graph.ops.custom import rules_of
from tessera.ir.graph.transforms.batch import Batched, Batcher
from tessera.ir.graph.transforms.linearize import forward_of
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, as_values, has_effects
from tessera.types import dtype as dt
from tessera.types.shape import ONE


def _flags(given: Sequence[Batched]) -> list[bool]:
    return [value.is_batched for value in given]


def _choose(b: TapeBuilder, predicate: int, new: int, old: int) -> int:
    """For each element of the batch, one of two values that both have it."""
    size = b.type_of(predicate).shape[0]
    shape = (size, *(ONE,) * (b.type_of(new).rank - 1))
    return b.emit("where", b.emit("reshape", predicate, shape=shape), new, old)


def cond(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """One branch for all, or both and a choice."""
    b, (predicate, *operands) = batcher.builder, given
    bodies: list[Tape] = [attributes[name] for name in ("then", "otherwise")]
    if predicate.is_batched:
        if any(has_effects(record) for body in bodies for record in body.records):
            raise DifferentiationError(
                "`vmap` of a `cond` whose predicate differs in the batch runs both branches, and one has an effect",
                span=b.span,
                fix="move the effect out of the branch",
            )
        then, otherwise = ([batcher.whole(one) for one in batcher.run(body, operands)] for body in bodies)
        return [Batched(_choose(b, predicate.value, *pair), True) for pair in zip(then, otherwise, strict=True)]
    count = len(bodies[0].outputs)
    flags = _flags(operands)
    found = [batcher.batch_body(body, flags, [False] * count)[1] for body in bodies]
    always = [any(pair) for pair in zip(*found, strict=True)]
    then, otherwise = (batcher.batch_body(body, flags, always)[0] for body in bodies)
    values = [operand.value for operand in operands]
    results = b.emit("cond", predicate.value, *values, then=then, otherwise=otherwise)
    return [Batched(*pair) for pair in zip(as_values(results), always, strict=True)]


def checkpoint(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """The body of the batch."""
    always = [False] * len(attributes["body"].outputs)
    body, flags = batcher.batch_body(attributes["body"], _flags(given), always)
    values = [value.value for value in given]
    results = batcher.builder.emit("checkpoint", *values, **{**attributes, "body": body})
    return [Batched(*pair) for pair in zip(as_values(results), flags, strict=True)]


def _settle(body: Tape, flags: list[bool], carried: int, batcher: Batcher, first: int = 0) -> tuple[Tape, list[bool]]:
    """The batched body of a loop, once every carried value that it gives batched is also taken so; changes `flags`."""
    others = len(body.outputs) - carried
    while True:
        tape, found = batcher.batch_body(body, flags, [*flags[first : first + carried], *[False] * others])
        if found[:carried] == flags[first : first + carried]:
            return tape, found
        flags[first : first + carried] = found[:carried]


def scan(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """Rows are gone through behind the batch."""
    b, carried, scanned = batcher.builder, int(attributes["carried"]), int(attributes["scanned"])
    flags = _flags(given)
    body, found = _settle(attributes["body"], flags, carried, batcher)
    values: list[int] = []
    for at, value in enumerate(given):
        if at < carried:
            values.append(batcher.whole(value) if flags[at] else value.value)
        elif at < carried + scanned and value.is_batched:
            values.append(_swap(b, value.value))
        else:
            values.append(value.value)
    results = as_values(b.emit("scan", *values, **{**attributes, "body": body}))
    return [
        Batched(_swap(b, result) if flag and at >= carried else result, flag)
        for at, (result, flag) in enumerate(zip(results, found, strict=True))
    ]


def _swap(b: TapeBuilder, value: int) -> int:
    """The first two axes the other way round."""
    return b.emit("transpose", value, axes=(1, 0, *range(2, b.type_of(value).rank)))


def fori(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """Bounds are one for all."""
    b, carried = batcher.builder, int(attributes["carried"])
    if given[0].is_batched or given[1].is_batched:
        raise DifferentiationError(
            "`vmap` of a `fori_loop` whose bounds differ in the batch is not supported",
            span=b.span,
            fix="loop to the largest bound and use `tessera.ops.where`, or write a `while_loop`",
        )
    flags = [False, *_flags(given[2:])]
    body, found = _settle(attributes["body"], flags, carried, batcher, 1)
    values = [batcher.whole(value) if flag else value.value for value, flag in zip(given[2:], flags[1:], strict=True)]
    bounds = [value.value for value in given[:2]]
    results = as_values(b.emit("fori", *bounds, *values, **{**attributes, "body": body}))
    return [Batched(*pair) for pair in zip(results, found, strict=True)]


def while_loop(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """As long as any element goes on; those that do not stay as they are."""
    b, carried = batcher.builder, int(attributes["carried"])
    flags = _flags(given)
    body, found = _settle(attributes["body"], flags, carried, batcher)
    condition, decided = batcher.batch_body(attributes["condition"], flags, [False])
    if decided[0]:
        if any(has_effects(record) for record in attributes["body"].records):
            raise DifferentiationError(
                "`vmap` of a `while_loop` that ends at other rounds for other elements runs its body for all of them "
                "to the last, and it has an effect",
                span=b.span,
                fix="move the effect out of the loop",
            )
        flags[:carried] = [True] * carried
        body, found = batcher.batch_body(attributes["body"], flags, [True] * carried)
        condition, _ = batcher.batch_body(attributes["condition"], flags, [True])
        body = _keep_done(body, condition, carried)
        _join_predicates(condition)
    values = [batcher.whole(value) if flag else value.value for value, flag in zip(given, flags, strict=True)]
    results = b.emit("while", *values, **{**attributes, "condition": condition, "body": body})
    return [Batched(*pair) for pair in zip(as_values(results), found, strict=True)]


def _keep_done(body: Tape, condition: Tape, carried: int) -> Tape:
    """A body that changes only the elements for which the condition holds."""
    builder = TapeBuilder()
    types = [body.types[value] for value in body.inputs]
    inputs = add_inputs(builder.tape, types, body.names)
    (going,) = builder.inline(condition, inputs)
    new = builder.inline(body, inputs)
    builder.tape.outputs = [_choose(builder, going, *pair) for pair in zip(new, inputs[:carried], strict=True)]
    return builder.tape


def _join_predicates(condition: Tape) -> None:
    """Let a condition give one bool: whether that of any element holds."""
    builder: Any = TapeBuilder(condition)
    condition.outputs = [builder.emit("any", condition.outputs[0], axes=(0,), keepdims=False)]


# Collectives: a reduction and a gather give one value for all elements, a scatter and an exchange each its part.


def over_batch(batcher: Batcher, spec: OpSpec, given: list[Batched], attributes: Attributes) -> Batched:
    """The result of a collective whose ranks are the elements of the batch."""
    b, kind = batcher.builder, spec.short_name
    if kind == "axis_index":
        return Batched(b.emit("iota", shape=(batcher.size,), axis=0, dtype=dt.i64), True)
    if kind == "replicated":
        return given[0]
    value = batcher.whole(given[0])
    if kind == "all_reduce":
        return Batched(_reduce(batcher, value, attributes["op"]), False)
    if kind == "all_gather":
        return Batched(_join(batcher, value, 0, int(attributes["dim"]) + 1), False)
    if kind == "reduce_scatter":
        total = _reduce(batcher, value, attributes["op"])
        return Batched(_move(batcher, *_split(batcher, total, int(attributes["dim"])), 0), True)
    assert kind == "all_to_all", f"`{spec.name}` names an axis, and has no rule for one that is a batch"
    # [from, ..., to, part, ...] to [to, from, ..., part, ...]
    apart, at = _split(batcher, value, int(attributes["split"]) + 1)
    return Batched(_join(batcher, _move(batcher, apart, at, 0), 1, int(attributes["concat"]) + 2), True)


def _reduce(batcher: Batcher, value: int, op: str) -> int:
    b = batcher.builder
    made = b.emit(op, value, axes=(0,), keepdims=False)
    return cast(b, made, b.type_of(value).dtype)


def _move(batcher: Batcher, value: int, at: int, to: int) -> int:
    """The value with one of its axes elsewhere."""
    b = batcher.builder
    order = [axis for axis in range(b.type_of(value).rank) if axis != at]
    order.insert(to, at)
    return value if at == to else b.emit("transpose", value, axes=tuple(order))


def _split(batcher: Batcher, value: int, axis: int) -> tuple[int, int]:
    """The value with an axis as two, the elements of the batch and what each gets; and where the first of them is."""
    b, size = batcher.builder, batcher.size
    shape = b.type_of(value).shape
    parts: Any = (size, shape[axis] // size)
    return b.emit("reshape", value, shape=(*shape[:axis], *parts, *shape[axis + 1 :])), axis


def _join(batcher: Batcher, value: int, at: int, axis: int) -> int:
    """The value with the axis of the batch, `at`, joined with one that comes behind it: one element after the other."""
    b, first = batcher.builder, axis - 1
    moved = _move(batcher, value, at, first)
    shape = b.type_of(moved).shape
    return b.emit("reshape", moved, shape=(*shape[:first], shape[first] * shape[axis], *shape[axis + 1 :]))


# Functions with derivatives of their own.


def custom_function(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """The function with all its results batched, as its rules have them."""
    b, body, rules = batcher.builder, attributes["body"], rules_of(attributes)
    flags = [value.is_batched for value in given]
    count = len(given) - int(attributes["captured"])
    own, captured = flags[:count], flags[count:]
    outputs = len(body.outputs)
    is_float = [b.type_of(value.value).dtype.is_float for value in given[:count]]
    floats = [flag for flag, kept in zip(own, is_float, strict=True) if kept]
    made: dict[str, Tape] = {}
    if "forward" in rules:
        residuals = len(rules["forward"].outputs) - outputs
        always = [True] * outputs + [False] * residuals
        made["forward"], found = batcher.batch_body(rules["forward"], flags, always)
        seeds = len(rules["backward"].inputs) - residuals - len(captured)
        takes = [*found[outputs:], *[True] * seeds, *captured]
        made["backward"], _ = batcher.batch_body(rules["backward"], takes, [True] * len(floats))
        _sum_shared(made["backward"], floats)
    if "jvp" in rules:
        rule = rules["jvp"]
        made["jvp"], _ = batcher.batch_body(rule, [*own, *floats, *captured], [True] * len(rule.outputs))
    whole, _ = batcher.batch_body(body, flags, [True] * outputs)
    known = {**attributes, "body": whole, "rules": tuple(made.values())}
    results = b.emit("custom_function", *(value.value for value in given), **known)
    return [Batched(result, True) for result in results]


def _sum_shared(back: Tape, flags: Sequence[bool]) -> None:
    """Let the cotangent of an operand that all elements share be the sum of theirs."""
    builder = TapeBuilder(back)
    for at, is_batched in enumerate(flags):
        if not is_batched:
            back.outputs[at] = builder.emit("sum", back.outputs[at], axes=(0,), keepdims=False)


def custom_linear(batcher: Batcher, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
    """The tangents that the rule for forward mode computes, for a batch."""
    return batcher.run(forward_of(attributes, batcher.builder.span), given)
