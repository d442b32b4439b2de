"""What a process did over time: a log of its streams that is checked for races, and a timeline of kernels.

The log has launches with the bytes they touch; vector clocks of streams, events and threads say which happened before
which, and two that share bytes without an order are a race. The timeline has when kernels and collectives ran, as
spans and as a Chrome trace. It is off unless somebody asks: native code looks at one pointer before each kernel, and
writes two times where it is set; the clock is the monotonic one, which all processes of a machine share.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, TypeAlias

from tessera.diagnostics.codes import StreamRaceError
from tessera.types.frozen import frozen

# A log of streams, and whether it is ordered: launches with the bytes they touch, events, waits, and races.

Bytes: TypeAlias = "tuple[int, int]"
"""Addresses from the first to the one behind the last."""
Stream: TypeAlias = Hashable
_KEPT = 4096
"""Entries that can be looked at again."""
_RULE = "work of two streams is ordered by an event that one signals and the other waits for, or by a wait of the host"


@frozen
class Launch:
    """Work in a stream: a kernel or a copy by its name, and the bytes that it reads and writes.

    `taken` are those of the written bytes that were somebody else's before: memory that is used again.
    """

    name: str
    stream: Stream
    reads: tuple[Bytes, ...] = ()
    writes: tuple[Bytes, ...] = ()
    taken: tuple[Bytes, ...] = ()


@frozen
class Signal:
    """An event that happens when a stream has come so far."""

    event: Hashable
    stream: Stream


@frozen
class Wait:
    """A stream goes on after an event."""

    event: Hashable
    stream: Stream


@frozen
class HostWait:
    """A thread goes on after a stream, an event, or, where it names neither, after everything."""

    stream: Stream | None = None
    event: Hashable = None


Entry: TypeAlias = "Launch | Signal | Wait | HostWait"


def in_stream(entry: Entry, source: Stream, target: Stream) -> Entry:
    """The same entry with a stream in place of another."""
    return replace(entry, stream=target) if entry.stream == source else entry


@frozen
class Race:
    """Two launches that share bytes and have no order."""

    first: Launch
    second: Launch
    bytes: Bytes
    is_write: bool
    """Whether the second writes them."""


class _Clock(dict[Stream, int]):
    """The last tick of each stream that is known to have come before."""

    def join(self, other: Mapping[Stream, int]) -> None:
        for stream, tick in other.items():
            if self.get(stream, 0) < tick:
                self[stream] = tick


@frozen
class _Access:
    launch: Launch
    tick: int
    start: int
    end: int
    is_write: bool


class HappensBefore:
    """Clocks of streams, events and threads, and the accesses that something later may still race with."""

    def __init__(self) -> None:
        self._stream_clocks: dict[Stream, _Clock] = {}
        self._events: dict[Hashable, _Clock] = {}
        self._threads: dict[int, _Clock] = {}
        self._accesses: list[_Access] = []

    def add(self, entry: Entry, thread: int = 0) -> Race | None:
        """Take notice of an entry; the first race of a launch with an earlier one."""
        host = self._threads.setdefault(thread, _Clock())
        if isinstance(entry, HostWait):
            self._wait(entry, host)
            return None
        clock = self._stream_clocks.setdefault(entry.stream, _Clock())
        clock.join(host)
        if isinstance(entry, Wait):
            clock.join(self._events.get(entry.event, {}))
            return None
        clock[entry.stream] = clock.get(entry.stream, 0) + 1
        if isinstance(entry, Signal):
            self._events[entry.event] = _Clock(clock)
            return None
        return self._launch(entry, clock)

    def _wait(self, entry: HostWait, host: _Clock) -> None:
        if entry.stream is None and entry.event is None:
            # All work is done: whatever comes, from whatever thread, comes after it.
            self._accesses.clear()
            for clock in self._stream_clocks.values():
                host.join(clock)
        elif entry.event is not None:
            host.join(self._events.get(entry.event, {}))
        else:
            host.join(self._stream_clocks.get(entry.stream, {}))

    def _launch(self, launch: Launch, clock: _Clock) -> Race | None:
        tick = clock[launch.stream]
        touched = [(start, end, True) for start, end in launch.writes if start < end]
        touched += [(start, end, False) for start, end in launch.reads if start < end]
        found: Race | None = None
        kept: list[_Access] = []
        for access in self._accesses:
            is_before = clock.get(access.launch.stream, 0) >= access.tick
            is_covered = False
            for start, end, is_write in touched:
                low, high = max(start, access.start), min(end, access.end)
                if low >= high:
                    continue
                if not is_before and (is_write or access.is_write):
                    found = found or Race(access.launch, launch, (low, high), is_write)
                # Whoever races with what is covered races with what covers it.
                whole = start <= access.start and access.end <= end
                is_covered |= is_before and whole and (is_write or not access.is_write)
            if not is_covered:
                kept.append(access)
        self._accesses = kept
        self._accesses += [_Access(launch, tick, start, end, is_write) for start, end, is_write in touched]
        return found


class LaunchLog:
    """A log that is checked as it is written.

    Its methods log what a stream is given, and `launch` raises StreamRaceError (T0711) for one that races. `names`
    gives what a stream is called.

    >>> log = LaunchLog()
    >>> log.launch("matmul", "compute", writes=[(0, 64)])
    >>> log.signal("done", "compute")
    >>> log.wait("done", "comm")
    >>> log.launch("all_reduce", "comm", reads=[(0, 64)])
    >>> len(log)
    4
    """

    def __init__(self, names: Callable[[Stream], str] = str) -> None:
        self.names = names
        self.entries: deque[Entry] = deque(maxlen=_KEPT)
        """The last of them."""
        self._order = HappensBefore()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __str__(self) -> str:
        return "\n".join(self._line(entry) for entry in self.entries)

    def add(self, entry: Entry, thread: int = 0) -> None:
        """Take notice of anything; raises StreamRaceError (T0711)."""
        self.entries.append(entry)
        self._count += 1
        race = self._order.add(entry, thread)
        if race is not None:
            raise race_error(race, self.names)

    def launch(
        self,
        name: str,
        stream: Stream,
        reads: Iterable[Bytes] = (),
        writes: Iterable[Bytes] = (),
        taken: Iterable[Bytes] = (),
        thread: int = 0,
    ) -> None:
        """Work in a stream; raises StreamRaceError (T0711)."""
        self.add(Launch(name, stream, tuple(reads), tuple(writes), tuple(taken)), thread)

    def signal(self, event: Hashable, stream: Stream, thread: int = 0) -> None:
        """An event in a stream."""
        self.add(Signal(event, stream), thread)

    def wait(self, event: Hashable, stream: Stream, thread: int = 0) -> None:
        """A stream waits for an event."""
        self.add(Wait(event, stream), thread)

    def _line(self, entry: Entry) -> str:
        if isinstance(entry, Launch):
            pairs = [*(("reads", one) for one in entry.reads), *(("writes", one) for one in entry.writes)]
            touched = [f"{verb} {_format_range(one)}" for verb, one in pairs]
            return f"{self.names(entry.stream)}: {entry.name} {', '.join(touched)}".rstrip()
        if isinstance(entry, HostWait):
            what = f"event {entry.event}" if entry.event is not None else "everything"
            return f"host: waits for {what if entry.stream is None else self.names(entry.stream)}"
        verb = "signals" if isinstance(entry, Signal) else "waits for"
        return f"{self.names(entry.stream)}: {verb} event {entry.event}"


def _format_range(span: Bytes) -> str:
    return f"[{span[0]:#x}, {span[1]:#x})"


def race_error(race: Race, names: Callable[[Stream], str] = str) -> StreamRaceError:
    """The error for a race: both launches and their streams, the bytes, the rule, and the wait that is missing."""
    first, second, (start, end) = race.first, race.second, race.bytes
    does = "writes" if race.is_write else "reads"
    did = "writes" if any(low < end and start < high for low, high in first.writes) else "reads"
    one, other = names(first.stream), names(second.stream)
    is_again = any(low <= start and end <= high for low, high in second.taken)
    notes = [f"they share {end - start} bytes, {_format_range(race.bytes)}"]
    if is_again:
        notes.append(f"the bytes were given back before `{first.name}` was done with them, and taken again")
    late, early = f"`{second.name}` in stream `{other}` {does}", f"`{first.name}` in stream `{one}` {did}"
    return StreamRaceError(
        f"{late} what {early}, and nothing orders them",
        notes=(*notes, _RULE),
        fix=f"let stream `{other}` wait, before `{second.name}`, for an event that stream `{one}` signals after "
        f"`{first.name}`",
    )


class _Watch:
    """Who is notified of work before it goes into a stream."""

    note: Callable[[Entry], None] | None = None


WATCH = _Watch()
"""Whether somebody looks: `note` is None for all who put work into streams while nobody does."""


def notify(entries: Iterable[Entry]) -> None:
    """Let who watches know of some entries."""
    for entry in entries if WATCH.note is not None else ():
        WATCH.note(entry)  # pyright: ignore[reportOptionalCall]


KERNELS = 1 << 16
"""How many kernels one timeline holds; those that run after so many are counted, and not kept."""

_FIELDS = 4  # of a kernel in native code: its address, when it began and ended, the thread that called it


@frozen
class Span:
    """Something that took time: a `kernel`, a `collective`, or a `wait` for one; in nanoseconds.

    `line` is where a kernel comes from, and what it is of that line (`model.py:3:36-3:41, backward`). `track` is what
    it ran in: the thread of a CPU that called it, or a stream of a GPU. `sent` are the bytes of a collective that this
    rank has for others, as it sends them: those of the dtype on the wire.
    """

    kind: str
    name: str
    start: int
    end: int
    rank: int
    line: str = ""
    track: int = 0
    sent: int = 0

    def overlap(self, other: Span) -> int:
        """Nanoseconds that both ran."""
        return max(0, min(self.end, other.end) - max(self.start, other.start))


class Timeline:
    """What a process did while it was captured; `spans` has it, in the order of starts."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._kernels = (ctypes.c_int64 * (2 + KERNELS * _FIELDS))(KERNELS)
        self._others: list[Span] = []
        self._open: list[tuple[str, str]] = []
        self._names: dict[int, tuple[str, str]] = {}

    @property
    def address(self) -> int:
        """Where native code writes."""
        return ctypes.addressof(self._kernels)

    @property
    def missed(self) -> int:
        """How many kernels were not kept."""
        return max(0, self._kernels[1] - KERNELS)

    @property
    def is_awaited(self) -> bool:
        """Whether a kernel has begun, in whatever thread, and is to write here when it ends."""
        return not all(self._kernels[2 + at * _FIELDS + 2] for at in range(min(KERNELS, self._kernels[1])))

    @property
    def sent(self) -> int:
        """Bytes that this rank had for others in collectives."""
        return sum(one.sent for one in self._others)

    @contextmanager
    def span(self, kind: str, name: str, sent: int = 0) -> Generator[None]:
        """Note how long a block takes."""
        start = time.monotonic_ns()
        self._open.append((kind, name))
        try:
            yield
        finally:
            self._others.append(Span(kind, name, start, time.monotonic_ns(), self.rank, sent=sent))
            self._open.remove((kind, name))

    def running(self) -> list[tuple[str, str]]:
        """What has begun and not ended, as pairs of kind and name."""
        begun = [("kernel", name) for (name, _), start, end, _ in self._kernel_times() if start and not end]
        return [*begun, *self._open]

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans that have ended."""
        times = [one for one in self._kernel_times() if one[2]]
        kernels = [Span("kernel", name, start, end, self.rank, line, at) for (name, line), start, end, at in times]
        return tuple(sorted([*kernels, *self._others], key=lambda span: (span.start, span.end)))

    def _kernel_times(self) -> list[tuple[tuple[str, str], int, int, int]]:
        found: list[tuple[tuple[str, str], int, int, int]] = []
        for at in range(min(KERNELS, self._kernels[1])):
            kernel, start, end, thread = self._kernels[2 + at * _FIELDS : 2 + (at + 1) * _FIELDS]
            found.append((self._name(kernel), start, end, thread))
        return found

    def _name(self, address: int) -> tuple[str, str]:
        if address not in self._names:
            from tessera.runtime.launch import kernel_at  # noqa: PLC0415 - a timeline need not see any program

            self._names[address] = kernel_at(address) or (hex(address), "")
        return self._names[address]

    def save(self, path: str) -> None:
        """Write it as a Chrome trace, for `chrome://tracing` or Perfetto."""
        save_trace(path, self.spans)


_ACTIVE: list[Timeline] = []
_AWAITED: list[Timeline] = []
"""Those that are over, while kernels of other threads still have their memory to write to."""


_CHANGING = Lock()


@contextmanager
def record_timeline() -> Generator[Timeline]:
    """Within it, kernels and collectives of this process are noted in the timeline that it gives."""
    from tessera.runtime.ranks.world import rank  # noqa: PLC0415 - programs that are alone do not load it
    from tessera.runtime.tensor import native  # noqa: PLC0415

    made, pointer = Timeline(rank()), ctypes.c_void_p.from_address(native().code.address("tessera_timeline"))
    with _CHANGING:
        _ACTIVE.append(made)
        pointer.value = made.address
    try:
        yield made
    finally:
        with _CHANGING:
            _ACTIVE[:] = [one for one in _ACTIVE if one is not made]
            # Those of other threads end in any order: what was there when this one began may be over by now.
            pointer.value = _ACTIVE[-1].address if _ACTIVE else None
            _AWAITED[:] = [one for one in (*_AWAITED, made) if one.is_awaited]


def is_open() -> bool:
    """Whether a timeline is open, which notes spans."""
    return bool(_ACTIVE)


@contextmanager
def span(kind: str, name: str, sent: int = 0) -> Generator[None]:
    """Note how long a block takes, where somebody records."""
    with ExitStack() as stack:
        for one in _ACTIVE:
            stack.enter_context(one.span(kind, name, sent))
        yield


def trace_of(spans: Iterable[Span]) -> dict[str, Any]:
    """Spans of any number of ranks as a Chrome trace: a rank is a process, a kind of span is a thread of it."""
    kinds = {"kernel": 0, "collective": 1, "wait": 2}
    events: list[dict[str, Any]] = []
    listed: Sequence[Span] = list(spans)
    for rank in sorted({one.rank for one in listed}):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        for kind, thread in kinds.items():
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": kind}})
    for one in listed:
        times = {"ts": one.start / 1000, "dur": (one.end - one.start) / 1000}
        line = {"args": {"line": one.line}} if one.line else {}
        place = {"cat": one.kind, "pid": one.rank, "tid": kinds[one.kind]}
        events.append({"ph": "X", "name": one.name, **place, **times, **line})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def save_trace(path: str, spans: Iterable[Span]) -> None:
    """Write spans as a Chrome trace."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace_of(spans), file)
