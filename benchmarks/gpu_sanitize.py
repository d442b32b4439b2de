"""Every kind of kernel under NVIDIA's sanitizer: accesses, races in shared memory, and barriers, ragged sizes included.

    python -m benchmarks.gpu sanitize [--only NAMES] [--tools memcheck,racecheck,synccheck] [--jobs 4] [--out FILE]

Each kernel runs in a process of its own, once for each tool, and its result is compared with the reference there. All
kernels are compiled once before, so that the sanitizer sees launches alone. Leaves with 1 where anything was found.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.gpu_cases import CASES
from benchmarks.gpu_record import chosen, need_gpu, need_tool, options, write

TOOLS = ("memcheck", "racecheck", "synccheck")
FOUND = 9
"""The status with which the sanitizer leaves where it found something."""
_SUMMARY = re.compile(
    r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed \((\d+) errors?, (\d+) warnings?\))"
)
_KEPT = 12
"""Lines of what was found that go into the record."""


@dataclass(frozen=True)
class Outcome:
    """What a tool reports for a kernel: clean, faults, wrong (its result is), late, or broken: it did not run."""

    case: str
    tool: str
    outcome: str
    errors: int
    warnings: int
    seconds: float
    words: tuple[str, ...] = ()


def command(sanitizer: str, tool: str, case: str) -> list[str]:
    """How a kernel is run under a tool."""
    own = [sys.executable, "-m", "benchmarks.gpu_sanitize", "--run", case]
    return [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20", *own]


def judged(case: str, tool: str, status: int, text: str, seconds: float) -> Outcome:
    """What follows from the status and the words of a run."""
    summary = _SUMMARY.search(text)
    errors = int(summary[2] or summary[1]) if summary else 0
    warnings = int(summary[3] or 0) if summary else 0
    if summary is None:
        outcome = "broken"
    elif errors or warnings:
        outcome = "faults"
    else:
        outcome = "clean" if status == 0 else "wrong"
    said = [line.removeprefix("=========").strip() for line in text.splitlines() if line.strip()]
    words = () if outcome == "clean" else tuple(said[:_KEPT])
    return Outcome(case, tool, outcome, errors, warnings, round(seconds, 2), words)


def run_under(sanitizer: str, tool: str, case: str, limit: float) -> Outcome:
    """One kernel under one tool."""
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command(sanitizer, tool, case), cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(case, tool, "late", 0, 0, limit, (f"it took more than {limit:g} seconds",))
    return judged(case, tool, done.returncode, done.stdout + done.stderr, time.perf_counter() - begun)


def under_all(sanitizer: str, names: Sequence[str], tools: Sequence[str], limit: float, jobs: int) -> list[Outcome]:
    """Each kernel under each tool, some at a time; each is reported as soon as it has ended."""

    def run_one(name: str, tool: str) -> Outcome:
        one = run_under(sanitizer, tool, name, limit)
        print(f"{name:20} {tool:10} {one.outcome:7} {one.seconds:6.1f} s {' | '.join(one.words[:2])}", flush=True)
        return one

    begun: list[Future[Outcome]] = []
    with ThreadPoolExecutor(jobs) as pool:
        for name in names:
            CASES[name].run()  # compiled, kept on disk, and right
            begun += [pool.submit(run_one, name, tool) for tool in tools]
    return [one.result() for one in begun]


def summary_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """How many kernels came out how, by tool."""
    found: dict[str, dict[str, int]] = {}
    for one in outcomes:
        counts = found.setdefault(one.tool, {})
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    return found


def record_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The record but for where it was made."""
    return {
        "summary": summary_of(outcomes),
        "is_clean": all(one.outcome == "clean" for one in outcomes),
        "rows": [{**asdict(one), "is_ragged": CASES[one.case].is_ragged} for one in outcomes],
    }


def main() -> None:
    """The command line; `--run` is how it calls itself under the sanitizer."""
    parser = options("sanitize", __doc__)
    parser.add_argument("--tools", default=",".join(TOOLS), help="tools of the sanitizer, separated by commas")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds that one run may take")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--run", default="", help="run this kernel here, and check its result")
    asked = parser.parse_args()
    if asked.run:
        print(f"{asked.run}: error {CASES[asked.run].run():.2e}")
        return
    names, tools = chosen(asked.only, list(CASES), parser), chosen(asked.tools, TOOLS, parser)
    need_gpu()
    sanitizer = need_tool("compute-sanitizer")
    outcomes = under_all(sanitizer, names, tools, asked.limit, asked.jobs)
    record = record_of(outcomes)
    write(asked.out, record, [sanitizer])
    raise SystemExit(0 if record["is_clean"] else 1)


if __name__ == "__main__":
    main()
