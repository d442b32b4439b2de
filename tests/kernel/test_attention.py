"""Attention in the language: the online softmax, causal masks, shared heads, and the kernels of the documents."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Schedule
from tessera.diagnostics.codes import KernelError, NumericsError
from tests.kernel import document, kernels
from tests.kernel.compare import agree, arrays, attention

RNG = np.random.default_rng(1)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(1, 1), (33, 33), (70, 130), (1, 257)], ids=str)
def test_flash_attention_of_ragged_lengths_equals_the_definition(lengths: tuple[int, int], causal: bool) -> None:
    S, L = lengths
    q, k, v = normal(2, S, 16), normal(2, L, 16), normal(2, L, 16)
    (found,) = agree(kernels.flash, q, k, v, ulps=8, causal=causal)
    np.testing.assert_allclose(found, attention(q, k, v, causal=causal), atol=2e-6)


@pytest.mark.parametrize("n", [16, 37, 48, 64])
def test_any_split_into_blocks_gives_the_softmax_of_the_whole(n: int) -> None:
    q, k, v = normal(1, 20, 8), normal(1, 100, 8), normal(1, 100, 8)
    split = kernels.flash.with_schedule(Schedule(block=(32, n)))
    np.testing.assert_allclose(arrays(split(q, k, v))[0], attention(q, k, v), atol=2e-6)


def test_fused_dims_are_joined_and_results_taken_apart() -> None:
    q, k, v = normal(2, 3, 20, 8), normal(2, 3, 40, 8), normal(2, 3, 40, 8)
    found = kernels.flash(q, k, v, causal=True)
    assert found.shape == (2, 3, 20, 8)
    flat = kernels.flash(q.reshape(6, 20, 8), k.reshape(6, 40, 8), v.reshape(6, 40, 8), causal=True)
    np.testing.assert_array_equal(np.asarray(found).reshape(6, 20, 8), np.asarray(flat))


def test_dims_of_one_fused_name_must_agree_and_both_are_named() -> None:
    with pytest.raises(ts.TesseraError, match=r"v.shape\[0\]"):
        kernels.flash(normal(6, 20, 8), normal(3, 40, 8), normal(2, 40, 8))


def test_masked_blocks_are_left_out_of_the_loop() -> None:
    program = kernels.flash.program(normal(1, 200, 8), normal(1, 300, 8), normal(1, 300, 8), causal=True)
    text = program.text()
    assert "max(0, min(300, _m + 164))" in text


def reference(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    return attention(q, k, v, causal=causal)


def make_cache(capacity: int, k: Any, v: Any) -> Any:
    batch, heads, _, size = k.shape
    return ts.KVCache.empty(batch, heads, capacity, size, ts.bf16).append(ts.array(k), ts.array(v))


@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_of_the_document_reads_the_filled_part_of_a_cache(causal: bool) -> None:
    q = normal(2, 2, 40, 64, dtype=ml_dtypes.bfloat16)
    k, v = (normal(2, 2, 170, 64, dtype=ml_dtypes.bfloat16) for _ in range(2))
    cache = make_cache(200, k, v)
    for function in (document.flash_attention, document.small_attention, document.memory_limited_attention):
        found = function(ts.array(q), cache, dropout=0.0, causal=causal)
        assert found.dtype is ts.bf16
        np.testing.assert_allclose(arrays(found)[0], reference(q, k, v, causal=causal), atol=4e-3)
    chosen = document.flash_attention.tuning
    assert chosen is not None
    assert chosen.pinned == ("n",)
    assert {schedule.n for schedule, _ in chosen.trials} == {64}


def test_dropout_in_a_kernel_has_one_mask_whatever_the_blocks() -> None:
    q = normal(1, 1, 40, 64, dtype=ml_dtypes.bfloat16)
    k, v = (normal(1, 1, 50, 64, dtype=ml_dtypes.bfloat16) for _ in range(2))
    cache, key = make_cache(64, k, v), ts.random.key(7)
    kept = document.small_attention(ts.array(q), cache, dropout=0.25, causal=False, key=key)
    again = document.small_attention.interpret(ts.array(q), cache, dropout=0.25, causal=False, key=key)
    np.testing.assert_allclose(arrays(kept)[0], arrays(again)[0], atol=1e-2)
    other = document.small_attention.with_schedule(Schedule(block=(16, 64)))
    np.testing.assert_array_equal(
        arrays(other(ts.array(q), cache, dropout=0.25, causal=False, key=key))[0], arrays(kept)[0]
    )
    with pytest.raises(KernelError, match="no random key"):
        document.small_attention(ts.array(q), cache, dropout=0.25, causal=False)


def test_the_score_of_the_document_is_verified() -> None:
    q, k = normal(50, 32), normal(70, 32)
    np.testing.assert_allclose(arrays(document.attention_score(q, k))[0], q @ k.T / np.sqrt(32), atol=1e-5)
    with pytest.raises(NumericsError, match="out of bounds") as raised:
        document.attention_score(q * 100, k)
    assert "`bounded` asks for -100..100" in str(raised.value)
    with pytest.raises(NumericsError, match="not finite"):
        document.attention_score(q * np.inf, k)
