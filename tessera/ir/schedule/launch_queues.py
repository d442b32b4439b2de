"""Launches shared out among queues that run beside each other, with as few events between them as keep every arc."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import HERE
from tessera.ir.schedule.accesses import Place
from tessera.ir.schedule.launch_order import LaunchOrder, Node
from tessera.runtime.launch_log import Bytes, Entry, Launch, Signal, Wait
from tessera.types.frozen import frozen

BEGIN = -1
"""In place of a launch that is waited for: what the first queue was told before the program."""
_ANYWHERE = ("call",)
"""Launches that may leave the first queue: others wait for the host, or run bodies there."""


@frozen
class Step:
    """One launch: its queue, the launches of other queues that it waits for, and whether one waits for it."""

    node: Node
    queue: int
    waits: tuple[int, ...] = ()
    signals: bool = False

    def __str__(self) -> str:
        waits = (
            f" waits for {', '.join('the start' if n == BEGIN else str(n) for n in self.waits)}" if self.waits else ""
        )
        return f"queue {self.queue}: {self.node}{waits}{' signals' if self.signals else ''}"


@frozen
class QueuePlan:
    """Launches in the order they are issued; at the end the first queue waits for `joins`, so that all is in it."""

    steps: tuple[Step, ...]
    joins: tuple[int, ...]
    begins: bool
    """Whether some queue waits for the start."""

    @property
    def queues(self) -> int:
        """How many there are."""
        return 1 + max((step.queue for step in self.steps), default=0)

    @property
    def events(self) -> tuple[int, ...]:
        """The launches after which there is an event, the start before them."""
        return (*((BEGIN,) if self.begins else ()), *(step.node.number for step in self.steps if step.signals))

    @property
    def waits(self) -> int:
        """How often a queue waits for another."""
        return len(self.joins) + sum(len(step.waits) for step in self.steps)

    def __str__(self) -> str:
        joined = [f"queue 0: waits for {', '.join(map(str, self.joins))}"] if self.joins else []
        return "\n".join([*map(str, self.steps), *joined])

    def known(self) -> list[int]:
        """For each launch all that happen before it, by the order of queues and by waits, as bits."""
        queues: dict[int, int] = {}
        found: list[int] = []
        for number, step in enumerate(self.steps):
            known = queues.get(step.queue, 0)
            for wait in step.waits:
                known |= found[wait] | 1 << wait if wait != BEGIN else 0
            found.append(known)
            queues[step.queue] = known | 1 << number
        return found

    def check(self, order: LaunchOrder) -> None:
        """Raises ScheduleError (T0401) where a launch could begin before one that it waits for in an order."""
        needed = order.launches().before()
        for step, known in zip(self.steps, self.known(), strict=True):
            missing = needed[step.node.number] & ~known
            if missing:
                earlier = self.steps[missing.bit_length() - 1]
                raise ScheduleError(
                    f"`{step.node}` in queue {step.queue} comes after `{earlier.node}` in queue {earlier.queue}, and "
                    "does not wait for it",
                    span=step.node.span or HERE,
                    notes=("launches of two queues are ordered by an event alone",),
                    fix=f"let queue {step.queue} wait for an event after `{earlier.node}`",
                )

    def without(self, node: int, wait: int) -> QueuePlan:
        """The same with one wait less."""
        steps = [
            Step(s.node, s.queue, tuple(n for n in s.waits if (s.node.number, n) != (node, wait)), s.signals)
            for s in self.steps
        ]
        return QueuePlan(tuple(steps), self.joins, self.begins)

    def log(self, sizes: Mapping[str, int]) -> Iterator[Entry]:
        """What queues are told, with the bytes that each launch touches for these sizes, memories apart."""
        bases: dict[str, int] = {}
        if self.begins:
            yield Signal(BEGIN, 0)
        for step in self.steps:
            yield from (Wait(number, step.queue) for number in step.waits)
            reads, writes = (_spans(places, sizes, bases) for places in (step.node.reads, step.node.writes))
            yield Launch(str(step.node), step.queue, reads, writes)
            if step.signals:
                yield Signal(step.node.number, step.queue)
        yield from (Wait(number, 0) for number in self.joins)


def _spans(places: Sequence[Place], sizes: Mapping[str, int], bases: dict[str, int]) -> tuple[Bytes, ...]:
    found: list[Bytes] = []
    for place in places:
        base = bases.setdefault(place.memory, len(bases) << 48)
        found.append((base + place.start.evaluate(sizes), base + place.end.evaluate(sizes)))
    return tuple(found)


def assign_queues(order: LaunchOrder, count: int) -> QueuePlan:
    """Share the launches of a program out among at most `count` queues.

    A launch follows one that it waits for where that is the last of its queue, else it opens a queue or takes the one
    that is done first. Of the waits between queues only those are left that no other implies.
    """
    launches = order.launches()
    queues = _queues(launches, count)
    before = launches.before()
    known = [0] * count
    """What has happened before what comes next in each queue, as bits; the start is the first."""
    known[0] = 1
    at_end: list[int] = []
    waits: list[tuple[int, ...]] = []
    for node in launches.nodes:
        queue = queues[node.number]
        # Later launches know of earlier ones, so that those are looked at first.
        needed = [n for n in reversed(range(node.number)) if before[node.number] >> n & 1] + [BEGIN]
        waits.append(_waited(needed, queue, known, at_end))
        known[queue] |= 1 << (node.number + 1)
        at_end.append(known[queue])
    joins = _waited([*reversed(range(len(launches.nodes)))], 0, known, at_end)
    signalled = {number for one in (*waits, joins) for number in one}
    steps = [Step(n, queues[n.number], waits[n.number], n.number in signalled) for n in launches.nodes]
    return QueuePlan(tuple(steps), joins, BEGIN in signalled)


def _waited(needed: Sequence[int], queue: int, known: list[int], at_end: Sequence[int]) -> tuple[int, ...]:
    """Those of the launches that a queue has to wait for, which it knows nothing of otherwise."""
    found: list[int] = []
    for number in needed:
        if not known[queue] >> (number + 1) & 1:
            found.append(number)
            known[queue] |= 1 if number == BEGIN else at_end[number]
    return tuple(sorted(found))


def _queues(launches: LaunchOrder, count: int) -> list[int]:
    """The queue of each launch; times are counted in launches."""
    last: list[int | None] = [BEGIN, *[None] * (count - 1)]
    ends = [0] * count
    done: list[int] = []
    found: list[int] = []
    for node in launches.nodes:
        behind = [first for first, second in launches.arcs if second == node.number]
        ready = max((done[number] for number in behind), default=0)
        queue = _chosen(node, behind, last, ends, ready)
        last[queue] = node.number
        ends[queue] = max(ends[queue], ready) + 1
        done.append(ends[queue])
        found.append(queue)
    return found


def _chosen(node: Node, behind: Sequence[int], last: Sequence[int | None], ends: Sequence[int], ready: int) -> int:
    if node.what not in _ANYWHERE:
        return 0
    following = [queue for queue, number in enumerate(last) if number in (behind or [BEGIN])]
    if following:
        return max(following, key=lambda queue: ends[queue])
    free = [queue for queue, number in enumerate(last) if number is None]
    # An open queue that is done by then costs a wait, and a new one no less.
    idle = [queue for queue, number in enumerate(last) if number is not None and ends[queue] <= ready]
    return (idle or free or sorted(range(len(last)), key=lambda queue: ends[queue]))[0]
