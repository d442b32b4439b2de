"""Attention on an H200 as it was recorded: beside cuDNN, and decoding beside a copy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "hopper-attention.json"


def rows(form: str, head: int = 128) -> list[dict[str, Any]]:
    found = [row for row in json.loads(RESULTS.read_text())["rows"] if row["form"] == form and row["size"][-1] == head]
    assert found
    return found


def mean(found: list[dict[str, Any]]) -> float:
    return math.exp(sum(math.log(row["ratio"]) for row in found) / len(found))


@pytest.mark.parametrize(
    ("form", "head", "least", "average"),
    [
        ("full", 128, 1.0, 1.05),
        ("causal", 128, 1.0, 1.12),
        ("full", 64, 1.0, 1.0),
        ("causal", 64, 1.0, 1.0),
        ("full 8:1", 128, 1.0, 1.0),
        ("causal 8:1", 128, 1.0, 1.0),
        ("flash_full", 128, 1.0, 1.0),
        ("flash_causal", 128, 1.0, 1.0),
    ],
)
def test_attention_reaches_its_peer_as_recorded(form: str, head: int, least: float, average: float) -> None:
    found = rows(form, head)
    assert min(row["ratio"] for row in found) >= least
    assert mean(found) >= average
    for row in found:
        assert row["same_bits"]
        # Powers and results are rounded to bf16: two roundings of 2**-9 each, and sums of many.
        assert row["error"] <= 2.0**-8
        assert form.startswith("flash") or row["lse_error"] <= 2.0**-20


@pytest.mark.parametrize("form", ["decode", "cached"])
def test_decoding_reads_as_fast_as_a_copy_as_recorded(form: str) -> None:
    (row,) = [row for row in rows(form) if row["size"] == [16, 64, 32768, 128]]
    assert row["ratio"] >= 0.95
    assert row["error"] <= 2.0**-8
