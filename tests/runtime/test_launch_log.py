"""Races in logs of launches: found where no chain of stream order, events and waits leads from one to the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.diagnostics.codes import StreamRaceError
from tessera.runtime.timeline import Bytes, Entry, HostWait, Launch, LaunchLog, Signal, Wait
from tests.oracles.launch_races import first_race

STREAMS = ("a", "b", "c")
EVENTS = ("e", "f", "g")


def spans() -> st.SearchStrategy[tuple[Bytes, ...]]:
    one = st.tuples(st.integers(0, 6), st.integers(0, 3)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    return st.lists(one, max_size=2).map(tuple)


def entries() -> st.SearchStrategy[Entry]:
    stream, event = st.sampled_from(STREAMS), st.sampled_from(EVENTS)
    launch = st.builds(Launch, st.just("k"), stream, spans(), spans())
    waits = st.one_of(st.builds(HostWait, stream), st.builds(HostWait, st.none(), event), st.just(HostWait()))
    return st.one_of(launch, launch, launch, st.builds(Signal, event, stream), st.builds(Wait, event, stream), waits)


def reach(log: Sequence[tuple[Entry, int]]) -> list[set[int]]:
    """For each entry all that come before it, by going along every arc: the definition, and nothing clever.

    Entries of the host come before what its thread says later, and after what they wait for.
    """
    arcs: list[set[int]] = []
    for at, (entry, thread) in enumerate(log):
        earlier = list(enumerate(log[:at]))
        found: set[int] = set()
        for number, (other, its) in earlier:
            is_host = isinstance(other, HostWait)
            if is_host and (its == thread or other == HostWait()):
                found.add(number)
            if isinstance(entry, HostWait):
                if not is_host and entry.event is None and entry.stream in (None, other.stream):
                    found.add(number)
            elif not is_host and other.stream == entry.stream:
                found.add(number)
        wanted = getattr(entry, "event", None)
        if isinstance(entry, Wait | HostWait) and wanted is not None:
            found.update([n for n, (o, _) in earlier if isinstance(o, Signal) and o.event == wanted][-1:])
        for number in list(found):
            found |= arcs[number]
        arcs.append(found)
    return arcs


def conflict(one: Launch, other: Launch) -> bool:
    def shares(left: tuple[Bytes, ...], right: tuple[Bytes, ...]) -> bool:
        return any(max(a, c) < min(b, d) for a, b in left for c, d in right)

    both = (*other.reads, *other.writes)
    return shares(one.writes, both) or shares(one.reads, other.writes)


def races(log: Sequence[tuple[Entry, int]]) -> int | None:
    """The first launch that races with an earlier one."""
    before = reach(log)
    for at, (entry, _) in enumerate(log):
        if not isinstance(entry, Launch):
            continue
        for number, (other, _) in enumerate(log[:at]):
            if isinstance(other, Launch) and number not in before[at] and conflict(other, entry):
                return at
    return None


@settings(max_examples=120)
@given(st.lists(st.tuples(entries(), st.integers(0, 1)), max_size=14))
def test_a_race_is_found_where_nothing_leads_from_one_to_the_other(written: list[tuple[Entry, int]]) -> None:
    log = LaunchLog()
    found: int | None = None
    for at, (entry, thread) in enumerate(written):
        try:
            log.add(entry, thread)
        except StreamRaceError:
            found = at
            break
    assert found == races(written)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(STREAMS), spans(), spans()), min_size=2, max_size=8), st.data())
def test_waits_for_all_arcs_are_enough_and_one_that_is_needed_is_missed(
    given_launches: list[tuple[str, tuple[Bytes, ...], tuple[Bytes, ...]]], data: st.DataObject
) -> None:
    """Each launch waits for all launches of other streams that it meets; one left out is found iff it matters."""
    launches = [Launch(f"k{at}", *one) for at, one in enumerate(given_launches)]
    log: list[Entry] = []
    waits: list[int] = []
    for at, launch in enumerate(launches):
        for number, other in enumerate(launches[:at]):
            if other.stream != launch.stream and conflict(other, launch):
                waits.append(len(log))
                log.append(Wait(number, launch.stream))
        log += [launch, Signal(at, launch.stream)]
    assert first_race(log) is None
    if waits:
        del log[data.draw(st.sampled_from(waits))]
        found = first_race(log)
        assert (found is None) == (races([(entry, 0) for entry in log]) is None)


def test_the_error_names_both_launches_the_bytes_and_the_wait() -> None:
    log = LaunchLog({1: "compute", 2: "comm"}.__getitem__)  # pyright: ignore[reportArgumentType]
    log.launch("matmul", 1, reads=[(100, 200)])
    with pytest.raises(StreamRaceError) as caught:
        log.launch("relu", 2, writes=[(150, 250)], taken=[(150, 250)])
    text = str(caught.value)
    assert "`relu` in stream `comm` writes what `matmul` in stream `compute` reads" in text
    assert "they share 50 bytes, [0x96, 0xc8)" in text
    assert "given back before `matmul` was done with them" in text
    assert "let stream `comm` wait, before `relu`, for an event that stream `compute` signals after `matmul`" in text
    assert str(log).splitlines() == ["compute: matmul reads [0x64, 0xc8)", "comm: relu writes [0x96, 0xfa)"]
