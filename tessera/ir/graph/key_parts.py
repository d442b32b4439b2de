"""Attention that takes its keys in parts: when it does, who computes them, and what each of both ops for it means.

A few queries have too little in their result to fill a large machine. Over a cache, and where the caller asks for it,
keys are cut into parts by position, each computed by itself and joined in order. How many queries there are decides
nothing: a row alone is the row of a batch, and who computes the parts changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, round_as
from tessera.ir.base.spec import Attributes, InferContext, Simplifier
from tessera.ir.graph.building import Types, check_float, check_integer, common_dtype, match_dims
from tessera.types.dtype import DType
from tessera.types.shape import ONE, ZERO, Named, TensorType, equal_dims, is_refuted, path, text

PART = 512
"""Keys of a part where attention splits them. It decides in which order sums are joined, so it is never chosen."""
PART_UNIT = 256
SPLIT = "keys of a part, joined in order, a multiple of 256; 0 for one pass over all"
_ROWS, _FILLING, _WIDE_HEAD = 64, 256, 128
"""Queries of a program on tensor cores, programs that fill a large GPU, two for each of 132 multiprocessors, and heads
beyond which registers hold no two accumulators."""


def split_keys(b: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Parts of the keys in parallel, then joined, where queries fill no GPU. Kernels with all parts have the same bits.

    Queries that see the same keys are rows of one head: those of a group of heads, each with one query, for parts in
    parallel, and otherwise those of one head that has all of a group. `causal` hides nothing from a last query. A
    fourth operand is a mask, or how many keys of a cache there are.
    """
    q, k, v, *others = (b.type_of(value) for value in operands)
    (batch, heads, queries, size), shared, part = q.shape, k.shape[1], attributes["part"]
    is_masked = any(not other.dtype.is_integer for other in others) or (attributes["causal"] and queries.value != 1)
    if not part or is_masked or not queries.value or _is_one_part(k, part):
        return None
    if not _is_apart(q, k):
        rows = heads // shared * queries
        if heads == shared or not _is_packed(queries.value, rows.value):
            return None
        given = b.emit("reshape", operands[0], shape=(batch, shared, rows, size))
        name = "cached_attention" if others else "attention"
        out = b.emit(name, given, *operands[1:], **{**attributes, "causal": False})
    else:
        given = operands[0]
        if queries.value > 1:
            given = b.emit("reshape", given, shape=(batch, heads * queries, ONE, size))
        parts = b.emit("attention_parts", given, *operands[1:], keys=part, scale=attributes["scale"])
        lengths = operands[3:]
        out = b.emit("attention_join", *parts, *lengths, dtype=q.dtype, keys=part if lengths else 0)
    return (
        out
        if b.type_of(out).shape == (*q.shape[:3], v.shape[3])
        else b.emit("reshape", out, shape=(*q.shape[:3], v.shape[3]))
    )


def _is_one_part(k: TensorType, part: int) -> bool:
    keys = k.shape[2].value
    return keys is not None and keys <= part


def _is_apart(q: TensorType, k: TensorType) -> bool:
    """Whether parts are computed by programs of their own: where rows fill no GPU, as far as is known."""
    rows, heads = (q.shape[1] // k.shape[1] * q.shape[2]).value, (q.shape[0] * k.shape[1]).value
    if rows is None or heads is None:
        return q.shape[2].value == 1
    return heads * -(-rows // _ROWS) < _FILLING or (q.shape[3].value or 0) > _WIDE_HEAD


def _is_packed(queries: int, rows: int | None) -> bool:
    """Whether rows of a group of heads are fewer programs together than apart."""
    return rows is not None and -(-rows // _ROWS) < rows // queries * -(-queries // _ROWS)


def check_heads(ctx: InferContext, op: str, q: TensorType, k: TensorType, v: TensorType) -> TensorType:
    """The result of attending with `q` over `k` and `v`, or the first rule that breaks."""
    for name, operand in (("q", q), ("k", k), ("v", v)):
        if operand.rank != 4:
            raise ctx.fail(
                f"`{op}` needs `{name}` as [batch, heads, length, head dim], got {text(operand.shape)}",
                help="reshape it; `split_qkv` gives this layout",
            )
        check_float(ctx, op, operand, name)
    common_dtype(ctx, op, (q, k, v))
    queries, keys, values = Named("q", q.shape), Named("k", k.shape), Named("v", v.shape)
    match_dims(ctx, op, queries, keys, (0,))
    match_dims(ctx, op, keys, values, (0, 1, 2))
    match_dims(ctx, op, queries, keys, (3,))
    remainder = q.shape[1] % k.shape[1]
    if is_refuted(remainder, ZERO):
        raise ctx.fail(f"`{op}` needs heads of `q` to be a multiple of those of `k`: {q.shape[1]} and {k.shape[1]}")
    if remainder.value != 0:
        ctx.equal(remainder, ZERO, f"`{op}` shares each head of `k` among as many heads of `q`")
    return q.with_shape((*q.shape[:3], v.shape[3]))


def check_part(ctx: InferContext, op: str, attributes: Attributes) -> None:
    """Blocks of keys end where a part does."""
    part = attributes["part"]
    if part < 0 or part % PART_UNIT:
        raise ctx.fail(
            f"`{op}` takes keys in parts of a multiple of {PART_UNIT}, got {part}",
            help=f"write `part={PART}`, or 0 for one pass",
        )


def check_length(ctx: InferContext, op: str, length: TensorType) -> None:
    """A cache has one length, an integer."""
    check_integer(ctx, op, length, "length")
    if length.rank:
        raise ctx.fail(f"`{op}` needs one `length` for the whole cache, got {text(length.shape)}")


# Single queries, part of the keys by part: what `attention` of few queries to many keys becomes.


def infer_parts(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    """Accumulators, maxima and sums of each part."""
    q, k, v, *lengths = types
    check_heads(ctx, "attention_parts", q, k, v)
    if len(lengths) > 1:
        raise ctx.fail(f"`attention_parts` takes one length, got {len(lengths)}")
    for length in lengths:
        check_length(ctx, "attention_parts", length)
    if attributes["keys"] < 1:
        raise ctx.fail(f"`attention_parts` needs parts of at least one key, got {attributes['keys']}")
    equal_dims(ctx, "attention_parts", q.shape[2], ONE, f"{path('q', 2, q.shape[2])} and one query")
    rows = (*q.shape[:2], k.shape[2].ceildiv(attributes["keys"]))
    top = q.with_shape(rows).with_dtype(q.dtype.compute)
    return [top.with_shape((*rows, v.shape[3])), top, top]


def attention_parts_reference(
    q: Array, k: Array, v: Array, *lengths: Array, keys: int, scale: float | None = None
) -> tuple[Array, Array, Array]:
    """Each part of the keys alone: accumulators, maxima and sums of exp2, as `attention` carries them between parts."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    filled = min([k.shape[2], *(max(int(length), 0) for length in lengths)])
    groups = q.shape[1] // k.shape[1] if k.shape[1] else 1
    own, values = (np.repeat(x.astype(np.float64), groups, axis=1) for x in (k, v))
    factor = 1.0 / np.sqrt(max(q.shape[3], 1)) if scale is None else scale
    count = -(-k.shape[2] // keys)
    acc, top, total = (np.zeros((*q.shape[:2], count, *last), wide) for last in ((v.shape[3],), (), ()))
    with np.errstate(all="ignore"):
        for at in range(count):
            part = slice(at * keys, max(at * keys, min((at + 1) * keys, filled)))
            scores = (q.astype(np.float64) @ np.swapaxes(own[:, :, part], 2, 3))[:, :, 0] * (factor * math.log2(math.e))
            top[:, :, at] = np.ceil(scores.max(-1, initial=-np.inf))
            terms = np.exp2(scores - _finite(top[:, :, at].astype(np.float64))[..., np.newaxis])
            total[:, :, at] = terms.sum(-1)
            acc[:, :, at] = (terms[:, :, np.newaxis] @ values[:, :, part])[:, :, 0]
    return acc, top, total


def _finite(top: Array) -> Array:
    return np.where(top == -np.inf, 0.0, top)


def infer_join(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    """The result of attention, from its parts."""
    (acc, *rows), lengths = types[:3], types[3:]
    for length in lengths:
        check_length(ctx, "attention_join", length)
    if len(lengths) > 1 or (attributes["keys"] > 0) != bool(lengths):
        raise ctx.fail(
            "`attention_join` takes a length with the keys of a part, "
            f"got {len(lengths)} lengths and parts of {attributes['keys']}"
        )
    if acc.rank != 4 or any(each.rank != 3 for each in rows):
        listed = ", ".join(map(str, types))
        raise ctx.fail(f"`attention_join` needs accumulators, maxima and sums of parts, got {listed}")
    for name, each in zip(("top", "total"), rows, strict=True):
        match_dims(ctx, "attention_join", Named("acc", acc.shape), Named(name, each.shape), range(3))
        check_float(ctx, "attention_join", each, name)
    common_dtype(ctx, "attention_join", types[:3])
    return [TensorType((*acc.shape[:2], ONE, acc.shape[3]), attributes["dtype"])]


def attention_join_reference(
    acc: Array, top: Array, total: Array, *lengths: Array, dtype: DType, keys: int = 0
) -> Array:
    """Parts times two to the power of their maxima, over the sum of all; nothing but -inf gives 0."""
    for length in lengths:
        count = -(-max(int(length), 0) // keys)
        acc, top, total = (values[:, :, :count] for values in (acc, top, total))
    with np.errstate(all="ignore"):
        wide = top.astype(np.float64)
        factors = np.exp2(wide - _finite(wide.max(-1, keepdims=True, initial=-np.inf)))
        divisor = (total.astype(np.float64) * factors).sum(-1)[..., np.newaxis, np.newaxis]
        out = (acc.astype(np.float64) * factors[..., np.newaxis]).sum(2, keepdims=True)
        return round_as(out / np.where(divisor == 0, 1.0, divisor), dtype)
