"""Writes the tables of docs/guide/performance.md from result files: what was measured and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import chart
from benchmarks.environment import ROOT
from benchmarks.harness import Row
from benchmarks.result import OURS, Result, summary, verdict
from benchmarks.tables import contenders_of, left_out, seconds_text

PAGE = ROOT / "docs" / "guide" / "performance.md"
CHART = ROOT / "docs" / "guide" / "performance.svg"
BEGIN, END = "<!-- results: made by benchmarks/publish.py -->", "<!-- end of results -->"


def made_on(environment: dict[str, Any]) -> str:
    """A sentence on machine, versions and commit."""
    hardware, versions = environment["hardware"], environment["versions"]
    names = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "torch", "jax") if name in versions)
    changed = f" with {environment['changed_files']} changed files" if environment["changed_files"] else ""
    return (
        f"Made on {environment['date'][:10]} at commit `{environment['commit'][:10]}`{changed}: "
        f"{hardware['processor']} ({hardware['model']}, {hardware['vectors']}), {hardware['cores']} cores, "
        f"{hardware['caches']}, Python {versions['python']}, {names}."
    )


def families(rows: Sequence[Row]) -> list[str]:
    """Geometric means against targets, as a Markdown table."""
    lines = ["| family | threads | rows | ratio | target | static | dynamic/static | worst row | its ratio |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for item in summary(rows):
        static = "-" if item.ratio_static is None else f"{item.ratio_static:.2f}"
        share = "-" if item.share is None else f"{item.share:.2f}"
        ratio = f"**{item.ratio:.2f}**" if item.ratio >= item.target else f"{item.ratio:.2f}"
        cells = (item.family, item.threads, item.rows, ratio, f"{item.target:.2f}", static, share, item.worst)
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} | {item.worst_ratio:.2f} |")
    return lines


def all_rows(rows: Sequence[Row]) -> list[str]:
    """Every row: our time and rate, each peer's time, and the ratio to the best of them."""
    peers = contenders_of(rows)
    lines = [f"| workload | threads | tessera | GF/s | {' | '.join(peers)} | best peer / ours | static |"]
    lines.append("|" + "---|" * (len(peers) + 6))
    for row in rows:
        found = verdict(row)
        if found is None:
            continue
        times = [seconds_text(row.median(name)) if name in row.samples else "-" for name in peers]
        rate = f"{row.flops / row.median(OURS) * 1e-9:.1f}"
        static = "-" if found.ratio_static is None else f"{found.ratio_static:.2f}"
        cells = (row.name, str(row.threads), seconds_text(row.median(OURS)), rate, *times, f"{found.ratio:.2f}", static)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def latencies(values: dict[str, Any]) -> list[str]:
    """What calls, imports and compilations take, against their limits."""
    lines = ["| what | time | limit |", "|---|---|---|"]
    for finding in values["findings"]:
        limit = "" if finding["limit"] is None else seconds_text(finding["limit"])
        lines.append(f"| {finding['name']} | {seconds_text(finding['seconds'])} | {limit} |")
    return lines


def page_with(page: str, lines: Sequence[str]) -> str:
    """The page with its results replaced; raises ValueError if the page has no markers for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for results: put `{BEGIN}` and `{END}` into it")
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


def main(
    result: Annotated[Path, typer.Argument(exists=True, help="A result of benchmarks/cpu.py.")],
    latency: Annotated[Path | None, typer.Argument(exists=True, help="One of benchmarks/latency.py.")] = None,
) -> None:
    """Put results into docs/guide/performance.md and its chart."""
    found = Result.load(result)
    lines = [made_on(found.environment), "", "![ratios](performance.svg)", "", *families(found.rows)]
    lines += ["", "### Every row", "", *all_rows(found.rows)]
    missing = left_out(found.rows)
    lines += ["", *(f"- {line}" for line in missing)] if missing else []
    if latency is not None:
        lines += ["", "### Latency", "", *latencies(json.loads(latency.read_text(encoding="utf-8")))]
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
    title = f"Tessera against the best peer, {found.environment['hardware']['processor']}"
    chart.save(found.rows, f"{title}, {found.environment['date'][:10]}", CHART)


if __name__ == "__main__":
    typer.run(main)
