"""Attention against a naive loop, the cache, rotary positions, and what refuses to attend."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.types.dtype import bf16, f32, i32, i64
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, registry, run_decomposition, tensor
from tests.stdlib.running import run_library


def naive(q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float | None) -> Array:
    """One query at a time, one key at a time."""
    batch, heads, queries, size = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    out = np.zeros((batch, heads, queries, v.shape[3]))
    added = (
        np.zeros((batch, heads, queries, keys))
        if mask is None
        else np.broadcast_to(mask, (batch, heads, queries, keys))
    )
    for b, h, i in np.ndindex(batch, heads, queries):
        seen = [j for j in range(keys) if (not causal or j <= i + keys - queries) and added[b, h, i, j] > -np.inf]
        if not seen:
            continue
        scores = [
            float(q[b, h, i].astype(np.float64) @ k[b, h // group, j].astype(np.float64))
            * (size**-0.5 if scale is None else scale)
            + added[b, h, i, j]
            for j in seen
        ]
        weights = np.exp(np.array(scores) - max(scores))
        out[b, h, i] = (weights / weights.sum()) @ v[b, h // group, seen].astype(np.float64)
    return out


def test_every_sample_equals_a_naive_loop() -> None:
    for sample in registry()["attention"].samples:
        q, k, v, *masks = sample.make(np.random.default_rng(5))
        given = reference("attention", q, k, v, *masks, **sample.attributes)
        wanted = naive(
            q, k, v, masks[0] if masks else None, sample.attributes.get("causal", False), sample.attributes.get("scale")
        )
        np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6, err_msg=sample.name)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, k, v = (np.ones((1, 1, n, 4), np.float32) for n in (3, 2, 2))
    out = reference("attention", q, k, v, causal=True)
    np.testing.assert_array_equal(out[0, 0, 0], 0)
    np.testing.assert_array_equal(out[0, 0, 1:], 1)


def test_cached_attention_is_attention_over_the_filled_part() -> None:
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, 4, 3, 8)).astype(np.float32)
    k, v = (rng.standard_normal((2, 2, 10, 8)).astype(np.float32) for _ in range(2))
    for filled in (3, 7, 10):
        for causal in (True, False):
            given = run_library("cached_attention", [q, k, v, np.array(filled)], {"causal": causal})[0]
            wanted = naive(q, k[:, :, :filled], v[:, :, :filled], None, causal, None)
            np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6)


def test_shapes_stay_free_and_shared_heads_are_guarded() -> None:
    rules = Rules()
    q = tensor("B", "H", "S", 64, dtype=bf16)
    k = tensor("B", "G", "T", 64, dtype=bf16)
    (out,) = infer("attention", q, k, k, causal=True, rules=rules)
    assert str(out) == "[B, H, S, 64] bf16"
    assert [(str(left), str(right)) for left, right in rules.guards] == [("(H mod G)", "0")]


def test_rotary_rotates_pairs_and_keeps_their_length() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    angle = rng.standard_normal((5, 4))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    for interleaved in (False, True):
        out = run_decomposition("rotary", x, cos, sin, interleaved=interleaved)
        pairs = (out[..., ::2], out[..., 1::2]) if interleaved else (out[..., :4], out[..., 4:])
        before = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :4], x[..., 4:])
        np.testing.assert_allclose(np.hypot(*pairs), np.hypot(*before), rtol=1e-5)
        turned = (before[0] + 1j * before[1]) * np.exp(1j * angle)
        np.testing.assert_allclose(pairs[0] + 1j * pairs[1], turned, rtol=1e-4, atol=1e-5)


def test_split_qkv_gives_each_head_its_channels() -> None:
    x = np.arange(2 * 3 * 16, dtype=np.float32).reshape(2, 3, 16)
    q, k, v = run_decomposition("split_qkv", x, heads=2, kv_heads=1)
    assert (q.shape, k.shape, v.shape) == ((2, 2, 3, 4), (2, 1, 3, 4), (2, 1, 3, 4))
    np.testing.assert_array_equal(q[1, 1], x[1, :, 4:8])
    np.testing.assert_array_equal(v[0, 0], x[0, :, 12:])


def test_attention_says_what_is_wrong() -> None:
    q = tensor(2, 4, 5, 8, dtype=f32)
    with pytest.raises(RuleError, match=r"q.shape\[3\] = 8` and `k.shape\[3\] = 16"):
        infer("attention", q, tensor(2, 4, 5, 16, dtype=f32), tensor(2, 4, 5, 16, dtype=f32))
    with pytest.raises(RuleError, match="multiple of those of `k`: 4 and 3"):
        infer("attention", q, tensor(2, 3, 5, 8, dtype=f32), tensor(2, 3, 5, 8, dtype=f32))
    with pytest.raises(RuleError, match="head dim"):
        infer("attention", tensor(4, 5, 8, dtype=f32), q, q)
    with pytest.raises(RuleError, match="broadcast"):
        infer("attention", q, q, q, tensor(3, 5, dtype=f32))
    with pytest.raises(RuleDTypeError, match="floating `mask`"):
        infer("attention", q, q, q, tensor(5, 5, dtype=i32))
    with pytest.raises(RuleDTypeError, match="one dtype"):
        infer("attention", q, q.with_dtype(bf16), q)
    with pytest.raises(RuleError, match="one `length`"):
        infer("cached_attention", q, q, q, tensor(2, dtype=i64))
    with pytest.raises(RuleError, match="must be even"):
        infer("rotary", tensor(2, 7, dtype=f32), tensor(2, 3, dtype=f32), tensor(2, 3, dtype=f32))
    with pytest.raises(RuleError, match="must fit"):
        infer("split_qkv", tensor(2, 5, 25, dtype=f32), heads=2)
    with pytest.raises(RuleError, match="divide `heads`"):
        infer("split_qkv", tensor(2, 5, 24, dtype=f32), heads=4, kv_heads=3)
