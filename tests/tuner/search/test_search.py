"""Searching: the best of known surfaces is found, the budget holds, interruption keeps what was found."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tessera.diagnostics.codes import SearchError
from tessera.tuner.learned import Correction, Example, spearman
from tessera.tuner.protocol import SAME_CODE
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import MODES, Outcome, Progress, Space, pareto, relative_time, search, weigh
from tests.tuner.search.surfaces import AXES, PLANS, SPACE, Surface, Synthetic, model_of, surface


def loss(outcome: Outcome, time: Surface) -> float:
    """How many times the best time the plan that was found takes."""
    assert outcome.best is not None
    return time(outcome.best.plan) / min(map(time, PLANS))


@given(st.integers(0, 10_000))
def test_hybrid_measures_a_quarter_and_comes_within_three_percent(seed: int) -> None:
    time, predict = surface(seed), model_of(surface(seed), seed)
    assume(spearman([time(plan) for plan in PLANS], [predict(plan).time for plan in PLANS]) >= 0.75)
    measurer = Synthetic(time, seed=seed)
    outcome = search(SPACE, measurer, predict=predict, seed=seed)
    assert outcome.measured <= len(PLANS) // 4
    assert len({plan for plan, _ in measurer.measured}) == outcome.measured
    assert loss(outcome, time) <= 1.03


def test_hybrid_corrects_a_model_that_has_one_knob_wrong() -> None:
    time = surface(28)

    def predict(plan: Plan) -> Any:
        other = {name: values[-1 - values.index(plan.overrides[name])] for name, values in AXES.items()}
        return model_of(time, 28, 0.0)(Plan.of({**plan.overrides, "block.k": other["block.k"]}))

    outcome = search(SPACE, Synthetic(time), predict=predict)
    assert loss(outcome, time) <= 1.03
    ranked = sorted(PLANS, key=lambda plan: predict(plan).time)
    best = min(PLANS, key=time)
    assert ranked.index(best) > len(PLANS) // 4, "the model alone would not have measured it"


def test_hybrid_without_a_model_still_searches() -> None:
    time = surface(7)
    outcome = search(SPACE, Synthetic(time))
    assert 1 < outcome.measured <= len(PLANS) // 4
    assert loss(outcome, time) <= 1.1


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_asks_the_same_questions(mode: str) -> None:
    asked: list[list[tuple[Plan, int]]] = []
    for seed in (1, 1, 2):
        measurer = Synthetic(surface(3))
        search(SPACE, measurer, mode=mode, seed=seed, predict=model_of(surface(3), 0) if mode == "hybrid" else None)
        asked.append(measurer.measured)
    assert asked[0] == asked[1]
    if mode in ("random", "evolutionary", "hyperband"):
        assert asked[0] != asked[2]


def test_exhaustive_measures_everything_and_finds_the_best() -> None:
    measurer = Synthetic(surface(5), noise=0.0)
    outcome = search(SPACE, measurer, mode="exhaustive", confirm=0)
    assert [plan for plan, _ in measurer.measured] == PLANS
    assert {rounds for _, rounds in measurer.measured} == {10}
    assert loss(outcome, surface(5)) == 1.0
    assert outcome.share == 1.0


def test_hyperband_reaches_the_best_with_fewer_full_measurements_than_random() -> None:
    """Rounds that it takes until the best plan was measured in full, against drawing plans one by one."""
    wins = 0
    for seed in range(10):
        time = surface(seed)
        best = min(PLANS, key=time)
        measurer = Synthetic(time, noise=0.03, seed=seed)
        outcome = search(SPACE, measurer, mode="hyperband", seed=seed, confirm=0)
        assert loss(outcome, time) <= 1.05
        total = sum(rounds for _, rounds in measurer.measured)
        full = [trial for trial in outcome.trials if len(trial.samples) >= 10]
        assert len(full) < len(PLANS) / 4
        drawn = random.Random(seed).sample(PLANS, len(PLANS))
        wins += total < 10 * (drawn.index(best) + 1)
    assert wins >= 5


def test_evolution_beats_drawing_at_random() -> None:
    lost = {
        mode: sum(loss(search(SPACE, Synthetic(surface(k), seed=k), mode=mode, seed=k), surface(k)) for k in range(10))
        for mode in ("random", "evolutionary")
    }
    assert lost["evolutionary"] < lost["random"]


def test_a_space_too_large_to_list_is_searched() -> None:
    space = Space.product({f"knob{number}": tuple(range(1, 9)) for number in range(30)})
    assert space.size == 8**30

    def far(plan: Plan) -> float:
        return 1.0 + sum(abs(value - 3) for _, value in plan.choices)

    for mode in ("evolutionary", "random"):
        outcome = search(space, Synthetic(far), mode=mode, limit=40)
        assert outcome.measured == 40
    assert all(plan in space for plan in space.plans(random.Random(1), 100))


@pytest.mark.parametrize("mode", MODES)
def test_no_plan_begins_after_the_budget(mode: str) -> None:
    measurer = Synthetic(surface(1))
    begun: list[float] = []
    start = time.monotonic()

    def before() -> None:
        begun.append(time.monotonic() - start)
        time.sleep(0.02)

    measurer.before = before
    outcome = search(SPACE, measurer, mode=mode, budget=0.1)
    assert outcome.stopped == "budget"
    assert max(begun) < 0.1 + 0.01
    assert outcome.best is not None
    assert outcome.seconds < 0.2
    assert any("budget of 0.1 s" in trial.reason for trial in outcome.trials)


def test_the_budget_counts_compiling() -> None:
    measurer = Synthetic(surface(1))
    asked: list[float | None] = []

    class Slow(Synthetic):
        def prepare(self, plans: Any, seconds: float | None = None) -> dict[Plan, str]:
            asked.append(seconds)
            time.sleep(0.06)
            return {}

    measurer = Slow(surface(1))
    outcome = search(SPACE, measurer, mode="exhaustive", budget=0.05)
    assert outcome.stopped == "budget"
    assert measurer.measured == []
    assert outcome.best is None
    assert asked[0] is not None
    assert 0 < asked[0] <= 0.05


@pytest.mark.parametrize("mode", MODES)
def test_an_interruption_returns_the_best_so_far(mode: str) -> None:
    measurer = Synthetic(surface(2), noise=0.0)

    def before() -> None:
        if len(measurer.measured) == 3:
            raise KeyboardInterrupt

    measurer.before = before
    outcome = search(SPACE, measurer, mode=mode)
    assert outcome.stopped == "interrupted"
    assert outcome.measured == 3
    assert outcome.best is not None
    assert outcome.best.plan == min((plan for plan, _ in measurer.measured), key=surface(2))
    assert len(outcome.trials) == len(PLANS)


def test_rejected_and_failed_plans_are_kept_with_their_reasons_and_never_win() -> None:
    time = surface(6)
    ranked = sorted(PLANS, key=time)
    capped, broken, other = ranked[:3]
    space = Space.product(AXES, lambda plan: "HBM_util is 0.9, the cap 0.85" if plan == capped else "")
    for mode in ("exhaustive", "hybrid"):
        measurer = Synthetic(time, noise=0.0)
        measurer.reasons[broken] = "not compiled: it spills"
        outcome = search(space, measurer, mode=mode, predict=model_of(time, 0, 0.0))
        found = {trial.plan: trial for trial in outcome.trials}
        assert found[capped].reason == "rejected: HBM_util is 0.9, the cap 0.85"
        assert capped not in measurer.prepared
        assert found[broken].reason == "not compiled: it spills"
        assert {capped, broken}.isdisjoint(plan for plan, _ in measurer.measured)
        assert outcome.best is not None
        assert outcome.best.plan == other


def test_a_measurement_with_a_reason_never_wins() -> None:
    class Other(Synthetic):
        def measure(self, plan: Plan, rounds: int) -> Trial:
            trial = super().measure(plan, rounds)
            reason = "other bits" if plan == min(PLANS, key=self.time) else ""
            return Trial(plan, trial.samples, trial.baseline, reason=reason)

    outcome = search(SPACE, Other(surface(8), noise=0.0), mode="exhaustive")
    assert outcome.best is not None
    assert outcome.best.plan == sorted(PLANS, key=surface(8))[1]


def test_pruned_plans_say_so_and_carry_their_prediction() -> None:
    outcome = search(SPACE, Synthetic(surface(9)), predict=model_of(surface(9), 0))
    pruned = [trial for trial in outcome.trials if trial.reason == "pruned by the model"]
    assert len(pruned) == len(PLANS) - outcome.measured
    assert all(trial.predicted for trial in outcome.trials)


def test_plans_of_like_sizes_are_measured_first() -> None:
    for mode in ("exhaustive", "random", "evolutionary", "hybrid", "hyperband"):
        measurer = Synthetic(surface(1))
        search(SPACE, measurer, mode=mode, first=[PLANS[77], Plan.of({"unknown": 1})])
        assert measurer.measured[0][0] == PLANS[77], mode


def test_a_correction_of_the_database_is_applied_to_predictions() -> None:
    time = surface(3)
    predict = model_of(time, 0, 0.0)
    examples = [Example((), predict(plan).time, time(plan)) for plan in PLANS[:20]]
    plain = search(SPACE, Synthetic(time), predict=predict)
    corrected = search(SPACE, Synthetic(time), predict=predict, correction=Correction.fit(examples))
    off = [abs(one.trials[0].predicted or 0.0) / time(one.trials[0].plan) - 1.0 for one in (plain, corrected)]
    assert abs(off[1]) < abs(off[0])


def test_progress_is_told_of_each_plan() -> None:
    heard: list[Progress] = []
    outcome = search(Space.of(PLANS[:7]), Synthetic(surface(1)), mode="exhaustive", progress=heard.append, confirm=0)
    assert [one.done for one in heard] == [1, 2, 3, 4, 5, 6, 7]
    assert {one.expected for one in heard} == {7}
    scores = [relative_time(one.best) for one in heard if one.best is not None]
    assert scores == sorted(scores, reverse=True)
    assert heard[-1].best == outcome.best


def test_the_best_few_are_measured_once_more() -> None:
    measurer = Synthetic(surface(1), noise=0.05)
    outcome = search(Space.of(PLANS[:40]), measurer, mode="exhaustive", confirm=3)
    assert len(measurer.measured) == 43
    assert outcome.measured == 40
    assert sum(len(trial.samples) == 20 for trial in outcome.trials) == 3


def test_small_spaces_are_measured_up_to_four_plans() -> None:
    for count, expected in ((1, 1), (3, 3), (7, 4), (40, 10)):
        outcome = search(Space.of(PLANS[:count]), Synthetic(surface(1)), predict=model_of(surface(1), 0))
        assert outcome.measured == expected


def test_plans_of_one_code_count_as_one() -> None:
    """Two of five knobs make no difference to the code here: of nine plans eight are no plans of their own.

    What is left to measure a quarter of is found out while measuring; and four are measured where there are four.
    """

    class Coded(Synthetic):
        def __init__(self, time: Surface) -> None:
            super().__init__(time)
            self.first: dict[Any, Plan] = {}

        def measure(self, plan: Plan, rounds: int) -> Trial:
            code = tuple((name, value) for name, value in plan.choices if name in ("block.m", "block.n", "order"))
            same = self.first.setdefault(code, plan)
            return super().measure(plan, rounds) if same == plan else Trial(plan, reason=f"{SAME_CODE} {same}")

    def time(plan: Plan) -> float:
        return surface(4)(Plan.of({**plan.overrides, "block.k": 64, "stages": 3}))

    measurer = Coded(time)
    outcome = search(SPACE, measurer, predict=model_of(time, 0, 0.1))
    codes = len({time(plan) for plan in PLANS})
    assert outcome.measured == len(measurer.first)
    asked = outcome.measured + sum(trial.reason.startswith(SAME_CODE) for trial in outcome.trials)
    assert codes // 4 <= outcome.measured < codes * 0.7
    assert asked < len(PLANS) // 2
    assert outcome.best is not None
    assert time(outcome.best.plan) <= 1.05 * min(map(time, PLANS))
    few = [plan for plan in PLANS if plan.overrides["block.m"] == 64 and plan.overrides["order"] == "rows"]
    assert search(Space.of(few), Coded(time), predict=model_of(time, 0)).measured == 4, "one of each code"


def test_an_empty_space_has_no_best() -> None:
    outcome = search(Space.of([]), Synthetic(surface(1)))
    assert outcome.best is None
    assert outcome.trials == ()
    assert outcome.share == 0.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "hybird"}, "did you mean `hybrid`"),
        ({"budget": 0.0}, "`budget` is seconds, more than 0, got 0.0"),
        ({"limit": 0}, "`limit` is a number of plans, at least 1, got 0"),
        ({"share": 1.5}, "at most 1, got 1.5"),
        ({"rounds": 0}, "`rounds` is at least 1, got 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchError) as caught:
        search(SPACE, Synthetic(surface(1)), **options)
    assert text in caught.value.render()


def test_a_knob_without_values_is_refused() -> None:
    with pytest.raises(SearchError, match="`stages` has no values"):
        Space.product({"stages": ()})


def test_several_objectives_have_a_pareto_set_and_weights_choose_in_it() -> None:
    trials = [Trial(Plan.of({"n": n}), (t,) * 3, (10.0,) * 3) for n, t in ((1, 4.0), (2, 2.0), (3, 3.0))]
    moved = {1: 10.0, 2: 40.0, 3: 50.0}

    def values(trial: Trial) -> dict[str, float]:
        return {"latency": trial.time or 0.0, "bytes_moved": moved[trial.plan.overrides["n"]]}

    assert pareto(trials, values) == trials[:2]
    fast, lean = (weigh(values, {"latency": a, "bytes_moved": b}) for a, b in ((1.0, 0.1), (0.1, 1.0)))
    assert min(trials, key=fast) is trials[1]
    assert min(trials, key=lean) is trials[0]


def test_why_a_plan_may_not_be_is_asked_only_of_plans_that_would_be_measured() -> None:
    """An answer may take a lowering; and of what may not be, there is no quarter to measure."""
    asked: list[Plan] = []

    def reject(plan: Plan) -> str:
        asked.append(plan)
        return "other bits" if plan.overrides["order"] == "rows" else ""

    outcome = search(Space.product(AXES, reject), Synthetic(surface(3)), predict=model_of(surface(3), 0))
    assert len(asked) == len(set(asked))
    assert len(asked) < 0.7 * len(PLANS)
    # How many may be is guessed by those asked about, of which more may be than of all.
    assert outcome.measured <= len(PLANS) / 2 / 3
    assert any(trial.reason == "rejected: other bits" for trial in outcome.trials)
    assert outcome.best is not None
    assert outcome.best.plan.overrides["order"] == "columns"
