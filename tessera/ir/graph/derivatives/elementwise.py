"""Derivatives of ops on one element at a time: from the table of scalar functions, and of choices, casts and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.scalar_derivatives import DERIVATIVES
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import cast, constant, restate
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, add_all, linear_type, unbroadcast
from tessera.types.dtype import DType
from tessera.types.shape import TensorType

_OPS = {"max": "maximum", "min": "minimum"}
_FUNCTIONS = {op: function for function, op in _OPS.items()}


class _GraphCalculator:
    """Scalar functions as graph ops, in the dtype that floats compute in: a derivative is rounded once."""

    def __init__(self, builder: Builder, dtype: DType) -> None:
        self._builder, self._dtype = builder, dtype

    def __call__(self, function: str, *operands: Any) -> Any:
        return self._builder.emit(_OPS.get(function, function), *operands)

    def number(self, value: float) -> Any:
        return constant(self._builder, value, self._dtype)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return self._builder.emit("where", condition, x, y)


def differentiate_function(b: Builder, name: str, operands: Values, tangents: Values, result: Any) -> Any:
    """The tangent of a scalar function: its partial derivatives times the tangents of its operands."""
    out = b.type_of(result)
    compute = out.dtype.compute
    calculator = _GraphCalculator(b, compute)
    wide = [cast(b, operand, compute) for operand in operands]
    wide_result, parts = cast(b, result, compute), list[Any]()
    for partial, tangent in zip(DERIVATIVES[name].partials, tangents, strict=True):
        if tangent is None or partial == 0.0:
            continue
        if isinstance(partial, float | int):
            parts.append((tangent, partial))
            continue
        factor = partial(calculator, wide, wide_result)
        parts.append((b.emit("mul", cast(b, tangent, compute), factor), 1.0))
    return _join(b, parts, out)


def _join(b: Builder, parts: Sequence[tuple[Any, float]], out: TensorType) -> Any:
    """The sum of terms with signs, in the type of the result."""
    if [sign for _, sign in parts] == [1.0, -1.0]:
        return restate(b, b.emit("sub", *(part for part, _ in parts)), out.shape)
    signed = [part if sign == 1.0 else b.emit("neg", part) for part, sign in parts]
    total = add_all(b, [cast(b, part, out.dtype.compute) for part in signed] if len(signed) > 1 else signed)
    if total is None:
        return None
    total = cast(b, total, out.dtype)
    return restate(b, total, out.shape)


def scalar_jvp(b: Builder, op: Applied) -> Any:
    """By the table of scalar functions."""
    name = _FUNCTIONS.get(op.spec.short_name, op.spec.short_name)
    assert name in SCALAR_FUNCTIONS, f"`{op.spec.name}` is no scalar function"
    return differentiate_function(b, name, op.operands, op.tangents, op.results[0])


def gelu_jvp(b: Builder, op: Applied) -> Any:
    """By the table of scalar functions, as `approximate` says."""
    name = "gelu_tanh" if op.attributes["approximate"] == "tanh" else "gelu_erf"
    return differentiate_function(b, name, op.operands, op.tangents, op.results[0])


def where_jvp(b: Builder, op: Applied) -> Any:
    """The tangent of the operand that is chosen."""
    none = constant(b, 0.0, b.type_of(op.results[0]).dtype)
    x, y = (none if tangent is None else tangent for tangent in op.tangents[1:])
    return restate(b, b.emit("where", op.operands[0], x, y), b.type_of(op.results[0]).shape)


def clamp_jvp(b: Builder, op: Applied) -> Any:
    """Of `x` strictly inside the bounds, else of the bound that holds; at a bound neither `x` nor that bound alone."""
    x, low, high = op.operands
    out, parts = b.type_of(op.results[0]), list[Any]()
    none = constant(b, 0.0, out.dtype)
    below, above = b.emit("lt", x, low), b.emit("gt", x, high)
    between = b.emit("logical_and", b.emit("gt", x, low), b.emit("lt", x, high))
    # Where the bounds cross, `high` holds.
    under = b.emit("logical_and", below, b.emit("lt", low, high))
    over = b.emit("logical_or", above, b.emit("gt", low, high))
    for condition, tangent in zip((between, under, over), op.tangents, strict=True):
        if tangent is not None:
            parts.append(b.emit("where", condition, tangent, none))
    return restate(b, add_all(b, parts), out.shape)


def cast_jvp(b: Builder, op: Applied) -> Any:
    """The cast of the tangent; a cast that rounds counts as the identity."""
    return cast(b, op.tangents[0], b.type_of(op.results[0]).dtype)


def identity_jvp(b: Builder, op: Applied) -> Any:
    """The tangent of the first operand: rounding is taken as the identity."""
    return None if op.tangents[0] is None else cast(b, op.tangents[0], b.type_of(op.results[0]).dtype)


# Transposes of those that are linear.


def add_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent for each, summed where it was broadcast."""
    (ct,) = cotangents
    return [unbroadcast(b, ct, one.type.shape) if isinstance(one, Linear) else None for one in operands]


def sub_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent, and minus it."""
    (ct,) = cotangents
    x, y = operands
    return (
        unbroadcast(b, ct, x.type.shape) if isinstance(x, Linear) else None,
        b.emit("neg", unbroadcast(b, ct, y.type.shape)) if isinstance(y, Linear) else None,
    )


def neg_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Minus the cotangent."""
    return (b.emit("neg", cotangents[0]),)


def mul_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent times the other operand."""
    (ct,), (x, y) = cotangents, operands
    if isinstance(x, Linear):
        return (unbroadcast(b, b.emit("mul", ct, y), x.type.shape), None)
    return (None, unbroadcast(b, b.emit("mul", ct, x), linear_type(y).shape))


def div_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent over the divisor."""
    (ct,), (x, y) = cotangents, operands
    return (unbroadcast(b, b.emit("div", ct, y), linear_type(x).shape), None)


def where_transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent where the operand was chosen, else 0."""
    (ct,), (condition, x, y) = cotangents, operands
    none = constant(b, 0.0, b.type_of(ct).dtype)
    return (
        None,
        unbroadcast(b, b.emit("where", condition, ct, none), x.type.shape) if isinstance(x, Linear) else None,
        unbroadcast(b, b.emit("where", condition, none, ct), y.type.shape) if isinstance(y, Linear) else None,
    )


def cast_transpose(b: Any, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent in the dtype that was cast from; of a rounding, which counts as the identity, the same."""
    type = b.cotangent_type(linear_type(operands[0]))
    return (cast(b, cotangents[0], type.dtype), *(None for _ in operands[1:]))
