"""Steps: one program that consumes its state, with fresh keys, scaled losses and averages; evaluations."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, DonatedError
from tessera.frontend.pytree import flatten

torch: Any = pytest.importorskip("torch", reason="a peer")


def problem() -> tuple[dict[str, np.ndarray[Any, Any]], list[tuple[Any, Any]]]:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((5, 3)), "b": rng.standard_normal(3)}
    batches = [(rng.standard_normal((8, 5)), rng.standard_normal((8, 3))) for _ in range(12)]
    return params, batches


def loss(params: Any, batch: Any) -> Any:
    x, y = batch
    return ((ts.ops.tanh(x @ params["w"] + params["b"]) - y) ** 2.0).mean()


def test_a_step_is_one_program_in_place_that_follows_pytorch() -> None:
    """In f64, where both round to 2^-53: twelve steps of AdamW, each a few thousand operations, stay within 1e-12."""
    params, batches = problem()
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1e9), ts.optim.adamw(0.05, weight_decay=0.1))
    step = ts.train.make_step(loss, optimizer, grad_norm=True)
    state = ts.train.State.init({name: ts.asarray(value) for name, value in params.items()}, optimizer)
    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    other = torch.optim.AdamW(theirs.values(), 0.05, weight_decay=0.1)
    addresses = [leaf.address for leaf in flatten(state)[0]]
    for x, y in batches:
        state, metrics = step(state, (x, y))
        other.zero_grad()
        value = ((torch.tanh(torch.tensor(x) @ theirs["w"] + theirs["b"]) - torch.tensor(y)) ** 2).mean()
        value.backward()
        norm = torch.nn.utils.get_total_norm([one.grad for one in theirs.values() if one.grad is not None])
        other.step()
        assert abs(float(metrics["loss"]) - value.item()) < 1e-12
        assert abs(float(metrics["grad_norm"]) - norm.item()) < 1e-12
    for name, value in theirs.items():
        assert np.abs(np.asarray(state.params[name]) - value.detach().numpy()).max() < 1e-12
    assert [leaf.address for leaf in flatten(state)[0]] == addresses
    assert int(state.step) == 12
    info = step.cache_info()
    assert (info.misses, info.size) == (1, 1)


def test_the_state_is_consumed_and_what_it_was_made_from_is_not() -> None:
    params, batches = problem()
    held = {name: ts.array(value, ts.f32) for name, value in params.items()}
    optimizer = ts.optim.with_loss_scale(ts.optim.sgd(0.1), ts.LossScale(8.0))
    step = ts.train.make_step(loss, optimizer)
    first, second = (ts.train.State.init(held, optimizer) for _ in range(2))
    batch = tuple(part.astype(np.float32) for part in batches[0])
    state, _ = step(first, batch)
    with pytest.raises(DonatedError):
        first.params["w"].tolist()
    other, _ = step(second, batch)
    assert state.params["w"].tobytes() == other.params["w"].tobytes()
    assert held["w"].tobytes() == params["w"].astype(np.float32).tobytes()
    kept, _ = ts.train.make_step(loss, optimizer, donate=False)(state, batch)
    assert int(kept.step) == int(state.step) + 1


def test_a_step_on_a_dataclass_with_a_counter_and_a_key_is_one_program() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        w: Any
        step: Any
        key: Any

    def update(state: Own, x: Any) -> tuple[Own, Any]:
        noise = ts.random.normal(ts.random.fold(state.key, state.step), (4,))
        return Own(state.w + 0.0 * x + noise, state.step + 1, state.key), noise

    step = ts.jit(update, donate={"state"})
    state = Own(ts.zeros((4,)), ts.array(0, ts.i64), ts.random.key(1))
    first, total = state, np.zeros(4, np.float32)
    for number in range(5):
        state, noise = step(state, ts.ones((4,)))
        expected = ts.random.normal(ts.random.fold(ts.random.key(1), number), (4,))
        assert noise.tobytes() == expected.tobytes()
        total += np.asarray(noise)
    assert state.w.tobytes() == total.tobytes()
    assert (int(state.step), state.key.tobytes()) == (5, ts.random.key(1).tobytes())
    assert step.cache_info().misses == 1
    with pytest.raises(DonatedError):
        first.key.tolist()


def test_each_step_has_a_key_of_its_own_and_a_run_is_a_function_of_the_key() -> None:
    def noisy(params: Any, batch: Any, *, key: Any) -> Any:
        noise = ts.random.normal(key, (3,))
        return (params * noise * batch).sum(), {"noise": noise.sum()}

    optimizer = ts.optim.sgd(0.1)
    step = ts.train.make_step(noisy, optimizer, has_aux=True)

    def run(seed: int) -> list[float]:
        state, found = ts.train.State.init(ts.ones((3,)), optimizer, key=seed), list[float]()
        for _ in range(4):
            state, metrics = step(state, ts.ones((3,)))
            found.append(float(metrics["noise"]))
        return found

    assert run(1) == run(1)
    assert len(set(run(1) + run(2))) == 8


def test_an_average_goes_along_and_a_scaled_loss_skips_what_is_not_finite() -> None:
    average, optimizer = ts.optim.ema(0.5), ts.optim.with_loss_scale(ts.optim.sgd(1.0), ts.LossScale(4.0, interval=2))
    step = ts.train.make_step(lambda w, x: (w * x).sum(), optimizer, average=average, grad_norm=True)
    state = ts.train.State.init(ts.zeros((2,)), optimizer, average=average)
    state, metrics = step(state, ts.array([1.0, -1.0]))
    assert state.params.tolist() == [-1.0, 1.0]
    assert abs(float(metrics["grad_norm"]) - 2**0.5) < 2**-22
    assert average.params(state.average, state.params).tolist() == [-0.5, 0.5]
    state, metrics = step(state, ts.array([float("inf"), 0.0]))
    assert state.params.tolist() == [-1.0, 1.0]
    assert float(state.opt_state.scale.scale) == 2.0
    assert float(metrics["loss"]) == float("-inf")
    with pytest.raises(ArgumentError, match="the state has an `average`, and the step has none"):
        ts.train.make_step(lambda w, x: (w * x).sum(), optimizer)(state, ts.ones((2,)))


def test_running_means_are_carried_beside_the_parameters() -> None:
    model = ts.nn.BatchNorm.init(3)
    optimizer = ts.optim.sgd(0.1)
    with pytest.raises(ArgumentError, match="`mean` is a buffer"):
        ts.train.State.init(model, optimizer)
    params, buffers = ts.nn.split_buffers(model)

    def objective(params: Any, batch: Any, *, extra: Any) -> Any:
        y, trained = ts.nn.combine(params, extra).train(batch)
        return (y**2.0).mean(), {"largest": y.max()}, ts.nn.split_buffers(trained)[1]

    step = ts.train.make_step(objective, optimizer, has_aux=True)
    state = ts.train.State.init(params, optimizer, extra=buffers)
    given = [np.asarray(one).copy() for one in (buffers.mean, buffers.var)]
    expected, rng = model, np.random.default_rng(0)
    for _ in range(3):
        batch = ts.array(rng.standard_normal((16, 3)), ts.f32)
        expected = expected.train(batch)[1]
        state, _ = step(state, batch)
    # The same ops on the same numbers; only how they are fused may differ, in the last bits of f32.
    assert np.allclose(np.asarray(state.extra.mean), np.asarray(expected.mean), rtol=0, atol=8 * 2**-24)
    assert np.allclose(np.asarray(state.extra.var), np.asarray(expected.var), rtol=8 * 2**-24)
    # Those that were given are still there.
    assert all(np.array_equal(*pair) for pair in zip((buffers.mean, buffers.var), given, strict=True))
    assert state.params.mean is None


def test_wrong_calls_say_what_to_write() -> None:
    with pytest.raises(ArgumentError, match=r"takes an optimizer, got 0\.1"):
        ts.train.make_step(loss, 0.1)  # pyright: ignore[reportArgumentType]
    step = ts.train.make_step(loss, ts.optim.sgd(0.1), has_aux=True)
    with pytest.raises(ArgumentError, match="takes a `State`, got dict"):
        step({}, 1)
    state = ts.train.State.init({"w": ts.ones((5, 3)), "b": ts.ones((3,))}, ts.optim.sgd(0.1))
    with pytest.raises(ArgumentError, match="gives `loss`, `metrics`, got 1 values"):
        step(state, (ts.ones((8, 5)), ts.ones((8, 3))))
    with pytest.raises(ArgumentError, match="has no field `model`"):
        state.replace(model=1)
    hiding = ts.train.make_step(lambda w, x: ((w * x).sum(), {"loss": 0.0}), ts.optim.sgd(0.1), has_aux=True)
    with pytest.raises(ArgumentError, match="the metrics of the loss have `loss`"):
        hiding(ts.train.State.init(ts.ones((2,)), ts.optim.sgd(0.1)), ts.ones((2,)))
    layer = ts.nn.Linear(ts.ones((3, 3)))
    with pytest.raises(ArgumentError, match=r"`layers\.0\.weight` and `layers\.2\.weight` are one tensor"):
        ts.train.State.init(ts.nn.Sequential.of(layer, ts.ops.abs, layer))
    array = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match="`a` and `b` are one tensor"):
        ts.train.State.init({"a": array, "b": array})


def test_an_evaluation_is_the_mean_over_all_items() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((23, 3)), rng.standard_normal(3)
    batches = [ts.asarray(x[start : start + 5]) for start in range(0, 23, 5)]

    def metric(w: Any, batch: Any) -> dict[str, Any]:
        values = batch @ w
        return {"mean": values.mean(), "positive": ts.ops.cast(values > 0.0, ts.f64).mean()}

    found = ts.train.evaluate(metric, ts.asarray(w), batches)
    assert abs(found["mean"] - (x @ w).mean()) < 1e-14
    assert abs(found["positive"] - (x @ w > 0).mean()) < 1e-14
    part = ts.train.evaluate(metric, ts.asarray(w), batches, steps=2)
    assert abs(part["mean"] - (x[:10] @ w).mean()) < 1e-14
    with pytest.raises(ArgumentError, match="got no batches"):
        ts.train.evaluate(metric, ts.asarray(w), [])
    with pytest.raises(ArgumentError, match="`loss` is "):
        ts.train.evaluate(lambda w, x: x @ w, ts.asarray(w), batches)
