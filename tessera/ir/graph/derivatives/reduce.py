"""Derivatives of reductions and of prefix sums."""

from __future__ import annotations

import math
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import axes_attribute, cast, constant, restate, widen
from tessera.ir.graph.derivatives.shared import Values, in_dtype, mask
from tessera.ir.graph.transforms.facets import Applied, Linear
from tessera.types import dtype as dt
from tessera.types.dim import product
from tessera.types.shape import ONE, ZERO, Shape, TensorType


def kept_dims(x: TensorType, axes: tuple[int, ...]) -> Shape:
    """The shape of a reduction that keeps its axes with 1 element."""
    return tuple(ONE if axis in axes else dim for axis, dim in enumerate(x.shape))


def spread(b: Builder, value: Any, x: TensorType, axes: tuple[int, ...]) -> Any:
    """A reduction's result, with or without its axes, broadcast over what it was reduced from."""
    return b.emit("broadcast_to", b.emit("reshape", value, shape=kept_dims(x, axes)), shape=x.shape)


def sum(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent of a sum, for each of its terms."""
    (x,) = operands
    assert isinstance(x, Linear)
    value = spread(b, cotangents[0], x.type, axes_attribute(attributes, "axes"))
    return (in_dtype(b, value, x.type.dtype),)


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
    return in_dtype(b, b.emit("div", total, b.emit("sum", chosen, **over)), out.dtype)


def prod_jvp(b: Builder, op: Applied) -> Any:
    """Each tangent times the product of all other elements, which no division gives where one is 0."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    rest = [axis for axis in range(x.rank) if axis not in axes]
    order = (*rest, *axes)
    shape = (*(x.shape[axis] for axis in rest), product(x.shape[axis] for axis in axes))

    def flat(value: Any) -> Any:
        return b.emit("reshape", b.emit("transpose", widen(b, value), axes=order), shape=shape)

    values, last = flat(op.operands[0]), len(rest)
    others = b.emit("mul", exclusive_products(b, values, last, reverse=False),
                    exclusive_products(b, values, last, reverse=True))  # fmt: skip
    total = b.emit("sum", b.emit("mul", flat(op.tangents[0]), others), axes=(last,), keepdims=False)
    out = b.type_of(op.results[0])
    return in_dtype(b, b.emit("reshape", total, shape=out.shape), out.dtype)


def exclusive_products(b: Builder, values: Any, axis: int, *, reverse: bool) -> Any:
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
    if math.isinf(order):
        sizes, slope = b.emit("abs", values), b.emit("sign", values)
        return _extremum_tangent(b, sizes, found, slope, op.tangents[0], op.results[0], op.attributes)
    if order == 2.0:
        slope = b.emit("div", values, found)
    else:
        # sign(x) (|x| / norm)^(order - 1)
        share = b.emit("div", b.emit("abs", values), found)
        slope = b.emit("mul", b.emit("sign", values), b.emit("pow", share, constant(b, order - 1.0, compute)))
    over = {"axes": axes, "keepdims": bool(op.attributes["keepdims"])}
    total = b.emit("sum", b.emit("mul", cast(b, op.tangents[0], compute), slope), **over)
    return in_dtype(b, total, out.dtype)


def logsumexp_jvp(b: Builder, op: Applied) -> Any:
    """The tangents weighted by softmax; where the result is infinite, the rows have no weights but those of JAX."""
    x, axes = b.type_of(op.operands[0]), axes_attribute(op.attributes, "axes")
    compute, out = x.dtype.compute, b.type_of(op.results[0])
    found = b.emit("reshape", cast(b, op.results[0], compute), shape=kept_dims(x, axes))
    finite = b.emit("where", b.emit("isinf", found), constant(b, 0.0, compute), found)
    weights = b.emit("exp", b.emit("sub", cast(b, op.operands[0], compute), finite))
    over = {"axes": axes, "keepdims": True}
    total = b.emit("sum", b.emit("mul", cast(b, op.tangents[0], compute), weights), **over)
    # Weights are divided by their own sum: so they are exactly those of the values, wherever the result was rounded.
    mean = b.emit("div", total, b.emit("sum", weights, **over))
    return in_dtype(b, b.emit("reshape", mean, shape=out.shape), out.dtype)


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
    return _cumulative_product_jvp(b, op.operands[0], op.tangents[0], op.results[0], op.attributes)


def _cumulative_product_jvp(b: Builder, x: Any, tangent: Any, result: Any, attributes: Attributes) -> Any:
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
    inner = b.emit("mul", in_dtype(b, tangent, type.dtype), restate(b, before, type.shape))
    return linear_recurrence(b, in_dtype(b, x, type.dtype), inner, axis, reverse=reverse)


def cumulative(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The sum from the other end."""
    (x,) = operands
    assert isinstance(x, Linear)
    assert attributes["kind"] == "sum", "only a prefix sum is linear"
    given = {**attributes, "reverse": not attributes["reverse"]}
    return (in_dtype(b, b.emit("cumulative", cotangents[0], **given), x.type.dtype),)
