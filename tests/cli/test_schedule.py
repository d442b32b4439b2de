"""`tessera schedule`: a plan goes to a file and back, an edit is told, a mistake shown at its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tessera.cli.main import app
from tessera.cli.schedule import _verdict  # pyright: ignore[reportPrivateUsage]

RUNNER = CliRunner()
MODULE = """
import tessera as ts

@ts.jit
def model(x: ts.Tensor[64, 128, ts.f32], w: ts.Tensor[128, 256, ts.f32]):
    return ts.ops.gelu(x @ w), ts.ops.sum(x * 2.0, axis=0)

def plain(x):
    return ts.ops.softmax(x)

def rows(x: ts.Tensor["B", 256, ts.f32], w: ts.Tensor[256, 256, ts.f32]):
    return x @ w
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "planned.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_an_exported_plan_is_applied_to_the_same_code(folder: Path) -> None:
    plan = str(folder / "plan.mlir")
    done = RUNNER.invoke(app, ["schedule", "export", "planned:model", "--out", plan])
    assert done.exit_code == 0, done.output
    assert "2 groups" in done.output
    assert "tsched.fuse @matmul_gelu" in Path(plan).read_text()
    done = RUNNER.invoke(app, ["schedule", "apply", plan, "planned:model"])
    assert done.exit_code == 0, done.output
    assert "the same code as by the compiler's own plan" in done.output
    assert "contraction.block" in done.output
    assert "(static model)" not in done.output


def test_branches_by_sizes_are_applied_to_the_same_code_without_differences(folder: Path) -> None:
    plan = str(folder / "plan.mlir")
    gpu = ["planned:rows", "--architecture", "sm_90a"]
    done = RUNNER.invoke(app, ["schedule", "export", *gpu, "--out", plan])
    assert "4 groups" in done.output, done.output
    done = RUNNER.invoke(app, ["schedule", "apply", plan, *gpu])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("the same code as by the compiler's own plan\n")
    assert "in place of" not in done.output


def test_without_a_file_the_plan_is_printed_and_shapes_can_be_given(folder: Path) -> None:
    done = RUNNER.invoke(app, ["schedule", "export", "planned:plain", "--shape", "x=8x64", "--architecture", "sm_90a"])
    assert done.exit_code == 0, done.output
    assert "tsched.module @main(%x: !tgraph.tensor<[8, 64], f32>)" in done.output


def test_what_an_edited_plan_changes_is_said(folder: Path) -> None:
    plan = folder / "plan.mlir"
    RUNNER.invoke(app, ["schedule", "export", "planned:model", "--out", str(plan)])
    plan.write_text(plan.read_text().replace("chosen = 128", "chosen = 64"))
    done = RUNNER.invoke(app, ["schedule", "apply", str(plan), "planned:model"])
    assert done.exit_code == 0, done.output
    assert "other code" in done.output
    assert "row.columns is 64 in place of 128" in done.output
    assert "row.columns 64 (plan)" in done.output


def test_a_choice_that_is_left_out_has_the_compiler_for_its_source(folder: Path) -> None:
    plan = folder / "plan.mlir"
    RUNNER.invoke(app, ["schedule", "export", "planned:model", "--out", str(plan)])
    kept = [line for line in plan.read_text().splitlines() if "row.columns" not in line]
    plan.write_text("\n".join(kept))
    done = RUNNER.invoke(app, ["schedule", "apply", str(plan), "planned:model"])
    assert "row.columns 128 (default)" in done.output
    assert "(plan)" in done.output
    assert "the same code as by the compiler's own plan" in done.output


def test_the_same_code_is_not_said_beside_a_difference() -> None:
    for is_same in (False, True):
        first, second = _verdict(is_same, ["a group: map.tile is 32 in place of 64"])
        assert "same" not in first
        assert "in place of" in second
    assert _verdict(True, []) == ["the same code as by the compiler's own plan"]
    (other,) = _verdict(False, [])
    assert other.startswith("other code")


def test_a_wrong_plan_is_refused_at_its_line_and_nothing_else_of_it_is_said(folder: Path) -> None:
    plan = folder / "plan.mlir"
    RUNNER.invoke(app, ["schedule", "export", "planned:model", "--out", str(plan)])
    plan.write_text(plan.read_text().replace("tgraph.gelu", "tgraph.relu"))
    done = RUNNER.invoke(app, ["schedule", "apply", str(plan), "planned:model"])
    assert done.exit_code == 1
    assert "error[T0401]" in done.stderr
    assert f"{plan}:" in done.stderr
    assert "help: " in done.stderr


@pytest.mark.parametrize("arguments", [["apply", "nowhere.mlir", "planned:model"], ["export", "planned:nothing"]])
def test_what_is_not_there_is_said(folder: Path, arguments: list[str]) -> None:
    done = RUNNER.invoke(app, ["schedule", *arguments])
    assert done.exit_code == 2
    assert "tessera schedule" in done.stderr


def test_a_plan_and_a_function_in_the_wrong_order_are_said(folder: Path) -> None:
    plan = folder / "plan.mlir"
    RUNNER.invoke(app, ["schedule", "export", "planned:model", "--out", str(plan)])
    done = RUNNER.invoke(app, ["schedule", "apply", "planned:model", str(plan)])
    assert done.exit_code == 2
    assert f"the plan comes first, as in `tessera schedule apply {plan} planned:model`" in done.stderr


@pytest.mark.parametrize(("text", "said"), [("hello\n", "begins with `hello`"), ("", "the text of a plan, got ''")])
def test_a_file_that_is_no_plan_is_said_to_be_none(folder: Path, text: str, said: str) -> None:
    (folder / "hello.txt").write_text(text)
    done = RUNNER.invoke(app, ["schedule", "apply", str(folder / "hello.txt"), "planned:model"])
    assert done.exit_code == 1
    assert said in done.stderr


def test_help_loads_no_compiler() -> None:
    code = "import sys, tessera.cli.main; print([m for m in sys.modules if m.startswith('tessera.compiler')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
