"""Micro-tests of a GPU give sane figures, and the roofline audit runs there."""

from __future__ import annotations

import pytest

from benchmarks import gpu_rates, roofline
from benchmarks.roofline_cases import cases
from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


def test_bandwidth_arithmetic_and_latency_are_those_of_a_gpu() -> None:
    lines: list[str] = []
    found = gpu_rates.measure(lines.append, [1 << 22, 1 << 30])
    rates = gpu_rates.rates_of(found)
    assert len(lines) == 3
    small, large = (rate for _, rate in rates.curve)
    assert 500 < large <= small < 50_000
    assert 5 < rates.unit_curve[-1][1] < large / 8
    assert dict(rates.flops)["f32"] > 5_000
    assert dict(rates.flops)["bf16"] > dict(rates.flops)["f32"]
    assert 50 < rates.latency < 5_000
    assert 300 < rates.launch < 200_000
    assert all(1 < rate < 500 for rate in found["link"].values())


def test_every_kind_of_case_has_a_row() -> None:
    lines: list[str] = []
    machine = gpu_rates.rates_of(gpu_rates.measure(lines.append, [1 << 22, 1 << 28]))
    found = cases(["add", "softmax", "matmul", "sort"], ["tiny", "medium"])
    symbolic = [case for case in found if case.is_symbolic][:2]
    transposed = [case for case in found if case.is_transposed][:2]
    chosen = [*found[:8], *symbolic, *transposed]
    rows = roofline.audit(chosen, "cuda", machine, 120.0, lines.append)
    assert [row.error for row in rows] == [""] * len(rows)
    assert len(rows) == len(chosen)
    assert all(0 < row.share < 1.5 for row in rows if row.bytes >= roofline.MUCH)
