"""Tuning on a GPU: plans in a child, bits compared, L2 evicted, and rates and power of the machine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.tuning_cases import Case, model_of, plans_of, space_for
from tessera.runtime.devices.cuda.driver import driver, is_available
from tessera.runtime.devices.cuda.nvml import Meter, monitor
from tessera.tuner.device_probe import DeviceProbe
from tessera.tuner.machine_rates import machine_rates
from tessera.tuner.protocol import DeviceEviction, relative_time
from tessera.tuner.runner import Isolated, Job
from tessera.tuner.search import Space, search

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
CASE = Case("gemm", (1536, 2304, 1024), "cuda")


def test_a_matmul_is_tuned_in_a_child_within_its_budget() -> None:
    space = space_for(CASE)
    plans = plans_of(space, 10_000)
    with Isolated(Job("benchmarks.tuning_cases:build", (CASE,))) as measurer:
        outcome = search(Space.of(plans), measurer, predict=model_of(space), budget=20.0)
        bits = measurer.safe_bits
    assert outcome.seconds < 20.0 + 30.0
    assert 0 < outcome.measured <= max(4, len(plans) // 4)
    ran = [trial for trial in outcome.trials if trial.samples]
    assert {trial.bits for trial in ran} == {bits}, "every plan that ran gives the bits of the safe plan"
    assert all(len(trial.samples) == len(trial.baseline) for trial in ran)


def test_all_blocks_that_the_model_ranks_are_timed() -> None:
    """How well it ranks them is a measurement (`python -m benchmarks.gpu_tuning`), which tests side by side disturb."""
    space = space_for(CASE)
    plans, predict = plans_of(space, 24), model_of(space)
    with Isolated(Job("benchmarks.tuning_cases:build", (CASE,))) as measurer:
        outcome = search(Space.of(plans), measurer, mode="exhaustive", predict=predict, confirm=0)
    ran = [trial for trial in outcome.trials if trial.samples and trial.predicted is not None]
    assert len(ran) >= 20
    assert all(trial.predicted and math.isfinite(trial.predicted) and relative_time(trial) > 0 for trial in ran)


def test_the_l2_is_evicted_by_twice_its_size() -> None:
    evict = DeviceEviction()
    evict()
    assert evict.size == 2 * driver().attribute("l2") > 0
    evict.close()


def test_rates_of_this_gpu_are_sane(tmp_path: Path) -> None:
    sizes = (1 << 22, 1 << 26, 1 << 30)
    found = machine_rates(driver().architecture, lambda: DeviceProbe(sizes[-1]), footprints=sizes, folder=tmp_path)
    assert found is not None
    assert found.units == driver().attribute("blocks")
    assert 500 < found.curve[-1][1] <= found.curve[0][1] < 50_000
    assert dict(found.flops)["bf16"] > dict(found.flops)["f32"] > 5_000
    assert machine_rates(driver().architecture, folder=tmp_path) is not None, "it was kept"


def test_power_and_clocks_are_read_where_the_driver_has_them() -> None:
    if monitor() is None:
        pytest.skip("there is no NVML here")
    with Meter() as meter:
        DeviceEviction()()
    found = meter.readings
    assert found.power is None or 10 < found.power < 2000
    assert found.memory_clock is None or 500 < found.memory_clock < 10_000
    assert found.bandwidth is None or math.isfinite(found.bandwidth)
