"""Functions whose derivatives a user gave: a body, and beside it the rules that transforms take in its place.

`custom_function` is its `body` and nothing else to whoever runs it; the pass `graph-inline-custom` leaves the body
alone. Its rules are programs too, by mode:

- "forward", from the operands to the results and then residuals, with "backward", from residuals, cotangents of the
  results that are floats, and captured values, to cotangents of the operands that are floats;
- "jvp", from the operands, tangents of those that are floats, and captured values, to the results and then tangents of
  those that are floats.

The last operands are what body and rules capture, `captured` of them; no rule says how the results depend on those.
`custom_linear` stands between a forward pass and its transpose: it is linear in its last operands and may know how it
runs "forward", "backward", or both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.diagnostics.error import Span
from tessera.ir.base.arrays import Array
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec
from tessera.ir.base.tape import Tape
from tessera.ir.graph.building import Types
from tessera.ir.graph.ops.control import Body, check_same_types, region_op, types_of
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

FUNCTION, LINEAR = "tgraph.custom_function", "tgraph.custom_linear"
PARTITIONED = "partition"
"""The name of one rank's program of a function for whole tensors, which has no derivatives."""
MODES = (("forward", "backward"), ("jvp",), ("forward", "backward", "jvp"), ())
LINEAR_MODES = (("forward",), ("backward",), ("forward", "backward"))


def rules_of(attributes: Attributes) -> Mapping[str, Tape]:
    """The programs of an op's rules, by mode."""
    return dict(zip(attributes["modes"], attributes["rules"], strict=True))


@frozen
class Step:
    """An op of a rule, on a tape or in a region: what it reads and makes, what it and its bodies do, and where."""

    operands: Sequence[Any]
    results: Sequence[Any]
    effects: frozenset[str]
    op: str
    span: Span | None


def check_tangent_effects(name: str, steps: Sequence[Step], tangents: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raises DifferentiationError (T0306) where tangents take a value from an effect that is not of tangents.

    `steps` are the rule for forward mode of the function `name`, `tangents` its inputs that are such.
    """
    changing, needed = set(tangents), set(outputs)
    for step in steps:
        if not changing.isdisjoint(step.operands):
            changing.update(step.results)
    for step in reversed(steps):
        if needed.isdisjoint(step.results):
            continue
        needed.update(step.operands)
        effects = sorted(step.effects & {"io", "state"})
        if effects and changing.isdisjoint(step.operands):
            raise DifferentiationError(
                f"tangents of `{name}` take a value from `{step.op}`, which has the effect `{effects[0]}`: beside "
                "`defvjp` the rule of `defjvp` is run apart from the function, and the effect would happen again",
                span=step.span,
                fix=f"leave `{name}.defvjp` out: reverse mode is then made of the rule of `defjvp`",
            )


def refuse_forward(name: str, span: Span | None) -> DifferentiationError:
    """The error for tangents of a function that has a rule for reverse mode alone."""
    return DifferentiationError(
        f"`{name}` has a derivative for reverse mode alone (`defvjp`), and forward mode asks for its tangents",
        span=span,
        fix=f"use `grad`, `vjp` or `jacrev`, or give it a rule for forward mode too, with `{name}.defjvp`",
    )


def float_types(types: Sequence[TensorType]) -> list[TensorType]:
    """Those that have tangents."""
    return [type for type in types if type.dtype.is_float]


def _check_modes(ctx: InferContext, op: str, attributes: Attributes, known: Sequence[tuple[str, ...]]) -> None:
    modes, rules = tuple(attributes["modes"]), attributes["rules"]
    if modes not in known:
        wanted = " or ".join(str(list(one)) for one in known)
        raise ctx.fail(f"`{op}` has rules of the modes {wanted}, got {list(modes)}")
    if len(rules) != len(modes):
        raise ctx.fail(f"`{op}` names {len(modes)} modes and has {len(rules)} rules")


def _check_count(ctx: InferContext, op: str, what: str, count: int, types: Types) -> None:
    if not 0 <= count <= len(types):
        raise ctx.fail(f"`{op}` has {count} {what}, and {len(types)} operands")


def _check_rule(ctx: InferContext, op: str, mode: str, tape: Tape, takes: Types, gives: Types) -> None:
    check_same_types(ctx, op, f"what its rule `{mode}` takes", types_of(tape, tape.inputs), takes)
    check_same_types(ctx, op, f"what its rule `{mode}` gives", types_of(tape, tape.outputs), gives)


def _infer_function(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    op, body, captured = "custom_function", attributes["body"], int(attributes["captured"])
    _check_modes(ctx, op, attributes, MODES)
    _check_count(ctx, op, "captured operands", captured, types)
    check_same_types(ctx, op, "what its body takes", types_of(body, body.inputs), types)
    results = types_of(body, body.outputs)
    own, others = types[: len(types) - captured], types[len(types) - captured :]
    rules = rules_of(attributes)
    if "forward" in rules:
        made = types_of(rules["forward"], rules["forward"].outputs)
        kept = made[len(results) :]
        _check_rule(ctx, op, "forward", rules["forward"], types, [*results, *kept])
        takes = [*kept, *float_types(results), *others]
        _check_rule(ctx, op, "backward", rules["backward"], takes, float_types(own))
    if "jvp" in rules:
        takes = [*own, *float_types(own), *others]
        _check_rule(ctx, op, "jvp", rules["jvp"], takes, [*results, *float_types(results)])
    return results


def custom_function_reference(
    *operands: Array, body: Body, function: str, captured: int = 0, modes: Sequence[str] = (), rules: Any = ()
) -> tuple[Array, ...]:
    """The body runs."""
    return tuple(body(*operands))


def _infer_linear(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    op, kept = "custom_linear", int(attributes["residuals"])
    _check_modes(ctx, op, attributes, LINEAR_MODES)
    _check_count(ctx, op, "residuals", kept, types)
    rules = rules_of(attributes)
    if "forward" in rules:
        results = types_of(rules["forward"], rules["forward"].outputs)
        _check_rule(ctx, op, "forward", rules["forward"], types, results)
    else:
        results = types_of(rules["backward"], rules["backward"].inputs[kept:])
    if "backward" in rules:
        _check_rule(ctx, op, "backward", rules["backward"], [*types[:kept], *results], types[kept:])
    return results


def custom_linear_reference(
    *operands: Array, function: str, residuals: int, modes: Sequence[str], rules: Sequence[Body]
) -> tuple[Array, ...]:
    """The rule `forward` runs."""
    if modes[0] != "forward":
        raise refuse_forward(function, None)
    return tuple(rules[0](*operands))


_NAME = Attribute("function", "str", doc="what the function is called, for errors")
_RULES = (
    Attribute("modes", "strs", (), "the mode of each rule"),
    Attribute("rules", "tapes", (), "the programs of the rules"),
)

SPECS: tuple[OpSpec, ...] = (
    region_op(
        "custom_function",
        "The results of a body that has derivatives of its own.",
        (
            Attribute("body", "tape"),
            _NAME,
            Attribute("captured", "int", 0, "how many operands, the last ones, are captured"),
            *_RULES,
        ),
        _infer_function,
        custom_function_reference,
        rules="custom",
        jvp="custom_jvp",
        transpose=None,
    ),
    region_op(
        "custom_linear",
        "Tangents of the results of a custom function, linear in those of its operands.",
        (
            _NAME,
            Attribute("residuals", "int", doc="how many operands, from the first, are no tangents"),
            *_RULES,
        ),
        _infer_linear,
        custom_linear_reference,
        rules="custom",
        jvp="linear_jvp",
        transpose="custom_transpose",
    ),
)
