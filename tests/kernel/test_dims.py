"""Dims that kernels take for granted: a loop over one dim does not go along another, and a tile is not empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, kernel, tile
from tessera.diagnostics.codes import GuardError, KernelError, ShapeError


@kernel
def summed(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), ts.f32)
    for j in tile.range_n(x, T.n):
        acc = acc + tile.sum(tile.load(x, rows=T.m, cols=j), axis=1)
    return acc


@kernel
def first_four(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), ts.f32)
    for j in tile.steps(4, by=2):
        acc = acc + tile.sum(tile.load(x, rows=T.m, cols=j), axis=1)
    return acc


@kernel
def largest(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    T = tile.context()
    return tile.max(tile.load(x, rows=T.m, cols=T.d), axis=1)


@kernel
def largest_of_all(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    T = tile.context()
    return tile.max(tile.load(x, T.m, slice(None)), axis=1)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def inside(x: Any) -> Any:
    return summed(x)


def test_a_loop_over_another_dim_is_guarded() -> None:
    np.testing.assert_array_equal(np.asarray(summed(ones(5, 5))), [5] * 5)
    with pytest.raises(GuardError, match="`M` is 5 and `N` is 530"):
        summed(ones(5, 530))
    with pytest.raises(ShapeError, match="a loop over 5 elements indexes dim 1 of `x`, which has 530") as caught:
        ts.jit(inside)(ones(5, 530))
    assert caught.value.span is not None


def test_a_loop_over_an_extent_that_is_written_down_is_not() -> None:
    np.testing.assert_array_equal(np.asarray(first_four(ones(3, 9))), [4] * 3)


@pytest.mark.parametrize("function", [largest, largest_of_all], ids=["T.d", ":"])
def test_a_row_of_no_elements_is_no_tile(function: Any) -> None:
    with pytest.raises(ShapeError, match="0 elements cannot be a tile") as caught:
        function(ones(3, 0))
    assert caught.value.span is not None
    assert caught.value.fix is not None
    assert np.asarray(function(ones(0, 4))).shape == (0,)


@kernel
def pairs(x: KTile["S", "2*P"], angles: KTile["S", "P"]) -> Any:
    """Rows with two elements for each angle."""
    T = tile.context()
    return tile.load(x, T.m, T.d) + tile.sum(tile.load(angles, T.m, slice(None)), 1)[:, None]


def test_a_dim_that_is_computed_is_what_it_says() -> None:
    assert pairs(np.ones((3, 8), np.float32), np.ones((3, 4), np.float32)).shape == (3, 8)
    for width, angles in ((8, 3), (7, 3), (8, 8)):
        with pytest.raises(ts.TesseraError, match=r"x.shape\[1\]` (is declared|must be) `2\*P`"):
            pairs(np.ones((3, width), np.float32), np.ones((3, angles), np.float32))


@kernel
def eighth(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.load(x, 7, T.d)


@kernel
def last(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.load(x, x.shape[0] - 1, T.d)


@kernel
def negative(x: KTile["M", "N", ts.f32]) -> Any:
    T = tile.context()
    return tile.load(x, -1, T.d)


def inside_eighth(x: Any) -> Any:
    return eighth(x)


def test_an_element_by_its_number_is_there() -> None:
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.testing.assert_array_equal(np.asarray(eighth(rows)), rows[7])
    np.testing.assert_array_equal(np.asarray(last(rows)), rows[-1])
    with pytest.raises(GuardError, match="a kernel accesses element 7 of dim 0 of `x`"):
        eighth(rows[:7])
    with pytest.raises(ts.TesseraError, match="dim 0 of `x`"):
        last(rows[:0])
    with pytest.raises(ShapeError, match="there is no element -1 of dim 0 of `x`"):
        negative(rows)
    with pytest.raises(ShapeError, match="element 7 of dim 0 of `x`, which has 3"):
        ts.jit(inside_eighth)(rows[:3])


@kernel
def from_the_end(x: KTile["M", "N", ts.f32], out: KTile["M", 4, ts.f32]) -> None:
    T = tile.context()
    tile.store(out, tile.load(x, T.m, slice(-4, 0)), rows=T.m, cols=slice(0, 4))


def test_a_part_does_not_begin_before_its_dim() -> None:
    with pytest.raises(KernelError, match="is not a valid slice of dim 1 of `x`"):
        from_the_end(ones(3, 9))


@kernel
def of_blocks(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    T = tile.context()
    return tile.sum(tile.load(x, rows=T.m, cols=T.n), 1)


def inside_of_blocks(x: Any) -> Any:
    return of_blocks(x)


def test_a_returned_cell_is_of_one_program_alone() -> None:
    """With more columns than a block has, programs side by side would each write their part as the sum of the row."""
    x = ones(3, 1000)
    assert np.asarray(of_blocks(x[:, :20])).tolist() == [20.0] * 3
    with pytest.raises(GuardError, match="`N` is 1000") as guarded:
        of_blocks(x)
    assert "one program has all columns" in str(guarded.value)
    narrow = of_blocks.with_schedule(Schedule(block=(4, 1)))
    assert np.asarray(narrow(x[:, :1])).tolist() == [1.0] * 3
    for width, rule in ((2, "at most 1"), (0, "at least 1")):
        with pytest.raises(GuardError, match=f"`N` is {width}, but it must be {rule}"):
            narrow(x[:, :width])
    for refused in (of_blocks.interpret, ts.jit(inside_of_blocks)):
        with pytest.raises(KernelError, match="has no `n`, and 4 programs along it would write the same elements"):
            refused(x)
