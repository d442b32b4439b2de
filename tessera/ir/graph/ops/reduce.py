"""Reductions over axes: sum, prod, max, min, any, all, argmax, argmin, each by the canonical recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, widen
from tessera.ir.base.interval import ANYTHING, BOOLEAN, SAME, Interval, IntervalQuery, IntervalRule, total_of
from tessera.ir.base.spec import (
    ANY,
    BOOL,
    KEEP,
    NUMBERS,
    ROUND,
    Attribute,
    Attributes,
    Cost,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
    Simplifier,
)
from tessera.ir.graph.building import bools, check_at_least, normal, traffic
from tessera.ir.graph.ops.elementwise import check_dtype
from tessera.ir.graph.shared_reference import kept_shape, reduce, reduced_last
from tessera.ir.tile.facets import Reduction
from tessera.types.dtype import DType
from tessera.types.promotion import ARITHMETIC, INDEX, LOGICAL, SUM, OpClass, sum_of
from tessera.types.shape import TensorType, path, without_axes

AXES = (
    Attribute("axes", "ints", doc="the reduced axes: sorted, counted from the front, none twice"),
    Attribute("keepdims", "bool", False, doc="keep each reduced axis as a dim of 1"),
)

IDENTITY = Attribute("identity", "bool", False, doc="no elements give -inf or inf, or the end of the integers' range")
"""For decompositions in which the max or min of no elements does no harm; otherwise there is no answer for it."""

ACCUMULATE = Attribute(
    "accumulate", "dtype", None, "dtype of the running sums; default f32 (f64 for f64), integers 64 bits"
)

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
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
)
"""Shapes and reduced axes; the reduced sizes are below, at and above the 32 lanes."""


def check_axes(ctx: InferContext, op: str, x: TensorType, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes of the attribute; raises where they are not sorted, not from the front, or not there."""
    for axis in axes:
        if not 0 <= axis < x.rank:
            raise ctx.fail(f"`{op}` has no axis {axis} on a value of rank {x.rank}", help=f"axes are 0..{x.rank - 1}")
    if list(axes) != sorted(set(axes)):
        raise ctx.fail(f"`{op}` needs its axes sorted and none twice, got {tuple(axes)}")
    return tuple(axes)


def check_not_empty(ctx: InferContext, op: str, x: TensorType, axes: Sequence[int]) -> None:
    """Raises where a reduced dim is known to be 0, which the op has no answer for; guards where it may be."""
    for axis in axes:
        dim = x.shape[axis]
        if dim.value == 0:
            raise ctx.fail(f"`{op}` of no elements has no value: {path('x', axis, dim)}")
        check_at_least(ctx, dim, 1, f"`{op}` of no elements has no value: {path('x', axis, dim)}")


def accumulator(dtype: DType) -> DType:
    """The accumulator where none is stated."""
    return sum_of(dtype).compute


def check_accumulator(ctx: InferContext, op: str, x: TensorType, asked: DType | None) -> None:
    """Raises unless the running sum of floats is a float, and that of integers what integers are summed in."""
    if asked is None or asked is accumulator(x.dtype) or (x.dtype.is_float and asked.is_float):
        return
    wanted = "a float" if x.dtype.is_float else str(accumulator(x.dtype))
    raise ctx.fail_dtype(f"`{op}` of {x.dtype} accumulates in {wanted}, not {asked}")


def samples(make: Callable[..., Any], *, empty: bool) -> tuple[Sample, ...]:
    """The shapes of this file with and without kept dims; with an empty reduced axis where the op allows it."""
    result: list[Sample] = []
    for number, (shape, axes) in enumerate(SHAPES):
        text = "x".join(map(str, shape)) or "scalar"
        result.append(Sample(f"{text} over {axes}", make(shape), {"axes": axes, "keepdims": number % 2 == 1}))
    if empty:
        result.append(Sample("3x0 over an empty axis", make((3, 0)), {"axes": (1,)}))
    return tuple(result)


def _reduced_axes(x: TensorType, attributes: Attributes) -> tuple[int, ...]:
    return tuple(attributes["axes"])


def _cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(operands[0].size, traffic(operands, results))


def _infer(name: str, group: OpClass, dtypes: tuple[str, ...], empty: bool) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = types
        check_dtype(ctx, name, "x", x, dtypes)
        axes = check_axes(ctx, name, x, attributes["axes"])
        check_accumulator(ctx, name, x, attributes.get("accumulate"))
        if not empty and not attributes.get("identity"):
            check_not_empty(ctx, name, x, axes)
        return [TensorType(without_axes(x.shape, axes, keepdims=attributes["keepdims"]), group.result(x.dtype))]

    return infer


def _simplify(group: OpClass) -> Any:
    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        """A reduction over no axes is its operand, in the dtype of the result."""
        if attributes["axes"]:
            return None
        x = simplifier.type_of(operands[0])
        if group is INDEX:
            return simplifier.emit("full", value=0, shape=x.shape, dtype=group.result(x.dtype))
        target = group.result(x.dtype)
        return operands[0] if target is x.dtype else simplifier.emit("cast", operands[0], dtype=target)

    return simplify


def _arg_reference(kind: str) -> Callable[..., Array]:
    search: Any = np.argmax if kind == "argmax" else np.argmin

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
        rows = reduced_last(widen(x), axes)
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
        return reduce(kind, x, axes, keepdims=keepdims, accumulate=accumulate)

    return reference


def _bool_reference(kind: str) -> Callable[..., Array]:
    function: Any = np.any if kind == "any" else np.all

    def reference(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
        return np.asarray(function(x, axis=tuple(axes), keepdims=keepdims), np.bool_)

    return reference


_MORE = {"max": (IDENTITY,), "min": (IDENTITY,), "sum": (ACCUMULATE,), "prod": (ACCUMULATE,)}


def _make(
    name: str,
    summary: str,
    group: OpClass,
    dtypes: tuple[str, ...],
    reference: Callable[..., Array],
    *,
    empty: bool,
    policy: PolicyRule = ROUND,
    interval: IntervalRule = ANYTHING,
) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXES, *_MORE.get(name, ())),
        infer=_infer(name, group, dtypes, empty),
        reference=reference,
        samples=samples(bools if dtypes == BOOL else normal, empty=empty),
        dtypes=dtypes,
        cost=_cost,
        simplify=_simplify(group),
        lower=Reduction(name, _reduced_axes),
        policy=policy,
        interval=interval,
    )


def _sum_interval(query: IntervalQuery) -> Interval:
    return total_of(query.x, query.count(query.attributes["axes"]), query.result.dtype)


SPECS: tuple[OpSpec, ...] = (
    _make(
        "sum",
        "Sum over axes; integers in 64 bits; 0 for no elements.",
        SUM,
        ANY,
        _reduce_reference("sum"),
        empty=True,
        interval=IntervalRule(_sum_interval),
    ),
    _make(
        "prod",
        "Product over axes; integers in 64 bits; 1 for no elements.",
        SUM,
        ANY,
        _reduce_reference("prod"),
        empty=True,
    ),
    _make(
        "max",
        "Largest over axes, which have elements; NaN propagates.",
        ARITHMETIC,
        NUMBERS,
        _reduce_reference("max"),
        empty=False,
        policy=KEEP,
        interval=SAME,
    ),
    _make(
        "min",
        "Smallest over axes, which have elements; NaN propagates.",
        ARITHMETIC,
        NUMBERS,
        _reduce_reference("min"),
        empty=False,
        policy=KEEP,
        interval=SAME,
    ),
    _make(
        "any",
        "Whether one is true; false for no elements.",
        LOGICAL,
        BOOL,
        _bool_reference("any"),
        empty=True,
        interval=BOOLEAN,
    ),
    _make(
        "all",
        "Whether all are true; true for no elements.",
        LOGICAL,
        BOOL,
        _bool_reference("all"),
        empty=True,
        interval=BOOLEAN,
    ),
    _make(
        "argmax",
        "Position of the largest over axes, in their row-major order: the first of equals; the first NaN is chosen.",
        INDEX,
        NUMBERS,
        _arg_reference("argmax"),
        empty=False,
    ),
    _make(
        "argmin",
        "Position of the smallest over axes, in their row-major order: the first of equals; the first NaN is chosen.",
        INDEX,
        NUMBERS,
        _arg_reference("argmin"),
        empty=False,
    ),
)
