"""The CPU benchmark: Tessera against NumPy, PyTorch, torch.compile and JAX; a table, a JSON file and a chart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import chart, environment, tables
from benchmarks.contenders import with_jax, with_numpy, with_tessera, with_torch
from benchmarks.contenders.contender import Contender, Library
from benchmarks.harness import Plan, Row, measure_all
from benchmarks.result import Result
from benchmarks.workloads import TARGETS, Workload, workloads

LIBRARIES: tuple[Library, ...] = (with_tessera.LIBRARY, with_numpy.LIBRARY, with_torch.LIBRARY, with_jax.LIBRARY)
RESULTS = Path(__file__).parent / "results"


def chosen_workloads(families: Sequence[str], match: str, *, quick: bool) -> list[Workload]:
    """The rows to run; raises ValueError for a family that is none."""
    unknown = sorted(set(families) - TARGETS.keys())
    if unknown:
        raise ValueError(f"there is no family {unknown[0]!r}; the families are {', '.join(TARGETS)}")
    return [
        work
        for work in workloads()
        if (not families or work.family in families) and match in work.name and (work.quick or not quick)
    ]


def available(threads: int, wanted: Sequence[str]) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that can run here, and why the others cannot."""
    found: list[Contender] = []
    missing: dict[str, str] = {}
    for library in LIBRARIES:
        if wanted and library.name not in (*wanted, "tessera"):
            continue
        contenders, reason = library.contenders(threads)
        found += contenders
        if reason:
            missing[library.name] = reason
    return found, missing


def run_here(plan: Plan, works: Sequence[Workload], peers: Sequence[str], console: Console) -> list[Row]:
    """One number of threads, in this process, which was started for it."""
    cpus = environment.pin(plan.threads)
    contenders, missing = available(plan.threads, peers)
    for name, reason in missing.items():
        console.print(f"{name} is left out: {reason}", style="yellow", markup=False)
    console.print(f"{plan.threads} thread(s) on CPU {cpus}: {', '.join(item.name for item in contenders)}", style="dim")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=len(works))

        def say(text: str) -> None:
            progress.update(task, description=text)

        def done(row: Row) -> None:
            progress.advance(task)
            times = ", ".join(f"{name} {tables.seconds_text(row.median(name))}" for name in row.samples)
            progress.console.print(f"{row.name}: {times}", style="dim", highlight=False, markup=False)

        return measure_all(works, contenders, plan, say, done)


def run_apart(plan: Plan, arguments: Sequence[str]) -> list[Row]:
    """One number of threads in a process of its own: libraries read how many threads to use when they are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.cpu", *arguments, "--child", str(file)]
        variables = {**os.environ, **environment.thread_variables(plan.threads)}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(environment.ROOT), os.environ.get("PYTHONPATH"))))
        subprocess.run(command, env=variables, cwd=environment.ROOT, check=True)
        return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list such as 1,2") from None
    if min(numbers) < 1:
        raise typer.BadParameter("at least one thread is needed")
    return numbers


def _names(text: str) -> list[str]:
    return [name for name in text.replace(" ", "").split(",") if name]


def main(
    threads: Annotated[str, typer.Option(help="Numbers of threads to run with, each in its own process.")] = "1,2",
    families: Annotated[str, typer.Option(help=f"Only these: {', '.join(TARGETS)}.")] = "",
    match: Annotated[str, typer.Option(help="Only workloads whose name contains this.")] = "",
    peers: Annotated[str, typer.Option(help="Only against these: numpy, torch, jax.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A few rows of each family, ten rounds.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each contender, at least.")] = 15,
    seconds: Annotated[float, typer.Option(help="Go on for so long, up to four times the rounds.")] = 4.0,
    pause: Annotated[float, typer.Option(help="Seconds before each turn, so that other pools stop spinning.")] = 0.25,
    clock: Annotated[str, typer.Option(help="wall, cpu, or auto: cpu for one thread, wall for more.")] = "auto",
    name: Annotated[str, typer.Option(help="Name of the files in benchmarks/results.")] = "",
    child: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Time Tessera and its peers on the same inputs, interleaved, in one process for each number of threads.

    Every contender's answer is checked against float64 first. Times are medians; a ratio is the median over
    rounds of a peer's time over ours, for the peer that does best in the row. Allocating the result is part of
    everybody's time. Peers that are not installed are left out.
    """
    # In a file or a pipe there is no width to keep to, and a table cut short says nothing.
    console = Console(stderr=child is not None, width=None if sys.stdout.isatty() else 200)
    try:
        works = chosen_workloads(_names(families), match, quick=quick)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not works:
        raise typer.BadParameter("no workload is left")
    length = (10, 0.0) if quick else (rounds, seconds)
    plans = [Plan(count, *length, pause, clock=clock) for count in _numbers(threads)]
    if child is not None:
        child.write_text(json.dumps([asdict(row) for row in run_here(plans[0], works, _names(peers), console)]))
        return
    common = ["--families", families, "--match", match, "--peers", peers, "--rounds", str(rounds), "--clock", clock]
    common += ["--seconds", str(seconds)]
    common += ["--pause", str(pause), *(["--quick"] if quick else [])]
    rows: list[Row] = []
    for plan in plans:
        rows += run_apart(plan, [*common, "--threads", str(plan.threads)])
    settings: dict[str, Any] = {"quick": quick, "plans": [asdict(plan) for plan in plans]}
    finish(Result(environment.describe(), settings, tuple(rows)), name, console)


def finish(result: Result, name: str, console: Console) -> None:
    """Show the tables and write the files."""
    tables.show(console, result.rows)
    stem = name or f"cpu-{result.environment['date'].replace(':', '')}"
    where, date = result.environment["hardware"]["processor"], result.environment["date"][:10]
    title = f"Tessera against the best peer, {where}, {date}"
    result.save(RESULTS / f"{stem}.json")
    chart.save(result.rows, title, RESULTS / f"{stem}.svg")
    console.print(f"written: {RESULTS / stem}.json and .svg")


if __name__ == "__main__":
    typer.run(main)
