"""Every example runs, at sizes that take no time, and ends without complaint."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tessera.runtime.devices.cuda.driver import is_available

EXAMPLES = Path(__file__).parents[1] / "examples"
TOY: dict[str, dict[str, Any]] = {
    "contracts": {"B": 2, "S": 5, "H": 2, "E": 8},
    "demo": {"steps": 4, "width": 16, "depth": 1, "length": 40, "batch": 2, "files": 12, "folder": ""},
    "effects": {"B": 16, "D": 4, "rounds": 3},
    "flash_attention": {"lengths": ((17, 17), (5, 33)), "D": 16},
    "lowering": {"D": 64, "batches": (1, 5), "lengths": (17, 1), "rounds": 1},
    "matmul": {"sizes": ((33, 17, 40), (1, 64, 3))},
    "mlp": {"batches": (1, 7), "sizes": (20, 33, 16, 10)},
    "numerics": {"B": 4, "K": 32, "N": 8, "draws": 400},
    "pipelines": {"sizes": ((33, 40, 17),), "ranks": 2},
    "ranks": {"ranks": 2, "B": 3, "D": 16, "H": 32},
    "softmax": {"shapes": ((7, 33), (3, 1))},
    "transformer": {"layers": 2, "D": 64, "lengths": (17, 1)},
}


MILESTONES = {
    "foundation: constraints, effects, verifiers": {"contracts", "effects"},
    "numerics: policies, stable softmax": {"numerics"},
    "memory and parallelism: prefetch, pipelines, mesh checks": {"pipelines"},
    "backends: kernels for the tensor cores of a machine": {"matmul", "flash_attention"},
    "documents and examples": {"matmul", "softmax", "flash_attention"},
}


def test_every_milestone_has_an_example_and_the_last_its_three() -> None:
    assert all(names and names <= TOY.keys() for names in MILESTONES.values())
    pages = {page.stem for page in (EXAMPLES.parent / "docs" / "guide" / "examples").glob("*.md")}
    assert MILESTONES["documents and examples"] <= pages


def test_every_example_has_toy_sizes() -> None:
    assert sorted(TOY) == sorted(file.stem for file in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", TOY)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = {key: str(tmp_path) if key == "folder" else value for key, value in TOY[name].items()}
    importlib.import_module(f"examples.{name}").main(**sizes)
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", TOY)
@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--nonsense", 2), ("nonsense", 2)])
def test_an_example_says_what_it_is_and_takes_nothing_it_does_not_know(
    name: str, argument: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), argument])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    assert ended.value.code == status
    printed = capsys.readouterr()
    assert f"usage: {name}.py" in printed.out + printed.err


@pytest.mark.skipif(is_available(), reason="there is an NVIDIA GPU here")
@pytest.mark.parametrize("name", ["flash_attention", "matmul", "softmax"])
def test_an_example_that_is_to_run_on_a_gpu_says_in_a_line_that_there_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), "--gpu"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == f"{name}.py: there is no NVIDIA GPU here; leave `--gpu` out to run on the CPU\n"
