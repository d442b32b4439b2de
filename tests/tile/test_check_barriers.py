"""Barriers: none can be dropped from kernels that share memory, none is asked for in vain, proofs agree with runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileRegion
from tessera.ir.tile.passes import check_barriers
from tessera.ir.tile.passes.check_barriers import CheckBarriers, find_worker_race
from tessera.ir.tile.passes.check_bounds import CheckBounds
from tessera.ir.tile.passes.check_policy import CheckPolicy
from tessera.ir.tile.passes.check_races import CheckRaces
from tessera.ir.tile.pipeline import pipeline
from tessera.ir.tile.sampled_run import RaceObserver, WorkerRace
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i32, i64
from tests.tile import kernels, shared_kernels
from tests.tile.kernels import verify_kernel
from tests.tile.shared_kernels import CASES, A, Lined


def barriers(kernel: SpecOp) -> list[int]:
    return [number for number, op in enumerate(kernel.walk()) if op.name == "ttile.barrier"]


def without(kernel: SpecOp, number: int) -> SpecOp:
    """A copy that lacks one op."""
    copy = kernel.clone()
    list(copy.walk())[number].detach()
    return verify_kernel(copy)


MUTANTS = [(name, number) for name, case in CASES.items() for number in barriers(case.make())]


def decide(kernel: SpecOp) -> WorkerRace | None:
    """What formulas alone say; fails where they say nothing."""

    def refuse(kernel: SpecOp) -> WorkerRace | None:
        raise AssertionError(f"`@{kernel.value('symbol')}` had to be run")

    with patch.object(check_barriers, "sampled_worker_race", refuse):
        return find_worker_race(kernel)


@pytest.mark.parametrize("name", CASES)
def test_clean_kernels_are_proven_for_all_sizes(name: str) -> None:
    assert decide(CASES[name].make()) is None


def test_there_are_many_mutants() -> None:
    assert len(CASES) >= 11
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize(("name", "number"), MUTANTS)
def test_every_dropped_barrier_is_noticed(name: str, number: int) -> None:
    race = find_worker_race(without(CASES[name].make(), number))
    assert race is not None
    assert race.first.op.span is not None
    assert race.second.op.span is not None


def test_one_buffer_and_one_barrier_is_a_race_around_the_loop() -> None:
    race = find_worker_race(shared_kernels.reversed_blocks(1))
    assert race is not None
    assert race.first.steps != race.second.steps
    assert find_worker_race(shared_kernels.reversed_blocks(2)) is None
    assert find_worker_race(shared_kernels.reversed_blocks(3)) is None


def test_the_error_names_lines_cell_and_elements() -> None:
    kernel = shared_kernels.transpose()
    parent = without(kernel, barriers(kernel)[0]).parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(RaceError) as caught:
        CheckBarriers().run(parent)
    error = caught.value
    assert error.message == (
        "two workers of `@transpose` write and then read cell [0, 1] of shared memory, and no barrier stands between"
    )
    assert str(error.span) == "shared.py:10:1"
    assert error.notes == (
        "first shared.py:8:1 writes at element [0, 1] of a tile [8, 8]",
        "then shared.py:10:1 reads at element [1, 0] of a tile [8, 8]",
        "in program [0, 0], M = 1, N = 1",
    )


def test_a_debug_build_checks() -> None:
    assert [type(one) for one in pipeline(debug=True)][-4:] == [CheckBounds, CheckRaces, CheckBarriers, CheckPolicy]
    assert not any(type(one) in (CheckBarriers, CheckBounds, CheckRaces) for one in pipeline())


def test_a_kernel_without_shared_memory_needs_no_barrier() -> None:
    for kernel in (kernels.double(), kernels.gemm(), kernels.softmax()):
        assert decide(kernel) is None


@pytest.mark.parametrize(("mode", "is_clean"), [("add", True), ("set", False)])
def test_elements_that_are_added_in_order_may_share_a_cell(mode: str, is_clean: bool) -> None:
    b = Lined("fold", [], symbols=[], grid=[], writes=[], kind="map")
    region = TileRegion({"a": b.index(0)}, ("a",), (8,))
    b.store(b.full(1.0, (8,), f32), b.scratch([8], f32, space="shared"), [A % 4], region, mode=mode)
    assert (decide(verify_kernel(b.finish())) is None) == is_clean


def with_shared(write: Callable[[Lined, SSAValue, TileRegion], None]) -> SpecOp:
    """A kernel of one program with eight shared integers."""
    b = Lined("small", [], symbols=[], grid=[], writes=[], kind="map")
    region = TileRegion({"a": b.index(0)}, ("a",), (8,))
    write(b, b.scratch([8], i64, space="shared"), region)
    return verify_kernel(b.finish())


def test_an_index_is_fetched_by_all_workers() -> None:
    def write(waits: bool) -> SpecOp:
        def body(b: Lined, shared: SSAValue, region: TileRegion) -> None:
            alone = TileRegion({"a": region.coords["a"]})
            b.store(b.full(3, (), i64), shared, [A], alone)
            # Whoever wrote it reads it as a tile of one element.
            b.load(shared, [A], alone)
            if waits:
                b.barrier()
            b.fetch(shared, [A], {"a": region.coords["a"]})

        return with_shared(body)

    assert find_worker_race(write(waits=True)) is None
    race = find_worker_race(write(waits=False))
    assert race is not None
    assert race.second.element is None
    assert "for all workers" in race.error(write(waits=False)).notes[1]
    with pytest.raises(RaceError):
        run_kernel(write(waits=False), [], {}, observer=RaceObserver())
    run_kernel(write(waits=True), [], {}, observer=RaceObserver())


@pytest.mark.parametrize(("mask", "is_clean"), [(0, True), (1, False)])
def test_what_no_formula_says_is_tried(mask: int, is_clean: bool) -> None:
    def body(b: Lined, shared: SSAValue, region: TileRegion) -> None:
        place_of = b.coordinate_of(A, region)
        b.store(place_of, shared, [A], region)
        partner = b.elementwise("xor", place_of, b.full(mask, (8,), i64))
        b.load(shared, [Dim.symbol("t0")], region, indices=[partner])

    kernel = with_shared(body)
    with pytest.raises(AssertionError, match="had to be run"):
        decide(kernel)
    assert (find_worker_race(kernel) is None) == is_clean


def shift_of(store: Dim, load: Dim) -> SpecOp:
    """Eight shared integers, written and then read by workers at their own places shifted by sizes alone."""
    b = Lined("sized", [], symbols=["M", "N"], grid=[], writes=[], kind="map")
    region = TileRegion({"a": b.index(0)}, ("a",), (8,))
    shared = b.scratch([8], i64, space="shared")
    b.store(b.coordinate_of(A, region), shared, [(A + store) % 8], region)
    b.load(shared, [(A + load) % 8], region)
    return verify_kernel(b.finish())


def test_a_product_of_sizes_is_one_number_for_all_accesses() -> None:
    M, N = Dim.symbol("M"), Dim.symbol("N")
    assert decide(shift_of(M * N, M * N)) is None
    assert find_worker_race(shift_of(M * N, M * N + 1)) is not None


def test_a_race_that_needs_different_sizes_is_not_reported() -> None:
    """Callers may rely on equal sizes, so it is tried, and where sizes are equal nothing shows."""
    M, N = Dim.symbol("M"), Dim.symbol("N")
    with pytest.raises(AssertionError, match="had to be run"):
        decide(shift_of(M, N))
    assert find_worker_race(shift_of(M, N)) is None
    assert decide(shift_of(M, N + 1)) is not None


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_barrier_of_which_it_is_unknown_how_often_it_comes_is_tried(is_clean: bool) -> None:
    """It may be there for all sizes, or for none: formulas say neither, and runs tell them apart."""
    M, N = Dim.symbol("M"), Dim.symbol("N")
    b = Lined("waits", [], symbols=["M", "N"], grid=[], writes=[], kind="map")
    region, zero = TileRegion({"a": b.index(0)}, ("a",), (8,)), b.index(0)
    shared = b.scratch([8], i64, space="shared")
    b.store(b.coordinate_of(A, region), shared, [A], region)

    def wait(step: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        b.barrier()
        return carried

    b.loop(zero, b.index(M * N + 1 if is_clean else M * N - M * M), 1, wait)
    b.load(shared, [7 - A], region)
    kernel = verify_kernel(b.finish())
    with pytest.raises(AssertionError, match="had to be run"):
        decide(kernel)
    assert (find_worker_race(kernel) is None) == is_clean


@pytest.mark.parametrize("is_before", [True, False])
def test_a_barrier_that_stands_on_one_side_of_both_decides_nothing(is_before: bool) -> None:
    """Whatever is unknown of it, a race is one by formulas alone."""
    b = Lined("aside", [], symbols=["M", "N"], grid=[], writes=[], kind="map")
    region, zero = TileRegion({"a": b.index(0)}, ("a",), (8,)), b.index(0)
    shared = b.scratch([8], i64, space="shared")

    def wait(step: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        b.barrier()
        return carried

    def wait_often() -> None:
        b.loop(zero, b.index(Dim.symbol("M") * Dim.symbol("N")), 1, wait)

    if is_before:
        wait_often()
    b.store(b.coordinate_of(A, region), shared, [A], region)
    b.load(shared, [7 - A], region)
    if not is_before:
        wait_often()
    assert decide(verify_kernel(b.finish())) is not None


# Random programs: what is proven never fails when run, and what is refuted fails at the sizes given.


@dataclass(frozen=True)
class Reach:
    """A store or load of `width` elements (one, where it is 0) at `(scale * a + pace * k + shift) mod 12`."""

    does: str
    width: int
    scale: int
    pace: int
    shift: int
    is_cut: bool


@dataclass(frozen=True)
class Loop:
    """So many steps, N where it is -1."""

    count: int
    body: tuple[Statement, ...]


Statement: TypeAlias = "Reach | Loop | None"

_REACHES = st.builds(
    Reach,
    st.sampled_from(["set", "set", "add", "load", "load"]),
    st.sampled_from([0, 4, 4, 8]),
    st.sampled_from([1, 1, -1, 2]),
    st.integers(0, 3),
    st.integers(0, 5),
    st.booleans(),
)
_FLAT = st.one_of(_REACHES, _REACHES, st.none())


def _blocks(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    bodies = st.lists(inner, min_size=1, max_size=4).map(tuple)
    return st.one_of(inner, st.builds(Loop, st.sampled_from([-1, -1, 2]), bodies))


PROGRAMS = st.lists(_blocks(_blocks(_FLAT)), min_size=2, max_size=5)


def build(statements: list[Statement], is_integer: bool) -> SpecOp:
    """Loops at any depth go by the innermost step."""
    dtype, N = (i32 if is_integer else f32), Dim.symbol("N")
    b = Lined("any", [], symbols=["N"], grid=[2], writes=[], kind="map")
    zero, ends = b.index(0), {-1: b.index(N), 2: b.index(2)}
    shared = b.scratch([12], dtype, space="shared")

    def write(statement: Statement, k: SSAValue) -> None:
        if statement is None:
            b.barrier()
        elif isinstance(statement, Loop):
            body = statement.body

            def step(inner: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
                for part in body:
                    write(part, inner)
                return carried

            b.loop(zero, ends[statement.count], 1, step)
        else:
            along = (("a",), (statement.width,)) if statement.width else ((), ())
            region = TileRegion({"a": zero, "k": k}, *along, {"a": N + 1} if statement.is_cut and along[0] else {})
            at = [(A * statement.scale + Dim.symbol("k") * statement.pace + statement.shift) % 12]
            if statement.does == "load":
                b.load(shared, at, region)
            else:
                b.store(b.full(1, region.sizes, dtype), shared, at, region, mode=statement.does)

    for statement in statements:
        write(statement, zero)
    return verify_kernel(b.finish())


def fails(kernel: SpecOp, size: int) -> bool:
    try:
        run_kernel(kernel, [], {"N": size}, observer=RaceObserver())
    except RaceError:
        return True
    return False


@given(PROGRAMS, st.booleans())
@settings(deadline=None)
def test_proofs_and_refutations_agree_with_running(statements: list[Statement], is_integer: bool) -> None:
    kernel = build(statements, is_integer)
    race = decide(kernel)
    if race is None:
        assert not any(fails(kernel, size) for size in range(6))
    else:
        assert fails(kernel, dict(race.sizes)["N"])


@given(PROGRAMS, st.booleans())
@settings(deadline=None)
def test_one_race_and_its_cell_are_real(statements: list[Statement], is_integer: bool) -> None:
    """Where running finds a race, both of its touches come to the cell that it names."""
    kernel = build(statements, is_integer)
    observer = RaceObserver()
    try:
        run_kernel(kernel, [], {"N": 4}, observer=observer)
    except RaceError:
        assert observer.race is not None
        for touch in (observer.race.first, observer.race.second):
            element = touch.element or (0,)
            names = {"a": element[0], "k": touch.steps[-1] if touch.steps else 0}
            assert observer.race.cell == tuple(expr.evaluate(names) for expr in touch.op.value("map"))
    else:
        assert observer.race is None
