"""How plans are measured: warm-ups, rounds with the safe plan in random order, flushes, bits, hopeless plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.workload import TapeWorkload
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OutOfMemoryError, ScheduleError
from tessera.runtime.devices.cuda import driver, memory, nvml, streams
from tessera.runtime.devices.cuda.nvml import Meter
from tessera.tuner.protocol import (
    CacheEviction,
    DeviceEviction,
    InProcess,
    Protocol,
    Resumed,
    device_time,
    host_time,
    join,
    relative_time,
)
from tessera.tuner.records import Plan, Trial
from tests.runtime.devices.test_nvml import Library, open_one


class Logged:
    """A workload that notes what is done to it; times are of the plan."""

    def __init__(self, times: Callable[[str, int], float]) -> None:
        self.log: list[str] = []
        self.times = times
        self.given_bits = {"safe": "aaa", "candidate": "aaa"}

    def compile(self, plan: Plan) -> Any:
        if "refuse" in plan.overrides:
            raise ScheduleError("no such tile")
        return LoggedPlan(self, "candidate" if plan.choices else "safe")

    def prepare(self, plan: Plan) -> None:
        pass

    def flush(self) -> None:
        self.log.append("flush")

    def close(self) -> None:
        self.log.append("close workload")


class LoggedPlan:
    """A compiled plan of it."""

    def __init__(self, workload: Logged, name: str) -> None:
        self.workload, self.name, self.runs = workload, name, 0

    def run(self) -> float:
        self.workload.log.append(self.name)
        self.runs += 1
        return self.workload.times(self.name, self.runs)

    def bits(self) -> str:
        return self.workload.given_bits[self.name]

    def close(self) -> None:
        self.workload.log.append(f"close {self.name}")


PLAN = Plan.of({"tile": 64})


def steady(name: str, _: int) -> float:
    return 80.0 if name == "candidate" else 100.0


def test_plans_with_the_code_of_another_are_not_measured() -> None:
    class Coded(Logged):
        def compile(self, plan: Plan) -> Any:
            made = super().compile(plan)
            made.code = "safe" if plan.overrides.get("tile", 1) < 64 else "large"
            return made

    workload = Coded(steady)
    with InProcess(workload, is_distinct=True) as measurer:
        found = [measurer.measure(Plan.of({"tile": tile}), 3) for tile in (32, 64, 128, 64)]
    assert [trial.reason for trial in found] == ["the same code as the safe plan", "", "the same code as tile = 64", ""]
    assert [len(trial.samples) for trial in found] == [0, 3, 0, 3]


def test_three_warm_ups_then_ten_rounds_with_a_flush_before_each_run() -> None:
    workload = Logged(steady)
    with InProcess(workload) as measurer:
        trial = measurer.measure(PLAN)
    assert trial.samples == (80.0,) * 10
    assert trial.baseline == (100.0,) * 10
    assert round(relative_time(trial), 9) == 0.8
    assert workload.log[:6] == ["candidate", "safe"] * 3
    assert workload.log[6:46:2] == ["flush"] * 20
    assert workload.log[46:] == ["close candidate", "close safe", "close workload"]


def test_the_order_of_a_round_is_random_and_comes_of_the_seed() -> None:
    orders: list[list[str]] = []
    for seed in (0, 0, 1):
        workload = Logged(steady)
        InProcess(workload, Protocol(seed=seed)).measure(PLAN, 20)
        runs = [name for name in workload.log[6:] if name in ("candidate", "safe")]
        orders.append(runs)
        assert all(set(runs[k : k + 2]) == {"candidate", "safe"} for k in range(0, 40, 2)), "each round has both"
        firsts = runs[::2].count("candidate")
        assert 3 <= firsts <= 17
    assert orders[0] == orders[1] != orders[2]


def test_a_slow_spell_of_the_machine_slows_both_and_changes_no_ratio() -> None:
    def drifting(name: str, run: int) -> float:
        return steady(name, run) * (1.0 + run)

    trial = InProcess(Logged(drifting)).measure(PLAN)
    assert round(relative_time(trial), 9) == 0.8


def test_other_bits_are_a_reason_and_the_plan_never_runs() -> None:
    workload = Logged(steady)
    workload.given_bits["candidate"] = "bbb"
    trial = InProcess(workload).measure(PLAN)
    assert trial.samples == ()
    assert trial.reason == "its bits differ from the safe plan's: bbb, aaa"
    assert "candidate" not in workload.log


def test_a_hopeless_plan_is_left_after_three_rounds() -> None:
    def slow(name: str, _: int) -> float:
        return 210.0 if name == "candidate" else 100.0

    trial = InProcess(Logged(slow)).measure(PLAN)
    assert len(trial.samples) == len(trial.baseline) == 3
    assert trial.reason == "2.10 times the safe plan's time after 3 rounds"
    patient = InProcess(Logged(slow), Protocol(hopeless=2.2)).measure(PLAN)
    assert len(patient.samples) == 10
    assert patient.reason == ""


def test_a_slow_first_run_alone_is_not_hopeless() -> None:
    def cold(name: str, run: int) -> float:
        return 500.0 if name == "candidate" and run == 4 else 90.0

    assert InProcess(Logged(cold)).measure(PLAN).reason == ""


def test_errors_of_compiling_and_running_are_reasons() -> None:
    workload = Logged(steady)
    measurer = InProcess(workload)
    assert measurer.measure(Plan.of({"refuse": 1})).reason == "not compiled: error[T0401]: no such tile"

    def short(name: str, run: int) -> float:
        if name == "candidate":
            raise OutOfMemoryError("no memory for 9 bytes")
        return 1.0

    workload.times = short
    assert measurer.measure(PLAN).reason == "failed: error[T0707]: no memory for 9 bytes"
    assert workload.log[-1] == "close candidate"


def test_rounds_of_two_measurements_are_joined() -> None:
    one, other = Trial(PLAN, (1.0,), (2.0,), predicted=5.0), Trial(PLAN, (3.0,), (4.0,), bits="x", reason="left")
    assert join(one, other) == Trial(PLAN, (1.0, 3.0), (2.0, 4.0), 5.0, "x", "left")
    with pytest.raises(ValueError, match="was not measured"):
        relative_time(Trial(PLAN, reason="pruned"))
    assert relative_time(Trial(PLAN, (3.0, 5.0, 4.0))) == 4.0


def test_evicting_caches_takes_longer_than_nothing_and_a_call_is_timed() -> None:
    evict = CacheEviction(1 << 22)
    assert host_time(evict) > host_time(lambda: None)


class FakeDriver:
    """Notes calls of a driver, and has an L2 of 50 MiB."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def attribute(self, name: str) -> int:
        return {"l2": 50 << 20}[name]

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, tuple(getattr(one, "value", one) for one in arguments)))


def test_evicting_the_l2_of_a_gpu_fills_twice_its_size_in_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, pool = FakeDriver(), memory.Pool()
    monkeypatch.setattr(pool, "new", lambda size: 0x1000)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(memory, "POOL", pool)
    monkeypatch.setattr(driver, "driver", lambda: fake)
    monkeypatch.setattr(streams, "current_stream", lambda: 7)
    evict = DeviceEviction()
    assert evict.size == 100 << 20
    evict()
    assert fake.calls == [("cuMemsetD32Async", (0x1000, 0, (100 << 20) // 4, 7))]
    evict.close()
    evict.close()
    assert pool.free_list(evict.size, 7).free == [0x1000], "given back once"


def test_a_run_on_a_device_is_timed_by_events_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Event:
        """A mark that is noted."""

        def __init__(self) -> None:
            self.number = 0

        def record(self) -> Event:
            log.append("record")
            return self

        def synchronize(self) -> None:
            log.append("wait")

        def milliseconds_since(self, earlier: Event) -> float:
            return 0.25

    monkeypatch.setattr(streams, "Event", Event)
    assert device_time(lambda: log.append("run")) == 250_000.0
    assert log == ["record", "run", "record", "wait"]


def test_what_an_earlier_search_measured_is_measured_again_only_to_confirm_it() -> None:
    asked: list[Plan] = []

    class Device:
        def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> dict[Plan, str]:
            asked.extend(plans)
            return {}

        def measure(self, plan: Plan, rounds: int) -> Trial:
            return Trial(plan, samples=(7.0,) * rounds)

    known, short, slow, failed = (Plan.of({"tile": size}) for size in range(4))
    before = [
        Trial(known, samples=(1.0,) * 10, baseline=(1.0,) * 10),
        Trial(short, samples=(1.0,) * 3),
        Trial(slow, samples=(1.0,) * 3, reason="2.10 times the safe plan's time after 3 rounds"),
        Trial(failed, reason="crashed: SIGSEGV"),
    ]
    resumed = Resumed(Device(), before)
    assert resumed.prepare([known, failed]) == {}
    assert asked == [known, failed]
    assert [resumed.measure(plan, 10).samples[0] for plan in (known, short, slow, failed)] == [1.0, 7.0, 1.0, 7.0]
    assert resumed.measure(known, 10).samples[0] == 7.0, "who asks twice wants another measurement"


def test_each_plan_has_what_the_gpu_reported_while_it_ran() -> None:
    class Metered(Logged):
        def __init__(self, library: Library) -> None:
            super().__init__(steady)
            self.library = library

        def meter(self) -> Meter:
            return Meter(open_one(self.library))

    found = dict(InProcess(Metered(Library("energy", links=False))).measure(PLAN, 10).readings)
    assert (found["power"], found["clock"]) == (412.5, 1980.0)
    assert (found["link"], found["energy"]) == (None, None), "null where the GPU does not say"
    assert InProcess(Logged(steady)).measure(PLAN, 10).readings == ()


def test_a_gpu_without_nvml_reports_nothing_and_a_cpu_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "monitor", lambda: None)
    tape = ts.jit(ts.ops.relu).trace(np.ones(4, np.float32)).tape
    on_gpu = TapeWorkload(tape, Options(backend="cuda", features=("sm_90a",)), ()).meter()
    assert on_gpu is not None
    with on_gpu:
        pass
    assert set(on_gpu.readings.columns.values()) == {None}
    assert TapeWorkload(tape, Options(), ()).meter() is None
