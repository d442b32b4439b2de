"""The discrete-event engine: tasks on streams, each in the order of its stream, when what it waits for has ended.

A stream is what does one thing at a time: the kernels of a rank, its gradients' collectives, a link between stages. An
event is the end of a task; it lets the next task of its stream and those that wait for it begin.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

COMPUTE, GRADIENTS, SEND = "compute", "gradients", "send"


@dataclass(slots=True)
class Work:
    """A task: its name, stream, nanoseconds, and the numbers of tasks that end before it begins.

    `exposed` is the part of its time in which kernels wait for a collective within it.
    """

    name: str
    stream: tuple[str, int, int]
    """What kind of stream, of which replica, and of which pipeline rank."""
    time: float
    after: list[int] = field(default_factory=list[int])
    exposed: float = 0.0


@frozen
class Event:
    """A task and when it ran."""

    work: Work
    start: float
    end: float


class Simulation:
    """Tasks in the order in which each stream is to run them.

    >>> simulation = Simulation()
    >>> first = simulation.add("forward", ("compute", 0, 0), 2.0)
    >>> second = simulation.add("send", ("send", 0, 0), 1.0, [first])
    >>> [(event.start, event.end) for event in simulation.run()]
    [(0.0, 2.0), (2.0, 3.0)]
    """

    def __init__(self) -> None:
        self.tasks: list[Work] = []

    def add(
        self, name: str, stream: tuple[str, int, int], time: float, after: Sequence[int] = (), exposed: float = 0.0
    ) -> int:
        """Append a task to its stream; its number, for those that wait for it."""
        self.tasks.append(Work(name, stream, time, list(after), exposed))
        return len(self.tasks) - 1

    def run(self) -> list[Event]:
        """All tasks with their times, in the order of `add`; raises ScheduleError (T0401) at a deadlock."""
        tasks = self.tasks
        missing = [len(task.after) for task in tasks]
        readers: list[list[int]] = [[] for _ in tasks]
        streams: dict[tuple[str, int, int], list[int]] = {}
        for number, task in enumerate(tasks):
            streams.setdefault(task.stream, []).append(number)
            for before in task.after:
                readers[before].append(number)
        position = dict.fromkeys(streams, 0)
        busy = dict.fromkeys(streams, False)
        start, end = [0.0] * len(tasks), [-1.0] * len(tasks)
        events: list[tuple[float, int]] = []

        def begin(stream: tuple[str, int, int], now: float) -> None:
            at = position[stream]
            if busy[stream] or at == len(streams[stream]) or missing[streams[stream][at]]:
                return
            number = streams[stream][at]
            position[stream], busy[stream] = at + 1, True
            start[number] = now
            heapq.heappush(events, (now + tasks[number].time, number))

        for stream in streams:
            begin(stream, 0.0)
        while events:
            now, number = heapq.heappop(events)
            end[number] = now
            busy[tasks[number].stream] = False
            begin(tasks[number].stream, now)
            for reader in readers[number]:
                missing[reader] -= 1
                if not missing[reader]:
                    begin(tasks[reader].stream, now)
        self._check_end(end)
        return [Event(task, one, two) for task, one, two in zip(tasks, start, end, strict=True)]

    def _check_end(self, end: Sequence[float]) -> None:
        waiting = next((task for task, time in zip(self.tasks, end, strict=True) if time < 0), None)
        if waiting is not None:
            before = [self.tasks[number].name for number in waiting.after if end[number] < 0]
            raise ScheduleError(
                f"`{waiting.name}` waits for {', '.join(f'`{name}`' for name in before) or 'its stream'}, which waits "
                "too: a deadlock",
                span=None,
                fix="let each task wait for tasks that do not wait for it",
            )


def merge_spans(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time that overlap joined, in order.

    >>> merge_spans([(3.0, 4.0), (0.0, 2.0), (1.0, 2.5)])
    [(0.0, 2.5), (3.0, 4.0)]
    """
    merged: list[tuple[float, float]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def overlap_of(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> float:
    """How long spans of both lists run, each list joined and in order.

    >>> overlap_of([(0.0, 2.0), (3.0, 5.0)], [(1.0, 4.0)])
    2.0
    """
    found, one, two = 0.0, 0, 0
    while one < len(first) and two < len(second):
        low, high = max(first[one][0], second[two][0]), min(first[one][1], second[two][1])
        found += max(0.0, high - low)
        if first[one][1] <= second[two][1]:
            one += 1
        else:
            two += 1
    return found
