"""Loss scales: those of a policy, which `grad` applies, and those that a step adapts, under `jit` and outside."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import PolicyError, PytreeError

X = np.array([1.0, -2.0, 0.5, 4.0], np.float32)
SMALL = np.float32(2.0**-30)
HALF = ts.Training(ts.f16)


def loss(w: Any, x: Any) -> Any:
    """Cotangents of its f16 are below 2**-24, the smallest number that is not zero there."""
    return (w * x).sum() * SMALL


def test_a_gradient_in_f16_underflows_without_a_scale_and_is_right_with_one() -> None:
    w = np.ones(4, np.float32)
    assert not np.asarray(ts.jit(ts.grad(loss), policy=HALF)(w, X)).any()
    scaled = replace(HALF, loss_scale=2.0**15)
    for found in (
        ts.jit(ts.grad(loss), policy=scaled)(w, X),
        ts.grad(ts.jit(loss, policy=scaled))(w, X),
        ts.jit(lambda w, x: ts.value_and_grad(loss)(w, x)[1], policy=scaled)(w, X),
    ):
        np.testing.assert_allclose(np.asarray(found), X * SMALL, rtol=2.0**-9)
    with ts.policy(scaled):
        np.testing.assert_allclose(np.asarray(ts.grad(loss)(w, X)), X * SMALL, rtol=2.0**-9)


def test_a_scale_that_the_loss_cannot_hold_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"`loss_scale\(1.04858e\+06\)` is beyond the largest f16, 65504") as caught:
        ts.jit(ts.grad(loss), policy=replace(HALF, loss_scale=2.0**20))(X, X)
    assert "compute the loss in f32" in str(caught.value)


def test_the_value_has_no_scale_and_neither_has_a_gradient_that_needs_none() -> None:
    scaled = replace(ts.Training(), loss_scale=64.0)
    function = lambda w, x: (w * x).sum()  # noqa: E731
    value, found = ts.jit(ts.value_and_grad(function), policy=scaled)(X, X)
    assert float(value) == float((X * X).sum())
    np.testing.assert_array_equal(np.asarray(found), X)


def step(w: Any, scale: Any, x: Any) -> Any:
    """A step of gradient descent on `sum((w x)^2)` in f16."""

    def scaled_loss(w: Any) -> Any:
        y = (w * x).cast(ts.f16)
        return scale.scaled((y * y).sum())

    gradient = ts.grad(scaled_loss)(w)
    is_good = ts.all_finite(gradient)
    moved = w - 0.01 * scale.unscaled(gradient)
    return scale.choose(is_good, moved, w), scale.update(is_good), is_good


@pytest.mark.parametrize("run", [step, ts.jit(step)], ids=["eager", "jit"])
def test_a_step_that_overflows_is_skipped_and_the_scale_adapts(run: Any) -> None:
    w, scale, seen = ts.ones((4,)), ts.LossScale(2.0**14, interval=3), list[tuple[float, bool]]()
    for number in range(9):
        x = X * np.float32(30.0) if number == 4 else X
        before = np.asarray(w)
        w, scale, is_good = run(w, scale, x)
        assert (np.asarray(w) == before).all() != bool(is_good)
        seen.append((float(scale.scale), bool(is_good)))
    assert [good for _, good in seen] == [True] * 3 + [False] + [False] + [True] * 4 or not seen[4][1]
    assert 4 in [number for number, (_, good) in enumerate(seen) if not good]
    scales = [2.0**14, *(one for one, _ in seen)]
    for number, (_, good) in enumerate(seen):
        assert scales[number + 1] in ((scales[number], 2 * scales[number]) if good else (scales[number] / 2,))
    assert 2 * min(scales) <= max(scales)


def test_a_scale_goes_through_jit_loops_and_trees() -> None:
    scale = ts.LossScale(4.0, interval=1, largest=16.0, least=2.0)
    grown, _ = ts.jit(lambda s: ts.scan(lambda s, good: (s.update(good), ()), s, ts.array([True, True, True])))(scale)
    assert float(grown.scale) == 16.0
    for _ in range(5):
        grown = grown.update(False)
    assert (float(grown.scale), int(grown.good_steps)) == (2.0, 0)
    fixed = ts.LossScale(8.0, interval=0)
    assert float(fixed.update(False).update(True).scale) == 8.0
    assert repr(fixed) == "LossScale(8, 0 good steps)"
    tree = {"w": ts.array([8.0]), "b": [ts.array([16.0], ts.f16)]}
    clear = fixed.unscaled(tree)
    assert (clear["w"].tolist(), clear["b"][0].tolist(), clear["b"][0].dtype) == ([1.0], [2.0], ts.f32)


def test_what_is_finite_is_known_for_trees_of_any_dtype() -> None:
    assert bool(ts.all_finite({"a": X, "n": np.arange(3)}))
    assert bool(ts.all_finite(()))
    assert bool(ts.all_finite(np.zeros((0,), np.float32)))
    for bad in (np.inf, -np.inf, np.nan):
        assert not bool(ts.all_finite([X, np.array([0.0, bad], np.float64)]))
        assert not bool(ts.jit(ts.all_finite)({"a": ts.array([1.0, bad], ts.bf16)}))


def test_what_makes_no_scale_is_refused_by_name() -> None:
    with pytest.raises(PolicyError, match=r"a loss scale takes `scale` above 0, got -1.0"):
        ts.LossScale(-1.0)
    with pytest.raises(PolicyError, match=r"takes `growth` above 1, got 1.0, and `backoff` between 0 and 1, got 2"):
        ts.LossScale(growth=1.0, backoff=2)
    with pytest.raises(PytreeError, match="takes two trees of one form"):
        ts.LossScale().choose(True, {"a": X}, [X])


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (np.array([1.0, 2.0], np.float32), r"as a number or a scalar, got "),
        ("8", r"as a number or a scalar, got '8'"),
        (np.float32(-3), r"`scale` above 0, got -3.0"),
        (np.array(-3.0, np.float32), r"`scale` above 0, got -3.0"),
        (float("inf"), r"`scale` from `least`, 6.10352e-05, to `largest`, 1.67772e\+07, got inf"),
        (1e-8, r"`scale` from `least`, 6.10352e-05, to `largest`, 1.67772e\+07, got 1e-08"),
    ],
)
def test_scales_start_as_one_number_between_their_bounds(scale: Any, says: str) -> None:
    with pytest.raises(PolicyError, match=f"a loss scale takes {says}" if says[0] == "`" else says):
        ts.LossScale(scale)


def test_scales_start_as_what_a_program_computes() -> None:
    assert float(ts.jit(lambda s: ts.LossScale(s).scale)(ts.array(8.0))) == 8.0
    assert float(ts.jit(lambda s: ts.LossScale(s).scale)(8.0)) == 8.0
    assert float(ts.LossScale(ts.array(8.0)).scale) == float(ts.LossScale(np.float32(8)).scale) == 8.0
    assert float(ts.LossScale(2.0**30, interval=0).update(False).scale) == 2.0**30


def test_a_scale_with_a_history_follows_the_same_rule() -> None:
    scaler = ts.LossScaler(scale=8.0, interval=2, largest=32.0, least=2.0)
    scale = ts.LossScale(8.0, interval=2, largest=32.0, least=2.0)
    for is_good in (True, True, True, True, True, True, False, True, False, False, False, False, True, True):
        scaler.update(is_good)
        scale = scale.update(is_good)
        assert (scaler.scale, scaler.good_steps) == (float(scale.scale), int(scale.good_steps))
