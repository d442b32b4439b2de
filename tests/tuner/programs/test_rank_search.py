"""Searching plans of an op on ranks: every axis of the document is in the trace, measured or refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessera import autotune
from tessera.api import plan_search
from tessera.diagnostics.codes import TuningError


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(plan_search, "usable_cpus", lambda: 4)


def searched(op: str, shape: tuple[int, ...], policy: str = "stable", **given: Any) -> Any:
    candidates: dict[str, Any] = {
        "tiles": [(64, 128, 64), (32, 64, 64)],
        "rsmmag": [True, False],
        "a2a_quant": ["off", "fp8"],
        "fuse_bias": [True, False],
        **given,
    }
    signature = autotune.signature(op=op, shape=shape, dtype="f32", mesh={"tp": 2}, policy=policy)
    constraints = {"deterministic": policy == "stable"}
    return autotune.plan(candidates=candidates, constraints=constraints, signature=signature)


def test_all_three_axes_are_in_the_trace_and_searched_by_ranks() -> None:
    best = autotune.search(searched("matmul", (64, 128, 64)), mode="exhaustive")
    assert best.source == "autotune"
    assert len(best.trials) == 16
    measured = [trial for trial in best.trials if trial.samples]
    for axis in ("rsmmag", "fuse_bias", "tiles"):
        assert len({trial.plan.overrides[axis] for trial in measured}) == 2, axis
    assert all(len(trial.samples) >= 10 for trial in measured)
    assert len({trial.bits for trial in measured}) == 1, "no plan changes a bit"
    quantized = [trial for trial in best.trials if trial.plan.overrides["a2a_quant"] == "fp8"]
    assert len(quantized) == 8
    assert all(trial.reason.startswith("numeric: `a2a_quant` = fp8") for trial in quantized)
    assert best.choices["a2a_quant"] == "off"
    assert best.plan in {trial.plan for trial in measured}
    autotune.cache.store(best)
    stored = autotune.cache.lookup(best.signature)
    assert stored is not None
    assert (stored.plan, stored.source) == (best.plan, "measured")


def test_where_user_and_policy_allow_it_quantized_payloads_run_on_ranks_and_are_reported() -> None:
    plan = searched("matmul", (64, 128, 64), "fast", tiles=[(64, 128, 64)], fuse_bias=[True])
    best = autotune.search(plan, mode="exhaustive")
    quantized = [trial for trial in best.trials if trial.plan.overrides["a2a_quant"] == "fp8"]
    assert all(trial.samples and not trial.reason for trial in quantized)
    assert {trial.bits for trial in quantized} != {trial.bits for trial in best.trials if trial not in quantized}
    assert bool(best.numeric) == (best.choices["a2a_quant"] == "fp8")


def test_a_hybrid_search_measures_what_the_model_ranks_first() -> None:
    best = autotune.search(searched("attention", (2, 4, 128, 64), tiles=[(128, 64, 64), (64, 64, 64)]))
    measured = [trial for trial in best.trials if trial.samples]
    assert len(measured) == 4
    assert len(best.trials) == 16
    assert {
        trial.reason for trial in best.trials if not trial.samples and trial.plan.overrides["a2a_quant"] == "off"
    } == {"the model ranks others before it"}


def test_a_mesh_larger_than_the_machine_is_ranked_by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_search, "usable_cpus", lambda: 1)
    assert autotune.search(searched("matmul", (64, 128, 64))).source == "cost_model"


def test_no_time_and_no_plan_are_errors() -> None:
    with pytest.raises(TuningError, match="no plan was measured in full"):
        autotune.search(searched("matmul", (64, 128, 64)), budget=0.001)
    with pytest.raises(TuningError, match="none of 1 plans may be chosen"):
        autotune.search(
            searched("matmul", (64, 128, 64), tiles=[(3, 5, 7)], rsmmag=[True], a2a_quant=["off"], fuse_bias=[True])
        )
