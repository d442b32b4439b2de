"""Times of launches on a CUDA device: while somebody records, the host program puts an event before and after each.

The host program calls functions of the driver by their addresses. While launches are timed it is given others, as it is
while streams are watched for races (`race_check.py`): they record an event, call the driver, and record another. A call
then takes the checked path, and replays nothing: each kernel is launched by itself, some microseconds after the other.
Nothing is different for calls that nobody times.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.race_check import Watcher, watching
from tessera.runtime.devices.cuda.streams import Event
from tessera.runtime.ranks.world import rank
from tessera.runtime.timeline import Entry, Span
from tessera.types.frozen import frozen

_TIMED: Mapping[str, tuple[int, int, str]] = {
    "cuLaunchKernel": (11, 8, ""),
    "cuMemcpyDtoDAsync_v2": (4, 3, "copy"),
    "cuMemcpyDtoHAsync_v2": (4, 3, "copy to the host"),
    "cuMemcpyHtoDAsync_v2": (4, 3, "copy from the host"),
    "cuMemsetD32Async": (4, 3, "fill"),
}
"""Of each function that is timed: how many words it takes, which of them is the stream, and what it is called."""
_STOPPED = 1
"""What a function answers in place of the driver when it has raised."""


@frozen
class _Mark:
    """A launch: its kind and name, its stream, the events before and after it, and the origin of its times."""

    kind: str
    name: str
    stream: int
    before: Event
    after: Event
    base: Event
    began: int


class LaunchTimes(Watcher):
    """What is in place of the driver's functions while launches are timed; `spans` has them, in the order of starts.

    Times are those of the device, counted from when the host knew that it had nothing to do (`begin`): they are some
    microseconds later than the monotonic clock of the host, and never earlier.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, str] = {}
        self._marks: list[_Mark] = []
        self._timed: dict[str, Any] = {}
        self._origin: tuple[Event, int] | None = None
        self.missed = 0
        """Launches that were not kept: none."""

    def begin(self) -> None:
        """Set the origin of times: an event in an idle device, and the host's clock when it has come by that."""
        base = Event().record(0)
        base.synchronize()
        self._origin = base, time.monotonic_ns()

    def add_kernels(self, facts: Mapping[str, Any], words: Iterable[int]) -> None:
        self._names.update(zip(words, facts["called"], strict=False))

    def address(self, name: str) -> int:
        """The address of what is called in place of a function; of the function itself where that is not timed."""
        if name not in _TIMED:
            return driver().address(name)
        found = self._timed.get(name)
        if found is None:
            found = self._timed[name] = self._timer(name)
        return ctypes.cast(found, ctypes.c_void_p).value or 0

    def _timer(self, name: str) -> Any:
        count, at, called = _TIMED[name]
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)
        real: Callable[..., int] = kind(driver().address(name))

        def instead(*given: int | None) -> int:
            stream = given[at] or 0
            try:
                what = called or self._names.get(given[0] or 0, "a kernel")
                before = Event().record(stream)
                code = real(*given)
                if not code:
                    events = before, Event().record(stream)
                    assert self._origin is not None
                    self._marks.append(_Mark("copy" if called else "kernel", what, stream, *events, *self._origin))
            except BaseException as error:  # native code stands between here and who can catch it
                self.raised = self.raised or error
                return _STOPPED
            return code

        return kind(instead)

    @property
    def spans(self) -> tuple[Span, ...]:
        """All launches so far; waits for the device."""
        if self._marks:
            driver().call("cuCtxSynchronize")
        own, found = rank(), list[Span]()
        for mark in self._marks:
            times = [round(event.milliseconds_since(mark.base) * 1e6) for event in (mark.before, mark.after)]
            start, end = (mark.began + max(0, one) for one in times)
            found.append(Span(mark.kind, mark.name, start, max(start, end), own, "", mark.stream))
        return tuple(sorted(found, key=lambda one: (one.start, one.end)))


def _ignore(entry: Entry) -> None:
    """Nobody looks for races."""


@contextmanager
def record_launches() -> Generator[LaunchTimes]:
    """Time every launch and copy of programs that this thread calls inside the block."""
    made = LaunchTimes()
    with watching(made, _ignore):
        made.begin()
        yield made
