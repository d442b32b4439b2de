"""Caches as users hold them: what lies beyond the length is not read, and a length fits the capacity."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import GuardError, ShapeError, TracingError

ONE = np.ones((1, 1, 1, 4), np.float32)


def stale(filled: int, capacity: int = 8) -> ts.KVCache:
    """A cache of ones, with NaN where nothing is filled in yet."""
    rows = np.full((1, 1, capacity, 4), np.nan, np.float32)
    rows[:, :, :filled] = 1.0
    return ts.KVCache(rows, rows.copy(), np.array(filled))


def rows(count: int) -> Any:
    return ts.ones((1, 1, count, 4))


@ts.jit
def attend(q: Any, cache: Any) -> Any:
    return ops.attention(q, cache)


@ts.jit
def append_rows(cache: Any, k: Any) -> Any:
    return cache.append(k, k)


@ts.jit
def lengthen(cache: Any, k: Any) -> Any:
    return cache.append(k, k).length


@pytest.mark.parametrize("filled", [0, 1, 3, 8])
def test_garbage_beyond_the_length_does_not_enter(filled: int) -> None:
    # Equal weights are no powers of two, and their sums with and without values are rounded apart.
    for found in (attend(ONE, stale(filled)), ops.attention(ONE, stale(filled), causal=True)):
        np.testing.assert_allclose(np.asarray(found), ONE * (filled > 0), rtol=1e-6)


def test_garbage_beyond_the_length_does_not_enter_derivatives() -> None:
    @ts.jit
    def differentiate(q: Any, cache: Any, tangents: Any) -> Any:
        def total(q: Any, k: Any, v: Any) -> Any:
            return (ops.attention(q, ts.KVCache(k, v, cache.length)) * np.arange(4, dtype=np.float32)).sum()

        gradients = ts.grad(total, argnums=(0, 1, 2))(q, cache.K, cache.V)
        return (*gradients, ts.jvp(total, (q, cache.K, cache.V), tangents)[1])

    garbage = stale(3)
    rows = np.asarray(garbage.K)
    clean = ts.KVCache(np.nan_to_num(rows), np.nan_to_num(rows), np.array(3))
    expected = differentiate(ONE, clean, (ONE, np.asarray(clean.K), np.asarray(clean.V)))
    for found, wanted in zip(differentiate(ONE, garbage, (ONE, rows, rows)), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_rows_fill_a_cache_to_its_end() -> None:
    for cache in (
        ts.KVCache.empty(1, 1, 2, 4).append(rows(2), rows(2)),
        append_rows(ts.KVCache.empty(1, 1, 2, 4), rows(2)),
    ):
        assert int(cache.length) == 2
        np.testing.assert_array_equal(np.asarray(cache.K), np.ones((1, 1, 2, 4)))


def test_rows_beyond_the_capacity_are_refused() -> None:
    cache = ts.KVCache.empty(1, 1, 2, 4)
    with pytest.raises(GuardError, match="capacity of 2 positions cannot hold 3") as caught:
        cache.append(rows(3), rows(3))
    assert caught.value.code == "T0702"
    assert caught.value.fix is not None
    with pytest.raises(GuardError, match="capacity of 2 positions cannot hold 3"):
        append_rows(cache, rows(3))
    assert int(lengthen(cache, rows(3))) == 3


def test_there_are_as_many_values_as_keys() -> None:
    cache = ts.KVCache.empty(1, 1, 8, 4)
    for append in (cache.append, ts.jit(cache.append)):
        with pytest.raises(ShapeError, match=r"as many values as keys: .* = 3` and .* = 2` differ") as caught:
            append(rows(3), rows(2))
        assert caught.value.span is not None


@pytest.mark.parametrize("length", [-5, 9, np.array(-1), ts.array(9), ts.array(-2), ts.array(9).cast(ts.i32)])
def test_lengths_are_of_positions_that_there_are(length: Any) -> None:
    with pytest.raises(GuardError):
        ts.KVCache(np.zeros((1, 1, 8, 4), np.float32), np.zeros((1, 1, 8, 4), np.float32), length)


def test_a_value_that_a_mask_hides_is_multiplied_by_zero() -> None:
    k, v = np.ones((1, 1, 2, 4), np.float32), np.ones((1, 1, 2, 4), np.float32)
    v[:, :, 1] = 5.0
    mask = np.array([True, False])
    np.testing.assert_array_equal(np.asarray(ops.attention(ONE, k, v, mask)), ONE)
    v[:, :, 1] = np.inf
    assert np.isnan(np.asarray(ops.attention(ONE, k, v, mask))).all()


def test_a_cache_may_be_the_first_thing_that_is_made() -> None:
    code = "import tessera as ts; assert ts.KVCache.empty(1, 1, 2, 4).shape == (1, 1, 2, 4)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("op", "rate"), [("attention", None), ("flash_attention", 0.0), ("flash_attention", 0.5)])
def test_a_mask_over_a_cache_is_refused(op: str, rate: float | None) -> None:
    """It would be lost: what a cache hides is decided by its length, and by `causal`."""
    q, mask = np.ones((1, 1, 2, 4), np.float32), np.full((2, 8), -np.inf, np.float32)
    more = {} if rate is None else {"dropout": rate}

    def attend_masked(q: Any, cache: Any, mask: Any) -> Any:
        return getattr(ts.ops, op)(q, cache, mask=mask, **more)

    for call in (attend_masked, ts.jit(attend_masked)):
        with pytest.raises(TracingError, match=f"`{op}` over a cache takes no mask") as caught:
            call(q, stale(4), mask)
        assert f"{op}(q, cache.K, cache.V, mask)" in str(caught.value)
