"""Derivatives of attention, from its scores, whose softmax is rematerialized: nothing of it is kept.

With `P = softmax(s)` of scores `s = scale q kᵀ + mask`, a change of the scores changes the result by
`(P (ds - sum(P ds))) v`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import cast, constant, expand, size_value
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, add_all, zeros
from tessera.ir.graph.ops.attention import scale_value
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.shape import Shape

HIDDEN = float("-inf")


def attention_jvp(b: Builder, op: Applied) -> Any:
    """By queries, keys, values and an added mask; the log-sum-exp has the mean change of its scores."""
    q, k, v, *masks = op.operands
    compute = b.type_of(q).dtype.compute
    scale = scale_value(b, b.type_of(q).shape[3], op.attributes["scale"], compute)
    keys, values = _for_each_head(b, q, (k, v))
    scores = b.emit("mul", _product(b, q, keys, compute), scale)
    for one in masks:
        scores = b.emit("add", scores, cast(b, one, compute))
    if op.attributes["causal"]:
        shape = b.type_of(scores).shape
        scores = _hide(b, scores, _later(b, shape, size_value(b, shape[3])))
    changes = _score_changes(b, (q, keys), op.tangents, scale, compute)
    if masks and op.tangents[3] is not None:
        mask_change = b.emit("broadcast_to", cast(b, op.tangents[3], compute), shape=b.type_of(scores).shape)
        changes.append(mask_change)
    made = _weigh_values(b, scores, changes, values, op.tangents[2], (q, v), op.results)
    return made if len(op.results) > 1 else made[0]


def cached_jvp(b: Builder, op: Applied) -> Any:
    """As `attention`, over the filled part of a cache."""
    q, k, v, length = op.operands
    compute = b.type_of(q).dtype.compute
    scale = scale_value(b, b.type_of(q).shape[3], op.attributes["scale"], compute)
    keys, values = _for_each_head(b, q, (k, v))
    scores = b.emit("mul", _product(b, q, keys, compute), scale)
    shape = b.type_of(scores).shape
    none, most = constant(b, 0, dt.i64), size_value(b, shape[3])
    filled = b.emit("clamp", cast(b, length, dt.i64), none, most)
    column = b.emit("iota", shape=shape, axis=3, dtype=dt.i64)
    hidden = b.emit("ge", column, filled)
    if op.attributes["causal"]:
        hidden = b.emit("logical_or", hidden, _later(b, shape, filled))
    scores = _hide(b, scores, hidden)
    changes = _score_changes(b, (q, keys), op.tangents, scale, compute)
    # What lies beyond the filled part is not read, and may be anything.
    seen = b.emit("lt", b.emit("iota", shape=b.type_of(values).shape, axis=2, dtype=dt.i64), filled)
    values = b.emit("where", seen, values, constant(b, 0.0, b.type_of(values).dtype))
    return _weigh_values(b, scores, changes, values, op.tangents[2], (q, v), op.results)[0]


def _for_each_head(b: Builder, q: Any, shared: Sequence[Any]) -> list[Any]:
    """Keys or values with a head for each head of the queries."""
    heads = b.type_of(q).shape[1]
    return [_repeat_heads(b, one, heads) for one in shared]


def _repeat_heads(b: Builder, value: Any, heads: Any) -> Any:
    batch, own, length, size = b.type_of(value).shape
    if own == heads:
        return value
    wide: Shape = (batch, own, heads // own, length, size)
    spread = b.emit("broadcast_to", expand(b, value, 2), shape=wide)
    return b.emit("reshape", spread, shape=(batch, heads, length, size))


def _product(b: Builder, q: Any, k: Any, compute: DType) -> Any:
    return b.emit("matmul", q, b.emit("transpose", k, axes=(0, 1, 3, 2)), dtype=compute)


def _later(b: Builder, shape: Shape, keys: Any) -> Any:
    """Whether a key comes after a query, the last query being aligned with the last key."""
    row, column = (b.emit("iota", shape=shape, axis=axis, dtype=dt.i64) for axis in (2, 3))
    last = b.emit("add", row, b.emit("sub", keys, size_value(b, shape[2])))
    return b.emit("gt", column, last)


def _hide(b: Builder, scores: Any, hidden: Any) -> Any:
    return b.emit("where", hidden, constant(b, HIDDEN, b.type_of(scores).dtype), scores)


def _score_changes(b: Builder, given: Sequence[Any], tangents: Values, scale: Any, compute: DType) -> list[Any]:
    """The tangents of the scores by queries and by keys."""
    (q, keys), changes = given, list[Any]()
    if tangents[0] is not None:
        changes.append(b.emit("mul", _product(b, tangents[0], keys, compute), scale))
    if tangents[1] is not None:
        (own,) = _for_each_head(b, q, (tangents[1],))
        changes.append(b.emit("mul", _product(b, q, own, compute), scale))
    return changes


def _weigh_values(
    b: Builder, scores: Any, changes: Sequence[Any], values: Any, by_values: Any, given: Sequence[Any], results: Values
) -> list[Any]:
    """The tangents of the result and, where it is one, of the log-sum-exp."""
    q, v = given
    shares = b.emit("softmax", scores, axis=-1)
    narrow, compute = b.type_of(v).dtype, b.type_of(shares).dtype
    change, parts, lse = add_all(b, changes), list[Any](), None
    if change is not None:
        weighted = b.emit("mul", change, shares)
        mean = b.emit("sum", weighted, axes=(3,), keepdims=True)
        weight_change = b.emit("sub", weighted, b.emit("mul", mean, shares))
        parts.append(b.emit("matmul", cast(b, weight_change, narrow), values, dtype=compute))
        lse = b.emit("reshape", mean, shape=b.type_of(mean).shape[:3])
    if by_values is not None:
        (own,) = _for_each_head(b, q, (by_values,))
        parts.append(b.emit("matmul", cast(b, shares, narrow), own, dtype=compute))
    out = cast(b, add_all(b, parts), b.type_of(results[0]).dtype)
    return [out, lse][: len(results)]


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
