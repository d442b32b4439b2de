"""Reductions and scans: sums, min/max, means, norms, cumulative sums."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import TracingError
from tessera.frontend.arguments import check_bool, check_number
from tessera.frontend.functions import elementwise
from tessera.frontend.functions.operands import axes_of, axis_of, check_tensors, dtype_of, promote_operands, rank_of
from tessera.ir.base.dispatch import apply
from tessera.types.promotion import FLOATING

# Functions of models that are safe by construction: softmax, norms, attention, losses.


def _along(op: str, x: Any, axis: int) -> Any:
    dtype_of(x)
    return apply(op, promote_operands(op, (x,), FLOATING), {"axis": axis_of(op, axis, rank_of(x))})


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


def _fold(op: str, x: Any, axis: Any, keepdims: bool) -> Any:
    dtype_of(x)
    return apply(op, (x,), {"axes": axes_of(op, axis, rank_of(x)), "keepdims": keepdims})


def _float_fold(op: str, x: Any, axis: Any, keepdims: bool, **more: Any) -> Any:
    dtype_of(x)
    axes = axes_of(op, axis, rank_of(x))
    return apply(op, promote_operands(op, (x,), FLOATING), {"axes": axes, "keepdims": keepdims, **more})


def sum(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over `axis` (one, several, or all); integers are summed in 64 bits, no elements give 0.

    >>> ts.ops.sum(ts.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([2] f32, [4, 6])
    """
    return _fold("sum", x, axis, keepdims)


def prod(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over `axis`; integers in 64 bits, no elements give 1."""
    return _fold("prod", x, axis, keepdims)


def max(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Largest over `axis`; NaN propagates. The larger of two tensors is `maximum`.

    >>> ts.ops.max(ts.array([[1.0, 5.0], [3.0, 4.0]]), axis=-1)
    Tensor([2] f32, [5, 4])
    """
    return _fold("max", x, axis, keepdims)


def min(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Smallest over `axis`; NaN propagates. The smaller of two tensors is `minimum`."""
    return _fold("min", x, axis, keepdims)


def any(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether one element over `axis` is true."""
    return _fold("any", x, axis, keepdims)


def all(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are true."""
    return _fold("all", x, axis, keepdims)


def argmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the largest is: the first of equals; over all axes, counted in row-major order.

    >>> ts.ops.argmax(ts.array([3.0, 7.0, 7.0]))
    Tensor([] i64, 1)
    """
    return _fold("argmax", x, axis, keepdims)


def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the smallest is: the first of equals; over all axes, counted in row-major order."""
    return _fold("argmin", x, axis, keepdims)


def mean(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Mean over `axis`; integers become floats first.

    >>> ts.ops.mean(ts.array([1.0, 2.0, 6.0]))
    Tensor([] f32, 3)
    """
    return _float_fold("mean", x, axis, keepdims)


def var(x: Any, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
    """Variance over `axis`, divided by the count less `correction`."""
    return _float_fold("var", x, axis, keepdims, correction=correction)


def std(x: Any, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
    """Standard deviation over `axis`: the square root of `var`."""
    return _float_fold("std", x, axis, keepdims, correction=correction)


def logsumexp(x: Any, axis: Any = -1, *, keepdims: bool = False) -> Any:
    """`log(sum(exp(x)))` over `axis`, without overflow.

    >>> ts.ops.logsumexp(ts.array([1000.0, 1000.0]))
    Tensor([] f32, 1000.69)
    """
    return _float_fold("logsumexp", x, axis, keepdims)


def logsumexp_safe(x: Any, axis: Any = -1, *, keepdims: bool = False) -> Any:
    """`logsumexp` that stays finite for a row of nothing but -inf."""
    return _float_fold("logsumexp_safe", x, axis, keepdims)


def norm(x: Any, axis: Any = None, *, order: float = 2, keepdims: bool = False) -> Any:
    """Vector norm over `axis`: the `order`-th root of the sum of `order`-th powers."""
    return _float_fold("norm", x, axis, keepdims, order=order)


def _running(op: str, x: Any, axis: int) -> Any:
    dtype_of(x)
    return apply(op, (x,), {"axis": axis_of(op, axis, rank_of(x))})


def cumsum(x: Any, axis: int = -1) -> Any:
    """Running sum along `axis`.

    >>> ts.ops.cumsum(ts.array([1.0, 2.0, 3.0]))
    Tensor([3] f32, [1, 3, 6])
    """
    return _running("cumsum", x, axis)


def cumprod(x: Any, axis: int = -1) -> Any:
    """Running product along `axis`."""
    return _running("cumprod", x, axis)


def cummax(x: Any, axis: int = -1) -> Any:
    """Running maximum along `axis`."""
    return _running("cummax", x, axis)
