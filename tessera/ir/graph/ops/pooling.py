"""Pooling over windows of the trailing axes: shifted slices of a padded tensor, reduced in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product as positions
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, static
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import FLOATS, KEEP, ROUND, Attribute, Attributes, Builder, Cost, InferContext, OpSpec, Sample
from tessera.ir.graph.building import axes_attribute, cast, check_float, constant, normal, restate, slice_axis, traffic
from tessera.ir.graph.ops.convolution import (
    WINDOW,
    check_window,
    per_axis,
    window_extent,
    window_extents,
    window_padding,
)
from tessera.ir.graph.ops.reduce import ACCUMULATE, check_accumulator
from tessera.ir.graph.shared_reference import scan_reference
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.shape import TensorType, text

SIZE = Attribute("window", "ints", doc="size of the window, one number for each pooled (trailing) axis")


def _with_strides(attributes: Attributes) -> dict[str, Any]:
    """The attributes with the default stride, which is the window itself."""
    return {**attributes, "stride": attributes["stride"] or attributes["window"]}


def _infer(op: str) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        check_float(ctx, op, x)
        window = axes_attribute(attributes, "window")
        if not 1 <= len(window) <= x.rank or any(taps < 1 for taps in window):
            raise ctx.fail(f"`{op}` of {text(x.shape)} needs a window of 1..{x.rank} positive numbers, got {window}")
        full = _with_strides(attributes)
        check_window(ctx, op, full, len(window))
        check_accumulator(ctx, op, x, attributes.get("accumulate"))
        kept = x.rank - len(window)
        extents = window_extents(ctx, op, x.shape[kept:], tuple(map(Dim.of, window)), full)
        return [x.with_shape((*x.shape[:kept], *extents))]

    return infer


def _windows(b: Builder, x: Any, attributes: Attributes, fill: float) -> list[Any]:
    """One strided slice of the padded tensor for each position in the window, in row-major order."""
    window = axes_attribute(attributes, "window")
    shape, count = b.type_of(x).shape, len(window)
    kept = len(shape) - count
    full = _with_strides(attributes)
    low, high = window_padding(shape[kept:], tuple(map(Dim.of, window)), full)
    zeros = (Dim.constant(0),) * kept
    if any(dim.value != 0 for dim in (*low, *high)):
        x = b.emit("pad", x, low=(*zeros, *low), high=(*zeros, *high), value=fill)
    padded = b.type_of(x).shape
    strides, dilations = per_axis(full, "stride", count), per_axis(full, "dilation", count)
    slices: list[Any] = []
    for position in positions(*(range(taps) for taps in window)):
        value = x
        for axis, tap in enumerate(position):
            reach = (window[axis] - 1) * dilations[axis]
            start = tap * dilations[axis]
            # Up to the last position of the window: the tail after the last full stride is not read.
            extent = (padded[kept + axis] - reach - 1) // strides[axis]
            value = slice_axis(b, value, kept + axis, start, extent * strides[axis] + start + 1, strides[axis])
        slices.append(value)
    return slices


def _pooled_shape(shape: tuple[Dim, ...], attributes: Attributes) -> tuple[Dim, ...]:
    """The shape of the result, as `infer` writes it."""
    window, full = axes_attribute(attributes, "window"), _with_strides(attributes)
    kept, count = len(shape) - len(window), len(window)
    low, high = window_padding(shape[kept:], tuple(map(Dim.of, window)), full)
    strides, dilations = per_axis(full, "stride", count), per_axis(full, "dilation", count)
    extents = (
        window_extent(shape[kept + axis], low[axis], high[axis], Dim.of(taps), strides[axis], dilations[axis])
        for axis, taps in enumerate(window)
    )
    return (*shape[:kept], *extents)


def _decompose_max(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    slices = _windows(b, x, attributes, float("-inf"))
    out = reduce(lambda left, right: b.emit("maximum", left, right), slices)
    return restate(b, out, _pooled_shape(b.type_of(x).shape, attributes))


def _window_sum(b: Builder, x: Any, attributes: Attributes) -> Any:
    """Each window added up in the accumulator; one that is narrow is rounded as each element joins."""
    compute = b.type_of(x).dtype.compute
    asked: DType = attributes["accumulate"] or compute

    def round_total(value: Any) -> Any:
        is_narrow = asked.compute is not asked
        return cast(b, b.emit("round_to", value, format=asked.name), asked.compute) if is_narrow else value

    first, *others = _windows(b, cast(b, x, asked.compute), attributes, 0.0)
    return cast(
        b, reduce(lambda total, one: round_total(b.emit("add", total, one)), others, round_total(first)), compute
    )


def _decompose_avg(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    kind = b.type_of(x)
    compute = kind.dtype.compute
    total = _window_sum(b, x, attributes)
    window = axes_attribute(attributes, "window")
    if attributes["count_padding"]:
        out = b.emit("div", total, constant(b, float(np.prod(window)), compute))
    else:
        ones = b.emit("full", shape=kind.shape[kind.rank - len(window) :], value=1.0, dtype=compute)
        counted = reduce(lambda left, right: b.emit("add", left, right), _windows(b, ones, attributes, 0.0))
        out = b.emit("div", total, counted)
    return restate(b, cast(b, out, kind.dtype), _pooled_shape(kind.shape, attributes))


def _stack_windows(x: Array, attributes: dict[str, Any], fill: float) -> Array:
    window = tuple(attributes["window"])
    full, count = _with_strides(attributes), len(window)
    kept = x.ndim - count
    sizes = tuple(Dim.constant(size) for size in x.shape[kept:])
    low, high = window_padding(sizes, tuple(map(Dim.of, window)), full)
    pads = [(0, 0)] * kept + [(static(a), static(c)) for a, c in zip(low, high, strict=True)]
    padded = np.pad(x, pads, constant_values=fill)
    strides, dilations = per_axis(full, "stride", count), per_axis(full, "dilation", count)
    slices: list[Array] = []
    for position in positions(*(range(taps) for taps in window)):
        index: list[slice] = [slice(None)] * kept
        for axis, tap in enumerate(position):
            extent = (padded.shape[kept + axis] - (window[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
            start = tap * dilations[axis]
            index.append(slice(start, start + (extent - 1) * strides[axis] + 1, strides[axis]))
        slices.append(padded[tuple(index)])
    return np.stack(slices)


def max_pool_reference(x: Array, **attributes: Any) -> Array:
    """The largest of each window; padding is -inf, NaN propagates."""
    return round_as(_stack_windows(x.astype(np.float64), attributes, -np.inf).max(0), dtype_of(x))


def avg_pool_reference(x: Array, *, accumulate: DType | None = None, **attributes: Any) -> Array:
    """The mean of each window, its elements added in order; padding counts as zeros, or not at all."""
    compute = dtype_of(x).compute
    asked = accumulate or compute
    with np.errstate(all="ignore"):
        terms = _stack_windows(x.astype(numpy_dtype(asked.compute)), attributes, 0.0)
        total = scan_reference("sum", terms, 0, asked)[-1].astype(numpy_dtype(compute))
        window: tuple[int, ...] = tuple(attributes["window"])
        count: Any = total.dtype.type(np.prod(window))
        if not attributes["count_padding"]:
            count = _stack_windows(np.ones(x.shape[x.ndim - len(window) :], total.dtype), attributes, 0.0).sum(0)
        return round_as(total / count, dtype_of(x))


def _cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(results[0].size * product(axes_attribute(attributes, "window")), traffic(operands, results))


STRIDE = Attribute("stride", "ints", (), "step of the window; default its size, so that windows do not overlap")
ATTRIBUTES = (SIZE, STRIDE, *WINDOW[1:])

CASES = (
    Sample("halves", normal((2, 3, 6, 8)), {"window": (2, 2)}),
    Sample("overlapping", normal((1, 2, 7, 9)), {"window": (3, 3), "stride": (2,), "padding": (1,)}),
    Sample("uneven", normal((2, 11)), {"window": (3,), "stride": (2,), "padding": (0, 2)}),
    Sample("same", normal((1, 1, 7, 5)), {"window": (3, 2), "stride": (2, 2), "padding_mode": "same"}),
    Sample("dilated", normal((1, 2, 9)), {"window": (3,), "stride": (1,), "dilation": (2,)}),
)

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.max_pool",
        summary="The largest element of each window of the trailing axes; padding is never chosen, NaN propagates.",
        operands=("x",),
        attributes=ATTRIBUTES,
        infer=_infer("max_pool"),
        reference=max_pool_reference,
        samples=CASES,
        dtypes=FLOATS[:4],
        cost=_cost,
        decompose=_decompose_max,
        policy=KEEP,
        interval=SAME,
    ),
    OpSpec(
        name="tgraph.avg_pool",
        summary="The mean of each window of the trailing axes, in f32 and rounded once.",
        operands=("x",),
        attributes=(*ATTRIBUTES, Attribute("count_padding", "bool", True, "padding counts as zeros"), ACCUMULATE),
        infer=_infer("avg_pool"),
        reference=avg_pool_reference,
        samples=(
            *CASES,
            Sample("edges", normal((1, 7, 7)), {"window": (3, 3), "padding": (1,), "count_padding": False}),
        ),
        dtypes=FLOATS,
        cost=_cost,
        decompose=_decompose_avg,
        policy=ROUND,
        interval=ANYTHING,
    ),
)
