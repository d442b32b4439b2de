"""Tiles of short rows on a GPU: little of a tile is beyond the rows there are, and none is larger than asked for."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.schedule.kinds.map import ROWS, small_rows
from tessera.types.dim import Dim

MACHINE = GPUS["sm_90a"]


def tile_of(*extents: int) -> tuple[int, ...] | None:
    return small_rows([Dim.constant(extent) for extent in extents], MACHINE)


def test_an_image_has_few_rows_beyond_its_own() -> None:
    assert tile_of(32, 256, 56, 56) == (4, 8, 64)
    assert tile_of(32, 768, 7, 7) == (32, 8, 8)
    assert tile_of(100000, 56) == (32, 64)


def test_long_rows_are_no_short_ones() -> None:
    assert tile_of(32, 4096) is None
    assert small_rows([Dim.symbol("s"), Dim.symbol("t")], MACHINE) is None


@given(st.lists(st.integers(1, 300), min_size=1, max_size=3), st.integers(2, 1024), st.sampled_from([512, ROWS]))
def test_a_tile_is_powers_of_two_and_wastes_little(outer: list[int], inner: int, total: int) -> None:
    extents = [*outer, inner]
    tile = small_rows([Dim.constant(extent) for extent in extents], MACHINE, total)
    if tile is None:
        assert inner > total // 2
        return
    assert prod(tile) <= total
    assert all(size & (size - 1) == 0 for size in tile)
    for extent, size in zip(extents[-len(tile) : -1], tile[:-1], strict=True):
        assert -(-extent // size) * size <= 1.5 * extent + 1
