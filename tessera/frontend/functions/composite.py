"""Functions of models that are safe by construction: softmax, norms, attention, losses."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import TracingError
from tessera.frontend.arguments import check_bool, check_number
from tessera.frontend.functions import elementwise
from tessera.frontend.functions.operands import along_axis, axis_of, check_tensors, dtype_of, promote_operands, rank_of
from tessera.ir.base.dispatch import apply
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


def layernorm_safe(x: Any, weight: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` with mean 0 and variance 1 over `axis` and all axes after it, times `weight`, plus `bias`.

    >>> ts.ops.layernorm(ts.array([1.0, 3.0]), eps=1e-9)
    Tensor([2] f32, [-1, 1])
    """
    return _normalize("layernorm_safe", x, weight, bias, axis, eps)


layernorm = layernorm_safe


def rmsnorm_safe(x: Any, weight: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` over its root mean square over `axis` and all axes after it, times `weight`."""
    return _normalize("rmsnorm_safe", x, weight, None, axis, eps)


rmsnorm = rmsnorm_safe


def _normalize(op: str, x: Any, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    dtype_of(x)
    (x,) = promote_operands(op, (x,), FLOATING)
    if weight is None and bias is not None:
        return elementwise.add(_normalize(op, x, None, None, axis, eps), bias)
    parameters = [parameter for parameter in (weight, bias) if parameter is not None]
    return apply(op, (x, *parameters), {"axis": axis_of(op, axis, rank_of(x)), "eps": eps})


def cross_entropy(logits: Any, labels: Any, *, reduction: str = "mean") -> Any:
    """Minus the log-probability of each label under softmax of `logits` [..., classes].

    `reduction` is "none", "mean" over the labels that count, or "sum"; a negative label does not count.
    """
    dtype_of(labels)
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
) -> Any:
    """`softmax(q kT * scale + mask) v` on [batch, heads, length, head dim]; `k` and `v` may have fewer heads.

    `scale` is one over the root of the head dim by default. With `causal`, the last query is aligned with the last key.
    `k` may be a `KVCache`, which holds keys, values and how many of them count: those beyond are not read. A row that
    sees no key gives 0. A key that a mask hides has the weight 0, with which its value is still multiplied, as IEEE 754
    has it: an infinity or NaN there gives NaN.

    With `return_lse` the result is a pair: the second is the log-sum-exp of each row of scores, [batch, heads, length]
    in f32 (f64 for f64), -inf for a row that sees no key.
    """
    factor = None if scale is None else check_number("attention", "scale", scale)
    is_pair = check_bool("attention", "return_lse", return_lse)
    if v is None:
        if is_pair:
            raise TracingError("`attention` over a cache gives no log-sum-exp", fix="pass `return_lse=False`")
        return _attend_cache(q, k, causal, factor)
    operands = promote_operands("attention", (q, k, v), FLOATING)
    masks = () if mask is None else (_additive(mask),)
    name = "attention_with_lse" if is_pair else "attention"
    return apply(name, (*operands, *masks), {"causal": causal, "scale": factor})


def _attend_cache(q: Any, cache: Any, causal: bool, scale: float | None) -> Any:
    if not all(hasattr(cache, name) for name in ("K", "V", "length")):
        raise TracingError("`attention` takes `k` and `v`, or one cache", fix="write `attention(q, k, v)`")
    operands = promote_operands("attention", (q, cache.K, cache.V), FLOATING)
    return apply("cached_attention", (*operands, cache.length), {"causal": causal, "scale": scale})


def _additive(mask: Any) -> Any:
    """A mask to add to scores: one of bools hides where it is false."""
    if not dtype_of(mask).is_bool:
        return mask
    return elementwise.where(mask, 0.0, float("-inf"))


def flash_attention(
    q: Any, k: Any, v: Any = None, mask: Any = None, *, causal: bool = False, scale: Any = None, dropout: float = 0.0
) -> Any:
    """`attention`, which never stores the scores; dropout of scores is refused."""
    if check_number("flash_attention", "dropout", dropout):
        raise TracingError("`flash_attention` has no dropout yet", fix="pass `dropout=0.0`, and drop its result")
    return attention(q, k, v, mask, causal=causal, scale=scale)


def split_qkv(x: Any, *, heads: int, kv_heads: int | None = None) -> tuple[Any, Any, Any]:
    """One projection [batch, length, channels] as queries, keys and values [batch, heads, length, head dim]."""
    dtype_of(x)
    return apply("split_qkv", (x,), {"heads": heads, "kv_heads": kv_heads})


def rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool = False) -> Any:
    """Pairs of the last axis rotated by angles given as `cos` and `sin` [length, size / 2]."""
    check_tensors(x, cos, sin)
    return apply("rotary", (x, cos, sin), {"interleaved": interleaved})


def residual(x: Any, y: Any, *, dropout: float = 0.0, key: Any = None) -> Any:
    """`x + y`, with a fraction of `y` dropped if asked for, which needs a key."""
    operands = promote_operands("residual", (x, y))
    rate = check_number("residual", "dropout", dropout)
    if rate and key is None:
        raise TracingError("`residual` with dropout needs a key", fix="pass `key=tessera.random.key(seed)`")
    keys = (key,) if rate else ()
    return apply("residual", (*operands, *keys), {"dropout": rate})
