"""Rows wider than a vector, of any width: they fill vectors, no element beyond their end counts, and bits stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import KernelError
from tessera.frontend.kernel.legality import LANES, NARROW
from tessera.types.shape import TensorType

RNG = np.random.default_rng(4)


@kernel
def softmax(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    powers = tile.exp(block - tile.tile_reduce_rowmax(block)[:, None])
    return powers / tile.tile_reduce_rowsum(powers)[:, None]


@kernel
def shifted_sums(x: KTile["M", "N", ts.f32], w: KTile["N", ts.f32], out: KTile["M", ts.f32]) -> None:
    """Elements beyond the end are not 0 here: they must not be summed."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d) * tile.load(w, T.d)[None, :] + tile.full((T.m, T.d), 2.0)
    tile.store(out, T.m, tile.sum(block, axis=1))


@kernel
def products(x: KTile["M", "K", ts.f32], y: KTile["K", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    T = tile.context()
    left = tile.load(x, rows=T.m, cols=T.d) + 1.0
    return tile.dot(left, tile.load(y, slice(None), T.n))


@kernel
def running(x: KTile["M", "N", ts.i32]) -> KTile["M", "N", ts.i32]:
    T = tile.context()
    return tile.scan(tile.load(x, rows=T.m, cols=T.d), "sum", axis=1)


@kernel
def smallest(x: KTile["M", "N", ts.i32]) -> KTile["M", ts.i32]:
    T = tile.context()
    return tile.min(tile.load(x, rows=T.m, cols=T.d), axis=1)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("width", [300, 1023, 2049, 5000])
def test_softmax_of_rows(width: int) -> None:
    x = normal(3, width) * 10
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    np.testing.assert_allclose(np.asarray(softmax(x)), exact, rtol=1e-5, atol=1e-7)


def test_elements_beyond_the_end_are_not_reduced() -> None:
    x, w = normal(5, 519), normal(519)
    given = np.asarray(shifted_sums(x, w))
    np.testing.assert_allclose(given, (x.astype(np.float64) * w + 2).sum(1), rtol=1e-4)
    assert np.asarray(shifted_sums.interpret(x, w)).tobytes() == given.tobytes()
    assert np.asarray(shifted_sums.run_tiles(x, w)).tobytes() == given.tobytes()


def test_elements_beyond_the_end_are_not_multiplied() -> None:
    x, y = normal(4, 261), normal(261, 20)
    given = np.asarray(products(x, y))
    np.testing.assert_allclose(given, (x.astype(np.float64) + 1) @ y, rtol=1e-3, atol=1e-3)
    assert np.asarray(products.interpret(x, y)).tobytes() == given.tobytes()


def test_scans_and_integers() -> None:
    x = RNG.integers(5, 90, (3, 270)).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(running(x)), np.cumsum(x, axis=1))
    np.testing.assert_array_equal(np.asarray(smallest(x)), x.min(axis=1))


def test_tiles_fill_vectors_and_narrow_ones_stay() -> None:
    def widths(x: Any) -> set[int]:
        types = softmax.program(x).types
        return {type.shape[-1].value or 0 for type in types if isinstance(type, TensorType) and type.rank == 2}

    assert all(width % LANES == 0 for width in widths(normal(2, NARROW + 1)))
    assert widths(normal(2, NARROW - 1)) == {NARROW - 1}


def test_a_row_that_is_too_wide_says_what_to_do() -> None:
    with pytest.raises(KernelError, match="rows of 600000 elements is too wide") as caught:
        softmax(np.zeros((1, 600000), np.float32))
    assert caught.value.span is not None
    assert caught.value.fix is not None
    assert "tile.range_k" in str(caught.value)
