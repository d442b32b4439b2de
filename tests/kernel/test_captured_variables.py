"""What kernels read from outside of themselves is seen as it is at each call, as with `jit`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile

FACTOR = 3.0
ONES = np.ones((2, 3), np.float32)


def scaled(x: Any) -> Any:
    return x * FACTOR


@kernel
def directly(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * FACTOR


@kernel
def by_way_of_a_function(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    T = tile.context()
    return scaled(tile.load(x, rows=T.m, cols=T.n))


@ts.jit
def inside(x: Any) -> Any:
    return directly(x)


@pytest.mark.parametrize("function", [directly, by_way_of_a_function, inside], ids=["kernel", "helper", "jit"])
def test_a_global_that_changes_is_read_anew(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (3.0, 8.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", value)
        for x in (ONES, np.ones((4, 7), np.float32)):
            for _ in range(2):
                np.testing.assert_array_equal(np.asarray(function(x)), x * value)


def test_a_captured_variable_that_changes_is_read_anew() -> None:
    factor = 2.0

    @kernel
    def scale(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
        T = tile.context()
        return tile.load(x, rows=T.m, cols=T.n) * factor

    np.testing.assert_array_equal(np.asarray(scale(ONES)), ONES * 2)
    factor = 5.0
    np.testing.assert_array_equal(np.asarray(scale(ONES)), ONES * 5)


def test_what_stays_is_not_recompiled_and_what_is_cleared_is() -> None:
    @kernel
    def scale(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
        T = tile.context()
        return scaled(tile.load(x, rows=T.m, cols=T.n))

    scale(ONES)
    scale(ONES)
    assert scale.cache_info().size == 1
    scale.cache_clear()
    assert scale.cache_info().size == 0
