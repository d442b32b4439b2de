"""A row of attention alone has the bits it has in a batch, on a GPU: one query and many, with and without a cache."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.device.test_attention import distance, exact

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

DTYPES = [ml_dtypes.bfloat16, np.float16, np.float32]
SHAPES = [(12, 12, 2048, 1024, 64), (8, 2, 1500, 1437, 128), (6, 1, 700, 700, 80), (4, 4, 512, 300, 256)]
LONG = [(4, 1, 9000, 8700, 64), (16, 2, 40000, 135, 128), (2, 2, 5000, 4609, 80)]
"""Heads of queries and of keys, capacity, filled positions, head dim; and caches whose parts lanes join."""


def cached(q: Any, k: Any, v: Any, length: Any) -> Any:
    return ts.ops.attention(q, ts.KVCache(k, v, length), causal=True)


def split(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, split_keys=True)


def plain(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def bound(dtype: Any, head: int, keys: int) -> float:
    """Half a unit in the last place of two bytes; f32 has the errors of its sums over a head, and over the keys."""
    return {ml_dtypes.bfloat16: 2.0**-8, np.float16: 2.0**-10}.get(dtype, 2.0**-24 * (head + math.sqrt(keys)))


def draw(dtype: Any, batch: int, shape: tuple[int, ...], queries: int, stale: bool) -> list[Any]:
    heads, shared, capacity, filled, head = shape
    rng = np.random.default_rng(capacity + queries)
    sizes = [(batch, heads, queries, head), *[(batch, shared, capacity, head)] * 2]
    q, k, v = (rng.standard_normal(size).astype(dtype) for size in sizes)
    if stale:
        k[:, :, filled:], v[:, :, filled:] = np.nan, np.nan
    return [q, k, v]


@pytest.mark.parametrize("shape", [*SHAPES, *LONG])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_cache_alone_and_in_chunks(dtype: Any, shape: tuple[int, ...]) -> None:
    """Prefill of all rows at once, in chunks, and one by one, of all sequences and of one."""
    batch, queries, filled = 2, 130, shape[3]
    q, k, v = draw(dtype, batch, shape, queries, stale=True)
    jitted = ts.jit(cached, backend="cuda")
    with poisoned():
        whole = np.asarray(jitted(q, k, v, np.array(filled)))
    wanted, _ = exact(q, k[:, :, :filled], v[:, :, :filled], is_causal=True)
    assert distance(whole, wanted) <= bound(dtype, shape[4], filled)
    for first, last in ((0, 128), (128, 130), (60, 70), (0, 1), (64, 65), (129, 130)):
        length = filled - queries + last
        part = np.asarray(jitted(np.ascontiguousarray(q[:, :, first:last]), k, v, np.array(length)))
        assert part.tobytes() == np.ascontiguousarray(whole[:, :, first:last]).tobytes()
        alone = np.asarray(jitted(np.ascontiguousarray(q[1:, :, first:last]), k[1:], v[1:], np.array(length)))
        assert alone.tobytes() == part[1:].tobytes()


@pytest.mark.parametrize("function", [split, plain])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_a_cache(dtype: Any, function: Any) -> None:
    """The last query sees all keys, as it does alone."""
    q, k, v = draw(dtype, 1, (8, 2, 5000, 5000, 64), 130, stale=False)
    jitted: Any = ts.jit(function, backend="cuda")
    with poisoned():
        whole = np.asarray(jitted(q, k, v))
    assert distance(whole, exact(q, k, v, is_causal=True)[0]) <= bound(dtype, 64, 5000)
    for count in (1, 2, 70):
        part = np.asarray(jitted(np.ascontiguousarray(q[:, :, -count:]), k, v))
        assert part.tobytes() == np.ascontiguousarray(whole[:, :, -count:]).tobytes()


def test_queries_of_one_projection() -> None:
    """Queries that are views of a projection, as a decode step has them, are read from it by tensor cores."""

    def attend(qkv: Any, k: Any, v: Any, length: Any) -> Any:
        return ts.ops.attention(ts.ops.split_qkv(qkv, heads=8, kv_heads=2)[0], ts.KVCache(k, v, length))

    q, k, v = draw(ml_dtypes.bfloat16, 3, (8, 2, 1100, 777, 64), 1, stale=True)
    others = np.full((3, 4, 1, 64), np.nan, q.dtype)
    qkv = np.concatenate([q, others], 1).transpose(0, 2, 1, 3).reshape(3, 1, 12 * 64)
    jitted = ts.jit(attend, backend="cuda")
    found = np.asarray(jitted(qkv, k, v, np.array(777)))
    assert found.tobytes() == np.asarray(ts.jit(cached, backend="cuda")(q, k, v, np.array(777))).tobytes()
    assert "ttarget.matrix_kernel" in jitted.lower(qkv, k, v, np.array(777)).target


def symbolic(
    q: ts.Tensor["B", "H", "S", "D"], k: ts.Tensor["B", "G", "T", "D"], v: ts.Tensor["B", "G", "T", "E"]
) -> Any:
    return split(q, k, v)


@pytest.mark.parametrize("queries", [1, 5])
def test_symbolic_heads_and_heads_of_size_zero(queries: int) -> None:
    """A symbolic head dim has the bits of a static one; one of 0 gives means, whatever memory holds beside it."""
    known, free = ts.jit(split, backend="cuda"), ts.jit(symbolic, backend="cuda")
    for head, width in ((40, 40), (96, 96), (0, 3), (3, 0)):
        rng = np.random.default_rng(head)
        sizes = [(1, 2, queries, head), (1, 1, 700, head), (1, 1, 700, width)]
        q, k, v = (rng.standard_normal(size).astype(np.float32) for size in sizes)
        with poisoned():
            found = np.asarray(known(q, k, v))
            assert np.asarray(free(q, k, v)).tobytes() == found.tobytes(), head
        if not head:
            wanted = [v[0, 0, : 701 - queries + row].mean(0) for row in range(queries)]
            np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-5, atol=1e-6)
