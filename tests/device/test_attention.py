"""Attention on tensor cores of a GPU: log-sum-exps, shared heads, single queries, and bits that no choice changes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.kernel.test_attention_epilogue import both, causal, full, operands

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(23)


def random(shape: tuple[int, ...], spread: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * spread).astype(ml_dtypes.bfloat16)


def exact(q: Any, k: Any, v: Any, is_causal: bool = False) -> tuple[Any, Any]:
    """Attention and its log-sum-exps, in float64."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (np.repeat(part.astype(np.float64), count, 1) for part, count in ((q, 1), (k, groups), (v, groups)))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = powers.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isinf(top), -np.inf, top + np.log(total))[..., 0]
    return powers @ v / np.where(total == 0, 1.0, total), lse


def distance(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(np.asarray(found).astype(np.float64) - wanted) / np.linalg.norm(wanted))


def with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, return_lse=True)


def causal_with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def single(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 2, 2, 300, 300, 128), (2, 8, 1, 200, 333, 64), (1, 1, 1, 333, 200, 128), (1, 2, 2, 5, 1, 128)]
)
def test_log_sum_exps_of_any_length(shape: tuple[int, ...], is_causal: bool) -> None:
    batch, heads, shared, queries, keys, head = shape
    q = random((batch, heads, queries, head))
    k, v = (random((batch, shared, keys, head)) for _ in range(2))
    with poisoned():
        out, lse = map(np.asarray, ts.jit(causal_with_lse if is_causal else with_lse, backend="cuda")(q, k, v))
    wanted, sums = exact(q, k, v, is_causal)
    assert distance(out, wanted) <= 4e-3
    assert lse.dtype == np.float32
    # Scores of bf16 numbers are sums in f32, and a logarithm has no larger error than its sum.
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keys", [4096, 5000, 8192 + 1])
@pytest.mark.parametrize(("heads", "shared"), [(16, 2), (3, 3), (70, 1)])
def test_single_queries_go_over_parts_of_the_keys(keys: int, heads: int, shared: int) -> None:
    q, k, v = random((2, heads, 1, 128), 3.0), random((2, shared, keys, 128)), random((2, shared, keys, 128))
    jitted = ts.jit(single, backend="cuda")
    with poisoned():
        found = np.asarray(jitted(q, k, v))
    assert distance(found, exact(q, k, v)[0]) <= 4e-3
    assert "attention_parts" in jitted.lower(q, k, v).target
    # A row does not know of other batches.
    alone = np.asarray(jitted(q[1:], k[1:], v[1:]))
    assert alone.tobytes() == found[1:].tobytes()


def whole(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize("head", [64, 80, 128, 256])
@pytest.mark.parametrize("queries", [1, 7, 40])
def test_few_queries_have_the_bits_of_one_kernel_and_of_a_cache(queries: int, head: int, dtype: Any) -> None:
    """Parts in parallel of few heads, one kernel of many, and right."""
    k, v = (RNG.standard_normal((1, 128, 1700, head)).astype(dtype) for _ in range(2))
    q = RNG.standard_normal((1, 256, queries, head)).astype(dtype)
    jitted, over = ts.jit(whole, backend="cuda"), ts.jit(cached, backend="cuda")
    with poisoned():
        found = np.asarray(jitted(q, k, v))
    some: Any = [np.ascontiguousarray(part) for part in (q[:, :4], k[:, :2], v[:, :2])]
    assert "attention_parts" in jitted.lower(*some).target
    assert distance(found[:, :4], exact(*some)[0]) <= (1e-5 if dtype is np.float32 else 4e-3)
    with poisoned():
        assert np.asarray(jitted(*some)).tobytes() == np.ascontiguousarray(found[:, :4]).tobytes()
        length = ts.cuda.array(np.array(1700))
        assert np.asarray(over(*some, length)).tobytes() == np.ascontiguousarray(found[:, :4]).tobytes()


def cached(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length))


def cached_causal(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length), causal=True)


def stale(shape: tuple[int, ...], dtype: Any, length: int) -> Any:
    """A cache with NaN where nothing is filled in yet."""
    made = RNG.standard_normal(shape).astype(dtype)
    made[:, :, length:] = np.nan
    return made


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("queries", "head"), [(200, 128), (130, 64), (1, 128), (77, 96)])
def test_a_cache_is_read_to_its_length(queries: int, head: int, is_causal: bool, dtype: Any) -> None:
    """One kernel for all lengths, which are in the device's memory."""
    jitted = ts.jit(cached_causal if is_causal else cached, backend="cuda")
    q = RNG.standard_normal((2, 4, queries, head)).astype(dtype)
    for length in (1, 200, 333, 512, 0):
        k, v = (stale((2, 2, 512, head), dtype, length) for _ in range(2))
        with poisoned():
            found = np.asarray(jitted(q, k, v, ts.cuda.array(np.array(length))))
        if length == 0:
            assert not found.astype(np.float32).any()
            continue
        wanted, _ = exact(q, k[:, :, :length], v[:, :, :length], is_causal)
        assert distance(found, wanted) <= (4e-3 if dtype is not np.float16 else 1e-3)
    assert "ttarget.matrix_kernel" in jitted.lower(q, k, v, np.array(1)).target


@pytest.mark.parametrize(("heads", "shared"), [(16, 2), (3, 3), (70, 1)])
def test_single_queries_to_a_cache_go_over_parts_of_it(heads: int, shared: int) -> None:
    jitted = ts.jit(cached, backend="cuda")
    q = random((2, heads, 1, 128), 3.0)
    for length in (0, 1, 512, 4097, 5000):
        k, v = (stale((2, shared, 5000, 128), ml_dtypes.bfloat16, length) for _ in range(2))
        with poisoned():
            found = np.asarray(jitted(q, k, v, np.array(length)))
        if length == 0:
            assert not found.astype(np.float32).any()
            continue
        assert distance(found, exact(q, k[:, :, :length], v[:, :, :length])[0]) <= 4e-3
    text = jitted.lower(q, k, v, np.array(1)).target
    assert "attention_parts" in text
    assert "ttarget.matrix_kernel" in text


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 2, 2, 33, 39, 64),
        (1, 4, 1, 2, 39, 64),
        (1, 2, 2, 130, 787, 128),
        (2, 4, 1, 32, 32, 192),
        (1, 2, 2, 200, 513, 40),
        (20, 8, 4, 300, 400, 72),
        (9, 4, 4, 300, 300, 256),
        (20, 8, 8, 100, 700, 64),
        (90, 4, 4, 300, 600, 32),
    ],
)
def test_attention_by_threads_has_the_bits_of_the_cpu(shape: tuple[int, ...], is_causal: bool) -> None:
    """Short blocks, last blocks, and rows that two warps share."""
    batch, heads, shared, queries, keys, head = shape
    sizes = (heads, queries), (shared, keys), (shared, keys)
    q, k, v = (RNG.standard_normal((batch, count, length, head)).astype(np.float32) for count, length in sizes)
    function = causal if is_causal else full
    with poisoned():
        found = np.asarray(ts.jit(function, backend="cuda")(q, k, v))
    assert found.tobytes() == np.asarray(ts.jit(function)(q, k, v)).tobytes()


def test_blocks_of_queries_change_no_bit() -> None:
    q, k, v = random((1, 2, 700, 128)), random((1, 2, 900, 128)), random((1, 2, 900, 128))
    for function in (with_lse, causal_with_lse):
        found = set[bytes]()
        for block in (64, 128):
            jitted = ts.jit(function, backend="cuda", overrides={"attention.queries": block})
            found |= {b"".join(np.asarray(part).tobytes() for part in jitted(q, k, v)) for _ in range(3)}
        assert len(found) == 1


def test_keys_that_rows_of_a_wide_block_do_not_see_change_no_bit() -> None:
    """Blocks of 192 queries meet keys that their first rows do not see."""
    q, k, v = (random((3, 8, 1280, 64)) for _ in range(3))
    jitted = [ts.jit(causal_with_lse, backend="cuda", overrides={"attention.queries": block}) for block in (64, 192)]
    found = {b"".join(np.asarray(part).tobytes() for part in one(q, k, v)) for one in jitted}
    assert len(found) == 1


def test_uneven_programs_are_all_taken_each_time() -> None:
    """Programs are given out by a counter: many launches of several sizes in a row, none of which waits."""
    jitted = ts.jit(causal_with_lse, backend="cuda")
    sizes = [(1, 2, 2000), (2, 16, 1100), (1, 1, 130)]
    given = [[random((*size, 128)) for _ in range(3)] for size in sizes]
    wanted = [exact(*arrays, is_causal=True)[0] for arrays in given]
    device = [[ts.cuda.array(array) for array in arrays] for arrays in given]
    found = [[jitted(*arrays) for arrays in device] for _ in range(10)]
    for runs in found:
        for (out, _), exactly in zip(runs, wanted, strict=True):
            assert distance(np.asarray(out), exactly) <= 4e-3


@pytest.mark.parametrize("number", range(16))
def test_all_subsets_of_a_chain_are_one_kernel_and_equal_plain_ops(number: int) -> None:
    """Heads of 64 and of 128, whole and ragged lengths."""
    head, queries, keys = (64, 256, 256) if number % 2 else (128, 300, 333)
    given = operands(queries, keys, head, ml_dtypes.bfloat16)
    fused, plain = both(number, full if number % 3 else causal, backend="cuda")
    with poisoned():
        first, second = np.asarray(fused(*given)), np.asarray(plain(*given))
    assert first.tobytes() == second.tobytes()
    assert np.isfinite(first.astype(np.float64)).all()
    assert len(fused.explain(*given).report["kernels"]) == 1
