"""Choices that were measured: what follows from times, and what the records of a GPU hold."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks import gpu_choices
from benchmarks.gpu_record import RESULTS
from tessera import Schedule


def record(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_a_schedule_is_held_against_the_fastest() -> None:
    times = {"default": 2e-6, "64x64x64": 1.8e-6, "128x128x64": 3e-6}
    row = gpu_choices.schedule_row((1, 2, 3), "64x128x64", times, times)
    assert row["share"] == pytest.approx(0.9)
    assert row["best"] == "64x64x64"
    best = gpu_choices.schedule_row((1, 2, 3), "64x128x64", {**times, "default": 1e-6}, times)
    assert (best["share"], best["best"]) == (1.0, "64x128x64")


def test_gains_are_over_the_slow_way_and_the_least_of_a_part_counts() -> None:
    row = gpu_choices.gain_row("nt", (1, 2, 3), "off", {"off": 3e-6, "automatic": 2e-6}, same_bits=True)
    assert row["gains"] == {"automatic": 1.5}
    other = gpu_choices.gain_row("nt", (1, 2, 3), "off", {"off": 3e-6, "automatic": 1.5e-6}, same_bits=True)
    assert gpu_choices.summary_of({"automatic": [row, other], "schedules": []}) == {"automatic": 1.5, "schedules": 0.0}


def test_every_schedule_of_the_space_has_a_name_of_its_own() -> None:
    assert len({gpu_choices.text_of(one) for one in gpu_choices.SPACE}) == len(gpu_choices.SPACE)
    assert gpu_choices.text_of(Schedule(block=(64, 128, 64), stages=2)) == "64x128x64 2 stages"
    assert len(gpu_choices.SHAPES) == 10


@pytest.mark.parametrize("size", gpu_choices.SHAPES, ids=str)
def test_a_product_gets_no_more_rows_than_it_needs(size: tuple[int, int, int]) -> None:
    m, n, k = size
    element = np.zeros((), ml_dtypes.bfloat16)
    found = gpu_choices.kernel_alone.discover(*(np.broadcast_to(element, shape) for shape in ((m, k), (k, n))))
    assert found.block[0] <= max(64, 2 * m)


def test_sanitizers_found_nothing_as_recorded() -> None:
    """Races, accesses and barriers of every kind of kernel, copies ahead and rings among them."""
    made = record("gpu-sanitize")
    assert made["is_clean"]
    for tool in ("memcheck", "racecheck", "synccheck"):
        rows = [row for row in made["rows"] if row["tool"] == tool]
        assert len(rows) >= 37
        assert {row["outcome"] for row in rows} == {"clean"}
        assert {"nt", "nn-ragged", "e4m3", "pair", "warps", "warps-ragged"} <= {row["case"] for row in rows}


def test_clusters_are_chosen_where_they_are_faster_as_recorded() -> None:
    made = record("gpu-clusters")
    assert made["right"] == made["of"] == len(made["rows"]) >= 14
    assert {row["chosen"] for row in made["rows"]} == {"clusters", "single"}
    able = [row for row in made["rows"] if row["can_cluster"]]
    assert len(able) >= 13
    assert all((row["gain_of_clusters"] > 1.0) == (row["chosen"] == "clusters") for row in able)
    assert made["most_lost"] <= 0.005


def test_schedules_that_are_found_reach_four_fifths_of_the_best_as_recorded() -> None:
    rows = record("gpu-choices")["parts"]["schedules"]
    assert [tuple(row["size"]) for row in rows] == list(gpu_choices.SHAPES)
    assert all(len(row["screened"]) >= 12 for row in rows)
    assert min(row["share"] for row in rows) >= 0.8


def test_copies_ahead_are_faster_and_change_no_bit_as_recorded() -> None:
    """With stages that a kernel asks for where it waits for memory, and with those that a plain product gets."""
    parts = record("gpu-choices")["parts"]
    (waiting,) = parts["stages"]
    assert all(waiting["gains"][str(count)] > 1.05 for count in (2, 3, 4))
    assert [tuple(row["size"]) for row in parts["automatic"]] == list(gpu_choices.AUTOMATIC)
    assert all(row["gains"]["automatic"] > 1.5 for row in parts["automatic"])
    assert all(row["same_bits"] for row in (waiting, *parts["automatic"]))


def test_an_epilogue_is_one_launch_and_faster_than_three_as_recorded() -> None:
    """By a fifth and more where sums are of 1024; less where products of 4096 hide what the others move."""
    rows = record("gpu-choices")["parts"]["epilogue"]
    assert all(row["kernels"] == {"apart": 3, "fused": 1} and row["same_bits"] for row in rows)
    assert all(row["gains"]["fused"] >= 1.2 for row in rows if row["size"][2] <= 1024)
    assert min(row["gains"]["fused"] for row in rows) > 1.1


def test_products_of_bf16_reach_four_fifths_of_the_peak_as_recorded() -> None:
    """Of 989 TFLOP/s; those of 8-bit floats, of 1979, do not: the board's power sets their clock."""
    rows = {(row["form"], *row["size"]): row["tessera"] for row in record("gpu-products")["rows"]}
    assert rows["nt", 8192, 8192, 8192] >= 0.8 * 989
    assert rows["e4m3", 8192, 8192, 8192] >= 0.7 * 1979
