"""Tuning a function in children: a plan that crashes, hangs or takes all memory costs itself, within the budget."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import autotune
from tessera.api import stored_plans, workload
from tessera.tuner.records import Plan
from tests.determinism.programs import bits
from tests.kernel.test_block_sizes import row_sums
from tests.tuner.programs import broken


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def columns(x: Any) -> Any:
    """A reduction of columns: each of its tiles is another code on a CPU."""
    return ts.ops.sum(x * 2.0, axis=0)


def given() -> Any:
    return ts.array(np.random.default_rng(2).uniform(-1, 1, (512, 96)).astype(np.float32))


def test_a_broken_plan_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "BUILDER", "tests.tuner.programs.broken:build")
    jitted, x = ts.jit(columns), given()
    expected = bits(jitted(x))
    result = jitted.autotune(x, mode="exhaustive", budget=60.0)
    assert result.in_process == ""
    (group,) = result.groups
    reasons = {trial.plan.choices[0][1]: trial.reason for trial in group.trials}
    assert reasons[broken.CRASHES] == "crashed: SIGSEGV"
    assert reasons[broken.HANGS] == "it did not end in time"
    assert reasons[broken.EATS].startswith("MemoryError")
    assert reasons[broken.FAILS].startswith("not compiled: crashed: SIGSEGV")
    assert not {broken.CRASHES, broken.HANGS, broken.EATS, broken.FAILS} & {value for _, value in result.plan.choices}
    assert bits(jitted(x)) == expected


def test_a_plan_that_hangs_takes_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "BUILDER", "tests.tuner.programs.broken:build")
    start = time.monotonic()
    result = ts.jit(columns).autotune(given(), mode="exhaustive", budget=4.0)
    # Behind the budget: the plan that began last, and the end of the children, on a busy machine.
    assert time.monotonic() - start < 4.0 + workload.LEAST_SECONDS + 10.0
    assert result.source == "measured"


def test_children_measure_the_program_with_its_own_tensors_beside_the_safe_plan() -> None:
    jitted, x = ts.jit(columns), given()
    expected, before = bits(jitted(x)), autotune.measurements()
    result = jitted.autotune(x, mode="exhaustive", budget=60.0)
    (group,) = result.groups
    measured = [trial for trial in group.trials if trial.samples and not trial.reason]
    assert measured
    assert all(len(trial.samples) == len(trial.baseline) >= 10 for trial in measured)
    assert len({trial.bits for trial in measured}) == 1
    assert result.measurements == autotune.measurements() - before >= 20 * len(measured)
    assert bits(jitted(x)) == expected
    part = workload.Part(jitted.trace(x).tape, {})
    with workload.program_pool({workload.PROGRAM: part}, jitted.options, [x]) as pool:
        assert pool is not None
        own = workload.RunnableProgram(*_loaded(jitted, x)).bits()
        assert pool.bits_of(workload.PROGRAM) == own, "the child computes with the tensors of the call"
        assert pool.measure(Plan(), 10, workload.PROGRAM).reason == ""


def _loaded(jitted: Any, x: Any) -> tuple[Any, ...]:
    from tessera.api.compilation import device_of, load
    from tessera.compiler.backend import manifest_of

    program, _ = load(jitted.trace(x).tape, jitted.options, uses_stored=False)
    return program, [x], (), device_of(manifest_of(jitted.options.backend)), jitted.options


def test_what_is_this_process_s_alone_is_measured_here_and_said_so() -> None:
    def call(x: Any) -> Any:
        return row_sums(x) * 2 + ts.ops.sum(x)

    result = ts.jit(call).autotune(ts.array(np.ones((64, 256), np.float32)), budget=3.0)
    assert result.in_process == "it calls kernels that this process has defined"
    assert "measured in this process: it calls kernels that this process has defined" in str(result)


def test_no_child_outlives_a_tuning() -> None:
    ts.jit(columns).autotune(given(), budget=3.0)
    own = str(os.getpid())
    children = [
        path
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[1] == own
    ]
    commands = [path.with_name("cmdline").read_bytes() for path in children if path.with_name("cmdline").exists()]
    assert not any(b"tessera.tuner.runner" in command for command in commands)
