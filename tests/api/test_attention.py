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


def attend_parts(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, split_keys=True)


def attend_cache(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length), causal=True)


def symbolic(q: ts.Tensor["B", "H", "S", 16], k: ts.Tensor["B", "G", "T", 16], v: ts.Tensor["B", "G", "T", 16]) -> Any:
    return ts.ops.attention(q, k, v, causal=True, split_keys=True)


DTYPES = [np.float32, ml_dtypes.bfloat16, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [1200, 513, 512, 7])
def test_a_row_alone_has_the_bits_it_has_among_others(keys: int, dtype: Any) -> None:
    """Of parts of the keys, in one kernel or in parallel, whatever the batch; static and symbolic."""
    shapes = [(2, 6, 5, 16), (2, 2, keys, 16), (2, 2, keys, 16)]
    q, k, v = (heads(shape, dtype, seed) for seed, shape in enumerate(shapes))
    jitted, free = ts.jit(attend_parts), ts.jit(symbolic)
    found = np.asarray(jitted(q, k, v))
    wanted = reference("attention", q, k, v, causal=True)
    bound = {2: 2.0**-7, 4: 1e-5, 8: 1e-12}[q.dtype.itemsize]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=bound, atol=bound / 8)
    assert np.asarray(free(q, k, v)).tobytes() == found.tobytes()
    last = np.ascontiguousarray(q[:, :, -1:])
    assert ("attention_parts" in jitted.lower(last, k, v).schedule) == (keys > 512)
    alone = np.asarray(jitted(last, k, v))
    assert alone.tobytes() == np.ascontiguousarray(found[:, :, -1:]).tobytes()
    assert np.asarray(jitted(last[1:], k[1:], v[1:])).tobytes() == alone[1:].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_prefill_in_chunks_has_the_bits_of_all_rows_together(dtype: Any) -> None:
    """What is beyond the length is not read; a capacity that differs changes nothing."""
    shapes = [(1, 4, 9, 16), (1, 2, 1300, 16), (1, 2, 1300, 16)]
    q, k, v = (heads(shape, dtype, seed) for seed, shape in enumerate(shapes))
    k[:, :, 1100:], v[:, :, 1100:] = np.nan, np.nan
    jitted = ts.jit(attend_cache)
    whole = np.asarray(jitted(q, k, v, np.array(1100)))
    for first, last in ((0, 4), (4, 9), (0, 1), (8, 9)):
        for capacity in (1300, 1100):
            given = [np.ascontiguousarray(x) for x in (q[:, :, first:last], k[:, :, :capacity], v[:, :, :capacity])]
            part = np.asarray(jitted(*given, np.array(1100 - 9 + last)))
            assert part.tobytes() == np.ascontiguousarray(whole[:, :, first:last]).tobytes()


def test_factors_of_parts_that_lose_everything() -> None:
    """Maxima that grow by more than an exponent holds from part to part, and rows that see nothing in a part."""
    q, k = np.full((1, 1, 3, 16), 10.0, np.float32), heads((1, 1, 1600, 16), np.float32, 4)
    for growth in (5.0, -5.0):
        grown = k + np.float32(growth) * (np.arange(1600) // 512)[:, np.newaxis].astype(np.float32)
        found = np.asarray(ts.jit(attend_parts)(q, grown, k))
        wanted = reference("attention", q, grown, k, causal=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
        alone = np.asarray(ts.jit(attend_parts)(np.ascontiguousarray(q[:, :, -1:]), grown, k))
        assert alone.tobytes() == found[:, :, -1:].tobytes()


def attend_whole_parts(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


def attend_whole_cache(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_few_queries_that_ask_for_parts_have_the_recipe_of_a_cache(dtype: Any) -> None:
    """Parts of few heads run apart, those of many in one kernel, with the same bits."""
    k = heads((3, 2, 1300, 16), dtype, 2)
    for queries in (1, 5, 65):
        q = heads((3, 4, queries, 16), dtype, 1)
        found = np.asarray(ts.jit(attend_whole_parts)(q, k, k))
        wanted = reference("attention", q, k, k).astype(np.float64)
        bound = {2: 2.0**-7, 4: 1e-5}[q.dtype.itemsize]
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=bound, atol=bound / 8)
        # A cache, a row alone, a batch alone: one row is one row.
        assert np.asarray(ts.jit(attend_whole_cache)(q, k, k, np.array(1300))).tobytes() == found.tobytes()
        assert np.asarray(ts.jit(attend_whole_parts)(q[:, :, :1], k, k)).tobytes() == found[:, :, :1].tobytes()
        assert np.asarray(ts.jit(attend_whole_parts)(q[1:], k[1:], k[1:])).tobytes() == found[1:].tobytes()


def test_few_queries_of_many_heads_are_one_kernel_with_the_same_bits() -> None:
    q, k = heads((1, 256, 20, 8), np.float32, 1), heads((1, 256, 1100, 8), np.float32, 2)
    assert "attention_parts" not in ts.jit(attend_whole_parts).lower(q, k, k).schedule
    found = np.asarray(ts.jit(attend_whole_parts)(q, k, k))
    some = [np.ascontiguousarray(x[:, :3]) for x in (q, k)]
    assert "attention_parts" in ts.jit(attend_whole_parts).lower(some[0], some[1], some[1]).schedule
    assert np.asarray(ts.jit(attend_whole_parts)(some[0], some[1], some[1])).tobytes() == found[:, :3].tobytes()
    # Heads that share keys are rows of one, of as many programs.
    shared = np.ascontiguousarray(k[:, ::2])
    assert "attention_parts" in ts.jit(attend_whole_parts).lower(q, shared, shared).schedule
    grouped = np.asarray(ts.jit(attend_whole_parts)(q, shared, shared))
    assert np.ascontiguousarray(grouped[:, :1]).tobytes() == np.ascontiguousarray(found[:, :1]).tobytes()


def test_without_being_asked_keys_are_taken_in_one_pass() -> None:
    """However few queries there are: a row alone, among others and of a symbolic program is one row."""

    def free(q: ts.Tensor[1, 2, "S", 16], k: ts.Tensor[1, 2, "T", 16]) -> Any:
        return ts.ops.attention(q, k, k)

    k = heads((1, 2, 5000, 16), ml_dtypes.bfloat16, 2)
    for queries in (1, 2, 70):
        q = heads((1, 2, queries, 16), ml_dtypes.bfloat16, 1)
        assert "attention_parts" not in ts.jit(whole).lower(q, k, k).schedule
        found = np.asarray(ts.jit(whole)(q, k, k))
        assert np.asarray(ts.jit(whole)(q[:, :, -1:], k, k)).tobytes() == found[:, :, -1:].tobytes()
        assert np.asarray(ts.jit(free)(q, k)).tobytes() == found.tobytes()


def test_parts_have_no_log_sum_exp() -> None:
    q = heads((1, 1, 1, 8), np.float32, 1)
    with pytest.raises(TracingError, match="over parts of the keys gives no log-sum-exp"):
        ts.ops.attention(q, q, q, return_lse=True, split_keys=True)


EMPTY = [
    ((1, 1, 1, 0), (1, 1, 700, 0), (1, 1, 700, 3)),
    ((1, 2, 5, 0), (1, 1, 700, 0), (1, 1, 700, 3)),
    ((1, 1, 1, 3), (1, 1, 700, 3), (1, 1, 700, 0)),
    ((1, 2, 2, 3), (1, 1, 700, 3), (1, 1, 700, 0)),
    ((1, 1, 1, 0), (1, 1, 700, 0), (1, 1, 700, 0)),
]


def symbolic_heads(
    q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], v: ts.Tensor["B", "G", "T", "E"]
) -> Any:
    return ts.ops.attention(q, k, v, causal=True, split_keys=True)


def symbolic_heads_with_lse(
    q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], v: ts.Tensor["B", "G", "T", "E"]
) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


@pytest.mark.parametrize("shapes", EMPTY)
def test_heads_of_size_zero_have_equal_weights(shapes: Any) -> None:
    """A head dim of 0 gives the mean of the values; values of no columns give nothing, but a log-sum-exp."""
    q, k, v = (heads(shape, np.float32, seed) for seed, shape in enumerate(shapes))
    wanted = reference("attention", q, k, v, causal=True)
    for call in (attend_parts, attend_masked, symbolic_heads):
        found = np.asarray(ts.jit(call)(q, k, v))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for call in (masked_with_lse, symbolic_heads_with_lse):
        found, lse = map(np.asarray, ts.jit(call)(q, k, v))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse, reference("attention_with_lse", q, k, v, causal=True)[1], rtol=1e-5)
    cached = np.asarray(ts.jit(attend_cache)(q, k, v, np.array(600)))
    wanted = reference("attention", q, k[:, :, :600], v[:, :, :600], causal=True)
    np.testing.assert_allclose(cached, wanted, rtol=1e-5, atol=1e-6)


def symbolic_cache(q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, k, length), causal=True)


def dropped(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.flash_attention(q, k, v, dropout=0.25, key=ts.random.key(1))


def symbolic_dropped(
    q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], v: ts.Tensor["B", "G", "T", "E"]
) -> Any:
    return dropped(q, k, v)


def gradient(q: Any, k: Any, v: Any) -> Any:
    def total(q: Any) -> Any:
        return ts.ops.sum(ts.ops.attention(q, k, v))

    return ts.grad(total)(q)


def symbolic_gradient(
    q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], v: ts.Tensor["B", "G", "T", "E"]
) -> Any:
    return gradient(q, k, v)


def bits(made: Any) -> list[bytes]:
    results: list[Any] = list(made) if isinstance(made, tuple) else [made]  # pyright: ignore[reportUnknownArgumentType]
    return [np.asarray(one).tobytes() for one in results]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "sizes"), [(np.float32, (24, 40, 96)), (np.float16, (40,)), (np.float64, (40,))])
def test_symbolic_heads_have_the_bits_of_static_ones(dtype: Any, sizes: tuple[int, ...]) -> None:
    """The scale is computed in f64 and rounded once, whenever the head dim is known."""
    programs = [(attend_parts, symbolic_heads), (masked_with_lse, symbolic_heads_with_lse)]
    programs += [(dropped, symbolic_dropped), (gradient, symbolic_gradient)]
    pairs = [(ts.jit(static), ts.jit(free)) for static, free in programs]
    cached = ts.jit(attend_cache), ts.jit(symbolic_cache)
    for size in sizes:
        q, k = heads((1, 2, 3, size), dtype, 1), heads((1, 1, 600, size), dtype, 2)
        for static, free in pairs:
            assert bits(static(q, k, k)) == bits(free(q, k, k)), (size, dtype)
        length = np.array(580)
        assert bits(cached[0](q, k, k, length)) == bits(cached[1](q, k, length)), (size, dtype)
