"""Short rows, sorted by counting and merging: stable, NaN last, both zeros one, at every width around a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops

WIDTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127)


def rows(dtype: str, width: int) -> np.ndarray[Any, Any]:
    """Few different values in odd widths, so that many are equal; what a dtype has beside numbers."""
    rng = np.random.default_rng(width)
    found = rng.integers(-3, 4, (4, width)).astype(np.float32) if width % 2 else rng.normal(0, 40, (4, width))
    if dtype.startswith("u"):
        return np.abs(found)
    if not dtype.startswith("i") and width > 3:
        found[0, 1], found[1, 0], found[1, 2], found[2, 2], found[3, 3] = np.nan, -0.0, 0.0, np.inf, -np.inf
    return found


def stable_order(row: np.ndarray[Any, Any], *, descending: bool) -> list[int]:
    sign = -1 if descending else 1
    return sorted(range(len(row)), key=lambda at: (np.isnan(row[at]), 0 if np.isnan(row[at]) else sign * row[at], at))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u32"])
def test_short_rows_are_in_stable_order(dtype: str) -> None:
    for width in WIDTHS:
        x = ts.array(rows(dtype, width)).cast(dtype)
        seen = np.asarray(x.cast("f64"))
        for descending in (False, True):

            def sort(x: Any, descending: bool = descending) -> Any:
                return ops.argsort(x, axis=1, descending=descending), ops.sort(x, axis=1, descending=descending)

            order, made = ts.jit(sort)(x)
            wanted = np.array([stable_order(row, descending=descending) for row in seen])
            np.testing.assert_array_equal(np.asarray(order), wanted, err_msg=f"{dtype} {width}")
            np.testing.assert_array_equal(np.asarray(made.cast("f64")), np.take_along_axis(seen, wanted, 1))
