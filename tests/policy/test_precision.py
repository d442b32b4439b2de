"""Loss scales that skip and adapt, and policies that switch by what is seen, logged and replayed."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
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
