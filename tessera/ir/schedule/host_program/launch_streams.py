"""Launches distributed over concurrent CUDA streams, with as few events between them as keep every edge of their order.

A launch follows one that it waits for if that is the last of its stream (in-order execution then costs nothing); else
it takes an idle stream or opens one. Each stream carries the set of launches known to be complete when its next one
starts; a wait is needed only for what is not in that set, and what the awaited launch knew is known from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import HERE
from tessera.ir.schedule.host_program.accesses import ByteRange
from tessera.ir.schedule.host_program.launch_order import LaunchOrder, Node
from tessera.runtime.launch_log import Bytes, Entry, Launch, Signal, Wait
from tessera.types.frozen import frozen

BEGIN = -1
"""In place of a launch that is waited for: the work of the first stream before the program."""
_ANYWHERE = ("call",)
"""Launches that may leave the first stream: others wait for the host, or contain bodies."""


@frozen
class Step:
    """One launch: its stream, the launches of other streams that it waits for, and whether one waits for it."""

    node: Node
    stream: int
    waits: tuple[int, ...] = ()
    signals: bool = False

    def __str__(self) -> str:
        waits = (
            f" waits for {', '.join('the start' if n == BEGIN else str(n) for n in self.waits)}" if self.waits else ""
        )
        return f"stream {self.stream}: {self.node}{waits}{' signals' if self.signals else ''}"


@frozen
class StreamPlan:
    """Launches in the order they are issued; at the end the first stream waits for `joins`, and so for all of them."""

    steps: tuple[Step, ...]
    joins: tuple[int, ...]
    begins: bool
    """Whether some stream waits for the start."""

    @property
    def streams(self) -> int:
        """How many there are."""
        return 1 + max((step.stream for step in self.steps), default=0)

    @property
    def events(self) -> tuple[int, ...]:
        """The launches after which there is an event, the start before them."""
        return (*((BEGIN,) if self.begins else ()), *(step.node.number for step in self.steps if step.signals))

    @property
    def waits(self) -> int:
        """How often one stream waits for another."""
        return len(self.joins) + sum(len(step.waits) for step in self.steps)

    def __str__(self) -> str:
        joined = [f"stream 0: waits for {', '.join(map(str, self.joins))}"] if self.joins else []
        return "\n".join([*map(str, self.steps), *joined])

    def known(self) -> list[int]:
        """For each launch all that happen before it, by the order within streams and by waits, as bits."""
        streams: dict[int, int] = {}
        found: list[int] = []
        for number, step in enumerate(self.steps):
            known = streams.get(step.stream, 0)
            for wait in step.waits:
                known |= found[wait] | 1 << wait if wait != BEGIN else 0
            found.append(known)
            streams[step.stream] = known | 1 << number
        return found

    def check(self, order: LaunchOrder) -> None:
        """Raises ScheduleError (T0401) where a launch could begin before one that it waits for in an order."""
        needed = order.launches().before()
        for step, known in zip(self.steps, self.known(), strict=True):
            missing = needed[step.node.number] & ~known
            if missing:
                earlier = self.steps[missing.bit_length() - 1]
                raise ScheduleError(
                    f"`{step.node}` in stream {step.stream} comes after `{earlier.node}` in stream {earlier.stream}, "
                    "and does not wait for it",
                    span=step.node.span or HERE,
                    notes=("launches of two streams are ordered by events alone",),
                    fix=f"let stream {step.stream} wait for an event after `{earlier.node}`",
                )

    def without(self, node: int, wait: int) -> StreamPlan:
        """The same without a wait."""
        steps = [
            Step(s.node, s.stream, tuple(n for n in s.waits if (s.node.number, n) != (node, wait)), s.signals)
            for s in self.steps
        ]
        return StreamPlan(tuple(steps), self.joins, self.begins)

    def log(self, sizes: Mapping[str, int]) -> Iterator[Entry]:
        """The entries of a launch log: waits, launches with the addresses they touch for these sizes, and signals."""
        bases: dict[str, int] = {}
        if self.begins:
            yield Signal(BEGIN, 0)
        for step in self.steps:
            yield from (Wait(number, step.stream) for number in step.waits)
            reads, writes = (_addresses(ranges, sizes, bases) for ranges in (step.node.reads, step.node.writes))
            yield Launch(str(step.node), step.stream, reads, writes)
            if step.signals:
                yield Signal(step.node.number, step.stream)
        yield from (Wait(number, 0) for number in self.joins)


def _addresses(ranges: Sequence[ByteRange], sizes: Mapping[str, int], bases: dict[str, int]) -> tuple[Bytes, ...]:
    found: list[Bytes] = []
    for one in ranges:
        base = bases.setdefault(one.memory, len(bases) << 48)
        found.append((base + one.start.evaluate(sizes), base + one.end.evaluate(sizes)))
    return tuple(found)


def assign_streams(order: LaunchOrder, count: int) -> StreamPlan:
    """Distribute the launches of a program over at most `count` streams.

    Of the waits between streams only those are kept that no other implies.
    """
    launches = order.launches()
    streams = _streams_of(launches, count)
    before = launches.before()
    known = [0] * count
    """What has happened before what comes next in each stream, as bits; the start is the first."""
    known[0] = 1
    at_end: list[int] = []
    waits: list[tuple[int, ...]] = []
    for node in launches.nodes:
        stream = streams[node.number]
        # Later launches know of earlier ones, so that those are looked at first.
        needed = [n for n in reversed(range(node.number)) if before[node.number] >> n & 1] + [BEGIN]
        waits.append(_add_waits(needed, stream, known, at_end))
        known[stream] |= 1 << (node.number + 1)
        at_end.append(known[stream])
    joins = _add_waits([*reversed(range(len(launches.nodes)))], 0, known, at_end)
    signalled = {number for one in (*waits, joins) for number in one}
    steps = [Step(n, streams[n.number], waits[n.number], n.number in signalled) for n in launches.nodes]
    return StreamPlan(tuple(steps), joins, BEGIN in signalled)


def _add_waits(needed: Sequence[int], stream: int, known: list[int], at_end: Sequence[int]) -> tuple[int, ...]:
    """Those of the needed launches that a stream does not know to be complete; it knows them from here on."""
    found: list[int] = []
    for number in needed:
        if not known[stream] >> (number + 1) & 1:
            found.append(number)
            known[stream] |= 1 if number == BEGIN else at_end[number]
    return tuple(sorted(found))


def _streams_of(launches: LaunchOrder, count: int) -> list[int]:
    """The stream of each launch; time is counted in launches."""
    last: list[int | None] = [BEGIN, *[None] * (count - 1)]
    ends = [0] * count
    done: list[int] = []
    found: list[int] = []
    for node in launches.nodes:
        behind = [first for first, second in launches.edges if second == node.number]
        ready = max((done[number] for number in behind), default=0)
        stream = _choose_stream(node, behind, last, ends, ready)
        last[stream] = node.number
        ends[stream] = max(ends[stream], ready) + 1
        done.append(ends[stream])
        found.append(stream)
    return found


def _choose_stream(
    node: Node, behind: Sequence[int], last: Sequence[int | None], ends: Sequence[int], ready: int
) -> int:
    if node.what not in _ANYWHERE:
        return 0
    following = [stream for stream, number in enumerate(last) if number in (behind or [BEGIN])]
    if following:
        return max(following, key=lambda stream: ends[stream])
    free = [stream for stream, number in enumerate(last) if number is None]
    # An open stream that is idle by then costs a wait, and a new one no less.
    idle = [stream for stream, number in enumerate(last) if number is not None and ends[stream] <= ready]
    return (idle or free or sorted(range(len(last)), key=lambda stream: ends[stream]))[0]
