"""Ranks in shared memory: bytes arrive whatever their number, and nobody waits for ever."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.diagnostics.codes import RankError
from tessera.ir.base.arrays import Array
from tessera.runtime.ranks import shared_memory, world
from tessera.runtime.ranks.shared_memory import SLOTS, LocalCommunicator, ends_of
from tessera.runtime.ranks.world import Exchange, Handle, mesh_of
from tests.runtime.ranks.threads import on_ranks

POISON = 0xA5
SMALL = 4096  # bytes of a slot, so that a few are many


def send(rank: int, size: int) -> Array:
    return np.random.default_rng(rank).integers(0, 256, size, np.uint8)


def begin(call: str, axis: str, ranks: int, source: Array, target: Array, part: int) -> Handle:
    return world.start(call, axis, ranks, (source.ctypes.data, target.ctypes.data, part), "u8")


@pytest.mark.parametrize("part", [0, 1, 1000, 1001, SMALL - 1, SMALL, SMALL * SLOTS + 17, 100_003])
def test_bytes_arrive_in_the_order_of_ranks(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SLOT", SMALL)
    monkeypatch.setattr(shared_memory, "SMALL", 1000)

    def work(rank: int) -> tuple[Array, Array]:
        source, gathered, exchanged = send(rank, 3 * part), *(np.full(3 * part, POISON, np.uint8) for _ in range(2))
        first = begin("all_gather", "dp", 3, source, gathered, part)
        second = begin("all_to_all", "dp", 3, source, exchanged, part)
        world.wait(second)
        world.wait(first)
        return gathered, exchanged

    for rank, (gathered, exchanged) in enumerate(on_ranks(work, dp=3)):
        sources = [send(one, 3 * part) for one in range(3)]
        np.testing.assert_array_equal(gathered, np.concatenate([one[:part] for one in sources]))
        parts = [one[rank * part : (rank + 1) * part] for one in sources]
        np.testing.assert_array_equal(exchanged, np.concatenate(parts))


@settings(max_examples=15)
@given(
    axes=st.sampled_from([{"dp": 2, "tp": 2}, {"tp": 1, "dp": 3}, {"a": 2, "b": 1, "c": 2}]),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 700_000)), max_size=6),
)
def test_groups_of_a_mesh_do_not_disturb_each_other(axes: dict[str, int], steps: Sequence[tuple[int, int]]) -> None:
    names, mesh = [name for name, size in axes.items() if size > 1], mesh_of(tuple(axes.items()))

    def work(rank: int) -> None:
        in_flight: list[tuple[Handle, Array, Array, str]] = []
        for number, (choice, part) in enumerate(steps):
            axis = names[choice % len(names)]
            source, target = send(rank + 10 * number, part), np.full(axes[axis] * part, POISON, np.uint8)
            in_flight.append((begin("all_gather", axis, axes[axis], source, target, part), source, target, axis))
        for number, (handle, source, target, axis) in enumerate(in_flight):
            world.wait(handle)
            group = mesh.group(axis, rank)
            expected = [send(one + 10 * number, source.size) for one in group]
            np.testing.assert_array_equal(target, np.concatenate(expected) if expected else target)

    assert on_ranks(work, **axes) == [None] * mesh.size


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_mesh_has_each_rank_once_in_the_groups_of_an_axis(sizes: Sequence[int]) -> None:
    mesh = mesh_of(tuple((f"a{at}", size) for at, size in enumerate(sizes)))
    ranks = range(mesh.size)
    for axis, size in mesh.axes:
        groups = {mesh.group(axis, rank) for rank in ranks}
        assert sorted(rank for group in groups for rank in group) == list(ranks)
        assert all(len(group) == size for group in groups)
        assert all(mesh.group(axis, rank)[mesh.position(axis, rank)] == rank for rank in ranks)
    positions = {tuple(mesh.position(axis, rank) for axis, _ in mesh.axes) for rank in ranks}
    assert len(positions) == mesh.size


def messages(found: Sequence[RankError]) -> str:
    return "\n".join(str(one) for one in found if isinstance(one, RankError))  # pyright: ignore[reportUnnecessaryIsInstance]


def test_a_rank_that_does_not_come_is_named_after_a_time() -> None:
    x, out = np.zeros(8, np.uint8), np.zeros(24, np.uint8)
    both = threading.Barrier(2)

    def work(rank: int) -> None:
        if rank != 1:
            both.wait(20)
            world.wait(begin("all_gather", "dp", 3, x, out, 8))

    found = on_ranks(work, 0.5, dp=3)
    assert found[1] is None
    assert "rank 1 did not come to `all_gather` of 8 bytes of u8 along `dp` within 0.5 s" in messages(found)


def test_a_rank_that_leaves_is_named_at_once_and_says_why() -> None:
    x, out = np.zeros(8, np.uint8), np.zeros(24, np.uint8)

    def work(rank: int) -> None:
        if rank == 1:
            raise ValueError("no more")
        world.wait(begin("all_gather", "dp", 3, x, out, 8))

    found = on_ranks(work, dp=3)
    assert isinstance(found[1], ValueError)
    assert all("left while rank" in str(found[rank]) for rank in (0, 2))
    assert "rank 1 said: rank 1 has left: no more" in messages(found)


def test_ranks_at_different_collectives_are_told_apart() -> None:
    x, out = np.zeros(8, np.uint8), np.zeros(16, np.uint8)

    def work(rank: int) -> None:
        world.wait(begin("all_gather", "dp", 2, x, out, 8 if rank else 4))

    found = on_ranks(work, dp=2)
    assert all(isinstance(one, RankError) for one in found)
    # Whoever sees it first says it.
    said = r"is at `all_gather` of (\d) bytes of u8 along `dp`, and this rank is at `all_gather` of (\d) bytes"
    assert {frozenset(pair) for pair in re.findall(said, messages(found))} == {frozenset("48")}


def test_what_is_abandoned_touches_no_memory_any_more() -> None:
    ends = ends_of(2)
    first, second = (LocalCommunicator(one, 20.0) for one in ends)
    x, out = np.ones(8, np.uint8), np.full(16, POISON, np.uint8)
    handle = first.start(Exchange("all_gather", (0, 1), x.ctypes.data, out.ctypes.data, 8, "it"))
    first.abandon("enough")
    before = out.copy()
    late = np.zeros(16, np.uint8)
    other = second.start(Exchange("all_gather", (0, 1), x.ctypes.data, late.ctypes.data, 8, "it"))
    with pytest.raises(RankError, match="rank 0 left while rank 1 was at it"):
        second.wait(other)
    with pytest.raises(RankError, match="rank 0 has left: enough"):
        first.wait(handle)
    with pytest.raises(RankError, match="rank 0 has left: enough"):
        first.wait(first.start(Exchange("all_gather", (0, 1), x.ctypes.data, out.ctypes.data, 8, "it")))
    np.testing.assert_array_equal(out, before)
    second.abandon("the end")


def test_what_a_rank_has_sent_arrives_though_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all it needs and its process ends, while another has read nothing yet of what it was send."""
    monkeypatch.setattr(shared_memory, "SLOT", SMALL)
    monkeypatch.setattr(shared_memory, "SMALL", 1000)
    part, ended = 3 * SMALL, threading.Event()
    first, second = (LocalCommunicator(one, 20.0) for one in ends_of(2))
    listen = first._listen  # pyright: ignore[reportPrivateUsage]

    def late(*arguments: Any) -> bool:
        ended.wait(20)
        return listen(*arguments)

    monkeypatch.setattr(first, "_listen", late)
    targets = [np.full(2 * part, POISON, np.uint8) for _ in range(2)]
    sources = [send(rank, part) for rank in range(2)]
    begun = [
        one.start(Exchange("all_gather", (0, 1), source.ctypes.data, target.ctypes.data, part, "it"))
        for one, source, target in zip((first, second), sources, targets, strict=True)
    ]
    second.wait(begun[1])
    for peer in second._peers.values():  # pyright: ignore[reportPrivateUsage]
        peer.end.close()
    ended.set()
    first.wait(begun[0])
    for target in targets:
        np.testing.assert_array_equal(target, np.concatenate(sources))
    first.abandon("the end")


def two(seconds: float = 20.0) -> list[LocalCommunicator]:
    return [LocalCommunicator(one, seconds) for one in ends_of(2)]


def gather(one: LocalCommunicator, source: Array, target: Array, what: str = "it") -> Handle:
    return one.start(Exchange("all_gather", (0, 1), source.ctypes.data, target.ctypes.data, source.size, what))


@pytest.mark.parametrize("size", [0, 1, shared_memory.SMALL, shared_memory.SMALL + 1, shared_memory.QUICK])
def test_a_small_exchange_needs_no_thread_and_keeps_nobody_waiting(size: int) -> None:
    first, second = two()
    sources, targets = [send(rank, size) for rank in range(2)], [np.full(2 * size, POISON, np.uint8) for _ in range(2)]
    for _ in range(3 * SLOTS):  # slots come back
        early = gather(first, sources[0], targets[0])
        late = gather(second, sources[1], targets[1])
        second.wait(late)  # the first has started, and waits later
        first.wait(early)
    for one, target in zip((first, second), targets, strict=True):
        np.testing.assert_array_equal(target, np.concatenate(sources))
        assert one._thread is None  # pyright: ignore[reportPrivateUsage]
        one.abandon("the end")


def test_a_small_exchange_is_the_threads_where_another_is_started_before_its_wait() -> None:
    first, second = two()
    sizes = (8, shared_memory.QUICK + 1, 8)
    buffers: list[list[tuple[Array, Array]]] = [
        [(send(rank + 2 * at, size), np.zeros(2 * size, np.uint8)) for at, size in enumerate(sizes)]
        for rank in range(2)
    ]
    handles = [[gather(one, *pair) for pair in own] for one, own in zip((first, second), buffers, strict=True)]
    for one, own in zip((first, second), handles, strict=True):
        for handle in reversed(own):
            one.wait(handle)
    for at in range(len(sizes)):
        expected = np.concatenate([buffers[rank][at][0] for rank in range(2)])
        for rank in range(2):
            np.testing.assert_array_equal(buffers[rank][at][1], expected)
    for one in (first, second):
        assert one._thread is not None  # pyright: ignore[reportPrivateUsage]
        one.abandon("the end")


def test_a_small_exchange_that_is_abandoned_touches_nothing() -> None:
    first, second = two()
    source, target = send(0, 8), np.full(16, POISON, np.uint8)
    handle = gather(first, source, target)
    first.abandon("enough")
    before = target.copy()
    other = np.zeros(16, np.uint8)
    with pytest.raises(RankError, match="rank 0 left while rank 1 was at it"):
        second.wait(gather(second, source, other))
    with pytest.raises(RankError, match="rank 0 has left: enough"):
        first.wait(handle)
    np.testing.assert_array_equal(target, before)
    second.abandon("the end")


def test_abandoning_stops_whoever_waits_for_a_small_exchange() -> None:
    first, second = two()
    source, target = send(0, 8), np.zeros(16, np.uint8)
    handle, raised = gather(first, source, target), list[BaseException]()

    def wait() -> None:
        try:
            first.wait(handle)
        except RankError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    first.abandon("enough")
    waiting.join(20)
    assert "rank 0 has left: enough" in str(raised[0])
    second.abandon("the end")
