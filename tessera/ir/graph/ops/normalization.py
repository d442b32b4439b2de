"""Ops that normalize rows, safe by construction: softmax and its relatives, cross entropy, layernorm, rmsnorm.

Finite rows stay finite, and a row of nothing has a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, IntervalRule, add, always_within, multiply
from tessera.ir.base.spec import FLOATS, ROUND, Attribute, Attributes, Builder, InferContext, OpSpec, Sample
from tessera.ir.graph.building import (
    LOWEST,
    Types,
    axes_attribute,
    cast,
    check_float,
    check_integer,
    constant,
    expand,
    log_of_sum,
    same_dim,
    size_value,
    visits,
    widen,
)
from tessera.ir.graph.samples import INF, NAN, Make, normal
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import normalize_axes, normalize_axis, path, text, without_axes

AXIS = Attribute("axis", "int", -1, "the axis whose elements sum to one")
REDUCTIONS = ("none", "mean", "sum")


def _infer_along(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_float(ctx, op, types[0])
    normalize_axis(ctx, op, attributes["axis"], types[0].rank)
    return [types[0]]


def _infer_logsumexp(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    check_float(ctx, "logsumexp_safe", x)
    axes = normalize_axes(ctx, "logsumexp_safe", axes_attribute(attributes, "axes"), x.rank)
    return [x.with_shape(without_axes(x.shape, axes, keepdims=attributes["keepdims"]))]


def _infer_cross_entropy(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    logits, labels = types
    check_float(ctx, "cross_entropy", logits, "logits")
    check_integer(ctx, "cross_entropy", labels, "labels")
    if logits.rank != labels.rank + 1:
        raise ctx.fail(
            f"`cross_entropy` of logits [..., C] needs labels [...], got {text(logits.shape)} and {text(labels.shape)}",
            help="labels are class numbers, one for each row of logits",
        )
    for axis in range(labels.rank):
        left, right = logits.shape[axis], labels.shape[axis]
        same_dim(
            ctx, left, right, f"`cross_entropy` pairs {path('logits', axis, left)} with {path('labels', axis, right)}"
        )
    if attributes["reduction"] not in REDUCTIONS:
        raise ctx.fail(f"`cross_entropy` has reductions {', '.join(REDUCTIONS)}, not {attributes['reduction']!r}")
    return [logits.with_shape(labels.shape if attributes["reduction"] == "none" else ())]


def _top(b: Builder, x: Any, axes: tuple[int, ...]) -> Any:
    """The row maximum, clamped to be finite from below, so that a row of -inf minus it is -inf and not NaN."""
    top = b.emit("max", x, axes=axes, keepdims=True, identity=True)
    dtype = b.type_of(x).dtype
    return b.emit("maximum", top, constant(b, LOWEST[dtype.name], dtype))


def _shifted_total(b: Builder, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """(x - top, its exponential, the sum of those): the sum is at least 1, or 0 for a row of -inf, or NaN."""
    shifted = b.emit("sub", x, _top(b, x, axes))
    terms = b.emit("exp", shifted)
    return shifted, terms, b.emit("sum", terms, axes=axes, keepdims=True)


def _at_least_one(b: Builder, total: Any) -> Any:
    return b.emit("maximum", total, constant(b, 1.0, b.type_of(total).dtype))


def _decompose_softmax(is_log: bool, b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    kind = b.type_of(x)
    axis = int(attributes["axis"]) % kind.rank
    if kind.shape[axis].value == 0:
        return x
    shifted, terms, total = _shifted_total(b, widen(b, x), (axis,))
    # The 0 of a row of -inf becomes 1; every other sum is left alone.
    total = _at_least_one(b, total)
    out = b.emit("sub", shifted, b.emit("log", total)) if is_log else b.emit("mul", terms, b.emit("reciprocal", total))
    return cast(b, out, kind.dtype)


def _delegate(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return b.emit("softmax", *operands, **attributes)


def _decompose_logsumexp(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    kind = b.type_of(x)
    axes = tuple(sorted(axis % kind.rank for axis in axes_attribute(attributes, "axes")))
    shape = without_axes(kind.shape, axes, keepdims=attributes["keepdims"])
    if any(kind.shape[axis].value == 0 for axis in axes):
        empty = constant(b, -INF, kind.dtype)
        return b.emit("broadcast_to", empty, shape=shape)
    wide = widen(b, x)
    compute = b.type_of(wide).dtype
    # Held finite from above too: a row with +inf has the sum +inf, where inf - inf would make it NaN.
    top = b.emit("minimum", _top(b, wide, axes), constant(b, -LOWEST[compute.name], compute))
    total = b.emit("sum", b.emit("exp", b.emit("sub", wide, top)), axes=axes, keepdims=True)
    out = cast(b, b.emit("add", top, log_of_sum(b, total)), kind.dtype)
    return out if attributes["keepdims"] else b.emit("reshape", out, shape=shape)


def match_labels(b: Builder, labels: Any, classes: Dim) -> tuple[Any, Any]:
    """Which class each label names, [..., classes], and whether it names any: what is known without the logits.

    Classes are compared in i32 where they fit: a wider label that wraps there is outside of them, and does not count.
    """
    kind = b.type_of(labels)
    wide = kind.dtype if kind.dtype.bits >= 32 else dt.i32
    is_inside = b.emit("lt", cast(b, labels, wide), size_value(b, classes, wide))
    found = b.emit("logical_and", is_inside, b.emit("ge", cast(b, labels, wide), constant(b, 0, wide)))
    counting = dt.i32 if classes.value is not None and classes.value < 1 << 31 else wide
    numbers = b.emit("iota", shape=(classes,), axis=0, dtype=counting)
    return b.emit("eq", numbers, expand(b, cast(b, labels, counting), kind.rank)), found


def _decompose_cross_entropy(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Picks the label's logit with a mask, inside the pass over the row, so that no gather reads it a second time."""
    logits, labels = operands
    kind, label = b.type_of(logits), b.type_of(labels)
    wide, last = widen(b, logits), kind.rank - 1
    compute = b.type_of(wide).dtype
    chosen, found = match_labels(b, labels, kind.shape[-1])
    zero, one = constant(b, 0.0, compute), constant(b, 1.0, compute)
    shifted, _, total = _shifted_total(b, wide, (last,))
    picked = b.emit("sum", b.emit("where", chosen, shifted, zero), axes=(last,), keepdims=False)
    log_total = log_of_sum(b, b.emit("reshape", total, shape=label.shape))
    loss = b.emit("where", found, b.emit("sub", log_total, picked), zero)
    if attributes["reduction"] == "none":
        return cast(b, loss, kind.dtype)
    every = tuple(range(label.rank))
    summed = b.emit("sum", loss, axes=every, keepdims=False)
    if attributes["reduction"] == "mean":
        counted = b.emit("sum", b.emit("where", found, one, zero), axes=every, keepdims=False)
        summed = b.emit("div", summed, _at_least_one(b, counted))
    return cast(b, summed, kind.dtype)


def _stable(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    wide = x.astype(np.float64)
    top = wide.max(axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, np.where(np.isnan(top), np.nan, 0.0))
    shifted = wide - top
    return top, shifted, np.exp(shifted).sum(axes, keepdims=True)


def softmax_reference(x: Array, *, axis: int = -1) -> Array:
    """Shares of the exponentials; zeros for a row of -inf, NaN for a row with NaN or +inf."""
    with np.errstate(all="ignore"):
        _, shifted, total = _stable(x, (axis,))
        weights = np.exp(shifted) / np.where(total == 0, 1.0, total)
        return round_as(np.where(total == np.inf, np.nan, weights), dtype_of(x))


def log_softmax_reference(x: Array, *, axis: int = -1) -> Array:
    """Logarithm of softmax; -inf for a row of -inf."""
    with np.errstate(all="ignore"):
        _, shifted, total = _stable(x, (axis,))
        return round_as(
            np.where(total == np.inf, np.nan, shifted - np.log(np.where(total == 0, 1.0, total))), dtype_of(x)
        )


def logsumexp_reference(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
    """Logarithm of the sum of exponentials; -inf for no elements and for a row of -inf."""
    with np.errstate(all="ignore"):
        top, _, total = _stable(x, tuple(axes))
        out = round_as(top + np.log(total), dtype_of(x))
    return out if keepdims else out.squeeze(tuple(axes))


def cross_entropy_reference(logits: Array, labels: Array, *, reduction: str = "mean") -> Array:
    """Minus the log probability of each row's label; a label outside the classes counts for nothing."""
    with np.errstate(all="ignore"):
        _, shifted, total = _stable(logits, (-1,))
        inside = (labels >= 0) & (labels < logits.shape[-1])
        index = np.where(inside, labels, 0).astype(np.int64)[..., np.newaxis]
        picked = np.take_along_axis(shifted, index, -1)[..., 0] if logits.shape[-1] else np.zeros(labels.shape)
        loss = np.where(inside, np.log(total[..., 0]) - picked, 0.0)
        if reduction != "none":
            loss = loss.sum() / (max(int(inside.sum()), 1) if reduction == "mean" else 1)
        return round_as(loss, dtype_of(logits))


def _rows(*rows: Sequence[float]) -> Make:
    return lambda rng: [np.array(rows, np.float32)]


def _labelled_sample(rows: tuple[int, ...], classes: int, low: int = 0) -> Any:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        logits = rng.standard_normal((*rows, classes)).astype(np.float32) * 3
        return [logits, rng.integers(low, classes, rows, dtype=np.int64)]

    return make


SAMPLES = (
    Sample("rows", normal((4, 16))),
    Sample("first axis", normal((5, 3)), {"axis": 0}),
    Sample("middle axis", normal((2, 7, 3)), {"axis": 1}),
    Sample("long rows", normal((3, 131))),
    Sample("one element", normal((3, 1))),
    Sample("huge", normal((2, 33), scale=1e4)),
    Sample("empty rows", normal((0, 4))),
    Sample("nothing, NaN, spikes", _rows([-INF] * 3, [1, NAN, 2], [1e4, -1e4, 0], [0, -INF, 0])),
)


_PROBABILITIES = always_within(0.0, 1.0, is_exact=True)


def _log_interval(query: IntervalQuery) -> Interval:
    x, axis = query.x, int(query.attributes["axis"])
    count = query.types[0].shape[axis].value
    lowest = x.low - x.high - (INF if count is None else math.log(max(count, 1)))
    nan = x.may_be_nan or math.isinf(x.magnitude)
    return Interval(-INF if math.isnan(lowest) else lowest, 0.0, nan, False, x.sources)


def _along(name: str, summary: str, decompose: Any, reference: Any, interval: IntervalRule = _PROBABILITIES) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(AXIS,),
        infer=partial(_infer_along, name),
        reference=reference,
        samples=SAMPLES,
        dtypes=FLOATS,
        cost=visits(5),
        decompose=decompose,
        policy=ROUND,
        interval=interval,
        jvp="reduce:log_softmax_jvp" if name == "log_softmax" else "reduce:softmax_jvp",
    )


# Norms, safe by construction: constant rows, tiny rows and rows of 1e18 all come out finite.

SCALE = {"f32": 2.0**-52, "f64": 2.0**-400}
"""Powers of two, so scaling by them does not round; what overflows when squared no longer does after it.

Not smaller: squares of usual values must stay clear of denormals, on which CPUs take a hundred cycles.
"""

NORM_ATTRIBUTES = (
    Attribute("axis", "int", -1, "normalise over this axis and all after it"),
    Attribute("eps", "float", 1e-5, "added to the mean square before its root; above 0"),
)


def _infer_norm(op: str, parameters: int, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x = types[0]
    check_float(ctx, op, x)
    axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
    if not attributes["eps"] > 0:
        raise ctx.fail(f"`{op}` needs `eps` above 0, got {attributes['eps']}", help="a constant row has no variance")
    if len(types) > 1 + parameters:
        raise ctx.fail(f"`{op}` takes at most {parameters} parameters, got {len(types) - 1}")
    for name, parameter in zip(("weight", "bias"), types[1:], strict=False):
        check_float(ctx, op, parameter, name)
        wanted = x.shape[axis:]
        if parameter.rank != len(wanted):
            raise ctx.fail(f"`{op}` over {text(wanted)} needs a `{name}` of that shape, got {text(parameter.shape)}")
        for left, right in zip(wanted, parameter.shape, strict=True):
            same_dim(ctx, left, right, f"`{op}` of {text(x.shape)} needs a `{name}` of {text(wanted)}")
    return [x]


def inverse_root(
    b: Builder, centred: Any, axes: tuple[int, ...], eps: float, *, is_differentiated: bool = False
) -> Any:
    """One over the root of the mean square; where that overflows, from squares of scaled values, in the same pass.

    Scaled squares of usual values are 0, where a root has no derivative: what is differentiated takes another number
    there, so that zero times an infinity does not enter.
    """
    dtype: DType = b.type_of(centred).dtype
    scale = constant(b, SCALE[dtype.name], dtype)
    small = b.emit("mul", centred, scale)
    square = b.emit("mean", b.emit("mul", centred, centred), axes=axes, keepdims=True)
    scaled = b.emit("mean", b.emit("mul", small, small), axes=axes, keepdims=True)
    usual = b.emit("rsqrt", b.emit("add", square, constant(b, eps, dtype)))
    if is_differentiated or getattr(b, "keeps_parts", False):
        scaled = b.emit("where", b.emit("isinf", square), scaled, constant(b, 1.0, dtype))
    # eps is far below the last bit of a mean square this large
    huge = b.emit("mul", b.emit("rsqrt", scaled), scale)
    return b.emit("where", b.emit("isinf", square), huge, usual)


def _decompose_norm(centre: bool, b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, *parameters = operands
    kind = b.type_of(x)
    axes = tuple(range(attributes["axis"] % kind.rank, kind.rank))
    if any(kind.shape[axis].value == 0 for axis in axes):
        return x
    value = widen(b, x)
    compute = b.type_of(value).dtype
    if centre:
        value = b.emit("sub", value, b.emit("mean", value, axes=axes, keepdims=True))
    out = b.emit("mul", value, inverse_root(b, value, axes, attributes["eps"]))
    if parameters:
        out = b.emit("mul", out, cast(b, parameters[0], compute))
    if len(parameters) > 1:
        out = b.emit("add", out, cast(b, parameters[1], compute))
    return cast(b, out, kind.dtype)


def _normalize(x: Array, *parameters: Array, centre: bool, axis: int = -1, eps: float = 1e-5) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    if not all(x.shape[a] for a in axes):
        return x
    with np.errstate(all="ignore"):
        if centre:
            wide = wide - wide.mean(axes, keepdims=True)
        out = wide / np.sqrt(np.square(wide).mean(axes, keepdims=True) + eps)
        for parameter, combine in zip(parameters, (np.multiply, np.add), strict=False):
            out = combine(out, parameter.astype(np.float64))
        return round_as(out, dtype_of(x))


def _scaled_rows(*scales: float, constants: Sequence[float] = ()) -> Any:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        rows = [rng.standard_normal(37) * scale for scale in scales] + [np.full(37, value) for value in constants]
        return [np.array(rows, np.float32)]

    return make


NORM_SAMPLES = (
    Sample("rows", normal((4, 48))),
    Sample("weighted", normal((3, 5, 16), (16,))),
    Sample("two axes", normal((2, 3, 4), (3, 4)), {"axis": 1}),
    Sample("one element", normal((3, 1))),
    Sample("large eps", normal((3, 7)), {"eps": 0.5}),
    Sample("empty", normal((0, 5))),
    Sample("constant, tiny and huge rows", _scaled_rows(1e-40, 1e-6, 1e15, 1e18, 1e19, constants=(0.0, 3.0))),
)


def _normalized_interval(query: IntervalQuery) -> Interval:
    """A row divided by its root mean square: no element exceeds the root of the row's length."""
    axis, rank = query.attributes.get("axis", -1), query.types[0].rank
    count = query.count(range(axis % rank, rank))
    nan = query.x.may_be_nan or math.isinf(query.x.magnitude)
    made = Interval(-math.sqrt(count), math.sqrt(count), nan, False, query.x.sources)
    for number, other in enumerate(query.operands[1:]):
        made = multiply(made, other) if number == 0 else add(IntervalQuery((made, other), (), {}, query.result))
    return made.without_reach()


def _norm(op: str, parameters: int, summary: str, samples: tuple[Sample, ...], flops: int) -> OpSpec:
    """A normalization by the mean square of a row; one that takes a bias subtracts the mean first."""
    is_centred = parameters == 2
    return OpSpec(
        name=f"tgraph.{op}",
        summary=summary,
        operands=("x", "parameters*"),
        attributes=NORM_ATTRIBUTES,
        infer=partial(_infer_norm, op, parameters),
        reference=partial(_normalize, centre=is_centred),
        samples=samples,
        dtypes=FLOATS,
        cost=visits(flops),
        decompose=partial(_decompose_norm, is_centred),
        policy=ROUND,
        interval=IntervalRule(_normalized_interval),
        jvp="reduce:normalize_jvp",
    )


SPECS: tuple[OpSpec, ...] = (
    _along(
        "softmax",
        "exp(x) over its sum along an axis, in f32 and rounded once; a row of -inf gives zeros, a NaN gives NaN.",
        partial(_decompose_softmax, False),
        softmax_reference,
    ),
    _along("softmax_safe", "The same as `softmax`, which is safe already.", _delegate, softmax_reference),
    _along(
        "log_softmax",
        "Logarithm of softmax without its underflow, in f32 and rounded once; a row of -inf stays -inf.",
        partial(_decompose_softmax, True),
        log_softmax_reference,
        IntervalRule(_log_interval),
    ),
    OpSpec(
        name="tgraph.logsumexp_safe",
        summary="log(sum(exp(x))) over axes without overflow, in f32; -inf for no elements, inf where one is inf.",
        operands=("x",),
        attributes=(Attribute("axes", "ints"), Attribute("keepdims", "bool", False)),
        infer=_infer_logsumexp,
        reference=logsumexp_reference,
        samples=(
            Sample("rows", normal((4, 16)), {"axes": (1,)}),
            Sample("two axes", normal((3, 4, 5)), {"axes": (0, 2), "keepdims": True}),
            Sample("huge", normal((2, 33), scale=1e4), {"axes": (1,)}),
            Sample("nothing, inf, NaN", _rows([-INF, -INF], [INF, 0], [NAN, 0], [INF, -INF]), {"axes": (1,)}),
        ),
        dtypes=FLOATS,
        cost=visits(4),
        decompose=_decompose_logsumexp,
        jvp="reduce:logsumexp_jvp",
        policy=ROUND,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.cross_entropy",
        summary="Minus the log of softmax at each row's label; labels outside the classes (padding) count for nothing.",
        operands=("logits", "labels"),
        attributes=(Attribute("reduction", "str", "mean", "none, mean over the labels that count, or sum"),),
        infer=_infer_cross_entropy,
        reference=cross_entropy_reference,
        samples=(
            Sample("mean", _labelled_sample((7,), 11)),
            Sample("each", _labelled_sample((2, 5), 33), {"reduction": "none"}),
            Sample("some ignored", _labelled_sample((9,), 4, low=-3), {"reduction": "sum"}),
            Sample("all but ignored", _labelled_sample((9,), 4, low=-3), {"reduction": "mean"}),
        ),
        dtypes=("f32", "f64", "bf16", "f16"),
        cost=visits(6),
        decompose=_decompose_cross_entropy,
        jvp="reduce:cross_entropy_jvp",
        policy=ROUND,
        interval=ANYTHING,
    ),
    _norm(
        "layernorm_safe",
        2,
        "(x - mean) / sqrt(variance + eps) over the last axes, then weight and bias; in f32, rounded once.",
        (*NORM_SAMPLES, Sample("weight and bias", normal((3, 5, 16), (16,), (16,)))),
        flops=9,
    ),
    _norm(
        "rmsnorm_safe",
        1,
        "x / sqrt(mean(x * x) + eps) over the last axes, then weight; in f32, rounded once.",
        NORM_SAMPLES,
        flops=7,
    ),
)
