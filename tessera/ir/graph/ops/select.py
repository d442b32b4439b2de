"""Elementwise ops of three operands, and from one dtype to another: where, clamp, cast, bitcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, IntervalRule, range_of
from tessera.ir.base.scalar_functions import simplify_bitcast, simplify_cast, simplify_where
from tessera.ir.base.spec import ANY, CONVERT, KEEP, NUMBERS, ROUND, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import SPECIAL_VALUES, UNARY_SHAPES, Make, bools, normal, over, retype
from tessera.ir.graph.ops.elementwise import check_dtype, check_same, pointwise_cost
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.shape import Named, Shape, TensorType, broadcast


def _broadcast(ctx: InferContext, op: str, names: Sequence[str], types: Sequence[TensorType]) -> Shape:
    return broadcast(ctx, op, *(Named(name, x.shape) for name, x in zip(names, types, strict=True)))


def _infer_where(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    names = ("condition", "x", "y")
    check_dtype(ctx, "where", "condition", types[0], ("bool",))
    check_same(ctx, "where", names[1:], types[1:])
    check_dtype(ctx, "where", "x", types[1], ANY)
    return [TensorType(_broadcast(ctx, "where", names, types), types[1].dtype)]


def _where_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    return builder.select(*tiles)


def _infer_clamp(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    names = ("x", "low", "high")
    check_same(ctx, "clamp", names, types)
    check_dtype(ctx, "clamp", "x", types[0], NUMBERS)
    return [TensorType(_broadcast(ctx, "clamp", names, types), types[0].dtype)]


def _clamp_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    x, low, high = tiles
    return builder.elementwise("min", builder.elementwise("max", x, low), high)


def _infer_cast(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return [types[0].with_dtype(attributes["dtype"])]


def _cast_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    return builder.cast(tiles[0], out.dtype)  # directly: through the wider dtype it would round twice


def _infer_bitcast(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    source, target = types[0].dtype, attributes["dtype"]
    for dtype in (source, target):
        if dtype.is_bool or dtype is dt.i4:
            raise ctx.fail_dtype(f"`bitcast` has no bits of {dtype} to show", help="cast to or from u8 first")
    if attributes["source"] is not source:
        raise ctx.fail_dtype(f"`bitcast` says its operand is {attributes['source']}, and it is {source}")
    if source.bits != target.bits:
        raise ctx.fail_dtype(
            f"`bitcast` needs dtypes of one width: {source} has {source.bits} bits, {target} has {target.bits}",
            help=f"use u{source.bits} or another dtype of {source.bits} bits",
        )
    return [types[0].with_dtype(target)]


def _bitcast_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    source: DType = attributes["source"]
    # A narrow float arrives widened: its bits are those of the value it was stored as.
    stored = tiles[0] if source.compute is source else builder.cast(tiles[0], source)
    bits = builder.bitcast(stored, out.dtype)
    return bits if out.dtype.compute is out.dtype else builder.cast(bits, out.dtype.compute)


_TERNARY_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((), (), ()),
    ((5,), (5,), (5,)),
    ((3, 1), (1, 7), (3, 7)),
    ((7,), (3, 7), ()),
    ((2, 1, 1), (3, 1), (5,)),
    ((0, 3), (3,), (1, 3)),
    ((13, 37), (13, 37), (13, 37)),
)


def _condition_and_values(*shapes: tuple[int, ...]) -> Make:
    return lambda rng: [*bools(shapes[0])(rng), *normal(*shapes[1:])(rng)]


def _edges(rng: np.random.Generator) -> Sequence[Any]:
    ends = [
        127.5,
        128.0,
        -128.9,
        255.9,
        256.0,
        -0.9,
        7.5,
        -8.6,
        32768.0,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**63,
        2.0**64,
    ]
    return [np.array([*SPECIAL_VALUES, *ends], np.float32)]


def _to(*dtypes: DType) -> list[Sample]:
    shapes = [((0, 3),), ((13, 37),)]
    samples: list[Sample] = []
    for dtype in dtypes:
        attributes = {"dtype": dtype}
        samples += [Sample(f"{s.name} to {dtype}", s.make, attributes) for s in over(shapes, normal, attributes)]
        samples.append(Sample(f"edges to {dtype}", _edges, attributes))
    return samples


_BITS = (
    (dt.f32, dt.u32),
    (dt.i32, dt.f32),
    (dt.f64, dt.i64),
    (dt.u64, dt.f64),
    (dt.bf16, dt.u16),
    (dt.i16, dt.bf16),
    (dt.f16, dt.i16),
    (dt.bf16, dt.f16),
    (dt.f8e4m3, dt.u8),
    (dt.f8e5m2, dt.i8),
    (dt.u8, dt.i8),
)


def _bits(source: DType, target: DType) -> Sample:
    def make(rng: np.random.Generator) -> Sequence[Any]:
        return [retype(array, source) for array in normal((13, 37))(rng)]

    return Sample(f"{source} as {target}", make, {"dtype": target, "source": source})


def _clamp_meaning(dtype: DType) -> scalars.Meaning:
    return scalars.clamp


def _where_interval(query: IntervalQuery) -> Interval:
    return query.operands[1].hull(query.operands[2])


def _clamp_interval(query: IntervalQuery) -> Interval:
    x, low, high = query.operands
    bottom = min(max(x.low, low.low), high.low)
    top = min(max(x.high, low.high), high.high)
    nan = any(one.may_be_nan for one in query.operands)
    is_constant = low.low == low.high and high.low == high.high
    return Interval(bottom, top, nan, x.is_reached and is_constant, x.sources | low.sources | high.sources)


def _cast_interval(query: IntervalQuery) -> Interval:
    x, target = query.x, query.result.dtype
    if target.is_bool:
        return Interval(0.0, 1.0)
    if target.is_float:
        nan = x.may_be_nan or (target.name == "f8e4m3" and x.magnitude > 464.0)
        return Interval(x.low, x.high, nan, x.is_reached, x.sources)
    limits = range_of(target)
    if not query.types[0].dtype.is_float and not (limits.low <= x.low and x.high <= limits.high):
        return limits.without_reach()
    return Interval(max(x.low, limits.low), min(x.high, limits.high), False, x.is_reached, x.sources)


WHERE = OpSpec(
    name="tgraph.where",
    summary="`x` where the condition holds, else `y`.",
    operands=("condition", "x", "y"),
    infer=_infer_where,
    reference=scalars.where,
    samples=tuple(over(_TERNARY_SHAPES, _condition_and_values)),
    dtypes=ANY,
    cost=pointwise_cost(1),
    simplify=simplify_where,
    lower=Pointwise(_where_block),
    policy=KEEP,
    interval=IntervalRule(_where_interval, is_exact=True),
)

CLAMP = OpSpec(
    name="tgraph.clamp",
    summary="`min(max(x, low), high)`; NaN stays.",
    operands=("x", "low", "high"),
    infer=_infer_clamp,
    reference=scalars.graph_reference(_clamp_meaning),
    samples=tuple(over(_TERNARY_SHAPES, normal)),
    dtypes=NUMBERS,
    cost=pointwise_cost(2),
    lower=Pointwise(_clamp_block, 2),
    policy=ROUND,
    interval=IntervalRule(_clamp_interval, is_exact=True),
)

CAST = OpSpec(
    name="tgraph.cast",
    summary="The same values in another dtype: floats round to even, floats to integers truncate and saturate "
    "(NaN gives 0), integers wrap, anything but zero is True.",
    operands=("x",),
    attributes=(Attribute("dtype", "dtype", doc="dtype of the result"),),
    infer=_infer_cast,
    reference=scalars.cast,
    samples=(*over([(shape,) for shape in UNARY_SHAPES], normal, {"dtype": dt.f64}), *_to(*dt.ALL)),
    dtypes=(*ANY, "i4"),
    cost=pointwise_cost(1),
    simplify=simplify_cast,
    lower=Pointwise(_cast_block, converts=True),
    policy=CONVERT,
    interval=IntervalRule(_cast_interval),
)

BITCAST = OpSpec(
    name="tgraph.bitcast",
    summary="The same bits read as another dtype of the same width.",
    operands=("x",),
    attributes=(
        Attribute("dtype", "dtype", doc="dtype of the result"),
        Attribute("source", "dtype", doc="dtype of `x`, so that the op says by itself which bits it reads"),
    ),
    infer=_infer_bitcast,
    reference=scalars.bitcast,
    samples=(
        *over([(shape,) for shape in UNARY_SHAPES], normal, {"dtype": dt.i32, "source": dt.f32}),
        *(_bits(source, target) for source, target in _BITS),
    ),
    dtypes=("f32",),
    cost=pointwise_cost(0),
    simplify=simplify_bitcast,
    lower=Pointwise(_bitcast_block, 0),
    policy=KEEP,
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (WHERE, CLAMP, CAST, BITCAST)
