"""The timeline of a process: when its kernels ran and when collectives did, as spans and as a Chrome trace.

It is off unless somebody asks. Native code looks at one pointer before each kernel, and writes two times where it is
set; the clock is the monotonic one, which all processes of a machine share.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tessera.types.frozen import frozen

KERNELS = 1 << 16
"""How many kernels one timeline holds; those that run after so many are counted, and not kept."""

_FIELDS = 4  # of a kernel in native code: its address, when it began and ended, the thread that called it


@frozen
class Span:
    """Something that took time: a `kernel`, a `collective`, or a `wait` for one; in nanoseconds."""

    kind: str
    name: str
    start: int
    end: int
    rank: int

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
        self._names: dict[int, str] = {}

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

    @contextmanager
    def span(self, kind: str, name: str) -> Generator[None]:
        """Note how long a block takes."""
        start = time.monotonic_ns()
        self._open.append((kind, name))
        try:
            yield
        finally:
            self._others.append(Span(kind, name, start, time.monotonic_ns(), self.rank))
            self._open.remove((kind, name))

    def running(self) -> list[tuple[str, str]]:
        """What has begun and not ended, as pairs of kind and name."""
        return [*(("kernel", name) for name, start, end in self._kernel_times() if start and not end), *self._open]

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans that have ended."""
        kernels = [Span("kernel", name, start, end, self.rank) for name, start, end in self._kernel_times() if end]
        return tuple(sorted([*kernels, *self._others], key=lambda span: (span.start, span.end)))

    def _kernel_times(self) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        for at in range(min(KERNELS, self._kernels[1])):
            kernel, start, end, _ = self._kernels[2 + at * _FIELDS : 2 + (at + 1) * _FIELDS]
            found.append((self._name(kernel), start, end))
        return found

    def _name(self, address: int) -> str:
        if address not in self._names:
            from tessera.runtime.launch import name_at  # noqa: PLC0415 - a timeline need not see any program

            self._names[address] = name_at(address) or hex(address)
        return self._names[address]

    def save(self, path: str) -> None:
        """Write it as a Chrome trace, for `chrome://tracing` or Perfetto."""
        save_trace(path, self.spans)


_ACTIVE: list[Timeline] = []
_AWAITED: list[Timeline] = []
"""Those that are over, while kernels of other threads still have their memory to write to."""


@contextmanager
def recorded() -> Generator[Timeline]:
    """Within it, kernels and collectives of this process are noted in the timeline that it gives."""
    from tessera.runtime.ranks.world import rank  # noqa: PLC0415 - programs that are alone do not load it
    from tessera.runtime.tensor import native  # noqa: PLC0415

    made, pointer = Timeline(rank()), ctypes.c_void_p.from_address(native().code.address("tessera_timeline"))
    before = pointer.value
    _ACTIVE.append(made)
    pointer.value = made.address
    try:
        yield made
    finally:
        pointer.value = before
        _ACTIVE[:] = [one for one in _ACTIVE if one is not made]
        _AWAITED[:] = [one for one in (*_AWAITED, made) if one.is_awaited]


@contextmanager
def span(kind: str, name: str) -> Generator[None]:
    """Note how long a block takes, where somebody records."""
    with ExitStack() as stack:
        for one in _ACTIVE:
            stack.enter_context(one.span(kind, name))
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
        events.append({"ph": "X", "name": one.name, "cat": one.kind, "pid": one.rank, "tid": kinds[one.kind], **times})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def save_trace(path: str, spans: Iterable[Span]) -> None:
    """Write spans as a Chrome trace."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace_of(spans), file)
