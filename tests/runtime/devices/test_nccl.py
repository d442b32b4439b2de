"""Collectives of GPUs by NCCL: which calls are made, in which order, streams and groups, by several ranks."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError, RankError
from tessera.runtime.devices.cuda import nccl
from tessera.runtime.devices.cuda.nccl import DeviceExchanges, Library, NcclRanks
from tessera.runtime.devices.cuda.streams import CURRENT
from tessera.runtime.ranks import world
from tessera.runtime.ranks.shared_memory import LocalCommunicator, ends_of
from tessera.runtime.ranks.world import MESH, Exchange, mesh_of
from tests.runtime.devices.nccl_recorder import SYSTEM_ERROR, Fabric, Recorder
from tests.runtime.devices.test_cuda_callback import Program

OWN, MAIN = 7, 3
"""The streams of exchanges, and of the program."""


class Mark:
    """An event: done when the test says so."""

    is_done = True

    def __init__(self, *, timed: bool) -> None:
        assert not timed

    def record(self, stream: int) -> Mark:
        return self


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which stream waits for which; no device is asked."""
    found: list[tuple[int, int]] = []

    def wait_for(waiting: int, other: int) -> None:
        found.append((waiting, other))

    def stream_named(name: str) -> Any:
        return types.SimpleNamespace(handle=OWN)

    monkeypatch.setattr(nccl, "wait_for", wait_for)
    monkeypatch.setattr(nccl, "stream_named", stream_named)
    monkeypatch.setattr(nccl, "current_stream", lambda: MAIN)
    monkeypatch.setattr(nccl, "Event", Mark)
    monkeypatch.setattr(NcclRanks, "_watch", ignore)
    return found


def ignore(*given: Any) -> None:
    """No thread watches, and no host is told: a test asks by itself."""


def on_gpus(work: Callable[[NcclRanks], Any], ranks: int, seconds: float = 20.0) -> tuple[list[Any], list[Recorder]]:
    """What work gives on ranks that are threads, or raises there, and what each called."""
    fabric = Fabric()
    recorders = [Recorder(fabric) for _ in range(ranks)]
    hosts = [LocalCommunicator(ends, 20.0) for ends in ends_of(ranks)]

    def one(rank: int) -> Any:
        try:
            return work(NcclRanks(Library(recorders[rank]), hosts[rank], seconds))
        except Exception as error:
            hosts[rank].abandon(str(error))
            return error

    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(one, range(ranks)))
    for host in hosts:
        host.abandon("the end")
    return found, recorders


def exchange(call: str, group: Sequence[int], source: Any, target: Any, part: int, what: str = "it") -> Exchange:
    return Exchange(call, tuple(group), source.ctypes.data, target.ctypes.data, part, f"`{call}` of {part}: {what}")


def data(rank: int, size: int) -> Any:
    return np.random.default_rng(rank).integers(0, 256, size, np.uint8)


def test_bytes_of_several_ranks_go_where_they_belong() -> None:
    part = 1000

    def work(ranks: NcclRanks) -> list[Any]:
        targets: list[Any] = []
        for call, group in (("all_gather", (0, 1, 2)), ("all_to_all", (0, 1, 2)), ("all_gather", (0, 2))):
            source, target = data(ranks.rank, 3 * part), np.zeros(len(group) * part, np.uint8)
            if ranks.rank in group:
                ranks.enqueue(exchange(call, group, source, target, part), OWN)
            targets.append(target)
        return targets

    found, recorders = on_gpus(work, 3)
    sources = [data(rank, 3 * part) for rank in range(3)]
    for rank, (gathered, swapped, two) in enumerate(found):
        np.testing.assert_array_equal(gathered, np.concatenate([one[:part] for one in sources]))
        parts = [one[rank * part : (rank + 1) * part] for one in sources]
        np.testing.assert_array_equal(swapped, np.concatenate(parts))
        if rank != 1:
            np.testing.assert_array_equal(two, np.concatenate([sources[0][:part], sources[2][:part]]))
    assert [recorder.problems for recorder in recorders] == [[], [], []]
    identifiers = [call for recorder in recorders for call in recorder.calls if call[0] == "id"]
    assert len(identifiers) == 2, "one rank of each group makes its identifier"


def test_order_counts_dtypes_streams_and_groups_of_calls() -> None:
    def work(ranks: NcclRanks) -> None:
        source, target = data(ranks.rank, 64), np.zeros(64, np.uint8)
        ranks.enqueue(exchange("all_to_all", (0, 1), source, target, 32), OWN)
        ranks.enqueue(exchange("all_gather", (0, 1), source, target, 16), OWN)
        ranks.enqueue(exchange("all_gather", (0, 1), source, target, 0), OWN)

    found, recorders = on_gpus(work, 2)
    assert found == [None, None]
    for rank, recorder in enumerate(recorders):
        swapped = [("send", 32, 1, 0, OWN), ("recv", 32, 1, 0, OWN), ("send", 32, 1, 1, OWN), ("recv", 32, 1, 1, OWN)]
        made = [("id",)] * (rank == 0) + [("init", 2, b"group 1", rank)]
        expected = [*made, ("group start",), *swapped, ("group end",), ("all_gather", 16, 1, OWN)]
        assert recorder.calls == expected, "nothing is sent of what has no bytes"


def test_ranks_at_different_exchanges_raise_before_anything_is_enqueued() -> None:
    def work(ranks: NcclRanks) -> None:
        source, target = data(ranks.rank, 64), np.zeros(64, np.uint8)
        ranks.enqueue(exchange("all_gather", (0, 1), source, target, 32, f"what rank {ranks.rank} has"), OWN)

    found, recorders = on_gpus(work, 2)
    assert all(isinstance(one, RankError) for one in found)
    assert any("what rank 0 has" in str(one) and "what rank 1 has" in str(one) for one in found)
    assert all("all_gather" not in recorder.names() for recorder in recorders)


def alone(states: Sequence[int] = (), seconds: float = 20.0, version: int = 23203) -> tuple[NcclRanks, Recorder]:
    """A rank whose communicators have these states, one after the other; a negative one stays."""
    recorder = Recorder(Fabric(), version)
    recorder.is_alone = True
    recorder.states[1000] = list(states)
    return NcclRanks(Library(recorder), None, seconds), recorder


def enqueue(ranks: NcclRanks) -> Exchange:
    made = exchange("all_gather", (0,), data(0, 8), np.zeros(8, np.uint8), 8)
    ranks.enqueue(made, OWN)
    return made


def test_a_group_that_does_not_connect_is_given_up() -> None:
    ranks, recorder = alone([-7], seconds=0.05)
    with pytest.raises(RankError, match=r"rank 0 waited 0.05 s for ranks 0 to connect by NCCL"):
        enqueue(ranks)
    assert recorder.names() == ["id", "init", "abort"]
    ranks, recorder = alone([7, SYSTEM_ERROR])
    with pytest.raises(RankError, match=r"something is wrong \(2\)"):
        enqueue(ranks)
    assert recorder.names() == ["id", "init", "abort"]


def test_what_fails_on_the_device_is_found_and_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, recorder = alone()
    enqueue(ranks)
    assert ranks.find_failure() is None, "it is done"
    monkeypatch.setattr(Mark, "is_done", False)
    enqueue(ranks)
    assert ranks.find_failure() is None, "it is under way"
    recorder.states[1000] = [-SYSTEM_ERROR]
    failure = ranks.find_failure()
    assert failure is not None
    assert failure.message == "`all_gather` of 8: it failed on rank 0: something is wrong (2)"
    ranks.fail(failure)
    assert recorder.calls[-1] == ("abort", 1000)
    with pytest.raises(RankError, match="failed on rank 0"):
        enqueue(ranks)


def test_a_gpu_that_waits_too_long_at_an_exchange_names_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []

    class Ordered(Mark):
        def __init__(self, *, timed: bool) -> None:
            super().__init__(timed=timed)
            self.number = len(done)
            done.append(False)

        @property
        def is_done(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
            return done[self.number]

    monkeypatch.setattr(nccl, "Event", Ordered)
    now = [0.0]
    monkeypatch.setattr(nccl, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=ignore))
    ranks, _ = alone(seconds=5.0)
    enqueue(ranks)
    now[0] = 100.0
    assert ranks.find_failure() is None, "kernels before it run"
    done[0] = True
    assert ranks.find_failure() is None, "the GPU has come to it"
    now[0] = 104.0
    assert ranks.find_failure() is None
    now[0] = 106.0
    failure = ranks.find_failure()
    assert failure is not None
    assert "not all of ranks [0] came to `all_gather` of 8: it within 5 s" in failure.message
    done[1] = True
    assert ranks.find_failure() is None, "it has ended"


def test_nobody_finds_a_communicator_that_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mark, "is_done", False)
    ranks, recorder = alone()
    enqueue(ranks)
    recorder.states[1000] = [SYSTEM_ERROR]
    with pytest.raises(RankError, match=r"something is wrong \(2\)"):
        enqueue(ranks)
    assert recorder.names().count("abort") == 1
    recorder.states[1000] = [-SYSTEM_ERROR]  # whoever asked for it would hear of it
    assert ranks.find_failure() is None
    ranks.fail(RankError("the end", span=None))
    assert recorder.names().count("abort") == 1, "it is freed once"
    with pytest.raises(RankError, match="the end"):
        enqueue(ranks)


def test_a_new_group_cannot_be_captured_and_a_known_one_can(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, recorder = alone()
    monkeypatch.setattr(CURRENT, "capture", object())
    with pytest.raises(DeviceError, match=r"ranks \[0\] communicate for the first time, which cannot be captured"):
        enqueue(ranks)
    monkeypatch.setattr(CURRENT, "capture", None)
    enqueue(ranks)
    monkeypatch.setattr(CURRENT, "capture", object())
    enqueue(ranks)
    assert recorder.names() == ["id", "init", "all_gather", "all_gather"]


def test_a_library_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(DeviceError, match="NCCL is of version 21300, and 21400 is the oldest"):
        alone(version=21300)
    with pytest.raises(DeviceError, match="this NCCL has no `ncclGetVersion`"):
        Library(types.SimpleNamespace())


def test_where_there_is_no_nccl_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "NAME", "libnone.so.2")
    nccl.library.cache_clear()
    with pytest.raises(DeviceError, match="ranks with GPUs communicate by NCCL, which is not here") as found:
        nccl.library()
    assert found.value.fix is not None
    assert "nvidia-nccl-cu13" in found.value.fix.message


def everything(x: Any) -> Any:
    return ts.dist.all_reduce(x * 2.0, "dp"), ts.dist.all_to_all(x, "dp", 0, 0)


def test_a_host_program_enqueues_its_collectives(monkeypatch: pytest.MonkeyPatch, waits: list[tuple[int, int]]) -> None:
    """A program for a GPU whose kernels are left out: what it asks of NCCL, and which streams wait."""
    ranks, recorder = alone()
    monkeypatch.setattr(ranks, "_host", types.SimpleNamespace(rank=1, size=2))
    monkeypatch.setattr(ranks, "_tell", ignore)
    monkeypatch.setattr(nccl, "ranks_here", lambda: ranks)
    x, mesh = np.ones((4, 3), np.float32), mesh_of((("dp", 2),))
    token = MESH.set(mesh)
    try:
        program = Program(everything, [x], debug=False)
        exchanges = DeviceExchanges(lambda: ranks)
        program.callbacks._exchanges = exchanges  # pyright: ignore[reportPrivateUsage]
        host: Any = types.SimpleNamespace(rank=1, size=2)
        with world.being(host):
            assert program.run(x) == 0, program.callbacks.take_exception()
    finally:
        MESH.reset(token)
    assert program.callbacks.can_be_captured
    assert recorder.calls[:1] == [("init", 2, b"", 1)]
    assert sorted(recorder.names()[1:]) == sorted(
        ["all_gather", "group start", "send", "recv", "send", "recv", "group end"]
    )
    assert ("all_gather", 48, 1, OWN) in recorder.calls
    assert ("send", 24, 1, 0, OWN) in recorder.calls
    # Each exchange waits for the program, and the program for each.
    assert sorted(waits) == [(MAIN, OWN)] * 2 + [(OWN, MAIN)] * 2
    assert waits[0] == (OWN, MAIN)
    assert exchanges.in_flight == {}


def test_structures_are_those_of_the_header() -> None:
    assert ctypes.sizeof(nccl.UniqueId) == 128
