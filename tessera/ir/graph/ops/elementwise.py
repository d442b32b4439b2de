"""Ops on one element at a time: made from the table of scalar functions, and `gelu`, choices, casts, `fused`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, dtype_of
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, IntervalRule, gate, range_of
from tessera.ir.base.scalar_functions import (
    SCALAR_FUNCTIONS,
    GraphOp,
    ScalarFunction,
    simplify_bitcast,
    simplify_cast,
    simplify_where,
)
from tessera.ir.base.scalar_reference import Meaning, graph_reference, meaning_of
from tessera.ir.base.spec import (
    ANY,
    BOOL,
    CONVERT,
    FLOATS,
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
from tessera.ir.graph.building import Types, broadcast_types, cast, check_dtype, check_same, pointwise_cost, visits
from tessera.ir.graph.samples import (
    BINARY_SHAPES,
    INF,
    NAN,
    SPECIAL_INTEGERS,
    SPECIAL_VALUES,
    UNARY_SHAPES,
    Make,
    Sizes,
    bools,
    grid,
    integers,
    normal,
    over,
    positive,
    retype,
)
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.shape import TensorType, is_refuted, text


def _infer(op: GraphOp, names: tuple[str, ...]) -> Any:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        check_same(ctx, op.name, names, types)
        for name, x in zip(names, types, strict=True):
            check_dtype(ctx, op.name, name, x, op.dtypes)
        return [TensorType(broadcast_types(ctx, op.name, names, types), op.group.result(types[0].dtype))]

    return infer


def _samples(kind: str, dtypes: tuple[str, ...], arity: int) -> tuple[Sample, ...]:
    """Arrays of many shapes with the numbers that an entry of the table asks for."""
    shapes: list[Any] = [(shape,) for shape in UNARY_SHAPES] if arity == 1 else list(BINARY_SHAPES)
    if dtypes == BOOL:
        return tuple(over(shapes, bools))
    if "f32" not in dtypes:
        return (*over(shapes, integers), Sample("special values", grid(*[SPECIAL_INTEGERS] * arity, dtype=np.int32)))
    if kind == "tame":
        return (*over(shapes, normal), Sample("wide range", normal(*[(211,)] * arity, scale=8.0)))
    if kind == "powers":
        return (*over(shapes, positive), Sample("integer and half exponents", grid(_BASES, _EXPONENTS)))
    make = positive if kind == "positive" else normal
    return (*over(shapes, make), Sample("special values", grid(*[SPECIAL_VALUES] * arity)))


_BASES = (0.0, 1.0, 2.0, 0.5, -2.0, -1.0, INF, NAN)
_EXPONENTS = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0)


def _make(function: ScalarFunction, op: GraphOp) -> OpSpec:
    """The declaration of a graph op that computes a scalar function."""
    names = ("x", "y", "z")[: function.arity]

    def block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
        return builder.elementwise(function.name, *tiles)

    return OpSpec(
        name=f"tgraph.{op.name}",
        summary=op.summary,
        operands=names,
        infer=_infer(op, names),
        reference=graph_reference(partial(meaning_of, function.name), to_bool=op.group.result(dt.f32) is dt.bool_),
        samples=_samples(function.samples, op.dtypes, function.arity),
        dtypes=op.dtypes,
        cost=pointwise_cost(function.flops),
        simplify=op.simplify,
        lower=Pointwise(block, function.flops, function.is_expensive),
        policy=function.policy,
        interval=op.interval,
        jvp=None if function.is_predicate or "f32" not in op.dtypes else "elementwise:scalar_jvp",
        transpose=f"elementwise:{op.name}_transpose" if op.name in _LINEAR else None,
        no_derivative="a bool has no tangent" if function.is_predicate else "",
    )


_LINEAR = ("neg", "add", "sub", "mul", "div")
"""Functions that are linear in an operand, the others being as they are."""


# `gelu` has an attribute that chooses between two scalar functions, so it is declared by hand.


def _gelu_function(approximate: str) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu_erf"


def _gelu_meaning(dtype: DType, approximate: str = "none") -> Meaning:
    return meaning_of(_gelu_function(approximate), dtype)


def _gelu_infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    if attributes["approximate"] not in ("none", "tanh"):
        raise ctx.fail(
            f"`gelu` has no approximation `{attributes['approximate']}`", help='`approximate` is "none" or "tanh"'
        )
    check_dtype(ctx, "gelu", "x", types[0], FLOATS)
    return [types[0]]


GELU = OpSpec(
    name="tgraph.gelu",
    summary="`x` times the share of the normal distribution below `x`, exact or by the tanh formula.",
    operands=("x",),
    attributes=(Attribute("approximate", "str", "none", '"none" (by erf) or "tanh"'),),
    infer=_gelu_infer,
    reference=graph_reference(_gelu_meaning),
    samples=(
        *over([(shape,) for shape in UNARY_SHAPES], normal),
        *over([((5, 7),), ((0, 3),), ((211,),)], normal, {"approximate": "tanh"}),
    ),
    dtypes=FLOATS,
    cost=pointwise_cost(14),
    lower=Pointwise(
        lambda builder, tiles, attributes, out: builder.elementwise(_gelu_function(attributes["approximate"]), *tiles),
        14,
        expensive=True,
    ),
    policy=ROUND,
    interval=gate(-0.1701),
    jvp="elementwise:gelu_jvp",
)

# Elementwise ops of three operands, and from one dtype to another: where, clamp, cast, bitcast.


def _infer_where(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    names = ("condition", "x", "y")
    check_dtype(ctx, "where", "condition", types[0], ("bool",))
    check_same(ctx, "where", names[1:], types[1:])
    check_dtype(ctx, "where", "x", types[1], ANY)
    return [TensorType(broadcast_types(ctx, "where", names, types), types[1].dtype)]


def _infer_clamp(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    names = ("x", "low", "high")
    check_same(ctx, "clamp", names, types)
    check_dtype(ctx, "clamp", "x", types[0], NUMBERS)
    return [TensorType(broadcast_types(ctx, "clamp", names, types), types[0].dtype)]


def _clamp_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    x, low, high = tiles
    return builder.elementwise("min", builder.elementwise("max", x, low), high)


def _infer_bitcast(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
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


_TERNARY_SHAPES: Sequence[Sequence[Sizes]] = (
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


_EDGES = (127.5, 128.0, -128.9, 255.9, 256.0, -0.9, 7.5, -8.6, 32768.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, 2.0**64)
"""Numbers at which some integer dtype ends."""


def _to(*dtypes: DType) -> list[Sample]:
    shapes = [((0, 3),), ((13, 37),)]
    samples: list[Sample] = []
    for dtype in dtypes:
        attributes = {"dtype": dtype}
        samples += [Sample(f"{s.name} to {dtype}", s.make, attributes) for s in over(shapes, normal, attributes)]
        samples.append(Sample(f"edges to {dtype}", grid((*SPECIAL_VALUES, *_EDGES)), attributes))
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


def _clamp_meaning(dtype: DType) -> Meaning:
    return scalars.clamp


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


def _cast_like_reference(x: Array, like: Array) -> Array:
    return scalars.cast(x, dtype=dtype_of(like))


def _decompose_cast_like(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return cast(b, operands[0], b.type_of(operands[1]).dtype)


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
    lower=Pointwise(lambda builder, tiles, attributes, out: builder.select(*tiles)),
    policy=KEEP,
    interval=IntervalRule(lambda query: query.operands[1].hull(query.operands[2]), is_exact=True),
    jvp="elementwise:where_jvp",
    transpose="elementwise:where_transpose",
)

CLAMP = OpSpec(
    name="tgraph.clamp",
    summary="`min(max(x, low), high)`; NaN stays.",
    operands=("x", "low", "high"),
    infer=_infer_clamp,
    reference=graph_reference(_clamp_meaning),
    samples=tuple(over(_TERNARY_SHAPES, normal)),
    dtypes=NUMBERS,
    cost=pointwise_cost(2),
    lower=Pointwise(_clamp_block, 2),
    policy=ROUND,
    interval=IntervalRule(_clamp_interval, is_exact=True),
    jvp="elementwise:clamp_jvp",
)

CAST = OpSpec(
    name="tgraph.cast",
    summary="The same values in another dtype: floats round to even, floats to integers truncate and saturate "
    "(NaN gives 0), integers wrap, anything but zero is True.",
    operands=("x",),
    attributes=(Attribute("dtype", "dtype", doc="dtype of the result"),),
    infer=lambda ctx, types, attributes: [types[0].with_dtype(attributes["dtype"])],
    reference=scalars.cast,
    samples=(*over([(shape,) for shape in UNARY_SHAPES], normal, {"dtype": dt.f64}), *_to(*dt.ALL)),
    dtypes=(*ANY, "i4"),
    cost=pointwise_cost(1),
    simplify=simplify_cast,
    # Directly: through the wider dtype it would round twice.
    lower=Pointwise(lambda builder, tiles, attributes, out: builder.cast(tiles[0], out.dtype), converts=True),
    policy=CONVERT,
    interval=IntervalRule(_cast_interval),
    jvp="elementwise:cast_jvp",
    transpose="elementwise:cast_transpose",
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
    no_derivative="it reads bits, which do not change by little",
)

CAST_LIKE = OpSpec(
    name="tgraph.cast_like",
    summary="`x` in the dtype of another value.",
    operands=("x", "like"),
    infer=lambda ctx, types, attributes: [types[0].with_dtype(types[1].dtype)],
    reference=_cast_like_reference,
    samples=(Sample("same dtype", normal((3, 5), (2,))),),
    dtypes=NUMBERS,
    cost=visits(1),
    simplify=_decompose_cast_like,  # the dtype is known, so the other value is not needed
    decompose=_decompose_cast_like,
    policy=KEEP,
    interval=ANYTHING,
)


# The end of a chain of epilogue steps: its value, and the promise that it is one kernel with its contraction.


def _infer_fused(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, contraction = types
    if x.rank != contraction.rank or any(map(is_refuted, x.shape, contraction.shape)):
        raise ctx.fail(
            f"an epilogue keeps the shape of its contraction, {text(contraction.shape)}, and this gives {text(x.shape)}"
        )
    for axis, (own, other) in enumerate(zip(x.shape, contraction.shape, strict=True)):
        ctx.equal(own, other, f"dim {axis} of an epilogue and of its contraction")
    return [x]


def _fused_reference(x: Array, contraction: Array) -> Array:
    return x.copy()


FUSED = OpSpec(
    name="tgraph.fused",
    summary="The first operand, promised to be computed in the kernel that computes the second.",
    operands=("x", "contraction"),
    infer=_infer_fused,
    reference=_fused_reference,
    dtypes=FLOATS,
    cost=visits(0),
    lower=Pointwise(lambda builder, tiles, attributes, out: tiles[0], flops=0, is_promise=True),
    interval=ANYTHING,
    jvp="elementwise:identity_jvp",
)

SPECS: tuple[OpSpec, ...] = (
    *(_make(function, op) for function in SCALAR_FUNCTIONS.values() for op in function.graph_ops),
    GELU,
    WHERE,
    CLAMP,
    CAST,
    BITCAST,
    CAST_LIKE,
    FUSED,
)
