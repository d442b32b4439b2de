"""The benchmark of training steps: every library computes the same losses, and rows say what was asked for."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from benchmarks import training
from benchmarks.contenders.contender import NotOfferedError
from benchmarks.harness import Plan
from benchmarks.training_peers import gpt_task, make_trainer, mlp_task, peak_bytes


@pytest.mark.parametrize(
    "task", [gpt_task(width=64, depth=1, length=8, batch=2, vocabulary=40), mlp_task(sizes=(6, 5, 3), batch=4)]
)
def test_libraries_compute_the_same_losses(task: Any) -> None:
    wanted = training.first_losses(make_trainer("tessera", task, 1))
    assert wanted[-1] < wanted[0]
    tried = 0
    for name in ("torch", "jax"):
        try:
            trainer = make_trainer(name, task, 1)
        except NotOfferedError:
            continue
        training.check_losses(name, training.first_losses(trainer), wanted)
        tried += 1
    assert tried
    with pytest.raises(ArithmeticError, match="has the losses"):
        training.check_losses("other", [one * 1.01 for one in wanted], wanted)


def test_a_row_says_who_is_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CONTENDERS", ("tessera", "torch"))
    output = io.StringIO()
    console = Console(file=output, width=120)
    row = training.measure_task(mlp_task(sizes=(6, 5, 3), batch=4), Plan(1, rounds=1), console)
    found = training.show(console, "mlp", row, {"tessera": 1 << 20})
    assert found["ratio"] == row.ratio("torch", "tessera")
    assert "1.0 MiB at the peak" in output.getvalue()
    assert ("reached" in output.getvalue()) is (found["ratio"] >= training.LIMITS["mlp"])
    assert peak_bytes() > 1 << 20
