"""Functions of models that are safe by construction: softmax, norms, attention, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import TracingError
from tessera.frontend.arguments import check_bool, check_labels, check_number
from tessera.frontend.functions import elementwise
from tessera.frontend.functions.contraction import matmul
from tessera.frontend.functions.creation import iota
from tessera.frontend.functions.indexing import take
from tessera.frontend.functions.movement import swapaxes
from tessera.frontend.functions.operands import (
    along_axis,
    as_tensor,
    axis_of,
    cast,
    check_tensors,
    dtype_of,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.size import Size, size_of
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.key_parts import PART
from tessera.types.dtype import DType, f64, i64
from tessera.types.promotion import FLOATING


def _along(op: str, x: Any, axis: int) -> Any:
    (x,) = promote_operands(op, (x,), FLOATING)
    return along_axis(op, x, axis, lambda own, at: apply(op, (own,), {"axis": at}))


def softmax(x: Any, axis: int = -1) -> Any:
    """Normalised exponential of `x` along `axis`.

    Subtracts the maximum first, so finite input gives finite output. Computed in f32 (f64 for f64) and rounded once.

    Raises: AxisError (T0103) if `axis` is not an axis of `x`.

    >>> ts.ops.softmax(ts.array([0.0, 0.0]))
    Tensor([2] f32, [0.5, 0.5])
    """
    return _along("softmax", x, axis)


def softmax_safe(x: Any, axis: int = -1) -> Any:
    """Softmax that gives zeros, not NaN, for a row of nothing but -inf."""
    return _along("softmax_safe", x, axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """`log(softmax(x))` along `axis`, without cancellation."""
    return _along("log_softmax", x, axis)


def layernorm(x: Any, weight: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` with mean 0 and variance 1 over `axis` and all axes after it, times `weight`, plus `bias`.

    >>> ts.ops.layernorm(ts.array([1.0, 3.0]), eps=1e-9)
    Tensor([2] f32, [-1, 1])
    """
    return _normalize("layernorm", x, weight, bias, axis, eps)


def layernorm_safe(x: Any, weight: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """The same as `layernorm`, which is safe by construction."""
    return _normalize("layernorm_safe", x, weight, bias, axis, eps)


def rmsnorm(x: Any, weight: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` over its root mean square over `axis` and all axes after it, times `weight`."""
    return _normalize("rmsnorm", x, weight, None, axis, eps)


def rmsnorm_safe(x: Any, weight: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """The same as `rmsnorm`, which is safe by construction."""
    return _normalize("rmsnorm_safe", x, weight, None, axis, eps)


def _normalize(name: str, x: Any, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    """The norm that a user calls by `name`."""
    dtype_of(x)
    (x,) = promote_operands(name, (x,), FLOATING)
    if weight is None and bias is not None:
        return elementwise.add(_normalize(name, x, None, None, axis, eps), bias)
    parameters = [parameter for parameter in (weight, bias) if parameter is not None]
    attributes = {"axis": axis_of(name, axis, rank_of(x)), "eps": eps}
    return apply(f"{name.removesuffix('_safe')}_safe", (x, *parameters), attributes)


def cross_entropy(logits: Any, labels: Any, *, reduction: str = "mean") -> Any:
    """Minus the log-probability of each label under softmax of `logits` [..., classes].

    `reduction` is "none", "mean" over the labels that count, or "sum". A negative label does not count. One beyond the
    classes is an error (T0710) where the values of labels are known: eagerly, in host memory. Inside `jit` and on a GPU
    it does not count either.

    >>> ts.ops.cross_entropy(ts.array([[0.0, 0.0], [9.0, 0.0]]), ts.array([1, -1]))
    Tensor([] f32, 0.693147)
    """
    dtype_of(labels)
    check_labels("cross_entropy", logits, labels)
    return apply(
        "cross_entropy", (*promote_operands("cross_entropy", (logits,), FLOATING), labels), {"reduction": reduction}
    )


def attention(
    q: Any,
    k: Any,
    v: Any = None,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: Any = None,
    return_lse: bool = False,
    split_keys: bool = False,
    score: Any = None,
) -> Any:
    """`softmax(q kT * scale + mask) v` on [batch, heads, length, head dim]; `k` and `v` may have fewer heads.

    `scale` is one over the root of the head dim by default. With `causal`, the last query is aligned with the last key.
    `k` may be a `KVCache`, which holds keys, values and how many of them count: those beyond are not read. A row that
    sees no key gives 0. A key that a mask hides has the weight 0, with which its value is still multiplied, as IEEE 754
    has it: an infinity or NaN there gives NaN.

    With `split_keys` keys are taken in parts of 512, as those of a cache always are: where queries are few beside their
    keys, parts run in parallel. That joins sums in another order, which is the same for one query and for many.

    With `return_lse` the result is a pair: the second is the log-sum-exp of each row of scores, [batch, heads, length]
    in f32 (f64 for f64), -inf for a row that sees no key.

    `score(s, b, h, i, j)` changes the scaled score of query `i` and key `j`, and `mask(b, h, i, j)`, as a function,
    says whether the query sees the key. Both are traced on scalars and fused into the kernels, and may read captured
    tensors by index. Blocks of keys that the mask hides are skipped.

    Over a cache a mask is a function (T0201), since no tensor says which of its rows are those of the queries. `i` then
    counts from the first key of the cache, to `cache.length - 1`. A key is seen where mask, `causal` and length agree.

    >>> q = ts.ones((1, 2, 4, 8))
    >>> ts.ops.attention(q, q, q, lambda b, h, i, j: (i >= j) & (i - j < 2), score=lambda s, b, h, i, j: s * 0.5).shape
    (1, 2, 4, 8)
    """
    if callable(v):
        raise TracingError(
            "`v` of `attention` is missing: a function stands in its place",
            fix="pass the values third, and write `mask=` or `score=` before the function",
        )
    factor = None if scale is None else check_number("attention", "scale", scale)
    is_pair = check_bool("attention", "return_lse", return_lse)
    is_split = check_bool("attention", "split_keys", split_keys)
    if is_pair and is_split:
        raise TracingError("`attention` over parts of the keys gives no log-sum-exp", fix="pass `return_lse=False`")
    if score is not None or callable(mask):
        if is_split:
            raise TracingError("`attention` with functions takes all keys in one pass", fix="pass `split_keys=False`")
        is_causal = check_bool("attention", "causal", causal)
        return _attend_with_functions(q, k, v, score, mask, causal=is_causal, scale=factor, is_pair=is_pair)
    if v is None:
        if is_pair:
            raise TracingError("`attention` over a cache gives no log-sum-exp", fix="pass `return_lse=False`")
        _refuse_mask("attention", mask)
        return _attend_cache(q, k, causal, factor)
    operands = promote_operands("attention", (q, k, v), FLOATING)
    masks = () if mask is None else (_additive(mask),)
    given = {"causal": causal, "scale": factor, **({"part": PART} if is_split else {})}
    return apply("attention_with_lse" if is_pair else "attention", (*operands, *masks), given)


def _attend_cache(q: Any, cache: Any, causal: bool, scale: float | None) -> Any:
    length = _cache_length(cache)
    operands = promote_operands("attention", (q, cache.K, cache.V), FLOATING)
    return apply("cached_attention", (*operands, length), {"causal": causal, "scale": scale, "part": PART})


def _attend_with_functions(
    q: Any, k: Any, v: Any, score: Any, mask: Any, *, causal: bool, scale: float | None, is_pair: bool
) -> Any:
    """Attention whose scores functions change and hide."""
    from tessera.frontend.score_functions import trace_functions  # noqa: PLC0415 - few programs have any

    length = _cache_length(k) if v is None else None
    operands = promote_operands("attention", (q, k, v) if v is not None else (q, k.K, k.V), FLOATING)
    captures, programs = trace_functions(operands, length, score, mask, causal=causal)
    name = "scored_attention_with_lse" if is_pair else "scored_attention"
    lengths = () if length is None else (length,)
    attributes = {**programs, "scale": scale, "cached": length is not None}
    return apply(name, (*operands, *lengths, *captures), attributes)


def _refuse_mask(op: str, mask: Any) -> None:
    """A cache hides the keys beyond its length, and later ones where causal; more than that is not asked of it."""
    if mask is not None:
        raise TracingError(
            f"`{op}` over a cache takes no mask: it hides keys beyond `length`, and later ones with `causal=True`",
            fix=f"write `{op}(q, cache.K, cache.V, mask)`, with a mask that hides keys beyond `cache.length` too",
        )


def _additive(mask: Any) -> Any:
    """A mask to add to scores: one of bools hides where it is false."""
    if not dtype_of(mask).is_bool:
        return mask
    return elementwise.where(mask, 0.0, float("-inf"))


def flash_attention(
    q: Any,
    k: Any,
    v: Any = None,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: Any = None,
    dropout: float = 0.0,
    key: Any = None,
) -> Any:
    """`attention`, which never stores the scores, unless a fraction `dropout` of the weights is dropped.

    Weights that are kept are scaled up to keep the mean; which are is decided by `key`, element by element, so equal
    keys drop the same ones on every machine. Without a key another is made at every run (`random.key()`), which a
    `random.run(seed)` around the call repeats. With dropout the effect is random, and the weights are stored.

    >>> q = ts.ones((1, 1, 2, 4))
    >>> ts.ops.flash_attention(q, q, q, dropout=0.5, key=ts.random.key(1)).shape
    (1, 1, 2, 4)
    """
    rate = check_number("flash_attention", "dropout", dropout)
    if v is None:
        _refuse_mask("flash_attention", mask)
    if not rate:
        return attention(q, k, v, mask, causal=causal, scale=scale)
    factor = None if scale is None else check_number("flash_attention", "scale", scale)
    length = _cache_length(k) if v is None else None
    operands = promote_operands("flash_attention", (q, k, v) if v is not None else (q, k.K, k.V), FLOATING)
    is_causal = check_bool("flash_attention", "causal", causal)
    return _attend_with_dropout(operands, mask, length, is_causal, factor, rate, _given_or_new(key))


def _given_or_new(key: Any) -> Any:
    from tessera.frontend.scopes import make_key  # noqa: PLC0415 - few programs draw

    return make_key() if key is None else key


def _attend_with_dropout(
    operands: Sequence[Any], mask: Any, length: Any, causal: bool, scale: Any, rate: float, key: Any
) -> Any:
    """Scores, softmax, dropout and values, in the compute dtype and rounded once; `length` is that of a cache."""
    if {rank_of(operand) for operand in operands} != {4}:
        return attention(*operands)  # whose shape rule says what is wrong
    dtype = dtype_of(operands[0])
    q, k, v = (cast(operand, dtype.compute) for operand in operands)
    if shape_dims(q)[1] != shape_dims(k)[1]:
        own = elementwise.floordiv(iota((q.shape[1],)), size_of(shape_dims(q)[1] // shape_dims(k)[1]))
        k, v = (take(x, own, 1) for x in (k, v))
    queries, keys, head = q.shape[2], k.shape[2], q.shape[3]
    if scale is None:
        scale = _scale_of(head, dtype.compute)
    scores = matmul(elementwise.mul(q, scale), swapaxes(k, -1, -2))
    if mask is not None:
        scores = elementwise.add(scores, cast(_additive(mask), dtype.compute))
    seen = as_tensor(keys, i64) if length is None else elementwise.clamp(cast(length, i64), 0, keys)
    if length is not None:
        v = elementwise.where(elementwise.lt(iota((keys, 1)), seen), v, 0.0)
    if causal:
        last = elementwise.sub(elementwise.add(iota((queries, 1)), elementwise.add(seen, 1)), queries)
        seen = elementwise.minimum(last, seen)
    if causal or length is not None:
        scores = elementwise.where(elementwise.lt(iota((queries, keys), 1), seen), scores, float("-inf"))
    weights = apply("dropout", (softmax_safe(scores), key), {"rate": rate})
    return cast(matmul(weights, v), dtype)


def _scale_of(head: int | Size, dtype: DType) -> Any:
    """One over the root of the head dim, in f64 and rounded once."""
    if not isinstance(head, Size):
        return 1.0 / math.sqrt(max(head, 1))
    root = elementwise.sqrt(elementwise.maximum(cast(as_tensor(head, i64), f64), 1.0))
    return cast(elementwise.div(1.0, root), dtype)


def _cache_length(cache: Any) -> Any:
    if not all(hasattr(cache, name) for name in ("K", "V", "length")):
        raise TracingError("`attention` takes `k` and `v`, or one cache", fix="write `attention(q, k, v)`")
    return cache.length


def split_qkv(x: Any, *, heads: int, kv_heads: int | None = None) -> tuple[Any, Any, Any]:
    """One projection [batch, length, channels] as queries, keys and values [batch, heads, length, head dim]."""
    dtype_of(x)
    return apply("split_qkv", (x,), {"heads": heads, "kv_heads": kv_heads})


def rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    """Pairs of the last axis rotated by angles given as `cos` and `sin` [length, size / 2]."""
    check_tensors(x, cos, sin)
    return apply("rotary", (x, cos, sin), {"interleaved": interleaved})


def residual(x: Any, y: Any, *, dropout: float = 0.0, key: Any = None) -> Any:
    """`x + y`, with a fraction of `y` dropped if asked for; without a key another is made at every run."""
    operands = promote_operands("residual", (x, y))
    rate = check_number("residual", "dropout", dropout)
    keys = () if not rate else (_given_or_new(key),)
    return apply("residual", (*operands, *keys), {"dropout": rate})
