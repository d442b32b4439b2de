"""`jit(donate=...)` on the CPU: results in the memory of what was donated, and what becomes of the rest."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import kv_cache
from tessera.diagnostics.codes import ArgumentError, DonatedError, GuardError, LoadError, RuntimeArgumentError
from tessera.ir.base.tape import tape_hash
from tessera.runtime.donation import Donation, consume
from tessera.runtime.tensor import native

RNG = np.random.default_rng(5)
SHAPE = (1, 2, 32, 16)


def rows(count: int = 1) -> Any:
    return ts.array(RNG.standard_normal((1, 2, count, 16)).astype(np.float32))


def cache(length: int = 3) -> Any:
    keys = [RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(2)]

    def make() -> Any:
        # Results of a program are memory of our own.
        own = [ts.array(key) + 0.0 for key in keys]
        return ts.KVCache(own[0], own[1], ts.array(length, ts.i64) + 0)

    return make


def append(cache: Any, k: Any, v: Any) -> Any:
    return cache.append(k, v)


@ts.jit
def double(x: Any) -> Any:
    return x * 2.0


def contents(cache: Any) -> list[bytes]:
    return [np.asarray(one).tobytes() for one in (cache.K, cache.V, cache.length)]


def test_a_donated_cache_grows_in_its_own_memory() -> None:
    donating, plain, make = ts.jit(append, donate={"cache"}), ts.jit(append), cache()
    given, kept = make(), make()
    places = [given.K.address, given.V.address, given.length.address]
    for _ in range(5):
        k, v = rows(5), rows(5)
        given, kept = donating(given, k, v), plain(kept, k, v)
        assert contents(given) == contents(kept)
        assert [given.K.address, given.V.address, given.length.address] == places
    program: Any = donating.specializations[0].loaded
    assert program.executable.metadata["donated"]["kept"] == [[0, 0], [1, 1], [2, 2]]


def test_arrays_of_gpus_that_were_donated_are_given_to_nobody() -> None:
    class OfGPU:
        owner: Any = "caller"

        def give_to(self, owner: Any) -> None:
            self.owner = owner

    first, second, third = OfGPU(), OfGPU(), np.zeros(3)
    consume([first, second, third], [1, 2])
    assert (first.owner, second.owner) == ("caller", None)


def test_what_was_donated_is_gone_for_every_reader() -> None:
    donating, given = ts.jit(append, donate="cache"), cache()()
    donating(given, rows(), rows())
    keys = given.K
    ways = (
        lambda: keys.numpy(),
        lambda: np.asarray(keys),
        lambda: keys + 1.0,
        lambda: keys.tolist(),
        lambda: keys.__dlpack__(),
        lambda: keys.__array_interface__,
        lambda: keys[0],
        lambda: double(keys),
        lambda: donating(given, rows(), rows()),
    )
    for way in ways:
        with pytest.raises(DonatedError, match=r"\[1, 2, 32, 16\] f32 is used that was donated to a call"):
            way()
    assert keys.shape == SHAPE


def test_arrays_of_numpy_are_never_written_over() -> None:
    donating = ts.jit(append, donate={"cache"})
    keys = RNG.standard_normal(SHAPE).astype(np.float32)
    before = keys.copy()
    made = donating(ts.KVCache(keys, keys.copy(), np.array(3)), rows(), rows())
    np.testing.assert_array_equal(keys, before)
    assert not np.array_equal(np.asarray(made.K), keys)
    shared = ts.KVCache(ts.Tensor.of(keys), ts.Tensor.of(keys.copy()), ts.array(3, ts.i64))
    donating(shared, rows(), rows())
    np.testing.assert_array_equal(keys, before)
    with pytest.raises(DonatedError):
        shared.K.numpy()


def test_who_looked_at_it_before_keeps_the_memory() -> None:
    donating, given = ts.jit(append, donate={"cache"}), cache()()
    looked = np.asarray(given.K)
    made = donating(given, rows(), rows())
    wanted = np.asarray(made.K).copy()
    del given, made
    gc.collect()
    others = [rows(32) for _ in range(20)]
    np.testing.assert_array_equal(looked, wanted)
    assert len(others) == 20


def test_a_tensor_is_donated_once() -> None:
    donating, given = ts.jit(append, donate={"cache"}), cache()()
    with pytest.raises(
        RuntimeArgumentError, match=r"`cache.K` is donated to the call, and `cache.V` is the same memory"
    ):
        donating(ts.KVCache(given.K, given.K, given.length), rows(), rows())
    assert np.isfinite(np.asarray(given.K)).all()


SPANS = {
    "from below": (64, 192, True),
    "from above": (192, 320, True),
    "inside": (140, 150, True),
    "around": (0, 512, True),
    "one byte below": (0, 129, True),
    "one byte above": (255, 300, True),
    "the same": (128, 256, True),
    "ends where it starts": (0, 128, False),
    "starts where it ends": (256, 300, False),
}


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("number", [0, 1])
def test_memory_that_overlaps_in_any_way_is_not_donated(name: str, number: int) -> None:
    low, high, is_shared = SPANS[name]
    spans = [(128, 256), (low, high)] if number == 0 else [(low, high), (128, 256)]
    donation = Donation((number,), ())
    if not is_shared:
        donation.check(["x", "y"], spans)
        return
    with pytest.raises(RuntimeArgumentError, match=f"`{'xy'[number]}` is donated .* `{'yx'[number]}` is the same"):
        donation.check(["x", "y"], spans)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_cache_that_is_full_is_refused_before_it_is_donated(dynamic: bool) -> None:
    def twice(cache: Any, k: Any, v: Any) -> Any:
        return cache.append(k, v).prefetch().append(k[:, :, :1], v[:, :, :1])

    donating, given = ts.jit(twice, donate={"cache"}, dynamic=dynamic), cache(3)()
    for count in (20, 4):
        given = donating(given, rows(count), rows(count))
    before = contents(given)  # 3 + 21 + 5 of 32
    for count in (4, 3, 20):  # by the fast path, and by the long one of a signature that is new
        with pytest.raises(GuardError, match=f"capacity of 32 positions cannot hold {30 + count}") as caught:
            donating(given, rows(count), rows(count))
        assert "is gone" not in str(caught.value)
        assert contents(given) == before
    assert int(donating(given, rows(2), rows(2)).length) == 32
    with pytest.raises(DonatedError, match="f32 is used"):
        donating(given, rows(9), rows(9))


def test_specializations_have_their_own_capacity_check() -> None:
    donating, full, wide = ts.jit(append, donate={"cache"}), cache(32)(), ts.KVCache.empty(1, 2, 64, 16)
    given = cache(30)()
    given = donating(given, rows(2), rows(2))
    for _ in range(31):
        wide = donating(wide, rows(2), rows(2))
    assert int(donating(wide, rows(1), rows(1)).length) == 63
    with pytest.raises(GuardError, match="cannot hold 33"):
        donating(full, rows(1), rows(1))


def test_what_is_seen_too_late_says_that_the_cache_is_gone() -> None:
    def append_thrice(cache: Any, k: Any) -> Any:
        return ts.fori_loop(0, 3, lambda _, held: held.append(k, k), cache)

    donating, given = ts.jit(append_thrice, donate={"cache"}), cache(31)()
    with pytest.raises(GuardError, match=r"cannot hold 34[\s\S]*what `donate` names was donated .* and is gone"):
        donating(given, rows())
    with pytest.raises(DonatedError):
        given.K.numpy()


def test_the_reference_takes_what_it_is_given() -> None:
    donating, given, array = (
        ts.jit(append, donate={"cache"}, backend="reference"),
        cache()(),
        np.zeros(SHAPE, np.float32),
    )
    k, v = rows(), rows()
    wanted = contents(append(given, k, v))
    with pytest.raises(RuntimeArgumentError, match=r"is donated to the call, and `cache\.V` is the same memory"):
        donating(ts.KVCache(given.K, given.K, given.length), k, v)
    made = donating(given, k, v)
    assert contents(made) == wanted
    for way in (given.K.numpy, given.V.tolist, lambda: donating(given, k, v)):
        with pytest.raises(DonatedError):
            way()
    assert contents(donating(made, k, v)) != wanted
    assert int(donating(ts.KVCache(array, array.copy(), ts.array(0, ts.i64)), k, v).length) == 1
    assert not array.any()


def test_a_reference_that_gives_its_argument_back_keeps_the_memory() -> None:
    def flat(x: Any) -> Any:
        return x.reshape(-1)

    function = ts.jit(flat, donate={"x"}, backend="reference")
    x = rows(4) + 0.0
    elements = np.asarray(x).copy()
    found = function(x)
    del x
    gc.collect()
    assert len([rows(32) for _ in range(20)]) == 20
    np.testing.assert_array_equal(np.asarray(found), elements.reshape(-1))


def test_a_donated_number_counts_up_in_its_own_memory() -> None:
    def count_up(n: Any, x: Any) -> Any:
        return n + 1, x * n.cast(ts.f32)

    function = ts.jit(count_up, donate={"n"})
    n = ts.array(4, ts.i64) + 0
    place, x = n.address, rows()
    for at in range(4, 9):
        n, y = function(n, x)
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x) * np.float32(at))
        assert (int(n), n.address) == (at + 1, place)


@pytest.mark.parametrize("function", [ts.ops.scatter, ts.ops.scatter_add], ids=["set", "add"])
def test_rows_are_written_by_index_where_they_lie(function: Any) -> None:
    def put(x: Any, indices: Any, updates: Any) -> Any:
        return function(x, indices, updates)

    donating, plain = ts.jit(put, donate={"x"}), ts.jit(put)
    x, kept = (ts.array(np.arange(40, dtype=np.float32).reshape(10, 4)) + 0.0 for _ in range(2))
    place = x.address
    for _ in range(3):
        indices, updates = RNG.integers(-10, 10, (6,)), RNG.standard_normal((6, 4)).astype(np.float32)
        x, kept = donating(x, indices, updates), plain(kept, indices, updates)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(kept))
        assert x.address == place


def test_an_argument_that_is_returned_is_not_copied() -> None:
    def same(x: Any, y: Any) -> Any:
        return x.reshape(-1), y + 1.0

    function = ts.jit(same, donate={"x"})
    x = rows(4) + 0.0
    place, elements = x.address, np.asarray(x).copy()
    found, _ = function(x, rows())
    assert found.address == place
    assert found.shape == (128,)
    np.testing.assert_array_equal(np.asarray(found), elements.reshape(-1))


def test_what_is_kept_is_another_program() -> None:
    plain, donating = (ts.jit(append, donate=names).trace(cache()(), rows(), rows()).tape for names in ((), {"cache"}))
    assert ts.jit(append).options == ts.jit(append, donate={"cache"}).options
    assert tape_hash(plain) != tape_hash(donating)


@pytest.mark.parametrize("names", ["other", ("cache", "other"), {"length"}])
def test_only_parameters_with_tensors_are_donated(names: Any) -> None:
    with pytest.raises(ArgumentError, match="takes names of parameters with tensors as `donate`"):
        ts.jit(append, donate=names)
    with pytest.raises(ArgumentError, match="takes `donate` as strings"):
        ts.jit(append, donate=3)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_inside_of_another_function_nothing_is_donated() -> None:
    inner = ts.jit(append, donate={"cache"})

    @ts.jit
    def outer(cache: Any, k: Any) -> Any:
        return inner(cache, k, k).K, cache.K

    given, k = cache()(), rows()
    new, old = outer(given, k)
    np.testing.assert_array_equal(np.asarray(old), np.asarray(given.K))
    assert not np.array_equal(np.asarray(new), np.asarray(old))


def test_a_call_that_raises_midway_leaves_nothing_that_looks_complete() -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no")

    def put(x: Any, indices: Any, updates: Any) -> Any:
        new = ts.ops.scatter(x, indices, updates)
        return new, ts.io_callback(refuse, new.sum(), result=ts.Tensor[ts.f32])

    function = ts.jit(put, donate={"x"})
    x, array = ts.ones((4, 2)) + 0.0, np.ones((4, 2), np.float32)
    for given in (x, array):
        with pytest.raises(ValueError, match="no"):
            function(given, np.array([1]), np.zeros((1, 2), np.float32))
    with pytest.raises(DonatedError):
        x.tolist()
    np.testing.assert_array_equal(array, 1.0)


def test_a_call_that_is_refused_takes_nothing() -> None:
    donating = ts.jit(append, donate={"cache"})
    given = donating(cache()(), rows(), rows())
    before = contents(given)
    with pytest.raises(ts.TesseraError):
        donating(given, rows(2), ts.ones((1, 3, 2, 16)))
    assert contents(given) == before


def test_memory_stays_what_it_is_through_many_calls() -> None:
    donating, held = ts.jit(double, donate="x"), ts.ones((256,))
    for _ in range(3):
        held = donating(held)
    gc.collect()
    address, before = held.address, native().memory.in_use
    for _ in range(50):
        held = donating(held)
    gc.collect()
    assert held.address == address
    assert native().memory.in_use == before


@pytest.mark.parametrize("dynamic", [False, True])
def test_of_a_capacity_that_is_known_one_number_is_read_at_each_call(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    donating: Any = ts.jit(append, donate={"cache"}, dynamic=dynamic)
    given = donating(cache(3)(), rows(), rows())
    (growth,) = donating.specializations[0]._capacity.growths
    assert (growth.known is None, growth.capacity is None) == (dynamic, dynamic)
    asked: list[Any] = []
    length = kv_cache.known_length

    def known_length(one: Any) -> int | None:
        asked.append(one)
        return length(one)

    monkeypatch.setattr(kv_cache, "known_length", known_length)
    capacity = donating.specializations[0]._capacity
    assert capacity.is_enough([given.K, given.V, given.length, rows(), rows()])
    assert len(asked) == int(dynamic)
    while int(given.length) < given.K.shape[2]:
        given = donating(given, rows(), rows())
    with pytest.raises(GuardError):
        donating(given, rows(), rows())
    assert int(given.length) == given.K.shape[2]  # it is still whole


@pytest.mark.parametrize(
    ("donated", "is_whole"),
    [
        ({"given": [0, 1], "kept": [[0, 1]]}, True),
        ({"given": [], "kept": []}, True),
        ({"given": [2], "kept": []}, False),
        ({"given": [-1], "kept": []}, False),
        ({"given": [0], "kept": [[1, 0]]}, False),
        ({"given": [0], "kept": [[-1, 0]]}, False),
        ({"given": [0], "kept": [[0, 2]]}, False),
        ({"given": [0], "kept": [[0, -1]]}, False),
        ({"given": [0], "kept": [[0]]}, False),
        ({"given": 0, "kept": []}, False),
        ({"given": [0]}, False),
        ([0], False),
    ],
)
def test_an_executable_donates_arguments_that_it_has_to_results_that_it_has(donated: Any, is_whole: bool) -> None:
    executable: Any = SimpleNamespace(metadata={"donated": donated}, inputs=("x", "y"), outputs=("z",))
    if is_whole:
        pairs = tuple((result, argument) for result, argument in donated["kept"])
        assert Donation.of(executable) == Donation(tuple(donated["given"]), pairs)
    else:
        with pytest.raises(LoadError, match="executable is damaged: it donates"):
            Donation.of(executable)


@pytest.mark.parametrize(
    ("spans", "shared"),
    [
        ([(0, 8), (8, 16), (16, 24)], None),
        ([(8, 16), (0, 8), (16, 24)], None),
        ([(8, 16), (0, 8), (0, 8)], None),
        ([(8, 16), (16, 24), (16, 24)], None),
        ([(8, 16), (0, 9), (16, 24)], "b"),
        ([(8, 16), (16, 24), (15, 16)], "c"),
        ([(8, 16), (8, 16), (8, 16)], "b"),
        ([(8, 16), (0, 24), (24, 32)], "b"),
    ],
)
def test_what_is_donated_shares_no_byte_with_another(spans: list[tuple[int, int]], shared: str | None) -> None:
    donation = Donation((0,), ())
    if shared is None:
        donation.check("abc", spans)
    else:
        with pytest.raises(RuntimeArgumentError, match=f"`a` is donated .*`{shared}` is the same memory"):
            donation.check("abc", spans)
