"""Whether a program is linear in some of its inputs: what a rule for forward mode that a user wrote must be.

Each value is one of three: it depends on no tangent, it is linear in them, or it is zero whatever they are. An op that
is linear in one operand at a time (a product) takes one linear operand; any other op that has a `transpose` takes
linear operands and zeros, and nothing else of floats: `t + 1.0` is not linear in `t`. A composite op is taken apart;
the bodies of branches and of loops over rows are looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, take_apart

PLAIN, LINEAR, ZERO = "plain", "linear", "zero"
_MULTILINEAR = ("mul", "div")
WAITING = ("optimization_barrier", "saved_value")
"""Ops whose result is their first operand, once others are there."""
_KINDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cumulative": ("kind", ("sum",)),
    "scatter_rows": ("mode", ("set", "add")),
    "pad": ("value", (0.0,)),
    "all_reduce": ("op", ("sum", "mean")),
    "reduce_scatter": ("op", ("sum", "mean")),
}
"""Ops that are linear by an attribute alone: its name, and the values of it."""
_WITH_LINEAR_BODIES = ("cond", "checkpoint", "scan")


def check_linear(name: str, tape: Tape, kinds: Sequence[str]) -> list[str]:
    """What the outputs of a tape are, of inputs that are `kinds`.

    Raises DifferentiationError (T0306) at the line that takes something of a tangent that is not linear; `name` is the
    rule that it is part of.
    """
    found = dict(zip(tape.inputs, kinds, strict=True))
    for record in tape.records:
        given = [found[value] for value in record.operands]
        found.update(zip(record.results, _apply(name, tape, record, given), strict=True))
    return [found[output] for output in tape.outputs]


def inline_functions(tape: Tape) -> Tape:
    """A tape with the bodies of its functions that have derivatives of their own in their place."""
    builder = TapeBuilder(Tape())
    types = [tape.types[value] for value in tape.inputs]
    values = dict(zip(tape.inputs, add_inputs(builder.tape, types, tape.names), strict=True))
    for record in tape.records:
        builder.follow(record)
        operands = [values[value] for value in record.operands]
        if REGISTRY[record.op].short_name == "custom_function":
            made: Sequence[int] = builder.inline(record.attributes["body"], operands)
        else:
            made = builder.copy(record, operands, [tape.types[value] for value in record.results])
        values.update(zip(record.results, made, strict=True))
    builder.tape.outputs = [values[output] for output in tape.outputs]
    return builder.tape


def _apply(name: str, tape: Tape, record: Record, given: Sequence[str]) -> Sequence[str]:
    spec, count = REGISTRY[record.op], len(record.results)
    floats = [kind for kind, value in zip(given, record.operands, strict=True) if tape.types[value].dtype.is_float]
    if spec.short_name in WAITING:
        return given[:1]
    if LINEAR not in given and (ZERO not in given or not _has_parts(spec)):
        return [ZERO if _is_zero(spec, record, floats) else PLAIN] * count
    if spec.region_names:
        return _run_bodies(name, spec, record, given)
    if spec.transpose is None:
        return _take_apart(name, spec, tape, record, given)
    if (spec.short_name in _MULTILINEAR or spec.jvp == "multilinear") and ZERO in given:
        return [ZERO] * count
    _check_op(name, spec, tape, record, given)
    return [LINEAR] * count


def _check_op(name: str, spec: OpSpec, tape: Tape, record: Record, given: Sequence[str]) -> None:
    """Raises unless an op that has a `transpose` is linear in the tangents among its operands."""
    floats = [kind for kind, value in zip(given, record.operands, strict=True) if tape.types[value].dtype.is_float]
    if not all(tape.types[value].dtype.is_float for value in record.results):
        raise _refuse(name, spec, record, "makes integers of a tangent")
    if spec.short_name in _MULTILINEAR or spec.jvp == "multilinear":
        is_divisor = spec.short_name == "div" and given[1] == LINEAR
        if given.count(LINEAR) > 1 or is_divisor:
            raise _refuse(name, spec, record, "divides by a tangent" if is_divisor else "multiplies two tangents")
    elif PLAIN in floats:
        raise _refuse(name, spec, record, "takes a tangent together with a value that is none")
    if not _is_of_linear_kind(spec, record):
        attribute = _KINDS[spec.short_name][0]
        raise _refuse(name, spec, record, f"has `{attribute}` {record.attributes[attribute]!r}")


def _has_parts(spec: OpSpec) -> bool:
    """Whether what an op makes of zeros is found in its bodies or in the parts of a composite op."""
    if spec.region_names:
        return spec.short_name in _WITH_LINEAR_BODIES
    return spec.transpose is None and spec.decompose is not None


def _is_of_linear_kind(spec: OpSpec, record: Record) -> bool:
    attribute, linear = _KINDS.get(spec.short_name, ("", ()))
    return not attribute or record.attributes[attribute] in linear


def _is_zero(spec: OpSpec, record: Record, given: Sequence[str]) -> bool:
    """Whether an op that takes no tangent gives zeros."""
    if spec.short_name == "full":
        return record.attributes["value"] == 0
    if ZERO not in given:
        return False
    if spec.short_name in _MULTILINEAR or spec.jvp == "multilinear":
        return spec.short_name != "div" or given[0] == ZERO
    is_linear = spec.transpose is not None and not spec.region_names and _is_of_linear_kind(spec, record)
    return is_linear and PLAIN not in given


def _take_apart(name: str, spec: OpSpec, tape: Tape, record: Record, given: Sequence[str]) -> Sequence[str]:
    """A composite op by its parts."""
    if spec.decompose is None:
        raise _refuse(name, spec, record, "is not linear")
    parts = take_apart(tape, record)
    try:
        return check_linear(name, parts, given)
    except DifferentiationError:
        raise _refuse(name, spec, record, "is not linear") from None


def _run_bodies(name: str, spec: OpSpec, record: Record, given: Sequence[str]) -> Sequence[str]:
    """Branches, checkpoints and loops over rows, whose bodies must be linear; other bodies have no transpose."""
    if spec.short_name == "cond" and given[0] != LINEAR:
        return _join(name, spec, record, *(check_linear(name, body, given[1:]) for body in record.bodies))
    if spec.short_name == "checkpoint":
        return check_linear(name, record.bodies[0], given)
    if spec.short_name != "scan":
        raise _refuse(name, spec, record, "is not known to be linear")
    kinds, carried = list(given), int(record.attributes["carried"])
    while True:
        found = check_linear(name, record.bodies[0], kinds)
        joined = _join(name, spec, record, kinds[:carried], found[:carried])
        if joined == kinds[:carried]:
            return [*joined, *found[carried:]]
        kinds[:carried] = joined


def _join(name: str, spec: OpSpec, record: Record, left: Sequence[str], right: Sequence[str]) -> list[str]:
    """What a value is that may be either of two: a zero is anything, and a tangent is nothing but a tangent."""
    pairs = list(zip(left, right, strict=True))
    if any({*pair} == {PLAIN, LINEAR} for pair in pairs):
        raise _refuse(name, spec, record, "gives either a tangent or a value that depends on none")
    return [b if a == ZERO else a for a, b in pairs]


def _refuse(name: str, spec: OpSpec, record: Record, why: str) -> Any:
    return DifferentiationError(
        f"`{name}` must be linear in the tangents, and `{spec.short_name}` in it {why}",
        span=record.span,
        notes=("rule: tangents may be added to each other, and multiplied by values that depend on none",),
        fix="compute what multiplies the tangents from the primals alone",
    )
