"""Attention of single queries, part of the keys by part: what `attention` of one query to many keys becomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.ir.base.arrays import Array, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Make, check_float, common_dtype, normal, visits
from tessera.ir.graph.ops.attention import (
    SCALE,
    attention_arrays,
    attention_cost,
    attention_with_lse_reference,
    check_heads,
    check_length,
    with_length,
)
from tessera.ir.tile.facets import Library
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32
from tessera.types.shape import TensorType, equal_dims, path


def _infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    q, k, v, *lengths = types
    check_heads(ctx, "attention_parts", q, k, v)
    if len(lengths) > 1:
        raise ctx.fail(f"`attention_parts` takes one length, got {len(lengths)}")
    for length in lengths:
        check_length(ctx, "attention_parts", length)
    if attributes["keys"] < 1:
        raise ctx.fail(f"`attention_parts` needs parts of at least one key, got {attributes['keys']}")
    equal_dims(ctx, "attention_parts", q.shape[2], Dim.constant(1), f"{path('q', 2, q.shape[2])} and one query")
    rows = (*q.shape[:2], k.shape[2].ceildiv(attributes["keys"]))
    lse = q.with_shape(rows).with_dtype(q.dtype.compute)
    return [lse.with_shape((*rows, v.shape[3])), lse]


def attention_parts_reference(
    q: Array, k: Array, v: Array, *lengths: Array, keys: int, scale: float | None = None
) -> tuple[Array, Array]:
    """Attention with each part of the keys alone: results, and log-sum-exps."""
    wide = q if q.dtype == np.float64 else q.astype(np.float32)
    filled = min([k.shape[2], *(max(int(length), 0) for length in lengths)])
    found: list[tuple[Array, Array]] = []
    for at in range(0, k.shape[2], keys):
        part = slice(at, max(at, min(at + keys, filled)))
        found.append(attention_with_lse_reference(wide, k[:, :, part], v[:, :, part], scale=scale))
    outs = [np.zeros((*q.shape[:2], 0, v.shape[3]), wide.dtype), *(out for out, _ in found)]
    sums = [np.zeros((*q.shape[:2], 0), wide.dtype), *(lse for _, lse in found)]
    return np.concatenate(outs, axis=2), np.concatenate(sums, axis=2)


def _infer_join(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    parts, lse = types
    if parts.rank != 4 or lse.rank != 3:
        raise ctx.fail(f"`attention_join` needs results and log-sum-exps of parts, got {parts} and {lse}")
    for axis in range(3):
        what = f"{path('parts', axis, parts.shape[axis])} and {path('lse', axis, lse.shape[axis])}"
        equal_dims(ctx, "attention_join", parts.shape[axis], lse.shape[axis], what)
    check_float(ctx, "attention_join", lse, "lse")
    common_dtype(ctx, "attention_join", types)
    return [TensorType((*parts.shape[:2], Dim.constant(1), parts.shape[3]), attributes["dtype"])]


def attention_join_reference(parts: Array, lse: Array, *, dtype: DType) -> Array:
    """Parts weighted by their fractions of the sum of all; nothing but -inf gives 0."""
    with np.errstate(all="ignore"):
        wide = lse.astype(np.float64)
        top = wide.max(2, keepdims=True, initial=-np.inf)
        terms = np.exp(wide - np.where(top == -np.inf, 0.0, top))
        total = terms.sum(2, keepdims=True)
        weights = terms / np.where(total == 0, 1.0, total)
        return round_as((parts.astype(np.float64) * weights[..., np.newaxis]).sum(2, keepdims=True), dtype)


def _join_sample(parts: int, size: int) -> Make:
    return lambda rng: list(normal((2, 3, parts, size), (2, 3, parts))(rng))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.attention_parts",
        summary="Attention of one query of each head to parts of the first `length` keys: results and log-sum-exps.",
        operands=("q", "k", "v", "length*"),
        results=("out", "lse"),
        attributes=(Attribute("keys", "int", doc="keys of a part; the last may have fewer"), SCALE),
        infer=_infer,
        reference=attention_parts_reference,
        samples=(
            Sample("even", attention_arrays(2, 4, 2, 1, 8, 8), {"keys": 4}),
            Sample("ragged", attention_arrays(1, 3, 1, 1, 11, 4), {"keys": 4, "scale": 0.5}),
            Sample("of a cache", with_length(attention_arrays(1, 4, 2, 1, 12, 4), 5), {"keys": 4}),
        ),
        dtypes=FLOATS,
        cost=attention_cost,
        lower=Library("attention_parts", reads_views=True),
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.attention_join",
        summary="Results of parts of the keys joined, each weighted by its fraction of the sum, from its log-sum-exp.",
        operands=("parts", "lse"),
        attributes=(Attribute("dtype", "dtype", doc="of the result"),),
        infer=_infer_join,
        reference=attention_join_reference,
        samples=(
            Sample("few", _join_sample(3, 8), {"dtype": f32}),
            Sample("many", _join_sample(40, 5), {"dtype": f32}),
        ),
        dtypes=("f32", "f64"),
        cost=visits(2),
        lower=Library("attention_join", takes_epilogue=True),
        policy=KEEP,
        interval=ANYTHING,
    ),
)
