"""Rules that many ops share, how rules are found, and what they are built with.

A facet is "module:function" of this package, or the name of a rule of this file: a `jvp` of "linear" is the op itself
on tangents, "multilinear" the sum of the op with each operand replaced by its tangent, "zero" that of an op that is
constant between its steps. An op without `jvp` is differentiated through its `decompose`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder, OpSpec
from tessera.ir.graph.building import constant, restate
from tessera.ir.graph.transforms.tape_builder import load_rule
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import Shape, TensorType

PACKAGE = "tessera.ir.graph.derivatives"


@frozen
class Linear:
    """An operand that depends on tangents, as a `transpose` rule sees it: its type and nothing else."""

    type: TensorType


def linear_type(operand: Any) -> TensorType:
    """The type of an operand that depends on tangents."""
    assert isinstance(operand, Linear)
    return operand.type


@frozen
class Applied:
    """An op as a `jvp` rule sees it: its operands and their tangents (None for zero), its results and attributes."""

    operands: Sequence[Any]
    tangents: Sequence[Any]
    results: Sequence[Any]
    attributes: Attributes
    spec: OpSpec


def jvp_rule(spec: OpSpec) -> Callable[..., Any] | None:
    """The `jvp` of an op, or None where it is differentiated through its parts."""
    return None if spec.jvp is None else load_rule(PACKAGE, spec.jvp)


def transpose_rule(spec: OpSpec) -> Callable[..., Any] | None:
    """The `transpose` of an op, or None where it has none of its own."""
    return None if spec.transpose is None else load_rule(PACKAGE, spec.transpose)


Values = Sequence[Any]


def zeros(b: Builder, type: TensorType) -> Any:
    """Zeros of a type."""
    return b.emit("full", shape=type.shape, value=0.0, dtype=type.dtype)


def add_all(b: Builder, values: Values) -> Any:
    """The sum of values, first to last, without those that are None; None of none."""
    total = None
    for value in values:
        if value is not None:
            total = value if total is None else b.emit("add", total, value)
    return total


def linear(b: Builder, op: Applied) -> Any:
    """The op itself on tangents; operands that are no floats stay, and floats without a tangent are zero."""
    given: list[Any] = []
    for operand, tangent in zip(op.operands, op.tangents, strict=True):
        type = b.type_of(operand)
        given.append(tangent if tangent is not None else zeros(b, type) if type.dtype.is_float else operand)
    return b.emit(op.spec.short_name, *given, **op.attributes)


def first(b: Builder, op: Applied) -> Any:
    """The op on the tangent of its first operand, in which it is linear; the others stay."""
    return (
        None
        if op.tangents[0] is None
        else b.emit(op.spec.short_name, op.tangents[0], *op.operands[1:], **op.attributes)
    )


def multilinear(b: Builder, op: Applied) -> Any:
    """The sum of the op with one operand after the other replaced by its tangent."""
    parts: list[Any] = []
    for at, tangent in enumerate(op.tangents):
        if tangent is not None:
            parts.append(
                b.emit(op.spec.short_name, *op.operands[:at], tangent, *op.operands[at + 1 :], **op.attributes)
            )
    return add_all(b, parts)


def zero(b: Builder, op: Applied) -> Any:
    """No change: the op is constant between its steps."""
    return [None] * len(op.results)


def unbroadcast(b: Builder, value: Any, shape: Shape) -> Any:
    """The transpose of broadcasting from `shape`: sums over the axes that were stretched or added."""
    given = b.type_of(value).shape
    extra = len(given) - len(shape)
    stretched = [axis for axis, dim in enumerate(shape) if dim.value == 1 and given[extra + axis].value != 1]
    axes = (*range(extra), *(extra + axis for axis in stretched))
    if axes:
        value = b.emit("sum", value, axes=axes, keepdims=False)
        if stretched:
            value = b.emit("reshape", value, shape=shape)
    return restate(b, value, shape)


def mask(b: Builder, condition: Any, dtype: DType) -> Any:
    """1 where a condition holds, else 0."""
    return b.emit("where", condition, constant(b, 1.0, dtype), constant(b, 0.0, dtype))
