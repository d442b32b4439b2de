"""Algorithms of collectives: all of them move the same bytes to the same places, and a table says which is taken."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import shared_memory, world
from tessera.runtime.ranks.algorithms import ALGORITHMS, DIRECT, RING, TREE, Step, Table, steps_of
from tessera.runtime.ranks.shared_memory import LocalCommunicator, ends_of
from tessera.runtime.ranks.world import Exchange
from tests.runtime.ranks.test_shared_memory import POISON, begin, send
from tests.runtime.ranks.threads import on_ranks

CASES = [(call, algorithm) for call, found in ALGORITHMS.items() for algorithm in found]


class Player:
    """Ranks that do their steps by turns, with a box of messages between every two of them."""

    def __init__(self, call: str, algorithm: str, ranks: int) -> None:
        self.call, self.ranks, self.messages = call, ranks, 0
        self.steps = [list(steps_of(call, algorithm, at, ranks)) for at in range(ranks)]
        self.targets: list[list[object]] = [[None] * ranks for _ in range(ranks)]
        for at in range(ranks):
            self.targets[at][at] = self.block(at, at)
        self.boxes: dict[tuple[int, int], list[list[object]]] = {}
        self.has_sent = [False] * ranks

    def block(self, at: int, number: int) -> object:
        """What a rank sends as a block."""
        return (at, number) if self.call == "all_to_all" else self.targets[at][number] if number != at else at

    def send(self, at: int) -> None:
        step: Step = () if self.has_sent[at] else self.steps[at][0]
        for move in step:
            first, count = move.sends
            blocks = [self.block(at, number) for number in range(first, first + count)]
            assert None not in blocks, "what it sends it has by then"
            if blocks:
                self.boxes.setdefault((at, move.peer), []).append(blocks)
                self.messages += 1
        self.has_sent[at] = True

    def read(self, at: int) -> None:
        step = self.steps[at][0]
        if any(move.reads[1] and not self.boxes.get((move.peer, at)) for move in step):
            return
        for move in step:
            first, count = move.reads
            if count:
                self.targets[at][first : first + count] = self.boxes[move.peer, at].pop(0)
        self.steps[at].pop(0)
        self.has_sent[at] = False

    def play(self) -> None:
        for _ in range(4 * self.ranks * self.ranks):
            for at in range(self.ranks):
                if self.steps[at]:
                    self.send(at)
                    self.read(at)
        assert not any(self.steps), "nobody waits for ever"
        assert not any(self.boxes.values()), "everything that was sent was read"


@given(st.sampled_from(CASES), st.integers(1, 17))
def test_every_algorithm_puts_every_block_where_it_belongs(case: tuple[str, str], ranks: int) -> None:
    call, algorithm = case
    player = Player(call, algorithm, ranks)
    player.play()
    for at, target in enumerate(player.targets):
        assert target == [(peer, at) if call == "all_to_all" else peer for peer in range(ranks)]
    assert player.messages == (2 * (ranks - 1) if algorithm == TREE else ranks * (ranks - 1))


def test_a_tree_has_as_many_levels_as_bits() -> None:
    assert max(len(steps_of("all_gather", TREE, at, 16)) for at in range(16)) == 8
    assert len(steps_of("all_gather", RING, 3, 16)) == 15
    assert len(steps_of("all_gather", DIRECT, 3, 16)) == 1


@pytest.mark.parametrize(("call", "algorithm"), CASES)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_bytes_arrive_by_every_algorithm(
    call: str, algorithm: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "SLOT", 4096)
    monkeypatch.setattr(shared_memory, "SMALL", 1000)
    monkeypatch.setattr(world, "CURRENT", [Table({(call, ranks): [(1 << 40, algorithm)]})])
    parts = (0, 1, 4096, 40_003)

    def work(rank: int) -> list[bytes]:
        found: list[bytes] = []
        for part in parts:
            source, target = send(rank, ranks * part), np.full(ranks * part, POISON, np.uint8)
            world.wait(begin(call, "dp", ranks, source, target, part))
            found.append(target.tobytes())
        return found

    for rank, found in enumerate(on_ranks(work, dp=ranks)):
        assert not isinstance(found, Exception), found
        for part, got in zip(parts, found, strict=True):
            sources = [send(one, ranks * part) for one in range(ranks)]
            first = rank * part if call == "all_to_all" else 0
            assert got == b"".join(one[first : first + part].tobytes() for one in sources), part


@pytest.mark.parametrize("algorithm", [RING, TREE])
def test_a_rank_that_does_not_come_to_many_steps_is_given_up_in_time(algorithm: str) -> None:
    # Steps of others run ahead of it, further than a socket holds.
    ranks, part, limit = 8, 64 << 10, 1.0
    communicators = [LocalCommunicator(ends, limit) for ends in ends_of(ranks)]

    def work(communicator: LocalCommunicator) -> float:
        source, target = np.zeros(part, np.uint8), np.zeros(ranks * part, np.uint8)
        at = source.ctypes.data, target.ctypes.data
        exchange = Exchange("all_gather", tuple(range(ranks)), *at, part, "many steps", algorithm=algorithm)
        begun = time.monotonic()
        with pytest.raises(RankError):
            communicator.wait(communicator.start(exchange))
        communicator.abandon("it was not met")
        return time.monotonic() - begun

    coming = [one for one in communicators if one.rank != 1]
    with ThreadPoolExecutor(len(coming)) as pool:
        # Each hears of the one that is missing, or of a rank that has given up because of it.
        waiting = [pool.submit(work, one) for one in coming]
        found = [one.result(20) for one in waiting]
    assert max(found) < 10 * limit
    communicators[1].abandon("the end")


def test_what_a_socket_does_not_hold_waits_until_it_is_read() -> None:
    left, right = (LocalCommunicator(ends, 5.0) for ends in ends_of(2))
    peer, other = left._peers[1], right._peers[0]  # pyright: ignore[reportPrivateUsage]
    sent = [bytes([at]) * shared_memory.SMALL for at in range(32)]
    for one in sent:
        assert peer.send(b"S", b"", memoryview(one))
    assert 0 < len(peer.outbox) < len(sent)
    while len(other.inbox) < len(sent):
        other.listen()
        peer.flush()
    assert [message[1:] for message in other.inbox] == sent
    assert not peer.outbox
    for one in (left, right):
        one.abandon("the end")


def test_ranks_with_other_algorithms_find_it_out() -> None:
    def work(rank: int) -> None:
        source, target = send(rank, 8), np.zeros(16, np.uint8)
        algorithm = (RING, DIRECT)[rank]
        what = f"`all_gather` by {algorithm}"
        given = world.Exchange("all_gather", (0, 1), source.ctypes.data, target.ctypes.data, 8, what, algorithm)
        found = world.current()
        assert found is not None
        found.wait(found.start(given))

    assert any("by ring" in str(one) and "by direct" in str(one) for one in on_ranks(work, dp=2))


def test_a_table_answers_by_size_and_ranks() -> None:
    table = Table({("all_gather", 4): [(1 << 20, RING), (1 << 10, TREE)]})
    chosen = [table.choose("all_gather", 4, size) for size in (0, 1 << 10, (1 << 10) + 1, 1 << 30)]
    assert chosen == [TREE, TREE, RING, RING]
    assert table.choose("all_gather", 2, 8) == table.choose("all_to_all", 4, 8) == DIRECT
