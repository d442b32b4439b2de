"""A transformer: causal attention and an MLP in each layer, one compilation for every batch and sequence length."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tessera as ts

ops = ts.ops


class Layer(NamedTuple):
    """Parameters of one layer; matrices are stored [in, out]."""

    norm1: ts.Tensor["D", ts.f32]
    shift1: ts.Tensor["D", ts.f32]
    qkv: ts.Tensor["D", "3*D", ts.f32]
    qkv_bias: ts.Tensor["3*D", ts.f32]
    out: ts.Tensor["D", "D", ts.f32]
    out_bias: ts.Tensor["D", ts.f32]
    norm2: ts.Tensor["D", ts.f32]
    shift2: ts.Tensor["D", ts.f32]
    up: ts.Tensor["D", "4*D", ts.f32]
    up_bias: ts.Tensor["4*D", ts.f32]
    down: ts.Tensor["4*D", "D", ts.f32]
    down_bias: ts.Tensor["D", ts.f32]


def block(x: Any, p: Any, heads: int) -> Any:
    """One layer: each half works on a norm of `x` and is added back."""
    B, S, D = x.shape
    q, k, v = ops.split_qkv(ops.layernorm(x, p.norm1, p.shift1) @ p.qkv + p.qkv_bias, heads=heads)
    mixed = ops.attention(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(B, S, D)
    x = x + (mixed @ p.out + p.out_bias)
    hidden = ops.gelu(ops.layernorm(x, p.norm2, p.shift2) @ p.up + p.up_bias, approximate="tanh")
    return x + (hidden @ p.down + p.down_bias)


def forward(x: ts.Tensor["B", "S", "D", ts.f32], layers: Sequence[Any], heads: int = 8) -> Any:
    """All layers, one after the other; batch and length are symbolic, the layers have the sizes they come with."""
    for parameters in layers:
        x = block(x, parameters, heads)
    return x


def random_layer(D: int, rng: np.random.Generator) -> Layer:
    """Parameters of the size that training would start from."""

    def weight(rows: int, columns: int) -> Any:
        return rng.standard_normal((rows, columns), np.float32) / np.float32(math.sqrt(rows))

    def vector(size: int, mean: float = 0.0) -> Any:
        return (rng.standard_normal(size, np.float32) * 0.1 + mean).astype(np.float32)

    return Layer(
        norm1=vector(D, 1),
        shift1=vector(D),
        qkv=weight(D, 3 * D),
        qkv_bias=vector(3 * D),
        out=weight(D, D),
        out_bias=vector(D),
        norm2=vector(D, 1),
        shift2=vector(D),
        up=weight(D, 4 * D),
        up_bias=vector(4 * D),
        down=weight(4 * D, D),
        down_bias=vector(D),
    )


def main(*, layers: int = 2, D: int = 256, heads: int = 8, lengths: Sequence[int] = (100, 33, 1)) -> None:
    """Compile the model once, run it at several lengths, and check each run against the reference backend.

    That accumulates every contraction in order, in NumPy, which takes most of the time: minutes for thousands of rows.
    """
    rng = np.random.default_rng(0)
    parameters = [random_layer(D, rng) for _ in range(layers)]
    model, reference = ts.jit(forward), ts.jit(forward, backend="reference")
    for length in lengths:
        x = rng.standard_normal((2, length, D), np.float32)
        y, expected = np.asarray(model(x, parameters, heads)), np.asarray(reference(x, parameters, heads))
        error = float(np.max(np.abs(y - expected)))
        print(f"B=2 S={length:<5} D={D} layers={layers}  largest difference from the reference {error:.1e}")
        # Sums of 4 D terms in two orders, once a layer, on values of size about one.
        assert error < 1e-6 * layers * math.sqrt(4 * D) * max(1.0, float(np.max(np.abs(expected))))
    print(f"compilations: {model.cache_info().misses}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
