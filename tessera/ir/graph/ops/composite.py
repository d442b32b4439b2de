"""Small ops that models are written in: the residual sum with dropout, and a cast to another value's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, dtype_of, round_as
from tessera.ir.base.arrays import widen as widened_array
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import (
    FLOATS,
    INTEGERS,
    KEEP,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    Sample,
    Simplifier,
)
from tessera.ir.graph.building import cast, check_float, common_dtype, normal, visits, widen
from tessera.ir.graph.ops.random import check_key, check_rate, keep_mask, key_sample
from tessera.types.shape import Named, TensorType, broadcast


def _infer_residual(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, y, *keys = types
    for name, operand in (("x", x), ("y", y)):
        check_float(ctx, "residual", operand, name)
    dtype = common_dtype(ctx, "residual", (x, y))
    rate = check_rate(ctx, "residual", attributes["dropout"])
    if len(keys) > 1 or (rate > 0 and not keys):
        raise ctx.fail(
            f"`residual` with dropout {rate} needs one `key`, got {len(keys)}",
            help="pass a random key, or leave dropout at 0",
        )
    for key in keys:
        check_key(ctx, "residual", key)
    return [TensorType(broadcast(ctx, "residual", Named("x", x.shape), Named("y", y.shape)), dtype)]


def _decompose_residual(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, y, *keys = operands
    dtype = b.type_of(x).dtype
    branch = widen(b, y)
    if attributes["dropout"] > 0:
        branch = b.emit("dropout", branch, keys[0], rate=attributes["dropout"])
    return cast(b, b.emit("add", widen(b, x), branch), dtype)


def residual_reference(x: Array, y: Array, *keys: Array, dropout: float = 0.0) -> Array:
    """The sum, with elements of `y` dropped by the key's mask and the others scaled up; rounded once."""
    branch: Array = widened_array(y)
    with np.errstate(all="ignore"):
        if dropout > 0:
            scale = branch.dtype.type(1.0 / (1.0 - dropout))
            dropped: Array = ~keep_mask(keys[0], y.shape, dropout)
            branch = branch * scale
            branch[dropped] = 0
        return round_as(widened_array(x) + branch, dtype_of(x))


def _infer_cast_like(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return [types[0].with_dtype(types[1].dtype)]


def _decompose_cast_like(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return cast(b, operands[0], b.type_of(operands[1]).dtype)


def _simplify_cast_like(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """The dtype is known, so the other value is not needed."""
    return _decompose_cast_like(simplifier, operands, attributes)


def cast_like_reference(x: Array, like: Array) -> Array:
    """`x` cast to the dtype of `like`."""
    return scalars.cast(x, dtype=dtype_of(like))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.residual",
        summary="x + y, `y` with dropout if asked for, in f32 and rounded once.",
        operands=("x", "y", "key*"),
        attributes=(Attribute("dropout", "float", 0.0, "fraction of `y` that is dropped; above 0 it needs a key"),),
        infer=_infer_residual,
        reference=residual_reference,
        samples=(
            Sample("plain", normal((3, 5), (3, 5))),
            Sample("dropout", key_sample(normal((17, 33), (17, 33))), {"dropout": 0.25}),
        ),
        dtypes=FLOATS,
        cost=visits(1),
        decompose=_decompose_residual,
        policy=ROUND,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.cast_like",
        summary="`x` in the dtype of another value.",
        operands=("x", "like"),
        infer=_infer_cast_like,
        reference=cast_like_reference,
        samples=(Sample("same dtype", normal((3, 5), (2,))),),
        dtypes=(*FLOATS, *INTEGERS),
        cost=visits(1),
        simplify=_simplify_cast_like,
        decompose=_decompose_cast_like,
        policy=KEEP,
        interval=ANYTHING,
    ),
)
