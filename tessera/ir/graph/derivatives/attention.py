"""Derivatives of attention, from its log-sum-exps: scores are rematerialized, and nothing of them is kept.

Attention is linearized as one op, `attention_tangent`. Forward mode runs what it decomposes into; reverse mode takes
its transpose, `attention_backward`, whose kernels go over scores in blocks. Over a cache whole scores are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import cast, constant, expand, restate, size_value
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, linear_type, unbroadcast, zeros
from tessera.ir.graph.ops.attention import head_counts, scale_value
from tessera.ir.graph.ops.attention_backward import (
    change_scores,
    hide,
    is_later,
    multiply_wide,
    repeat_heads,
    score,
    transpose_last,
    weigh_change,
)
from tessera.types import dtype as dt


def attention_jvp(b: Builder, op: Applied) -> Any:
    """By queries, keys, values and an added mask; the log-sum-exp has the mean change of its scores."""
    by = tuple(number for number, tangent in enumerate(op.tangents) if tangent is not None)
    tangents = [op.tangents[number] for number in by]
    given = {name: op.attributes[name] for name in ("causal", "scale")}
    made = b.emit("attention_tangent", *op.operands[:3], *op.results, *op.operands[3:], *tangents, by=by, **given)
    return [cast(b, one, b.type_of(result).dtype) for one, result in zip(made, op.results, strict=True)]


def attention_tangent(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """`attention_backward`; a mask has the gradients of whole scores, as many as it has elements itself.

    A cotangent of the log-sum-exps is one of scores, weighted by their shares, as `delta` is, of the other sign.
    """
    q, k, v, out, lse, *others = operands
    masks = others[: len(others) - len(attributes["by"])]
    kind, compute = b.type_of(q), b.type_of(q).dtype.compute
    given, by_lse = cotangents
    given = zeros(b, b.type_of(out)) if given is None else given
    products = b.emit("mul", cast(b, given, compute), cast(b, out, compute))
    delta = b.emit("sum", products, axes=(3,), keepdims=False)
    if by_lse is not None:
        delta = b.emit("sub", delta, cast(b, by_lse, compute))
    # A row that sees no key has weights of 0, whatever is subtracted.
    unseen = b.emit("eq", lse, constant(b, float("-inf"), b.type_of(lse).dtype))
    shift = b.emit("where", unseen, constant(b, 0.0, b.type_of(lse).dtype), lse)
    same = {name: attributes[name] for name in ("causal", "scale")}
    rows = (cast(b, given, kind.dtype), shift, delta)
    made = [*b.emit("attention_backward", q, k, v, *rows, *masks, **same)]
    if 3 in attributes["by"]:
        change = _change_scores(b, (q, k, v), rows, masks, same)
        made.append(cast(b, unbroadcast(b, change, b.type_of(masks[0]).shape), linear_type(others[-1]).dtype))
    return (*[None] * (5 + len(masks)), *(made[number] for number in attributes["by"]))


def _change_scores(
    b: Builder, factors: Sequence[Any], rows: Sequence[Any], masks: Sequence[Any], attributes: Attributes
) -> Any:
    """The gradients of all scores."""
    (q, k, v), (given, shift, delta) = factors, rows
    kind = b.type_of(q)
    multiply = multiply_wide(b, kind.dtype.compute)
    keys, values = (repeat_heads(b, one, kind.shape[1]) for one in (k, v))
    scores = score(b, q, keys, masks, attributes, multiply)
    shares = b.emit("exp", b.emit("sub", scores, expand(b, shift, 3)))
    by_shares = multiply(given, transpose_last(b, values))
    return b.emit("mul", shares, b.emit("sub", by_shares, expand(b, delta, 3)))


def split_qkv(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Heads beside each other again, queries before keys before values; zeros for what has no cotangent."""
    given, (batch, length, channels) = linear_type(operands[0]), linear_type(operands[0]).shape
    heads, shared = head_counts(attributes)
    size, rows = channels // (heads + 2 * shared), list[Any]()
    for value, count in zip(cotangents, (heads, shared, shared), strict=True):
        shape = (batch, length, size * count)
        if value is None:
            rows.append(zeros(b, given.with_shape(shape)))
        else:
            rows.append(b.emit("reshape", b.emit("transpose", value, axes=(0, 2, 1, 3)), shape=shape))
    return (restate(b, b.emit("concat", *rows, axis=2), given.shape),)


def cached_jvp(b: Builder, op: Applied) -> Any:
    """As `attention`, over the filled part of a cache."""
    q, k, v, length = op.operands
    kind = b.type_of(q)
    compute = kind.dtype.compute
    scale = scale_value(b, kind.shape[3], op.attributes["scale"], compute)
    none, most = constant(b, 0, dt.i64), size_value(b, b.type_of(k).shape[2])
    filled = b.emit("clamp", cast(b, length, dt.i64), none, most)
    # What lies beyond the filled part is not read, and may be NaN, which a weight of zero would not hide.
    k, v, by_keys, by_values = (_keep_filled(b, one, filled) for one in (k, v, *op.tangents[1:3]))
    keys, values = (repeat_heads(b, one, kind.shape[1]) for one in (k, v))
    scores = b.emit("mul", multiply_wide(b, compute)(q, transpose_last(b, keys)), scale)
    shape = b.type_of(scores).shape
    hidden = b.emit("ge", b.emit("iota", shape=shape, axis=3, dtype=dt.i64), filled)
    if op.attributes["causal"]:
        hidden = b.emit("logical_or", hidden, is_later(b, shape, filled))
    scores = hide(b, scores, hidden)
    change = change_scores(b, (q, keys), (op.tangents[0], by_keys), op.attributes["scale"])
    out, _ = weigh_change(b, scores, change, values, by_values)
    return cast(b, out, b.type_of(op.results[0]).dtype)


def _keep_filled(b: Builder, rows: Any, filled: Any) -> Any:
    """Rows of a cache, or a tangent of them, with zeros beyond its length."""
    if rows is None:
        return None
    kind = b.type_of(rows)
    seen = b.emit("lt", b.emit("iota", shape=kind.shape, axis=2, dtype=dt.i64), filled)
    return b.emit("where", seen, rows, constant(b, 0.0, kind.dtype))


# Caches.


def kv_write_jvp(b: Builder, op: Applied) -> Any:
    """The same rows of both tangents."""
    old, length, new = op.operands
    given = [zeros(b, b.type_of(one)) if t is None else t for one, t in ((old, op.tangents[0]), (new, op.tangents[2]))]
    return b.emit("kv_write", given[0], length, given[1])


def kv_write(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Old rows that were written over have no part in the result; new ones are those that came to lie in it."""
    (value,), (old, length, new) = cotangents, operands
    kind = new.type if isinstance(new, Linear) else b.type_of(new)
    made_old = b.emit("kv_write", value, length, zeros(b, kind)) if isinstance(old, Linear) else None
    if not isinstance(new, Linear):
        return (made_old, None, None)
    rows = b.emit("add", b.emit("iota", shape=(kind.shape[2],), axis=0, dtype=dt.i64), cast(b, length, dt.i64))
    return (made_old, None, b.emit("index_legal", value, rows, axes=(2,), out_axis=2, masked=True))
