"""Dtypes and sizes that functions of the library have no kernels for are refused by name, or have a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.stdlib.slopes import normal

ROWS, LINES, VECTOR = normal(1, 2, 5, 8), normal(2, 5, 8), np.ones((1, 2, 5), np.float32)
CALLS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "linear_attention": lambda cast: ts.ops.linear_attention(cast(ROWS), ROWS, ROWS),
    "gated_delta_rule": lambda cast: ts.ops.gated_delta_rule(cast(ROWS), ROWS, ROWS, VECTOR),
    "ssd": lambda cast: ts.ops.ssd(cast(ROWS), VECTOR, -np.ones(2), ROWS, ROWS),
    "selective_scan": lambda cast: ts.ops.selective_scan(cast(LINES), LINES, -np.ones((8, 8)), LINES, LINES),
    "dropout_residual_layernorm": lambda cast: ts.ops.dropout_residual_layernorm(
        cast(LINES), LINES, np.ones(8), np.ones(8)
    ),
}


@pytest.mark.parametrize("op", CALLS)
def test_f64_is_refused_where_sums_are_f32(op: str) -> None:
    CALLS[op](lambda x: x)
    with pytest.raises(ts.TesseraError, match=rf"T0102.*`{op}` takes no f64, got f64, f32"):
        CALLS[op](lambda x: x.astype(np.float64))
