"""`tessera plan`: tables, JSON, pages, and what is said of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import rich.console

import tessera.planner
from tessera.cli.arguments import Look
from tessera.cli.plan import PlanOptions, plan_of, show_plan

QUIET = Look(progress=False)


def run(target: str, topology: str, options: PlanOptions) -> int:
    return show_plan(target, topology, options, QUIET)


def test_one_mesh_is_a_table_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    options = PlanOptions("dp=2,tp=4,pp=2", batch=32, output=str(page))
    assert run("llama-3-8b", "h100", options) == 0
    printed = capsys.readouterr().out
    for word in ("8.03 B parameters in 32 layers", "dp=2,tp=4,pp=2", "MFU", "NVLink", "reduce_scatter", str(page)):
        assert word in printed
    text = page.read_text(encoding="utf-8")
    assert "http" not in text.replace("http://www.w3.org/", "")
    for part in ("<h2>Plans", "<h2>One step", "<h2>Memory", "<h2>Links", '"tracks": ["stage 0"'):
        assert part in text


@pytest.mark.parametrize("width", [80, 160])
def test_no_cell_is_cut_in_a_terminal(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)
    options = PlanOptions("dp=2,tp=8,pp=4", batch=64, schedule="interleaved", chunks=4, output=str(tmp_path / "p.html"))
    assert run("llama-3-70b", "h100", options) == 0
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    table = printed.splitlines()[2:7]
    assert max(map(len, table)) <= width
    for word in ("dp=2,tp=8,pp=4", "interleaved x4", "tokens/s", "MFU", "memory", "fits", " GB"):
        assert any(word in line for line in table), printed
    assert ("bubble, exposed and overlap are on the page" in printed) == (width == 80)


def test_a_mesh_of_8192_ranks_is_planned_on_a_described_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = Path(str(tessera.planner.__file__)).parent / "clusters" / "h100.toml"
    cluster = tmp_path / "file.toml"
    cluster.write_text(shipped.read_text(encoding="utf-8").replace('name = "', 'name = "our own '), encoding="utf-8")
    page = tmp_path / "plan.html"
    choices: dict[str, Any] = {"schedule": "interleaved", "chunks": 8, "recompute": "selective"}
    options = PlanOptions("dp=64,tp=8,pp=16", batch=2048, output=str(page), **choices)
    assert run("llama-3-405b", str(cluster), options) == 0
    printed = capsys.readouterr().out
    for word in ("our own ", "dp=64,tp=8,pp=16", "MFU", str(page)):
        assert word in printed, printed
    assert "<h2>Plans" in page.read_text(encoding="utf-8")


def test_without_a_mesh_all_are_searched_and_the_fastest_is_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = PlanOptions(ranks=16, batch=64, output=str(tmp_path / "plan.html"), as_json=True)
    assert run("llama-3-8b", "h100", options) == 0
    found = json.loads(capsys.readouterr().out)
    times = [plan["step_seconds"] for plan in found["plans"]]
    assert times == sorted(times)
    assert all(plan["fits"] and plan["ranks"] == 16 for plan in found["plans"])
    assert Path(found["page"]).is_file()


def test_a_plan_that_does_not_fit_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = PlanOptions("dp=1", output=str(tmp_path / "plan.html"))
    assert run("llama-3-70b", "h100", options) == 3
    assert "it does not fit" in capsys.readouterr().out
    assert run("llama-3-70b", "laptop", PlanOptions(output=str(tmp_path / "plan.html"))) == 1
    assert "no plan for 2 ranks fits 8 GB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "topology", "options", "said"),
    [
        ("llama-3-7b", "h100", PlanOptions("dp=2"), "did you mean `llama-3-70b`?"),
        ("llama-3-8b", "h10", PlanOptions("dp=2"), "shipped are h100, h200, laptop"),
        ("llama-3-8b", "h100", PlanOptions("tp=5"), "5 ranks of `tp` do not divide 32 heads"),
        ("llama-3-8b", "h100", PlanOptions("dd=2"), "got `dd=2`"),
        ("llama-3-8b", "h100", PlanOptions("pp=4", schedule="zigzag"), "zigzag"),
    ],
)
def test_mistakes_are_errors_with_a_fix(
    target: str, topology: str, options: PlanOptions, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(target, topology, options) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert "help:" in printed


def test_a_mistake_in_a_file_is_shown_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('name = "mine"\nnodes = 1\ndevices = "eight"\n', encoding="utf-8")
    assert run("llama-3-8b", str(file), PlanOptions("dp=2")) == 1
    printed = capsys.readouterr().out
    assert "`devices` is an integer from 1 to 65536, got 'eight'" in printed
    assert "cluster.toml:3:1" in printed
    assert 'devices = "eight"' in printed


def test_without_a_batch_a_stage_has_four_microbatches() -> None:
    assert plan_of(PlanOptions("dp=8,pp=4")).microbatches == 16
    assert plan_of(PlanOptions("dp=8", microbatch=2)).microbatches == 1


def test_a_model_of_a_module_is_planned_without_its_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large_model.py").write_text(
        "import tessera as ts\n"
        "config = ts.nn.GPTConfig.llama(vocabulary=32000, width=8192, depth=64, heads=64, hidden=28672, length=4096)\n"
        "def model():\n    return ts.nn.GPT.init(ts.random.key(0), config, dtype=ts.bf16)\n",
        encoding="utf-8",
    )
    options = PlanOptions("dp=8,tp=8,pp=4", recompute="full", output=str(tmp_path / "plan.html"), as_json=True)
    assert run("large_model:model", "h100", options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["parameters"] > 60e9
    assert run("large_model:missing", "h100", options) == 2
