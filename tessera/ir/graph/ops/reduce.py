"""Reductions by the canonical recipe, and statistics made of them: mean, var, std, logsumexp, norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, widen_array
from tessera.ir.base.interval import ANYTHING, BOOLEAN, SAME, Interval, IntervalQuery, IntervalRule, total_of
from tessera.ir.base.spec import (
    ANY,
    BOOL,
    FLOATS,
    KEEP,
    NUMBERS,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
    Simplifier,
)
from tessera.ir.graph.building import (
    ACCUMULATE,
    Types,
    cast,
    check_accumulator,
    check_axes,
    check_dtype,
    check_not_empty,
    constant,
    log_of_sum,
    size_value,
    visits,
    widen,
)
from tessera.ir.graph.samples import Sizes, bools, normal, shape_name
from tessera.ir.tile.facets import Reduction
from tessera.types.dim import maximum, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.numerics import LANES, LEAF
from tessera.types.promotion import ARITHMETIC, INDEX, LOGICAL, SUM, OpClass, sum_of
from tessera.types.shape import TensorType, is_at_least, without_axes

# The canonical recipe of reductions. The order of additions is part of the meaning: elements come in leaves of 1024,
# element i of a leaf goes to lane i % 256, each lane adds its elements in order, a halving tree joins the lanes, and an
# aligned binary tree the leaves. Kernels keep to it whatever their tile, thread count or machine, so that bits never
# depend on those; any part of the tree may be computed elsewhere.

REDUCTION_UFUNCS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def identity(kind: str, dtype: np.dtype[Any]) -> Any:
    """The identity of a reduction: what an empty one gives."""
    if kind in ("sum", "any"):
        return dtype.type(0)
    if kind in ("prod", "all"):
        return dtype.type(1)
    if dtype.kind == "f":
        return dtype.type(-np.inf if kind == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if kind == "max" else limits.max)


def reduced_last(x: Array, axes: Sequence[int]) -> Array:
    """The array as [kept elements, reduced elements], the reduced ones in row-major order of their axes."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose((*kept, *axes))
    return moved.reshape(
        int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64)),
        int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64)),
    )


def kept_shape(x: Array, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """The shape of the result of a reduction."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def _split_lanes(kind: str, x: Array, axes: Sequence[int]) -> Array:
    """What each lane takes at each step, as [step, row, leaf, lane]; rows are filled up with the identity."""
    rows = reduced_last(x, axes)
    leaves = max(1, -(-rows.shape[1] // LEAF))
    padded = np.full((rows.shape[0], leaves * LEAF), identity(kind, x.dtype), x.dtype)
    padded[:, : rows.shape[1]] = rows
    return padded.reshape(rows.shape[0], leaves, LEAF // LANES, LANES).transpose(2, 0, 1, 3)


def _join_lanes(kind: str, lanes: Array) -> Array:
    """The lanes of [row, leaf, lane], joined by a halving tree, and then the leaves by an aligned one."""
    ufunc = REDUCTION_UFUNCS[kind]
    while (half := lanes.shape[2] // 2) > 0:
        lanes = ufunc(lanes[:, :, :half], lanes[:, :, half:])
    leaves = lanes[:, :, 0]
    while leaves.shape[1] > 1:
        whole = leaves.shape[1] // 2 * 2
        # A leaf without a partner goes on as it is.
        leaves = np.concatenate([ufunc(leaves[:, :whole:2], leaves[:, 1:whole:2]), leaves[:, whole:]], axis=1)
    return leaves[:, 0]


def reduce_lanes(kind: str, x: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array:
    """Sum, prod, max or min over `axes` in the dtype of `x`, bit for bit as compiled kernels do it.

    Lane `l` of a leaf starts from the identity and takes elements `l`, `l + 256`, ... in order; then lane `l` takes in
    lane `l + 128`, then `l + 64`, ... `l + 1`; leaf `2 i` takes in leaf `2 i + 1`, and so on.
    """
    steps = _split_lanes(kind, x, axes)
    start = np.full((1, *steps.shape[1:]), identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        # accumulate, unlike reduce, is defined to go one element after the other
        lanes = REDUCTION_UFUNCS[kind].accumulate(np.concatenate([start, steps]), axis=0)[-1]
        return _join_lanes(kind, lanes).reshape(kept_shape(x, axes, keepdims))


def _reduce_narrow(kind: str, x: Array, axes: Sequence[int], total: DType, *, keepdims: bool = False) -> Array:
    """As `reduce_lanes` of f32, with every lane rounded to a narrow accumulator at each step; the trees are in f32."""
    steps = _split_lanes(kind, x, axes)
    lanes = np.full(steps.shape[1:], identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        for step in steps:
            lanes = round_as(REDUCTION_UFUNCS[kind](lanes, step), total).astype(x.dtype)
        return _join_lanes(kind, lanes).reshape(kept_shape(x, axes, keepdims))


def scan_reference(kind: str, x: Array, axis: int, total: DType) -> Array:
    """Each element reduced with all before it along an axis, in order: in a wide accumulator, or one rounded each time.

    A narrow accumulator rounds the first element too, as it rounds every other step.
    """
    ufunc = REDUCTION_UFUNCS[kind]
    with np.errstate(all="ignore"):
        if not total.is_float or total.compute is total:
            return ufunc.accumulate(x.astype(numpy_dtype(total)), axis=axis)
        out = np.moveaxis(x.astype(np.float32), axis, 0)
        for at in range(out.shape[0]):
            joined = ufunc(out[at - 1], out[at]) if at else out[at]
            out[at] = round_as(joined, total).astype(np.float32)
    return np.moveaxis(out, 0, axis)


def reduce_array(
    kind: str, x: Array, axes: Sequence[int], *, keepdims: bool = False, accumulate: DType | None = None
) -> Array:
    """The reduction of an array of any dtype: narrow floats in f32, integer sums in 64 bits, rounded once.

    `accumulate` is another float to keep running sums in: a wider one, or a narrow one that rounds at each step.
    """
    dtype = dtype_of(x)
    if accumulate is not None and dtype.is_float and accumulate is not dtype.compute:
        if accumulate.compute is not accumulate:
            return round_as(_reduce_narrow(kind, widen_array(x), axes, accumulate, keepdims=keepdims), dtype)
        return round_as(reduce_lanes(kind, x.astype(numpy_dtype(accumulate)), axes, keepdims=keepdims), dtype)
    if kind in ("sum", "prod") and not dtype.is_float:
        return reduce_lanes(kind, x.astype(numpy_dtype(sum_of(dtype))), axes, keepdims=keepdims)
    return round_as(reduce_lanes(kind, widen_array(x), axes, keepdims=keepdims), dtype)


# Reductions.

AXES = (
    Attribute("axes", "ints", doc="the reduced axes: sorted, counted from the front, none twice"),
    Attribute("keepdims", "bool", False, doc="keep each reduced axis as a dim of 1"),
)

IDENTITY = Attribute("identity", "bool", False, doc="no elements give -inf or inf, or the end of the integers' range")
"""For decompositions in which the max or min of no elements does no harm; otherwise there is no answer for it."""

SHAPES: Sequence[tuple[Sizes, Sizes]] = (
    ((7,), (0,)),
    ((1,), (0,)),
    ((), ()),
    ((3, 5), (1,)),
    ((3, 5), (0,)),
    ((4, 1, 3), (1,)),
    ((2, 3, 5), (0, 2)),
    ((2, 3, 5), (0, 1, 2)),
    ((0, 4), (1,)),
    ((33, 31), (1,)),
    ((31, 67), (0, 1)),
    ((5, 131), (1,)),
    ((2, 1500), (1,)),
    ((1029, 3), (0,)),
)
"""Shapes and reduced axes; the reduced sizes are below, at and above vectors, lanes and leaves."""


def _samples(make: Callable[..., Any], *, empty: bool) -> tuple[Sample, ...]:
    """The shapes of this file with and without kept dims; with an empty reduced axis where the op allows it."""
    found = [
        Sample(f"{shape_name([shape])} over {axes}", make(shape), {"axes": axes, "keepdims": number % 2 == 1})
        for number, (shape, axes) in enumerate(SHAPES)
    ]
    return (*found, *((Sample("3x0 over an empty axis", make((3, 0)), {"axes": (1,)}),) if empty else ()))


def _arg_reference(kind: str) -> Callable[..., Array]:
    search: Any = np.argmax if kind == "argmax" else np.argmin

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
        rows = reduced_last(widen_array(x), axes)
        return np.asarray(search(rows, axis=1), np.int64).reshape(kept_shape(x, axes, keepdims))

    return reference


def _reduce_reference(kind: str) -> Callable[..., Array]:
    def reference(
        x: Array,
        *,
        axes: Sequence[int],
        keepdims: bool = False,
        identity: bool = False,
        accumulate: DType | None = None,
    ) -> Array:
        return reduce_array(kind, x, axes, keepdims=keepdims, accumulate=accumulate)

    return reference


def _bool_reference(kind: str) -> Callable[..., Array]:
    function: Any = np.any if kind == "any" else np.all

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
        return np.asarray(function(x, axis=tuple(axes), keepdims=keepdims), np.bool_)

    return reference


@frozen
class _Family:
    """What reductions of one kind share; `empty` says that there is a value for no elements."""

    group: OpClass
    dtypes: tuple[str, ...]
    reference: Callable[[str], Callable[..., Array]]
    empty: bool
    attributes: tuple[Attribute, ...] = ()
    policy: PolicyRule = ROUND
    interval: IntervalRule = ANYTHING


_SUMMING = _Family(SUM, ANY, _reduce_reference, empty=True, attributes=(ACCUMULATE,))
_CHOOSING = _Family(
    ARITHMETIC, NUMBERS, _reduce_reference, empty=False, attributes=(IDENTITY,), policy=KEEP, interval=SAME
)
_LOGICAL = _Family(LOGICAL, BOOL, _bool_reference, empty=True, interval=BOOLEAN)
_SEARCHING = _Family(INDEX, NUMBERS, _arg_reference, empty=False)


_JVPS = {"sum": "linear", "prod": "reduce:prod_jvp", "max": "reduce:extremum_jvp", "min": "reduce:extremum_jvp"}


def _reduction(name: str, family: _Family, summary: str, interval: IntervalRule | None = None) -> OpSpec:
    group, empty = family.group, family.empty

    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        (x,) = types
        check_dtype(ctx, name, "x", x, family.dtypes)
        axes = check_axes(ctx, name, x, attributes["axes"])
        check_accumulator(ctx, name, x, attributes.get("accumulate"))
        if not empty and not attributes.get("identity"):
            check_not_empty(ctx, name, x, axes)
        return [TensorType(without_axes(x.shape, axes, keepdims=attributes["keepdims"]), group.result(x.dtype))]

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        """A reduction over no axes is its operand, in the dtype of the result."""
        if attributes["axes"]:
            return None
        x = simplifier.type_of(operands[0])
        if group is INDEX:
            return simplifier.emit("full", value=0, shape=x.shape, dtype=group.result(x.dtype))
        return cast(simplifier, operands[0], group.result(x.dtype))

    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXES, *family.attributes),
        infer=infer,
        reference=family.reference(name),
        samples=_samples(bools if family.dtypes == BOOL else normal, empty=empty),
        dtypes=family.dtypes,
        cost=visits(1),
        simplify=simplify,
        lower=Reduction(name, lambda x, attributes: tuple(attributes["axes"])),
        policy=family.policy,
        interval=interval or family.interval,
        jvp=_JVPS.get(name),
        transpose="reduce:sum" if name == "sum" else None,
        no_derivative="an index has no tangent" if group is INDEX else "",
    )


def _sum_interval(query: IntervalQuery) -> Interval:
    return total_of(query.x, query.count(query.attributes["axes"]), query.result.dtype)


_FIRST = "over axes, in their row-major order: the first of equals; the first NaN is chosen."

REDUCTIONS = (
    _reduction("sum", _SUMMING, "Sum over axes; integers in 64 bits; 0 for no elements.", IntervalRule(_sum_interval)),
    _reduction("prod", _SUMMING, "Product over axes; integers in 64 bits; 1 for no elements."),
    _reduction("max", _CHOOSING, "Largest over axes, which have elements; NaN propagates."),
    _reduction("min", _CHOOSING, "Smallest over axes, which have elements; NaN propagates."),
    _reduction("any", _LOGICAL, "Whether one is true; false for no elements."),
    _reduction("all", _LOGICAL, "Whether all are true; true for no elements."),
    _reduction("argmax", _SEARCHING, f"Position of the largest {_FIRST}"),
    _reduction("argmin", _SEARCHING, f"Position of the smallest {_FIRST}"),
)


# Statistics: reductions made of others, computed in f32 (f64 for f64) and rounded once.

CORRECTION = Attribute("correction", "int", 0, doc="what the count is less by before dividing")
ORDER = Attribute("order", "float", 2.0, doc="any power; 0 counts what is not zero, inf and -inf choose max and min")


def _count_value(b: Builder, x: TensorType, axes: Sequence[int], correction: int = 0) -> Any:
    """How many elements are reduced, less a correction but not below 0, as a scalar in the dtype of computation."""
    count = product(x.shape[axis] for axis in axes) - correction
    return size_value(b, count if is_at_least(count, 0) else maximum(count, 0), x.dtype.compute)


def _mean(builder: Builder, x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    total = builder.emit("sum", x, axes=axes, keepdims=keepdims)
    return builder.emit("div", total, _count_value(builder, builder.type_of(x), axes))


def _var(builder: Builder, x: Any, attributes: Attributes) -> Any:
    axes = attributes["axes"]
    away = builder.emit("sub", x, _mean(builder, x, axes, True))
    squares = builder.emit("sum", builder.emit("mul", away, away), axes=axes, keepdims=attributes["keepdims"])
    return builder.emit("div", squares, _count_value(builder, builder.type_of(x), axes, attributes["correction"]))


def _logsumexp(builder: Builder, x: Any, attributes: Attributes) -> Any:
    axes, dtype = tuple(attributes["axes"]), builder.type_of(x).dtype
    top = builder.emit("max", x, axes=axes, keepdims=True, identity=True)
    zero = constant(builder, 0.0, dtype)
    # inf - inf is not a number: an infinite maximum is left where it is
    top = builder.emit("where", builder.emit("isinf", top), zero, top)
    total = builder.emit("sum", builder.emit("exp", builder.emit("sub", x, top)), axes=axes, keepdims=True)
    result = builder.emit("add", log_of_sum(builder, total), top)
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
        return constant(builder, value, dtype)

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


_PLAIN_NORMS = {0.0: "sum", 1.0: "sum", math.inf: "max", -math.inf: "min"}
"""Orders whose norm is one reduction: of sizes, and for 0 of whether they are something."""


def _norm(builder: Builder, x: Any, attributes: Attributes) -> Any:
    """Powers are of sizes over the largest (the smallest for a negative order), so that they stay finite."""
    axes, order, dtype = attributes["axes"], float(attributes["order"]), builder.type_of(x).dtype
    over = {"axes": axes, "keepdims": attributes["keepdims"]}
    if order == 2:
        return _euclid(builder, x, over)
    size, zero = builder.emit("abs", x), constant(builder, 0.0, dtype)
    if order in _PLAIN_NORMS:
        counted = cast(builder, builder.emit("ne", x, zero), dtype) if order == 0 else size
        return builder.emit(_PLAIN_NORMS[order], counted, **over)
    one = constant(builder, 1.0, dtype)
    end = builder.emit("max" if order > 0 else "min", size, axes=axes, keepdims=True, identity=True)
    for is_out in (builder.emit("isinf", end), builder.emit("eq", end, zero)):
        end = builder.emit("where", is_out, one, end)
    powers = builder.emit("pow", builder.emit("div", size, end), constant(builder, order, dtype))
    total = builder.emit("sum", powers, axes=axes, keepdims=True)
    result = builder.emit("mul", builder.emit("pow", total, constant(builder, 1.0 / order, dtype)), end)
    return result if attributes["keepdims"] else builder.emit("squeeze", result, axes=axes)


def _count(x: Array, axes: Sequence[int], correction: int = 0) -> Any:
    number = math.prod(x.shape[axis] for axis in axes) - correction
    return x.dtype.type(max(number, 0))


def _mean_values(x: Array, axes: Sequence[int], *, keepdims: bool) -> Array:
    """The mean in the dtype of `x`, by the canonical recipe."""
    return reduce_lanes("sum", x, axes, keepdims=keepdims) / _count(x, axes)


def _var_values(x: Array, axes: Sequence[int], *, keepdims: bool, correction: int = 0) -> Array:
    """The variance in the dtype of `x`: the mean first, then the squares around it."""
    away = x - _mean_values(x, axes, keepdims=True)
    return reduce_lanes("sum", away * away, axes, keepdims=keepdims) / _count(x, axes, correction)


def _std_values(x: Array, axes: Sequence[int], *, keepdims: bool, correction: int = 0) -> Array:
    return np.sqrt(_var_values(x, axes, keepdims=keepdims, correction=correction))


def _logsumexp_values(x: Array, axes: Sequence[int], *, keepdims: bool) -> Array:
    top = reduce_lanes("max", x, axes, keepdims=True)
    top = np.where(np.isinf(top), x.dtype.type(0), top)
    result = np.log(reduce_lanes("sum", np.exp(x - top), axes, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, tuple(axes))


def _power(x: Array, order: float) -> Array:
    """A power, of f32 computed in f64 and rounded once, as the reference of `pow` does."""
    return np.power(x.astype(np.float64), np.float64(x.dtype.type(order))).astype(x.dtype)


def _norm_values(x: Array, axes: Sequence[int], *, keepdims: bool, order: float = 2.0) -> Array:
    if order == 2:
        return _euclid_values(x, axes, keepdims=keepdims)
    if order in _PLAIN_NORMS:
        counted = (x != 0).astype(x.dtype) if order == 0 else np.abs(x)
        return reduce_lanes(_PLAIN_NORMS[order], counted, axes, keepdims=keepdims)
    end = reduce_lanes("max" if order > 0 else "min", np.abs(x), axes, keepdims=True)
    end = np.where(np.isinf(end) | (end == 0), x.dtype.type(1), end)
    total = reduce_lanes("sum", _power(np.abs(x) / end, order), axes, keepdims=True)
    result = _power(total, 1.0 / order) * end
    return result if keepdims else np.squeeze(result, tuple(axes))


def _statistic(
    name: str,
    summary: str,
    body: Callable[[Builder, Any, Attributes], Any],
    values: Callable[..., Any],
    *,
    flops: int,
    attributes: tuple[Attribute, ...] = (),
    samples: tuple[Sample, ...] = (),
    interval: IntervalRule = ANYTHING,
) -> OpSpec:
    """The op that `body` builds, and `values` computes on arrays, in the dtype of computation."""

    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        (x,) = types
        check_dtype(ctx, name, "x", x, FLOATS)
        axes = check_axes(ctx, name, x, attributes["axes"])
        order = float(attributes.get("order", 2))
        if math.isnan(order):
            raise ctx.fail(f"`{name}` has no order {order}", help="`order` is a number, or infinity")
        if math.isinf(order):
            check_not_empty(ctx, name, x, axes)
        return [x.with_shape(without_axes(x.shape, axes, keepdims=attributes["keepdims"]))]

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False, **attributes: Any) -> Array:
        with np.errstate(all="ignore"):
            return round_as(values(widen_array(x), tuple(axes), keepdims=keepdims, **attributes), dtype_of(x))

    def decompose(builder: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        dtype = builder.type_of(operands[0]).dtype
        return cast(builder, body(builder, widen(builder, operands[0]), attributes), dtype)

    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXES, *attributes),
        infer=infer,
        reference=reference,
        samples=(*_samples(normal, empty=True), *samples),
        dtypes=FLOATS,
        cost=visits(flops),
        decompose=decompose,
        policy=ROUND,
        interval=interval,
        jvp={"norm": "reduce:norm_jvp", "logsumexp": "reduce:logsumexp_jvp"}.get(name),
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
    ends = ((x.low, -slack), (x.high, slack))
    low, high = (end + abs(end) * moved if math.isfinite(end) else end for end, moved in ends)
    return Interval(low, high, x.may_be_nan or math.isinf(x.magnitude) or count == 0, x.is_reached, x.sources)


_ROWS = {"axes": (1,)}

STATISTICS = (
    _statistic(
        "mean",
        "Sum over axes divided by the count; NaN for no elements.",
        lambda builder, x, attributes: _mean(builder, x, attributes["axes"], attributes["keepdims"]),
        _mean_values,
        flops=1,
        interval=IntervalRule(_mean_interval),
    ),
    _statistic(
        "var",
        "Mean square distance from the mean; the count may be less by a correction.",
        _var,
        _var_values,
        flops=4,
        attributes=(CORRECTION,),
        samples=(
            Sample("unbiased", normal((5, 7)), {"axes": (1,), "correction": 1}),
            Sample("far from zero", _shifted_rows, _ROWS),
        ),
    ),
    _statistic(
        "std",
        "Square root of the variance.",
        lambda builder, x, attributes: builder.emit("sqrt", _var(builder, x, attributes)),
        _std_values,
        flops=4,
        attributes=(CORRECTION,),
        samples=(Sample("unbiased", normal((5, 7)), {"axes": (0, 1), "correction": 1}),),
    ),
    _statistic(
        "logsumexp",
        "`log(sum(exp(x)))` over axes, -inf for no elements; the largest is taken out first, so finite input gives "
        "finite output.",
        _logsumexp,
        _logsumexp_values,
        flops=14,
        samples=(Sample("huge and infinite", _huge, _ROWS),),
    ),
    _statistic(
        "norm",
        "Vector norm over axes.",
        _norm,
        _norm_values,
        flops=2,
        attributes=(ORDER,),
        samples=(
            Sample("order 1", normal((5, 67)), {"axes": (1,), "order": 1.0}),
            Sample("largest", normal((5, 67)), {"axes": (0,), "order": math.inf, "keepdims": True}),
            Sample("smallest", normal((5, 67)), {"axes": (0,), "order": -math.inf}),
            Sample("count", normal((5, 67)), {"axes": (1,), "order": 0.0}),
            Sample("order 3", normal((5, 67)), {"axes": (1,), "order": 3.0}),
            Sample("order 0.5", normal((5, 67)), {"axes": (0,), "order": 0.5, "keepdims": True}),
            Sample("order -1.5", normal((5, 67)), {"axes": (1,), "order": -1.5}),
        ),
    ),
)

SPECS: tuple[OpSpec, ...] = (*REDUCTIONS, *STATISTICS)
