"""Records of a GPU that are kept: what they say reaches what was promised, and covers all that is there now."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.gpu_record import RESULTS
from tessera.stdlib import __all__ as library
from tests.benchmarks.test_gpu import PROGRAMS


def record(name: str) -> Any:
    return json.loads((RESULTS / f"gpu-{name}.json").read_text(encoding="utf-8"))


def test_a_profiler_saw_a_range_for_every_kernel_of_the_library() -> None:
    kept = record("ranges")
    seen = {row["case"]: row["ranges"] for row in kept["rows"]}
    assert set(library) - PROGRAMS <= set(seen)
    assert all(ranges and all(ranges.values()) for ranges in seen.values())
    assert kept["is_complete"]
    assert kept["tool"] in ("cupti", "nsys", "ncu")
    assert kept["hardware"]["gpu"]


def test_stages_and_stalls_were_counted() -> None:
    for row in record("maps")["rows"]:
        assert row["stages_per_second"] > 0
        assert {"created", "reused", "kept", "dropped"} <= set(row["maps"])
        for side in ("producers", "consumers"):
            assert 0 <= row[side]["stalls"] <= row[side]["times"]
        assert row["consumers"]["stalls"] > 0


def test_a_step_of_decoding_is_replayed_in_less_than_ten_microseconds_with_the_same_bits() -> None:
    kept = record("replay")
    assert kept["same_bits"]
    assert kept["goal"] == 10.0
    assert kept["microseconds"]["replay"]["median"] < kept["goal"]
    assert kept["step"]["layers"] >= 4


def test_a_cached_call_was_one_launch_and_cost_less_than_one_of_torch() -> None:
    kept = record("launch")
    once, again = {"cuLaunchKernel": 1}, {"cuGraphLaunch": 1}
    assert kept["counts"] == {"driver": once, "again": again, "python": ["__call__", "active"]}
    assert kept["microseconds"]["jit"]["median"] < kept["microseconds"]["torch"]["median"]
    assert kept["is_reached"] == (kept["microseconds"]["jit"]["median"] <= kept["goal"])


def test_a_cached_call_cost_at_most_five_microseconds_and_little_above_the_driver() -> None:
    kept = record("launch")
    assert kept["goal"] == 5.0
    assert kept["is_reached"]
    medians = {name: times["median"] for name, times in kept["microseconds"].items()}
    assert medians["cuGraphLaunch"] < medians["jit"] < medians["cuGraphLaunch"] + 2.5
    # With new addresses each time a graph is told them first, and still costs little more than a launch alone.
    assert medians["jit"] < medians["jit, other memory"] < min(kept["goal"], medians["cuLaunchKernel"] + 0.5)


def test_rows_of_other_widths_are_those_of_the_page() -> None:
    page = (RESULTS.parents[1] / "docs" / "guide" / "performance.md").read_text(encoding="utf-8")
    for row in record("widths")["rows"]:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row['columns']} | ")]
        shown = [float(cell.strip(" *")) for cell in line.strip("|").split("|")[1:] if cell.strip()]
        names = [f"{work} {kind}" for work in ("softmax", "rmsnorm", "layernorm") for kind in ("static", "free")]
        wanted = [row["ratio_to_copy"][name] for name in names if name in row["ratio_to_copy"]]
        assert np.allclose(shown, wanted, rtol=0, atol=0.0051), "the page and its record are of one run"
