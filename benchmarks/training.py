"""`python -m benchmarks.training`: training steps on a CPU against PyTorch, torch.compile and JAX, in one process.

Losses of the first steps are compared before anything is timed. What memory a step takes at its peak is found in a
process for each library, as the difference to the same process before its first step.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.contenders.contender import Contender, NotOfferedError
from benchmarks.environment import ROOT, describe, pin
from benchmarks.harness import Entry, Plan, Row, take_turns, time_calls
from benchmarks.tables import seconds_text
from benchmarks.training_peers import Task, Trainer, gpt_task, make_trainer, mlp_task, peak_bytes

CONTENDERS = ("tessera", "torch", "torch.compile", "jax")
CHECKED = 3
"""Steps whose losses are compared."""
TASKS = {"gpt": gpt_task, "mlp": mlp_task}
LIMITS = {"gpt": 1.2, "mlp": 1.5}
"""How many times as fast as the best peer a step is to be."""
FILE = ROOT / "benchmarks" / "results" / "training.json"


def first_losses(trainer: Trainer) -> list[float]:
    """The losses of the first steps."""
    return [float(np.asarray(trainer())) for _ in range(CHECKED)]


def check_losses(name: str, found: list[float], wanted: list[float]) -> float:
    """How far losses differ; ArithmeticError if by more than rounding: f32 through some ten layers, and AdamW."""
    error = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
    if not error <= 2e-3 * max(map(abs, wanted)):
        raise ArithmeticError(f"{name} has the losses {found}, and tessera {wanted}")
    return error


def measure_task(task: Task, plan: Plan, console: Console) -> Row:
    """Check and time a step of every library that is here."""
    row = Row("training", task.name, plan.threads, 0.0, "wall")
    entries, wanted = list[Entry](), list[float]()
    for name in CONTENDERS:
        console.print(f"{task.name}: {name} is made ready", style="dim")
        try:
            trainer = make_trainer(name, task, plan.threads)
        except NotOfferedError as reason:
            row.skipped[name] = str(reason)
            continue
        losses = first_losses(trainer)
        wanted = wanted or losses
        row.errors[name] = check_losses(name, losses, wanted)
        contender = Contender(name, lambda work, arrays, trainer=trainer: trainer, is_ours=name == "tessera")
        first = time_calls(trainer, 1, use_cpu_time=False)
        entries.append(Entry(contender, trainer, max(1, round(5e-3 / first)), first))
    take_turns(entries, plan, row)
    return row


def peak_of(kind: str, name: str, threads: int) -> int | None:
    """Bytes that steps of a library take beyond what its process had before them; None where it is not installed."""
    command = [sys.executable, "-m", "benchmarks.training", "--threads", str(threads), "--peak", f"{kind},{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None


def print_peak(kind: str, name: str, threads: int) -> None:
    """What `peak_of` reads."""
    trainer = make_trainer(name, TASKS[kind](), threads)
    before = peak_bytes()
    first_losses(trainer)
    print(peak_bytes() - before)


def show(console: Console, kind: str, row: Row, peaks: dict[str, int | None]) -> dict[str, Any]:
    """Print a row, and give what of it is recorded."""
    peers = {name: row.ratio(name, "tessera") for name in row.samples if name != "tessera"}
    ratio = min((one for one in peers.values() if one is not None), default=None)
    console.print(f"[bold]{row.name}[/], {row.threads} threads")
    for name in row.samples:
        taken, peak = row.ratio(name, "tessera"), peaks.get(name)
        memory = "" if peak is None else f"{peak / 2**20:8.1f} MiB at the peak"
        console.print(f"  {name:14} {seconds_text(row.median(name)):>10}  {taken or 0.0:6.2f} x ours  {memory}")
    for name, reason in row.skipped.items():
        console.print(f"  {name:14} {reason}", style="dim")
    if ratio is not None:
        word = "reached" if ratio >= LIMITS[kind] else "missed"
        console.print(f"  the best peer takes {ratio:.2f} times as long; asked for {LIMITS[kind]}: {word}")
    return {**row.as_json(), "ratio": ratio, "asked": LIMITS[kind], "peaks": peaks}


def main(
    threads: Annotated[int, typer.Option(min=1, help="Threads of each library.")] = 2,
    only: Annotated[str, typer.Option(help="gpt or mlp; both where empty.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which each library has a turn.")] = 15,
    memory: Annotated[bool, typer.Option(help="Whether to find peaks of memory, in processes of their own.")] = True,
    peak: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Time training steps on a CPU."""
    pin(threads)
    if peak:
        kind, _, name = peak.partition(",")
        print_peak(kind, name, threads)
        return
    if only and only not in TASKS:
        raise typer.BadParameter(f"there are {', '.join(TASKS)}, not `{only}`", param_hint="--only")
    console, found = Console(width=120), list[dict[str, Any]]()
    for kind, make in TASKS.items():
        if only in ("", kind):
            row = measure_task(make(), Plan(threads, rounds), console)
            peaks = {name: peak_of(kind, name, threads) for name in row.samples} if memory else {}
            found.append(show(console, kind, row, peaks))
    if not only:
        FILE.write_text(json.dumps({**describe(), "rows": found}, indent=1) + "\n", encoding="utf-8")
        console.print(f"written: {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    typer.run(main)
