"""What was tuned for other sizes is tried first for these, and corrects what the model says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import stored_plans
from tessera.api.program_tuning import TuningStep
from tessera.tuner.database import default_database
from tests.tuner.programs.clocks import set_clock

LIKED = (96, 256, 128)
"""The block that the clock of these tests likes; the model puts it last for such sizes."""


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def layer(x: Any, w: Any) -> Any:
    return ts.ops.tanh(x @ w)


def tune(columns: int, mode: str = "hybrid") -> list[TuningStep]:
    rng = np.random.default_rng(0)
    given = [ts.array(rng.standard_normal(shape, np.float32)) for shape in ((64, 64), (64, columns))]
    steps: list[TuningStep] = []
    ts.jit(layer).autotune(*given, mode=mode, budget=60.0, progress=steps.append)
    return [step for step in steps if step.where != "program"]


def test_the_plan_of_a_neighbour_is_measured_first(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, lambda choices: 70_000.0 if any(value == LIKED for _, value in choices) else 100_000.0)
    first = tune(96, "exhaustive")
    found = [step.progress.trial.plan.overrides for step in first]
    assert any(LIKED in one.values() for one in found)
    assert LIKED not in found[0].values(), "nobody knew it yet"
    kept = [trial for entry in default_database().entries() for trial in default_database().trials(entry.signature)]
    assert any(trial.predicted is not None and trial.samples for trial in kept), "so that corrections can be learned"
    second = tune(112)
    assert LIKED in second[0].progress.trial.plan.overrides.values()
    assert {step.where for step in first}.isdisjoint(step.where for step in second), "they are groups of other names"


def test_trials_of_neighbours_correct_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, lambda choices: 70_000.0 if any(value == LIKED for _, value in choices) else 100_000.0)
    plain = {step.progress.trial.plan.choices[0][1]: step.progress.trial for step in tune(96, "exhaustive")}
    corrected = {step.progress.trial.plan.choices[0][1]: step.progress.trial for step in tune(112)}
    off: list[float] = []
    for trials in (plain, corrected):
        trial = trials[LIKED]
        assert trial.predicted is not None
        assert trial.time is not None
        off.append(abs(np.log(trial.time / trial.predicted)))
    assert off[1] < off[0]
