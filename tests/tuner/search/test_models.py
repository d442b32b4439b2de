"""What should take how long: the cost model against closed forms, and corrections against known ground truth."""

from __future__ import annotations

import json
import math
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.tuner.cost_model import (
    Hardware,
    KernelWork,
    Prediction,
    blocks_at_once,
    bounds,
    predict_kernel,
    predict_program,
    waves,
)
from tessera.tuner.learned import Correction, Example, Surrogate, examples_of, plan_features, spearman
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Space, search
from tessera.types.machine import Multiprocessor, Usage
from tessera.types.rates import Rates, Work

RATES = Rates(
    units=100,
    curve=((1 << 20, 10_000.0), (1 << 30, 4_000.0)),
    unit_curve=((1 << 20, 200.0), (1 << 30, 100.0)),
    flops=(("bf16", 800_000.0), ("f32", 50_000.0)),
    launch=1_000.0,
    latency=500.0,
    chain=0.0,
)
GPU = Hardware(RATES, Multiprocessor(64, 32, 228 << 10), shared=200.0, link=400.0)
FULL = KernelWork(
    flops=8e9, kind="bf16", memory=1 << 30, l2=3e9, shared=4e9, link=4e6, blocks=200, usage=Usage(256, 64, 0)
)


def test_each_bound_is_what_its_rate_says() -> None:
    found = bounds(FULL, GPU)
    assert found["compute"] == 8e9 / 800_000.0
    assert found["memory"] == (1 << 30) / 4_000.0
    assert found["l2"] == 3e9 / 10_000.0
    assert found["shared"] == 4e9 / (200.0 * 100)
    assert found["link"] == 4e6 / 400.0
    assert found["latency"] == 500.0, "200 blocks on 100 units of four are one wave"


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_the_unit_with_the_most_blocks_ends_last(blocks: int, units: int) -> None:
    rates = Rates(units, RATES.curve, (), RATES.flops, 0.0, 0.0, 0.0)
    work = KernelWork(flops=1e6 * blocks, blocks=blocks)
    found = bounds(work, Hardware(rates))["compute"]
    assert math.isclose(found, 1e6 * math.ceil(blocks / units) / (50_000.0 / units))


def test_waves_and_occupancy_are_counted() -> None:
    assert blocks_at_once(FULL, GPU) == 4
    assert blocks_at_once(FULL, Hardware(RATES)) == 1
    assert waves(KernelWork(blocks=401), RATES, 4) == 2
    large = KernelWork(flops=1.0, blocks=10, usage=Usage(256, 64, 300 << 10))
    assert predict_kernel(large, GPU).time == math.inf
    assert predict_kernel(large, GPU).bound == "no block of it fits a multiprocessor"


def test_loads_that_wait_bound_a_kernel_with_few_bytes_in_flight() -> None:
    shallow, deep = (predict_kernel(KernelWork(memory=1e8, blocks=100, in_flight=flight), GPU) for flight in (1e3, 1e6))
    assert shallow.bound == "latency"
    assert shallow.time > 1000 * 500.0
    assert deep.bound == "memory"


def test_the_slowest_bound_names_the_prediction_and_others_add_little() -> None:
    one = predict_kernel(KernelWork(memory=1 << 30, blocks=100), GPU)
    assert one.bound == "memory"
    # Latency of one load is there too; a tenth of the time adds nothing that counts.
    assert math.isclose(one.time, (1 << 30) / 4_000.0 + 1_000.0, rel_tol=1e-3)
    two = predict_kernel(KernelWork(memory=1 << 30, flops=5e4 * (1 << 30) / 4_000.0, blocks=100), GPU)
    assert math.isclose((two.time - 1_000.0) / (one.time - 1_000.0), 2**0.25, rel_tol=1e-3)
    assert predict_kernel(KernelWork(flops=1.0), GPU).bound == "launch"


@given(st.integers(1, 10**7), st.integers(1, 10**7), st.integers(1, 10**4))
def test_more_work_never_takes_less(flops: int, moved: int, blocks: int) -> None:
    work = KernelWork(flops=float(flops), memory=float(moved), blocks=blocks)
    more = KernelWork(flops=2.0 * flops, memory=2.0 * moved, blocks=blocks)
    assert predict_kernel(work, GPU).time <= predict_kernel(more, GPU).time


def test_a_program_is_the_sum_of_its_kernels() -> None:
    small, large = KernelWork(memory=1e6, blocks=10), FULL
    found = predict_program([small, large], GPU)
    assert found.time == predict_kernel(small, GPU).time + predict_kernel(large, GPU).time
    assert found.bound == predict_kernel(large, GPU).bound
    assert dict(found.features)["log kernels"] == math.log(2)
    assert predict_program([], GPU).time == 0.0


def test_what_the_roofline_knows_is_enough_for_a_prediction() -> None:
    plain = KernelWork.of(Work(1e6, 1e6, blocks=5))
    dots = KernelWork.of(Work(1e6, 1e6, "bf16", 5, is_contraction=True))
    assert (plain.flops, dots.flops) == (2e6, 1e6)
    assert (plain.blocks, dots.kind) == (5, "bf16")


# A machine that is known: times are the model's, by a law that it does not know.


def known_time(features: dict[str, float], predicted: float) -> float:
    return predicted * math.exp(0.3 * features["log waves"] - 0.2 * features["log steps"] + 0.1)


def drawn(seed: int, count: int) -> list[Example]:
    rng, found = random.Random(seed), list[Example]()
    for _ in range(count):
        features = {name: rng.uniform(0.0, 4.0) for name in ("log waves", "log steps", "log blocks")}
        predicted = math.exp(rng.uniform(8.0, 14.0))
        measured = known_time(features, predicted) * math.exp(rng.gauss(0.0, 0.02))
        found.append(Example(tuple(sorted(features.items())), predicted, measured))
    return found


def test_a_correction_learns_what_the_model_leaves_out() -> None:
    correction = Correction.fit(drawn(1, 200))
    assert correction.examples == 200
    for one in drawn(2, 50):
        found = correction.apply(Prediction(one.predicted, one.features)).time
        assert abs(math.log(found / one.measured)) < 0.1
    weights = {name: weight / scale for name, _, scale, weight in correction.weights}
    assert abs(weights["log waves"] - 0.3) < 0.02
    assert abs(weights["log steps"] + 0.2) < 0.02
    assert abs(weights["log blocks"]) < 0.02


def test_a_correction_improves_the_ranking_and_is_the_same_each_time() -> None:
    examples = drawn(3, 100)
    one, other = Correction.fit(examples), Correction.fit(examples)
    assert one == other
    assert Correction.from_json(json.loads(json.dumps(one.as_json()))) == one
    held = drawn(4, 60)
    measured = [example.measured for example in held]
    plain = [Prediction(1.0, example.features) for example in held]
    ranked = [one.apply(prediction).time * example.predicted for prediction, example in zip(plain, held, strict=True)]
    assert spearman(ranked, measured) > spearman([example.predicted for example in held], measured)


def test_few_or_strange_examples_leave_the_model_alone() -> None:
    assert Correction.fit([]) == Correction()
    prediction = Prediction(100.0, (("log waves", 1.0),))
    assert Correction().apply(prediction) == prediction
    broken = [Example((), math.inf, 1.0), Example((), 1.0, 0.0), Example((), 1.0, math.nan)]
    assert Correction.fit(broken) == Correction()
    far = Correction.fit(drawn(1, 100)).factor(Prediction(1.0, (("log waves", 1e9),)))
    assert 0 < far < 100, "a line says nothing far from its examples"


def test_without_trials_a_surrogate_ranks_as_the_model() -> None:
    plans = [Plan.of({"n": n}) for n in range(8)]
    times = [float(8 - n) for n in range(8)]
    mean, deviation = Surrogate(plans, [Prediction.of(time) for time in times]).guess({})
    assert spearman(mean.tolist(), times) == 1.0
    assert set(deviation.tolist()) == {1.0}


def test_a_trial_corrects_plans_like_it_and_leaves_others_unsure() -> None:
    plans = [Plan.of({"m": m, "kind": kind}) for m, kind in product((1, 2, 4, 8, 16, 32, 64, 128), ("a", "b"))]
    surrogate = Surrogate(plans, [Prediction.of(100.0)] * len(plans))
    known = {plans[0]: 50.0, plans[-1]: 200.0, plans[7]: 100.0}
    mean, deviation = surrogate.guess(known)
    for plan, time in known.items():
        number = plans.index(plan)
        assert abs(mean[number] - math.log(time)) < 0.05
        assert deviation[number] < 0.05
    assert mean[2] < mean[-3], "what is like the fast one is guessed faster than what is like the slow one"
    assert deviation.max() > 0.05


def test_plans_that_cannot_be_predicted_are_in_the_middle_and_impossible_ones_last() -> None:
    plans = [Plan.of({"n": n}) for n in range(4)]
    found = [Prediction.of(10.0), None, Prediction.of(1000.0), Prediction.of(math.inf)]
    mean, _ = Surrogate(plans, found).guess({})
    assert mean.tolist() == sorted(mean.tolist())


def test_plans_become_numbers() -> None:
    found = plan_features(Plan.of({"block": (7, 15), "order": "rows", "fused": True, "stages": 0}))
    assert found == {
        "block.0": math.log(8),
        "block.1": math.log(16),
        "block all": math.log(8) + math.log(16),
        "order is rows": 1.0,
        "fused.0": math.log(2),
        "stages.0": 0.0,
    }


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30, unique=True), st.randoms())
def test_rank_correlation_is_that_of_the_ranks(values: list[int], rng: random.Random) -> None:
    plain = [float(value) for value in values]
    assert math.isclose(spearman(plain, [math.exp(value / 10) for value in plain]), 1.0)
    assert math.isclose(spearman(plain, [-value for value in plain]), -1.0)
    other = rng.sample(plain, len(plain))
    order = {value: rank for rank, value in enumerate(sorted(plain))}
    squares = sum((order[a] - order[b]) ** 2 for a, b in zip(plain, other, strict=True))
    count = len(plain)
    assert math.isclose(spearman(plain, other), 1 - 6 * squares / (count * (count**2 - 1)), abs_tol=1e-9)


def test_rank_correlation_shares_ranks_of_equal_values() -> None:
    assert math.isclose(spearman([1.0, 1.0, 2.0], [1.0, 1.0, 2.0]), 1.0)
    assert spearman([1.0, 1.0], [1.0, 2.0]) == 0.0
    with pytest.raises(ValueError, match="rankings of 1 and 2 values"):
        spearman([1.0], [1.0, 2.0])


# Trials of other sizes: what the model has wrong there, it has wrong here.

KNOBS = {
    "block.m": (64, 128, 256),
    "block.n": (64, 128, 192, 256),
    "stages": (2, 3, 4, 6),
    "order": ("rows", "columns"),
}


def grid(location: str) -> list[Plan]:
    names = [f"{name}@{location}" for name in KNOBS]
    return [Plan.of(dict(zip(names, values, strict=True))) for values in product(*KNOBS.values())]


def shape_times(location: str, size: int) -> tuple[dict[Plan, float], dict[Plan, float]]:
    """Predicted and measured times of all plans at a size; the model does not know what stages and orders cost."""
    predicted, measured = dict[Plan, float](), dict[Plan, float]()
    for plan in grid(location):
        chosen = {name.partition("@")[0]: value for name, value in plan.choices}
        waste = abs(math.log(chosen["block.m"] * chosen["block.n"] / size))
        predicted[plan] = 1000.0 * math.exp(0.3 * waste)
        unseen = 0.25 * math.log(6 / chosen["stages"]) + (0.2 if chosen["order"] == "rows" else 0.0)
        measured[plan] = predicted[plan] * math.exp(unseen)
    return predicted, measured


class Counted:
    """Measures a table of times, and counts until one within 5 % of the best was measured."""

    def __init__(self, times: dict[Plan, float]) -> None:
        self.times, self.count, self.reached = times, 0, 0

    def prepare(self, plans: object, seconds: float | None = None) -> dict[Plan, str]:
        return {}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        self.count += 1
        if not self.reached and self.times[plan] <= 1.05 * min(self.times.values()):
            self.reached = self.count
        return Trial(plan, (self.times[plan],) * rounds, (1500.0,) * rounds)


def test_trials_of_other_sizes_cut_what_has_to_be_measured_by_a_third() -> None:
    """U2.1: the database's trials are of other groups; the search is of one that nobody measured."""
    kept: list[Trial] = []
    for number, size in enumerate((64 * 64, 128 * 256)):
        predicted, measured = shape_times(f"group{number}", size)
        drawn = random.Random(number).sample(sorted(predicted, key=str), 24)
        kept += [Trial(plan, (measured[plan],) * 10, (1500.0,) * 10, predicted[plan]) for plan in drawn]
    correction = Correction.fit(examples_of(kept))
    assert correction.examples == 48
    reached = [0, 0]
    for size in (64 * 128, 128 * 128, 128 * 192, 256 * 256):
        predicted, measured = shape_times("new_group", size)
        for number, known in enumerate((None, correction)):
            counted, space = Counted(measured), Space.of(list(predicted))
            predictions = {plan: Prediction.of(time) for plan, time in predicted.items()}
            search(space, counted, predict=predictions.get, correction=known, confirm=0)
            assert counted.reached
            reached[number] += counted.reached
    assert reached[1] <= 0.7 * reached[0], reached


def test_trials_that_failed_teach_nothing() -> None:
    plan = Plan.of({"stages@group": 2})
    trials = [Trial(plan, reason="not compiled"), Trial(plan, (5.0,), predicted=4.0), Trial(plan, predicted=3.0)]
    assert examples_of(trials) == [Example((("stages.0", math.log1p(2)),), 4.0, 5.0)]
