"""Searching meshes: bounds hold, so that what is left out could not be better; and pages that say all of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tessera.diagnostics.codes import ScheduleError
from tessera.planner.report import KINDS, page
from tessera.planner.search import candidate_plans, divisors, fit, lower_bound, search_meshes
from tessera.planner.simulate import simulate
from tessera.planner.topology_file import read_cluster
from tessera.planner.training_plan import TrainingPlan
from tessera.planner.transformer import Transformer, read_transformer

CLUSTER = read_cluster("h100")
SMALL = Transformer("small", 8, 1024, 16, 32000, 2048).cost()


def fitting(ranks: int, batch: int) -> list[TrainingPlan]:
    found = [fit(plan, SMALL, CLUSTER) for plan in candidate_plans(SMALL, CLUSTER, ranks, batch)]
    return [one for one in found if isinstance(one, TrainingPlan)]


def test_no_step_is_faster_than_its_bound() -> None:
    plans = fitting(16, 32)
    assert len(plans) > 20
    for plan in plans:
        assert simulate(plan, SMALL, CLUSTER).time >= lower_bound(plan, SMALL, CLUSTER) * (1 - 1e-9)


def test_a_search_finds_what_trying_all_finds() -> None:
    every = sorted(simulate(plan, SMALL, CLUSTER).time for plan in fitting(16, 32))
    found = search_meshes(SMALL, CLUSTER, ranks=16, batch=32, keep=3)
    assert [step.time for step in found.steps] == every[:3]
    assert found.simulated < found.candidates == len(every)


def test_progress_is_told_and_the_best_gets_better() -> None:
    told: list[float] = []
    search_meshes(
        SMALL, CLUSTER, ranks=8, batch=16, progress=lambda done, total, best: told.append(best.time if best else 0.0)
    )
    assert told
    assert told == sorted(told, reverse=True)


def test_what_does_not_fit_is_refused_with_the_least_it_needs() -> None:
    found = search_meshes(read_transformer("llama-3-70b").cost(), CLUSTER, ranks=64, batch=64, keep=1)
    assert found.best.fits
    assert all(not one.memory.fits for one in found.refused)
    with pytest.raises(ScheduleError, match=r"no plan for 8 ranks fits 80 GB: the smallest .* needs \d+"):
        search_meshes(read_transformer("llama-3-405b").cost(), CLUSTER, ranks=8, batch=8)
    with pytest.raises(ScheduleError, match="no mesh of 16 ranks divides 8 layers, 0 heads and a batch of 3"):
        search_meshes(replace(SMALL, splits=0), CLUSTER, ranks=16, batch=3)


def test_long_sequences_are_divided() -> None:
    long = read_transformer("llama-3-8b", sequence=131072).cost()
    found = search_meshes(long, CLUSTER, ranks=32, batch=16, keep=2)
    assert any(step.plan.sp > 1 or step.plan.tp > 1 for step in found.steps)
    assert {plan.sp for plan in candidate_plans(long, CLUSTER, 32, 16)} >= {1, 2, 4}


def test_divisors_are_all_of_them() -> None:
    assert divisors(16, 8) == [1, 2, 4, 8]
    assert divisors(7, 100) == [1, 7]


def test_the_page_has_every_bar_within_the_step() -> None:
    step = simulate(TrainingPlan(dp=2, tp=2, pp=4, batch=16), SMALL, CLUSTER)
    text = page(SMALL, CLUSTER, [step])
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1].replace("<\\/", "</"))
    assert data["duration"] == step.time
    assert len(data["kernels"]) == len(KINDS)
    assert {one["t"] for one in data["events"]} == set(range(len(data["tracks"])))
    assert all(0 <= one["s"] < one["e"] <= step.time + 1 for one in data["events"])
    forwards = [one for one in data["events"] if KINDS[one["k"]] == "forward"]
    assert len({one["line"].split()[0] for one in forwards}) == 8
