"""Spare time between calls: what two processes share to know when none is waited for, and what measures only then.

A serving process counts its calls in memory that it shares with one that measures plans. That one begins a run when no
call is under way and none has been for a while, and throws the run away where a call came meanwhile: the call waits for
nothing, and no time is counted that a call has slowed. The two agree on the clock, which is the machine's.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tessera.tuner.protocol import InProcess, Protocol, Workload
from tessera.tuner.records import Compiled, Plan, Trial
from tessera.tuner.search import BudgetError

_STARTED, _UNDER_WAY, _SETTLED, _LAST = range(4)
"""Calls begun so far, those under way, how many were begun when the device was last done, and when the last ended."""
_USED, _DISCARDED, _RUNS = range(4, 7)
"""Nanoseconds of the budget that are used, runs that calls have spoilt, and those that count: of who measures."""
_WORDS = 7
_NAP = 0.001
"""Seconds between two looks at whether it is quiet."""
_MOST_TRIES = 200
"""Runs in a row that calls may spoil before a plan is abandoned."""


class CallCounter:
    """The calls of a process, in memory that another process sees; its methods take some 200 ns."""

    def __init__(self, file: int | None = None) -> None:
        """`file` is the descriptor of another process's counter; without it the memory is new."""
        self.file = os.memfd_create("tessera-calls") if file is None else file
        if file is None:
            os.ftruncate(self.file, 8 * _WORDS)
        self._map = mmap.mmap(self.file, 8 * _WORDS)
        self._words = memoryview(self._map).cast("Q")
        self._lock = threading.Lock()
        self._is_open = True

    def enter(self) -> None:
        """A call begins; once it is closed, nothing is counted."""
        with self._lock:
            if self._is_open:
                self._words[_STARTED] += 1
                self._words[_UNDER_WAY] += 1

    def leave(self, *, is_settled: bool = True) -> None:
        """A call has returned; `is_settled` says that its device is done with it too."""
        with self._lock:
            if not self._is_open:
                return
            self._words[_LAST] = time.monotonic_ns()
            self._words[_UNDER_WAY] -= 1
            if is_settled and not self._words[_UNDER_WAY]:
                self._words[_SETTLED] = self._words[_STARTED]

    def settle(self, started: int) -> None:
        """The device is done with the first so many calls."""
        with self._lock:
            self._words[_SETTLED] = max(self._words[_SETTLED], started)
            self._words[_LAST] = time.monotonic_ns()

    @property
    def started(self) -> int:
        """Calls that were begun so far."""
        return self._words[_STARTED]

    @property
    def is_unsettled(self) -> bool:
        """Whether all calls have returned, and nobody knows of the device that it is done."""
        return not self._words[_UNDER_WAY] and self._words[_SETTLED] != self._words[_STARTED]

    def is_quiet(self, seconds: float) -> bool:
        """Whether no call is under way, none has been for so long, and the device is done with all."""
        words = self._words
        if words[_UNDER_WAY] or words[_SETTLED] != words[_STARTED]:
            return False
        return time.monotonic_ns() - words[_LAST] >= seconds * 1e9

    def publish(self, used: float, discarded: int, runs: int) -> None:
        """Say how far measuring is: seconds of the budget that are used, and the runs that do not count and do."""
        self._words[_USED], self._words[_DISCARDED], self._words[_RUNS] = int(used * 1e9), discarded, runs

    @property
    def progress(self) -> tuple[float, int, int]:
        """What was published last."""
        words = self._words
        return words[_USED] / 1e9, words[_DISCARDED], words[_RUNS]

    def close(self) -> None:
        """Let the memory go; calls that are under way still, in other threads, then leave uncounted."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._words.release()
                self._map.close()
                os.close(self.file)


class SpareTime:
    """The time that measuring may take: when it is quiet, a share of that, and a budget in all.

    What counts against the budget is everything but waiting: compiling, running, and runs that calls have spoilt.
    """

    def __init__(self, calls: CallCounter, budget: float, share: float = 1.0, quiet: float = 0.005) -> None:
        self._calls, self._share, self._quiet = calls, share, quiet
        self.budget, self.discarded, self.runs = budget, 0, 0
        self._start: float | None = None
        self._before = 0.0

    @property
    def used(self) -> float:
        """Seconds of the budget that were used."""
        return self._before + (0.0 if self._start is None else time.monotonic() - self._start)

    @contextmanager
    def count_time(self) -> Generator[None]:
        """Within it, time counts against the budget, waiting apart."""
        self._start = time.monotonic()
        try:
            yield
        finally:
            self._before, self._start = self.used, None

    @contextmanager
    def _stop_counting(self) -> Generator[None]:
        self._before, self._start = self.used, None
        self._calls.publish(self._before, self.discarded, self.runs)
        try:
            yield
        finally:
            self._start = time.monotonic()

    def check(self, limit: float = 1.0) -> None:
        """Raise BudgetError where this part of the budget is used up."""
        if self.used >= limit * self.budget:
            raise BudgetError

    def wait(self) -> int:
        """Come back when it is quiet; the number of calls until then."""
        with self._stop_counting():
            while not self._calls.is_quiet(self._quiet):
                time.sleep(_NAP)
        return self._calls.started

    def pause(self, seconds: float) -> None:
        """Leave the machine alone behind so many seconds of work, as the share wants it."""
        with self._stop_counting():
            time.sleep(seconds * (1 / self._share - 1))

    def run(self, work: Callable[[], float]) -> float:
        """What `work` gives when no call disturbed it; one that a call came in on is done again later."""
        for _ in range(_MOST_TRIES):
            started, began = self.wait(), time.monotonic()
            found = work()
            self.pause(time.monotonic() - began)
            if self._calls.started == started:
                self.runs += 1
                return found
            self.discarded += 1
        raise BudgetError


class _SpareProgram:
    """A compiled plan that runs in spare time."""

    def __init__(self, compiled: Compiled, spare: SpareTime) -> None:
        self._compiled, self._time = compiled, spare

    def run(self) -> float:
        return self._time.run(self._compiled.run)

    def bits(self) -> str:
        self._time.wait()
        return self._compiled.bits()

    @property
    def code(self) -> str:
        return str(getattr(self._compiled, "code", ""))

    def close(self) -> None:
        self._compiled.close()


class _SpareWorkload:
    """A workload whose plans are compiled and run in spare time."""

    def __init__(self, workload: Workload, spare: SpareTime) -> None:
        self._workload, self._time = workload, spare

    def compile(self, plan: Plan) -> Compiled:
        self._time.wait()
        began = time.monotonic()
        made = self._workload.compile(plan)
        self._time.pause(time.monotonic() - began)
        return _SpareProgram(made, self._time)

    def prepare(self, plan: Plan) -> None:
        self._workload.prepare(plan)

    def flush(self) -> None:
        self._workload.flush()

    def close(self) -> None:
        self._workload.close()


class SpareMeasurer(InProcess):
    """Measures plans in spare time, and none once `limit` of the budget is used up."""

    def __init__(self, workload: Workload, spare: SpareTime, limit: float = 1.0) -> None:
        super().__init__(_SpareWorkload(workload, spare), Protocol(), is_distinct=True)
        self._time, self._limit = spare, limit

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> dict[Plan, str]:
        """Nothing; it raises BudgetError where no time is left to measure what is compiled."""
        del plans, seconds
        self._time.check(self._limit)
        return {}

    def measure(self, plan: Plan, rounds: int = Protocol().rounds) -> Trial:
        """As any measurer does, run by run between calls."""
        self._time.check(self._limit)
        return super().measure(plan, rounds)
