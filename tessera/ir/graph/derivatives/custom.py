"""Derivatives that a user gave: the rules of a `custom_function` in the place of those that its body would have.

A rule for reverse mode becomes a forward pass and one `custom_linear` op, whose transpose is the user's `backward`. A
rule for forward mode runs beside the program, linear in the tangents, so that reverse mode is made of it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import Attributes
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.derivatives.shared import Linear, Values, zeros
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.ops.custom import PARTITIONED, rules_of
from tessera.ir.graph.transforms.linearity import WAITING
from tessera.ir.graph.transforms.linearize import Dual, LinearBuilder, Linearizer, Tangent, forward_of
from tessera.ir.graph.transforms.tape_builder import has_effects, remove_dead


def custom_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """By the rule for forward mode where it is the only one, else a forward pass and its linear op."""
    rules, b, outputs = rules_of(attributes), linearizer.builder, len(attributes["body"].outputs)
    count = len(given) - int(attributes["captured"])
    own, captured = given[:count], given[count:]
    _check_covered(b, attributes, captured)
    if "backward" not in rules:
        return _run_jvp(b, rules["jvp"], own, captured, outputs)
    results = b.inline(rules["forward"], [value.primal for value in given])
    kept, outer = results[outputs:], [value.primal for value in captured]
    # The operands are residuals too where a rule for forward mode computes tangents from them.
    operands = [value.primal for value in own] if "jvp" in rules else []
    held = [*kept, *outer, *operands]
    linear = {"backward": _take_residuals(b, rules["backward"], kept, outer, operands)}
    if "jvp" in rules:
        tangents_of = _take_operands(b, rules["jvp"], kept, outer, outputs, count)
        if any(map(has_effects, rules["forward"].records)):
            _leave_effects(tangents_of, len(held))
        linear = {"forward": tangents_of, **linear}
    given_rules = {"modes": tuple(linear), "rules": tuple(linear.values())}
    name, tangents = attributes["function"], _tangents(b, own)
    made = iter(b.emit("custom_linear", *held, *tangents, function=name, residuals=len(held), **given_rules))
    return [Dual(result, next(made) if b.type_of(result).dtype.is_float else None) for result in results[:outputs]]


def _check_covered(b: LinearBuilder, attributes: Attributes, captured: Sequence[Dual]) -> None:
    """Raises where no rule says how the results change."""
    name = attributes["function"]
    if name == PARTITIONED and not attributes["modes"]:
        raise DifferentiationError(
            "a partitioned function is differentiated, and what is known of it here is the program of one rank",
            span=b.span,
            notes=("rule: derivatives of the whole are taken of the whole, before it is partitioned",),
            fix="take them inside: `partition(grad(f), ...)` in place of `grad(partition(f, ...))`",
        )
    if not attributes["modes"]:
        raise DifferentiationError(
            f"`{name}` has derivatives of its own, and was traced without them",
            span=b.span,
            fix="take the derivative inside of the function that is differentiated",
        )
    if any(value.tangent is not None for value in captured):
        raise DifferentiationError(
            f"`{name}` captures a tensor that is differentiated by, and its rule gives derivatives of arguments alone",
            span=b.span,
            fix="pass the tensor as an argument, or wrap it in `tessera.stop_gradient`",
        )


def _tangents(b: LinearBuilder, own: Sequence[Dual]) -> list[int]:
    """The tangents of the operands that are floats, zeros where there are none."""
    types = [b.type_of(value.primal) for value in own]
    return [
        b.zeros(type) if value.tangent is None else value.tangent
        for value, type in zip(own, types, strict=True)
        if type.dtype.is_float
    ]


def _unread(b: LinearBuilder, tape: Tape, values: Sequence[int]) -> list[int]:
    """Inputs for values that a tape does not read."""
    return [tape.new_value(b.type_of(value)) for value in values]


def _rearrange(tape: Tape, inputs: Sequence[int]) -> Tape:
    tape.inputs, tape.names = list(inputs), [f"input_{at}" for at in range(len(inputs))]
    return tape


def _take_residuals(
    b: LinearBuilder, back: Tape, kept: Sequence[int], outer: Sequence[int], operands: Sequence[int]
) -> Tape:
    """`backward` as a function of residuals, captured values, operands that it does not read, and cotangents."""
    made, end = replace(back, types=list(back.types)), len(back.inputs) - len(outer)
    residuals, cotangents, captured = back.inputs[: len(kept)], back.inputs[len(kept) : end], back.inputs[end:]
    return _rearrange(made, [*residuals, *captured, *_unread(b, made, operands), *cotangents])


def _take_operands(
    b: LinearBuilder, rule: Tape, kept: Sequence[int], outer: Sequence[int], outputs: int, count: int
) -> Tape:
    """A rule for forward mode as a function of residuals, captured values, operands and tangents to tangents alone."""
    end = len(rule.inputs) - len(outer)
    operands, tangents, captured = rule.inputs[:count], rule.inputs[count:end], rule.inputs[end:]
    made = replace(rule, types=list(rule.types), records=list(rule.records), outputs=rule.outputs[outputs:])
    remove_dead(made)
    return _rearrange(made, [*_unread(b, made, kept), *captured, *operands, *tangents])


def _leave_effects(rule: Tape, residuals: int) -> None:
    """Take effects that are not of tangents out of a rule for forward mode: the forward pass has them already."""
    changing, needed, gone = set(rule.inputs[residuals:]), set(rule.outputs), set[int]()
    for record in rule.records:
        if not changing.isdisjoint(record.operands):
            changing.update(record.results)
    for at, record in reversed(list(enumerate(rule.records))):
        if needed.isdisjoint(record.results) and changing.isdisjoint(record.operands):
            gone.add(at)
        else:
            needed.update(record.operands)
    rule.records[:] = [record for at, record in enumerate(rule.records) if at not in gone]


def _run_jvp(b: LinearBuilder, rule: Tape, own: Sequence[Dual], captured: Sequence[Dual], outputs: int) -> list[Dual]:
    """A rule for forward mode as part of the program: what depends on tangents is linear in them, which was checked."""
    floats = [value for value in own if b.type_of(value.primal).dtype.is_float]
    given = [*(value.primal for value in own), *(value.tangent for value in floats), *(one.primal for one in captured)]
    values: dict[int, Tangent] = dict(zip(rule.inputs, given, strict=True))
    changing = set(rule.inputs[len(own) : len(own) + len(floats)])
    for record in rule.records:
        b.follow(record)
        values.update(zip(record.results, _step(b, rule, record, values, changing), strict=True))
    found, tangents = list[Dual](), iter(rule.outputs[outputs:])
    for output in rule.outputs[:outputs]:
        primal, tangent = values[output], next(tangents) if rule.types[output].dtype.is_float else None
        assert primal is not None, "results do not depend on tangents, which was checked"
        found.append(Dual(primal, values[tangent] if tangent in changing else None))
    return found


def _step(
    b: LinearBuilder, rule: Tape, record: Record, values: dict[int, Tangent], changing: set[int]
) -> Sequence[Tangent]:
    """The results of one record of a rule; those that are linear in nothing but zeros are None."""
    types = [rule.types[value] for value in record.results]
    if changing.isdisjoint(record.operands):
        return b.copy(record, [values[value] for value in record.operands], types)  # pyright: ignore[reportArgumentType]
    spec = REGISTRY[record.op]
    if spec.short_name in WAITING and record.operands[0] not in changing:
        return [values[record.operands[0]]]  # what it waits for is linear, and it is not
    changing.update(record.results)
    if all(values[value] is None for value in record.operands if value in changing):
        return [None] * len(types)
    operands = [b.zeros(rule.types[value]) if values[value] is None else values[value] for value in record.operands]
    return b.append(spec, operands, record.attributes)  # pyright: ignore[reportArgumentType]


def custom_transpose(b: Any, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The user's `backward`, or the rule for forward mode backwards."""
    rules, count = rules_of(attributes), int(attributes["residuals"])
    back = rules["backward"]
    types = [back.types[value] for value in back.inputs[count:]]
    seeds = [zeros(b, type) if value is None else value for value, type in zip(cotangents, types, strict=True)]
    found = b.inline(back, [*operands[:count], *seeds])
    given = zip(found, operands[count:], strict=True)
    return [None] * count + [made if isinstance(one, Linear) else None for made, one in given]


def linear_jvp(linearizer: Linearizer, given: Sequence[Dual], attributes: Attributes) -> list[Dual]:
    """Of the tangents that the rule for forward mode computes."""
    return linearizer.run(forward_of(attributes, linearizer.builder.span), given)
