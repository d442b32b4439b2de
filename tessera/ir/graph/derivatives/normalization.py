"""Derivatives of softmax, losses and norms, from their results: stable where the parts they decompose into are not.

What a rule computes of the operands alone it computes as `decompose` does, so that the two become one.
"""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import cast, constant, expand, widen
from tessera.ir.graph.derivatives.shared import add_all, in_dtype
from tessera.ir.graph.ops.normalization import inverse_root
from tessera.ir.graph.transforms.facets import Applied
from tessera.types import dtype as dt


def _row_sum(b: Builder, value: Any, axes: tuple[int, ...]) -> Any:
    return b.emit("sum", value, axes=axes, keepdims=True)


def _axis(b: Builder, x: Any, attributes: Attributes) -> tuple[int, ...]:
    return (int(attributes["axis"]) % b.type_of(x).rank,)


def softmax_jvp(b: Builder, op: Applied) -> Any:
    """`p (t - sum(p t))`."""
    out, axes = b.type_of(op.results[0]), _axis(b, op.results[0], op.attributes)
    shares, tangent = widen(b, op.results[0]), widen(b, op.tangents[0])
    mean = _row_sum(b, b.emit("mul", tangent, shares), axes)
    return in_dtype(b, b.emit("mul", b.emit("sub", tangent, mean), shares), out.dtype)


def log_softmax_jvp(b: Builder, op: Applied) -> Any:
    """`t - sum(p t)`."""
    out, axes = b.type_of(op.results[0]), _axis(b, op.results[0], op.attributes)
    shares, tangent = b.emit("exp", widen(b, op.results[0])), widen(b, op.tangents[0])
    return in_dtype(b, b.emit("sub", tangent, _row_sum(b, b.emit("mul", tangent, shares), axes)), out.dtype)


def cross_entropy_jvp(b: Builder, op: Applied) -> Any:
    """Each row's tangents weighted by its shares, less 1 at its label; one outside the classes counts for nothing."""
    logits, labels = op.operands
    kind, label = b.type_of(logits), b.type_of(labels)
    last, out = kind.rank - 1, b.type_of(op.results[0])
    counting = label.dtype if label.dtype.bits >= 32 else dt.i32
    classes = b.emit("iota", shape=kind.shape[-1:], axis=0, dtype=counting)
    chosen = b.emit("eq", classes, expand(b, cast(b, labels, counting), last))
    found = b.emit("any", chosen, axes=(last,), keepdims=False)
    shares = b.emit("exp", widen(b, b.emit("log_softmax", logits, axis=-1)))
    compute = b.type_of(shares).dtype
    one, zero = constant(b, 1.0, compute), constant(b, 0.0, compute)
    weights = b.emit("sub", shares, b.emit("where", chosen, one, zero))
    weights = b.emit("where", expand(b, found, last), weights, zero)
    if op.attributes["reduction"] == "mean":
        every = tuple(range(label.rank))
        count = b.emit("sum", b.emit("where", found, one, zero), axes=every, keepdims=False)
        weights = b.emit("div", weights, b.emit("maximum", count, one))
    axes = (last,) if op.attributes["reduction"] == "none" else tuple(range(kind.rank))
    total = b.emit("sum", b.emit("mul", widen(b, op.tangents[0]), weights), axes=axes, keepdims=False)
    return in_dtype(b, total, out.dtype)


def norm_jvp(b: Builder, op: Applied) -> Any:
    """Of layernorm and rmsnorm: `r (t - mean(t) - n mean(n t))` with `n` normalised and `r` one over the root."""
    x, *parameters = op.operands
    kind, is_centred = b.type_of(x), op.spec.short_name.startswith("layernorm")
    axes = tuple(range(int(op.attributes["axis"]) % kind.rank, kind.rank))
    if any(kind.shape[axis].value == 0 for axis in axes):
        return op.tangents[0]
    value = widen(b, x)
    compute = b.type_of(value).dtype
    if is_centred:
        value = b.emit("sub", value, b.emit("mean", value, axes=axes, keepdims=True))
    inverse = inverse_root(b, value, axes, op.attributes["eps"])
    normal, parts = b.emit("mul", value, inverse), list[Any]()
    if op.tangents[0] is not None:
        tangent = widen(b, op.tangents[0])
        if is_centred:
            tangent = b.emit("sub", tangent, b.emit("mean", tangent, axes=axes, keepdims=True))
        along = b.emit("mean", b.emit("mul", tangent, normal), axes=axes, keepdims=True)
        part = b.emit("mul", b.emit("sub", tangent, b.emit("mul", along, normal)), inverse)
        parts.append(b.emit("mul", part, cast(b, parameters[0], compute)) if parameters else part)
    if len(op.tangents) > 1 and op.tangents[1] is not None:
        parts.append(b.emit("mul", widen(b, op.tangents[1]), normal))
    if len(op.tangents) > 2 and op.tangents[2] is not None:
        parts.append(b.emit("broadcast_to", widen(b, op.tangents[2]), shape=kind.shape))
    return in_dtype(b, add_all(b, parts), kind.dtype)
