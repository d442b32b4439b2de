"""The planner's benchmark: what is fitted comes back, and recorded steps of 2 ranks were predicted within 15 %."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.planner import CASES, SIZES, config_of, describe_machine, plan_of
from tessera.planner.simulate import simulate
from tessera.planner.traced_model import trace_model

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "planner.json"


def test_rates_that_are_measured_give_back_what_they_were_measured_on() -> None:
    measured = {f"reduce {SIZES[0]}": 1e-4 + 4 * SIZES[0] / 2e9, f"reduce {SIZES[1]}": 1e-4 + 4 * SIZES[1] / 2e9}
    measured["reference alone"] = 0.02
    cluster = describe_machine(measured)
    assert abs(cluster.topology.inside.bandwidth - 2.0) < 1e-6
    assert abs(cluster.topology.inside.latency - 5e4) < 1.0
    model = trace_model(config_of("reference"))
    alone = simulate(plan_of("reference", 1), model, cluster)
    assert abs(alone.time / 0.02e9 - 1) < 1e-6
    assert simulate(plan_of("reference", 2), model, cluster).time > alone.time


def test_recorded_steps_of_two_ranks_were_predicted_within_15_percent() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["ranks"] == 2
    assert set(record["cases"]) == set(CASES)
    for row in record["cases"].values():
        assert abs(row["predicted"] / row["measured"] - 1) == abs(row["deviation"])
        assert abs(row["deviation"]) < 0.15
