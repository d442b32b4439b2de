"""Compares two result files row by row: what became faster, what slower, and whether noise explains it."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Row
from benchmarks.result import OURS, Result, geometric_mean
from benchmarks.tables import seconds_text


def spread(samples: list[float]) -> float:
    """Half the distance between the quartiles, as a fraction of the median: how far one run may be off."""
    if len(samples) < 4:
        return 0.1
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / middle


def judge(old: Row, new: Row, contender: str) -> tuple[float, str]:
    """How many times faster the new time is, and a word on it: `faster`, `slower` or `same`."""
    speedup = old.median(contender) / new.median(contender)
    noise = max(0.03, 2 * spread(old.samples[contender]), 2 * spread(new.samples[contender]))
    if speedup > 1 + noise:
        return speedup, "faster"
    return speedup, "slower" if speedup < 1 / (1 + noise) else "same"


def main(
    old: Annotated[Path, typer.Argument(exists=True, help="The earlier result, a JSON file.")],
    new: Annotated[Path, typer.Argument(exists=True, help="The later one.")],
    contender: Annotated[str, typer.Option(help="Whose times to compare.")] = OURS,
    least: Annotated[float, typer.Option(help="Exit with 1 if a row is slower and its speed-up is below this.")] = 0.0,
) -> None:
    """Show old and new times of the rows that both files have, and the geometric mean of the speed-ups."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    try:
        before, after = Result.load(old), Result.load(new)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if before.environment["hardware"] != after.environment["hardware"]:
        console.print("the two were made on different machines", style="yellow")
    olds = {(row.name, row.threads): row for row in before.rows if contender in row.samples}
    table = Table(title=f"{contender}: {before.environment['commit'][:10]} to {after.environment['commit'][:10]}")
    for column in ("workload", "threads", "old", "new", "speed-up", ""):
        table.add_column(column, justify="left" if column == "workload" else "right")
    speedups: list[float] = []
    failed = False
    for row in after.rows:
        earlier = olds.get((row.name, row.threads))
        if earlier is None or contender not in row.samples:
            continue
        speedup, word = judge(earlier, row, contender)
        speedups.append(speedup)
        failed |= word == "slower" and speedup < least
        colour = {"faster": "green", "slower": "red", "same": "dim"}[word]
        times = seconds_text(earlier.median(contender)), seconds_text(row.median(contender))
        table.add_row(row.name, str(row.threads), *times, f"{speedup:.2f}", f"[{colour}]{word}[/]")
    console.print(table)
    mean = geometric_mean(speedups)
    console.print(f"{len(speedups)} rows" + ("" if mean is None else f", geometric mean {mean:.3f}"))
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
