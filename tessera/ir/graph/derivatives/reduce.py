"""Derivatives of reductions and prefix sums, and of softmax, losses and norms, from their results.

Rules of the latter are stable where the parts they decompose into are not. What a rule computes of the operands alone
it computes as `decompose` does, so that the two become one.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import axes_attribute, cast, constant, expand, restate, widen
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, add_all, mask
from tessera.ir.graph.ops.normalization import inverse_root, match_labels
from tessera.types import dtype as dt
from tessera.types.dim import product
from tessera.types.shape import ONE, ZERO, Shape, TensorType


def kept_dims(x: TensorType, axes: tuple[int, ...]) -> Shape:
    """The shape of a reduction that keeps its axes with 1 element."""
    return tuple(ONE if axis in axes else dim for axis, dim in enumerate(x.shape))


def broadcast_back(b: Builder, value: Any, x: TensorType, axes: tuple[int, ...]) -> Any:
    """A reduction's result, with or without its axes, broadcast over what it was reduced from."""
    return b.emit("broadcast_to", b.emit("reshape", value, shape=kept_dims(x, axes)), shape=x.shape)


def sum(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent of a sum, for each of its terms."""
    (x,) = operands
    assert isinstance(x, Linear)
    value = broadcast_back(b, cotangents[0], x.type, axes_attribute(attributes, "axes"))
    return (cast(b, value, x.type.dtype),)


def extremum_jvp(b: Builder, op: Applied) -> Any:
    """Of `max` and `min`: the mean of the tangents of all elements that are it."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    found = b.emit("reshape", op.results[0], shape=kept_dims(x, axes))
    one = constant(b, 1.0, x.dtype.compute)
    return _extremum_tangent(b, op.operands[0], found, one, op.tangents[0], op.results[0], op.attributes)


def _extremum_tangent(
    b: Builder, values: Any, found: Any, slope: Any, tangent: Any, result: Any, attributes: Attributes
) -> Any:
    """The mean of the tangents, times a slope, of all values that are the one that was found."""
    out = b.type_of(result)
    chosen = mask(b, b.emit("eq", values, found), out.dtype.compute)
    over = {"axes": axes_attribute(attributes, "axes"), "keepdims": bool(attributes["keepdims"])}
    weights = b.emit("mul", chosen, slope)
    total = b.emit("sum", b.emit("mul", cast(b, tangent, out.dtype.compute), weights), **over)
    return cast(b, b.emit("div", total, b.emit("sum", chosen, **over)), out.dtype)


def prod_jvp(b: Builder, op: Applied) -> Any:
    """Each tangent times the product of all other elements, which no division gives where one is 0."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    rest = [axis for axis in range(x.rank) if axis not in axes]
    order = (*rest, *axes)
    shape = (*(x.shape[axis] for axis in rest), product(x.shape[axis] for axis in axes))

    def flat(value: Any) -> Any:
        return b.emit("reshape", b.emit("transpose", widen(b, value), axes=order), shape=shape)

    values, last = flat(op.operands[0]), len(rest)
    others = b.emit("mul", multiply_before(b, values, last, reverse=False),
                    multiply_before(b, values, last, reverse=True))  # fmt: skip
    total = b.emit("sum", b.emit("mul", flat(op.tangents[0]), others), axes=(last,), keepdims=False)
    out = b.type_of(op.results[0])
    return cast(b, b.emit("reshape", total, shape=out.shape), out.dtype)


def multiply_before(b: Builder, values: Any, axis: int, *, reverse: bool) -> Any:
    """The product of all elements before each one along an axis, or behind it."""
    type = b.type_of(values)
    extent = type.shape[axis]
    edge = b.emit("full", shape=(*type.shape[:axis], ONE, *type.shape[axis + 1 :]), value=1.0, dtype=type.dtype)
    joined = (values, edge) if reverse else (edge, values)
    longer = b.emit("cumulative", b.emit("concat", *joined, axis=axis), kind="prod", axis=axis, reverse=reverse)
    start, stop, step = [ZERO] * type.rank, list(type.shape), (1,) * type.rank
    if reverse:
        start[axis], stop[axis] = ONE, extent + 1
    return restate(b, b.emit("slice", longer, start=tuple(start), stop=tuple(stop), step=step), type.shape)


def norm_jvp(b: Builder, op: Applied) -> Any:
    """Of the Euclidean norm: the tangents in the direction of `x`; NaN at 0, where there is no direction."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    compute = x.dtype.compute
    values, out = cast(b, op.operands[0], compute), b.type_of(op.results[0])
    found = b.emit("reshape", cast(b, op.results[0], compute), shape=kept_dims(x, axes))
    order = float(op.attributes["order"])
    if order == 0.0:
        return None  # it counts
    one, minus = constant(b, 1.0, compute), constant(b, -1.0, compute)
    direction = b.emit("where", b.emit("ge", values, constant(b, 0.0, compute)), one, minus)
    if math.isinf(order):
        sizes, slope = b.emit("abs", values), direction
        return _extremum_tangent(b, sizes, found, slope, op.tangents[0], op.results[0], op.attributes)
    if order == 2.0:
        slope = b.emit("div", values, found)
    else:
        # d|x|/dx (|x| / norm)^(order - 1)
        share = b.emit("div", b.emit("abs", values), found)
        slope = b.emit("mul", direction, b.emit("pow", share, constant(b, order - 1.0, compute)))
    over = {"axes": axes, "keepdims": bool(op.attributes["keepdims"])}
    total = b.emit("sum", b.emit("mul", cast(b, op.tangents[0], compute), slope), **over)
    return cast(b, total, out.dtype)


def logsumexp_jvp(b: Builder, op: Applied) -> Any:
    """The tangents weighted by softmax; 0 for a row of nothing but -inf, which has no weights."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    compute, out = x.dtype.compute, b.type_of(op.results[0])
    found = b.emit("reshape", cast(b, op.results[0], compute), shape=kept_dims(x, axes))
    finite = b.emit("where", b.emit("isinf", found), constant(b, 0.0, compute), found)
    weights = b.emit("exp", b.emit("sub", cast(b, op.operands[0], compute), finite))
    over = {"axes": axes, "keepdims": True}
    total = b.emit("sum", b.emit("mul", cast(b, op.tangents[0], compute), weights), **over)
    # Weights are divided by their own sum: so they are exactly those of the values, wherever the result was rounded.
    count = b.emit("sum", weights, **over)
    is_empty = b.emit("eq", count, constant(b, 0.0, compute))
    mean = b.emit("div", total, b.emit("where", is_empty, constant(b, 1.0, compute), count))
    return cast(b, b.emit("reshape", mean, shape=out.shape), out.dtype)


# Prefix sums, products and maxima.


def cumulative_jvp(b: Builder, op: Applied) -> Any:
    """A prefix sum is linear; a maximum takes the tangent of the last element that reached it."""
    kind, axis, reverse = op.attributes["kind"], int(op.attributes["axis"]), bool(op.attributes["reverse"])
    if kind == "sum":
        return b.emit("cumulative", op.tangents[0], **op.attributes)
    if kind in ("max", "min"):
        x = b.type_of(op.operands[0])
        position = b.emit("iota", shape=x.shape, axis=axis, dtype=dt.i64)
        is_new = b.emit("eq", op.operands[0], op.results[0])
        # Positions of elements that are not the maximum count as the first to be looked at.
        none = constant(b, 0, dt.i64)
        if reverse:
            position = b.emit("neg", position)
            none = constant(b, -(2**62), dt.i64)
        reached = b.emit("where", is_new, position, none)
        best = b.emit("cumulative", reached, kind="max", axis=axis, reverse=reverse)
        index = b.emit("neg", best) if reverse else best
        return b.emit("take_along_axis", op.tangents[0], index, axis=axis, mode="clip")
    return _cumprod_jvp(b, op.operands[0], op.tangents[0], op.results[0], op.attributes)


def _cumprod_jvp(b: Builder, x: Any, tangent: Any, result: Any, attributes: Attributes) -> Any:
    """`t_out[k] = t_out[k-1] x[k] + out[k-1] t[k]`, row after row: no division, so zeros are no matter."""
    from tessera.ir.graph.derivatives.control import linear_recurrence  # noqa: PLC0415 - few programs have any

    axis, reverse = int(attributes["axis"]), bool(attributes["reverse"])
    type = b.type_of(result)
    edge = b.emit("full", shape=(*type.shape[:axis], ONE, *type.shape[axis + 1 :]), value=1.0, dtype=type.dtype)
    joined = (result, edge) if reverse else (edge, result)
    start, stop = [ZERO] * type.rank, list(type.shape)
    if reverse:
        start[axis], stop[axis] = ONE, type.shape[axis] + 1
    longer = b.emit("concat", *joined, axis=axis)
    before = b.emit("slice", longer, start=tuple(start), stop=tuple(stop), step=(1,) * type.rank)
    inner = b.emit("mul", cast(b, tangent, type.dtype), restate(b, before, type.shape))
    return linear_recurrence(b, cast(b, x, type.dtype), inner, axis, reverse=reverse)


def cumulative(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The sum from the other end."""
    (x,) = operands
    assert isinstance(x, Linear)
    assert attributes["kind"] == "sum", "only a prefix sum is linear"
    given = {**attributes, "reverse": not attributes["reverse"]}
    return (cast(b, b.emit("cumulative", cotangents[0], **given), x.type.dtype),)


def _row_sum(b: Builder, value: Any, axes: tuple[int, ...]) -> Any:
    return b.emit("sum", value, axes=axes, keepdims=True)


def _axis(b: Builder, x: Any, attributes: Attributes) -> tuple[int, ...]:
    return (int(attributes["axis"]) % b.type_of(x).rank,)


def softmax_jvp(b: Builder, op: Applied) -> Any:
    """`p (t - sum(p t))`."""
    out, axes = b.type_of(op.results[0]), _axis(b, op.results[0], op.attributes)
    shares, tangent = widen(b, op.results[0]), widen(b, op.tangents[0])
    mean = _row_sum(b, b.emit("mul", tangent, shares), axes)
    return cast(b, b.emit("mul", b.emit("sub", tangent, mean), shares), out.dtype)


def log_softmax_jvp(b: Builder, op: Applied) -> Any:
    """`t - sum(p t)`."""
    out, axes = b.type_of(op.results[0]), _axis(b, op.results[0], op.attributes)
    shares, tangent = b.emit("exp", widen(b, op.results[0])), widen(b, op.tangents[0])
    return cast(b, b.emit("sub", tangent, _row_sum(b, b.emit("mul", tangent, shares), axes)), out.dtype)


def cross_entropy_jvp(b: Builder, op: Applied) -> Any:
    """Each row's tangents weighted by its shares, less 1 at its label; one outside the classes counts for nothing."""
    logits, labels = op.operands
    kind, label = b.type_of(logits), b.type_of(labels)
    last, out = kind.rank - 1, b.type_of(op.results[0])
    chosen, found = match_labels(b, labels, kind.shape[-1])
    shares = b.emit("exp", widen(b, b.emit("log_softmax", logits, axis=-1)))
    compute = b.type_of(shares).dtype
    one, zero = constant(b, 1.0, compute), constant(b, 0.0, compute)
    weights = b.emit("sub", shares, b.emit("where", chosen, one, zero))
    weights = b.emit("where", expand(b, found, last), weights, zero)
    axes = (last,) if op.attributes["reduction"] == "none" else tuple(range(kind.rank))
    total = b.emit("sum", b.emit("mul", widen(b, op.tangents[0]), weights), axes=axes, keepdims=False)
    if op.attributes["reduction"] == "mean":
        # The sum is divided, and not its terms: in reverse that is one number, and not one for each class of each row.
        every = tuple(range(label.rank))
        count = b.emit("sum", b.emit("where", found, one, zero), axes=every, keepdims=False)
        total = b.emit("div", total, b.emit("maximum", count, one))
    return cast(b, total, out.dtype)


def normalize_jvp(b: Builder, op: Applied) -> Any:
    """Of layernorm and rmsnorm: `r (t - mean(t) - n mean(n t))` with `n` normalised and `r` one over the root."""
    x, *parameters = op.operands
    kind, is_centred = b.type_of(x), op.spec.short_name.startswith("layernorm")
    axes = tuple(range(int(op.attributes["axis"]) % kind.rank, kind.rank))
    if any(kind.shape[axis].value == 0 for axis in axes):
        return op.tangents[0]
    value = widen(b, x)
    compute = b.type_of(value).dtype
    if is_centred:
        value = b.emit("sub", value, b.emit("mean", value, axes=axes, keepdims=True))
    inverse = inverse_root(b, value, axes, op.attributes["eps"], is_differentiated=True)
    normal, parts = b.emit("mul", value, inverse), list[Any]()
    if op.tangents[0] is not None:
        tangent = widen(b, op.tangents[0])
        if is_centred:
            tangent = b.emit("sub", tangent, b.emit("mean", tangent, axes=axes, keepdims=True))
        along = b.emit("mean", b.emit("mul", tangent, normal), axes=axes, keepdims=True)
        part = b.emit("mul", b.emit("sub", tangent, b.emit("mul", along, normal)), inverse)
        parts.append(b.emit("mul", part, cast(b, parameters[0], compute)) if parameters else part)
    if len(op.tangents) > 1 and op.tangents[1] is not None:
        parts.append(b.emit("mul", cast(b, op.tangents[1], compute), normal))
    if len(op.tangents) > 2 and op.tangents[2] is not None:
        parts.append(b.emit("broadcast_to", cast(b, op.tangents[2], compute), shape=kind.shape))
    return cast(b, add_all(b, parts), kind.dtype)
