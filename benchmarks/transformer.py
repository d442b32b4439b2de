"""A pre-norm transformer in NumPy: parameters, the forward pass, and the pieces other references use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Layer: TypeAlias = "dict[str, Any]"


def flops(sizes: Mapping[str, int]) -> float:
    """Of the four matmuls of each layer and of causal attention."""
    L, B, S, D = (sizes[name] for name in "LBSD")
    return float(L * (2 * B * S * 12 * D * D + 2 * B * S * S * D))


def inputs(sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Activations [B, S, D] and a list of layers, each a dict of parameters stored [in, out]."""
    B, S, D = sizes["B"], sizes["S"], sizes["D"]
    return {"x": rng.standard_normal((B, S, D), np.float32), "layers": [layer(D, rng) for _ in range(sizes["L"])]}


def layer(D: int, rng: np.random.Generator) -> Layer:
    """Parameters of one layer with a hidden size of four times `D`."""

    def weight(rows: int, columns: int) -> Array:
        return rng.standard_normal((rows, columns), np.float32) / np.float32(math.sqrt(rows))

    def bias(size: int) -> Array:
        return rng.standard_normal(size, np.float32) * np.float32(0.1)

    return {
        "norm1": 1 + bias(D),
        "shift1": bias(D),
        "qkv": weight(D, 3 * D),
        "qkv_bias": bias(3 * D),
        "out": weight(D, D),
        "out_bias": bias(D),
        "norm2": 1 + bias(D),
        "shift2": bias(D),
        "up": weight(D, 4 * D),
        "up_bias": bias(4 * D),
        "down": weight(4 * D, D),
        "down_bias": bias(D),
    }


def forward(x: Array, layers: Sequence[Layer], heads: int) -> Array:
    """The whole stack, in the dtype of `x`."""
    for parameters in layers:
        x = block(x, parameters, heads)
    return x


def block(x: Array, p: Layer, heads: int) -> Array:
    """One layer: causal attention, then two matmuls with gelu between, each on a norm and added back."""
    B, S, D = x.shape
    qkv = layernorm(x, p["norm1"], p["shift1"]) @ p["qkv"] + p["qkv_bias"]
    q, k, v = qkv.reshape(B, S, 3, heads, D // heads).transpose(2, 0, 3, 1, 4)
    mixed = attend(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(B, S, D)
    x = x + (mixed @ p["out"] + p["out_bias"])
    hidden = gelu(layernorm(x, p["norm2"], p["shift2"]) @ p["up"] + p["up_bias"])
    return x + (hidden @ p["down"] + p["down_bias"])


def layernorm(x: Array, weight: Array, bias: Array) -> Array:
    """Mean 0 and variance 1 along the last axis, scaled and shifted."""
    centred = x - x.mean(-1, keepdims=True)
    variance = np.mean(centred * centred, -1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5)) * weight + bias


def attend(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """`softmax(q kT / sqrt(D)) v` on [..., S, D]."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(1 / math.sqrt(q.shape[-1]))
    if causal:
        scores[..., ~np.tri(q.shape[-2], k.shape[-2], k.shape[-2] - q.shape[-2], dtype=bool)] = -np.inf
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores @ v


def gelu(x: Array) -> Array:
    """The tanh form, in the dtype of `x`."""
    inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return x.dtype.type(0.5) * x * (1 + np.tanh(inner))
