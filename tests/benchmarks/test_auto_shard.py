"""The benchmark of chosen shardings: where they differ from data parallel they were measured to be faster."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.auto_shard import CASES, plans_of

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "auto_shard.json"


def test_a_chosen_plan_was_faster_than_data_parallel_as_the_model_says() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    few, many = (record["cases"][name] for name in CASES)
    assert few["chosen"]["modelled"] < few["data parallel"]["modelled"]
    assert few["chosen"]["measured"] < 0.8 * few["data parallel"]["measured"]
    assert many["chosen"]["inputs"] == many["data parallel"]["inputs"]


def test_the_record_is_of_the_plans_that_are_chosen_today() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for name, sizes in CASES.items():
        plans = plans_of(sizes)
        assert {one: list(plan["inputs"]) for one, plan in plans.items()} == {
            one: plan["inputs"] for one, plan in record["cases"][name].items()
        }
