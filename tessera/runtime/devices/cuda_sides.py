"""Queues beside that of a call, for programs that fill several, and the events between them.

In a recording queues become branches, and cost nothing when it is replayed. Launches that are not recorded take the
host longer than most kernels run, and events would add to it: they all go into the queue of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tessera.runtime.devices.cuda_stream import Event, sides_of


class Words:
    """What an entry reads behind the first words of its table: handles of kernels and places of constants.

    Behind those stands what a program of several queues needs: two functions, the other queues, its events.
    """

    def __init__(self, fixed: Sequence[int], queues: int = 1, events: int = 0, nothing: int = 0) -> None:
        """`nothing` is a function that does nothing, in place of the driver's where there is one queue."""
        self._fixed, self.queues, self._count, self._nothing = tuple(fixed), queues, events, nothing
        self._events: dict[int, list[Event]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._fixed)

    def at(self, stream: int, address: Callable[[str], int], *, is_recorded: bool = False) -> list[int]:
        """All of them for a queue of calls; `address` gives functions of the driver."""
        if self.queues == 1:
            return list(self._fixed)
        if not is_recorded:
            return [*self._fixed, self._nothing, self._nothing, *[stream] * (self.queues - 1), *[0] * self._count]
        events = self._events.get(stream)
        if events is None:
            events = self._events[stream] = [Event(timed=False) for _ in range(self._count)]
        functions = [address(name) for name in ("cuEventRecord", "cuStreamWaitEvent")]
        sides = sides_of(stream, self.queues - 1)
        return [*self._fixed, *functions, *sides, *(event.handle for event in events)]
