"""What a GPU says of itself: figures by name, None for those it does not report, nothing at all without a library."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tessera.runtime.devices.cuda import nvml
from tessera.runtime.devices.cuda.nvml import Meter, Monitor, Readings, open_monitor, peak_bandwidth

NOT_SUPPORTED = 3


class Library:
    """NVML as its C interface answers: codes are returned, values go to the last argument."""

    def __init__(self, *missing: str, links: bool = True) -> None:
        self.missing, self.links = missing, links
        self.energy, self.moved, self.asked = 5_000, 0, list[Any]()

    def _give(self, name: str, target: Any, value: float) -> int:
        if name in self.missing:
            return NOT_SUPPORTED
        target._obj.value = int(value)  # what `byref` refers to
        return 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - the library's names
        return 9 if "init" in self.missing else 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, target: Any) -> int:  # noqa: N802
        self.asked.append(index)
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, target: Any) -> int:  # noqa: N802
        self.asked.append(bus)
        return 0 if bus == b"0000:1B:00.0" else 2

    def nvmlDeviceGetPowerUsage(self, handle: Any, target: Any) -> int:  # noqa: N802
        return self._give("power", target, 412_500)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, target: Any) -> int:  # noqa: N802
        return self._give("energy", target, self.energy)

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, target: Any) -> int:  # noqa: N802
        return self._give(f"clock {kind}", target, {1: 1980, 2: 3201}[kind])

    def nvmlDeviceGetMemoryBusWidth(self, handle: Any, target: Any) -> int:  # noqa: N802
        return self._give("width", target, 6144)

    def nvmlDeviceGetUtilizationRates(self, handle: Any, target: Any) -> int:  # noqa: N802
        if "busy" in self.missing:
            return NOT_SUPPORTED
        target._obj.gpu, target._obj.memory = 90, 35
        return 0

    def nvmlDeviceGetFieldValues(self, handle: Any, count: int, values: Any) -> int:  # noqa: N802
        for value in values:
            value.code, value.value = (0, self.moved) if self.links else (NOT_SUPPORTED, 0)
        return 0


def open_one(library: Library) -> Monitor:
    found = open_monitor(library, "0000:1B:00.0")
    assert found is not None
    return found


def test_figures_are_read_in_their_units() -> None:
    found = open_one(Library()).read()
    assert found.power == 412.5
    assert found.energy == 5.0
    assert (found.clock, found.memory_clock) == (1980.0, 3201.0)
    assert found.bandwidth == peak_bandwidth(3201.0, 6144.0)
    assert found.memory_busy == 0.35
    assert found.columns["power"] == 412.5
    assert found.columns["link"] is None


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ("power", "power"),
        ("energy", "energy"),
        ("clock 1", "clock"),
        ("clock 2", "memory_clock"),
        ("clock 2", "bandwidth"),
        ("width", "bandwidth"),
        ("busy", "memory_busy"),
    ],
)
def test_what_a_gpu_does_not_report_is_none_and_all_else_is_there(missing: str, name: str) -> None:
    found = open_one(Library(missing)).read().columns
    assert found[name] is None
    assert sum(value is None for value in found.values()) <= 3


def test_a_driver_without_a_function_is_as_one_that_does_not_answer() -> None:
    class Old(Library):
        nvmlDeviceGetTotalEnergyConsumption: Any = None  # noqa: N815
        nvmlDeviceGetFieldValues: Any = None  # noqa: N815

    found = open_one(Old())
    assert found.read().energy is None
    assert found.read().power == 412.5
    assert found.link_bytes() is None


def test_the_gpu_is_found_by_its_bus() -> None:
    library = Library()
    assert open_monitor(library, "0000:1B:00.0") is not None
    assert open_monitor(library, "0000:99:00.0") is None
    assert open_monitor(library, None) is not None
    assert library.asked == [b"0000:1B:00.0", b"0000:99:00.0", 0]
    assert open_monitor(Library("init"), None) is None


def test_a_block_has_its_mean_power_and_what_links_moved() -> None:
    library = Library()
    with Meter(open_one(library)) as meter:
        assert meter.readings == Readings()
        time.sleep(0.01)
        library.energy, library.moved = 15_000, 1 << 20
    found = meter.readings
    assert found.energy == 10.0
    assert found.power is not None
    assert 10.0 / 0.1 < found.power <= 10.0 / 0.01
    assert found.link is not None
    assert found.link > 0


def test_without_counted_energy_power_is_that_of_begin_and_end() -> None:
    with Meter(open_one(Library("energy", links=False))) as meter:
        pass
    assert meter.readings.power == 412.5
    assert meter.readings.energy is None
    assert meter.readings.link is None


def test_without_a_library_there_is_nothing_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml-absent.so.1")
    nvml.monitor.cache_clear()
    try:
        assert nvml.monitor() is None
        with Meter() as meter:
            pass
        assert set(meter.readings.columns.values()) == {None}
    finally:
        nvml.monitor.cache_clear()
