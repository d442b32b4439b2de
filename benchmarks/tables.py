"""Results in the terminal: a table of rows, a table of families, and what was left out with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Row
from benchmarks.result import OURS, OURS_STATIC, FamilySummary, summary, verdict
from benchmarks.workloads import FLOOR


def seconds_text(seconds: float) -> str:
    """Three digits and a unit: `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def show(console: Console, rows: Sequence[Row]) -> None:
    """Everything, one number of threads after the other."""
    for threads in sorted({row.threads for row in rows}):
        here = [row for row in rows if row.threads == threads]
        console.print(rows_table(here, threads))
    console.print(families_table(summary(rows)))
    for line in left_out(rows):
        console.print(line, style="dim", markup=False, highlight=False)


def rows_table(rows: Sequence[Row], threads: int) -> Table:
    """Times of every contender, and ours against the best peer."""
    names = sorted({name for row in rows for name in row.samples}, key=lambda name: (not name.startswith(OURS), name))
    table = Table(title=f"{threads} thread{'s' * (threads > 1)} (best peer's time / ours; above 1 we are faster)")
    table.add_column("workload", no_wrap=True)
    for name in (*names, "GF/s", "best peer", "ratio", "static"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        times = [seconds_text(row.median(name)) if name in row.samples else "-" for name in names]
        rate = f"{row.flops / row.median(OURS) * 1e-9:.1f}" if OURS in row.samples else "-"
        found = verdict(row)
        judged = ["-", "-", "-"] if found is None else [found.peer, _ratio(found.ratio), _ratio(found.ratio_static)]
        table.add_row(row.name, *times, rate, *judged)
    return table


def families_table(families: Sequence[FamilySummary]) -> Table:
    """Geometric means against their targets."""
    table = Table(title="geometric means of best peer's time / ours")
    for name in (
        "family",
        "threads",
        "rows",
        "ratio",
        "target",
        "static",
        "free/static",
        "worst row",
        "its ratio",
        "reached",
    ):
        table.add_column(name, justify="left" if name in ("family", "worst row") else "right", no_wrap=True)
    for family in families:
        share = "-" if family.share is None else f"{family.share:.2f}"
        ratio = _ratio(family.ratio, family.target)
        reached = "[green]yes[/]" if family.is_reached else "[red]no[/]"
        cells = (
            str(family.threads),
            str(family.rows),
            ratio,
            f"{family.target:.2f}",
            _ratio(family.ratio_static),
            share,
        )
        table.add_row(family.family, *cells, family.worst, _ratio(family.worst_ratio), reached)
    return table


def _ratio(ratio: float | None, least: float = FLOOR) -> str:
    if ratio is None:
        return "-"
    return f"[{'green' if ratio >= least else 'red'}]{ratio:.2f}[/]"


def left_out(rows: Sequence[Row]) -> list[str]:
    """Which contender did not run where, and why; one line for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row.skipped.items():
            reasons.setdefault((name, reason), []).append(f"{row.name} ({row.threads})")
    return [
        f"{name} left out of {places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {reason}"
        for (name, reason), places in reasons.items()
    ]


def contenders_of(rows: Sequence[Row]) -> list[str]:
    """Names of the peers that ran, ours left out."""
    return sorted({name for row in rows for name in row.samples} - {OURS, OURS_STATIC})
