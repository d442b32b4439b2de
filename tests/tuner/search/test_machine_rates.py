"""Rates of a machine are measured once, kept, checked when read, and those that are shipped fill the gaps."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.tuner.machine_rates import (
    HostProbe,
    complete,
    file_of,
    host_name,
    machine_rates,
    measure_rates,
    read_rates,
    smooth,
    write_rates,
)
from tessera.types.rates import Rates, rates_of

SIZES = (1 << 16, 1 << 20, 1 << 24)


class Known:
    """A probe of a machine whose rates are known."""

    opened = 0

    def __init__(self) -> None:
        Known.opened += 1
        self.is_open = True

    units, machine, key = 4, "a machine", "one"

    def move(self, footprint: int, is_whole: bool) -> float:
        return (40.0 if is_whole else 15.0) / math.log2(footprint)

    def compute(self) -> dict[str, float]:
        return {"f32": 100.0}

    def launch(self) -> float:
        return 30.0

    def latency(self) -> float:
        return 90.0

    def chain(self) -> float:
        return 1.0

    def links(self) -> tuple[float, float]:
        return 1.0, 2.0

    def close(self) -> None:
        self.is_open = False


def test_a_machine_is_measured_once(tmp_path: Path) -> None:
    before = Known.opened
    first = machine_rates("new_machine", Known, footprints=SIZES, folder=tmp_path)
    second = machine_rates("new_machine", Known, footprints=SIZES, folder=tmp_path)
    assert Known.opened == before + 1
    assert first is not None
    assert second == Rates.from_json(first.as_json())
    assert first.units == 4
    assert dict(first.flops) == {"f32": 100.0}
    assert [size for size, _ in first.curve] == list(SIZES)


def test_another_machine_is_measured_for_itself(tmp_path: Path) -> None:
    before = Known.opened
    for key in ("one", "two", "one"):
        machine_rates("new_machine", Known, key=key, footprints=SIZES, folder=tmp_path)
    assert Known.opened == before + 2


def test_without_a_probe_the_shipped_table_is_read_and_nothing_is_measured(tmp_path: Path) -> None:
    assert machine_rates("sm_90a", folder=tmp_path) == rates_of("sm_90a")
    assert machine_rates("sm_999", folder=tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[1]",
        '{"version": 1}',
        {"units": 0},
        {"curve": [[2, 1.0], [1, 1.0]]},
        {"flops": {"f32": -1}},
        {"latency": -1},
    ],
    ids=str,
)
def test_a_damaged_file_is_measured_anew_with_a_warning(damage: str | dict[str, Any], tmp_path: Path) -> None:
    good = measure_rates(Known(), SIZES)
    file = file_of("new_machine", folder=tmp_path)
    write_rates(file, good)
    changed = damage if isinstance(damage, str) else json.dumps({"version": 1, "rates": {**good.as_json(), **damage}})
    file.write_text(changed, encoding="utf-8")
    with pytest.warns(RuntimeWarning, match="are damaged and measured anew"):
        found = machine_rates("new_machine", Known, footprints=SIZES, folder=tmp_path)
    assert found == good
    assert read_rates(file) == Rates.from_json(good.as_json())


def test_a_file_of_another_version_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    write_rates(file, measure_rates(Known(), SIZES))
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "version": 99}), encoding="utf-8")
    assert read_rates(file) is None


def test_kinds_that_a_probe_cannot_measure_follow_the_shipped_ones() -> None:
    measured = measure_rates(Known(), SIZES)
    shipped = replace(measured, flops=(("bf16", 800.0), ("f32", 50.0)))
    assert dict(complete(measured, shipped).flops) == {"bf16": 1600.0, "f32": 100.0}
    assert complete(measured, None) == measured


def test_a_curve_never_rises_and_all_units_move_as_much_as_one() -> None:
    assert smooth([(1, 3.0), (2, 5.0), (4, 1.0)]) == ((1, 5.0), (2, 5.0), (4, 1.0))

    class Odd(Known):
        def move(self, footprint: int, is_whole: bool) -> float:
            return 5.0 if is_whole else 7.0

    assert measure_rates(Odd(), SIZES).curve == tuple((size, 7.0) for size in SIZES)


def test_this_cpu_has_sane_rates() -> None:
    probe = HostProbe(launch=50.0, units=1, most=1 << 22)
    try:
        found = measure_rates(probe, (1 << 16, 1 << 22))
    finally:
        probe.close()
    assert 0.1 < found.curve[-1][1] <= found.curve[0][1] < 10_000
    assert 0.05 < dict(found.flops)["f64"] < dict(found.flops)["f32"] * 1.5 < 1e6
    assert found.launch == 50.0
    assert 0.05 < found.chain < 1_000
    assert found.latency > 0
    assert host_name()
