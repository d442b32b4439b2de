"""`tessera profile`: a function run with arguments made up for it, its table, its folder, and what it cannot run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tessera.cli.main import app

MODULE = """
import tessera as ts
from tessera import ops

@ts.jit
def forward(x: ts.Tensor["B", 8, ts.f32], w: ts.Tensor[8, 4, ts.f32]):
    return ops.relu(x @ w)

def plain(x):
    return x[7]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "profiled_here.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "profiled_here", raising=False)
    return "profiled_here"


def test_a_function_is_run_and_its_folder_written(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    command = ["profile", f"{module}:forward", "--size", "B=40", "--output", str(folder)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "forward(x: [B, 8] f32, w: [8, 4] f32)" in done.stdout
    assert "profiled_here.py:7" in done.stdout
    assert str(folder / "report.html") in done.stdout.replace("\n", "")
    assert "compiling and running `forward`" in done.stderr
    (row,) = (folder / "roofline.csv").read_text().splitlines()[1:]
    assert "matmul" in row
    trace = json.loads((folder / "trace.json").read_text())
    assert [one["cat"] for one in trace["traceEvents"] if one["ph"] == "X"] == ["call", "kernel"]


def test_the_table_of_kernels_fits_80_columns(module: str, tmp_path: Path) -> None:
    command = ["profile", f"{module}:forward", "--size", "B=40", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    (head,) = [at for at, line in enumerate(lines) if "of bound" in line]
    assert lines[head].split() == ["kernel", "runs", "time", "of", "call", "Gflop/s", "GB/s", "of", "bound"]
    assert lines[head + 1].split()[:3] == ["1.", "matmul_relu", "1"]
    assert lines[head + 2].startswith("1. profiled_here.py:7 x: ")
    assert max(map(len, lines[head : head + 3])) <= 80
    assert "1 kernel " in done.stdout


def test_sizes_that_nobody_asked_for_are_named(module: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["profile", f"{module}:forward", "--output", str(tmp_path), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "run with B = 16; for others, --size B=1024" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["forward", "--shape", "y=3"], 2, "no parameter `y`"),
        (["plain"], 2, "nothing says what `x` is"),
        (["plain", "--shape", "x=3"], 1, "7"),
        (["missing"], 2, "it has forward, plain"),
    ],
)
def test_what_cannot_be_run_says_why(
    module: str, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    name, *others = arguments
    done = CliRunner().invoke(app, ["profile", f"{module}:{name}", *others, "--output", str(tmp_path / "no")])
    assert done.exit_code == code, done.output
    assert message in done.stdout
    assert not (tmp_path / "no").exists()
