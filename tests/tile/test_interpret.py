"""Kernels on NumPy: whole programs against their references, each op on tiles, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.interpret import InterpretError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.graph.ops.contraction import matmul_reference
from tessera.ir.graph.ops.normalization import softmax_reference
from tessera.ir.tile.interpret import Access, Breakpoint, Observer, TileRun, run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import TensorType
from tests.tile import kernels


@pytest.mark.parametrize("size", [0, 1, 7, 8, 19])
@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.i32, dt.u8])
def test_a_ragged_map(size: int, dtype: dt.DType) -> None:
    x = np.arange(size).astype(numpy_dtype(dtype))
    out = np.full_like(x, 77)
    run_kernel(kernels.double(dtype), [x, out], {"N": size})
    np.testing.assert_array_equal(out, x + x)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 8, 4), (13, 9, 7), (17, 3, 0)])
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f8e4m3])
def test_a_dot_is_the_reference_bit_for_bit(sizes: tuple[int, int, int], dtype: dt.DType) -> None:
    rng = np.random.default_rng(1)
    m, n, k = sizes
    a, b = (rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in ((m, k), (k, n)))
    out = np.zeros((m, n), numpy_dtype(dtype))
    run_kernel(kernels.gemm(dtype=dtype), [a, b, out], {"M": m, "N": n, "K": k})
    assert out.tobytes() == matmul_reference(a, b).tobytes()


def test_a_dot_does_not_depend_on_its_tiles() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((9, 31)).astype(np.float32), rng.standard_normal((31, 5)).astype(np.float32)
    found: set[bytes] = set()
    for tiles in ((8, 8, 4), (1, 2, 1), (16, 4, 32)):
        out = np.zeros((9, 5), np.float32)
        run_kernel(kernels.gemm(*tiles), [a, b, out], {"M": 9, "N": 5, "K": 31})
        found.add(out.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("shape", [(1, 1), (3, 32), (4, 67), (2, 131)])
def test_a_row_kernel(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32) * 30
    out = np.zeros_like(x)
    run_kernel(kernels.softmax(), [x, out], {"M": shape[0], "N": shape[1]})
    # The difference to the maximum rounds, and an error there is a relative one in the power.
    spread = float(np.ptp(x, axis=1).max())
    np.testing.assert_allclose(out, softmax_reference(x, axis=1), rtol=(spread + 4) * dt.f32.epsilon, atol=1e-38)


def on_tiles(write: Callable[[TileBuilder, list[SSAValue]], SSAValue], *arrays: Array, out: TensorType) -> Array:
    """What `write` makes of whole arrays, each one tile of one program."""
    from tessera.ir.base.arrays import dtype_of

    types = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
    b = TileBuilder("one", [*types, out], symbols=[], grid=[], writes=[len(arrays)], kind="map")
    zero = b.index(0)

    def region(type: TensorType) -> tuple[list[Dim], TileRegion]:
        names = [f"a{axis}" for axis in range(type.rank)]
        sizes = [dim.value or 0 for dim in type.shape]
        return [Dim.symbol(name) for name in names], TileRegion(dict.fromkeys(names, zero), tuple(names), tuple(sizes))

    tiles = [b.load(buffer, *region(type)) for buffer, type in zip(b.arguments, types, strict=False)]
    b.store(write(b, tiles), b.arguments[-1], *region(out))
    result = np.zeros([dim.value or 0 for dim in out.shape], numpy_dtype(out.dtype))
    run_kernel(kernels.verify_kernel(b.finish()), [*arrays, result], {})
    return result


def test_every_function_has_a_meaning() -> None:
    x = np.array([0.5, 1.5, 2.0, 3.0], np.float32)
    for name, function in SCALAR_FUNCTIONS.items():
        dtype = dt.f32 if "f32" in function.dtypes else dt.i32
        out = TensorType.of([4], dt.bool_ if function.is_predicate else dtype)
        values = [x.astype(numpy_dtype(dtype))] * function.arity

        def write(b: TileBuilder, tiles: list[SSAValue], name: str = name) -> SSAValue:
            return b.elementwise(name, *tiles)

        assert on_tiles(write, *values, out=out).shape == (4,), name


def _pair(name: str) -> Callable[[TileBuilder, list[SSAValue]], SSAValue]:
    return lambda b, tiles: b.elementwise(name, *tiles)


def test_integers_at_their_corners() -> None:
    x = np.array([7, -7, -(2**31), 5, 1, -1], np.int32)
    y = np.array([0, 2, -1, -1, -3, -3], np.int32)
    out = TensorType.of([6], dt.i32)
    assert on_tiles(_pair("floordiv"), x, y, out=out).tolist() == [0, -4, -(2**31), -5, -1, 0]
    assert on_tiles(_pair("mod"), x, y, out=out).tolist() == [0, 1, 0, 0, -2, -1]
    assert on_tiles(_pair("pow"), x, y, out=out).tolist() == [1, 49, 0, 0, 1, -1]
    assert on_tiles(_pair("shl"), x, y, out=out).tolist() == [7, -28, 0, 0, 0, 0]
    assert on_tiles(_pair("shr"), x, y, out=out).tolist() == [7, -2, -1, 0, 0, -1]


def test_casts_follow_the_table() -> None:
    x = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf], np.float32)
    assert on_tiles(lambda b, t: b.cast(t[0], dt.i32), x, out=TensorType.of([6], dt.i32)).tolist() == [
        1,
        -1,
        2**31 - 1,
        -(2**31),
        0,
        2**31 - 1,
    ]
    whole = np.array([300, -1, 7], np.int32)
    assert on_tiles(lambda b, t: b.cast(t[0], dt.u8), whole, out=TensorType.of([3], dt.u8)).tolist() == [44, 255, 7]
    assert on_tiles(lambda b, t: b.cast(t[0], dt.i4), whole, out=TensorType.of([3], dt.i4)).tolist() == [-4, -1, 7]
    assert on_tiles(lambda b, t: b.cast(t[0], dt.bool_), x, out=TensorType.of([6], dt.bool_)).all()


def test_a_fused_multiply_add_of_doubles_rounds_once() -> None:
    x = np.array([1 + 2.0**-30, 3.0, np.inf])
    y = np.array([1 - 2.0**-30, 5.0, 1.0])
    z = np.array([-1.0, 0.5, 2.0])
    found = on_tiles(_pair("fma"), x, y, z, out=TensorType.of([3], dt.f64))
    assert found.tolist() == [-(2.0**-60), 15.5, np.inf]


def test_a_multiply_add_of_integers_wraps() -> None:
    x, y, z = np.array([3, -4, 127], np.int8), np.array([5, 6, 2], np.int8), np.array([7, -1, 3], np.int8)
    assert on_tiles(_pair("fma"), x, y, z, out=TensorType.of([3], dt.i8)).tolist() == [22, -25, 1]


def test_reductions_are_halving_trees() -> None:
    x = np.array([[1e8, 1.0, -1e8, 1.0]], np.float32)
    # In order the first 1 would be lost: here the large ones meet first.
    assert on_tiles(lambda b, t: b.reduce(t[0], "sum", 1), x, out=TensorType.of([1], dt.f32)).tolist() == [2.0]
    assert on_tiles(lambda b, t: b.reduce(t[0], "min", 0), x, out=TensorType.of([4], dt.f32)).tolist() == x[0].tolist()


@pytest.mark.parametrize(("kind", "wanted"), [("argmax", [11, 11, 12]), ("argmin", [10, 11, 10])])
def test_the_index_of_the_min_or_max(kind: str, wanted: list[int]) -> None:
    values = np.array([[1, 5, 5, 2], [2, np.nan, 9, np.nan], [0, 0, 3, 0]], np.float32)
    indices = np.broadcast_to(np.arange(10, 14), (3, 4)).copy()
    found = on_tiles(lambda b, t: b.arg_reduce(t[0], t[1], kind, 1), values, indices, out=TensorType.of([3], dt.i64))
    assert found.tolist() == wanted


def test_tiles_are_transposed_and_broadcast() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    turned = on_tiles(lambda b, t: b.transpose(t[0]), x, out=TensorType.of([3, 2], dt.i32))
    np.testing.assert_array_equal(turned, x.T)
    spread = on_tiles(lambda b, t: b.broadcast(t[0], (4, 2, 3), (1, 2)), x, out=TensorType.of([4, 2, 3], dt.i32))
    np.testing.assert_array_equal(spread, np.broadcast_to(x, (4, 2, 3)))


def test_bits_and_choices() -> None:
    x = np.array([1.0, -2.0], np.float32)
    bits = on_tiles(lambda b, t: b.bitcast(t[0], dt.i32), x, out=TensorType.of([2], dt.i32))
    assert bits.tobytes() == x.tobytes()
    chosen = on_tiles(
        lambda b, t: b.select(b.elementwise("lt", *t), t[0], b.full(9.0, (2,), dt.f32)),
        x,
        np.zeros(2, np.float32),
        out=TensorType.of([2], dt.f32),
    )
    assert chosen.tolist() == [9.0, -2.0]


def gather(mode: str = "set") -> SpecOp:
    """out[where[i], j] = x[i, j] + i: index tiles, windows, coordinates and scratch, in one program."""
    types = [TensorType.of([5, 4], dt.f32), TensorType.of([5], dt.i64), TensorType.of([3, 4], dt.f32)]
    b = TileBuilder("gather", types, symbols=[], grid=[], writes=[2], kind="library")
    zero = b.index(0)
    region = TileRegion({"i": zero, "j": zero}, ("i", "j"), (5, 4))
    i, j = Dim.symbol("i"), Dim.symbol("j")
    # One column to the left; what is before the first reads as -1.
    x = b.load(b.arguments[0], [i, j - 1], region, pad=-1.0, windows=(j - 1, Dim.constant(4)))
    memory = b.scratch([5, 4], dt.f32)
    b.store(b.elementwise("add", x, b.cast(b.coordinate_of(i, region), dt.f32)), memory, [i, j], region)
    where = b.load(b.arguments[1], [i], region)
    b.store(b.load(memory, [i, j], region), b.arguments[2], [Dim.symbol("t0"), j], region, mode=mode, indices=[where])
    return kernels.verify_kernel(b.finish())


@pytest.mark.parametrize("mode", ["set", "add"])
def test_index_tiles_windows_and_scratch(mode: str) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    where = np.array([0, 2, 2, 0, 2])
    out = np.zeros((3, 4), np.float32)
    run_kernel(gather(mode), [x, where, out], {})
    moved = np.concatenate([np.full((5, 1), -1, np.float32), x[:, :3]], 1) + np.arange(5, dtype=np.float32)[:, None]
    wanted = np.zeros((3, 4), np.float32)
    for row, target in enumerate(where):
        wanted[target] = moved[row] + (wanted[target] if mode == "add" else 0)
    np.testing.assert_array_equal(out, wanted)


def test_an_index_out_of_range_says_where() -> None:
    x = np.zeros((5, 4), np.float32)
    with pytest.raises(BoundsError) as caught:
        run_kernel(gather(), [x, np.array([0, 1, 3, 0, 0]), np.zeros((3, 4), np.float32)], {})
    assert caught.value.message == "`@gather` writes index 3 of dim 0, which has 3 elements"
    assert caught.value.notes == ("at element [2, 0] of the tile, in program []", "the index is `t0`")


def test_a_missing_bound_says_which_program_and_line() -> None:
    x = np.zeros(11, np.float32)
    with pytest.raises(BoundsError) as caught:
        run_kernel(kernels.double(bound=None), [x, x.copy()], {"N": 11})
    assert caught.value.message == "`@double` reads index 11 of dim 0, which has 11 elements"
    assert caught.value.notes == ("at element [3] of the tile, in program [1], N = 11", "the index is `i`")
    assert caught.value.span == kernels.span(3)


@pytest.mark.parametrize(
    ("buffers", "sizes", "words"),
    [
        ([np.zeros(3, np.float32)], {"N": 3}, "takes 2 buffers, got 1"),
        ([np.zeros(3, np.float32), np.zeros(3)], {"N": 3}, "buffer 1 is [3] of f32, got [3] of float64"),
        ([np.zeros(3, np.float32)] * 2, {"N": 4}, "buffer 0 is [4] of f32, got [3] of float32"),
        ([np.zeros(6, np.float32)[::2]] * 2, {"N": 3}, "not contiguous"),
        ([np.zeros(3, np.float32)] * 2, {}, "needs the size `N`"),
    ],
)
def test_arguments_must_fit(buffers: Sequence[Array], sizes: dict[str, int], words: str) -> None:
    with pytest.raises(InterpretError) as caught:
        run_kernel(kernels.double(), buffers, sizes)
    assert words in str(caught.value)


class Watcher(Observer):
    """Keeps the names of ops and the cells of accesses."""

    def __init__(self) -> None:
        self.ops: list[str] = []
        self.cells: list[tuple[tuple[int, ...], int | None, list[int]]] = []

    def before(self, run: TileRun, op: SpecOp) -> None:
        self.ops.append(op.name)

    def access(self, run: TileRun, access: Access) -> None:
        if access.is_store:
            self.cells.append((access.program, access.argument, access.cells.tolist()))


def test_an_observer_sees_ops_and_cells() -> None:
    watcher = Watcher()
    x = np.zeros(11, np.float32)
    run_kernel(kernels.double(), [x, x.copy()], {"N": 11}, observer=watcher)
    assert watcher.ops.count("ttile.elementwise") == 2
    assert watcher.cells == [((0,), 1, list(range(8))), ((1,), 1, [8, 9, 10])]


def test_a_breakpoint_stops_inside_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[Any] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stops.append(None))
    x = np.zeros(11, np.float32)
    run_kernel(kernels.double(), [x, x.copy()], {"N": 11}, observer=Breakpoint(line=3))
    assert len(stops) == 2
    run_kernel(kernels.double(), [x, x.copy()], {"N": 11}, observer=Breakpoint(op="store"))
    assert len(stops) == 4
