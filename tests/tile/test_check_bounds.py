"""Bounds: what is proven, what is refuted with sizes that show it, and what stays unknown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.indexing import known_ends
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.passes.check_bounds import PROVEN, REFUTED, UNKNOWN, CheckBounds, examine
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.tile import kernels
from tests.tile.kernels import COLUMN, ROW, K, M, N
from tests.tile.test_interpret import gather


def verdicts(kernel: SpecOp) -> list[str]:
    return [finding.verdict for finding in examine(kernel)]


def flat_copy(map: Dim, *, bound: Dim = N, width: int = 8, extent: Dim = M * N) -> SpecOp:
    """Rows of a matrix that is one long buffer: a row a program, strides that are symbolic dims."""
    matrix = TensorType.of([extent], f32)
    b = TileBuilder("flat", [matrix, matrix], symbols=["M", "N"], grid=[M], writes=[1], kind="map")
    row = b.program_id(0)

    def step(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "j": j}, ("j",), (width,), {"j": bound})
        b.store(b.load(b.arguments[0], [map], region), b.arguments[1], [map], region)
        return []

    b.loop(b.index(0), b.index(N), width, step)
    return kernels.verify_kernel(b.finish())


def test_clean_kernels_are_proven() -> None:
    clean = (kernels.double(), kernels.gemm(), kernels.softmax(), flat_copy(ROW * N + COLUMN))
    for kernel in clean:
        assert set(verdicts(kernel)) == {PROVEN}


def test_a_grid_of_one_axis_taken_apart_is_proven() -> None:
    matrix = TensorType.of([M, K], f32)
    b = TileBuilder("apart", [matrix, matrix], symbols=["M", "K"], grid=[M * K], writes=[1], kind="map")
    region = TileRegion({"p": b.program_id(0)})
    at = [Dim.symbol("p") // K, Dim.symbol("p") % K]
    b.store(b.load(b.arguments[0], at, region), b.arguments[1], at, region)
    assert set(verdicts(kernels.verify_kernel(b.finish()))) == {PROVEN}


def test_a_window_proves_a_shifted_index() -> None:
    line = TensorType.of([M, N], f32)
    b = TileBuilder("shift", [line, line], symbols=["M", "N"], grid=[M], writes=[1], kind="map")
    region = TileRegion({"i": b.program_id(0), "j": b.index(0)}, ("j",), (4,), {"j": N})
    left = b.load(b.arguments[0], [ROW, COLUMN * 2 - 3], region, windows=[COLUMN * 2 - 3, N])
    b.store(left, b.arguments[1], [ROW, COLUMN], region)
    assert set(verdicts(kernels.verify_kernel(b.finish()))) == {PROVEN}


@pytest.mark.parametrize(
    ("kernel", "wanted", "index"),
    [
        (kernels.double(bound=None), {"N": 7, "%p0": 0}, 7),
        (kernels.double(store=ROW + 1), {"N": 1, "%p0": 0}, 1),
        (kernels.double(store=ROW - 1), {"N": 1, "%p0": 0}, -1),
    ],
)
def test_a_mistake_comes_with_sizes_that_show_it(kernel: SpecOp, wanted: dict[str, int], index: int) -> None:
    (finding, *_) = [finding for finding in examine(kernel) if finding.verdict == REFUTED]
    values = dict(finding.values)
    assert values["index"] == index
    assert {name: values[name] for name in wanted} == wanted
    x = np.zeros(values["N"], np.float32)
    with pytest.raises(BoundsError, match=f"index {index} of dim 0"):
        run_kernel(kernel, [x, x.copy()], {"N": values["N"]})


def test_the_error_names_kernel_index_and_range() -> None:
    kernel = kernels.double(store=ROW + 1)
    parent = kernel.parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(BoundsError) as caught:
        CheckBounds().run(parent)
    assert caught.value.message == "`@double` writes dim 0 at `i + 1`, which leaves 0..N - 1"
    assert caught.value.span == kernels.span(4)
    assert caught.value.notes == ("index 1 at element [0] of the tile, in program [0], N = 1",)


def test_an_index_read_from_memory_stays_unknown() -> None:
    found = verdicts(gather())
    assert found.count(UNKNOWN) == 1
    assert REFUTED not in found
    parent = gather().parent_op()
    assert isinstance(parent, ModuleOp)
    CheckBounds().run(parent)
    with pytest.raises(BoundsError, match=r"nothing proves that it stays in 0\.\.2"):
        CheckBounds(strict=True).run(parent)


def test_sizes_that_callers_make_equal_are_no_mistake() -> None:
    b = TileBuilder(
        "two", [TensorType.of([M], f32), TensorType.of([N], f32)], symbols=["M", "N"], grid=[N], writes=[1], kind="map"
    )
    region = TileRegion({"i": b.program_id(0)})
    b.store(b.load(b.arguments[0], [ROW], region), b.arguments[1], [ROW], region)
    kernel = kernels.verify_kernel(b.finish())
    assert verdicts(kernel) == [UNKNOWN, PROVEN]
    assert [finding.verdict for finding in examine(kernel, [(M, N)])] == [PROVEN, PROVEN]


_SHIFTS = st.integers(-2, 2)


@given(_SHIFTS, st.integers(1, 3), st.sampled_from([None, N, N - 1, N + 1]), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_proofs_and_refutations_agree_with_running(shift: int, scale: int, bound: Dim | None, size: int) -> None:
    kernel = kernels.double(bound=bound, store=ROW * scale + shift, block=4)
    found = verdicts(kernel)
    x = np.zeros(size, np.float32)
    try:
        run_kernel(kernel, [x, x.copy()], {"N": size})
        failed = False
    except BoundsError:
        failed = True
    assert UNKNOWN not in found
    if failed:
        assert REFUTED in found
    if REFUTED in found:
        values = dict(next(finding for finding in examine(kernel) if finding.verdict == REFUTED).values)
        y = np.zeros(values["N"], np.float32)
        with pytest.raises(BoundsError):
            run_kernel(kernel, [y, y.copy()], {"N": values["N"]})


def test_sizes_that_only_callers_compare_are_no_mistake() -> None:
    """M rows of a buffer of N: whether they fit is for the caller to keep; rows beyond the only size are a mistake."""

    def copy(extent: Dim, *symbols: str) -> SpecOp:
        line = TensorType.of([extent], f32)
        b = TileBuilder("rows", [line, line], symbols=list(symbols), grid=[M], writes=[1], kind="map")
        region = TileRegion({"i": b.program_id(0)})
        b.store(b.load(b.arguments[0], [ROW], region), b.arguments[1], [ROW], region)
        return kernels.verify_kernel(b.finish())

    assert set(verdicts(copy(N, "M", "N"))) == {UNKNOWN}
    assert set(verdicts(copy(M, "M"))) == {PROVEN}
    assert REFUTED in verdicts(copy(M - 1, "M"))


def test_a_grid_of_one_program_more_than_a_size_may_be_of_none() -> None:
    """Of N programs there is one only where N is 1 and more, and of N + 1 there is one where N is 0."""

    def first_cell(grid: Dim) -> SpecOp:
        line = TensorType.of([N], f32)
        b = TileBuilder("first", [line, line], symbols=["N"], grid=[grid], writes=[1], kind="map")
        region = TileRegion({"i": b.program_id(0)})
        b.store(b.load(b.arguments[0], [Dim.constant(0)], region), b.arguments[1], [ROW * 0], region)
        return kernels.verify_kernel(b.finish())

    assert set(verdicts(first_cell(N))) == {PROVEN}
    assert PROVEN not in verdicts(first_cell(N + 1))


@pytest.mark.parametrize(
    ("low", "high", "ends"), [(0, 8, (0, 8)), (3, N, None), (N, 9, None), (M, N, None), (2, 2, (2, 2))]
)
def test_ends_of_a_loop_are_known_where_both_are_numbers(
    low: Dim | int, high: Dim | int, ends: tuple[int, int] | None
) -> None:
    b = TileBuilder("loop", [], symbols=["M", "N"], grid=[], writes=[], kind="map")
    b.loop(b.index(low), b.index(high), 1, lambda index, carried: [])
    (loop,) = [op for op in b.finish().walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
    assert known_ends(loop) == ends


def read_at(index: Dim, extent: Dim, *, grid: Dim, symbols: list[str]) -> SpecOp:
    """One element read by each program."""
    b = TileBuilder("read", [TensorType.of([extent], f32)], symbols=symbols, grid=[grid], writes=[], kind="map")
    b.load(b.arguments[0], [index], TileRegion({"i": b.program_id(0)}))
    return kernels.verify_kernel(b.finish())


def test_a_mistake_is_one_that_no_fact_about_sizes_excuses() -> None:
    """Callers may know that one size is as large as another, or that it is not small; they cannot make 4 be below 4."""
    one, four = Dim.constant(1), Dim.constant(4)
    assert verdicts(read_at(ROW + M, N, grid=N, symbols=["M", "N"])) == [UNKNOWN]
    assert verdicts(read_at(Dim.constant(3), N, grid=one, symbols=["N"])) == [UNKNOWN]
    assert verdicts(read_at(ROW + 1, N, grid=N, symbols=["N"])) == [REFUTED]
    assert verdicts(read_at(Dim.constant(3), four, grid=one, symbols=[])) == [PROVEN]
    assert verdicts(read_at(four, four, grid=one, symbols=[])) == [REFUTED]


def test_an_example_without_sizes_names_none() -> None:
    parent = read_at(ROW, Dim.constant(4), grid=Dim.constant(5), symbols=[]).parent_op()
    assert isinstance(parent, ModuleOp)
    with pytest.raises(BoundsError) as caught:
        CheckBounds().run(parent)
    assert caught.value.notes == ("index 4 at element [] of the tile, in program [4]",)


def test_a_finding_is_of_its_own_dim() -> None:
    """Intervals prove the first dim, sets the second."""
    b = TileBuilder("dims", [TensorType.of([M, N], f32)], symbols=["M", "N"], grid=[M], writes=[], kind="map")
    region = TileRegion({"i": b.program_id(0), "j": b.index(0)}, ("j",), (4,), {"j": N})
    b.load(b.arguments[0], [ROW, COLUMN * 2 - 3], region, windows=[COLUMN * 2 - 3, N])
    found = examine(kernels.verify_kernel(b.finish()))
    assert [(one.dim, one.verdict, one.site.verb) for one in found] == [(0, PROVEN, "reads"), (1, PROVEN, "reads")]
