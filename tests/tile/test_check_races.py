"""Races: two programs on one cell are found with both lines, and clean kernels give no report."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.passes.check_races import CheckRaces, find_race
from tessera.ir.tile.sampled_run import sampled_conflict
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i64
from tessera.types.shape import TensorType
from tests.tile import kernels
from tests.tile.kernels import COLUMN, ROW, M, N
from tests.tile.test_check_bounds import flat_copy


def test_clean_kernels_give_no_report() -> None:
    for kernel in (kernels.double(), kernels.gemm(), kernels.softmax(), flat_copy(ROW * N + COLUMN)):
        assert find_race(kernel) is None
        assert sampled_conflict(kernel) is None


def test_a_store_without_its_program_is_found() -> None:
    race = find_race(kernels.double(store=ROW % 8))
    assert race is not None
    assert race.programs[0] != race.programs[1]
    assert race.first is race.second


def test_it_is_found_by_running_too() -> None:
    conflict = sampled_conflict(kernels.double(store=ROW % 8))
    assert conflict is not None
    assert (conflict.first.program, conflict.second.program, conflict.cell) == ((0,), (1,), 0)


def test_strides_that_are_free_sizes_are_tried_at_small_ones() -> None:
    assert find_race(flat_copy(ROW * (N - 1) + COLUMN)) is not None
    assert find_race(flat_copy(COLUMN)) is not None


def neighbours(*, in_place: bool) -> SpecOp:
    """out[i] = x[i] + x[i + 1], or the same into x: a program may read what the one after it has written."""
    line = TensorType.of([N + 1], f32)
    b = TileBuilder("next", [line, line], symbols=["N"], grid=[N], writes=[0 if in_place else 1], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    b.span = kernels.span(1)
    left = b.load(b.arguments[0], [ROW], region)
    b.span = kernels.span(2)
    right = b.load(b.arguments[0], [ROW + 1], region)
    b.span = kernels.span(3)
    b.store(b.elementwise("add", left, right), b.arguments[0 if in_place else 1], [ROW], region)
    return kernels.verify_kernel(b.finish())


def test_a_read_of_what_another_program_writes_is_found_with_both_lines() -> None:
    assert find_race(neighbours(in_place=False)) is None
    parent = neighbours(in_place=True).parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(RaceError) as caught:
        CheckRaces().run(parent)
    assert caught.value.message == "programs [0] and [1] of `@next` read and write one cell of argument 0"
    assert caught.value.span == kernels.span(3)
    assert caught.value.notes == ("the cell written is `[i]`", "the lines are kernels.py:2:1 and kernels.py:3:1")


def scatter(by_column: bool) -> SpecOp:
    """out[where[i], j] = x[i, j], programs over i or over j."""
    types = [TensorType.of([M, N], f32), TensorType.of([M], i64), TensorType.of([M, N], f32)]
    grid, outer, inner = ([N], "j", "i") if by_column else ([M], "i", "j")
    b = TileBuilder("scatter", types, symbols=["M", "N"], grid=grid, writes=[2], kind="library")
    program = b.program_id(0)
    at = {"i": ROW, "j": COLUMN}

    def step(inside: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({outer: program, inner: inside})
        where = b.load(b.arguments[1], [at["i"]], region)
        x = b.load(b.arguments[0], [at["i"], at["j"]], region)
        b.store(x, b.arguments[2], [Dim.symbol("t0"), at["j"]], region, indices=[where])
        return []

    b.loop(b.index(0), b.index(M if by_column else N), 1, step)
    return kernels.verify_kernel(b.finish())


def test_scattered_rows_race_and_scattered_columns_do_not() -> None:
    assert find_race(scatter(by_column=False)) is not None
    assert find_race(scatter(by_column=True)) is None


def accumulate(*modes: str, by_index: bool = False) -> SpecOp:
    """Every program changes out[0], or out[where[i]], once in each mode."""
    types = [TensorType.of([M], i64), TensorType.of([M], f32)]
    b = TileBuilder("sums", types, symbols=["M"], grid=[M], writes=[1], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    index = b.load(b.arguments[0], [ROW], region)
    one = b.full(1.0, (), f32)
    for mode in modes:
        if by_index:
            b.store(one, b.arguments[1], [Dim.symbol("t0")], region, mode=mode, indices=[index])
        else:
            b.store(one, b.arguments[1], [Dim.constant(0)], region, mode=mode)
    return kernels.verify_kernel(b.finish())


ATOMICS = ("atomic_add", "atomic_max", "atomic_min")


@pytest.mark.parametrize("by_index", [False, True])
@pytest.mark.parametrize("first", ATOMICS)
@pytest.mark.parametrize("second", ATOMICS)
def test_atomics_of_one_mode_are_in_any_order_and_of_two_are_not(first: str, second: str, by_index: bool) -> None:
    """max(x + 1, 3) is not max(x, 3) + 1; where indices come from memory, a run shows it."""
    kernel = accumulate(first, second, by_index=by_index)
    race = find_race(kernel)
    assert (race is None) == (first == second)
    assert (sampled_conflict(kernel) is None) == (first == second)
    if race is not None:
        assert race.programs[0] != race.programs[1]


@pytest.mark.parametrize("mode", ATOMICS)
def test_an_atomic_and_a_plain_store_race(mode: str) -> None:
    for kernel in (accumulate(mode, "set"), accumulate(mode, "set", by_index=True)):
        assert find_race(kernel) is not None


def store_then_read(*, own: bool) -> SpecOp:
    """x[i] = 1, then out[i] = x[i], or x of the next program: a store stands before the load that it races with."""
    line = TensorType.of([N + 1], f32)
    b = TileBuilder("after", [line, line], symbols=["N"], grid=[N], writes=[0, 1], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    b.store(b.full(1.0, (), f32), b.arguments[0], [ROW], region)
    b.store(b.load(b.arguments[0], [ROW if own else ROW + 1], region), b.arguments[1], [ROW], region)
    return kernels.verify_kernel(b.finish())


def test_a_read_behind_the_store_that_it_races_with_is_found() -> None:
    assert find_race(store_then_read(own=True)) is None
    race = find_race(store_then_read(own=False))
    assert race is not None
    assert (race.first.name, race.second.name) == ("ttile.store", "ttile.load")
