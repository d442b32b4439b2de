"""A part of the trial of random op calls, that it draws every op, and that it would notice a fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera import ops
from tests.trials import op_calls
from tests.trials.op_moves import ELSEWHERE, FAMILIES

FUNCTIONS = Path(__file__).parents[1] / "functions"


@pytest.mark.slow
def test_the_first_calls_agree() -> None:
    count, problems = op_calls.run(2 * len(FAMILIES))
    assert count == 2 * len(FAMILIES)
    assert problems == []


@pytest.mark.slow
def test_more_calls_agree() -> None:
    assert op_calls.run(100, seed=10_000)[1] == []


def test_every_op_is_drawn_or_has_cases_of_its_own() -> None:
    """Functions written with ops have cases in tests/functions, which call each in every way."""
    texts = [file.read_text(encoding="utf-8") for file in FUNCTIONS.glob("test_*.py")]
    tried = {name for text in texts for name in re.findall(r"\bops\.(\w+)", text)}
    assert set(ops.__all__) - set(FAMILIES) - tried == set(ELSEWHERE)


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_wrong(call: op_calls.Call, how: str) -> Any:
        return [np.asarray(one).astype(np.float64) + 1 for one in call.expected]

    monkeypatch.setattr(op_calls, "run_call", run_wrong)
    assert len(op_calls.run(20)[1]) >= 15
