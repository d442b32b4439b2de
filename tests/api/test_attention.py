"""Attention as users call it: log-sum-exps, and single queries that go over parts of the keys."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import TracingError
from tests.graph.eager import reference


def heads(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def attend_masked(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def whole_with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, return_lse=True)


def masked_with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def lse_alone(q: Any) -> Any:
    return ts.ops.attention(q, q, q, return_lse=True)[1]


@pytest.mark.parametrize("causal", [False, True])
def test_log_sum_exps_come_beside_the_result(causal: bool) -> None:
    q, k, v = (
        heads((1, count, length, 16), np.float32, seed)
        for seed, (count, length) in enumerate([(4, 9), (2, 40), (2, 40)])
    )
    both, alone = ts.jit(masked_with_lse if causal else whole_with_lse), ts.jit(attend_masked if causal else whole)
    out, lse = map(np.asarray, both(q, k, v))
    wanted, sums = reference("attention_with_lse", q, k, v, causal=causal)
    assert out.tobytes() == np.asarray(alone(q, k, v)).tobytes()
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-6)


def test_the_log_sum_exp_alone_needs_no_result() -> None:
    q = heads((1, 2, 5, 8), np.float32, 3)
    lse = ts.jit(lse_alone)(q)
    np.testing.assert_allclose(np.asarray(lse), reference("attention_with_lse", q, q, q)[1], rtol=1e-5)


def test_rows_that_see_no_key_have_no_sum() -> None:
    q, k = heads((1, 1, 4, 8), np.float32, 1), heads((1, 1, 2, 8), np.float32, 2)
    out, lse = map(np.asarray, ts.ops.attention(q, k, k, causal=True, return_lse=True))
    assert (out[0, 0, :2] == 0).all()
    assert (lse[0, 0, :2] == -np.inf).all()
    assert np.isfinite(lse[0, 0, 2:]).all()


def test_a_cache_has_no_log_sum_exp() -> None:
    cache = ts.KVCache.empty(1, 1, 4, 8)
    with pytest.raises(TracingError, match="no log-sum-exp"):
        ts.ops.attention(heads((1, 1, 1, 8), np.float32, 1), cache, return_lse=True)


@pytest.mark.parametrize("keys", [4096, 5001])
def test_a_single_query_goes_over_parts_of_the_keys(keys: int) -> None:
    """2048 keys each, whatever their number and the batch: the bits of a row are its own."""
    q, k, v = (
        heads((2, count, length, 16), ml_dtypes.bfloat16, seed)
        for seed, (count, length) in enumerate([(6, 1), (2, keys), (2, keys)])
    )
    jitted = ts.jit(attend_masked)
    found = np.asarray(jitted(q, k, v))
    assert "attention_parts" in jitted.lower(q, k, v).schedule
    wanted = reference("attention", q, k, v, causal=True)
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=2.0**-7, atol=2.0**-12)
    assert np.asarray(jitted(q[1:], k[1:], v[1:])).tobytes() == found[1:].tobytes()


def test_few_keys_and_several_queries_stay_whole() -> None:
    for queries, keys in ((1, 4095), (2, 5000)):
        q, k = heads((1, 2, queries, 16), ml_dtypes.bfloat16, 1), heads((1, 2, keys, 16), ml_dtypes.bfloat16, 2)
        text = ts.jit(whole).lower(q, k, k).schedule
        assert "attention_parts" not in text
