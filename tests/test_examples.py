"""Every example runs, at sizes that take no time, and ends without complaint."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TOY: dict[str, dict[str, Any]] = {
    "demo": {"D": 64, "batches": (1, 5), "lengths": (17, 1), "rounds": 1},
    "effects": {"B": 16, "D": 4, "rounds": 3},
    "flash_attention": {"lengths": ((17, 17), (5, 33)), "D": 16},
    "matmul": {"sizes": ((33, 17, 40), (1, 64, 3))},
    "mlp": {"batches": (1, 7), "sizes": (20, 33, 16, 10)},
    "softmax": {"shapes": ((7, 33), (3, 1))},
    "transformer": {"layers": 2, "D": 64, "lengths": (17, 1)},
}


def test_every_example_has_toy_sizes() -> None:
    assert sorted(TOY) == sorted(file.stem for file in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", TOY)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"examples.{name}").main(**TOY[name])
    assert capsys.readouterr().out
