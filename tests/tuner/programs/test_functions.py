"""`@function`, and tuning kernels by the protocol."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.api import tuning
from tests.tuner.programs.clocks import set_clock


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))


@ts.function(fusion=False)
def scale(x: Any, w: Any) -> Any:
    """Multiply."""
    return (x @ w) * 2


def test_a_function_knows_its_source_and_options_and_is_profiled_and_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (ts.array(np.ones((64, 64), np.float32)) for _ in range(2))
    assert np.asarray(scale(x, w))[0, 0] == 128.0
    assert scale.source.startswith("@ts.function(fusion=False)\ndef scale(x: Any, w: Any)")
    assert "return (x @ w) * 2" in scale.source
    assert scale.options.fusion is False
    assert len(scale.profile(x, w).kernels) == 2
    set_clock(monkeypatch, lambda choices: 1000.0 * (0.5 if any(value == (32, 64, 64) for _, value in choices) else 1))
    result = scale.autotune(x, w, budget=30.0)
    assert result.accepted
    assert any(value == (32, 64, 64) for _, value in result.plan.choices)


def test_a_function_without_a_file_has_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    return x + 1\n", names)
    made: Any = ts.function(names["f"])
    assert made.source == ""
    assert np.asarray(made(ts.ones(2))).tolist() == [2.0, 2.0]


def double(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


def test_schedules_run_beside_the_first_one_three_times_to_warm_up_and_ten_to_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: dict[Any, int] = {}
    own = tuning.KernelRun.run

    def counted(self: Any) -> float:
        block = self._kernel.given.block
        calls[block] = calls.get(block, 0) + 1
        own(self)
        return 100.0 if block == (16, 16) else 80.0

    monkeypatch.setattr(tuning.KernelRun, "run", counted)
    tuned = kernel.autotune(
        space={"BM": [16, 32], "BN": [16]}, metric="latency_ms", budget_ms=20_000, cache=str(tmp_path / "sched")
    )(double)
    x = np.ones((64, 64), np.float32)
    tuned(x)
    assert tuned.tuning is not None
    assert tuned.tuning.trials[0][0].block == (32, 16)
    # The first: compiled once, 2 * 13 beside itself, 13 beside the other; the other: compiled once, and its own 13.
    assert calls == {(16, 16): 1 + 26 + 13, (32, 16): 1 + 13}
    first, second = (milliseconds for _, milliseconds in tuned.tuning.trials)
    assert first / second == pytest.approx(0.8)
    again = kernel.autotune(space={"BM": [16, 32], "BN": [16]}, cache=str(tmp_path / "sched"))(double)
    again(x)
    assert again.tuning is not None
    assert again.tuning.trials == []


def test_compiling_counts_and_nothing_begins_after_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    own = tuning.KernelRun.run

    def slow(self: Any) -> float:
        time.sleep(0.01)  # 13 rounds of two runs take a quarter of a second
        return own(self)

    monkeypatch.setattr(tuning.KernelRun, "run", slow)
    tuned = kernel.autotune(space={"BM": [8, 16, 32, 64], "BN": [16]}, budget_ms=50.0)(double)
    tuned(np.ones((64, 64), np.float32))
    assert tuned.tuning is not None
    assert len(tuned.tuning.trials) <= 2
    assert any("the budget of 50.0 ms is used up" in why for _, why in tuned.tuning.dropped)
