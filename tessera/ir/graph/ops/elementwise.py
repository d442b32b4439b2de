"""Ops on one element at a time: made from the table of scalar functions (`ir/base/scalar_functions.py`), and `gelu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.interval import gate
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, GraphOp, ScalarFunction
from tessera.ir.base.scalar_reference import Meaning, graph_reference, meaning_of
from tessera.ir.base.spec import (
    BOOL,
    FLOATS,
    ROUND,
    Attribute,
    Attributes,
    Cost,
    CostRule,
    InferContext,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import (
    BINARY_SHAPES,
    UNARY_SHAPES,
    bools,
    integers,
    normal,
    over,
    positive,
    special_integers,
    special_values,
    traffic,
)
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.promotion import float_of
from tessera.types.shape import Named, TensorType, broadcast


def check_dtype(ctx: InferContext, op: str, name: str, x: TensorType, allowed: Sequence[str]) -> None:
    """Raises unless the operand's dtype is one the op takes, saying which cast would do."""
    if x.dtype.name in allowed:
        return
    if "f32" in allowed:
        fix = "i8" if x.dtype is dt.i4 and "i8" in allowed else str(float_of(x.dtype))
    else:
        fix = "bool" if allowed == BOOL else "i32"
    raise ctx.fail_dtype(
        f"`{op}` takes {' '.join(allowed)}, got `{name}` of {x.dtype}",
        help=f"compare it, as in `{name} != 0`" if fix == "bool" else f"cast it, as in `{name}.cast({fix})`",
    )


def check_same(ctx: InferContext, op: str, names: Sequence[str], types: Sequence[TensorType]) -> None:
    """Raises unless all operands have one dtype."""
    for name, x in zip(names[1:], types[1:], strict=True):
        if x.dtype is not types[0].dtype:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got `{names[0]}` of {types[0].dtype} and `{name}` of {x.dtype}",
                help=f"cast one of them, as in `{name}.cast({types[0].dtype})`",
            )


def pointwise_cost(flops: int) -> CostRule:
    """A fixed number of operations for each element of the result."""

    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
        return Cost(results[0].size * flops, traffic(operands, results))

    return cost


def _infer(op: GraphOp, names: tuple[str, ...]) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_same(ctx, op.name, names, types)
        for name, x in zip(names, types, strict=True):
            check_dtype(ctx, op.name, name, x, op.dtypes)
        shape = broadcast(ctx, op.name, *(Named(name, x.shape) for name, x in zip(names, types, strict=True)))
        return [TensorType(shape, op.group.result(types[0].dtype))]

    return infer


def _block(function: str) -> Any:
    def block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
        return builder.elementwise(function, *tiles)

    return block


def _samples(kind: str, dtypes: tuple[str, ...], arity: int) -> tuple[Sample, ...]:
    """Arrays of many shapes with the numbers that an entry of the table asks for."""
    shapes: list[Any] = [(shape,) for shape in UNARY_SHAPES] if arity == 1 else list(BINARY_SHAPES)
    if dtypes == BOOL:
        return tuple(over(shapes, bools))
    if "f32" not in dtypes:
        return (*over(shapes, integers), Sample("special values", special_integers(arity)))
    if kind == "positive":
        return (*over(shapes, positive), Sample("special values", special_values(arity)))
    if kind == "tame":
        return (*over(shapes, normal), Sample("wide range", normal(*[(211,)] * arity, scale=8.0)))
    if kind == "powers":
        return (*over(shapes, positive), Sample("integer and half exponents", _exponent_samples))
    return (*over(shapes, normal), Sample("special values", special_values(arity)))


def _exponent_samples(rng: np.random.Generator) -> Sequence[Any]:
    base = np.array([0.0, 1.0, 2.0, 0.5, -2.0, -1.0, np.inf, np.nan], np.float32)
    exponent = np.array([0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0], np.float32)
    return [part.reshape(-1).copy() for part in np.meshgrid(base, exponent, indexing="ij")]


def _make(function: ScalarFunction, op: GraphOp) -> OpSpec:
    """The declaration of a graph op that computes a scalar function."""
    names = ("x", "y", "z")[: function.arity]
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
        lower=Pointwise(_block(function.name), function.flops, function.is_expensive),
        policy=function.policy,
        interval=op.interval,
        jvp=function.jvp,
        transpose=function.transpose,
        batch=function.batch,
    )


# `gelu` has an attribute that chooses between two scalar functions, so it is declared by hand.


def _gelu_function(approximate: str) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu_erf"


def _gelu_meaning(dtype: DType, approximate: str = "none") -> Meaning:
    return meaning_of(_gelu_function(approximate), dtype)


def _gelu_infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    if attributes["approximate"] not in ("none", "tanh"):
        raise ctx.fail(
            f"`gelu` has no approximation `{attributes['approximate']}`", help='`approximate` is "none" or "tanh"'
        )
    check_dtype(ctx, "gelu", "x", types[0], FLOATS)
    return [types[0]]


def _gelu_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    return builder.elementwise(_gelu_function(attributes["approximate"]), *tiles)


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
    lower=Pointwise(_gelu_block, 14, expensive=True),
    policy=ROUND,
    interval=gate(-0.17),
)

SPECS: tuple[OpSpec, ...] = (
    *(_make(function, op) for function in SCALAR_FUNCTIONS.values() for op in function.graph_ops),
    GELU,
)
