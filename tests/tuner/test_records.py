"""Plans and trials as values: equal ones have one digest, and times are medians over rounds."""

from __future__ import annotations

import pytest

from tessera.tuner.records import Plan, Signature, Trial, median_ratio


def test_equal_choices_are_one_plan_in_any_order_and_form() -> None:
    one = Plan.of({"b": [1, [2, 3]], "a": True})
    other = Plan.of({"a": True, "b": (1, (2, 3))})
    assert one == other
    assert one.digest == other.digest
    assert one.overrides == {"a": True, "b": (1, (2, 3))}
    assert Plan.of({"a": False}).digest != Plan.of({"a": True}).digest
    assert str(Plan()) == "the safe plan"
    assert str(one) == "a = True, b = (1, (2, 3))"


def test_a_trial_is_compared_round_by_round() -> None:
    trial = Trial(Plan(), samples=(10.0, 20.0, 30.0), baseline=(12.0, 22.0, 90.0))
    assert trial.time == 20.0
    assert median_ratio(trial) == pytest.approx(1.2)
    assert Trial(Plan(), reason="does not fit").time is None


def test_every_part_tells_signatures_apart() -> None:
    base = Signature("matmul", "8x8x8", "f32", "", "sm_90a", "p", "r")
    for number in range(len(base.parts)):
        parts = list(base.parts)
        parts[number] += "'"
        assert Signature(*parts) != base
