"""Attention over whole sequences and over a cache, and what goes before it: splitting projections, rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as
from tessera.ir.base.interval import ANYTHING, SAME, Interval, IntervalQuery, IntervalRule, largest_of, multiply, point
from tessera.ir.base.spec import (
    FLOATS,
    KEEP,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
)
from tessera.ir.graph.building import (
    Types,
    cast,
    check_float,
    constant,
    cost_of,
    expand,
    index_axis,
    restate,
    same_dim,
    size_value,
    slice_axis,
    visits,
    widen,
)
from tessera.ir.graph.key_parts import (
    PART,
    SPLIT,
    attention_join_reference,
    attention_parts_reference,
    check_heads,
    check_length,
    check_part,
    infer_join,
    infer_parts,
    split_keys,
)
from tessera.ir.graph.ops.contraction import accumulate_matmul
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import BlockFormat, DType
from tessera.types.shape import ONE, ZERO, Named, TensorType, broadcast, is_refuted, path, text

CAUSAL = Attribute("causal", "bool", False, "hide later keys; the last query is aligned with the last key")
SCALE = Attribute("scale", "float", None, "factor of the scores; default one over the root of the head dim")


def _infer_attention(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, *masks = types
    out = check_heads(ctx, "attention", q, k, v)
    check_part(ctx, "attention", attributes)
    if len(masks) > 1:
        raise ctx.fail(f"`attention` takes one mask, got {len(masks)}")
    for mask in masks:
        check_float(ctx, "attention", mask, "mask")
        scores = (*q.shape[:3], k.shape[2])
        joined = broadcast(ctx, "attention", Named("scores", scores), Named("mask", mask.shape))
        if len(joined) != 4 or any(is_refuted(own, dim) for own, dim in zip(scores, joined, strict=True)):
            raise ctx.fail(f"`attention` adds the mask to scores {text(scores)}: {text(mask.shape)} does not broadcast")
    return [out]


def _attend(q: Array, k: Array, v: Array, added: Array | float, scale: float | None) -> tuple[Array, Array]:
    """Softmax of scaled scores plus what is added, times values, and the log-sum-exp of the scores.

    All in f64, rounded once; a row of nothing but -inf gives 0, and -inf.
    """
    groups = q.shape[1] // k.shape[1] if k.shape[1] else 1
    keys, values = (np.repeat(x.astype(np.float64), groups, axis=1) for x in (k, v))
    factor = 1.0 / np.sqrt(max(q.shape[3], 1)) if scale is None else scale
    with np.errstate(all="ignore"):
        scores = q.astype(np.float64) @ np.swapaxes(keys, 2, 3) * factor + added
        weights, lse = weigh(scores)
        return round_as(weights @ values, dtype_of(q)), round_as(lse, dtype_of(q).compute)


def weigh(scores: Array) -> tuple[Array, Array]:
    """Softmax of the last axis, with zeros for nothing but -inf, and its log-sum-exp."""
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    shift = np.where(top == -np.inf, 0.0, top)
    terms = np.exp(scores - shift)
    total = terms.sum(-1, keepdims=True)
    return terms / np.where(total == 0, 1.0, total), (shift + np.log(total))[..., 0]


def causal_mask(queries: int, keys: int) -> Array:
    """0 where a query may see a key, -inf where the key is later; the last query is aligned with the last key."""
    seen = np.arange(keys) <= np.arange(queries)[:, np.newaxis] + (keys - queries)
    return np.where(seen, 0.0, -np.inf)


def attention_reference(
    q: Array, k: Array, v: Array, *masks: Array, causal: bool = False, scale: float | None = None, part: int = 0
) -> Array:
    """Scores, masks, softmax, values: all in f64, rounded once."""
    return attention_with_lse_reference(q, k, v, *masks, causal=causal, scale=scale)[0]


def attention_with_lse_reference(
    q: Array, k: Array, v: Array, *masks: Array, causal: bool = False, scale: float | None = None, part: int = 0
) -> tuple[Array, Array]:
    """The same, and the log-sum-exp of each row of scores."""
    added: Any = causal_mask(q.shape[2], k.shape[2]) if causal else 0.0
    for mask in masks:
        added = added + mask.astype(np.float64)
    return _attend(q, k, v, added, scale)


def _infer_with_lse(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (out,) = _infer_attention(ctx, types, attributes)
    return [out, out.with_shape(out.shape[:3]).with_dtype(out.dtype.compute)]


def _count_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    q, k, v = operands[:3]
    queries, keys = q.shape[2], k.shape[2]
    pairs = queries * keys
    # Of a cache only its fill is read, which nobody knows here, so that its capacity counts.
    if attributes.get("causal") and all(operand.rank for operand in operands):
        seen = minimum(queries, keys)  # queries that the mask leaves a key: the last has all of them
        pairs = seen * keys - seen * (seen - 1) // 2
    scores = q.shape[0] * q.shape[1] * pairs
    # Two multiply-adds, of two operations each, and about five for the softmax.
    return scores * ((q.shape[3] + v.shape[3]) * 2 + 5)


def _infer_cached(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, length = types
    check_length(ctx, "cached_attention", length)
    check_part(ctx, "cached_attention", attributes)
    return [check_heads(ctx, "cached_attention", q, k, v)]


def cached_attention_reference(
    q: Array, k: Array, v: Array, length: Array, *, causal: bool = True, scale: float | None = None, part: int = PART
) -> Array:
    """Attention over the filled part of the cache alone: what lies beyond it is not read."""
    filled = min(max(int(length), 0), k.shape[2])
    return attention_reference(q, k[:, :, :filled], v[:, :, :filled], causal=causal, scale=scale)


def _infer_split(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    heads, shared = head_counts(attributes)
    if x.rank != 3:
        raise ctx.fail(f"`split_qkv` needs [batch, length, channels], got {text(x.shape)}")
    if heads < 1 or shared < 1 or heads % shared:
        raise ctx.fail(f"`split_qkv` needs `kv_heads` to divide `heads`, got {shared} and {heads}")
    slots = heads + 2 * shared
    size = x.shape[2] // slots
    same_dim(
        ctx, x.shape[2], size * slots, f"`split_qkv` cuts {path('x', 2, x.shape[2])} into {slots} heads, which must fit"
    )
    return [x.with_shape((x.shape[0], count, x.shape[1], size)) for count in (heads, shared, shared)]


def head_counts(attributes: Attributes) -> tuple[int, int]:
    """Heads of queries, and of keys and of values each."""
    return int(attributes["heads"]), int(attributes["kv_heads"] or attributes["heads"])


def _decompose_split(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    heads, shared = head_counts(attributes)
    batch, length, channels = b.type_of(x).shape
    size = channels // (heads + 2 * shared)
    results: list[Any] = []
    start = ZERO
    for count in (heads, shared, shared):
        cut = slice_axis(b, x, 2, start, start + size * count)
        apart = b.emit("reshape", cut, shape=(batch, length, Dim.constant(count), size))
        results.append(b.emit("transpose", apart, axes=(0, 2, 1, 3)))
        start = start + size * count
    return tuple(results)


def split_qkv_reference(x: Array, *, heads: int, kv_heads: int | None = None) -> tuple[Array, ...]:
    """Queries, then keys, then values, concatenated along the channels; each as [batch, heads, length, head dim]."""
    shared = kv_heads or heads
    size = x.shape[2] // (heads + 2 * shared)
    cuts = np.split(x, [heads * size, (heads + shared) * size], axis=2)
    counts = (heads, shared, shared)
    return tuple(
        np.ascontiguousarray(cut.reshape(*x.shape[:2], count, size).transpose(0, 2, 1, 3))
        for cut, count in zip(cuts, counts, strict=True)
    )


def _infer_rotary(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, cos, sin = types
    for name, operand in (("x", x), ("cos", cos), ("sin", sin)):
        check_float(ctx, "rotary", operand, name)
    if not x.rank:
        raise ctx.fail("`rotary` needs at least one axis")
    half = x.shape[-1] // 2
    same_dim(
        ctx, x.shape[-1], half * 2, f"`rotary` rotates pairs of {path('x', x.rank - 1, x.shape[-1])}: it must be even"
    )
    wanted = (*x.shape[:-1], half)
    for name, angles in (("cos", cos), ("sin", sin)):
        joined = broadcast(ctx, "rotary", Named("x pairs", wanted), Named(name, angles.shape))
        if len(joined) != len(wanted) or any(is_refuted(a, c) for a, c in zip(joined, wanted, strict=True)):
            raise ctx.fail(f"`rotary` of {text(x.shape)} needs `{name}` that broadcasts to {text(wanted)}")
    return [x]


def _decompose_rotary(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, cos, sin = operands
    kind = b.type_of(x)
    last, half = kind.rank - 1, kind.shape[-1] // 2
    wide = widen(b, x)
    compute = b.type_of(wide).dtype
    if attributes["interleaved"]:
        pairs = b.emit("reshape", wide, shape=(*kind.shape[:-1], half, Dim.constant(2)))
        first, second = (index_axis(b, pairs, last + 1, at) for at in (0, 1))
    else:
        first, second = slice_axis(b, wide, last, 0, half), slice_axis(b, wide, last, half, half * 2)
    c, s = cast(b, cos, compute), cast(b, sin, compute)
    left = b.emit("sub", b.emit("mul", first, c), b.emit("mul", second, s))
    right = b.emit("add", b.emit("mul", second, c), b.emit("mul", first, s))
    left, right = cast(b, left, kind.dtype), cast(b, right, kind.dtype)
    if not attributes["interleaved"]:
        return restate(b, b.emit("concat", left, right, axis=last), kind.shape)
    joined = b.emit("concat", expand(b, left, last + 1), expand(b, right, last + 1), axis=last + 1)
    return b.emit("reshape", joined, shape=kind.shape)


def rotary_reference(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Each pair rotated by its angle; a pair is (i, i + half), or neighbours where interleaved."""
    wide = x.astype(numpy_dtype(dtype_of(x).compute))
    c, s = cos.astype(wide.dtype), sin.astype(wide.dtype)
    half = x.shape[-1] // 2
    first, second = (wide[..., ::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
    with np.errstate(all="ignore"):
        rotated = (first * c - second * s, second * c + first * s)
    out = np.stack(rotated, -1).reshape(x.shape) if interleaved else np.concatenate(rotated, -1)
    return round_as(out, dtype_of(x))


def _arrays(batch: int, heads: int, shared: int, queries: int, keys: int, size: int, mask: str = "") -> Make:
    """Queries, keys and values of a sample, and a mask if asked for."""

    def make(rng: np.random.Generator) -> Sequence[Array]:
        arrays = normal((batch, heads, queries, size), *[(batch, shared, keys, size)] * 2, scale=1.0)(rng)
        if mask == "random":
            return [*arrays, rng.standard_normal((heads, queries, keys)).astype(np.float32)]
        if mask == "row":
            hidden = np.zeros((queries, keys), np.float32)
            hidden[0] = -np.inf
            return [*arrays, hidden]
        return arrays

    return make


def _with_length(make: Make, filled: int) -> Make:
    """A sample with how many of its keys there are."""
    return lambda rng: [*make(rng), np.array(filled, np.int64)]


def _cached_sample(filled: int) -> Make:
    return _with_length(_arrays(2, 4, 2, 3, 9, 8), filled)


def _angles(rows: tuple[int, ...], length: int, size: int) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        angle = np.arange(length)[:, np.newaxis] / 10000.0 ** (np.arange(size // 2) / (size // 2))
        return [*normal((*rows, length, size))(rng), np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]

    return make


def _join_sample(parts: int, size: int) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        acc, top, total = normal((2, 3, parts, size), (2, 3, parts), (2, 3, parts))(rng)
        return [acc, np.ceil(4 * top), 1 + np.abs(total)]

    return make


_ATTENDED = (
    Sample("plain", _arrays(2, 3, 3, 5, 5, 8)),
    Sample("grouped, longer keys", _arrays(2, 4, 2, 3, 9, 8), {"causal": True}),
    Sample("more queries than keys", _arrays(1, 2, 1, 6, 4, 4), {"causal": True}),
    Sample("mask", _arrays(2, 2, 1, 4, 6, 8, "random"), {"scale": 0.5}),
)
"""What attention is shown by, with the log-sum-exps of its rows and without."""


def _accumulate_attention(
    op: str,
    b: Builder,
    operands: Sequence[Any],
    attributes: Attributes,
    total: DType,
    emit_composite: Callable[..., Any],
) -> Any:
    """Attention in f32: scores, softmax, values, each sum in the accumulator; and the log-sum-exp where asked."""
    q, k, v = (cast(b, value, dt.f32) for value in operands[:3])
    heads, shared = b.type_of(q).shape[1], b.type_of(k).shape[1]
    filled = None
    if op == "cached_attention":
        filled, v = _mask_cache(b, v, operands[3])
    if heads != shared:
        own = b.emit("iota", shape=(heads,), axis=0, dtype=dt.i64)
        own = b.emit("floordiv", own, size_value(b, heads // shared))
        k, v = b.emit("take", k, own, axis=1), b.emit("take", v, own, axis=1)
    q = b.emit("mul", q, scale_value(b, b.type_of(q).shape[3], attributes["scale"], dt.f32))
    scores = accumulate_matmul(b, q, b.emit("transpose", k, axes=(0, 1, 3, 2)), total)
    for mask in operands[3:] if filled is None else ():
        scores = b.emit("add", scores, cast(b, mask, dt.f32))
    scores = _mask_scores(b, scores, filled, causal=bool(attributes["causal"]))
    out = accumulate_matmul(b, emit_composite("softmax", scores, axis=3), v, total)
    if op != "attention_with_lse":
        return out
    return out, emit_composite("logsumexp_safe", scores, axes=(3,), keepdims=False)


def scale_value(b: Builder, head: Dim, scale: float | None, dtype: DType) -> Any:
    """The factor of scores, in f64 and rounded once: the same for a head dim that is known here or in a run."""
    if scale is None and head.value is not None:
        scale = 1.0 / math.sqrt(max(head.value, 1))
    if scale is not None:
        return constant(b, scale, dtype)
    one = constant(b, 1.0, dt.f64)
    root = b.emit("sqrt", b.emit("maximum", size_value(b, head, dt.f64), one))
    return cast(b, b.emit("div", one, root), dtype)


def _mask_cache(b: Builder, v: Any, length: Any) -> tuple[Any, Any]:
    """How many keys of a cache count, and its values with zeros beyond them, whatever is stored there."""
    shape = b.type_of(v).shape
    filled = b.emit(
        "minimum", b.emit("maximum", cast(b, length, dt.i64), constant(b, 0, dt.i64)), size_value(b, shape[2])
    )
    is_filled = b.emit("lt", b.emit("iota", shape=(shape[2], ONE), axis=0, dtype=dt.i64), filled)
    return filled, b.emit("where", is_filled, v, constant(b, 0.0, dt.f32))


def _mask_scores(b: Builder, scores: Any, filled: Any, *, causal: bool) -> Any:
    """Scores with -inf for keys beyond the cache, or later than their query; the last query has the last key."""
    if filled is None and not causal:
        return scores
    queries, keys = b.type_of(scores).shape[2:]
    seen = size_value(b, keys) if filled is None else filled
    if causal:
        row = b.emit("iota", shape=(queries, ONE), axis=0, dtype=dt.i64)
        own = b.emit("add", row, b.emit("sub", b.emit("add", seen, constant(b, 1, dt.i64)), size_value(b, queries)))
        seen = b.emit("minimum", own, seen)
    column = b.emit("iota", shape=(queries, keys), axis=1, dtype=dt.i64)
    return b.emit("where", b.emit("lt", column, seen), scores, constant(b, -math.inf, dt.f32))


def _attention_block_axis(type: TensorType, number: int, attributes: Attributes, blocks: BlockFormat) -> int:
    return type.rank - 2 if number == 2 else type.rank - 1  # the head dim of queries and keys, the keys of values


def _attention(op: str, summary: str, operands: tuple[str, ...], *attributes: Attribute, **facets: Any) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{op}",
        summary=summary,
        operands=operands,
        attributes=(attributes[0], SCALE, *attributes[1:]),
        dtypes=FLOATS,
        batch="attention",
        shard="library:attention",
        jvp="attention:cached_jvp" if op == "cached_attention" else "attention:attention_jvp",
        cost=cost_of(_count_operations),
        lower=Library("attention", reads_views=True, takes_epilogue=True),
        # The first three operands are factors; a mask is added, and its infinities must stay.
        policy=PolicyRule(
            "contract", factors=3, accumulate=partial(_accumulate_attention, op), block_axis=_attention_block_axis
        ),
        **facets,
    )


def _weighted_values(query: IntervalQuery) -> Interval:
    """Means of values, or 0 for a row that sees no key; NaN where scores may overflow."""
    made = query.operands[2].hull(point(0.0))
    scores = multiply(query.x, query.y).magnitude * query.count((-1,))
    nan = any(one.may_be_nan for one in query.operands) or not scores <= largest_of(dt.f32)
    return Interval(made.low, made.high, nan, False, made.sources)


_WEIGHTED_VALUES = IntervalRule(_weighted_values)

_BEHIND = "it is made of `attention` behind all transforms"

SPECS: tuple[OpSpec, ...] = (
    _attention(
        "attention",
        "softmax(q kT * scale + mask) v with k, v shared by groups of heads; a row that sees no key gives 0.",
        ("q", "k", "v", "mask*"),
        CAUSAL,
        Attribute("part", "int", 0, SPLIT),
        infer=_infer_attention,
        reference=attention_reference,
        samples=(
            *_ATTENDED,
            Sample("causal", _arrays(1, 2, 2, 7, 7, 16), {"causal": True}),
            Sample("hidden row", _arrays(1, 2, 2, 4, 4, 8, "row"), {"causal": True}),
            Sample("parts", _arrays(1, 2, 1, 3, 600, 8), {"causal": True, "part": 256}),
        ),
        simplify=split_keys,
        with_residuals="attention_with_lse",
        interval=_WEIGHTED_VALUES,
    ),
    _attention(
        "attention_with_lse",
        "`attention`, and the log-sum-exp of each row of its scores, -inf for a row that sees no key.",
        ("q", "k", "v", "mask*"),
        CAUSAL,
        Attribute("part", "int", 0, SPLIT),
        results=("out", "lse"),
        infer=_infer_with_lse,
        reference=attention_with_lse_reference,
        samples=_ATTENDED,
        interval=ANYTHING,
    ),
    _attention(
        "cached_attention",
        "Attention over the first `length` keys of a cache; causal: the last query is at `length - 1`.",
        ("q", "k", "v", "length"),
        Attribute("causal", "bool", True),
        Attribute("part", "int", PART, SPLIT),
        infer=_infer_cached,
        reference=cached_attention_reference,
        samples=(
            Sample("half full", _cached_sample(5)),
            Sample("full", _cached_sample(9)),
            Sample("not causal", _cached_sample(4), {"causal": False}),
            Sample("parts", _with_length(_arrays(1, 2, 1, 3, 600, 8), 520), {"part": 256}),
            Sample("one query to parts", _with_length(_arrays(1, 4, 2, 1, 600, 8), 300), {"part": 256}),
        ),
        simplify=split_keys,
        interval=_WEIGHTED_VALUES,
    ),
    OpSpec(
        name="tgraph.split_qkv",
        summary="One projection [batch, length, channels] as queries, keys, values [batch, heads, length, head dim].",
        operands=("x",),
        results=("q", "k", "v"),
        attributes=(
            Attribute("heads", "int", doc="heads of the queries"),
            Attribute("kv_heads", "int", None, "heads of keys and values; default as many"),
        ),
        infer=_infer_split,
        reference=split_qkv_reference,
        samples=(
            Sample("equal heads", normal((2, 5, 24)), {"heads": 2}),
            Sample("shared heads", normal((1, 3, 32)), {"heads": 4, "kv_heads": 2}),
        ),
        dtypes=FLOATS,
        cost=visits(0),
        decompose=_decompose_split,
        jvp="linear",
        transpose="attention:split_qkv",
        policy=KEEP,
        interval=SAME,
    ),
    OpSpec(
        name="tgraph.rotary",
        summary="Pairs of the last axis rotated by angles given as cos and sin [length, size / 2]; f32, rounded once.",
        operands=("x", "cos", "sin"),
        attributes=(Attribute("interleaved", "bool", False, "pairs are neighbours, not halves"),),
        infer=_infer_rotary,
        reference=rotary_reference,
        samples=(
            Sample("halves", _angles((2, 3), 5, 8)),
            Sample("neighbours", _angles((2,), 7, 6), {"interleaved": True}),
        ),
        dtypes=FLOATS,
        cost=visits(3),
        decompose=_decompose_rotary,
        policy=ROUND,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.attention_parts",
        summary="One query of each head over parts of the first `length` keys: accumulators, maxima, sums, in base 2. "
        "Parts beyond `length` hold anything.",
        operands=("q", "k", "v", "length*"),
        results=("acc", "top", "total"),
        attributes=(Attribute("keys", "int", doc="keys of a part; the last may have fewer"), SCALE),
        infer=infer_parts,
        reference=attention_parts_reference,
        samples=(
            Sample("even", _arrays(2, 4, 2, 1, 8, 8), {"keys": 4}),
            Sample("ragged", _arrays(1, 3, 1, 1, 11, 4), {"keys": 4, "scale": 0.5}),
            Sample("of a cache", _with_length(_arrays(1, 4, 2, 1, 12, 4), 9), {"keys": 4}),
        ),
        dtypes=FLOATS,
        cost=cost_of(_count_operations),
        lower=Library("attention_parts", reads_views=True),
        no_derivative=_BEHIND,
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.attention_join",
        summary="Accumulators of parts of the keys joined in order, times two to their maxima, over the sum of all.",
        operands=("acc", "top", "total", "length*"),
        attributes=(
            Attribute("dtype", "dtype", doc="of the result"),
            Attribute("keys", "int", 0, "keys of a part, where a cache has a length; parts beyond it are not read"),
        ),
        infer=infer_join,
        reference=attention_join_reference,
        samples=(
            Sample("few", _join_sample(3, 8), {"dtype": dt.f32}),
            Sample("many", _join_sample(40, 5), {"dtype": dt.f32}),
            Sample("of a cache", _with_length(_join_sample(40, 5), 140), {"dtype": dt.f32, "keys": 4}),
        ),
        dtypes=("f32", "f64"),
        cost=visits(2),
        lower=Library("attention_join", takes_epilogue=True),
        no_derivative=_BEHIND,
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
