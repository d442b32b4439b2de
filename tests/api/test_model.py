"""A transformer block written as a model is: captured weights, a cache, one trace for all batch sizes and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops

HEADS, HEAD_DIM, WIDTH, HIDDEN = 2, 4, 8, 16
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


Wqkv, Wo = weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH)
Wmlp_in, Wmlp_out = weight(WIDTH, HIDDEN), weight(HIDDEN, WIDTH)


def transformer_block(
    x: ts.Tensor["B", "S", "D", ts.f32 @ ts.accum(ts.f32)], cache: ts.KVCache["B", HEADS, "S_max", HEAD_DIM, ts.f32]
) -> Any:
    """The block of the language document, with the merge of heads spelled out."""
    normal = ops.rmsnorm_safe(x)
    q, k, v = ops.split_qkv(ops.matmul(normal, Wqkv), heads=HEADS)
    cache = cache.append(k, v)
    y = ops.flash_attention(q, cache, causal=True)
    y = y.swapaxes(1, 2).reshape(x.shape[0], x.shape[1], -1)
    y = ops.residual(x, ops.matmul(y, Wo))
    y = ops.residual(y, ops.gelu(ops.matmul(ops.rmsnorm_safe(y), Wmlp_in)) @ Wmlp_out)
    return ops.cast_like(y, x), cache


def compute_expected(x: Any) -> Any:
    """The same in NumPy, in f64, without a cache."""
    erf = np.vectorize(__import__("math").erf)

    def rms(value: Any) -> Any:
        return value / np.sqrt((value**2).mean(-1, keepdims=True) + 1e-5)

    x = x.astype(np.float64)
    batch, length, _ = x.shape
    parts = (rms(x) @ Wqkv).reshape(batch, length, 3, HEADS, HEAD_DIM).transpose(2, 0, 3, 1, 4)
    scores = parts[0] @ parts[1].swapaxes(-1, -2) / np.sqrt(HEAD_DIM)
    scores = np.where(np.tril(np.ones((length, length), np.bool_)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = (weights / weights.sum(-1, keepdims=True)) @ parts[2]
    y = x + y.swapaxes(1, 2).reshape(batch, length, -1) @ Wo
    hidden = rms(y) @ Wmlp_in
    return y + (hidden * 0.5 * (1 + erf(hidden / np.sqrt(2)))) @ Wmlp_out


def test_one_trace_serves_all_batches_and_lengths() -> None:
    block = ts.jit(backend="reference")(transformer_block)
    for batch, length in ((1, 1), (2, 5), (3, 2)):
        x = weight(batch, length, WIDTH)
        stored = np.zeros((batch, HEADS, 8, HEAD_DIM), np.float32)
        y, cache = block(x, ts.KVCache(stored, stored, ts.array(0)))
        np.testing.assert_allclose(np.asarray(y), compute_expected(x), rtol=2e-5, atol=2e-5)
        assert int(cache.length) == length
    assert block.cache_info().compiles == 1
    assert block.effects == {"state(cache)"}


def test_decoding_token_by_token_equals_the_whole() -> None:
    block = ts.jit(backend="reference")(transformer_block)
    x = weight(1, 5, WIDTH)
    stored = np.zeros((1, HEADS, 8, HEAD_DIM), np.float32)
    cache: Any = ts.KVCache(stored, stored, ts.array(0))
    steps: list[Any] = []
    for position in range(5):
        y, cache = block(np.ascontiguousarray(x[:, position : position + 1]), cache)
        steps.append(np.asarray(y))
    np.testing.assert_allclose(np.concatenate(steps, axis=1), compute_expected(x), rtol=2e-5, atol=2e-5)
    assert block.cache_info().compiles == 1


def test_a_wrong_head_dim_is_found_before_anything_runs() -> None:
    block = ts.jit(backend="reference")(transformer_block)
    wide = np.zeros((1, HEADS, 8, HEAD_DIM + 1), np.float32)
    with pytest.raises(ts.TesseraError, match=r"`cache\.K\.shape\[3\]` must be 4, got 5"):
        block(weight(1, 2, WIDTH), ts.KVCache(wide, wide, ts.array(0)))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_one_head_keeps_the_ordinary_rule_of_matmul(heads: int) -> None:
    """NumPy's rule holds wherever it can; heads that a program merges itself are right for any number of them."""
    y, w = ts.ones((2, heads, 3, 8 // heads)), ts.ones((8, 5))
    assert ts.ops.matmul(y, w).shape == ((2, 1, 3, 5) if heads == 1 else (2, 3, 5))
    assert (y.transpose(0, 2, 1, 3).reshape(2, 3, -1) @ w).shape == (2, 3, 5)
