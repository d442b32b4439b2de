"""Choosing algorithms of collectives by measuring them on ranks: which is taken for how many bytes is kept.

The algorithms move the same bytes (`runtime/ranks/algorithms.py`), so that none changes a bit; they differ in how many
messages and steps they take. A world of ranks runs each of them in rounds, in an order that is drawn anew for each and
is the same on all ranks. A round takes as long as its slowest rank. One takes the place of `direct` by the rule by
which any plan takes that of the safe one. Whoever starts ranks gives all of them the same table.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tessera.api.program_tuning import check_settings
from tessera.api.stored_plans import architecture, runtime_text
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TuningError
from tessera.runtime.ranks import world
from tessera.runtime.ranks.algorithms import ALGORITHMS, DIRECT, Row, Table
from tessera.runtime.ranks.world import Exchange
from tessera.tuner.acceptance import Criteria, judge
from tessera.tuner.database import default_database
from tessera.tuner.protocol import LEAST_ROUNDS
from tessera.tuner.records import Entry, Plan, Signature, Trial, median_ratio
from tessera.tuner.shapes import bucket, sizes_of
from tessera.types.frozen import frozen

KNOB = "collectives.algorithm"
SIZES = tuple(1 << power for power in range(6, 23, 4))
"""Bytes of a rank's part that are measured: 64 to 4 MiB, each sixteen times the one before."""
WARMUPS, ROUNDS = 3, 21
MOST_CALLS = 16
"""Exchanges of one timed run of few bytes: one takes no longer than waking a thread."""
Times = Mapping[str, Sequence[float]]
"""Nanoseconds of each round, by algorithm."""


@frozen
class CollectiveChoice:
    """What was chosen for a call of so many bytes, and all that was measured."""

    call: str
    ranks: int
    bytes: int
    algorithm: str
    trials: tuple[Trial, ...]
    reason: str = ""
    """Why it is the usual one, where it is."""

    def __str__(self) -> str:
        times = {str(trial.plan.overrides[KNOB]): trial.time for trial in self.trials}
        if self.trials:
            times = {DIRECT: statistics.median(self.trials[0].baseline), **times}
        shown = ", ".join(f"{name} {(found or 0.0) / 1e3:.1f} us" for name, found in times.items())
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.call} of {self.bytes} bytes over {self.ranks} ranks: {self.algorithm}; {shown}{why}"


@frozen
class CollectiveTuning:
    """What tuning collectives came to; printed, it is a page."""

    ranks: int
    choices: tuple[CollectiveChoice, ...]
    source: str
    """`measured`, or `database` where nothing had to be."""
    seconds: float
    stopped: str = ""
    """`budget` where it did not come to its end."""

    def __str__(self) -> str:
        how = f"measured in {self.seconds:.1f} s" if self.source == "measured" else "found in the database"
        ended = f", ended by the {self.stopped}" if self.stopped else ""
        return "\n".join([f"collectives over {self.ranks} ranks: {how}{ended}", *(f"  {one}" for one in self.choices)])

    __repr__ = __str__


def collectives(
    ranks: int,
    sizes: Sequence[int] = SIZES,
    *,
    calls: Sequence[str] = tuple(ALGORITHMS),
    budget: float = 30.0,
    threshold: float = 0.07,
    retune: bool = False,
) -> CollectiveTuning:
    """Measure the algorithms of collectives among so many ranks of this machine, and keep which is best for which size.

    `sizes` are bytes of a rank's part, of which the buckets are measured. Later `dist.run` and `tessera run` with as
    many ranks use what was found; sizes in between have the algorithm of the nearest one. Nothing begins after `budget`
    seconds. No bit of any result depends on it.

    Raises: TuningError (T0803) for settings that say nothing.
    """
    from tessera.runtime.ranks.processes import MOST, launch  # noqa: PLC0415 - few programs start others

    check_settings("hybrid", budget, threshold)
    _check(ranks, sizes, calls, MOST)
    start, database = time.monotonic(), default_database()
    wanted = [(call, size) for call in calls for size in sorted({max(1, bucket(size)) for size in sizes})]
    known = {} if retune else {case: database.lookup(signature_of(ranks, *case)) for case in wanted}
    missing = [case for case in wanted if known.get(case) is None]
    measured: dict[tuple[str, int], tuple[Times, str, Mapping[str, str]]] = {}
    if missing:
        task: dict[str, Any] = {"function": measure_here, "args": (missing, budget), "kwargs": {}}
        measured = join_ranks(launch(task, ranks))
    choices: list[CollectiveChoice] = []
    for call, size in wanted:
        if (call, size) in measured:
            one = choose(call, ranks, size, *measured[call, size], Criteria(threshold=threshold))
            database.store(signature_of(ranks, call, size), Plan.of({KNOB: one.algorithm}), one.trials)
            choices.append(one)
        elif (found := known.get((call, size))) is not None:
            choices.append(_recall(call, ranks, size, found))
    stopped = "budget" if len(measured) < len(missing) else ""
    source = "measured" if missing else "database"
    return CollectiveTuning(ranks, tuple(choices), source, time.monotonic() - start, stopped)


def _check(ranks: Any, sizes: Any, calls: Any, most: int) -> None:
    if type(ranks) is not int or not 2 <= ranks <= most:
        raise TuningError(f"`ranks` is a number from 2 to {most}, got {ranks!r}", fix="write `ranks=4`")
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise TuningError(f"`sizes` are bytes, each more than 0, got {sizes!r}", fix="leave them out")
    for call in calls:
        if call not in ALGORITHMS:
            raise TuningError(f"`calls` are of {', '.join(ALGORITHMS)}, got {call!r}", fix="leave them out")


def signature_of(ranks: int, call: str, size: int) -> Signature:
    """Whose algorithm it is: a call of so many bytes of each rank, between so many ranks, on this machine."""
    name, text, options = f"collective_{call}", f"~{size}", Options()
    return Signature(name, text, "u8", f"ranks{ranks}", architecture(options), "", runtime_text(options))


def _recall(call: str, ranks: int, size: int, entry: Entry) -> CollectiveChoice:
    algorithm = str(entry.plan.overrides.get(KNOB, DIRECT))
    return CollectiveChoice(call, ranks, size, algorithm, (), f"known before ({entry.source})")


def stored_table(ranks: int) -> Table:
    """Which algorithm a world of so many ranks takes for how many bytes, by what the database has."""
    rows: dict[tuple[str, int], list[Row]] = {}
    for call, known in ALGORITHMS.items():
        found: list[tuple[int, str]] = []
        for entry in default_database().verdicts(signature_of(ranks, call, 1)):
            name = entry.plan.overrides.get(KNOB)
            if name in known:  # one that this version does not have is not taken
                found.append((sizes_of(entry.signature.shape_sig)[0], str(name)))
        rows[call, ranks] = bound_rows(found)
    return Table(rows)


def bound_rows(found: Sequence[tuple[int, str]]) -> list[Row]:
    """Algorithms of sizes as rows of a table: each up to halfway to the next size, by ratio.

    >>> bound_rows([(64, "tree"), (4096, "direct")])
    [(512, 'tree'), (4096, 'direct')]
    """
    ordered = sorted(found)
    ends = [math.isqrt(one[0] * other[0]) for one, other in pairwise(ordered)]
    return [(end, name) for end, (_, name) in zip([*ends, *[size for size, _ in ordered[-1:]]], ordered, strict=True)]


# Deciding.


def choose(
    call: str, ranks: int, size: int, times: Times, safe_bits: str, bits: Mapping[str, str], criteria: Criteria
) -> CollectiveChoice:
    """The algorithm that is surely faster than the usual one, and fastest of those; else the usual one."""
    baseline = tuple(times[DIRECT])
    trials = [
        Trial(Plan.of({KNOB: name}), tuple(found), baseline, bits=bits[name])
        for name, found in times.items()
        if name != DIRECT
    ]
    decisions = [judge(trial, safe_bits, criteria) for trial in trials]
    able = [trial for trial, decision in zip(trials, decisions, strict=True) if decision.accepted]
    if not able:
        reason = "; ".join(str(decision) for decision in decisions)
        return CollectiveChoice(call, ranks, size, DIRECT, tuple(trials), reason)
    best = max(able, key=median_ratio)
    return CollectiveChoice(call, ranks, size, str(best.plan.overrides[KNOB]), tuple(trials))


Found = dict[tuple[str, int], tuple[dict[str, list[float]], dict[str, str]]]


def join_ranks(ranks: Sequence[Found]) -> dict[tuple[str, int], tuple[Times, str, Mapping[str, str]]]:
    """What ranks measured as one: a round takes as long as its slowest rank, and bits are those of all ranks."""
    joined: dict[tuple[str, int], tuple[Times, str, Mapping[str, str]]] = {}
    for case in ranks[0]:
        parts = [one[case] for one in ranks]
        names = list(parts[0][0])
        rounds = {name: zip(*(one[0][name] for one in parts), strict=True) for name in names}
        times = {name: [max(several) for several in found] for name, found in rounds.items()}
        bits = {name: "".join(one[1][name][:16] for one in parts) for name in names}
        joined[case] = times, bits[DIRECT], bits
    return joined


# On a rank.


def measure_here(cases: Sequence[tuple[str, int]], budget: float) -> Found:
    """Times of every algorithm of some cases on this rank, round by round; all ranks of the world call it together."""
    end, found = time.monotonic() + budget, Found()
    for call, size in cases:
        measured = None if has_ended(end) else _measure_case(call, size, end)
        if measured is None:
            break
        found[call, size] = measured
    return found


def has_ended(end: float) -> bool:
    """Whether the first rank's time is over: one clock decides for all of them, which it also brings together."""
    mine = (ctypes.c_uint8 * 1)(time.monotonic() >= end)
    theirs = (ctypes.c_uint8 * world.size())()
    _exchange("all_gather", ctypes.addressof(mine), ctypes.addressof(theirs), 1, DIRECT)
    return bool(theirs[0])


def _exchange(call: str, source: int, target: int, size: int, algorithm: str) -> None:
    communicator = world.current()
    assert communicator is not None
    what = f"`{call}` of {size} bytes that is measured, by {algorithm}"
    group = range(communicator.size)
    communicator.wait(communicator.start(Exchange(call, group, source, target, size, what, algorithm)))


def _measure_case(call: str, size: int, end: float) -> tuple[dict[str, list[float]], dict[str, str]] | None:
    """Times and bits of all algorithms; None where the budget ends before there are rounds enough to decide."""
    ranks, names = world.size(), ALGORITHMS[call]
    rng = random.Random(f"{call} {size}")  # the same on all ranks, which must be at the same exchange
    data = random.Random(world.rank()).randbytes(size * (ranks if call == "all_to_all" else 1))
    source, target = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(size * ranks)
    begins, ends = ctypes.addressof(source), ctypes.addressof(target)
    calls = max(1, min(MOST_CALLS, (1 << 18) // size))
    times: dict[str, list[float]] = {name: [] for name in names}
    bits: dict[str, str] = {}
    for name in names:
        ctypes.memset(ends, 0xA5, size * ranks)
        _exchange(call, begins, ends, size, name)
        bits[name] = hashlib.sha256(target.raw).hexdigest()
    for number in range(WARMUPS + ROUNDS):
        if has_ended(end):
            break
        for name in rng.sample(names, len(names)):
            has_ended(end)  # all begin together
            took = _time(lambda name=name: _exchange(call, begins, ends, size, name), calls)
            if number >= WARMUPS:
                times[name].append(took)
    return (times, bits) if len(times[DIRECT]) >= LEAST_ROUNDS else None


def _time(work: Callable[[], None], calls: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(calls):
        work()
    return max(1.0, (time.perf_counter_ns() - began) / calls)
