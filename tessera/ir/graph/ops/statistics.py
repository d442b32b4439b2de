"""Reductions made of others, computed in f32 (f64 for f64) and rounded once: mean, var, std, logsumexp, norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as, widen
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, IntervalRule
from tessera.ir.base.spec import FLOATS, ROUND, Attribute, Attributes, Builder, Cost, InferContext, OpSpec, Sample
from tessera.ir.graph.building import normal, traffic
from tessera.ir.graph.ops.elementwise import check_dtype
from tessera.ir.graph.ops.reduce import AXES, check_axes, check_not_empty, samples
from tessera.ir.graph.shared_reference import reduce_lanes
from tessera.types.dim import Dim, maximum, product
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType, is_at_least, without_axes

CORRECTION = Attribute("correction", "int", 0, doc="what the count is less by before dividing")
ORDER = Attribute("order", "float", 2.0, doc="1 (sum of sizes), 2 (Euclid) or infinity (largest size)")


def count_of(builder: Builder, x: TensorType, axes: Sequence[int], correction: int = 0) -> Any:
    """How many elements are reduced, less a correction but not below 0, as a scalar in the dtype of computation."""
    count = product(x.shape[axis] for axis in axes) - correction
    if not is_at_least(count, 0):
        count = maximum(count, 0)
    return size_value(builder, count, x)


def size_value(builder: Builder, size: Dim, like: TensorType) -> Any:
    """A size as a scalar in the dtype `like` computes in."""
    dtype = like.dtype.compute
    if size.value is not None:
        return builder.emit("full", value=float(size.value), shape=(), dtype=dtype)
    return builder.emit("cast", builder.emit("dim_size", dims=(size,)), dtype=dtype)


def _wide(builder: Builder, x: Any) -> Any:
    dtype = builder.type_of(x).dtype
    return x if dtype.compute is dtype else builder.emit("cast", x, dtype=dtype.compute)


def _narrow(builder: Builder, value: Any, like: Any) -> Any:
    dtype = builder.type_of(like).dtype
    return value if dtype.compute is dtype else builder.emit("cast", value, dtype=dtype)


def _mean(builder: Builder, x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    total = builder.emit("sum", x, axes=axes, keepdims=keepdims)
    return builder.emit("div", total, count_of(builder, builder.type_of(x), axes))


def _var(builder: Builder, x: Any, attributes: Attributes) -> Any:
    axes = attributes["axes"]
    away = builder.emit("sub", x, _mean(builder, x, axes, True))
    squares = builder.emit("sum", builder.emit("mul", away, away), axes=axes, keepdims=attributes["keepdims"])
    return builder.emit("div", squares, count_of(builder, builder.type_of(x), axes, attributes["correction"]))


def _logsumexp(builder: Builder, x: Any, attributes: Attributes) -> Any:
    axes, dtype = tuple(attributes["axes"]), builder.type_of(x).dtype
    top = builder.emit("max", x, axes=axes, keepdims=True, identity=True)
    zero = builder.emit("full", value=0.0, shape=(), dtype=dtype)
    # inf - inf is not a number: an infinite maximum is left where it is
    top = builder.emit("where", builder.emit("isinf", top), zero, top)
    total = builder.emit("sum", builder.emit("exp", builder.emit("sub", x, top)), axes=axes, keepdims=True)
    result = builder.emit("add", builder.emit("log", total), top)
    return result if attributes["keepdims"] else builder.emit("squeeze", result, axes=axes)


@frozen
class _Ends:
    """Where squares of a dtype leave its range, as powers of two: they do not round.

    What is larger than `large` is also summed times `down`, what is smaller than `small` times `up`; a sum of plain
    squares below `least` has nothing in it but what is smaller than `small`.
    """

    large: float
    down: float
    small: float
    up: float
    least: float


_ENDS = {
    "f32": _Ends(2.0**40, 2.0**-76, 2.0**-40, 2.0**90, 2.0**-90),
    "f64": _Ends(2.0**400, 2.0**-600, 2.0**-300, 2.0**600, 2.0**-700),
}


def _euclid(builder: Builder, x: Any, over: Attributes) -> Any:
    """The root of the sum of squares; where that is too large or too small, of scaled values, in the same pass."""
    dtype = builder.type_of(x).dtype
    ends, size = _ENDS[dtype.name], builder.emit("abs", x)

    def number(value: float) -> Any:
        return builder.emit("full", value=value, shape=(), dtype=dtype)

    def squares(values: Any) -> Any:
        return builder.emit("sum", builder.emit("mul", values, values), **over)

    def root(values: Any, factor: float) -> Any:
        return builder.emit("mul", builder.emit("sqrt", values), number(factor))

    is_large, is_small = builder.emit("gt", size, number(ends.large)), builder.emit("lt", size, number(ends.small))
    plain = squares(x)
    large = squares(builder.emit("where", is_large, builder.emit("mul", x, number(ends.down)), number(0.0)))
    small = squares(builder.emit("where", is_small, builder.emit("mul", x, number(ends.up)), number(0.0)))
    is_tiny = builder.emit("lt", plain, number(ends.least))
    usual = builder.emit("where", is_tiny, root(small, 1.0 / ends.up), builder.emit("sqrt", plain))
    return builder.emit("where", builder.emit("isinf", plain), root(large, 1.0 / ends.down), usual)


def _euclid_values(x: Array, axes: Sequence[int], *, keepdims: bool) -> Array:
    ends, size = _ENDS[dtype_of(x).name], np.abs(x)
    kind: Any = x.dtype.type

    def squares(values: Any) -> Array:
        return reduce_lanes("sum", values * values, axes, keepdims=keepdims)

    plain = squares(x)
    large = squares(np.where(size > ends.large, x * kind(ends.down), kind(0)))
    small = squares(np.where(size < ends.small, x * kind(ends.up), kind(0)))
    usual = np.where(plain < ends.least, np.sqrt(small) * kind(1.0 / ends.up), np.sqrt(plain))
    return np.where(np.isinf(plain), np.sqrt(large) * kind(1.0 / ends.down), usual)


def _norm(builder: Builder, x: Any, attributes: Attributes) -> Any:
    over = {"axes": attributes["axes"], "keepdims": attributes["keepdims"]}
    if attributes["order"] == 2:
        return _euclid(builder, x, over)
    return builder.emit("sum" if attributes["order"] == 1 else "max", builder.emit("abs", x), **over)


def _decompose(body: Callable[[Builder, Any, Attributes], Any]) -> Any:
    def decompose(builder: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        return _narrow(builder, body(builder, _wide(builder, operands[0]), attributes), operands[0])

    return decompose


def _count(x: Array, axes: Sequence[int], correction: int = 0) -> Any:
    number = math.prod(x.shape[axis] for axis in axes) - correction
    return x.dtype.type(max(number, 0))


def mean_values(x: Array, axes: Sequence[int], *, keepdims: bool) -> Array:
    """The mean in the dtype of `x`, by the canonical recipe."""
    return reduce_lanes("sum", x, axes, keepdims=keepdims) / _count(x, axes)


def var_values(x: Array, axes: Sequence[int], *, keepdims: bool, correction: int = 0) -> Array:
    """The variance in the dtype of `x`: the mean first, then the squares around it."""
    away = x - mean_values(x, axes, keepdims=True)
    return reduce_lanes("sum", away * away, axes, keepdims=keepdims) / _count(x, axes, correction)


def _reference(values: Callable[..., Any]) -> Callable[..., Array]:
    """A reference from a function on arrays in the dtype of computation."""

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False, **attributes: Any) -> Array:
        with np.errstate(all="ignore"):
            return round_as(values(widen(x), tuple(axes), keepdims=keepdims, **attributes), dtype_of(x))

    return reference


def _std_values(x: Array, axes: Sequence[int], *, keepdims: bool, correction: int = 0) -> Array:
    return np.sqrt(var_values(x, axes, keepdims=keepdims, correction=correction))


def _logsumexp_values(x: Array, axes: Sequence[int], *, keepdims: bool) -> Array:
    top = reduce_lanes("max", x, axes, keepdims=True)
    top = np.where(np.isinf(top), x.dtype.type(0), top)
    result = np.log(reduce_lanes("sum", np.exp(x - top), axes, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, tuple(axes))


def _norm_values(x: Array, axes: Sequence[int], *, keepdims: bool, order: float = 2.0) -> Array:
    if order == 2:
        return _euclid_values(x, axes, keepdims=keepdims)
    return reduce_lanes("sum" if order == 1 else "max", np.abs(x), axes, keepdims=keepdims)


def _infer(name: str, *, empty: bool) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        check_dtype(ctx, name, "x", x, FLOATS)
        axes = check_axes(ctx, name, x, attributes["axes"])
        order = attributes.get("order", 2)
        if order not in (1, 2, math.inf):
            raise ctx.fail(f"`{name}` has no order {order}", help="`order` is 1, 2 or infinity")
        if not empty or order == math.inf:
            check_not_empty(ctx, name, x, axes)
        return [x.with_shape(without_axes(x.shape, axes, keepdims=attributes["keepdims"]))]

    return infer


def _cost(flops: int) -> Any:
    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
        return Cost(operands[0].size * flops, traffic(operands, results))

    return cost


def _make(
    name: str,
    summary: str,
    body: Callable[[Builder, Any, Attributes], Any],
    values: Callable[..., Any],
    *,
    flops: int,
    empty: bool = True,
    attributes: tuple[Attribute, ...] = (),
    more: tuple[Sample, ...] = (),
    interval: IntervalRule = ANYTHING,
) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXES, *attributes),
        infer=_infer(name, empty=empty),
        reference=_reference(values),
        samples=(*samples(normal, empty=empty), *more),
        dtypes=FLOATS,
        cost=_cost(flops),
        decompose=_decompose(body),
        policy=ROUND,
        interval=interval,
    )


def _shifted_rows(rng: np.random.Generator) -> Sequence[Any]:
    return [np.asarray(rng.standard_normal((3, 67)) + 100.0, np.float32)]


def _huge(rng: np.random.Generator) -> Sequence[Any]:
    rows = np.array([[1000.0, 1000.0], [-1000.0, -1001.0], [-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 3.0]])
    return [rows.astype(np.float32)]


def _mean_interval(query: IntervalQuery) -> Interval:
    """The range of the elements, and what as many roundings may add: 2**-6 of them where the count is not known."""
    x, count = query.x, query.count(query.attributes["axes"])
    slack = min(count * query.result.dtype.compute.epsilon, 2.0**-6)
    low, high = x.low - abs(x.low) * slack, x.high + abs(x.high) * slack
    return Interval(low, high, x.may_be_nan or math.isinf(x.magnitude) or count == 0, x.is_reached, x.sources)


_ROWS = {"axes": (1,)}

SPECS: tuple[OpSpec, ...] = (
    _make(
        "mean",
        "Sum over axes divided by the count; NaN for no elements.",
        lambda builder, x, attributes: _mean(builder, x, attributes["axes"], attributes["keepdims"]),
        mean_values,
        flops=1,
        interval=IntervalRule(_mean_interval),
    ),
    _make(
        "var",
        "Mean square distance from the mean; the count may be less by a correction.",
        _var,
        var_values,
        flops=4,
        attributes=(CORRECTION,),
        more=(
            Sample("unbiased", normal((5, 7)), {"axes": (1,), "correction": 1}),
            Sample("far from zero", _shifted_rows, _ROWS),
        ),
    ),
    _make(
        "std",
        "Square root of the variance.",
        lambda builder, x, attributes: builder.emit("sqrt", _var(builder, x, attributes)),
        _std_values,
        flops=4,
        attributes=(CORRECTION,),
        more=(Sample("unbiased", normal((5, 7)), {"axes": (0, 1), "correction": 1}),),
    ),
    _make(
        "logsumexp",
        "`log(sum(exp(x)))` over axes, -inf for no elements; the largest is taken out first, so finite input gives "
        "finite output.",
        _logsumexp,
        _logsumexp_values,
        flops=14,
        more=(Sample("huge and infinite", _huge, _ROWS),),
    ),
    _make(
        "norm",
        "Vector norm over axes.",
        _norm,
        _norm_values,
        flops=2,
        attributes=(ORDER,),
        more=(
            Sample("order 1", normal((5, 67)), {"axes": (1,), "order": 1.0}),
            Sample("largest", normal((5, 67)), {"axes": (0,), "order": math.inf, "keepdims": True}),
        ),
    ),
)
