"""The derivative of attention: what is linear in tangents, and its transpose, which has kernels of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, Builder, InferContext, OpSpec, PolicyRule, Sample
from tessera.ir.graph.building import Types, cast, check_float, constant, cost_of, expand, match_shapes, size_value
from tessera.ir.graph.ops import attention as forward
from tessera.ir.graph.ops.attention import CAUSAL, SCALE, causal_mask, scale_value
from tessera.ir.graph.ops.contraction import accumulate_matmul
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import Named, Shape, TensorType

_WITH_LSE = next(spec for spec in forward.SPECS if spec.short_name == "attention_with_lse")
HIDDEN = float("-inf")


# Parts of formulas, on whole matrices of scores.


def repeat_heads(b: Builder, value: Any, heads: Dim) -> Any:
    """Keys or values with a head for each head of the queries."""
    batch, own, length, size = b.type_of(value).shape
    if own == heads:
        return value
    wide: Shape = (batch, own, heads // own, length, size)
    broadcast = b.emit("broadcast_to", expand(b, value, 2), shape=wide)
    return b.emit("reshape", broadcast, shape=(batch, heads, length, size))


def sum_heads(b: Builder, value: Any, heads: Dim) -> Any:
    """The sum over heads that share one: what `repeat_heads` is, transposed."""
    batch, own, length, size = b.type_of(value).shape
    if own == heads:
        return value
    apart = b.emit("reshape", value, shape=(batch, heads, own // heads, length, size))
    return b.emit("sum", apart, axes=(2,), keepdims=False)


def transpose_last(b: Builder, value: Any) -> Any:
    """Matrices of the last two axes, transposed."""
    return b.emit("transpose", value, axes=(0, 1, 3, 2))


def is_later(b: Builder, shape: Shape, keys: Any) -> Any:
    """Whether a key comes after a query, the last query being aligned with the last of `keys`."""
    row, column = (b.emit("iota", shape=shape, axis=axis, dtype=dt.i64) for axis in (2, 3))
    last = b.emit("add", row, b.emit("sub", keys, size_value(b, shape[2])))
    return b.emit("gt", column, last)


def hide(b: Builder, scores: Any, hidden: Any) -> Any:
    """Scores with -inf where they are hidden."""
    return b.emit("where", hidden, constant(b, HIDDEN, b.type_of(scores).dtype), scores)


Multiply = Callable[[Any, Any], Any]
"""A matmul of two tensors, in the dtype of computation."""


def score(b: Builder, q: Any, keys: Any, masks: Sequence[Any], attributes: Attributes, multiply: Multiply) -> Any:
    """Masked scores of all queries and keys, in the dtype of computation."""
    compute = b.type_of(q).dtype.compute
    scale = scale_value(b, b.type_of(q).shape[3], attributes["scale"], compute)
    scores = b.emit("mul", multiply(q, transpose_last(b, keys)), scale)
    for one in masks:
        scores = b.emit("add", scores, cast(b, one, compute))
    shape = b.type_of(scores).shape
    return hide(b, scores, is_later(b, shape, size_value(b, shape[3]))) if attributes["causal"] else scores


def multiply_wide(b: Builder, dtype: DType) -> Multiply:
    """Matmuls whose results are in a dtype."""
    return lambda left, right: b.emit("matmul", left, right, dtype=dtype)


# The tangent.


def _split_tangent(operands: Sequence[Any], attributes: Attributes) -> tuple[Sequence[Any], Sequence[Any], list[Any]]:
    """What `attention_tangent` takes: q, k, v, out and lse, masks, and tangents of q, k, v and mask, None for zero."""
    by = attributes["by"]
    first = len(operands) - len(by)
    tangents = dict(zip(by, operands[first:], strict=True))
    return operands[:5], operands[5:first], [tangents.get(number) for number in range(4)]


def check_tangents(ctx: InferContext, op: str, types: Types, by: Sequence[int]) -> None:
    """Raises where there is not one tangent, behind all other operands, for each that is said to have one."""
    differentiable = len(types) - len(by) - 2
    if differentiable < 3 or len(set(by)) < len(by) or any(not 0 <= number < differentiable for number in by):
        raise ctx.fail(
            f"`{op}` of {len(types)} operands has no tangents by {list(by)}",
            help="operands are `q`, `k`, `v`, `out`, `lse`, others, and a tangent for each number in `by`: 0 to 2 are "
            "`q`, `k` and `v`, those from 3 on the others",
        )


def _infer_tangent(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_tangents(ctx, "attention_tangent", types, attributes["by"])
    (q, k, v, out, lse), masks, tangents = _split_tangent(types, attributes)
    for name, given in zip(("q", "k", "v", "out", "lse"), (q, k, v, out, lse), strict=True):
        check_float(ctx, "attention_tangent", given, name)
    wanted = _WITH_LSE.infer(ctx, [q, k, v, *masks], {**attributes, "part": 0})
    for name, given, one in zip(("out", "lse"), (out, lse), wanted, strict=True):
        match_shapes(ctx, "attention_tangent", Named(name, given.shape), Named("result", one.shape))
    for name, given, own in zip(("q", "k", "v", "mask"), tangents, (q, k, v, *masks), strict=False):
        if given is not None:
            tangent = Named(f"tangent of {name}", given.shape)
            match_shapes(ctx, "attention_tangent", tangent, Named(name, own.shape))
    return list(wanted)


def _decompose_tangent(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """By whole scores, whose softmax is rematerialized."""
    (q, k, v, _, lse), masks, tangents = _split_tangent(operands, attributes)
    kind, rows = b.type_of(q), b.type_of(lse)
    compute = kind.dtype.compute
    keys, values = (repeat_heads(b, one, kind.shape[1]) for one in (k, v))
    scores = score(b, q, keys, masks, attributes, multiply_wide(b, compute))
    change = change_scores(b, (q, keys), tangents, attributes["scale"])
    if tangents[3] is not None:
        by_mask = b.emit("broadcast_to", cast(b, tangents[3], compute), shape=b.type_of(scores).shape)
        change = by_mask if change is None else b.emit("add", change, by_mask)
    out, mean = weigh_change(b, scores, change, values, tangents[2])
    by_lse = zeros_like(b, rows.with_dtype(compute)) if mean is None else b.emit("reshape", mean, shape=rows.shape)
    return cast(b, out, kind.dtype), by_lse


def zeros_like(b: Builder, type: TensorType) -> Any:
    """Zeros of a type."""
    return b.emit("full", shape=type.shape, value=0.0, dtype=type.dtype)


def change_scores(b: Builder, factors: Sequence[Any], tangents: Sequence[Any], scale: float | None) -> Any:
    """The tangent of scores by queries and by keys, which each have a head here, None for zero."""
    q, keys = factors
    kind = b.type_of(q)
    compute = kind.dtype.compute
    multiply, factor, found = multiply_wide(b, compute), scale_value(b, kind.shape[3], scale, compute), list[Any]()
    if tangents[0] is not None:
        found.append(b.emit("mul", multiply(tangents[0], transpose_last(b, keys)), factor))
    if tangents[1] is not None:
        own = repeat_heads(b, tangents[1], kind.shape[1])
        found.append(b.emit("mul", multiply(q, transpose_last(b, own)), factor))
    return b.emit("add", *found) if len(found) == 2 else found[0] if found else None


def weigh_change(b: Builder, scores: Any, change: Any, values: Any, by_values: Any) -> tuple[Any, Any]:
    """The tangent of a result, and the mean change of the scores of each row, which is that of their log-sum-exp.

    With `P = softmax(s)`, a change of the scores changes the result by `(P (ds - sum(P ds))) v`.
    """
    shares, compute = b.emit("softmax", scores, axis=-1), b.type_of(scores).dtype
    multiply, parts, mean = multiply_wide(b, compute), list[Any](), None
    if change is not None:
        weighted = b.emit("mul", change, shares)
        mean = b.emit("sum", weighted, axes=(3,), keepdims=True)
        weight_change = b.emit("sub", weighted, b.emit("mul", mean, shares))
        parts.append(multiply(weight_change, cast(b, values, compute)))
    if by_values is not None:
        own = repeat_heads(b, by_values, b.type_of(scores).shape[1])
        parts.append(multiply(shares, cast(b, own, compute)))
    return parts[0] if len(parts) == 1 else b.emit("add", *parts), mean


def attention_tangent_reference(
    *arrays: Array, by: Sequence[int], causal: bool = False, scale: float | None = None
) -> tuple[Array, Array]:
    """The tangents of the result and of the log-sum-exps, in f64 and rounded once."""
    (q, k, v, *_), masks, tangents = _split_tangent(arrays, {"by": by})
    wide = _Wide(q, k, v, masks, causal, scale)
    with np.errstate(all="ignore"):
        shares = wide.softmax()
        change = np.zeros(shares.shape)
        if tangents[0] is not None:
            change = change + wide.repeat(tangents[0], 1) @ _swap(wide.k) * wide.scale
        if tangents[1] is not None:
            change = change + wide.q @ _swap(wide.repeat(tangents[1])) * wide.scale
        if tangents[3] is not None:
            change = change + tangents[3].astype(np.float64)
        weighted = np.where(shares == 0, 0.0, shares * change)
        mean = weighted.sum(-1, keepdims=True)
        made = (weighted - shares * mean) @ wide.v
        if tangents[2] is not None:
            made = made + shares @ wide.repeat(tangents[2])
        return round_as(made, dtype_of(q)), round_as(mean[..., 0], dtype_of(q).compute)


# The transpose.


def _infer_backward(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, cotangent, lse, delta, *masks = types
    for name, one in zip(("q", "k", "v", "cotangent", "lse", "delta"), types, strict=False):
        check_float(ctx, "attention_backward", one, name)
    out, rows = _WITH_LSE.infer(ctx, [q, k, v, *masks], {**attributes, "part": 0})
    given = (("cotangent", cotangent, out), ("lse", lse, rows), ("delta", delta, rows))
    for name, one, wanted in given:
        match_shapes(ctx, "attention_backward", Named(name, one.shape), Named("result", wanted.shape))
    return [q, k, v]


def _infer_keys(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, *_ = types
    _infer_backward(ctx, types, {**attributes, "causal": False})
    return [q.with_shape((*q.shape[:2], k.shape[2], q.shape[2])), k, v]


def _decompose_backward(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """The same on whole matrices of scores, of which higher derivatives are taken."""
    dtype = b.type_of(operands[0]).dtype
    made = _differentiate(b, operands, attributes, multiply_wide(b, dtype.compute))
    return tuple(cast(b, one, b.type_of(own).dtype) for one, own in zip(made, operands, strict=False))


def _differentiate(b: Builder, operands: Sequence[Any], attributes: Attributes, multiply: Multiply) -> tuple[Any, ...]:
    """The gradients, in the dtype of computation."""
    q, k, v, cotangent, lse, delta, *masks = operands
    kind, (heads, shared) = b.type_of(q), (b.type_of(one).shape[1] for one in (q, k))
    compute = kind.dtype.compute
    keys, values = (repeat_heads(b, one, heads) for one in (k, v))
    scale = scale_value(b, kind.shape[3], attributes["scale"], compute)
    total, mean = (expand(b, cast(b, one, compute), 3) for one in (lse, delta))
    shares = b.emit("exp", b.emit("sub", score(b, q, keys, masks, attributes, multiply), total))
    by_shares = multiply(cotangent, transpose_last(b, values))
    change = b.emit("mul", shares, b.emit("sub", by_shares, mean))
    wide_q, wide_keys, given = (cast(b, one, compute) for one in (q, keys, cotangent))
    by_values = multiply(transpose_last(b, shares), given)
    by_keys = b.emit("mul", multiply(transpose_last(b, change), wide_q), scale)
    by_queries = b.emit("mul", multiply(change, wide_keys), scale)
    return by_queries, sum_heads(b, by_keys, shared), sum_heads(b, by_values, shared)


def _accumulate_backward(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Callable[..., Any]
) -> Any:
    """The same in f32, with the sums of all matmuls in an accumulator."""
    wide = [cast(b, one, dt.f32) for one in operands]
    return _differentiate(b, wide, attributes, lambda left, right: accumulate_matmul(b, left, right, total))


class _Wide:
    """Queries, keys and values in f64, a head of keys for each of queries, and scores."""

    def __init__(self, q: Array, k: Array, v: Array, masks: Sequence[Array], causal: bool, scale: float | None) -> None:
        self.shared = k.shape[1]
        self.group = q.shape[1] // k.shape[1] if k.shape[1] else 1
        self.q, self.k, self.v = self.repeat(q, 1), self.repeat(k), self.repeat(v)
        self.scale = 1.0 / np.sqrt(max(q.shape[3], 1)) if scale is None else scale
        self.added: Any = causal_mask(q.shape[2], k.shape[2]) if causal else 0.0
        for mask in masks:
            self.added = self.added + mask.astype(np.float64)

    def repeat(self, x: Array, times: int | None = None) -> Array:
        return np.repeat(x.astype(np.float64), self.group if times is None else times, axis=1)

    def join(self, x: Array) -> Array:
        """The sum over heads that share one."""
        return x.reshape(x.shape[0], self.shared, self.group, *x.shape[2:]).sum(2)

    def score(self) -> Array:
        return self.q @ _swap(self.k) * self.scale + self.added

    def weigh(self, lse: Array) -> Array:
        return np.exp(self.score() - lse.astype(np.float64)[..., np.newaxis])

    def softmax(self) -> Array:
        """Shares of scores, zeros for a row of nothing but -inf."""
        scores = self.score()
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        terms = np.exp(scores - np.where(top == -np.inf, 0.0, top))
        total = terms.sum(-1, keepdims=True)
        return terms / np.where(total == 0, 1.0, total)


def _swap(x: Array) -> Array:
    return np.swapaxes(x, 2, 3)


def _finite(lse: Array) -> Array:
    return np.where(lse == -np.inf, 0.0, lse.astype(np.float64))


def attention_backward_reference(
    q: Array,
    k: Array,
    v: Array,
    cotangent: Array,
    lse: Array,
    delta: Array,
    *masks: Array,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients by queries, keys and values: all in f64, rounded once."""
    wide, given = _Wide(q, k, v, masks, causal, scale), cotangent.astype(np.float64)
    with np.errstate(all="ignore"):
        shares = wide.weigh(lse)
        changes = shares * (given @ _swap(wide.v) - delta.astype(np.float64)[..., np.newaxis])
        by_queries, by_keys = changes @ wide.k * wide.scale, _swap(changes) @ wide.q * wide.scale
        found = (by_queries, wide.join(by_keys), wide.join(_swap(shares) @ given))
        by_q, by_k, by_v = (round_as(one, dtype_of(own)) for one, own in zip(found, (q, k, v), strict=True))
        return by_q, by_k, by_v


def attention_backward_keys_reference(
    q: Array,
    k: Array,
    v: Array,
    cotangent: Array,
    lse: Array,
    delta: Array,
    *,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients by scores, without their scale and transposed, by keys and by values, as above."""
    wide, given = _Wide(q, k, v, (), False, scale), cotangent.astype(np.float64)
    with np.errstate(all="ignore"):
        changes = wide.weigh(lse) * (given @ _swap(wide.v) - delta.astype(np.float64)[..., np.newaxis])
        _, by_k, by_v = attention_backward_reference(q, k, v, cotangent, lse, delta, scale=scale)
        return round_as(_swap(changes), dtype_of(q)), by_k, by_v


# Samples.

_BY = (0, 1, 2)
_CASES: tuple[tuple[str, tuple[int, ...], str, dict[str, Any]], ...] = (
    ("plain", (2, 3, 3, 5, 5, 8), "", {}),
    ("grouped, longer keys", (2, 4, 2, 3, 9, 8), "", {"causal": True}),
    ("more queries than keys", (1, 2, 1, 6, 4, 4), "", {"causal": True}),
    ("mask", (2, 2, 1, 4, 6, 8), "random", {"scale": 0.5}),
    ("hidden row", (1, 2, 2, 4, 4, 8), "row", {}),
)
"""What both are shown by: batch, heads, heads of keys, queries, keys and size of a head; a mask; attributes."""


def _attend(sizes: Sequence[int], mask: str, attributes: Attributes, rng: np.random.Generator) -> list[Array]:
    """Queries, keys and values, a mask where there is one, the result and the log-sum-exps."""
    batch, heads, shared, queries, keys, size = sizes
    arrays = list(normal((batch, heads, queries, size), *[(batch, shared, keys, size)] * 2)(rng))
    if mask:
        arrays.append(rng.standard_normal((queries, keys)).astype(np.float32))
    if mask == "row":
        arrays[3][0] = HIDDEN
    return [*arrays, *forward.attention_with_lse_reference(*arrays, **attributes)]


def _tangent_samples() -> tuple[Sample, ...]:
    def draw(sizes: Sequence[int], mask: str, attributes: Attributes, by: Sequence[int]) -> Make:
        def make(rng: np.random.Generator) -> Sequence[Array]:
            *given, out, lse = _attend(sizes, mask, attributes, rng)
            tangents = normal(*(given[number].shape for number in by))(rng)
            return [*given[:3], out, _finite(lse).astype(np.float32), *given[3:], *tangents]

        return make

    found = [
        Sample(name, draw(sizes, mask, given, by), {**given, "by": by})
        for name, sizes, mask, given in _CASES
        for by in [(*_BY, 3) if mask == "random" else _BY]
    ]
    _, sizes, mask, given = _CASES[0]
    return (*found, Sample("by values alone", draw(sizes, mask, given, (2,)), {"by": (2,)}))


def _backward_samples() -> tuple[Sample, ...]:
    def draw(sizes: Sequence[int], mask: str, attributes: Attributes) -> Make:
        def make(rng: np.random.Generator) -> Sequence[Array]:
            *given, out, lse = _attend(sizes, mask, attributes, rng)
            (cotangent,) = normal(out.shape)(rng)
            delta: Array = np.sum(out * cotangent, -1, dtype=np.float32)
            return [*given[:3], cotangent, _finite(lse).astype(np.float32), delta, *given[3:]]

        return make

    return tuple(Sample(name, draw(sizes, mask, given), given) for name, sizes, mask, given in _CASES)


def _count_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    """Attention has two matmuls of the size of its scores; here are five, and two of them once more."""
    assert _WITH_LSE.cost is not None
    return _WITH_LSE.cost(operands[:3], (operands[0], operands[4]), attributes).flops * 7 // 2


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.attention_tangent",
        summary="How results and log-sum-exps of `attention` change with its operands: linear in their tangents.",
        operands=("q", "k", "v", "out", "lse", "others*"),
        results=("out_tangent", "lse_tangent"),
        attributes=(
            CAUSAL,
            SCALE,
            Attribute("by", "ints", doc="which of q, k, v and mask have tangents: the last operands, after a mask"),
        ),
        infer=_infer_tangent,
        reference=attention_tangent_reference,
        samples=_tangent_samples(),
        dtypes=FLOATS,
        cost=cost_of(_count_operations),
        decompose=_decompose_tangent,
        transpose="attention:attention_tangent",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.attention_backward",
        summary="Gradients of `attention` by q, k and v, from the cotangent of its result, log-sum-exps (0 for a row "
        "that sees no key), and `delta`, the sums of rows of result times cotangent.",
        operands=("q", "k", "v", "cotangent", "lse", "delta", "mask*"),
        results=("q_gradient", "k_gradient", "v_gradient"),
        attributes=(CAUSAL, SCALE),
        infer=_infer_backward,
        shard="library:attention_backward",
        reference=attention_backward_reference,
        samples=_backward_samples(),
        dtypes=FLOATS,
        cost=cost_of(_count_operations),
        lower=Library("attention_backward", reads_views=True),
        decompose=_decompose_backward,
        batch="attention",
        # A mask is added, and log-sum-exps and deltas are sums: neither is a factor.
        policy=PolicyRule("contract", factors=4, accumulate=_accumulate_backward),
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.attention_backward_keys",
        summary="Gradients of `attention` that hides nothing, by k and v, and by its scores: without their scale, a "
        "row for each key, rounded to the dtype of q.",
        operands=("q", "k", "v", "cotangent", "lse", "delta"),
        results=("changes", "k_gradient", "v_gradient"),
        attributes=(SCALE,),
        infer=_infer_keys,
        reference=attention_backward_keys_reference,
        samples=_backward_samples()[:1],
        dtypes=FLOATS,
        cost=cost_of(_count_operations),
        lower=Library("attention_backward_keys", reads_views=True),
        no_derivative="it is made of `attention_backward` behind all transforms",
        batch="attention",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
