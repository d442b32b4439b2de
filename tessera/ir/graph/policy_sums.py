"""Products of several steps in an accumulator that their kernels do not have: what they stand for, sum by sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import cast, constant, expanded, size
from tessera.ir.graph.ops.convolution import spread, window_extent, window_padding
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType

_ONE = Dim.constant(1)


def matrix_product(b: Builder, left: Any, right: Any, total: DType) -> Any:
    """`left @ right` by the rules of `matmul`, in f32: a sum of products in f32, or a chain in f64 rounded at its end.

    Terms are rounded to a narrow accumulator as they join it, so the sum takes them as they are.
    """
    if total is dt.f64:
        return cast(b, b.emit("matmul", cast(b, left, dt.f64), cast(b, right, dt.f64)), dt.f32)
    is_row, is_column = b.type_of(left).rank == 1, b.type_of(right).rank == 1
    left = expanded(b, cast(b, left, dt.f32), 0) if is_row else cast(b, left, dt.f32)
    right = expanded(b, cast(b, right, dt.f32), 1) if is_column else cast(b, right, dt.f32)
    a, c = b.type_of(left).shape, b.type_of(right).shape
    terms = b.emit(
        "mul",
        b.emit("reshape", left, shape=(*a, _ONE)),
        b.emit("reshape", right, shape=(*c[:-2], _ONE, *c[-2:])),
    )
    made = b.emit("sum", terms, axes=(b.type_of(terms).rank - 2,), keepdims=False, accumulate=total)
    shape = b.type_of(made).shape
    rows, columns = () if is_row else shape[-2:-1], () if is_column else shape[-1:]
    return b.emit("reshape", made, shape=(*shape[:-2], *rows, *columns)) if is_row or is_column else made


def paired_product(b: Builder, left: Any, right: Any, attributes: Attributes, total: DType) -> Any:
    """The same of `dot_general`: batches, what is left of both sides, and last what is summed."""
    sides = list[Any]()
    for value, side in ((left, "lhs"), (right, "rhs")):
        shape = b.type_of(value).shape
        batch, contract = (tuple(attributes[f"{side}_{what}"]) for what in ("batch", "contract"))
        free = tuple(axis for axis in range(len(shape)) if axis not in (*batch, *contract))
        turned = b.emit("transpose", cast(b, value, dt.f32), axes=(*batch, *free, *contract))
        sides.append((turned, len(batch), len(free)))
    (x, count, own), (y, _, others) = sides
    a, c = b.type_of(x).shape, b.type_of(y).shape
    x = b.emit("reshape", x, shape=(*a[: count + own], *(_ONE,) * others, *a[count + own :]))
    y = b.emit("reshape", y, shape=(*c[:count], *(_ONE,) * own, *c[count:]))
    axes = tuple(range(count + own + others, b.type_of(x).rank))
    return b.emit("sum", b.emit("mul", x, y), axes=axes, keepdims=False, accumulate=total)


def convolved(b: Builder, x: Any, w: Any, attributes: Attributes, total: DType) -> Any:
    """A convolution as the sum over channels and window, in their order, of products in f32."""
    x, w = cast(b, x, dt.f32), cast(b, w, dt.f32)
    image, filters = b.type_of(x).shape, b.type_of(w).shape
    groups, spatial = int(attributes["groups"]), len(image) - 2
    low, high = window_padding(image[2:], filters[2:], attributes)
    if any(dim.value != 0 for dim in (*low, *high)):
        zeros = (Dim.constant(0),) * 2
        x = b.emit("pad", x, low=(*zeros, *low), high=(*zeros, *high), value=0.0)
    strides, dilations = spread(attributes, "stride", spatial), spread(attributes, "dilation", spatial)
    extents = tuple(
        window_extent(image[2 + at], low[at], high[at], filters[2 + at], strides[at], dilations[at])
        for at in range(spatial)
    )
    split, rows = ((), filters[:1]) if groups == 1 else ((Dim.constant(groups),), (filters[0] // groups,))
    # Every window is read by one index into the image as a line, so that what is summed lies as it is summed: whatever
    # sizes are free, no index has to be taken apart again.
    padded = b.type_of(x).shape[2:]
    x = b.emit("reshape", x, shape=(image[0], *split, filters[1], product(padded)))
    shape, index = (*filters[2:], *extents), None
    for at in range(spatial):
        inside, outside = (b.emit("iota", shape=shape, axis=axis, dtype=dt.i64) for axis in (at, spatial + at))
        inside = b.emit("mul", inside, constant(b, dilations[at], dt.i64))
        outside = b.emit("mul", outside, constant(b, strides[at], dt.i64))
        along = b.emit("mul", b.emit("add", inside, outside), size(b, product(padded[at + 1 :]), dt.i64))
        index = along if index is None else b.emit("add", index, along)
    x = b.emit("take", x, index, axis=2 + len(split))
    count, places = product(filters[1:]), product(extents)
    x = b.emit("reshape", x, shape=(image[0], *split, _ONE, count, places))
    w = b.emit("reshape", w, shape=(*split, *rows, count, _ONE))
    made = b.emit("sum", b.emit("mul", x, w), axes=(2 + len(split),), keepdims=False, accumulate=total)
    return b.emit("reshape", made, shape=(image[0], filters[0], *extents))


def attended(
    b: Builder, op: str, operands: Sequence[Any], attributes: Attributes, total: DType, steps: Callable[..., Any]
) -> Any:
    """Attention, in f32: scores, softmax, values, each sum in the accumulator; and the log-sum-exp where it is asked.

    `steps(name, value, ...)` builds an op of several steps with the sums inside it in that accumulator.
    """
    q, k, v = (cast(b, value, dt.f32) for value in operands[:3])
    heads, shared = b.type_of(q).shape[1], b.type_of(k).shape[1]
    filled = None
    if op == "cached_attention":
        filled, v = _filled(b, v, operands[3])
    if heads != shared:
        own = b.emit("iota", shape=(heads,), axis=0, dtype=dt.i64)
        own = b.emit("floordiv", own, size(b, heads // shared))
        k, v = b.emit("take", k, own, axis=1), b.emit("take", v, own, axis=1)
    q = b.emit("mul", q, _scale(b, b.type_of(q).shape[3], attributes["scale"]))
    scores = matrix_product(b, q, b.emit("transpose", k, axes=(0, 1, 3, 2)), total)
    for mask in operands[3:] if filled is None else ():
        scores = b.emit("add", scores, cast(b, mask, dt.f32))
    scores = _hidden(b, scores, filled, causal=bool(attributes["causal"]))
    out = matrix_product(b, steps("softmax", scores, axis=3), v, total)
    if op != "attention_with_lse":
        return out
    return out, steps("logsumexp_safe", scores, axes=(3,), keepdims=False)


def _scale(b: Builder, head: Dim, given: float | None) -> Any:
    if given is None and head.value is not None:
        given = 1.0 / math.sqrt(max(head.value, 1))
    if given is not None:
        return constant(b, given, dt.f32)
    return b.emit("reciprocal", b.emit("sqrt", b.emit("maximum", size(b, head, dt.f32), constant(b, 1.0, dt.f32))))


def _filled(b: Builder, v: Any, length: Any) -> tuple[Any, Any]:
    """How many keys of a cache count, and its values with zeros beyond them, whatever lies there."""
    shape = b.type_of(v).shape
    filled = b.emit("minimum", b.emit("maximum", cast(b, length, dt.i64), constant(b, 0, dt.i64)), size(b, shape[2]))
    there = b.emit("lt", b.emit("iota", shape=(shape[2], _ONE), axis=0, dtype=dt.i64), filled)
    return filled, b.emit("where", there, v, constant(b, 0.0, dt.f32))


def _hidden(b: Builder, scores: Any, filled: Any, *, causal: bool) -> Any:
    """Scores with -inf for keys that are not there, or later than their query; the last query stands at the last."""
    if filled is None and not causal:
        return scores
    queries, keys = b.type_of(scores).shape[2:]
    seen = size(b, keys) if filled is None else filled
    if causal:
        row = b.emit("iota", shape=(queries, _ONE), axis=0, dtype=dt.i64)
        own = b.emit("add", row, b.emit("sub", b.emit("add", seen, constant(b, 1, dt.i64)), size(b, queries)))
        seen = b.emit("minimum", own, seen)
    column = b.emit("iota", shape=(queries, keys), axis=1, dtype=dt.i64)
    return b.emit("where", b.emit("lt", column, seen), scores, constant(b, -math.inf, dt.f32))
