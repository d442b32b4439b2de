"""Programs and kernels that are tuned on a GPU: only plans with the bits of the safe one, which always stays."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, autotune, f32, kernel, tile
from tessera.api import stored_plans, tuning
from tessera.api.workload import RunnableProgram
from tessera.runtime.devices.cuda.driver import is_available
from tessera.tuner.database import default_database
from tessera.tuner.records import Plan
from tests.determinism.programs import bits
from tests.tuner.programs.clocks import set_clock
from tests.tuner.programs.test_autotune import signature_of

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def model(x: Any, a: Any, b: Any) -> Any:
    """Two matmuls, a norm and a softmax."""
    return ts.ops.softmax(ts.ops.rmsnorm(ts.ops.gelu(x @ a)) @ b)


def operands() -> list[Any]:
    rng = np.random.default_rng(3)
    shapes = ((300, 256), (256, 640), (640, 384))
    return [ts.cuda.array(rng.uniform(-1, 1, shape).astype(np.float32)).cast(ts.bf16) for shape in shapes]


def values(made: Any) -> bytes:
    return np.asarray(made.cpu()).tobytes()


def test_every_plan_that_ran_has_the_bits_of_the_safe_one() -> None:
    given = operands()
    jitted = ts.jit(model, backend="cuda")
    expected = values(jitted(*given))
    result = jitted.autotune(*given, budget=25.0)
    ran = [trial for trial in result.trials if trial.samples]
    assert ran
    assert {trial.bits for trial in ran} == {result.trials[0].bits}
    assert values(jitted(*given)) == expected


def test_a_plan_with_other_bits_is_discarded_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    given, own = operands(), RunnableProgram.bits
    jitted = ts.jit(model, backend="cuda")
    wrong = next(knob.others[0] for knob in autotune.space(jitted, *given).knobs if knob.name == "contraction.block")
    set_clock(monkeypatch, lambda choices: 100_000.0 * (0.5 if wrong in [value for _, value in choices] else 1))

    def changed(self: RunnableProgram) -> str:
        return "other" if wrong in [value for _, value in self.options.tuned] else own(self)

    monkeypatch.setattr(RunnableProgram, "bits", changed)
    result = jitted.autotune(*given, mode="exhaustive", budget=60.0)
    assert wrong not in [value for _, value in result.plan.choices]
    refused = [trial for trial in result.trials if wrong in [value for _, value in trial.plan.choices]]
    refused += [one for group in result.groups for one in group.trials if wrong in [v for _, v in one.plan.choices]]
    assert refused
    assert all("bits" in trial.reason for trial in refused)


def test_a_poisoned_plan_falls_back_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    given = operands()
    expected = values(ts.jit(model, backend="cuda")(*given))
    signature = signature_of(model, *given, backend="cuda")
    default_database().store(signature, Plan.of({"contraction.block": (7, 7, 7)}))
    with caplog.at_level(logging.WARNING, "tessera.tuner"):
        for _ in range(2):
            assert values(ts.jit(model, backend="cuda")(*given)) == expected
    assert len([record for record in caplog.records if record.name.startswith("tessera.tuner")]) == 1


def double(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


def test_tuning_a_kernel_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    own, begun = tuning.KernelRun.run, list[float]()

    def slow(self: Any) -> float:
        begun.append(time.monotonic())
        time.sleep(0.01)
        return own(self)

    monkeypatch.setattr(tuning.KernelRun, "run", slow)
    x = ts.cuda.array(np.ones((4096, 256), np.float32))
    tuned = kernel.autotune(space={"BM": [8, 16, 32, 64], "BN": [16, 32]}, budget_ms=200.0)(double)
    with ts.device(ts.gpu[0]):
        made = tuned(x)
    np.testing.assert_array_equal(np.asarray(made.cpu()), 2.0)
    assert tuned.tuning is not None
    assert begun, "some schedule was timed"
    assert any("the budget of 200.0 ms is used up" in why for _, why in tuned.tuning.dropped)
    assert bits(made.cpu()) == bits(ts.array(np.full((4096, 256), 2.0, np.float32)))
