"""Profiles of programs on a GPU: kernels by their start and end, every byte by its tensor, and the roofline."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.profile.result import Profile
from tessera.profile.roofline import COLUMNS
from tessera.profile.trace import slices_in
from tessera.runtime.devices.cuda.driver import is_available
from tests.profile.test_profile import arrays, loss

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.fixture(scope="module")
def found() -> Profile:
    def step(w: Any, v: Any, x: Any) -> Any:
        value, (dw, dv) = ts.value_and_grad(loss, (0, 1))(w, v, x)
        return {"loss": value, "w": w - 0.1 * dw, "v": v - 0.1 * dv}

    return ts.jit(step, backend="cuda").profile(*(ts.cuda.array(one) for one in arrays()))


def test_every_launch_has_a_start_and_an_end(found: Profile) -> None:
    assert [event.call for event in found.kernels] == list(found.plan.calls)
    starts = [event.start for event in found.kernels]
    assert starts == sorted(starts)
    assert all(event.end > event.start for event in found.kernels)
    assert len(slices_in(found.trace)) >= len(found.kernels)
    assert "cuda" in found.device


def test_the_roofline_says_bound_share_and_what_to_do(found: Profile) -> None:
    rows = list(csv.DictReader(io.StringIO(found.roofline_csv)))
    assert tuple(rows[0]) == COLUMNS
    assert all(row["hint"] and row["bound_by"] in ("memory", "compute") for row in rows)
    assert all(row.share > 0 and np.isfinite(row.share) for row in found.roofline)
    assert sum(row.time for row in found.roofline) == pytest.approx(found.kernel_time, abs=len(rows))


def test_the_flame_graph_is_a_picture(found: Profile) -> None:
    assert found.flame_graph.startswith("<svg")
