"""`tessera tune`: a function tuned from the command line, its reports, and plans that are carried elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tessera.api.program_tuning import SAME_PLANS, GroupResult, TuningResult, TuningStep
from tessera.cli.main import app
from tessera.cli.tune import LiveTable
from tessera.tuner.acceptance import Decision
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

@ts.jit
def waits(x: ts.Tensor[4, ts.f32]):
    with ts.dist.mesh(tp=1):
        return ts.dist.all_reduce(x, "tp")
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
    before = (folder / "report.txt").read_text()
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "found in the database, 0 timed runs" in again.stdout
    assert "nothing was measured, and no report is written; --again measures anew" in again.stdout
    assert (folder / "report.txt").read_text() == before
    assert "…" not in before
    anew = CliRunner().invoke(app, [*command, "--again"], env={"COLUMNS": "200"})
    assert "forward: tuned in" in anew.stdout
    assert ", 0 timed runs" not in anew.stdout

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
        (["{module}:forward", "--mode", "clever"], 1, "write `--mode hybrid`"),
        (["{module}:forward", "--budget", "-1"], 1, "write `--budget 60`"),
        (["{module}:forward", "--threshold", "-1"], 1, "write `--threshold 0.07`"),
        (["examples.softmax:rows"], 1, "write `@kernel.autotune(space=...)`"),
        (["{module}:forward", "--shape", "y=3"], 2, "no parameter `y`"),
        (["{module}:talks"], 1, "acts on the outside"),
    ],
)
def test_what_cannot_be_tuned_is_said(module: str, arguments: list[str], code: int, message: str) -> None:
    given = [part.format(module=module) for part in arguments]
    done = CliRunner().invoke(app, ["tune", *given, "--quiet"], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    assert message in done.stdout


def test_the_example_of_the_help_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    text = " ".join(CliRunner().invoke(app, ["tune", "--help"], env={"COLUMNS": "200"}).output.split())
    found = re.search(r"tessera (tune examples\.\S+ --size N=1024) --budget", text)
    assert found is not None
    command = [*found[1].split(), "--size", "M=64", "--budget", "2", "--output", str(tmp_path / "tuning"), "--quiet"]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "by_hand: tuned in" in done.stdout


def test_other_sizes_of_a_symbolic_program_are_measured(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda choices: 1e5)
    common = ["tune", f"{module}:forward", "--budget", "60", "--output", str(tmp_path / "tuning"), "--quiet"]
    told = [CliRunner().invoke(app, [*common, "--size", f"B={size}"]).stdout for size in (64, 2048, 60)]
    assert ["found in the database" in text for text in told] == [False, False, True]


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


def test_a_function_that_waits_for_ranks_is_refused_without_a_line_of_the_command(module: str) -> None:
    done = CliRunner().invoke(app, ["tune", f"{module}:waits", "--quiet"])
    assert done.exit_code == 1
    assert "`waits` waits for other ranks" in done.stdout
    assert "-->" not in done.stdout


def test_a_tuning_names_the_plan_that_was_slower_and_counts_none_of_equal_code() -> None:
    trial = Trial(Plan.of({"row.runs@softmax": 1}), reason="the same code as the safe plan")
    groups = (GroupResult("softmax", Plan(), SAME_PLANS, trials=(trial,)),)
    decision = Decision(Plan.of({"fusion.row@softmax": False}), False, -0.02, -0.03, -0.01, "it is slower")
    result = TuningResult("f", Plan(), "measured", decision, groups, None, 1.0, 120)
    lines = str(result).splitlines()
    assert lines[1] == "  softmax: the safe plan (all plans have the same code)"
    assert lines[3].startswith(
        "  -2.0%, between -3.0% and -1.0% by fusion.row@softmax = False, the best of other plans"
    )
