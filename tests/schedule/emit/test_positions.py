"""Positions of the largest and the smallest: the first of equals, as NumPy has it, however they are reduced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts


def drawn(dtype: Any, begin: Any) -> Any:
    """Few values, so that many are equal; rows and columns of nothing but what a reduction begins with; some NaN."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, (41, 67)).astype(dtype)
    x[rng.random(x.shape) < 0.6] = begin
    x[3], x[:, 5] = begin, begin
    if dtype is np.float32:
        x[7, 30], x[7, 40], x[9, 60], x[20, 60] = (np.nan,) * 4
    return x


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_positions_are_the_first(op: str, dynamic: bool, dtype: Any) -> None:
    """By 32-bit positions where sizes are known, and by 64-bit ones where they are not."""
    low, high = (-np.inf, np.inf) if dtype is np.float32 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = drawn(dtype, low if op == "argmax" else high)
    for axis in (0, 1):

        def run(x: Any, axis: int = axis) -> Any:
            return getattr(ts.ops, op)(x, axis=axis)

        found: Any = ts.jit(run, dynamic=dynamic)(x)
        np.testing.assert_array_equal(np.asarray(found), getattr(np, op)(x, axis=axis))
