"""Scans along one axis, by chunks of 16: `cumulative`, and cumsum, cumprod and cummax made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import (
    KEEP,
    NUMBERS,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import ACCUMULATE, Types, check_accumulator, check_axes, check_dtype, visits
from tessera.ir.graph.ops.reduce import REDUCTION_UFUNCS, scan_reference
from tessera.ir.graph.samples import Sizes, normal, shape_name
from tessera.ir.tile.facets import Library
from tessera.types.dtype import DType
from tessera.types.promotion import reduction_identity, sum_of

ACCUMULATED = ("sum", "prod")
"""Kinds whose running value is computed rather than chosen: they state an accumulator."""

AXIS = (
    Attribute("axis", "int", doc="the axis run along"),
    Attribute("reverse", "bool", False, doc="run from the end to the start"),
)


def _result_dtype(kind: str, dtype: DType) -> DType:
    return sum_of(dtype) if kind in ACCUMULATED else dtype


def _infer_kind(ctx: InferContext, op: str, kind: str, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    if kind not in REDUCTION_UFUNCS:
        raise ctx.fail(f"`{op}` has no kind `{kind}`", help=f"kinds are {', '.join(REDUCTION_UFUNCS)}")
    check_dtype(ctx, op, "x", x, NUMBERS)
    check_axes(ctx, op, x, (attributes["axis"],))
    total = attributes.get("accumulate")
    if total is not None and kind not in ACCUMULATED:
        raise ctx.fail_dtype(f"`{op}` of kind {kind} chooses among its elements, and has no accumulator: got {total}")
    check_accumulator(ctx, op, x, total)
    return [x.with_dtype(_result_dtype(kind, x.dtype))]


CHUNK = 16
"""Elements that are reduced in order, and chunks of them, and chunks of those: fixed for every machine."""


def scan_chunks(kind: str, x: Array, total: DType) -> Array:
    """Each element of the last axis reduced with all before it, by chunks: the recipe of every scan.

    A chunk of 16 elements is reduced in order, and joined with its prefix: what comes before it. Totals of chunks are
    themselves in chunks of 16: the prefix of one is the prefix of its 16, joined with the totals before it in order.
    """
    inner = _reduce_chunks(kind, x, total)
    prefixes = _find_prefixes(kind, inner[..., -1], total)
    return _join(kind, prefixes[..., None], inner, total).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def _reduce_chunks(kind: str, x: Array, total: DType) -> Array:
    """Chunks of the last axis, as a new one, each reduced in order."""
    count = x.shape[-1]
    filled = np.full((*x.shape[:-1], -(-count // CHUNK) * CHUNK), reduction_identity(kind, total.compute), x.dtype)
    filled[..., :count] = x
    return scan_reference(kind, filled.reshape(*x.shape[:-1], -1, CHUNK), -1, total)


def _find_prefixes(kind: str, totals: Array, total: DType) -> Array:
    """What comes before each chunk, by the totals of all."""
    count = totals.shape[-1]
    before = np.full(totals.shape, reduction_identity(kind, total.compute), totals.dtype)
    if count < 2:
        return before
    inner = _reduce_chunks(kind, totals, total)
    before[..., 1:] = inner.reshape(*totals.shape[:-1], -1)[..., : count - 1]
    before[..., ::CHUNK] = reduction_identity(kind, total.compute)
    above = np.repeat(_find_prefixes(kind, inner[..., -1], total), CHUNK, -1)[..., :count]
    return _join(kind, above, before, total)


def _join(kind: str, before: Array, after: Array, total: DType) -> Array:
    with np.errstate(all="ignore"):
        joined = REDUCTION_UFUNCS[kind](before, after)
    is_wide = not total.is_float or total.compute is total
    return joined if is_wide else round_as(joined, total).astype(np.float32)


def scan_values(x: Array, *, kind: str, axis: int, reverse: bool = False, accumulate: DType | None = None) -> Array:
    """Each element reduced with all before it, by chunks, in the dtype of computation; then rounded."""
    target = _result_dtype(kind, dtype_of(x))
    total = (accumulate or target.compute) if target.is_float else target
    wide = np.moveaxis(np.flip(x, axis) if reverse else x, axis, -1).astype(numpy_dtype(total.compute))
    if not x.size:
        return np.zeros(x.shape, numpy_dtype(target))
    result = np.moveaxis(scan_chunks(kind, wide, total), -1, axis)
    return round_as(np.ascontiguousarray(np.flip(result, axis) if reverse else result), target)


def _scan_samples(**kind: str) -> tuple[Sample, ...]:
    shapes: Sequence[tuple[Sizes, int]] = (
        ((7,), 0),
        ((1,), 0),
        ((0,), 0),
        ((3, 5), 0),
        ((3, 5), 1),
        ((2, 3, 5), 1),
        ((4, 0, 2), 0),
        ((5, 131), 1),
        ((290, 3), 0),
    )
    return tuple(
        Sample(
            f"{shape_name([shape])} along {axis}",
            normal(shape, scale=1.0),
            {"axis": axis, "reverse": axis == 1, **kind},
        )
        for shape, axis in shapes
    )


def _shorthand(name: str, kind: str, summary: str) -> OpSpec:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        return _infer_kind(ctx, name, kind, types, attributes)

    def reference(x: Array, *, axis: int, reverse: bool = False, accumulate: DType | None = None) -> Array:
        return scan_values(x, kind=kind, axis=axis, reverse=reverse, accumulate=accumulate)

    def decompose(builder: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        return builder.emit("cumulative", operands[0], kind=kind, **attributes)

    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*AXIS, ACCUMULATE) if kind in ACCUMULATED else AXIS,
        infer=infer,
        reference=reference,
        samples=_scan_samples(),
        dtypes=NUMBERS,
        cost=visits(1),
        decompose=decompose,
        policy=ROUND if kind in ACCUMULATED else KEEP,
        interval=ANYTHING if kind in ACCUMULATED else SAME,
    )


CUMULATIVE = OpSpec(
    name="tgraph.cumulative",
    summary="Each element reduced with all before it along one axis, by chunks of 16; narrow floats in f32, sums of "
    "integers in 64 bits.",
    operands=("x",),
    attributes=(Attribute("kind", "str", doc="sum, prod, max or min"), *AXIS, ACCUMULATE),
    infer=lambda ctx, types, attributes: _infer_kind(ctx, "cumulative", attributes["kind"], types, attributes),
    reference=scan_values,
    samples=tuple(sample for kind in REDUCTION_UFUNCS for sample in _scan_samples(kind=kind)),
    dtypes=NUMBERS,
    cost=visits(1),
    lower=Library("scan"),
    policy=ROUND,
    interval=ANYTHING,
    jvp="reduce:cumulative_jvp",
    transpose="reduce:cumulative",
    batch="first_axis",
    shard="library:along_axis",
)

SPECS: tuple[OpSpec, ...] = (
    CUMULATIVE,
    _shorthand("cumsum", "sum", "Running sum along one axis; integers in 64 bits."),
    _shorthand("cumprod", "prod", "Running product along one axis; integers in 64 bits."),
    _shorthand("cummax", "max", "Running maximum along one axis; NaN propagates from its position on."),
)
