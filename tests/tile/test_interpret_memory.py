"""What the interpreter does with memory: fetches, sorts, scratch, atomics and clips, against NumPy one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.interpret import Access, Observer, TileRun, run_kernel, sorted_order
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bool_, f32, i32, i64
from tessera.types.shape import TensorType
from tests.tile.kernels import COLUMN, ROW, N, double, verify_kernel
from tests.tile.test_softmax_ops import ran, rows_kernel


class Cells(Observer):
    """Keeps what each access touched."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, int | None, list[int]]] = []

    def access(self, run: TileRun, access: Access) -> None:
        assert access.buffer is access.op.operands[1 if access.is_store else 0]
        self.seen.append((access.op.name, access.program, access.argument, access.cells.tolist()))


def fetching() -> SpecOp:
    """out[i] = x[where[1, i]], where the index is fetched."""
    types = [TensorType.of([2, N], i64), TensorType.of([5], f32), TensorType.of([N], f32)]
    b = TileBuilder("fetching", types, symbols=["N"], grid=[N], writes=[2], kind="map")
    program = b.program_id(0)
    at = b.fetch(b.arguments[0], [Dim.constant(1), ROW], {"i": program})
    x = b.load(b.arguments[1], [COLUMN], TileRegion({"j": at}))
    b.store(x, b.arguments[2], [ROW], TileRegion({"i": program}))
    return verify_kernel(b.finish())


def test_an_index_is_fetched_from_its_cell() -> None:
    where = np.array([[9, 9, 9], [4, 0, 2]])
    x, out, cells = np.arange(5, dtype=np.float32) * 10, np.zeros(3, np.float32), Cells()
    run_kernel(fetching(), [where, x, out], {"N": 3}, observer=cells)
    assert out.tolist() == [40, 0, 20]
    assert [one for one in cells.seen if one[0] == "ttile.fetch"] == [
        ("ttile.fetch", (program,), 0, [3 + program]) for program in range(3)
    ]


@pytest.mark.parametrize(("index", "fails"), [(0, False), (4, False), (5, True), (-1, True)])
def test_a_fetch_stays_inside(index: int, fails: bool) -> None:
    b = TileBuilder("at", [TensorType.of([5], i64)], symbols=[], grid=[], writes=[], kind="map")
    b.fetch(b.arguments[0], [ROW], {"i": b.index(index)})
    kernel = verify_kernel(b.finish())
    if fails:
        with pytest.raises(BoundsError, match=f"reads index {index} of dim 0, which has 5 elements"):
            run_kernel(kernel, [np.arange(5)], {})
    else:
        run_kernel(kernel, [np.arange(5)], {})


def test_a_number_is_fetched_from_a_buffer_of_rank_0() -> None:
    cells = Cells()
    b = TileBuilder("one", [TensorType.of([], i64)], symbols=[], grid=[], writes=[], kind="map")
    b.fetch(b.arguments[0], [], {})
    run_kernel(verify_kernel(b.finish()), [np.array(7)], {}, observer=cells)
    assert cells.seen == [("ttile.fetch", (), 0, [0])]


@pytest.mark.parametrize("descending", [False, True])
def test_keys_are_sorted_stably_with_what_is_no_number_last(descending: bool) -> None:
    keys = np.array([3, np.nan, -1, 3, -0.0, 0.0, np.inf, np.nan, -np.inf], np.float32)
    numbers = [(key, at) for at, key in enumerate(keys.tolist()) if key == key]
    wanted = [at for _, at in sorted(numbers, key=lambda pair: -pair[0] if descending else pair[0])] + [1, 7]
    assert sorted_order(keys, descending=descending).tolist() == wanted
    assert sorted_order(keys[:1], descending=descending).tolist() == [0]
    lowest = np.array([np.iinfo(np.int64).min, 5, np.iinfo(np.int64).max])
    assert sorted_order(lowest, descending=descending).tolist() == ([2, 1, 0] if descending else [0, 1, 2])


def test_the_first_keys_are_sorted_and_the_others_stay() -> None:
    types = [TensorType.of([5], f32), TensorType.of([5], i64)]
    b = TileBuilder("sort", types, symbols=[], grid=[], writes=[0, 1], kind="library")
    spares = [b.scratch([5], f32), b.scratch([5], i64)]
    b.sort(b.arguments[0], b.arguments[1], spares, b.index(4))
    keys, indices = np.array([2, 1, 4, 3, 0], np.float32), np.arange(5)
    run_kernel(verify_kernel(b.finish()), [keys, indices], {})
    assert keys.tolist() == [1, 2, 3, 4, 0]
    assert indices.tolist() == [1, 0, 3, 2, 4]


@pytest.mark.parametrize("dtype", [bool_, f32, i32])
def test_scratch_is_undefined_at_first(dtype: DType) -> None:
    """All bits are set: NaN, -1, or true."""
    b = TileBuilder("scratch", [TensorType.of([4], dtype)], symbols=[], grid=[], writes=[0], kind="map")
    region = TileRegion({"i": b.index(0)}, ("i",), (4,))
    b.store(b.load(b.scratch([4], dtype), [ROW], region), b.arguments[0], [ROW], region)
    out = np.zeros(4, {"bool": np.bool_, "f32": np.float32, "i32": np.int32}[dtype.name])
    run_kernel(verify_kernel(b.finish()), [out], {})
    assert np.isnan(out).all() if dtype is f32 else (out == (-1 if dtype is i32 else 1)).all()


@pytest.mark.parametrize(
    ("mode", "wanted"), [("add", [7, 3]), ("atomic_add", [7, 3]), ("atomic_max", [5, 3]), ("atomic_min", [1, 0])]
)
def test_each_element_of_a_store_changes_its_own_cell(mode: str, wanted: list[int]) -> None:
    types = [TensorType.of([3], i32), TensorType.of([2], i32)]
    b = TileBuilder("atomics", types, symbols=[], grid=[], writes=[1], kind="map")
    region = TileRegion({"i": b.index(0)}, ("i",), (3,))
    b.store(b.load(b.arguments[0], [ROW], region), b.arguments[1], [ROW % 2], region, mode=mode)
    out = np.array([1, 0], np.int32)
    run_kernel(verify_kernel(b.finish()), [np.array([5, 3, 1], np.int32), out], {})
    assert out.tolist() == wanted


@pytest.mark.parametrize("bound", range(6))
def test_a_clip_replaces_what_is_at_the_bound_or_beyond(bound: int) -> None:
    types = [TensorType.of([4], i32), TensorType.of([4], i32)]
    b = TileBuilder("clip", types, symbols=["N"], grid=[], writes=[1], kind="map")
    region = TileRegion({"i": b.index(0)}, ("i",), (4,))
    tile = b.load(b.arguments[0], [ROW], region)
    clipped = b.clip(tile, "i", -7, TileRegion(region.coords, ("i",), (4,), {"i": N}))
    b.store(clipped, b.arguments[1], [ROW], region)
    out = np.zeros(4, np.int32)
    run_kernel(verify_kernel(b.finish()), [np.arange(4, dtype=np.int32), out], {"N": bound})
    assert out.tolist() == [at if at < bound else -7 for at in range(4)]


@pytest.mark.parametrize("length", range(1, 10))
@pytest.mark.parametrize(("kind", "reduce"), [("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)])
def test_reductions_take_every_element_once(length: int, kind: str, reduce: Any) -> None:
    types = [TensorType.of([2, length], i64), TensorType.of([2], i64)]
    b = TileBuilder("reduce", types, symbols=[], grid=[], writes=[1], kind="row")
    whole = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (2, length))
    rows = TileRegion({"i": b.index(0)}, ("i",), (2,))
    b.store(b.reduce(b.load(b.arguments[0], [ROW, COLUMN], whole), kind, 1), b.arguments[1], [ROW], rows)
    x = np.random.default_rng(length).integers(-9, 9, (2, length))
    out = np.zeros(2, np.int64)
    run_kernel(verify_kernel(b.finish()), [x, out], {})
    assert out.tolist() == reduce(x, axis=1).tolist()


@pytest.mark.parametrize("size", [0, 1])
def test_a_grid_of_no_programs_runs_none(size: int) -> None:
    cells = Cells()
    x = np.zeros(size, np.float32)
    run_kernel(double(), [x, x.copy()], {"N": size}, observer=cells)
    assert bool(cells.seen) == bool(size)


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_a_softmax_adds_eps_to_its_sums(eps: float) -> None:
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    weights = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    wanted = weights / (weights.sum(1, keepdims=True) + eps)
    # One rounding of the exponent's argument and of each of 16 sums, products and quotients at most.
    np.testing.assert_allclose(ran(rows_kernel(eps), (4, 16), x), wanted, rtol=32 * 2.0**-24)
