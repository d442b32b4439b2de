"""Shares of a peak: what follows from times and clocks, and what the record that is kept says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import gpu_peaks
from benchmarks.gpu_record import RESULTS


def test_the_clock_is_that_of_the_multiprocessors_which_wrote_twice() -> None:
    before = [[1000, 10], [5000, 10], [0, 0], [7, 20]]
    after = [[1000 + 1800, 1010], [5000 + 1900, 1010], [900, 1010], [0, 0]]
    assert gpu_peaks.hertz_of(before, after) == pytest.approx(1.85e9)


def test_shares_are_of_the_data_sheet_and_of_the_clock() -> None:
    """By the data sheet 132 multiprocessors run at 1830 MHz; at a higher clock the same rate is a smaller share."""
    operations = 2 * 8192**3
    row = gpu_peaks.share_of("e4m3", operations / 1979e12, 1.98e9, 132)
    assert row["of_nominal"] == pytest.approx(1.0)
    assert row["peak_at_clock"] == pytest.approx(132 * 8192 * 1.98e9 / 1e12)
    assert row["of_clock"] == pytest.approx(1979 / row["peak_at_clock"])
    for form, peak in gpu_peaks.PEAKS.items():
        assert 132 * gpu_peaks.CYCLE[form] * 1.83e9 == pytest.approx(peak, rel=2e-3)


def test_a_board_says_what_it_may_do_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> str:
        return name

    def absent(name: str) -> None:
        return None

    def run(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(stdout="1980 MHz, 700.00 W\n")

    monkeypatch.setattr(gpu_peaks.shutil, "which", absent)
    assert gpu_peaks.board() == {}
    monkeypatch.setattr(gpu_peaks.shutil, "which", found)
    monkeypatch.setattr(gpu_peaks.subprocess, "run", run)
    assert gpu_peaks.board() == {"clocks.max.sm": "1980 MHz", "power.limit": "700.00 W"}


def kept() -> Any:
    return json.loads((RESULTS / "gpu-peaks.json").read_text(encoding="utf-8"))


def test_products_come_near_the_peak_at_their_own_clock_as_recorded() -> None:
    """A board at the limit of its power runs below the clock of its data sheet: 8-bit floats miss the goal by that."""
    rows = {(row["form"], row["by"], row["launches"]): row for row in kept()["rows"]}
    assert {key[2] for key in rows if key[0] == "e4m3"} >= {1, 2, 4}
    for (form, by, _), row in rows.items():
        assert row["error"] < 2.0**-8
        assert row["of_clock"] == pytest.approx(row["tflops"] / row["peak_at_clock"])
        if by == "tessera":
            assert row["of_clock"] >= 0.9
            assert row["of_nominal"] >= (kept()["goal"] if form == "nt" else 0.7)


def test_the_clock_was_below_that_of_the_data_sheet_as_recorded() -> None:
    """With a highest clock above it: so it is power that holds products back, ours and those of cuBLAS alike."""
    sheet = gpu_peaks.PEAKS["e4m3"] / (132 * gpu_peaks.CYCLE["e4m3"]) / 1e6
    assert float(kept()["board"]["clocks.max.sm"].split()[0]) > sheet
    assert all(row["clock_mhz"] < sheet for row in kept()["rows"])
    peers = {
        row["launches"]: row["of_nominal"] for row in kept()["rows"] if (row["form"], row["by"]) == ("e4m3", "torch")
    }
    assert max(peers.values()) < kept()["goal"]
