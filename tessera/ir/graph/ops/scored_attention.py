"""Attention whose scores functions change and hide, as score programs; its derivative; what each means on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import (
    FLOATS,
    KEEP,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
    Simplifier,
)
from tessera.ir.graph.building import Types, cast, check_float, constant, cost_of, expand, match_shapes, size_value
from tessera.ir.graph.key_parts import check_heads, check_length
from tessera.ir.graph.ops import attention as plain
from tessera.ir.graph.ops.attention import SCALE, scale_value
from tessera.ir.graph.ops.attention_backward import (
    Multiply,
    change_scores,
    check_tangents,
    multiply_wide,
    repeat_heads,
    sum_heads,
    transpose_last,
    weigh_change,
    zeros_like,
)
from tessera.ir.graph.ops.contraction import accumulate_matmul
from tessera.ir.graph.samples import normal
from tessera.ir.graph.score_blocks import key_ranges, query_ranges
from tessera.ir.graph.score_forms import (
    ArrayArithmetic,
    GraphArithmetic,
    apply_as_ops,
    apply_to_arrays,
    index_arrays,
    index_values,
)
from tessera.ir.graph.score_programs import (
    FIRST,
    KEY,
    SCORE,
    Lines,
    ProgramWriter,
    dependences,
    derive,
    evaluate,
    float_loads,
    value_dtypes,
)
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import Named, Shape, TensorType

FUNCTIONS = (
    SCALE,
    Attribute("score", "any", (), "the program that changes a score, as lines; empty for none"),
    Attribute("mask", "any", (), "the program that says whether a query sees a key; empty for all"),
)
RANGES = Attribute(
    "ranges", "bool", False, "whether where seen keys begin and end, for each 32 queries, comes before what is captured"
)
CACHED = Attribute("cached", "bool", False, "whether the first of the others is how many keys of a cache there are")
BACKWARD_RANGES = Attribute("ranges", "bool", False, "the same, and then where the queries of each 32 keys do")


def programs(attributes: Attributes) -> tuple[Lines, Lines]:
    """The programs of an op: of scores, and of what hides them."""
    return attributes["score"], attributes["mask"]


def captured_of(attributes: Attributes, others: Sequence[Any], ranges: int = 2) -> Sequence[Any]:
    """What the programs of an op read, of the operands after its own."""
    return others[bool(attributes.get("cached")) + (ranges if attributes.get("ranges") else 0) :]


def check_programs(ctx: InferContext, op: str, q: TensorType, captures: Types, attributes: Attributes) -> None:
    """Raises where a program has a line that is none, or gives what is no score or no bool."""
    compute = q.dtype.compute
    for name, lines, wanted in zip(("score", "mask"), programs(attributes), (compute, dt.bool_), strict=True):
        if not lines:
            continue
        made = value_dtypes(lines, compute, captures, ctx.fail_dtype)[-1]
        if made is not wanted:
            raise ctx.fail_dtype(f"`{name}` of `{op}` gives {wanted} for scores of {compute}, got {made}")
    if attributes["mask"] and SCORE in dependences(attributes["mask"])[-1]:
        raise ctx.fail(f"`mask` of `{op}` says where scores are, and does not read them")


def _check_ranges(ctx: InferContext, op: str, others: Types, attributes: Attributes, count: int) -> None:
    if not attributes["ranges"]:
        return
    for one in others[:count]:
        if one.dtype is not dt.i64 or one.rank != 3:
            raise ctx.fail(f"`{op}` takes ranges as i64 [batch, heads, blocks], got {one}")
    if len(others) < count:
        raise ctx.fail(f"`{op}` takes {count} tensors of ranges before what is captured, got {len(others)}")


def _infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, *others = types
    out = check_heads(ctx, "attention", q, k, v)
    if attributes["cached"] and not others:
        raise ctx.fail("`scored_attention` over a cache takes how many keys there are, after `v`")
    if attributes["cached"]:
        check_length(ctx, "scored_attention", others[0])
    _check_ranges(ctx, "scored_attention", others[bool(attributes["cached"]) :], attributes, 2)
    check_programs(ctx, "scored_attention", q, captured_of(attributes, others), attributes)
    return [out]


def _infer_with_lse(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (out,) = _infer(ctx, types, attributes)
    return [out, out.with_shape(out.shape[:3]).with_dtype(out.dtype.compute)]


# The meaning, on arrays.


class _Wide:
    """Queries, keys and values in f64, a head of keys for each of queries, and scores."""

    def __init__(self, q: Array, k: Array, v: Array, scale: float | None) -> None:
        self.shared, self.group = k.shape[1], q.shape[1] // k.shape[1] if k.shape[1] else 1
        self.q, self.compute = q.astype(np.float64), dtype_of(q).compute
        self.k, self.v = self.repeat(k), self.repeat(v)
        self.scale = 1.0 / np.sqrt(max(q.shape[3], 1)) if scale is None else scale
        self.raw: Array = self.q @ np.swapaxes(self.k, 2, 3) * self.scale

    def repeat(self, x: Array) -> Array:
        return np.repeat(x.astype(np.float64), self.group, axis=1)

    def join(self, x: Array) -> Array:
        """The sum over heads that share one."""
        return x.reshape(x.shape[0], self.shared, self.group, *x.shape[2:]).sum(2)


def with_lse_reference(
    q: Array,
    k: Array,
    v: Array,
    *others: Array,
    scale: float | None = None,
    score: Lines = (),
    mask: Lines = (),
    ranges: bool = False,
    cached: bool = False,
) -> tuple[Array, Array]:
    """Scores, functions, softmax, values, all in f64, rounded once; and the log-sum-exp of each row of scores."""
    filled = min(max(int(others[0]), 0), k.shape[2]) if cached else k.shape[2]
    wide = _Wide(q, k[:, :, :filled], v[:, :, :filled], scale)
    scores = apply_to_arrays(wide.raw, score, mask, captured_of({"ranges": ranges, "cached": cached}, others))
    with np.errstate(all="ignore"):
        weights, lse = plain.weigh(scores)
        return round_as(weights @ wide.v, dtype_of(q)), round_as(lse, dtype_of(q).compute)


def scored_attention_reference(*arrays: Array, **attributes: Any) -> Array:
    """Scores, functions, softmax, values: all in f64, rounded once."""
    return with_lse_reference(*arrays, **attributes)[0]


def backward_reference(
    q: Array,
    k: Array,
    v: Array,
    cotangent: Array,
    lse: Array,
    delta: Array,
    *others: Array,
    scale: float | None = None,
    score: Lines = (),
    mask: Lines = (),
    ranges: bool = False,
) -> tuple[Array, Array, Array]:
    """The gradients by queries, keys and values: all in f64, rounded once."""
    captures = captured_of({"ranges": ranges}, others, 4)
    wide, given = _Wide(q, k, v, scale), cotangent.astype(np.float64)
    with np.errstate(all="ignore"):
        scores = apply_to_arrays(wide.raw, score, mask, captures)
        shares = np.exp(scores - lse.astype(np.float64)[..., np.newaxis])
        changes = shares * (given @ np.swapaxes(wide.v, 2, 3) - delta.astype(np.float64)[..., np.newaxis])
        changes = np.where(shares == 0, 0.0, changes * _slope(wide, score, captures))
        by_queries = changes @ wide.k * wide.scale
        by_keys, by_values = np.swapaxes(changes, 2, 3) @ wide.q * wide.scale, np.swapaxes(shares, 2, 3) @ given
        found = (by_queries, wide.join(by_keys), wide.join(by_values))
        by_q, by_k, by_v = (round_as(one, dtype_of(own)) for one, own in zip(found, (q, k, v), strict=True))
        return by_q, by_k, by_v


def _slope(wide: _Wide, score: Lines, captures: Sequence[Array]) -> Any:
    """The derivative of the score function by scores."""
    lines = derive(score, SCORE, wide.compute, _types_of(captures)) if score else None
    if lines is None:
        return 0.0 if score else 1.0
    return evaluate(lines, [wide.raw, *index_arrays(*wide.raw.shape)], ArrayArithmetic(captures))[-1]


def _types_of(captures: Sequence[Array]) -> list[TensorType]:
    return [TensorType.of(one.shape, dtype_of(one)) for one in captures]


# Composed: on whole matrices of scores.


@frozen
class Composed:
    """Attention by graph ops on whole matrices of scores, in the dtype of computation."""

    b: Builder
    q: Any
    k: Any
    v: Any
    captures: Sequence[Any]
    attributes: Attributes
    multiply: Multiply

    @property
    def heads(self) -> Dim:
        return self.b.type_of(self.q).shape[1]

    @property
    def compute(self) -> DType:
        return self.b.type_of(self.q).dtype.compute

    @property
    def types(self) -> list[TensorType]:
        return [self.b.type_of(one) for one in self.captures]

    @property
    def scale(self) -> Any:
        return scale_value(self.b, self.b.type_of(self.q).shape[3], self.attributes["scale"], self.compute)

    def raw(self) -> Any:
        """Scaled scores, as functions get them."""
        keys = repeat_heads(self.b, self.k, self.heads)
        return self.b.emit("mul", self.multiply(self.q, transpose_last(self.b, keys)), self.scale)

    def scores(self, raw: Any) -> Any:
        return apply_as_ops(self.b, raw, *programs(self.attributes), self.captures)

    def slope(self, raw: Any, by: int = SCORE) -> Any:
        """The derivative of the score function by a value, 0 where scores are hidden; None for 0 everywhere."""
        b, (score, mask) = self.b, programs(self.attributes)
        lines = derive(score, by, self.compute, self.types) if score else None
        if score and lines is None:
            return None
        arithmetic, where = GraphArithmetic(b, self.captures), index_values(b, b.type_of(raw).shape)
        made = arithmetic.constant(1.0, self.compute)
        if lines:
            made = evaluate(lines, [raw, *where], arithmetic)[-1]
        if mask:
            seen = evaluate(mask, [raw, *where], arithmetic)[-1]
            made = b.emit("where", seen, made, arithmetic.constant(0.0, self.compute))
        return made

    def changes(self, raw: Any, cotangent: Any, lse: Any, delta: Any) -> tuple[Any, Any]:
        """Weights, and the gradients of scores that functions have changed."""
        b = self.b
        values = repeat_heads(b, self.v, self.heads)
        total, mean = (expand(b, cast(b, one, self.compute), 3) for one in (lse, delta))
        shares = b.emit("exp", b.emit("sub", self.scores(raw), total))
        by_shares = self.multiply(cotangent, transpose_last(b, values))
        return shares, b.emit("mul", shares, b.emit("sub", by_shares, mean))


def without_cache(b: Builder, operands: Sequence[Any], attributes: Attributes) -> tuple[Sequence[Any], Attributes]:
    """The same attention over the whole capacity of a cache: zeros beyond its length, which the mask hides."""
    if not attributes["cached"]:
        return operands, attributes
    q, k, v, length, *others = operands
    none, most = constant(b, 0, dt.i64), size_value(b, b.type_of(k).shape[2])
    filled = b.emit("clamp", cast(b, length, dt.i64), none, most)
    k, v = (keep_filled(b, one, filled) for one in (k, v))
    captures = [*others, cast(b, filled, dt.i32)]
    writer = ProgramWriter(b.type_of(q).dtype.compute, [b.type_of(one) for one in captures], attributes["mask"])
    is_there = writer.elementwise("lt", KEY, writer.load(len(captures) - 1, ()))
    if attributes["mask"]:
        is_there = writer.elementwise("and", is_there, FIRST + len(attributes["mask"]) - 1)
    return (q, k, v, *captures), {**attributes, "mask": writer.finish(is_there), "cached": False}


def keep_filled(b: Builder, rows: Any, filled: Any) -> Any:
    """Rows of a cache, or a tangent of them, with zeros beyond its length."""
    kind = b.type_of(rows)
    seen = b.emit("lt", b.emit("iota", shape=kind.shape, axis=2, dtype=dt.i64), filled)
    return b.emit("where", seen, rows, constant(b, 0.0, kind.dtype))


def _accumulate(
    with_lse: bool,
    b: Builder,
    operands: Sequence[Any],
    attributes: Attributes,
    total: DType,
    emit_composite: Callable[..., Any],
) -> Any:
    """Attention in f32: scores, functions, softmax, values, each sum in the accumulator."""
    operands, attributes = without_cache(b, operands, attributes)
    q, k, v = (cast(b, value, dt.f32) for value in operands[:3])
    multiply: Multiply = lambda left, right: accumulate_matmul(b, left, right, total)  # noqa: E731
    own = Composed(b, q, k, v, captured_of(attributes, operands[3:]), attributes, multiply)
    scores = own.scores(own.raw())
    weights = emit_composite("softmax_safe", scores, axis=3)
    out = accumulate_matmul(b, weights, repeat_heads(b, v, own.heads), total)
    return (out, emit_composite("logsumexp_safe", scores, axes=(3,), keepdims=False)) if with_lse else out


# The tangent.


def split_tangent(
    operands: Sequence[Any], attributes: Attributes
) -> tuple[Sequence[Any], Sequence[Any], dict[int, Any]]:
    """What `scored_attention_tangent` takes: q, k, v, out and lse; what is captured; and tangents by operand."""
    by = attributes["by"]
    first = len(operands) - len(by)
    return operands[:5], operands[5:first], dict(zip(by, operands[first:], strict=True))


def _infer_tangent(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_tangents(ctx, _TANGENT, types, attributes["by"])
    (q, k, v, out, lse), captures, tangents = split_tangent(types, attributes)
    wanted = _infer_with_lse(ctx, [q, k, v, *captures], {**attributes, "ranges": False, "cached": False})
    for name, given, one in zip(("out", "lse"), (out, lse), wanted, strict=True):
        match_shapes(ctx, _TANGENT, Named(name, given.shape), Named("result", one.shape))
    for number, given in tangents.items():
        own = (q, k, v, *captures)[number]
        tangent = Named(f"tangent of operand {number}", given.shape)
        match_shapes(ctx, _TANGENT, tangent, Named(f"operand {number}", own.shape))
    return list(wanted)


_TANGENT = "scored_attention_tangent"


def _decompose_tangent(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """By whole scores, whose softmax is rematerialized."""
    (q, k, v, _, lse), captures, tangents = split_tangent(operands, attributes)
    own = Composed(b, q, k, v, captures, attributes, multiply_wide(b, b.type_of(q).dtype.compute))
    raw, values = own.raw(), repeat_heads(b, v, own.heads)
    shape = b.type_of(raw).shape
    keys = repeat_heads(b, k, own.heads)
    change = change_scores(b, (q, keys), [tangents.get(0), tangents.get(1)], attributes["scale"])
    slope = own.slope(raw)
    parts: list[Any] = []
    if change is not None and slope is not None:
        parts.append(b.emit("mul", change, slope))
    for number, value in _read_tangents(own, raw, tangents):
        partial = own.slope(raw, number)
        if partial is not None:
            parts.append(b.emit("mul", cast(b, value, own.compute), partial))
    total = None
    for part in parts:
        part = b.emit("broadcast_to", part, shape=shape)
        total = part if total is None else b.emit("add", total, part)
    rows = b.type_of(lse)
    if total is None and 2 not in tangents:
        return zeros_like(b, b.type_of(operands[3])), zeros_like(b, rows.with_dtype(own.compute))
    out, mean = weigh_change(b, own.scores(raw), total, values, tangents.get(2))
    by_lse = zeros_like(b, rows.with_dtype(own.compute)) if mean is None else b.emit("reshape", mean, shape=rows.shape)
    return cast(b, out, b.type_of(q).dtype), by_lse


def _read_tangents(own: Composed, raw: Any, tangents: dict[int, Any]) -> list[tuple[int, Any]]:
    """Tangents of what the score function reads, each with the number of the value that is read."""
    score, b = own.attributes["score"], own.b
    loads = float_loads(score, own.types)
    if not any(score[number - FIRST][2] + 3 in tangents for number in loads):
        return []
    arithmetic = GraphArithmetic(b, own.captures)
    values = evaluate(score, [raw, *index_values(b, b.type_of(raw).shape)], arithmetic)
    found: list[tuple[int, Any]] = []
    for number in loads:
        _, places, capture = score[number - FIRST]
        if capture + 3 in tangents:
            tables = {capture: tangents[capture + 3]}
            read = GraphArithmetic(b, [tables.get(at, one) for at, one in enumerate(own.captures)])
            found.append((number, read.load(capture, [(place, values[place]) for place in places])))
    return found


def tangent_reference(
    *arrays: Array, by: Sequence[int], scale: float | None = None, score: Lines = (), mask: Lines = ()
) -> tuple[Array, Array]:
    """The tangents of the result and of the log-sum-exps, in f64 and rounded once."""
    (q, k, v, *_), captures, tangents = split_tangent(arrays, {"by": by})
    wide = _Wide(q, k, v, scale)
    with np.errstate(all="ignore"):
        change = np.zeros(wide.raw.shape)
        if 0 in tangents:
            change = change + tangents[0].astype(np.float64) @ np.swapaxes(wide.k, 2, 3) * wide.scale
        if 1 in tangents:
            change = change + wide.q @ np.swapaxes(wide.repeat(tangents[1]), 2, 3) * wide.scale
        change = change * _slope(wide, score, captures)
        change = change + _captured_change(wide, score, captures, tangents)
        weights, _ = plain.weigh(apply_to_arrays(wide.raw, score, mask, captures))
        weighted = np.where(weights == 0, 0.0, weights * change)
        mean = weighted.sum(-1, keepdims=True)
        made = (weighted - weights * mean) @ wide.v
        if 2 in tangents:
            made = made + weights @ wide.repeat(tangents[2])
        return round_as(made, dtype_of(q)), round_as(mean[..., 0], dtype_of(q).compute)


def _captured_change(wide: _Wide, score: Lines, captures: Sequence[Array], tangents: dict[int, Array]) -> Any:
    """How scores change with what their function reads."""
    types, raw, total = _types_of(captures), wide.raw, 0.0
    where = index_arrays(*raw.shape)
    values = evaluate(score, [raw, *where], ArrayArithmetic(captures))
    for number in float_loads(score, types):
        _, places, capture = score[number - FIRST]
        lines = derive(score, number, wide.compute, types)
        if capture + 3 not in tangents or lines is None:
            continue
        tables = [tangents[capture + 3] if at == capture else one for at, one in enumerate(captures)]
        read = ArrayArithmetic(tables).load(capture, [(place, values[place]) for place in places])
        total = total + read * evaluate(lines, [raw, *where], ArrayArithmetic(captures))[-1]
    return total


# The transpose.


def _infer_backward(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, k, v, cotangent, lse, delta, *others = types
    op = "scored_attention_backward"
    _check_ranges(ctx, op, others, attributes, 4)
    given = [q, k, v, *captured_of(attributes, others, 4)]
    out, rows = _infer_with_lse(ctx, given, {**attributes, "ranges": False, "cached": False})
    for name, one, wanted in (("cotangent", cotangent, out), ("lse", lse, rows), ("delta", delta, rows)):
        check_float(ctx, op, one, name)
        match_shapes(ctx, op, Named(name, one.shape), Named("result", wanted.shape))
    return [q, k, v]


def _decompose_backward(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """The same on whole matrices of scores, of which higher derivatives are taken."""
    made = _differentiate(b, operands, attributes, multiply_wide(b, b.type_of(operands[0]).dtype.compute))
    return tuple(cast(b, one, b.type_of(own).dtype) for one, own in zip(made, operands, strict=False))


def _differentiate(b: Builder, operands: Sequence[Any], attributes: Attributes, multiply: Multiply) -> tuple[Any, ...]:
    """The gradients, in the dtype of computation."""
    q, k, v, cotangent, lse, delta, *others = operands
    own = Composed(b, q, k, v, captured_of(attributes, others, 4), attributes, multiply)
    raw, shared = own.raw(), b.type_of(k).shape[1]
    shares, change = own.changes(raw, cotangent, lse, delta)
    slope = own.slope(raw)
    change = zeros_like(b, b.type_of(change)) if slope is None else b.emit("mul", change, slope)
    wide_q, keys, given = (cast(b, one, own.compute) for one in (q, repeat_heads(b, k, own.heads), cotangent))
    by_values = multiply(transpose_last(b, shares), given)
    by_keys = b.emit("mul", multiply(transpose_last(b, change), wide_q), own.scale)
    by_queries = b.emit("mul", multiply(change, keys), own.scale)
    return by_queries, sum_heads(b, by_keys, shared), sum_heads(b, by_values, shared)


def _accumulate_backward(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Callable[..., Any]
) -> Any:
    """The same in f32, with the sums of all matmuls in an accumulator."""
    wide = [cast(b, one, dt.f32) for one in operands[:6]]
    multiply: Multiply = lambda left, right: accumulate_matmul(b, left, right, total)  # noqa: E731
    return _differentiate(b, [*wide, *operands[6:]], attributes, multiply)


# Blocks that are skipped, behind all transforms.


def _score_shape(b: Builder, operands: Sequence[Any]) -> Shape:
    q, k = (b.type_of(one).shape for one in operands[:2])
    return (q[0], q[1], q[2], k[2])


def _with_ranges(name: str, b: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """The same op with where the keys that queries see begin and end, as far as the mask says."""
    if attributes["ranges"] or not attributes["mask"]:
        return None
    first = 4 if attributes["cached"] else 3
    found = key_ranges(b, attributes["mask"], operands[first:], _score_shape(b, operands))
    if found is None:
        return None
    return b.emit(name, *operands[:first], *found, *operands[first:], **{**attributes, "ranges": True})


def _backward_with_ranges(b: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    if attributes["ranges"] or not attributes["mask"]:
        return None
    shape = _score_shape(b, operands)
    found = [rule(b, attributes["mask"], operands[6:], shape) for rule in (key_ranges, query_ranges)]
    if found[0] is None or found[1] is None:
        return None
    given = (*operands[:6], *found[0], *found[1], *operands[6:])
    return b.emit("scored_attention_backward", *given, **{**attributes, "ranges": True})


# Samples: batch, heads, heads of keys, queries, keys and size of a head; what is captured; programs.

_CAUSAL: Lines = (("ge", (3, 4), None),)
_SAME_DOCUMENT: Lines = (("load", (3,), 0), ("load", (4,), 0), ("eq", (5, 6), None))
_WINDOW: Lines = (("sub", (3, 4), None), ("abs", (5,), None), ("constant", (), (2, dt.i32)), ("le", (6, 7), None))
_SOFT_CAP: Lines = (
    ("constant", (), (2.0, dt.f32)),
    ("div", (0, 5), None),
    ("tanh", (6,), None),
    ("mul", (7, 5), None),
)
_RELATIVE: Lines = (
    ("sub", (3, 4), None),
    ("load", (2, 5), 0),
    ("cast", (6,), dt.f32),
    ("add", (0, 7), None),
)
_CASES: tuple[tuple[str, tuple[int, ...], str, dict[str, Any]], ...] = (
    ("causal", (2, 3, 3, 5, 5, 8), "", {"mask": _CAUSAL}),
    ("window, grouped", (1, 4, 2, 70, 40, 8), "", {"mask": _WINDOW, "scale": 0.5}),
    ("soft cap", (1, 2, 1, 6, 4, 8), "", {"score": _SOFT_CAP}),
    ("relative bias", (2, 2, 2, 7, 7, 8), "bias", {"score": _RELATIVE, "mask": _CAUSAL}),
    ("documents", (1, 2, 2, 9, 9, 8), "documents", {"mask": _SAME_DOCUMENT}),
)


def _operands(sizes: Sequence[int], what: str, rng: np.random.Generator) -> list[Array]:
    """Queries, keys and values, and what is captured."""
    batch, heads, shared, queries, keys, size = sizes
    arrays = list(normal((batch, heads, queries, size), *[(batch, shared, keys, size)] * 2)(rng))
    if what == "bias":
        arrays.append(rng.standard_normal((heads, 2 * queries - 1)).astype(np.float32))
    if what == "documents":
        arrays.append(np.sort(rng.integers(0, 3, queries)).astype(np.int32))
    return arrays


def _sample(name: str, sizes: Sequence[int], what: str, attributes: dict[str, Any], kind: str) -> Sample:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        given = _operands(sizes, what, rng)
        if kind == "forward":
            return given
        out, lse = with_lse_reference(*given, **attributes)
        rows = np.where(lse == -np.inf, 0.0, lse).astype(np.float32)
        if kind == "tangent":
            return [*given[:3], out, rows, *given[3:], *normal(*(one.shape for one in given[:3]))(rng)]
        (cotangent,) = normal(out.shape)(rng)
        delta: Array = np.sum(out * cotangent, -1, dtype=np.float32)
        return [*given[:3], cotangent, rows, delta, *given[3:]]

    return Sample(name, make, {**attributes, "by": (0, 1, 2)} if kind == "tangent" else attributes)


def _samples(kind: str) -> tuple[Sample, ...]:
    return tuple(_sample(*case, kind) for case in _CASES)


def _count_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    """Two matmuls of the size of the scores, about five operations for the softmax, and the lines of both programs."""
    q, k, v = operands[:3]
    lines = sum(len(one) for one in programs(attributes))
    return q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * ((q.shape[3] + v.shape[3]) * 2 + 5 + lines)


def _count_backward(operands: Types, results: Types, attributes: Attributes) -> Dim:
    """Five matmuls of the size of the scores, and two of them once more."""
    return _count_operations(operands, results, attributes) * 7 // 2


DTYPES = tuple(name for name in FLOATS if name != "f64")
"""What samples are tried in: their programs compute in f32."""


def _forward(name: str, summary: str, **facets: Any) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("q", "k", "v", "others*"),
        attributes=(*FUNCTIONS, CACHED, RANGES),
        samples=_samples("forward"),
        dtypes=DTYPES,
        cost=cost_of(_count_operations),
        lower=Library("scored_attention", reads_views=True, takes_epilogue=True),
        jvp="attention:scored_jvp",
        batch="scored_attention",
        simplify=partial(_with_ranges, name),
        policy=PolicyRule("contract", factors=3, accumulate=partial(_accumulate, name.endswith("lse"))),
        interval=ANYTHING,
        **facets,
    )


SPECS: tuple[OpSpec, ...] = (
    _forward(
        "scored_attention",
        "`attention` whose scores `score` changes and `mask` hides: programs on a score and where it is, which may "
        "read captured tensors. Blocks that the mask hides altogether are skipped.",
        infer=_infer,
        reference=scored_attention_reference,
        with_residuals="scored_attention_with_lse",
    ),
    _forward(
        "scored_attention_with_lse",
        "`scored_attention`, and the log-sum-exp of each row of its scores, -inf for a row that sees no key.",
        results=("out", "lse"),
        infer=_infer_with_lse,
        reference=with_lse_reference,
    ),
    OpSpec(
        name="tgraph.scored_attention_tangent",
        summary="How results and log-sum-exps of `scored_attention` change with operands: linear in their tangents.",
        operands=("q", "k", "v", "out", "lse", "others*"),
        results=("out_tangent", "lse_tangent"),
        attributes=(
            *FUNCTIONS,
            Attribute("by", "ints", doc="which operands have tangents, the last ones: q, k, v, or what is captured"),
        ),
        infer=_infer_tangent,
        reference=tangent_reference,
        samples=_samples("tangent"),
        dtypes=DTYPES,
        cost=cost_of(_count_backward),
        decompose=_decompose_tangent,
        transpose="attention:scored_tangent",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.scored_attention_backward",
        summary="Gradients of `scored_attention` by q, k and v, from the cotangent of its result, log-sum-exps (0 for "
        "a row that sees no key), and `delta`, the sums of rows of result times cotangent.",
        operands=("q", "k", "v", "cotangent", "lse", "delta", "others*"),
        results=("q_gradient", "k_gradient", "v_gradient"),
        attributes=(*FUNCTIONS, BACKWARD_RANGES),
        infer=_infer_backward,
        reference=backward_reference,
        samples=_samples("backward"),
        dtypes=DTYPES,
        cost=cost_of(_count_backward),
        lower=Library("scored_attention_backward", reads_views=True),
        decompose=_decompose_backward,
        simplify=_backward_with_ranges,
        batch="scored_attention",
        policy=PolicyRule("contract", factors=4, accumulate=_accumulate_backward),
        interval=ANYTHING,
    ),
)
