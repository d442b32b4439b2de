"""Watching a run: clean kernels compute what they say with nothing to report, and each dropped barrier shows."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile import sampled_run
from tessera.ir.tile.interpret import Observer, TileRun, run_kernel
from tessera.ir.tile.language import TileRegion
from tessera.ir.tile.passes.check_barriers import find_worker_race
from tessera.ir.tile.sampled_run import RaceObserver, grown_sizes, sampled_conflict, sampled_worker_race
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32, i32, i64
from tessera.types.shape import TensorType
from tests.tile import shared_kernels
from tests.tile.kernels import M, N, verify_kernel
from tests.tile.shared_kernels import CASES, A, Lined
from tests.tile.test_check_barriers import MUTANTS, barriers, with_shared, without


@pytest.mark.parametrize("name", CASES)
def test_clean_kernels_run_to_the_end(name: str) -> None:
    case = CASES[name]
    observer = RaceObserver()
    buffers = case.buffers(np.random.default_rng(0), case.sizes)
    wanted = case.wanted(*[buffer.copy() for buffer in buffers[:-1]])
    run_kernel(case.make(), buffers, case.sizes, observer=observer)
    np.testing.assert_array_equal(buffers[-1], wanted)
    assert observer.race is None


@pytest.mark.parametrize(("name", "number"), MUTANTS)
def test_every_dropped_barrier_shows(name: str, number: int) -> None:
    case = CASES[name]
    buffers = case.buffers(np.random.default_rng(0), case.sizes)
    with pytest.raises(RaceError, match="no barrier stands between"):
        run_kernel(without(case.make(), number), buffers, case.sizes, observer=RaceObserver())


def test_any_observer_sees_barriers() -> None:
    class Count(Observer):
        seen = 0

        def before(self, run: TileRun, op: SpecOp) -> None:
            self.seen += op.name == "ttile.barrier"

    observer = Count()
    run_kernel(shared_kernels.heat(), [np.zeros(18, np.float32)] * 2, {"N": 16, "K": 3}, observer=observer)
    assert observer.seen == 2 * (1 + 2 * 3)


def test_the_data_at_hand_decides() -> None:
    kernel = without(shared_kernels.histogram(), barriers(shared_kernels.histogram())[0])
    keys = np.full((1, 1), 5)
    with pytest.raises(RaceError, match=r"write and then add to cell \[5\]"):
        run_kernel(kernel, [keys, np.zeros((1, 16), np.int32)], {"M": 1, "N": 1}, observer=RaceObserver())
    none = np.zeros((1, 0), np.int64)
    run_kernel(kernel, [none, np.zeros((1, 16), np.int32)], {"M": 1, "N": 0}, observer=RaceObserver())


def test_a_program_does_not_race_the_one_before_it() -> None:
    """The last access of a program and the first of the next have no barrier between, and other memory."""
    b = Lined("programs", [], symbols=[], grid=[3], writes=[], kind="map")
    region = TileRegion({"a": b.index(0)}, ("a",), (8,))
    shared = b.scratch([8], f32, space="shared")
    b.store(b.full(0.0, (8,), f32), shared, [A], region)
    b.barrier()
    b.load(shared, [7 - A], region)
    run_kernel(b.finish(), [], {}, observer=RaceObserver())


@pytest.mark.parametrize(("dtype", "mode", "is_clean"), [(i32, "add", True), (f32, "add", False), (i32, "set", False)])
def test_integer_adds_need_no_order(dtype: DType, mode: str, is_clean: bool) -> None:
    b = Lined("sums", [], symbols=[], grid=[], writes=[], kind="map")
    zero = b.index(0)
    shared = b.scratch([8], dtype, space="shared")
    for width in (8, 4):
        ones = b.full(1, (width,), dtype)
        b.store(ones, shared, [A], TileRegion({"a": zero}, ("a",), (width,)), mode=mode)
    kernel = b.finish()
    if is_clean:
        run_kernel(kernel, [], {}, observer=RaceObserver())
    else:
        with pytest.raises(RaceError, match="both write cell"):
            run_kernel(kernel, [], {}, observer=RaceObserver())


def test_one_store_may_not_write_a_cell_twice() -> None:
    def body(b: Lined, shared: SSAValue, region: TileRegion) -> None:
        b.store(b.coordinate_of(A, region), shared, [A % 4], region)

    with pytest.raises(RaceError) as caught:
        run_kernel(with_shared(body), [], {}, observer=RaceObserver())
    assert caught.value.message.startswith("two workers of `@small` both write cell [0]")
    assert caught.value.notes[:2] == (
        "first shared.py:4:1 writes at element [0] of a tile [8]",
        "then shared.py:4:1 writes at element [4] of a tile [8]",
    )


def test_a_write_races_the_second_of_two_readers() -> None:
    """The first reader of each cell is its writer; only the other one clashes."""

    def body(b: Lined, shared: SSAValue, region: TileRegion) -> None:
        b.store(b.coordinate_of(A, region), shared, [A], region)
        b.barrier()
        for index in (A, A, 7 - A):
            b.load(shared, [index], region)
        b.store(b.coordinate_of(A, region), shared, [A], region)

    observer = RaceObserver()
    with pytest.raises(RaceError, match=r"read and then write cell \[0\]"):
        run_kernel(with_shared(body), [], {}, observer=observer)
    assert observer.race is not None
    assert (observer.race.first.element, observer.race.second.element) == ((7,), (0,))


@pytest.mark.parametrize("second", ["atomic_add", "atomic_max", "atomic_min", "add"])
@pytest.mark.parametrize("first", ["atomic_add", "atomic_max", "atomic_min"])
def test_atomics_of_two_modes_need_a_barrier(first: str, second: str) -> None:
    b = Lined("sums", [], symbols=[], grid=[], writes=[], kind="map")
    zero = b.index(0)
    shared = b.scratch([8], i32, space="shared")
    for width, mode in ((8, first), (4, second)):
        ones = b.full(1, (width,), i32)
        b.store(ones, shared, [A], TileRegion({"a": zero}, ("a",), (width,)), mode=mode)
    kernel = b.finish()
    is_clean = first == second or {first, second} == {"atomic_add", "add"}
    assert (find_worker_race(kernel) is None) == is_clean
    if is_clean:
        run_kernel(kernel, [], {}, observer=RaceObserver())
        return
    with pytest.raises(RaceError, match=r"two workers of `@sums` \w+( to)? and then \w+( to)? cell"):
        run_kernel(kernel, [], {}, observer=RaceObserver())


def test_what_helps_depends_on_where_the_two_stand() -> None:
    def fix(kernel: SpecOp) -> str:
        race = find_worker_race(kernel)
        assert race is not None
        found = race.error(kernel).fix
        assert found is not None
        return found.message

    transposed = shared_kernels.transpose()
    assert fix(without(transposed, barriers(transposed)[0])) == "put a barrier between the two"
    around = "put a barrier between the two, where the loop goes from one step to the next"
    assert fix(shared_kernels.reversed_blocks(1)) == around

    def body(b: Lined, shared: SSAValue, region: TileRegion) -> None:
        b.store(b.coordinate_of(A, region), shared, [A % 4], region)

    assert fix(with_shared(body)) == "let every element write a cell of its own"


@pytest.mark.parametrize(
    ("grid", "size"), [([N], 3), ([N.ceildiv(8)], 15), ([N.ceildiv(3)], 7), ([N, M.ceildiv(16)], 31), ([], 3), ([4], 3)]
)
def test_sizes_grow_until_every_axis_has_two_programs(grid: list[Dim | int], size: int) -> None:
    b = Lined("grid", [], symbols=["M", "N"], grid=grid, writes=[], kind="map")
    assert grown_sizes(b.finish()) == {"M": size, "N": size}


def turns(step: int) -> SpecOp:
    """Two halves of shared memory take turns, so that only the third step comes to cells of the first."""
    b = Lined("turns", [], symbols=["N"], grid=[], writes=[], kind="map")
    zero, turn = b.index(0), Dim.symbol("k") // step
    shared = b.scratch([16], i64, space="shared")

    def body(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"a": zero, "k": k}, ("a",), (8,))
        b.store(b.full(1, (8,), i64), shared, [turn % 2 * 8 + (A + turn // 2) % 8], region)
        return carried

    b.loop(zero, b.index(N), step, body)
    return verify_kernel(b.finish())


@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_run_takes_three_steps_of_a_loop_at_the_smallest_size_that_has_them(step: int) -> None:
    race = sampled_worker_race(turns(step))
    assert race is not None
    assert race.sizes == (("N", 2 * step + 1),)
    assert (race.first.steps, race.second.steps) == ((0,), (2 * step,))


def test_a_run_is_watched_for_a_while_only() -> None:
    with patch.object(sampled_run, "_MOST_ACCESSES", 3):
        assert sampled_worker_race(turns(1)) is None
    with patch.object(sampled_run, "_MOST_ACCESSES", 4):
        assert sampled_worker_race(turns(1)) is not None


@pytest.mark.parametrize(("less", "is_clean"), [(2, False), (3, True), (4, True)])
def test_sizes_at_which_a_buffer_has_no_cell_show_nothing(less: int, is_clean: bool) -> None:
    b = Lined("less", [TensorType.of([N - less], i32)], symbols=["N"], grid=[N], writes=[0], kind="map")
    b.store(b.full(1, (), i32), b.arguments[0], [A], TileRegion({"a": b.index(0)}))
    assert (sampled_conflict(verify_kernel(b.finish())) is None) == is_clean


def test_a_run_looks_into_loops_that_carry_floats() -> None:
    """Every program writes out[0] in each step of a loop that carries a float."""
    b = Lined("carried", [TensorType.of([1], f32)], symbols=[], grid=[2], writes=[0], kind="map")
    region = TileRegion({"i": b.program_id(0)})

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        b.store(carried[0], b.arguments[0], [Dim.constant(0)], region)
        return carried

    b.loop(b.index(0), b.index(2), 1, step, [b.full(1.0, (), f32)])
    conflict = sampled_conflict(verify_kernel(b.finish()))
    assert conflict is not None
    assert (conflict.first.program, conflict.second.program) == ((0,), (1,))


def test_the_first_of_two_conflicts_of_one_access_is_kept() -> None:
    b = Lined("pair", [TensorType.of([2], i32)], symbols=[], grid=[2], writes=[0], kind="map")
    (cells,) = b.arguments
    b.load(cells, [A], TileRegion({"a": b.index(0)}, ("a",), (2,)))
    for place in (0, 1):
        b.store(b.full(1, (), i32), cells, [A], TileRegion({"a": b.index(place)}))
    kernel = verify_kernel(b.finish())
    conflict = sampled_conflict(kernel)
    assert conflict is not None
    stores = [op for op in kernel.walk() if op.name == "ttile.store"]
    assert (conflict.first.op, conflict.second.op.name, conflict.cell) == (stores[0], "ttile.load", 0)


@pytest.mark.parametrize("extent", [1, 2, 8])
def test_indices_that_a_run_makes_up_stay_in_the_smallest_shared_memory(extent: int) -> None:
    """Numbers beyond it would end the run before it shows that workers write one cell."""
    b = Lined("gathered", [TensorType.of([9], i64)], symbols=[], grid=[], writes=[], kind="map")
    region = TileRegion({"a": b.index(0)}, ("a",), (9,))
    b.scratch([16], i64, space="shared")
    shared = b.scratch([extent], i64, space="shared")
    places = b.load(b.arguments[0], [A], region)
    b.store(b.full(1, (9,), i64), shared, [Dim.symbol("t0")], region, indices=[places])
    race = sampled_worker_race(verify_kernel(b.finish()))
    assert race is not None
    assert (race.first.element, race.second.element, race.cell) == ((0,), (extent,), (0,))
