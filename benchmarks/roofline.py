"""The roofline audit: public ops and functions over a grid, each kernel's share of what the machine was measured to do.

    python -m benchmarks.roofline [--device cpu|cuda] [--ops a,b] [--seconds S] [--threads N] [--jobs N] [--out FILE]

Micro-tests come first (`benchmarks/rates.py`, `benchmarks/gpu_rates.py`): bounds are those of this machine, now. Then
cases run until time is over, the usual ones of every op first. A kernel's bound is the larger of its bytes at the
bandwidth of their footprint and its operations at the measured rate; its share is that bound over its time. What moves
a megabyte or more and is below half is listed with the computed bound that explains it, or as not explained. An
exception is a row. On a CPU kernels are timed one by one (their timeline); on a GPU by events around programs, which
are mostly of one kernel, or around replays of them where they are short.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import gpu_rates
from benchmarks import rates as cpu_rates
from benchmarks.device_lock import alone_at
from benchmarks.drawn.functions import FUNCTIONS
from benchmarks.environment import pin
from benchmarks.gpu_record import RESULTS, facts, need_gpu
from benchmarks.roofline_cases import TARGETS, Case, cases, public
from benchmarks.roofline_causes import cpu_limits, gpu_limits, newest
from benchmarks.roofline_functions import FunctionCase, function_cases
from tessera.api.jit import Jit
from tessera.cuda import array as cuda_array
from tessera.cuda import capture
from tessera.diagnostics.error import TesseraError
from tessera.runtime.devices.cuda.memory import POOL
from tessera.runtime.timeline import record_timeline
from tessera.types.device import gpu
from tessera.types.policy import SILENT
from tessera.types.rates import Rates, Work, bound, limits, work_in
from tessera.types.settings import Settings, usable_cpus

AnyCase: TypeAlias = "Case | FunctionCase"

MUCH = 1 << 20
"""Bytes from which on a kernel is to come near its roofline."""
HALF = 0.5
CALLS, BUDGET = 5, 0.15
"""Calls at least, of which the best counts, and seconds for more of them."""
SHORT, LONG = 1e6, 50e6
"""Nanoseconds below which a program on a GPU is replayed, as the host would be what is measured where processes beside
it compile, and above which one measurement will do."""
REPLAYED = 20
MOST_FLOPS = {"cpu": 4e9, "cuda": 4e12}
"""Operations of a case at most: a tenth of a second."""
AGAIN = 0.25
"""The share of the time that is kept to measure again what was slow: other processes slow it too, at times."""
WHOLE = 600.0
"""Seconds of a run that may replace the record."""
WHOLE_CALL = "whole call"
"""What stands for the kernel in the row of a function: all of its kernels."""
NOT_EXPLAINED = "no computed bound explains it"


@dataclass
class Row:
    """A kernel of a case: what it does, how long it took, its bound, its share, and why that is small where it is."""

    case: str
    op: str
    kernel: str = ""
    kind: str = ""
    blocks: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    nanoseconds: float = 0.0
    bound: float = 0.0
    bound_by: str = ""
    share: float = 0.0
    cause: str = ""
    limits: dict[str, float] = field(default_factory=dict[str, float])
    error: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether it moves enough to matter and is below half of its roofline."""
        return not self.error and self.bytes >= MUCH and self.share < HALF


def works_of(program: Jit, sizes: Mapping[str, int]) -> list[tuple[tuple[str, ...], str, Work]]:
    """What the groups of a program's last specialization do, those of the same kernels together."""
    found: dict[tuple[str, ...], tuple[str, Work]] = {}
    loaded: Any = newest(program).loaded
    groups: Sequence[dict[str, Any]] = loaded.executable.metadata["work"]
    for one in groups:
        names: tuple[str, ...] = tuple(one["kernels"])
        work = work_in(one, sizes)
        assert work is not None, f"{names[0]} has sizes that its arguments do not"
        if names in found:
            before = found[names][1]
            blocks = (work.blocks or 0) + (before.blocks or 0)
            work = replace(work, flops=work.flops + before.flops, bytes=work.bytes + before.bytes, blocks=blocks)
        found[names] = one["kind"], work
    return [(names, kind, work) for names, (kind, work) in found.items()]


def judge(row: Row, work: Work, rates: Rates, taken: float, more: Callable[[], Mapping[str, float]] = dict) -> Row:
    """The row with its bound, share and cause: the limit that takes most of the time, where that is half of it.

    `more` gives the limits that take a look at its code.
    """
    row.flops, row.bytes, row.blocks, row.nanoseconds = work.flops, work.bytes, work.blocks or 0, taken
    row.bound, row.bound_by = bound(work, rates)
    row.share = row.bound / taken if taken else 1.0
    row.limits = {name: value for name, value in limits(work, rates).items() if value}
    row.cause = ""
    if row.share < HALF:
        row.limits |= more() if row.bytes >= MUCH else {}
        cause = max(row.limits, key=lambda name: row.limits[name], default="")
        explains = bool(cause) and row.limits[cause] >= HALF * taken
        nearest = f" (nearest, {row.limits[cause] / taken:.0%} of its time: {cause})" if cause else ""
        row.cause = cause if explains else NOT_EXPLAINED + nearest
    return row


# On a CPU: the timeline of the process has each kernel.


def kernel_times(run: Callable[[], Any], budget: float = BUDGET) -> dict[str, float]:
    """Nanoseconds of each kernel in a call, all of its launches together: the best call.

    With one thread the kernels of a call take no longer than its CPU time: what other processes take falls out.
    """
    run()
    start = time.perf_counter()
    run()
    least = CALLS if time.perf_counter() - start < LONG / 1e9 else 1
    own: list[float] = []
    is_alone, end = Settings.from_environment().threads == 1, time.perf_counter() + budget
    with record_timeline() as timeline:
        while len(own) < least or (time.perf_counter() < end and len(own) < 1000):
            before = time.thread_time_ns()
            run()
            own.append(time.thread_time_ns() - before if is_alone else math.inf)
    spans = [(span.name, span.end - span.start) for span in timeline.spans if span.kind == "kernel"]
    each = len(spans) // len(own)
    found: dict[str, float] = {}
    for number, most in enumerate(own):
        part = spans[number * each : (number + 1) * each]
        share = min(1.0, most / max(1, sum(taken for _, taken in part)))
        times: dict[str, float] = {}
        for name, taken in part:
            times[name] = times.get(name, 0.0) + taken * share
        if not found or sum(times.values()) < sum(found.values()):
            found = times
    return found


def rows_on_cpu(case: AnyCase, rates: Rates) -> Iterator[Row]:
    """The kernels of a case, timed one by one."""
    program, arrays = case.program(), case.arrays()
    times = kernel_times(lambda: program(*arrays))
    for names, kind, work in works_of(program, case.sizes):
        taken = sum(value for name, value in times.items() if name.split("__")[0] in names)
        if taken:
            row = Row(case.name, case.op, names[0], kind)
            yield judge(row, work, rates, taken, lambda: cpu_limits(program, names, work, rates, taken))  # noqa: B023
    yield from _whole_row(case, rates, sum(times.values()))


def _whole_row(case: AnyCase, rates: Rates, taken: float) -> Iterator[Row]:
    """A call of a function of several kernels as one: what it must do at least, over the time of them all."""
    if case.whole is not None:
        work = Work(*case.whole)
        yield judge(Row(case.name, case.op, WHOLE_CALL, WHOLE_CALL), work, rates, taken)


# On a GPU: a program between two events.


def rows_on_gpu(case: AnyCase, rates: Rates, lock: Path | None = None) -> Iterator[Row]:
    """The program of a case as one row: its groups' work together. Behind `lock` one process at a time is timed."""
    program, given = case.program().under(SILENT, gpu[0]), case.arrays()
    # Compiled first, so that nothing of another process is at the device while one is timed, not even its copies.
    program.prepare(*given)

    def run() -> None:
        program(*arrays)

    with alone_at(lock):
        arrays = [cuda_array(array) for array in given]
        run()
        taken = gpu_rates.nanoseconds(run, rounds=1)
        if taken < LONG:
            taken = min(taken, gpu_rates.nanoseconds(run, CALLS))
        if taken < SHORT:
            taken = min(taken, _replayed(run))
        arrays.clear()
        POOL.trim()  # what others need too
    works = works_of(program, case.sizes)
    if not works:
        return
    names, kinds, each = zip(*works, strict=True)
    least = max(works, key=lambda item: bound(item[2], rates)[0])
    whole = replace(least[2], flops=sum(one.flops for one in each), bytes=sum(one.bytes for one in each))
    label = " + ".join(name for group in names for name in group)
    row = Row(case.name, case.op, label, kinds[0])
    launches = {"launches": rates.launch * sum(len(group) for group in names)}
    yield judge(row, whole, rates, taken, lambda: {**gpu_limits(program, whole, rates), **launches})
    yield from _whole_row(case, rates, taken)


def _replayed(run: Callable[[], None]) -> float:
    """Nanoseconds of a run among several that the device replays without the host; infinitely many if it cannot."""
    try:
        with capture() as graph:
            for _ in range(REPLAYED):
                run()
    except TesseraError:  # control flow by values of the device
        return math.inf
    return gpu_rates.nanoseconds(graph.replay, CALLS) / REPLAYED


def audit(
    chosen: Sequence[AnyCase],
    device: str,
    rates: Rates,
    seconds: float,
    say: Callable[[str], None],
    lock: Path | None = None,
) -> list[Row]:
    """Rows of the cases, until time is over; what is slow is measured again at the end, and the better time counts."""
    start, found = time.monotonic(), list[tuple[AnyCase, list[Row]]]()
    for number, case in enumerate(chosen):
        if time.monotonic() > start + (1 - AGAIN) * seconds:
            say(f"time is over after {number} of {len(chosen)} cases")
            break
        found.append((case, rows_of(case, device, rates, lock)))
        for row in found[-1][1]:
            if row.error or row.is_slow or number % 50 == 0:
                say(f"{number:5}/{len(chosen)} {row_line(row)}")
    slow = [at for at, (_, rows) in enumerate(found) if any(row.is_slow for row in rows)]
    for at in sorted(slow, key=lambda at: min(row.share for row in found[at][1])):
        if time.monotonic() > start + seconds:
            break
        case, rows = found[at]
        again = rows_of(case, device, rates, lock)
        better = [max(pair, key=lambda row: row.share) for pair in zip(rows, again, strict=False)]
        found[at] = (case, better if len(again) == len(rows) else rows)
    return [row for _, rows in found for row in rows]


def rows_of(case: AnyCase, device: str, rates: Rates, lock: Path | None = None) -> list[Row]:
    """The rows of a case; an exception is one too."""
    try:
        return list(rows_on_cpu(case, rates) if device == "cpu" else rows_on_gpu(case, rates, lock))
    except Exception as error:  # one case that fails is a fact to report, not the end of the audit
        first = (str(error).splitlines() or [""])[0]
        return [Row(case.name, case.op, error=f"{type(error).__name__}: {first[:200]}")]


def row_line(row: Row) -> str:
    """A row in a line."""
    if row.error:
        return f"{row.case}: {row.error}"
    time = f"{row.nanoseconds / 1e3:.1f} us for {row.bytes / 1e6:.1f} MB, {row.flops / 1e6:.1f} Mflop"
    cause = f": {row.cause}" if row.cause else ""
    return f"{row.share:6.1%} of {row.bound_by} {time} [{row.kind} {row.blocks}] {row.case}{cause}"


def summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts, and causes of what is slow."""
    large = [row for row in rows if not row.error and row.bytes >= MUCH]
    slow = [row for row in rows if row.is_slow]
    causes: dict[str, int] = {}
    for row in slow:
        name = re.split(r"[:(]", row.cause)[0].strip()
        causes[name] = causes.get(name, 0) + 1
    return {
        "rows": len(rows),
        "errors": sum(bool(row.error) for row in rows),
        "over_a_megabyte": len(large),
        "below_half": len(slow),
        "below_half_share": len(slow) / max(1, len(large)),
        "causes": causes,
    }


def measured_rates(device: str, threads: int, say: Callable[[str], None]) -> Rates:
    """Those of this machine, now."""
    if device == "cuda":
        return gpu_rates.rates_of(gpu_rates.measure(say))
    return cpu_rates.rates_of([cpu_rates.measure(count, say) for count in sorted({1, threads})])


def _read_names(parser: argparse.ArgumentParser, option: str, text: str, known: Sequence[str]) -> list[str]:
    """The names of an option; one that there is not ends the command before anything is measured."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"--{option} has no `{unknown[0]}`; there are {', '.join(known)}")
    return names


def audit_in_parts(asked: argparse.Namespace, rates: Rates, say: Callable[[str], None]) -> list[Row]:
    """The audit by several processes, each of every so manieth case: most of a case's time is its compilation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rates.json").write_text(json.dumps(rates.as_json()), encoding="utf-8")
        outs = [folder / f"{at}.json" for at in range(asked.jobs)]
        command = [sys.executable, "-m", "benchmarks.roofline", *sys.argv[1:]]
        parts = [[*command, "--part", f"{at}/{folder}", "--out", str(out)] for at, out in enumerate(outs)]
        started = [subprocess.Popen(part, stdout=subprocess.DEVNULL) for part in parts]
        for at, process in enumerate(started):
            if process.wait():
                say(f"part {at} of {asked.jobs} ended with {process.returncode}: its cases are missing")
        return [Row(**row) for out in outs if out.exists() for row in json.loads(out.read_text(encoding="utf-8"))]


def audit_part(asked: argparse.Namespace, chosen: Sequence[AnyCase], say: Callable[[str], None]) -> None:
    """One of those processes: its rows go to a file."""
    at, _, folder = asked.part.partition("/")
    rates = Rates.from_json(json.loads((Path(folder) / "rates.json").read_text(encoding="utf-8")))
    own = chosen[int(at) :: asked.jobs]
    rows = audit(own, asked.device, rates, asked.seconds, say, Path(folder) / "lock")
    asked.out.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")


def _by_turns(first: Sequence[AnyCase], second: Sequence[AnyCase]) -> list[AnyCase]:
    """Both in their orders, mixed evenly: a run that ends early has seen as large a part of each."""
    placed = [
        ((at + 0.5) / len(each), number, case)
        for number, each in enumerate((first, second))
        for at, case in enumerate(each)
    ]
    return [case for _, _, case in sorted(placed, key=lambda one: one[:2])]


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[AnyCase]]:
    """What is asked for, and its cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ops", default="", help="names of some ops, separated by commas; all where there are none")
    parser.add_argument("--targets", default="", help=f"sizes of cases, of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=WHOLE, help="how long cases may take in all")
    parser.add_argument("--threads", type=int, default=0, help="threads of a CPU; all by itself")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile for a GPU; one at a time is timed")
    parser.add_argument("--worst", type=int, default=20, help="how many of the worst are printed")
    parser.add_argument("--every", action="store_true", help="write all rows, not only slow ones and errors")
    parser.add_argument("--out", type=Path, default=None, help="the file that is written; a part of a run needs one")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    ops = {spec.short_name for spec in public()}
    names = _read_names(parser, "ops", asked.ops, sorted(ops | FUNCTIONS.keys()))
    targets = _read_names(parser, "targets", asked.targets, list(TARGETS))
    if asked.out is None and (names or targets or asked.seconds < WHOLE):
        parser.error(f"some ops, some targets or less than {WHOLE:g} seconds are no whole record: give --out FILE")
    if asked.jobs < 1 or (asked.jobs > 1 and asked.device == "cpu"):
        parser.error(f"--jobs {asked.jobs}: a CPU is measured by one process, a GPU by one or more")
    usual = [name for name in TARGETS if asked.device == "cuda" or name != "huge"]
    given = (targets or usual, MOST_FLOPS[asked.device])
    chosen, written = [name for name in names if name in ops], [name for name in names if name in FUNCTIONS]
    grid = cases(chosen, *given) if chosen or not names else []
    called = function_cases(written, *given) if written or not names else []
    return asked, _by_turns(grid, called)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure rates, run the grid, and rank what was found."""
    asked, chosen = _parse(arguments)
    say = partial(print, flush=True)
    if asked.part:
        audit_part(asked, chosen, say)
        return
    threads = asked.threads or usable_cpus()
    if asked.device == "cuda":
        need_gpu()
    elif asked.threads:
        os.environ["TESSERA_NUM_THREADS"] = str(threads)
        pin(threads)
    rates = measured_rates(asked.device, threads, say)
    if asked.jobs > 1:
        rows = audit_in_parts(asked, rates, say)
    else:
        rows = audit(chosen, asked.device, rates, asked.seconds, say)
    found = summary_of(rows)
    worst = sorted((row for row in rows if row.is_slow), key=lambda row: row.share)
    print(*(row_line(row) for row in worst[: asked.worst]), json.dumps(found), sep="\n")
    out = asked.out or RESULTS / f"roofline-{asked.device}.json"
    record = {**facts(), "threads": threads, "rates": rates.as_json(), "summary": found}
    kept = [row for row in rows if asked.every or row.error or row.is_slow]
    ranked = sorted(kept, key=lambda row: (not row.error, row.share))
    out.write_text(json.dumps({**record, "rows": [asdict(row) for row in ranked]}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
