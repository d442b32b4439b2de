"""Loss scales that skip and adapt, and policies that switch by what is seen, logged and replayed."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.api.precision import AdaptivePrecision, LossScaler, Switch
from tessera.diagnostics.codes import PolicyError

RNG = np.random.default_rng(9)
X = RNG.standard_normal((64, 8)).astype(np.float32)
TRUE = RNG.standard_normal((8, 1)).astype(np.float32)
Y = X @ TRUE


@ts.jit
def gradient(w: Any, x: Any, y: Any, scale: Any) -> Any:
    """The gradient of the mean squared error times a scale, as f16 keeps it."""
    error = ((x @ w - y) * scale).cast(ts.f16)
    return ops.matmul(x.T.cast(ts.f16), error) * (2.0 / 64)


def trained(scaler: ts.LossScaler, *, jump_at: int = -1) -> Any:
    w = ts.array(np.zeros((8, 1), np.float32))
    for step in range(120):
        y = Y * np.float32(1e4) if step == jump_at else Y
        grads = gradient(w, X, y, np.float32(scaler.scale))
        clear: list[Any] = []
        scaler.step(grads, clear.append)
        w = w - clear[0] * 0.05 if clear else w
    return np.asarray(w)


def test_n4_a_step_that_overflows_is_skipped_and_the_scale_halved_then_grows_again() -> None:
    scaler = ts.LossScaler(scale=1024.0, interval=10)
    w = trained(scaler, jump_at=25)
    skipped = [one.step for one in scaler.history if not one.is_finite]
    assert 25 in skipped
    before, after = scaler.history[25].scale, scaler.history[26].scale
    assert after == before / 2
    assert scaler.history[26 + 10].scale == 2 * after
    exact = np.zeros((8, 1), np.float32)
    for _ in range(120):
        exact = exact - 0.05 * (2.0 / 64) * X.T @ (X @ exact - Y)
    # The run in f32, within the relative step of f16 over the weights.
    np.testing.assert_allclose(w, exact, atol=2.0**-10 * np.abs(exact).max() * 4)


def test_a_scaler_starts_from_a_policy_and_stays_in_its_limits() -> None:
    scaler = ts.LossScaler((ts.bf16 @ ts.loss_scale(8)).policy, interval=1, largest=16.0, least=4.0)
    assert scaler.scale == 8.0
    assert [scaler.update(True), scaler.scale, scaler.update(True), scaler.scale] == [True, 16.0, True, 16.0]
    for _ in range(5):
        scaler.update(False)
    assert scaler.scale == 4.0
    with pytest.raises(PolicyError, match=r"a loss scaler takes `growth` above 1, got 1.0"):
        ts.LossScaler(growth=1.0)


def run(adaptive: ts.AdaptivePrecision, largest: list[float]) -> list[str]:
    """The dtype that each step computes in."""
    dtypes: list[str] = []
    for top in largest:
        adaptive.observe(np.array([0.5, top], np.float32))
        with ts.policy(adaptive.policy):
            dtypes.append(str((ts.array([1.0]) * 3.0).dtype))
    return dtypes


def test_n5_the_policy_switches_at_its_threshold_and_can_be_replayed() -> None:
    seen = [1.0, 99.0, 100.0, 101.0, 5.0, 5.0, 5.0, 5.0]
    adaptive = ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32), above=100.0, patience=3)
    wanted = ["bf16", "bf16", "bf16", "f32", "f32", "f32", "bf16", "bf16"]
    assert run(adaptive, seen) == wanted
    assert [str(switch) for switch in adaptive.log] == [
        "step 3: storage(bf16) @ accum(f32) -> storage(f32) (largest 101 above 100)",
        "step 6: storage(f32) -> storage(bf16) @ accum(f32) (3 quiet steps)",
    ]
    again = adaptive.replay()
    assert run(again, [0.0] * len(seen)) == wanted
    assert again.log == adaptive.log


def test_n5_small_gradients_and_gradient_scales_switch_too() -> None:
    adaptive = ts.AdaptivePrecision(ts.Training(ts.f16), ts.Policy(storage=ts.f32), below=1e-6)
    assert adaptive.observe(np.array([0.0, 1e-3], np.float32)) == ts.Training(ts.f16)
    assert adaptive.observe(np.array([0.0, 1e-7], np.float32)) == ts.Policy(storage=ts.f32)
    assert (
        ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32), above=2.0**20).observe(2.0**21).storage is ts.f32
    )
    found = ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32)).observe(np.array([np.inf], np.float32))
    assert found.storage is ts.f32


def test_what_is_no_policy_or_no_threshold_is_refused_by_name() -> None:
    wide, wrong = ts.Policy(storage=ts.f32), "x"
    with pytest.raises(PolicyError, match="`narrow` is a Policy, got 'x'"):
        ts.AdaptivePrecision(wrong, wide)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        PolicyError, match=r"`above` above 0, got -1.0, and `below` .*, and `patience` of at least 1, got 0"
    ):
        ts.AdaptivePrecision(ts.Training(), wide, above=-1.0, patience=0)


def test_decisions_are_not_made_inside_a_traced_function() -> None:
    adaptive = ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32), above=10.0)
    scaler = ts.LossScaler()

    def step(x: Any) -> Any:
        return scaler.step(x, print)

    for call in (adaptive.observe, step):
        with pytest.raises(PolicyError, match="decides by values, which tensors of a traced function do not have") as e:
            ts.jit(lambda x: (call(x), x)[1])(X)  # noqa: B023
        assert "outside of `jit`" in str(e.value)


def test_a_log_is_kept_in_a_file_and_replayed_from_it() -> None:
    adaptive = ts.AdaptivePrecision(ts.Training(), ts.Policy(storage=ts.f32), above=10.0, patience=1)
    seen = [1.0, 11.0, float("nan"), 1.0]
    policies = [adaptive.observe(np.array([one], np.float32)) for one in seen]
    kept = json.dumps([switch.fields for switch in adaptive.log])
    assert [switch.reason for switch in adaptive.log] == ["largest 11 above 10", "1 quiet steps"]
    again = ts.AdaptivePrecision(
        ts.Training(), ts.Policy(storage=ts.f32), replay=[Switch.of(one) for one in json.loads(kept)]
    )
    assert [again.observe(0.0) for _ in seen] == policies
    assert again.log == adaptive.log
    assert repr(again) == "AdaptivePrecision(storage(bf16) @ accum(f32), 4 steps, 2 switches)"


def test_gradients_of_a_tree_come_without_their_scale_as_tensors() -> None:
    scaler = ts.LossScaler(scale=4.0)
    found: list[Any] = []
    grads = {"w": np.full(3, 8.0, np.float32), "b": [ts.array([2.0], ts.f16)]}
    assert scaler.step(grads, found.append)
    assert [type(leaf) for leaf in (found[0]["w"], found[0]["b"][0])] == [ts.Tensor] * 2
    assert np.asarray(found[0]["w"]).tolist() == [2.0, 2.0, 2.0]
    assert found[0]["b"][0].dtype is ts.f32
    assert not scaler.step({"w": np.array([np.inf], np.float32)}, found.append)
    assert repr(scaler) == "LossScaler(scale=2, 2 steps, 1 skipped)"


def test_what_is_no_number_and_no_switch_is_refused() -> None:
    wrong: Any = "a"
    with pytest.raises(PolicyError, match="a loss scaler takes `scale` as a number, got 'a'"):
        LossScaler(scale=wrong)
    with pytest.raises(PolicyError, match="adaptive precision takes `above` as a number, got 'a'"):
        AdaptivePrecision(ts.Training(), ts.Training(), above=wrong)
    with pytest.raises(PolicyError, match="a switch has no `reason`"):
        Switch.of({"step": 1})
