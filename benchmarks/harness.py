"""The harness: contenders checked for correctness, then timed interleaved, in random order, in one process."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.contenders.contender import Contender, NotOfferedError, Run
from benchmarks.environment import Moment
from benchmarks.workloads import Workload

WARM_UP = 3
LEAST_SAMPLE = 2e-3
"""Seconds a sample lasts at least: calls that are shorter are timed several at a time."""
HOPELESS, HOPELESS_SECONDS = 20.0, 0.5
"""A peer so many times slower than the best, at so many seconds a call, is timed once and left out of later rows."""


@dataclass(frozen=True)
class Plan:
    """How to measure; `pause` lets the idle threads of other libraries' pools stop spinning.

    Every row has `rounds` rounds at least; short ones go on for `seconds`, up to four times as many.
    """

    threads: int
    rounds: int = 15
    seconds: float = 0.0
    pause: float = 0.25
    disturbance: float = 0.08
    clock: str = "auto"
    seed: int = 0

    @property
    def uses_cpu_time(self) -> bool:
        """With one thread the CPU time of the process is the wall time of a quiet machine."""
        return self.clock == "cpu" or (self.clock == "auto" and self.threads == 1)


@dataclass
class Row:
    """What was found for one workload at one number of threads; times in seconds for one call."""

    family: str
    name: str
    threads: int
    flops: float
    clock: str
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    tolerance: float = 0.0
    disturbed_rounds: int = 0

    def median(self, contender: str) -> float:
        """The median time of one call."""
        return statistics.median(self.samples[contender])

    def ratio(self, contender: str, to: str) -> float | None:
        """The median of what one time is of another's in the same round; None where they had no round in common.

        What slows the machine for longer than a round slows both, and falls out.
        """
        ones, others = self.samples[contender], self.samples[to]
        if len(ones) != len(others):
            return None
        return statistics.median(one / other for one, other in zip(ones, others, strict=True))

    def as_json(self) -> dict[str, Any]:
        """Plain values, medians included."""
        medians = {name: self.median(name) for name in self.samples}
        return {**asdict(self), "medians": medians}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Row:
        """The row that `as_json` was made from."""
        return Row(**{name: value for name, value in values.items() if name != "medians"})


@dataclass
class Entry:
    """A contender ready to run one workload, and how many calls make one sample."""

    contender: Contender
    run: Run
    calls: int = 1
    first: float = 0.0


def measure(
    work: Workload, contenders: Sequence[Contender], plan: Plan, hopeless: dict[str, str], say: Callable[[str], None]
) -> Row:
    """Check and time every contender on one workload; `hopeless` names those to leave out, and grows."""
    row = Row(work.family, work.name, plan.threads, work.flops, "cpu" if plan.uses_cpu_time else "wall")
    arrays = work.inputs()
    reference = work.reference(arrays)
    row.tolerance = work.tolerance(reference)
    entries: list[Entry] = []
    for contender in contenders:
        if contender.name in hopeless:
            row.skipped[contender.name] = hopeless[contender.name]
            continue
        say(f"{work.name}: {contender.name} is made ready")
        try:
            entry = _ready(contender, work, arrays, reference, row)
        except NotOfferedError as reason:
            row.skipped[contender.name] = str(reason)
        except Exception as error:  # one library failing on one row is a fact to report, not the end of the run
            row.skipped[contender.name] = (
                f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            )
        else:
            entries.append(entry)
    if entries:
        drop_hopeless(entries, row, hopeless)
        say(f"{work.name}: timed")
        take_turns(entries, plan, row)
    return row


def _ready(contender: Contender, work: Workload, arrays: Any, reference: Any, row: Row) -> Entry:
    """Compiled, checked against the reference, warmed up, and its sample size chosen."""
    run = contender.prepare(work, arrays)
    result = contender.to_numpy(run())
    # Compared as f32: what is lost in float64 is far below the tolerance, and half the memory moves.
    error = float(np.max(np.abs(result.astype(np.float64) - reference))) if result.size else 0.0
    del result
    row.errors[contender.name] = error
    if not error <= row.tolerance:
        raise ArithmeticError(f"wrong by {error:.3g}, where rounding explains {row.tolerance:.3g}")
    entry = Entry(contender, run)
    times = [time_calls(run, 1, use_cpu_time=False)]
    while len(times) < WARM_UP and times[0] < 1.0:
        times.append(time_calls(run, 1, use_cpu_time=False))
    entry.first = min(times)
    entry.calls = max(1, round(LEAST_SAMPLE / max(entry.first, 1e-7)))
    return entry


def drop_hopeless(entries: list[Entry], row: Row, hopeless: dict[str, str]) -> None:
    """Leave out who is far behind: timed once, and named in `hopeless` with the reason."""
    best = min(entry.first for entry in entries)
    for entry in list(entries):
        name = entry.contender.name
        if entry.first > max(HOPELESS * best, HOPELESS_SECONDS) and not entry.contender.is_ours:
            hopeless[name] = f"{entry.first / best:.0f} times slower than the best at {row.name}"
            row.samples[name] = [entry.first]
            entries.remove(entry)


def take_turns(entries: Sequence[Entry], plan: Plan, row: Row) -> None:
    """Rounds in which every contender is measured once, in random order; disturbed ones are repeated, up to as many."""
    order = random.Random(plan.seed)
    kept: list[dict[str, float]] = []
    disturbed: list[tuple[float, dict[str, float]]] = []
    gc.collect()
    gc.disable()
    end = time.perf_counter() + plan.seconds

    def is_enough() -> bool:
        if len(kept) < plan.rounds:
            return len(disturbed) >= plan.rounds
        return len(kept) >= 4 * plan.rounds or time.perf_counter() > end

    try:
        while not is_enough():
            turn = order.sample(list(entries), len(entries))
            before = Moment.now()
            times = {entry.contender.name: _turn(entry, plan) for entry in turn}
            noise = before.disturbance(Moment.now())
            if noise > plan.disturbance:
                disturbed.append((noise, times))
            else:
                kept.append(times)
    finally:
        gc.enable()
    # Too few quiet rounds: the least disturbed of the others fill up.
    disturbed.sort(key=lambda item: item[0])
    missing = max(0, plan.rounds - len(kept))
    row.disturbed_rounds = missing
    rounds = (*kept, *(times for _, times in disturbed[:missing]))
    for name in (entry.contender.name for entry in entries):
        row.samples[name] = [times[name] for times in rounds]


def _turn(entry: Entry, plan: Plan) -> float:
    if plan.threads > 1 and plan.pause:
        time.sleep(plan.pause)
    # Wakes the library's pool and brings the inputs back into the caches.
    entry.run()
    return time_calls(entry.run, entry.calls, use_cpu_time=plan.uses_cpu_time)


def time_calls(run: Run, calls: int, *, use_cpu_time: bool) -> float:
    """Seconds that one of so many calls takes."""
    clock = time.process_time_ns if use_cpu_time else time.perf_counter_ns
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls * 1e-9


def time_on_device(torch: Any, run: Callable[[], Any], calls: int) -> float:
    """Seconds of one of several calls, by events of a GPU around them all."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return 1e-3 * first.elapsed_time(last) / calls


def measure_all(
    works: Iterable[Workload],
    contenders: Sequence[Contender],
    plan: Plan,
    say: Callable[[str], None],
    done: Callable[[Row], None],
) -> list[Row]:
    """Every workload; `done` hears of each row as it is finished."""
    hopeless: dict[str, dict[str, str]] = {}
    rows: list[Row] = []
    for work in works:
        row = measure(work, contenders, plan, hopeless.setdefault(work.family, {}), say)
        rows.append(row)
        done(row)
    return rows
