"""Benchmarks of tuning: cases come of their seed, rows say what was found, and a small one runs on this CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cpu_tuning, gpu_tuning
from benchmarks.tuning_cases import FAMILIES, Case, draw_all, plans_of, space_for
from tessera.tuner.protocol import SAME_CODE
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Space, search

ROOT = Path(__file__).parents[2]


def test_cases_come_of_their_seed_and_there_are_as_many_as_promised() -> None:
    gpu = draw_all(gpu_tuning.COUNTS, "cuda", 1)
    assert gpu == draw_all(gpu_tuning.COUNTS, "cuda", 1) != draw_all(gpu_tuning.COUNTS, "cuda", 2)
    assert {family: sum(case.family == family for case in gpu) for family in gpu_tuning.COUNTS} == {
        "gemm": 12,
        "attention": 6,
        "row": 6,
        "conv": 4,
    }
    cpu = draw_all(cpu_tuning.COUNTS, "cpu", 1)
    assert len(cpu) == 20
    assert all(min(case.sizes) > 0 and len(FAMILIES[case.family][1](case.sizes)) > 0 for case in [*gpu, *cpu])


def test_plans_differ_from_the_safe_one_and_are_as_many_as_asked_for() -> None:
    space = space_for(Case("mlp", (64, 128, 64), "cpu", "f32"))
    few, many = plans_of(space, 5), plans_of(space, 60)
    assert len(few) == 5
    assert 20 < len(many) <= 60
    assert len(set(many)) == len(many)
    assert Plan() not in many
    assert any(len(plan.choices) == 2 for plan in many)


def test_a_row_says_what_the_default_reaches_and_what_hybrid_search_lost() -> None:
    plans = [Plan.of({"n": n}) for n in range(1, 41)]
    rng = np.random.default_rng(0)
    trials = [
        Trial(plan, tuple(80.0 + plan.overrides["n"] + rng.uniform(0, 0.1, 10)), (100.0,) * 10, float(number + 1))
        for number, plan in enumerate(plans)
    ]
    recorded = gpu_tuning.Recorded(trials)
    whole = search(Space.of(plans), recorded, mode="exhaustive", confirm=0)
    part = search(Space.of(plans), recorded, confirm=0)
    row = gpu_tuning.row_of(Case("gemm", (1, 2, 3), "cuda"), whole, part, 1.0, {"power": None})
    assert abs(row["default_share"] - 0.8105) < 1e-2
    assert row["spearman"] is not None
    assert row["spearman"] > 0.99
    assert row["hybrid_share"] == 0.25
    assert 0 <= row["hybrid_loss"] < 0.2
    assert "default 0.8" in gpu_tuning.text_of(row)
    summary = gpu_tuning.summary_of([row])
    assert summary["cases"] == 1
    assert summary["default_share"] == row["default_share"]


def test_the_help_is_printed_and_a_family_that_is_none_is_refused() -> None:
    for name in ("gpu_tuning", "cpu_tuning"):
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        found = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "--seed" in found.stdout
        wrong = subprocess.run([*command, "--only", "gems"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert wrong.returncode == 2
        assert "there is no family gems" in wrong.stderr


def row_measured(case: Case, folder: Path) -> dict[str, Any]:
    """The row of one case, with three plans of it measured in a child."""
    out = folder / "found.json"
    gpu_tuning.run([case], gpu_tuning.Bench(3, 1, folder / "pages", 3), 1, 60.0, out)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["summary"]["cases"] == 1
    assert len(list((folder / "pages").iterdir())) == 1
    (row,) = found["rows"]
    return row


def test_a_case_of_this_cpu_is_measured_in_a_child(tmp_path: Path) -> None:
    """Tiles of a map are code of their own."""
    row = row_measured(Case("map", (64, 128), "cpu", "f32"), tmp_path)
    assert row["plans"] == row["measured"] == 3
    assert row["reasons"] == {}
    assert row["default_microseconds"] > 0


def test_a_case_whose_plans_have_one_code_is_not_measured(tmp_path: Path) -> None:
    """A CPU packs matrices by its caches, whatever the block: plans would differ by noise alone."""
    row = row_measured(Case("gemm", (32, 64, 32), "cpu", "f32"), tmp_path)
    assert (row["plans"], row["measured"]) == (3, 0)
    assert row["reasons"] == {f"{SAME_CODE} {Plan()}": 3}
    assert (row["default_share"], row["best"]) == (1.0, "the default")
