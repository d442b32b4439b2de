"""`tessera tune`: a function tuned from the command line, its reports, and plans that are carried elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tessera.api.program_tuning import TuningStep
from tessera.cli.main import app
from tessera.cli.tune import LiveTable
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Progress
from tests.tuner.programs.clocks import set_clock

MODULE = """
import tessera as ts

@ts.jit
def forward(x: ts.Tensor["B", 64, ts.f32], w: ts.Tensor[64, 96, ts.f32]):
    return ts.ops.gelu(x @ w)

@ts.jit
def talks(x: ts.Tensor[4, 4, ts.f32]):
    ts.debug_print("{}", x)
    return x @ x
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tuned_here.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "tuned_here", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    return "tuned_here"


def test_a_function_is_tuned_and_reports_are_written(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda choices: 1e5 * (0.7 if any(value == (32, 64, 64) for _, value in choices) else 1))
    folder = tmp_path / "reports"
    command = ["tune", f"{module}:forward", "--size", "B=128", "--budget", "60", "--output", str(folder)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "plan: contraction.block@" in done.stdout
    assert "(32, 64, 64)" in done.stdout
    assert "compiling `forward` as it is" in done.stderr
    assert "contraction.block" in (folder / "report.txt").read_text()
    assert "<html" in (folder / "program.html").read_text()
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "found in the database, 0 timed runs" in again.stdout

    exported = tmp_path / "plans.json"
    wrote = CliRunner().invoke(app, ["tune", "--export", str(exported)])
    assert (wrote.exit_code, wrote.stdout.split()[:2]) == (0, ["wrote", "2"])
    kept = CliRunner().invoke(app, ["tune", "--import", str(exported)], env={"COLUMNS": "200"})
    assert kept.exit_code == 0
    assert "kept 2 plans" in kept.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name a function to tune, or give one of --export and --import"),
        (["--export", "a", "--import", "b"], 2, "name a function to tune"),
        (["--import", "/no/such/file.json"], 1, "/no/such/file.json"),
        (["{module}:forward", "--mode", "clever"], 1, "`mode` is one of"),
        (["{module}:forward", "--shape", "y=3"], 2, "no parameter `y`"),
        (["{module}:talks"], 1, "acts on the outside"),
    ],
)
def test_what_cannot_be_tuned_is_said(module: str, arguments: list[str], code: int, message: str) -> None:
    given = [part.format(module=module) for part in arguments]
    done = CliRunner().invoke(app, ["tune", *given, "--quiet"], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    assert message in done.stdout


def step(number: int, time: float) -> TuningStep:
    trial = Trial(Plan.of({"map.tile": number}), (time,) * 3, (100.0,) * 3)
    best = Trial(Plan.of({"map.tile": 1}), (50.0,) * 3, (100.0,) * 3)
    return TuningStep("exp_0123", Progress(trial, number, 9, best, 1.0), 30.0)


def test_the_live_table_has_the_best_and_the_last_plans() -> None:
    console = Console(force_terminal=True, width=120, record=True)
    table = LiveTable(console, is_shown=True)
    with table.draw():
        for number in range(1, 12):
            table.tell(step(number, 90.0))
    text = console.export_text()
    assert "11 plans, 30 s left" in text
    assert "2.00x" in text
    assert "map.tile = 11" in text


def test_without_a_terminal_there_are_lines() -> None:
    console = Console(force_terminal=False, width=120, record=True)
    table = LiveTable(console, is_shown=True)
    with table.draw():
        table.tell(step(1, 90.0))
    assert "exp_0123: 1 of 9 plans, the best 2.00x, 30 s left" in console.export_text()
