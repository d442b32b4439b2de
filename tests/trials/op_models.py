"""How random calls are drawn of the functions of models: softmax, norms, attention, quantization."""

# Calls are lambdas here, and NumPy's results have no types to give.
# pyright: basic, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tessera import ops
from tests.trials.op_calls import EPS, FLOATS, NUMPY, Call, Draw, result_slack, wide
from tests.trials.op_families import FAMILIES, Family, float_result, op_named


def _softmax(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, "i32")
        x = draw.array(draw.shape(1), dtype)
        axis, result = draw.axis(x.ndim), float_result(dtype)
        value = wide(x).astype(np.float64)
        shifted = value - (value.max(axis, keepdims=True) if x.size else 0)
        total = np.exp(shifted).sum(axis, keepdims=True)
        exact = np.exp(shifted) / total if name != "log_softmax" else shifted - np.log(total)
        slack = result_slack(result, exact, 40 + x.shape[axis], 40 if name == "log_softmax" else 0)
        return Call(lambda a: op_named(name)(a, axis), [x], [exact], [result], [slack], f"{axis} ")

    return family


def _normalize(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS)
        x = draw.array(draw.shape(1, empty=False), dtype)
        axis = draw.axis(x.ndim)
        axes = tuple(range(axis % x.ndim, x.ndim))
        weight = draw.array(x.shape[axis % x.ndim :], dtype, scale=1.0)
        value = wide(x)
        value = value - value.mean(axes, keepdims=True) if name.startswith("layer") else value
        exact = value / np.sqrt((value**2).mean(axes, keepdims=True) + 1e-5) * wide(weight)
        count = math.prod(x.shape[at] for at in axes)
        sizes = np.abs(wide(x)).max() / np.sqrt((value**2).mean(axes, keepdims=True) + 1e-5)
        slack = result_slack(dtype, exact, count + 32, (count + 32) * sizes * np.abs(wide(weight)))
        return Call(lambda a, w: op_named(name)(a, w, axis=axis), [x, weight], [exact], [dtype], [slack], f"{axis} ")

    return family


def _cross_entropy(draw: Draw) -> Call:
    dtype, how = draw.dtype("f32", "f64", "bf16"), draw.pick(("none", "mean", "sum"))
    logits = draw.array((*draw.shape(1, 2, empty=False), draw.number(2, 9)), dtype)
    labels = draw.rng.integers(0, logits.shape[-1], logits.shape[:-1])
    value = wide(logits)
    top = value.max(-1, keepdims=True)
    losses = (
        np.log(np.exp(value - top).sum(-1, keepdims=True)) + top - np.take_along_axis(value, labels[..., None], -1)
    )[..., 0]
    exact = losses if how == "none" else losses.mean() if how == "mean" else losses.sum()
    count = max(1, losses.size)
    slack = result_slack(
        dtype, exact, count + 40, (count + 40) * (np.abs(value).max() + 4) * (1 if how != "sum" else count)
    )
    return Call(lambda a, b: ops.cross_entropy(a, b, reduction=how), [logits, labels], [exact], [dtype], [slack], how)


def _attention(draw: Draw) -> Call:
    dtype, causal = draw.dtype("f32", "f64", "bf16", "f16"), draw.chance(0.5)
    batch, heads, group = draw.number(1, 2), draw.number(1, 2), draw.number(1, 2)
    length, d = draw.number(1, 9), draw.pick((4, 8, 16))
    keys = length + draw.number(0, 5)
    q = draw.array((batch, heads * group, length, d), dtype, scale=1.0)
    k, v = (draw.array((batch, heads, keys, d), dtype, scale=1.0) for _ in range(2))
    own_k, own_v = (np.repeat(wide(x), group, 1) for x in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", wide(q), own_k) / math.sqrt(d)
    if causal:
        hidden = np.arange(keys)[None, :] > np.arange(length)[:, None] + keys - length
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = np.einsum("bhqk,bhkd->bhqd", weights, own_v)
    # weights are rounded to the dtype of the values before they are multiplied
    eps = EPS[dtype] / EPS["f64" if dtype == "f64" else "f32"]
    slack = result_slack(dtype, exact, 1, (eps * 4 + 200) * np.abs(own_v).max())
    return Call(
        lambda a, b, c: ops.attention(a, b, c, causal=causal), [q, k, v], [exact], [dtype], [slack], f"{causal} "
    )


def _rotary(draw: Draw) -> Call:
    dtype, pairs = draw.dtype("f32", "f64"), draw.pick((2, 4))
    interleaved = draw.chance(0.5)
    x = draw.array((*draw.shape(1, 2, empty=False), draw.number(1, 6), 2 * pairs), dtype)
    cos, sin = (draw.array((x.shape[-2], pairs), dtype, scale=0.5) for _ in range(2))
    value = wide(x)
    a, b = (value[..., ::2], value[..., 1::2]) if interleaved else (value[..., :pairs], value[..., pairs:])
    first, second = a * wide(cos) - b * wide(sin), b * wide(cos) + a * wide(sin)
    exact = np.stack([first, second], -1).reshape(value.shape) if interleaved else np.concatenate([first, second], -1)
    slack = result_slack(
        dtype, exact, 2, 4 * np.abs(value).max() * max(np.abs(wide(cos)).max(), np.abs(wide(sin)).max())
    )
    function = lambda p, c, s: ops.rotary(p, c, s, interleaved=interleaved)  # noqa: E731
    return Call(function, [x, cos, sin], [exact], [dtype], [slack], f"{interleaved} ")


def _residual(draw: Draw) -> Call:
    dtype = draw.dtype(*FLOATS)
    shape = draw.shape()
    x, y = draw.array(shape, dtype), draw.array(shape, dtype)
    exact = wide(x) + wide(y)
    return Call(ops.residual, [x, y], [exact], [dtype], [result_slack(dtype, exact, 1)])


def _quantize(draw: Draw) -> Call:
    x, target = draw.array(draw.shape(), "f32"), draw.dtype("i8", "u8")
    scale = draw.pick((0.5, 0.25, 2.0))
    limits = np.iinfo(NUMPY[target])
    exact = np.clip(np.round(wide(x) / scale), limits.min, limits.max).astype(NUMPY[target])
    return Call(lambda a: ops.quantize(a, scale, target), [x], [exact], [target], text=f"{target} {scale} ")


def _dequantize(draw: Draw) -> Call:
    x, scale = draw.array(draw.shape(), draw.dtype("i8", "u8")), draw.pick((0.5, 0.1, 2.0))
    exact = wide(x).astype(np.float64) * np.float64(np.float32(scale))
    return Call(lambda a: ops.dequantize(a, scale), [x], [exact], ["f32"], [result_slack("f32", exact, 1)])


def _ragged_dot(draw: Draw) -> Call:
    dtype, groups = draw.dtype(*FLOATS), draw.number(1, 4)
    rows, k, n = (draw.pick((0, 1, 5, 33)), draw.pick((1, 7, 33)), draw.pick((1, 5, 20)))
    x, w = draw.array((rows, k), dtype, scale=1.0), draw.array((groups, k, n), dtype, scale=1.0)
    ends = np.sort(draw.rng.integers(0, rows + 1, groups))
    exact, sizes, counts = np.zeros((rows, n)), np.zeros((rows, n)), np.diff(ends, prepend=0)
    for matrix, first, end in zip(wide(w), ends - counts, ends, strict=True):
        exact[first:end] = wide(x)[first:end] @ matrix
        sizes[first:end] = np.abs(wide(x)[first:end]) @ np.abs(matrix)
    slack = result_slack(dtype, exact, k + 1, (k + 1) * sizes)
    return Call(lambda a, b: ops.ragged_dot(a, b, counts), [x, w], [exact], [dtype], [slack], f"{counts} ")


def _round_to(draw: Draw) -> Call:
    x, target = draw.array(draw.shape(), "f32"), draw.dtype("bf16", "f16", "f8e4m3", "f8e5m2")
    exact = x.astype(NUMPY[target]).astype(np.float64)
    return Call(lambda a: ops.round_to(a, target), [x], [exact], [target], [np.zeros(x.shape)])


def _scale_of(draw: Draw) -> Call:
    x, target = draw.array(draw.shape(), "f32"), draw.dtype("i8", "f8e4m3")
    top = np.abs(wide(x)).max() if x.size else 0.0
    limit = 127 if target == "i8" else float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
    exact = np.full((1,) * x.ndim, top / limit if top else 1.0)
    return Call(lambda a: ops.scale_of(a, target), [x], [exact], ["f32"], [result_slack("f32", exact, 2)])


FAMILIES.update({name: _softmax(name) for name in ("softmax", "softmax_safe", "log_softmax")})
FAMILIES.update({name: _normalize(name) for name in ("layernorm", "layernorm_safe", "rmsnorm", "rmsnorm_safe")})
FAMILIES.update(
    {"cross_entropy": _cross_entropy, "attention": _attention, "flash_attention": _attention, "rotary": _rotary}
)
FAMILIES.update({"residual": _residual, "quantize": _quantize, "dequantize": _dequantize, "round_to": _round_to})
FAMILIES.update({"scale_of": _scale_of, "ragged_dot": _ragged_dot})
