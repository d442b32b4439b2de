"""Scans along one axis: cumulative, and cumsum, cumprod, cummax made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, widen
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import (
    KEEP,
    NUMBERS,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    Cost,
    InferContext,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import normal, shape_name, traffic
from tessera.ir.graph.ops.elementwise import check_dtype
from tessera.ir.graph.ops.reduce import ACCUMULATE, check_accumulator, check_axes
from tessera.ir.graph.shared_reference import scan_reference
from tessera.ir.tile.facets import Library
from tessera.types.dtype import DType
from tessera.types.promotion import sum_of
from tessera.types.shape import TensorType

KINDS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}

ACCUMULATED = ("sum", "prod")
"""Kinds whose running value is computed rather than chosen: they state an accumulator."""

AXIS = (
    Attribute("axis", "int", doc="the axis run along"),
    Attribute("reverse", "bool", False, doc="run from the end to the start"),
)


def _result_dtype(kind: str, dtype: DType) -> DType:
    return sum_of(dtype) if kind in ACCUMULATED else dtype


def _infer_kind(
    ctx: InferContext, op: str, kind: str, types: Sequence[TensorType], attributes: Attributes
) -> Sequence[TensorType]:
    (x,) = types
    if kind not in KINDS:
        raise ctx.fail(f"`{op}` has no kind `{kind}`", help=f"kinds are {', '.join(KINDS)}")
    check_dtype(ctx, op, "x", x, NUMBERS)
    check_axes(ctx, op, x, (attributes["axis"],))
    total = attributes.get("accumulate")
    if total is not None and kind not in ACCUMULATED:
        raise ctx.fail_dtype(f"`{op}` of kind {kind} chooses among its elements, and has no accumulator: got {total}")
    check_accumulator(ctx, op, x, total)
    return [x.with_dtype(_result_dtype(kind, x.dtype))]


def running(x: Array, *, kind: str, axis: int, reverse: bool = False, accumulate: DType | None = None) -> Array:
    """Each element reduced with all before it, in order, in the dtype of computation; then rounded."""
    target = _result_dtype(kind, dtype_of(x))
    if accumulate is not None and target.is_float and accumulate is not target.compute:
        result = scan_reference(kind, np.flip(x, axis) if reverse else x, axis, accumulate)
        return round_as(np.flip(result, axis) if reverse else result, target)
    wide = widen(x) if target.is_float else x.astype(numpy_dtype(target))
    ordered = np.flip(wide, axis) if reverse else wide
    with np.errstate(all="ignore"):
        result = KINDS[kind].accumulate(ordered, axis=axis)
    return round_as(np.flip(result, axis) if reverse else result, target)


def _cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(operands[0].size, traffic(operands, results))


def _samples(**kind: str) -> tuple[Sample, ...]:
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (
        ((7,), 0),
        ((1,), 0),
        ((0,), 0),
        ((3, 5), 0),
        ((3, 5), 1),
        ((2, 3, 5), 1),
        ((4, 0, 2), 0),
        ((5, 131), 1),
    )
    return tuple(
        Sample(
            f"{shape_name([shape])} along {axis}",
            normal(shape, scale=1.0),
            {"axis": axis, "reverse": axis == 1, **kind},
        )
        for shape, axis in shapes
    )


def _infer_cumulative(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return _infer_kind(ctx, "cumulative", attributes["kind"], types, attributes)


def _shorthand(name: str, kind: str, summary: str) -> OpSpec:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return _infer_kind(ctx, name, kind, types, attributes)

    def reference(x: Array, *, axis: int, reverse: bool = False, accumulate: DType | None = None) -> Array:
        return running(x, kind=kind, axis=axis, reverse=reverse, accumulate=accumulate)

    def decompose(builder: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        return builder.emit("cumulative", operands[0], kind=kind, **attributes)

    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXIS, ACCUMULATE) if kind in ACCUMULATED else AXIS,
        infer=infer,
        reference=reference,
        samples=_samples(),
        dtypes=NUMBERS,
        cost=_cost,
        decompose=decompose,
        policy=ROUND if kind in ACCUMULATED else KEEP,
        interval=ANYTHING if kind in ACCUMULATED else SAME,
    )


CUMULATIVE = OpSpec(
    name="tgraph.cumulative",
    summary="Each element reduced with all before it along one axis, in order; narrow floats in f32, sums of integers "
    "in 64 bits.",
    operands=("x",),
    attributes=(Attribute("kind", "str", doc="sum, prod, max or min"), *AXIS, ACCUMULATE),
    infer=_infer_cumulative,
    reference=running,
    samples=(*_samples(kind="sum"), *_samples(kind="prod"), *_samples(kind="max"), *_samples(kind="min")),
    dtypes=NUMBERS,
    cost=_cost,
    lower=Library("scan"),
    policy=ROUND,
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (
    CUMULATIVE,
    _shorthand("cumsum", "sum", "Running sum along one axis; integers in 64 bits."),
    _shorthand("cumprod", "prod", "Running product along one axis; integers in 64 bits."),
    _shorthand("cummax", "max", "Running maximum along one axis; NaN propagates from its position on."),
)
