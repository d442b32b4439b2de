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
from tessera.ir.graph.ops.indexing import legal_indices
from tessera.ir.graph.ops.scored_attention import Composed, keep_filled, split_tangent, without_cache
from tessera.ir.graph.score_forms import GraphArithmetic, index_values
from tessera.ir.graph.score_programs import FIRST, evaluate, float_loads
from tessera.types import dtype as dt
from tessera.types.shape import ONE


def attention_jvp(b: Builder, op: Applied) -> Any:
    """By queries, keys, values and an added mask; the log-sum-exp has the mean change of its scores."""
    by = tuple(number for number, tangent in enumerate(op.tangents) if tangent is not None)
    tangents = [op.tangents[number] for number in by]
    given = {name: op.attributes[name] for name in ("causal", "scale")}
    made = b.emit("attention_tangent", *op.operands[:3], *op.results, *op.operands[3:], *tangents, by=by, **given)
    return [cast(b, one, b.type_of(result).dtype) for one, result in zip(made, op.results, strict=True)]


def attention_tangent(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """`attention_backward`; a mask has the gradients of whole scores, as many as it has elements itself."""
    q, k, v, out, lse, *others = operands
    masks = others[: len(others) - len(attributes["by"])]
    same = {name: attributes[name] for name in ("causal", "scale")}
    rows = _transposed_rows(b, cotangents, q, out, lse)
    made = [*b.emit("attention_backward", q, k, v, *rows, *masks, **same)]
    if 3 in attributes["by"]:
        change = _change_scores(b, (q, k, v), rows, masks, same)
        made.append(cast(b, unbroadcast(b, change, b.type_of(masks[0]).shape), linear_type(others[-1]).dtype))
    return (*[None] * (5 + len(masks)), *(made[number] for number in attributes["by"]))


def _transposed_rows(b: Builder, cotangents: Values, q: Any, out: Any, lse: Any) -> tuple[Any, Any, Any]:
    """The cotangent of results, log-sum-exps and deltas, as kernels of gradients take them.

    A cotangent of the log-sum-exps is one of scores, weighted by their shares, as `delta` is, of the other sign.
    """
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
    return cast(b, given, kind.dtype), shift, delta


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
    k, v, by_keys, by_values = (
        None if one is None else keep_filled(b, one, filled) for one in (k, v, *op.tangents[1:3])
    )
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


# Functions of scores: by queries, keys and values as above, times slopes of functions. What functions capture has the
# gradients of whole scores, each added where it was read from, in order.


def scored_jvp(b: Builder, op: Applied) -> Any:
    """By queries, keys, values, and what is captured; the log-sum-exp has the mean change of its scores."""
    operands, attributes = without_cache(b, op.operands, op.attributes)
    found = list(op.tangents)
    if op.attributes["cached"]:
        length = found.pop(3)
        assert length is None, "a length is no float"
        # Rows beyond the length count for nothing, and neither do their tangents.
        filled = b.emit("cast", operands[-1], dtype=dt.i64)
        found[1:3] = [None if one is None else keep_filled(b, one, filled) for one in found[1:3]]
    by = tuple(number for number, tangent in enumerate(found) if tangent is not None)
    tangents = [found[number] for number in by]
    given = {name: attributes[name] for name in ("scale", "score", "mask")}
    made = b.emit("scored_attention_tangent", *operands[:3], *op.results, *operands[3:], *tangents, by=by, **given)
    return [cast(b, one, b.type_of(result).dtype) for one, result in zip(made, op.results, strict=True)]


def scored_tangent(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """`scored_attention_backward`, and for what is captured the gradients of whole scores."""
    (q, k, v, out, lse), captures, tangents = split_tangent(operands, attributes)
    rows = _transposed_rows(b, cotangents, q, out, lse)
    same = {name: attributes[name] for name in ("scale", "score", "mask")}
    made: dict[int, Any] = {}
    if {0, 1, 2} & set(tangents):
        found: Values = b.emit("scored_attention_backward", q, k, v, *rows, *captures, **same)
        made = dict(enumerate(found))
    own = Composed(b, q, k, v, captures, attributes, multiply_wide(b, b.type_of(q).dtype.compute))
    read = {number - 3 for number in tangents if number >= 3}
    if read:
        made |= _captured_gradients(own, rows, read)
    return (*[None] * (5 + len(captures)), *(made[number] for number in attributes["by"]))


def _captured_gradients(own: Composed, rows: tuple[Any, Any, Any], read: set[int]) -> dict[int, Any]:
    """Gradients of captured tensors by the number of their operand: those of scores, added where each was read."""
    b, score, captures = own.b, own.attributes["score"], own.captures
    raw = own.raw()
    _, change = own.changes(raw, *rows)
    values = evaluate(score, [raw, *index_values(b, b.type_of(raw).shape)], GraphArithmetic(b, captures))
    found = {capture + 3: zeros(b, b.type_of(captures[capture]).with_dtype(own.compute)) for capture in read}
    for number in float_loads(score, own.types):
        _, places, capture = score[number - FIRST]
        slope = own.slope(raw, number) if capture in read else None
        if slope is None:
            continue
        # Hidden scores change nothing, whatever the slope of the function is there.
        products = b.emit(
            "where", b.emit("eq", slope, constant(b, 0.0, own.compute)), slope, b.emit("mul", change, slope)
        )
        added = _add_where_read(own, products, [values[place] for place in places], found[capture + 3])
        found[capture + 3] = added
    return {number: cast(b, value, b.type_of(captures[number - 3]).dtype) for number, value in found.items()}


def _add_where_read(own: Composed, changes: Any, places: list[Any], total: Any) -> Any:
    """A gradient with changes of scores added where they were read from: first over what no index depends on."""
    b = own.b
    kind = b.type_of(total)
    legal = [legal_indices(b, place, size) for place, size in zip(places, kind.shape, strict=True)]
    shapes = [b.type_of(place).shape for place in legal]
    axes = tuple(axis for axis in range(4) if all(shape[axis].value == 1 for shape in shapes))
    shape = tuple(ONE if axis in axes else size for axis, size in enumerate(b.type_of(changes).shape))
    if axes:
        changes = b.emit("sum", changes, axes=axes, keepdims=True)
    if not legal:
        return b.emit("add", total, b.emit("reshape", changes, shape=()))
    changes = b.emit("broadcast_to", changes, shape=shape)
    wide = [b.emit("broadcast_to", place, shape=shape) for place in legal]
    given = {"axes": tuple(range(len(wide))), "out_axis": 0, "reduce": "add", "mode": "drop"}
    return b.emit("index_put", total, changes, *wide, **given)


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
