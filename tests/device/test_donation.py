"""Tensors donated to calls on a GPU: caches that grow in place, call by call and in a capture."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DonatedError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.memory import POOL

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
RNG = np.random.default_rng(22)
BATCH, HEADS, SHARED, WIDTH, CAPACITY = 2, 8, 2, 64, 4096


def step(x: Any, k: Any, v: Any, cache: Any) -> Any:
    cache = cache.append(k, v)
    return ts.ops.attention(x, cache), cache


def values(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16)


def filled(length: int) -> Any:
    keys, rest = (values(BATCH, SHARED, CAPACITY, WIDTH) for _ in range(2))
    return lambda: ts.KVCache(*map(ts.cuda.array, (keys, rest, np.array(length, np.int64))))


def rows(count: int = 1) -> list[Any]:
    shapes = ((BATCH, HEADS, 1, WIDTH), *[(BATCH, SHARED, count, WIDTH)] * 2)
    return [ts.cuda.array(values(*shape)) for shape in shapes]


def bits(result: Any) -> list[bytes]:
    y, cache = result
    return [np.asarray(one).tobytes() for one in (y, cache.K, cache.V, cache.length)]


@pytest.mark.parametrize("count", [1, 3], ids=["one", "several"])
def test_a_cache_that_is_given_up_grows_where_it_lies(count: int) -> None:
    donating, plain = ts.jit(step, backend="cuda", donate={"cache"}), ts.jit(step, backend="cuda")
    make = filled(CAPACITY - 10)
    given, kept = make(), make()
    places = [given.K.address, given.V.address, given.length.address]
    new, old = rows(count), given
    for turn in range(20):  # the last ones find no room
        new, old = rows(count), given
        mine, other = donating(*new, given), plain(*new, kept)
        assert bits(mine) == bits(other), turn
        given, kept = mine[1], other[1]
        assert [given.K.address, given.V.address, given.length.address] == places
        for tensor in (old.K, old.V, old.length):
            with pytest.raises(DonatedError):
                tensor.numpy()
    with pytest.raises(DonatedError):
        donating(*new, old)


def test_memory_is_that_of_one_cache() -> None:
    donating = ts.jit(step, backend="cuda", donate={"cache"})
    cache, new = filled(5)(), rows()
    _, cache = donating(*new, cache)
    before = POOL.reserved
    for _ in range(30):
        _, cache = donating(*new, cache)
    assert POOL.reserved <= before + (1 << 20)


def test_a_recorded_step_appends_at_each_replay() -> None:
    donating, plain = ts.jit(step, backend="cuda", donate={"cache"}), ts.jit(step, backend="cuda")
    make, new = filled(7), rows()
    donating(*new, make())
    given, kept = make(), make()
    with ts.cuda.capture() as graph:
        y, cache = donating(*new, given)
    for _ in range(6):
        fresh = [values(*tensor.shape) for tensor in new]
        for tensor, value in zip(new, fresh, strict=True):
            ts.cuda.write(tensor, value)
        graph.replay()
        wanted, kept = plain(*map(ts.cuda.array, fresh), kept)
        assert bits((y, cache)) == bits((wanted, kept))
    assert int(cache.length) == 13


def test_rows_are_written_by_index_where_they_lie() -> None:
    def put(x: Any, indices: Any, updates: Any) -> Any:
        return ts.ops.scatter(x, indices, updates)

    donating, plain = ts.jit(put, backend="cuda", donate={"x"}), ts.jit(put, backend="cuda")
    elements = RNG.standard_normal((64, 96)).astype(np.float32)
    x, kept = ts.cuda.array(elements), ts.cuda.array(elements)
    place = x.address
    for _ in range(10):
        given = RNG.integers(-64, 64, (9,)), RNG.standard_normal((9, 96)).astype(np.float32)
        x, kept = donating(x, *map(ts.cuda.array, given)), plain(kept, *map(ts.cuda.array, given))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(kept))
        assert x.address == place


def test_what_torch_knows_is_copied() -> None:
    torch = pytest.importorskip("torch")
    donating = ts.jit(step, backend="cuda", donate={"cache"})
    keys = [torch.randn(BATCH, SHARED, CAPACITY, WIDTH, device="cuda").bfloat16() for _ in range(2)]
    length = torch.tensor(3, device="cuda")
    before = [one.clone() for one in (*keys, length)]
    cache = ts.KVCache(*map(ts.cuda.array, (*keys, length)))
    _, cache = donating(*rows(), cache)
    looked = torch.from_dlpack(cache.K)
    _, after = donating(*rows(), cache)
    assert after.K.address != looked.data_ptr()
    assert all(bool((one == old).all()) for one, old in zip((*keys, length), before, strict=True))
    with pytest.raises(DonatedError):
        cache.K.numpy()
    assert bool(torch.isfinite(looked.float()).all())


def test_one_tensor_is_not_given_up_twice() -> None:
    donating = ts.jit(step, backend="cuda", donate={"cache"})
    cache = filled(3)()
    with pytest.raises(RuntimeArgumentError, match=r"`cache.K` is donated to the call, and `cache.V` is the same"):
        donating(*rows(), ts.KVCache(cache.K, cache.K, cache.length))
    assert np.asarray(cache.K).shape == (BATCH, SHARED, CAPACITY, WIDTH)


def test_a_cache_of_another_stream_changes_streams() -> None:
    donating, plain = ts.jit(step, backend="cuda", donate={"cache"}), ts.jit(step, backend="cuda")
    make, new = filled(3), rows()
    with ts.graph.stream("donors"):
        given = make()
    wanted = bits(plain(*new, make()))
    mine = donating(*new, given)
    assert bits(mine) == wanted
    assert mine[1].K.stream == 0


def test_what_no_result_needs_goes_back_to_the_pool() -> None:
    def total(x: Any) -> Any:
        return ts.ops.sum(x)

    function = ts.jit(total, backend="cuda", donate="x")
    held = POOL.held
    for _ in range(5):
        x = ts.cuda.array(RNG.standard_normal((1 << 20,)).astype(np.float32))
        function(x)
        with pytest.raises(DonatedError):
            x.cpu()
    assert POOL.held <= held + (1 << 16)
