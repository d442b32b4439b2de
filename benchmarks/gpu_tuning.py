"""How good schedules are that nobody tuned, how well the model ranks, and what hybrid search finds, on a GPU or a CPU.

    python -m benchmarks.gpu_tuning [--only FAMILIES] [--seed N] [--most N] [--seconds S] [--html FOLDER] [--out FILE]

Cases are drawn by a seed: matmuls, attention, rows and convolutions that nobody named. All plans of a case's space (or
`--most` drawn ones) are measured against the safe plan, which is the default schedule, by the tuner's own protocol in
a child process; then hybrid search is played over what was measured. A case says which part of the best time the
default reaches, the rank correlation of model and measurement, how much hybrid search measured, and how far what it
found is from the best. `--live N` also tunes the first N cases for real, with nothing known, and says how long it took.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.environment import describe
from benchmarks.tuning_cases import Case, draw_all, model_of, plans_of, space_for
from tessera.diagnostics.error import TesseraError
from tessera.runtime.devices.cuda.nvml import Meter
from tessera.tuner.learned import spearman
from tessera.tuner.protocol import relative_time
from tessera.tuner.records import Plan, Trial
from tessera.tuner.report import html
from tessera.tuner.runner import Isolated, Job
from tessera.tuner.search import Outcome, Space, search

COUNTS = {"gemm": 12, "attention": 6, "row": 6, "conv": 4}
"""Cases of each family."""
LIVE_SECONDS = 20.0
"""Seconds that a case is tuned for, from its trace to the end of its children."""
ENDING = 2.0
"""Of those, what a measurement that has begun and the end of a child take."""
LEAST_RANKED = 8
"""Measured plans from which on a correlation says something."""


class Recorded:
    """Gives what was measured before, as a measurer."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = {trial.plan: trial for trial in trials}

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Nothing."""
        return {}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """What became of the plan."""
        return self._trials[plan]


def row_of(case: Case, outcome: Outcome, hybrid: Outcome, seconds: float, meter: Mapping[str, Any]) -> dict[str, Any]:
    """What a case came to."""
    ran = [trial for trial in outcome.trials if trial.samples and not trial.reason]
    best = min((relative_time(trial) for trial in ran), default=1.0)
    found = relative_time(hybrid.best) if hybrid.best is not None else 1.0
    ranked = [trial for trial in outcome.trials if trial.samples and trial.predicted is not None]
    ranked = [trial for trial in ranked if math.isfinite(trial.predicted or math.inf)]
    agreement = None
    if len(ranked) >= LEAST_RANKED:
        agreement = spearman([t.predicted or 0.0 for t in ranked], [relative_time(t) for t in ranked])
    reasons: dict[str, int] = {}
    for trial in outcome.trials:
        if trial.reason and not trial.samples:
            reasons[trial.reason[:160]] = reasons.get(trial.reason[:160], 0) + 1
    return {
        "case": case.name,
        "family": case.family,
        "plans": len(outcome.trials),
        "measured": len(ran),
        "default_share": min(1.0, best),
        "best": str(outcome.best.plan) if outcome.best is not None and best < 1 else "the default",
        "default_microseconds": statistics.median(t for one in ran for t in one.baseline) / 1e3 if ran else None,
        "spearman": agreement,
        "hybrid_share": hybrid.measured / max(1, outcome.measured),
        "hybrid_loss": min(found, 1.0) / min(best, 1.0) - 1,
        "seconds": seconds,
        "power_watts": meter.get("power"),
        "reasons": reasons,
        # What the model foresaw, beside the share of the default's time that was measured.
        "trials": [[dict(trial.plan.overrides), trial.predicted, relative_time(trial)] for trial in ranked],
    }


class Bench:
    """Cases measured one at a time, while others are compiled."""

    def __init__(self, most: int, workers: int, pages: Path | None, rounds: int) -> None:
        self.most, self.workers, self.pages, self.rounds = most, workers, pages, rounds
        self._device = threading.Lock()

    def measure(self, case: Case) -> dict[str, Any]:
        """Everything about a case."""
        start = time.monotonic()
        space = space_for(case)
        plans, predict = plans_of(space, self.most), model_of(space)
        with Isolated(Job("benchmarks.tuning_cases:build", (case,)), workers=self.workers) as measurer:
            measurer.prepare([Plan(), *plans])
            with self._device, Meter() as meter:
                outcome = search(
                    Space.of(plans), measurer, mode="exhaustive", predict=predict, rounds=self.rounds, confirm=2
                )
        hybrid = search(Space.of(plans), Recorded(outcome.trials), predict=predict, confirm=0, rounds=self.rounds)
        if self.pages is not None:
            self.pages.mkdir(parents=True, exist_ok=True)
            page = html(outcome, case.name, None, meter.readings.columns)
            (self.pages / f"{case.name.replace(' ', '-')}.html").write_text(page, encoding="utf-8")
        return row_of(case, outcome, hybrid, time.monotonic() - start, meter.readings.columns)

    def tune(self, case: Case) -> dict[str, Any]:
        """Hybrid search with nothing known, timed from its begin."""
        start = time.monotonic()
        space = space_for(case)
        plans = plans_of(space, 10_000)
        with Isolated(Job("benchmarks.tuning_cases:build", (case,))) as measurer:
            left = LIVE_SECONDS - ENDING - (time.monotonic() - start)
            outcome = search(Space.of(plans), measurer, predict=model_of(space), budget=left)
        best = outcome.best
        return {
            "case": case.name,
            "seconds": time.monotonic() - start,
            "plans": len(plans),
            "measured": outcome.measured,
            "speedup": 1 / relative_time(best) if best is not None else None,
            "best": str(best.plan) if best is not None else "",
            "stopped": outcome.stopped,
        }


def summary_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures that are asked for."""
    shares = [row["default_share"] for row in rows]
    ranks = [row["spearman"] for row in rows if row["spearman"] is not None]
    return {
        "cases": len(rows),
        "default_share": math.exp(statistics.fmean(map(math.log, shares))) if shares else None,
        "least_default_share": min(shares, default=None),
        "spearman_median": statistics.median(ranks) if ranks else None,
        "hybrid_share": statistics.fmean([row["hybrid_share"] for row in rows]) if rows else None,
        "hybrid_loss_most": max((row["hybrid_loss"] for row in rows), default=None),
    }


def text_of(row: Mapping[str, Any]) -> str:
    """A line of the table."""
    rank = "-" if row["spearman"] is None else f"{row['spearman']:.2f}"
    return (
        f"{row['case']:38s} default {row['default_share']:.3f} of best ({row['best']}), spearman {rank}, hybrid "
        f"{row['hybrid_share']:.0%} measured, {row['hybrid_loss']:+.1%}; {row['measured']}/{row['plans']} plans, "
        f"{row['seconds']:.1f} s {row['reasons'] or ''}"
    )


def run(cases: Sequence[Case], bench: Bench, together: int, seconds: float, out: Path | None, live: int = 0) -> None:
    """Measure cases, some compiled at a time; none begins after so many seconds. What is there is written each time."""
    start, rows, failed = time.monotonic(), list[dict[str, Any]](), list[dict[str, Any]]()
    tuned = [bench.tune(case) for case in cases[:live]]
    for row in tuned:
        print(f"tuned live: {row}", flush=True)

    def measure(case: Case) -> dict[str, Any] | None:
        if time.monotonic() - start >= seconds:
            return None
        try:
            return bench.measure(case)
        except TesseraError as error:  # a case that cannot run at all is a row too
            print(f"{case.name}: {error}", flush=True)
            failed.append({"case": case.name, "error": str(error)})
            return None

    with ThreadPoolExecutor(together) as pool:
        for task in as_completed([pool.submit(measure, case) for case in cases]):
            row = task.result()
            if row is None:
                continue
            rows.append(row)
            print(text_of(row), flush=True)
            if out is not None:
                found = {**describe(), "summary": summary_of(rows), "live": tuned, "rows": rows, "failed": failed}
                out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary_of(rows)), flush=True)


def parse(counts: Mapping[str, int], name: str, text: str | None) -> tuple[argparse.Namespace, dict[str, int]]:
    """The command line, and how many cases of each family it asks for."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"families, separated by commas: {', '.join(counts)}")
    parser.add_argument("--cases", type=int, default=0, help="cases of each family at most; 0: all")
    parser.add_argument("--seed", type=int, default=2026, help="what sizes are drawn by")
    parser.add_argument("--most", type=int, default=64, help="plans of a case at most")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each plan")
    parser.add_argument("--workers", type=int, default=4, help="processes that compile a case")
    parser.add_argument("--together", type=int, default=4, help="cases that are compiled at a time")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no case begins after so many seconds")
    parser.add_argument("--live", type=int, default=0, help="cases that hybrid search tunes with nothing known first")
    parser.add_argument("--html", type=Path, help="a folder for a page of each case")
    parser.add_argument("--out", type=Path, help="the JSON file that is written")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(counts)
    unknown = [one for one in names if one not in counts]
    if unknown:
        parser.error(f"there is no family {unknown[0]}; families are {', '.join(counts)}")
    return asked, {one: min(counts[one], asked.cases or counts[one]) for one in names}


def main() -> None:
    """The command line."""
    asked, counts = parse(COUNTS, "gpu_tuning", __doc__)
    whole = draw_all(COUNTS, "cuda", asked.seed)  # drawn as a whole: a part of them is the same as in all
    cases = [case for family in counts for case in [c for c in whole if c.family == family][: counts[family]]]
    run(
        cases,
        Bench(asked.most, asked.workers, asked.html, asked.rounds),
        asked.together,
        asked.seconds,
        asked.out,
        asked.live,
    )


if __name__ == "__main__":
    main()
