"""Queues beside that of a call, for programs that fill several, and the events between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tessera.runtime.devices.cuda_stream import Event, Stream

_SIDES: dict[int, list[Stream]] = {}
"""By the queue of a call: those that its programs fill too. Each call waits for them, so that programs can share."""


def sides_of(stream: int, count: int) -> list[int]:
    """The handles of so many queues beside one."""
    found = _SIDES.setdefault(stream, [])
    while len(found) < count:
        found.append(Stream())
    return [side.handle for side in found[:count]]


class Words:
    """What an entry reads behind the first words of its table: handles of kernels and places of constants.

    Behind those stands what a program of several queues needs: two functions, the other queues, its events.
    """

    def __init__(self, fixed: Sequence[int], queues: int = 1, events: int = 0) -> None:
        self._fixed, self.queues, self._count = tuple(fixed), queues, events
        self._events: dict[int, list[Event]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._fixed)

    def at(self, stream: int, address: Callable[[str], int]) -> list[int]:
        """All of them for a queue of calls; `address` gives functions of the driver."""
        if self.queues == 1:
            return list(self._fixed)
        events = self._events.get(stream)
        if events is None:
            events = self._events[stream] = [Event(timed=False) for _ in range(self._count)]
        functions = [address(name) for name in ("cuEventRecord", "cuStreamWaitEvent")]
        sides = sides_of(stream, self.queues - 1)
        return [*self._fixed, *functions, *sides, *(event.handle for event in events)]
