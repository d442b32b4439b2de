"""Decisions on synthetic times: large and sure gains are accepted, small, noisy, unequal or greedy plans are not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.tuner.acceptance import Criteria, Group, judge, judge_program, median_interval
from tessera.tuner.records import Plan, Trial
from tests.tuner.samples import BLOCK, SAFE_BITS, noisy, signature, timed


def test_6_percent_is_rejected_and_8_percent_accepted() -> None:
    six, eight = judge(timed(noisy(0.06, 0.005)), SAFE_BITS), judge(timed(noisy(0.08, 0.005)), SAFE_BITS)
    assert not six.accepted
    assert six.reason == "it gains 6.0 %, and at least 7.0 % are needed"
    assert eight.accepted
    assert eight.gain == pytest.approx(0.08, abs=0.004)
    assert 0 < eight.low < eight.gain < eight.high
    assert eight.reason == ""


@pytest.mark.parametrize("threshold", [0.0, 0.07])
def test_a_slower_plan_is_said_to_be_slower(threshold: float) -> None:
    decision = judge(timed([0.5] * 10), SAFE_BITS, Criteria(threshold=threshold))
    assert (decision.accepted, decision.reason) == (False, "it is slower: 2.00 times the safe plan's time")


def test_noisy_8_percent_is_rejected_since_it_may_be_nothing() -> None:
    decision = judge(timed(noisy(0.08, 0.25)), SAFE_BITS)
    assert decision.gain >= 0.07
    assert decision.low <= 0
    assert not decision.accepted
    assert decision.reason.startswith("it gains 8.")
    assert decision.reason.endswith("at a confidence of 95%: that may be nothing")


def test_more_rounds_make_the_same_noise_sure() -> None:
    assert judge(timed(noisy(0.08, 0.15, rounds=400)), SAFE_BITS).accepted


@pytest.mark.parametrize("saved", [0.92, 1 / 1.08])
def test_8_percent_of_time_or_of_speed_are_both_enough(saved: float) -> None:
    assert judge(timed([1 / saved] * 10), SAFE_BITS).accepted
    less = 0.94 if saved == 0.92 else 1 / 1.06
    assert not judge(timed([1 / less] * 10), SAFE_BITS).accepted


def test_a_few_runs_that_were_disturbed_change_nothing() -> None:
    calm = noisy(0.08, 0.005)
    assert judge(timed([*calm[:-3], 0.1, 0.2, 30.0]), SAFE_BITS).accepted
    assert not judge(timed([*noisy(0.02, 0.005)[:-3], 30.0, 40.0, 50.0]), SAFE_BITS).accepted


def test_a_machine_that_slows_down_slows_both_plans() -> None:
    trial = timed([1.02] * 20)
    spell = [1.0] * 10 + [1.5] * 10
    slowed = replace(
        trial,
        samples=tuple(one * factor for one, factor in zip(trial.samples, spell, strict=True)),
        baseline=tuple(one * factor for one, factor in zip(trial.baseline, spell, strict=True)),
    )
    assert judge(slowed, SAFE_BITS).gain == pytest.approx(0.02)


def test_the_threshold_and_the_confidence_are_options() -> None:
    trial = timed(noisy(0.06, 0.005))
    assert judge(trial, SAFE_BITS, Criteria(threshold=0.05)).accepted
    shaky = timed(noisy(0.08, 0.1, rounds=20, seed=4))
    assert judge(shaky, SAFE_BITS, Criteria(confidence=0.5)).accepted
    assert not judge(shaky, SAFE_BITS, Criteria(confidence=0.999)).accepted
    for wrong in ({"threshold": -0.1}, {"confidence": 1.0}, {"confidence": 0.1}, {"rounds": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Criteria(**wrong)  # pyright: ignore[reportArgumentType]


def test_a_plan_with_other_bits_is_rejected_however_fast_it_is() -> None:
    for bits in ("0ther", ""):
        decision = judge(timed([3.0] * 20, bits=bits), SAFE_BITS)
        assert not decision.accepted
        assert "bit for bit" in decision.reason
        assert SAFE_BITS in decision.reason
    assert not judge(timed([3.0] * 20, bits=""), "").accepted, "no hash is no proof"


def test_a_plan_over_the_memory_cap_is_rejected_with_both_numbers() -> None:
    trial = replace(timed([2.0] * 20), memory=2048)
    decision = judge(trial, SAFE_BITS, Criteria(memory_cap=2047))
    assert decision.reason == "it needs 2048 bytes of memory, and 2047 are allowed"
    assert judge(trial, SAFE_BITS, Criteria(memory_cap=2048)).accepted
    unknown = judge(timed([2.0] * 20), SAFE_BITS, Criteria(memory_cap=2048))
    assert unknown.reason == "it needs an unknown number of bytes of memory, and 2048 are allowed"


def test_what_was_not_measured_fairly_is_rejected() -> None:
    assert judge(Trial(BLOCK, reason="it does not compile"), SAFE_BITS).reason == "it does not compile"
    assert "in 9 rounds, and 10 are needed" in judge(timed([2.0] * 9), SAFE_BITS).reason
    assert "not in the same rounds" in judge(replace(timed([2.0] * 20), baseline=(1.0,)), SAFE_BITS).reason
    few = judge(timed([2.0] * 4), SAFE_BITS, Criteria(rounds=4))
    assert few.reason == "4 rounds are too few for a confidence of 95%"
    assert not judge(timed([1.0] * 20, Plan()), SAFE_BITS).accepted


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_an_interval_has_the_median_in_it_and_grows_with_confidence(values: list[float], confidence: float) -> None:
    found = median_interval(values, confidence)
    if found is None:
        assert len(values) < 8
        return
    low, high = found
    ordered = sorted(values)
    assert low <= ordered[(len(values) - 1) // 2] <= high
    narrower = median_interval(values, 0.5)
    assert narrower is not None
    assert low <= narrower[0] <= narrower[1] <= high


def test_an_interval_covers_the_true_median_as_often_as_it_says() -> None:
    # Times have long tails: a log-normal distribution, whose median is 1.
    draw, covered = random.Random(7), 0
    for _ in range(2000):
        found = median_interval([draw.lognormvariate(0, 0.5) for _ in range(12)], 0.9)
        assert found is not None
        covered += found[0] <= 1 <= found[1]
    assert covered / 2000 >= 0.9 - 0.015


def group(number: int, gain: float, calls: int = 1, noise: float = 0.003, baseline: float = 1000.0) -> Group:
    plan = Plan.of({"map.tile": number})
    trial = timed(noisy(gain, noise, seed=number), plan, baseline)
    return Group(signature(op_kind=f"group{number}"), (trial,), SAFE_BITS, calls)


def test_many_small_gains_count_together() -> None:
    groups = [group(number, 0.08) for number in range(10)]
    decision = judge_program(groups)
    assert decision.accepted
    assert decision.gain == pytest.approx(0.08, abs=0.005)
    assert decision.plans == {one.signature: one.trials[0].plan for one in groups}
    assert decision.rejected == ()
    one_large = judge_program([group(0, 0.30), *(group(number, 0.03) for number in range(1, 4))])
    assert one_large.accepted, "3 % are not enough alone, and count here"
    assert len(set(one_large.plans.values())) == 4


def test_a_large_gain_of_a_small_part_is_not_enough_for_a_program() -> None:
    small = group(0, 0.50)
    decision = judge_program([small], other_time=100_000.0)
    assert not decision.accepted
    assert decision.plans == {small.signature: Plan()}
    assert decision.gain == pytest.approx(0.0033, abs=0.001)
    assert decision.rejected[0][1].reason.startswith("its program keeps the safe plan: it gains 0.3 %")
    assert judge_program([small]).accepted


def test_a_group_counts_as_often_as_it_is_called() -> None:
    slow, hot = group(0, 0.0, noise=0.0), group(1, 0.2)
    assert not judge_program([slow, replace(hot, calls=1)], other_time=9000.0).accepted
    decision = judge_program([slow, replace(hot, calls=100)], other_time=9000.0)
    assert decision.accepted
    assert decision.plans[slow.signature] == Plan()


def test_a_noisy_group_proposes_nothing_and_its_time_counts() -> None:
    unsure, sure = group(0, 0.08, noise=0.3), group(1, 0.10)
    decision = judge_program([unsure, sure])
    assert decision.plans[unsure.signature] == Plan()
    assert not decision.accepted, "10 % of half a program"
    assert decision.gain == pytest.approx(0.047, abs=0.005)


def test_the_fastest_plan_that_may_be_used_is_proposed() -> None:
    trials = (
        timed([1.1] * 20, Plan.of({"map.tile": 1})),
        timed([1.3] * 20, Plan.of({"map.tile": 2})),
        timed([1.5] * 20, Plan.of({"map.tile": 3}), bits="0ther"),
        Trial(Plan.of({"map.tile": 4}), reason="too many registers"),
    )
    one = Group(signature(), trials, SAFE_BITS)
    decision = judge_program([one])
    assert decision.plans == {one.signature: Plan.of({"map.tile": 2})}
    reasons = {trial.plan.overrides["map.tile"]: trial.reason for _, trial in decision.rejected}
    assert set(reasons) == {1, 3, 4}
    assert reasons[1] == "another plan of its group is faster"
    assert "bit for bit" in reasons[3]
    assert reasons[4] == "too many registers"
    turned_over = Group(one.signature, trials[::-1], SAFE_BITS)
    assert judge_program([turned_over]).plans == decision.plans


def test_a_program_without_plans_keeps_the_safe_ones() -> None:
    assert judge_program([]).reason == "no group has a plan that is surely faster than its safe one"
    assert not judge_program([Group(signature(), (), SAFE_BITS)], other_time=1.0).accepted
