"""What debug builds count on the device: stages that producers fill by TMA descriptors, and waits that stall."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_maps import difference, row_of
from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


def nt(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def test_every_stage_that_is_filled_is_counted() -> None:
    m, n, k, calls = 512, 1024, 2048, 3
    overrides = {"contraction.block": (128, 256, 64)}
    function = ts.jit(nt, backend="cuda", debug=True, overrides=overrides)
    rng = np.random.default_rng(1)
    x, w = (ts.cuda.array(rng.standard_normal((size, k)).astype(ml_dtypes.bfloat16)) for size in (m, n))
    made = function(x, w)
    before = ts.cuda.metrics()
    kept = [function(x, w) for _ in range(calls)]
    after = ts.cuda.metrics()
    assert json.loads(json.dumps(after)) == after
    row = row_of("nt", difference(before, after), 1.0)
    # A producer fills a stage for each step of each tile; a consumer of four warps reads each.
    assert row["producers"]["times"] == calls * (m // 128) * (n // 256) * (k // 64)
    assert row["consumers"]["times"] >= 4 * row["producers"]["times"]
    for side in ("producers", "consumers"):
        assert 0 <= row[side]["stalls"] <= row[side]["times"]
        assert (row[side]["cycles"] > 0) == (row[side]["stalls"] > 0)
    # Consumers wait for the first bytes at least, in every CTA.
    assert row["consumers"]["stalls"] > 0
    assert row["maps"]["created"] + row["maps"]["reused"] == 3 * calls
    assert np.asarray(made).tobytes() == np.asarray(kept[-1]).tobytes()


def test_kernels_that_are_not_debugged_count_no_waits() -> None:
    function = ts.jit(nt, backend="cuda")
    x = ts.cuda.array(np.ones((256, 256), ml_dtypes.bfloat16))
    function(x, x)
    before = ts.cuda.metrics()
    function(x, x)
    assert difference(before, ts.cuda.metrics())["waits"] == []
