"""Master parameters, loss scaling, accumulation and averages: what they add up, skip and keep."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError

Tree = dict[str, Any]
EPSILON = float(np.finfo(np.float32).eps)


def make_step(optimizer: ts.optim.Optimizer) -> Any:
    @ts.jit
    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return ts.optim.apply_updates(params, updates), state

    return step


def test_updates_below_the_epsilon_of_bf16_accumulate_in_the_master() -> None:
    rate = 2.0**-12  # a quarter of what changes 1.0 in bf16
    params, gradients = {"w": ts.ones((8,), ts.bf16)}, {"w": ts.ones((8,), ts.bf16)}
    for optimizer, wanted in (
        (ts.optim.sgd(rate), 1.0),
        (ts.optim.with_master(ts.optim.sgd(rate)), 1.0 - 64 * rate),
        (ts.optim.with_loss_scale(ts.optim.with_master(ts.optim.sgd(rate)), ts.LossScale(1.0, interval=0)), None),
    ):
        step, now, state = make_step(optimizer), params, optimizer.init(params)
        for _ in range(64):
            now, state = step(now, state, gradients)
        assert now["w"].dtype is ts.bf16
        assert now["w"].tolist() == [1.0 - 64 * rate if wanted is None else wanted] * 8
    master = state.inner.params["w"]
    assert master.dtype is ts.f32
    assert master.tolist() == [1.0 - 64 * rate] * 8


def test_parameters_are_always_the_rounded_master() -> None:
    rng = np.random.default_rng(0)
    optimizer = ts.optim.with_master(ts.optim.adamw(0.5))
    # A gradient that takes a parameter from 1 to almost 0 would lose it as a difference in f32.
    params = {"w": ts.array(rng.normal(size=64).astype(np.float32)).cast(ts.bf16)}
    state, step = optimizer.init(params), make_step(optimizer)
    for _ in range(4):
        params, state = step(params, state, {"w": ts.array(rng.normal(size=64).astype(np.float32))})
        assert params["w"].tolist() == state.params["w"].cast(ts.bf16).tolist()


def test_training_with_a_scale_skips_overflows_and_ends_where_f32_does() -> None:
    """N4: products of f16 overflow at the first scale; it is halved until they fit, and doubled after good steps."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(32, 8)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    y = x @ w

    def loss(params: Tree) -> Any:
        error = ts.array(x) @ params["w"] - ts.array(y)
        return (error * error).sum() * (1 / 32)

    def run(optimizer: ts.optim.Optimizer, policy: Any) -> tuple[Any, Any, list[float], list[float]]:
        @ts.jit(policy=policy)
        def step(params: Tree, state: Any) -> Any:
            scaled = state.scaled if policy else lambda value: value
            gradients = ts.grad(lambda params: scaled(loss(params)))(params)
            updates, state = optimizer.update(gradients, state, params)
            return ts.optim.apply_updates(params, updates), state

        params: Tree = {"w": ts.zeros((8, 4))}
        state, scales, moved = optimizer.init(params), list[float](), list[float]()
        for _ in range(80):
            before = np.asarray(params["w"]).copy()
            params, state = step(params, state)
            moved.append(float(np.abs(np.asarray(params["w"]) - before).max()))
            scales.append(float(state.scale.scale) if policy else 1.0)
        return params, state, scales, moved

    exact, _, _, _ = run(ts.optim.sgd(0.2), ts.Policy())
    start = 2.0**24
    optimizer = ts.optim.with_loss_scale(ts.optim.sgd(0.2), ts.LossScale(start, interval=20))
    params, state, scales, moved = run(optimizer, ts.Training(ts.f16))
    assert scales[0] == start / 2
    assert moved[0] == 0.0
    halved = [scale for before, scale in zip([start, *scales[:-1]], scales, strict=True) if scale == before / 2]
    assert len(halved) == int(state.skipped) == sum(step == 0.0 for step in moved)
    least = min(scales)
    assert least in scales[:40]
    assert scales[scales.index(least) :].count(2 * least) >= 1  # regrown after twenty good steps
    # Operands are rounded to f16: relative errors of half its epsilon in each factor of a sum of eight.
    bound = 8 * 2.0**-10
    np.testing.assert_allclose(np.asarray(params["w"]), np.asarray(exact["w"]), rtol=bound, atol=bound)


def test_accumulation_takes_the_mean_of_some_gradients() -> None:
    rng = np.random.default_rng(2)
    gradients = [{"w": rng.normal(size=4).astype(np.float32)} for _ in range(6)]
    for inner in (ts.optim.adamw(0.1), ts.optim.with_master(ts.optim.adamw(0.1))):
        optimizer = ts.optim.accumulate(inner, steps=3)
        params = wanted = {"w": ts.ones((4,))}
        state, other = optimizer.init(params), inner.init(params)
        step, whole = make_step(optimizer), make_step(inner)
        for at, gradient in enumerate(gradients):
            params, state = step(params, state, gradient)
            if at % 3 < 2:
                assert params["w"].tolist() == wanted["w"].tolist()
                continue
            total = sum((one["w"] for one in gradients[at - 2 : at + 1]), np.zeros(4, np.float32))
            wanted, other = whole(wanted, other, {"w": total * np.float32(1 / 3)})
            assert params["w"].tolist() == wanted["w"].tolist()
        assert int(state.micro_steps) == 0
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        ts.optim.accumulate(ts.optim.sgd(0.1), 0)


def test_averages_of_parameters() -> None:
    values = np.random.default_rng(3).normal(size=(30, 5)).astype(np.float32)
    for warmup in (False, True):
        average = ts.optim.ema(0.9, warmup=warmup)
        step = ts.jit(lambda state, params, average=average: average.update(state, params))
        state, wanted = average.init(ts.array(values[0])), values[0].astype(np.float64)
        for count, value in enumerate(values[1:], start=1):
            state = step(state, ts.array(value))
            decay = min(0.9, (1 + count) / (10 + count)) if warmup else 0.9
            wanted = decay * wanted + (1 - decay) * value
        bound = 30 * EPSILON
        np.testing.assert_allclose(np.asarray(state.average), wanted, rtol=bound, atol=bound)
        assert average.params(state, ts.ones((5,), ts.bf16)).dtype is ts.bf16


def test_loss_scale_takes_a_loss_scale() -> None:
    with pytest.raises(ArgumentError, match="`with_loss_scale` takes a `LossScale`"):
        ts.optim.with_loss_scale(ts.optim.sgd(0.1), 8.0)  # pyright: ignore[reportArgumentType]
