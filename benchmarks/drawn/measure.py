"""One drawn program from arguments to a row: each contender checked, then all of them timed in bursts by turns."""

from __future__ import annotations

import ctypes
import gc
import math
import random
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.contenders.contender import Contender, NotOfferedError
from benchmarks.device_lock import alone_at
from benchmarks.drawn.check import Check
from benchmarks.drawn.peers import Offer, Side
from benchmarks.drawn.program import Program, plain
from benchmarks.harness import LEAST_SAMPLE, Entry, Plan, Row, drop_hopeless, take_turns, time_calls, time_on_device
from benchmarks.result import OURS, verdict
from tessera.runtime.tensor import native
from tests.device.poison import poisoned

MOST_CALLS, PAUSE = 400, 0.005
"""Of a burst on a GPU, whose stream holds so many at most, and before it."""
SHORTEST, FEWEST, ROW_SECONDS = 1e-7, 3, 8.0
"""Of a call, of rounds, and of all rounds of a row."""


@dataclass(frozen=True)
class Bench:
    """Where and how long: the device, the libraries, rounds, and seconds for one contender to get ready.

    Behind `lock` one process at a time is at the device.
    """

    device: str
    torch: Any
    jax: Any
    plan: Plan
    ready_seconds: float
    peers: tuple[str, ...] = ()
    lock: Path | None = None


class TooSlowError(Exception):
    """A contender was not ready in its time."""


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Raise TooSlowError in here when the time is up; what never comes back to Python is not reached."""

    def stop(number: int, frame: Any) -> None:
        raise TooSlowError(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure(program: Program, bench: Bench, say: Callable[[str], None], avoid: Sequence[str] = ()) -> dict[str, Any]:
    """A row: how long each contender takes, and why one is missing. Our own failure is a row, too.

    `say` hears which contender gets ready. Those to `avoid` do not.
    """
    row = Row(program.kind, program.name, bench.plan.threads, program.flops, "")
    found: dict[str, Any] = {"program": program.name, "kind": program.kind, "dtype": program.dtype}
    found |= {"ops": program.ops, "bytes": program.bytes, "flops": program.flops}
    with time_limit(bench.ready_seconds):
        side = Side(program, bench.device, bench.torch, bench.jax, bench.peers)
    check, entries = Check(side), list[Entry]()
    for name, make in side.offers().items():
        if name in avoid:
            continue
        say(name)
        try:
            entries.append(_ready(name, make, check, bench, row))
        except NotOfferedError as reason:
            row.skipped[name] = str(reason)
        except Exception as error:  # one library failing on one program is a fact to report
            row.skipped[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
        if name == OURS and OURS in row.skipped:
            break
    if OURS not in row.skipped and len(entries) > 1:
        say(OURS)
        check.wide, check.spread = None, []
        drop_hopeless(entries, row, {})
        with _alone(bench):
            _take_turns(entries, bench, row)
    return {**found, "checked": check.how, **_judge(row)}


def _judge(row: Row) -> dict[str, Any]:
    judged = verdict(row)
    status = "failed" if OURS in row.skipped else "timed" if judged is not None else "no peer"
    found: dict[str, Any] = {"status": status, "skipped": row.skipped, "errors": row.errors}
    found["medians"] = {name: row.median(name) for name in row.samples}
    if judged is not None:
        found |= {"peer": judged.peer, "ratio": judged.ratio}
    return found


def _ready(name: str, make: Callable[[], Offer], check: Check, bench: Bench, row: Row) -> Entry:
    """Compiled, checked, warm, and its number of calls chosen."""
    with time_limit(bench.ready_seconds), _poison(check.program, bench.device) if name == OURS else nullcontext():
        offer = make()
        given = offer.unpack(offer.run())
        _synchronize(bench)
    entry = Entry(Contender(name, lambda work, arrays: offer.run, is_ours=name == OURS), offer.run)
    times: list[float] = []
    with _alone(bench):
        error = check.ours(given) if name == OURS else check.peer(given)
        row.errors[name] = error if math.isfinite(error) else -1.0
        del given
        with time_limit(bench.ready_seconds):
            while len(times) < 3 and sum(times) < 0.5:
                times.append(_time_one(offer, bench))
    entry.first = min(times)
    calls = round(LEAST_SAMPLE / max(entry.first, SHORTEST))
    entry.calls = max(1, calls if bench.device == "cpu" else min(calls, MOST_CALLS))
    return entry


def _poison(program: Program, device: str) -> AbstractContextManager[None]:
    """Memory that results are given next, full of NaN: what is not written shows."""
    if device != "cpu":
        return poisoned()
    blocks: list[int] = []
    for type in program.results:
        size = math.prod(plain(type.shape)) * type.dtype.bits // 8
        address = native().alloc(size) if size else 0
        if address:
            ctypes.memset(address, 0xFF, size)
            blocks.append(address)
    for address in blocks:
        native().free(address)
    return nullcontext()


@contextmanager
def _alone(bench: Bench) -> Generator[None]:
    """Alone at the device; memory that a check took is there for the next process."""
    with alone_at(bench.lock):
        yield
        if bench.lock is not None:
            bench.torch.cuda.synchronize()
            bench.torch.cuda.empty_cache()


def _synchronize(bench: Bench) -> None:
    if bench.device != "cpu":
        bench.torch.cuda.synchronize()


def _time_one(offer: Offer, bench: Bench) -> float:
    if bench.device == "cpu":
        return time_calls(offer.run, 1, use_cpu_time=False)
    return _time_burst(bench.torch, offer.run, 3)


def _time_burst(torch: Any, run: Callable[[], Any], calls: int) -> float:
    """Seconds of one call, by events of the device around a burst: what limits it, the host or the device, counts."""
    run()
    torch.cuda.synchronize()
    return time_on_device(torch, run, calls)


def _take_turns(entries: list[Entry], bench: Bench, row: Row) -> None:
    """Rounds by turns, fewer where one takes long."""
    one = sum((entry.calls + 1) * entry.first for entry in entries)
    rounds = max(FEWEST, min(bench.plan.rounds, int(ROW_SECONDS / max(one, SHORTEST))))
    if bench.device == "cpu":
        take_turns(entries, replace(bench.plan, rounds=rounds), row)
        return
    order = random.Random(bench.plan.seed)
    for entry in entries:
        row.samples[entry.contender.name] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for entry in order.sample(entries, len(entries)):
                time.sleep(PAUSE)
                row.samples[entry.contender.name].append(_time_burst(bench.torch, entry.run, entry.calls))
    finally:
        gc.enable()
