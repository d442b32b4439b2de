"""Programs of any number of rows on a GPU: on both sides of each limit the bits of programs for exact sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.ir.schedule.passes.branch_on_rows import LIMITS
from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

ROWS = sorted({0, 1, 17, 3000, *(limit + more for limit in LIMITS for more in (-1, 0, 1))})


def layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(x @ w + b)


def free_layer(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["K", "N", ts.bf16], b: ts.Tensor["N", ts.bf16]) -> Any:
    return layer(x, w, b)


def fixed_layer(x: ts.Tensor["M", 200, ts.bf16], w: ts.Tensor[200, 264, ts.bf16], b: ts.Tensor[264, ts.bf16]) -> Any:
    return layer(x, w, b)


@pytest.mark.parametrize("function", [free_layer, fixed_layer], ids=["all free", "rows free"])
def test_bits_are_those_of_exact_sizes(function: Any) -> None:
    rng = np.random.default_rng(3)
    free: Any = ts.jit(function, backend="cuda")
    static: Any = ts.jit(layer, backend="cuda")
    w, b = (ts.cuda.array(rng.standard_normal(shape).astype(ml_dtypes.bfloat16)) for shape in ((200, 264), (264,)))
    for rows in ROWS:
        x = ts.cuda.array(rng.standard_normal((rows, 200)).astype(ml_dtypes.bfloat16))
        found = np.asarray(free(x, w, b).cpu())
        assert found.shape == (rows, 264)
        assert found.tobytes() == np.asarray(static(x, w, b).cpu()).tobytes(), rows
    assert len(free.specializations) <= 1
