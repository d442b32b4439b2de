"""Races: two programs on one cell are found with both lines, and clean kernels give no report."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.passes import check_races
from tessera.ir.tile.passes.check_races import CheckRaces, Race, find_race
from tessera.ir.tile.sampled_run import sampled_conflict
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import f32, i64
from tessera.types.shape import TensorType
from tests.tile import kernels
from tests.tile.kernels import COLUMN, ROW, M, N
from tests.tile.test_check_bounds import flat_copy
from tests.tile.test_interpret import gather


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


def decide(kernel: SpecOp) -> Race | None:
    """What formulas alone say; fails where they say nothing."""

    def refuse(kernel: SpecOp) -> None:
        raise AssertionError(f"`@{kernel.value('symbol')}` had to be run")

    with patch.object(check_races, "sampled_conflict", refuse):
        return find_race(kernel)


def test_strides_of_symbolic_dims_are_decided_without_a_run() -> None:
    assert decide(flat_copy(ROW * N + COLUMN)) is None
    assert decide(flat_copy(ROW * (N - 1) + COLUMN)) is not None
    assert decide(kernels.gemm()) is None
    with pytest.raises(AssertionError, match="had to be run"):
        decide(scatter(by_column=False))


def test_a_pair_that_formulas_leave_open_is_tried_whatever_comes_behind_it() -> None:
    """out[where[i]] = 1 races; what stands behind it, other[i] = 1, does not, and is decided."""
    types = [TensorType.of([M], i64), TensorType.of([M], f32), TensorType.of([M], f32)]
    b = TileBuilder("both", types, symbols=["M"], grid=[M], writes=[1, 2], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    one, where = b.full(1.0, (), f32), b.load(b.arguments[0], [ROW], region)
    b.store(one, b.arguments[1], [Dim.symbol("t0")], region, indices=[where])
    b.store(one, b.arguments[2], [ROW], region)
    race = find_race(kernels.verify_kernel(b.finish()))
    assert race is not None
    assert race.argument == 1


def test_a_race_that_a_run_shows_names_both_accesses_in_order() -> None:
    """x[i] = 1 and then out[i] = x[where[i]]: with zeros there, every program reads what the first one wrote."""
    types = [TensorType.of([M], i64), TensorType.of([M], f32), TensorType.of([M], f32)]
    b = TileBuilder("look", types, symbols=["M"], grid=[M], writes=[1, 2], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    where = b.load(b.arguments[0], [ROW], region)
    b.store(b.full(1.0, (), f32), b.arguments[1], [ROW], region)
    b.store(b.load(b.arguments[1], [Dim.symbol("t0")], region, indices=[where]), b.arguments[2], [ROW], region)
    race = find_race(kernels.verify_kernel(b.finish()))
    assert race is not None
    assert (race.first.name, race.second.name, race.argument) == ("ttile.store", "ttile.load", 1)
    assert race.programs == ((0,), (1,))


def test_a_run_shows_a_write_of_what_another_program_has_read() -> None:
    conflict = sampled_conflict(neighbours(in_place=True))
    assert conflict is not None
    assert (conflict.first.op.name, conflict.second.op.name) == ("ttile.load", "ttile.store")
    assert (conflict.first.program, conflict.second.program, conflict.cell) == ((0,), (1,), 1)
    assert sampled_conflict(neighbours(in_place=False)) is None
    assert sampled_conflict(gather()) is None, "scratch is its own program's"


@pytest.mark.parametrize("is_read_first", [False, True])
def test_what_is_read_by_an_index_from_memory_races_only_where_a_run_shows_it(is_read_first: bool) -> None:
    """x[i + 1] = 1 and out[i] = x[where[i]]: as far as formulas know, any cell may be read; zeros there read x[0]."""
    types = [TensorType.of([M], i64), TensorType.of([M + 1], f32), TensorType.of([M], f32)]
    b = TileBuilder("apart", types, symbols=["M"], grid=[M], writes=[1, 2], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    where = b.load(b.arguments[0], [ROW], region)
    if not is_read_first:
        b.store(b.full(1.0, (), f32), b.arguments[1], [ROW + 1], region)
    read = b.load(b.arguments[1], [Dim.symbol("t0")], region, indices=[where])
    if is_read_first:
        b.store(b.full(1.0, (), f32), b.arguments[1], [ROW + 1], region)
    b.store(read, b.arguments[2], [ROW], region)
    assert find_race(kernels.verify_kernel(b.finish())) is None


def test_programs_that_only_unequal_sizes_bring_together_do_not_race() -> None:
    """out[min(i, N - 1)] = 1 for i < M: a caller may know that M is at most N."""
    b = TileBuilder("cut", [TensorType.of([N], f32)], symbols=["M", "N"], grid=[M], writes=[0], kind="map")
    region = TileRegion({"i": b.program_id(0)})
    b.store(b.full(1.0, (), f32), b.arguments[0], [minimum(ROW, N - 1)], region)
    assert decide(kernels.verify_kernel(b.finish())) is None


def test_the_first_programs_that_race_are_named_in_order() -> None:
    b = TileBuilder("one", [TensorType.of([1], f32)], symbols=[], grid=[4], writes=[0], kind="map")
    b.store(b.full(1.0, (), f32), b.arguments[0], [Dim.constant(0)], TileRegion({"i": b.program_id(0)}))
    race = find_race(kernels.verify_kernel(b.finish()))
    assert race is not None
    assert race.programs == ((0,), (1,))


def test_accesses_with_symbolic_strides_are_named_in_order() -> None:
    """x[i, j] = x[i + 1, j], rows of N in one line of memory."""
    b = TileBuilder("up", [TensorType.of([(M + 1) * N], f32)], symbols=["M", "N"], grid=[M, N], writes=[0], kind="map")
    region = TileRegion({"i": b.program_id(0), "j": b.program_id(1)})
    x = b.load(b.arguments[0], [(ROW + 1) * N + COLUMN], region)
    b.store(x, b.arguments[0], [ROW * N + COLUMN], region)
    race = decide(kernels.verify_kernel(b.finish()))
    assert race is not None
    assert (race.first.name, race.second.name) == ("ttile.load", "ttile.store")


def test_lines_are_shown_where_they_are_known_and_are_two() -> None:
    (alone,) = _notes(kernels.double(store=ROW % 8))
    assert alone == "the cell written is `[(i mod 8)]`"
    assert _notes(store_then_read(own=False)) == ("the cell written is `[i]`",), "no op of this kernel has a line"


def _notes(kernel: SpecOp) -> tuple[str, ...]:
    parent = kernel.parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(RaceError) as caught:
        CheckRaces().run(parent)
    return tuple(caught.value.notes)
