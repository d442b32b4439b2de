"""Loads and stores of every kind in the tile language: machine code equals the interpreter, lane by lane."""

# Programs are functions of tensors of any dtype here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import SSAValue

import tessera as ts
from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.lane_offsets import find_run
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types import dtype as dt
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType, bool_, f32, i32, i64
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, interpret, machines, values_of

N, K = Dim.symbol("N"), Dim.symbol("K")
I, J, T = Dim.symbol("i"), Dim.symbol("j"), Dim.symbol("t0")  # noqa: E741 - names of coordinates
DTYPES = [f32, dt.f64, dt.bf16, dt.i8, i32, i64, dt.u16]
SIZES = (1, 7, 16, 37)


def agree(kernel: SpecOp, arrays: Sequence[Array], **sizes: int) -> None:
    expected = interpret(kernel, arrays, sizes)
    for machine in machines():
        assert_close(build(kernel, machine).run(arrays, sizes), expected)


def numbers(shape: Sequence[int], dtype: DType, seed: int = 0) -> Array:
    return values_of(np.random.default_rng(seed), tuple(shape), dtype)


def builder(*types: tuple[Sequence[DimLike], DType], writes: Sequence[int]) -> TileBuilder:
    """A kernel of one program."""
    buffers = [TensorType.of(shape, dtype) for shape, dtype in types]
    symbols = sorted({name for type in buffers for name in type.symbols})
    return TileBuilder("access", buffers, symbols=symbols, grid=[1], writes=writes, kind="library")


def line(b: TileBuilder, width: int = 16, **coords: SSAValue) -> TileRegion:
    return TileRegion({"i": b.index(0), **coords}, ("i",), (width,), {"i": N})


def walk(b: TileBuilder, body: object, width: int = 16) -> None:
    """`body(region)` for every part of a line of N."""

    def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        assert callable(body)
        body(TileRegion({"i": i}, ("i",), (width,), {"i": N}))
        return carried

    b.loop(b.index(0), b.index(N), width, step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adding_at_equal_indices(dtype: DType) -> None:
    """Several lanes of one store add to one element: each addition is seen by the next."""
    b = builder(([N], dtype), ([N], i32), ([4], dtype), writes=[2])

    def body(region: TileRegion) -> None:
        x, at = b.load(b.arguments[0], [I], region), b.load(b.arguments[1], [I], region)
        b.store(x, b.arguments[2], [T], region, mode="add", indices=[at])

    walk(b, body)
    kernel = b.finish()
    for size in SIZES:
        indices = np.random.default_rng(size).integers(0, 4, size).astype(np.int32)
        agree(kernel, [numbers([size], dtype), indices, numbers([4], dtype, 1)], N=size)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adding_and_setting_in_strides(dtype: DType) -> None:
    b = builder(([N], dtype), ([N, 3], dtype), ([N, 2], dtype), writes=[1, 2])

    def body(region: TileRegion) -> None:
        x = b.load(b.arguments[0], [I], region)
        b.store(x, b.arguments[1], [I, Dim.constant(1)], region, mode="add")
        b.store(x, b.arguments[2], [N - 1 - I, Dim.constant(0)], region)

    walk(b, body)
    kernel = b.finish()
    for size in SIZES:
        arrays = [numbers([size], dtype), numbers([size, 3], dtype, 1), numbers([size, 2], dtype, 2)]
        agree(kernel, arrays, N=size)


@pytest.mark.parametrize("dtype", [*DTYPES, bool_], ids=str)
@pytest.mark.parametrize("pad", [0, 1])
def test_windows_and_pads(dtype: DType, pad: int) -> None:
    """out[i] = x[i - 3], or x[2 * i] read by strides, with another number outside."""
    b = builder(([N], dtype), ([N], dtype), ([N], dtype), writes=[1, 2])

    def body(region: TileRegion) -> None:
        shifted = b.load(b.arguments[0], [I - 3], region, pad=pad, windows=[I - 3, N])
        b.store(shifted, b.arguments[1], [I], region)
        spaced = b.load(b.arguments[0], [I * 2], region, pad=pad, windows=[I * 2, N])
        b.store(spaced, b.arguments[2], [I], region)

    walk(b, body)
    kernel = b.finish()
    for size in SIZES:
        agree(kernel, [numbers([size], dtype, at) for at in range(3)], N=size)


@pytest.mark.parametrize("dtype", [f32, dt.i8, dt.bf16, i64], ids=str)
def test_one_element_for_all_lanes_is_a_pad_beyond_the_edge(dtype: DType) -> None:
    """x[0] along a row, summed: lanes beyond the end, and outside a window, count as nothing."""
    b = builder(([1], dtype), ([2], dtype.compute), ([2], dtype.compute), writes=[1, 2])
    region = TileRegion({"i": b.index(0)}, ("i",), (16,), {"i": Dim.constant(5)})
    for at, windows in enumerate(([], [I - 2, Dim.constant(2)])):
        x = b.cast(b.load(b.arguments[0], [Dim.constant(0)], region, pad=1, windows=windows), dtype.compute)
        b.store(b.reduce(x, "sum", 0), b.arguments[1 + at], [Dim.constant(1)], TileRegion({}))
    agree(b.finish(), [numbers([1], dtype, 4), numbers([2], dtype.compute), numbers([2], dtype.compute)])


def test_a_bound_of_rows_that_depends_on_the_column() -> None:
    """The upper triangle of a tile: row i is there for columns from i on."""
    b = builder(([16, 16], f32), ([16, 16], f32), writes=[1])
    region = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (16, 16), {"i": J + 1})
    x = b.load(b.arguments[0], [I, J], region, pad=9)
    whole = TileRegion(region.coords, region.axes, region.sizes)
    b.store(x, b.arguments[1], [I, J], whole)
    agree(b.finish(), [numbers([16, 16], f32), numbers([16, 16], f32, 1)])


@pytest.mark.parametrize("axis", ["i", "j"])
def test_a_clip_at_the_diagonal(axis: str) -> None:
    b = builder(([16, 16], f32), ([16, 16], f32), writes=[1])
    whole = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (16, 16))
    x = b.load(b.arguments[0], [I, J], whole)
    bound = {"i": J + 1, "j": I + 1}[axis]
    cut = b.clip(x, axis, 7.0, TileRegion(whole.coords, whole.axes, whole.sizes, {axis: bound}))
    b.store(cut, b.arguments[1], [I, J], whole)
    agree(b.finish(), [numbers([16, 16], f32), numbers([16, 16], f32, 1)])


def test_what_was_loaded_stays_what_it_was() -> None:
    """A tile is loaded, then a loop overwrites the memory it came from, then the tile is stored elsewhere."""
    b = builder(([N], f32), ([16], f32), writes=[0, 1])
    region = line(b)
    first = b.load(b.arguments[0], [I], region)

    def body(here: TileRegion) -> None:
        b.store(b.full(5.0, (16,), f32), b.arguments[0], [I], here)

    walk(b, body)
    b.store(first, b.arguments[1], [I], TileRegion(region.coords, region.axes, region.sizes))
    kernel = b.finish()
    for size in (16, 37, 3):
        agree(kernel, [numbers([size], f32), numbers([16], f32, 1)], N=size)


def test_what_was_loaded_before_a_sort_stays_unsorted() -> None:
    b = builder(([16], f32), ([16], f32), writes=[1])
    region = TileRegion({"i": b.index(0)}, ("i",), (16,))
    keys, spare = (b.scratch([16], f32) for _ in range(2))
    indices, spare_indices = (b.scratch([16], i64) for _ in range(2))
    b.store(b.load(b.arguments[0], [I], region), keys, [I], region)
    b.store(b.coordinate_of(I, region), indices, [I], region)
    before = b.load(keys, [I], region)
    b.sort(keys, indices, [spare, spare_indices], b.index(16), descending=False)
    after = b.load(keys, [I], region)
    b.store(b.elementwise("sub", after, before), b.arguments[1], [I], region)
    agree(b.finish(), [numbers([16], f32), numbers([16], f32, 1)])


@pytest.mark.parametrize("dtype", [*DTYPES, bool_], ids=str)
def test_gathers_with_windows_over_what_was_read(dtype: DType) -> None:
    """out[i] = x[at[i]], or the pad where at[i] is out of bounds of x."""
    b = builder(([K], dtype), ([N], i64), ([N], dtype), writes=[2])

    def body(region: TileRegion) -> None:
        at = b.load(b.arguments[1], [I], region)
        x = b.load(b.arguments[0], [T], region, indices=[at], windows=[T, K], pad=1)
        b.store(x, b.arguments[2], [I], region)

    walk(b, body)
    kernel = b.finish()
    for size in SIZES:
        indices = np.random.default_rng(size).integers(-4, 9, size)
        agree(kernel, [numbers([5], dtype), indices, numbers([size], dtype, 1)], N=size, K=5)
        assert numpy_dtype(dtype) == numbers([5], dtype).dtype


def test_a_size_may_be_called_what_index_tiles_are() -> None:
    size = Dim.symbol("t0")
    types = [TensorType.of([size], f32)] * 2
    b = TileBuilder("named", types, symbols=["t0"], grid=[size.ceildiv(16)], writes=[1], kind="map")
    start = b.index(Dim.symbol("p") * 16, {"p": b.program_id(0)})
    region = TileRegion({"i": start}, ("i",), (16,), {"i": size})
    b.store(b.load(b.arguments[0], [size - 1 - I], region), b.arguments[1], [I], region)
    agree(b.finish(), [numbers([37], f32), numbers([37], f32, 1)], t0=37)


def squares(dtype: DType, lanes: int) -> SpecOp:
    """What is contiguous in the columns of [K, N], written along those of [N, K], in squares that stick out of both."""
    b = builder(([K, N], dtype), ([N, K], dtype), writes=[1])

    def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        def inner(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            region = TileRegion({"i": i, "j": j}, ("i", "j"), (lanes, lanes), {"i": N, "j": K})
            b.store(b.load(b.arguments[0], [J, I], region), b.arguments[1], [I, J], region)
            return carried

        b.loop(b.index(0), b.index(K), lanes, inner)
        return carried

    b.loop(b.index(0), b.index(N), lanes, step)
    return b.finish()


@pytest.mark.parametrize("dtype", [*DTYPES, bool_], ids=str)
def test_squares_are_transposed(dtype: DType) -> None:
    for machine in machines():
        kernel = squares(dtype, machine.lanes)
        built = build(kernel, machine)
        for n, k in ((1, 1), (16, 16), (7, 40), (33, 5), (37, 19)):
            arrays, sizes = [numbers([k, n], dtype), numbers([n, k], dtype, 1)], {"N": n, "K": k}
            found = built.run(arrays, sizes)
            assert_close(found, interpret(kernel, arrays, sizes))
            assert np.array_equal(found[1].view(np.uint8), np.ascontiguousarray(arrays[0].T).view(np.uint8))


@pytest.mark.parametrize(
    ("dtype", "is_transposed"), [(f32, True), (dt.bf16, True), (dt.i8, True), (bool_, False)], ids=str
)
def test_squares_are_read_where_elements_lie_together(dtype: DType, is_transposed: bool) -> None:
    for machine in machines():
        backend = CpuBackend(machine)
        text = backend.text(backend.lower(squares(dtype, machine.lanes)))
        assert ("masked.gather" not in text) == is_transposed


# Offsets with quotients and remainders.

Q = Dim.symbol("q")
RUNS: dict[str, tuple[Dim, int | None]] = {
    "roll": ((I + 37) % 1000, 1),
    "roll of a dynamic dim": ((I - 3) % N, 1),
    "tile": (Q * 500 + I % 500, 1),
    "rows far apart": ((I // 64) * 300 + I % 64, 1),
    "flip of a roll": (999 - (I + 5) % 1000, -1),
    "every second of a roll": ((2 * I + 5) % 1000, 2),
    "repeat": (I // 100, 0),
    "nested": ((I // 4 + I % 400) % 900, None),
    "a remainder of a quotient": (((I + 7) // 200) % 3 * 64 + I % 200, 1),
    "divisors below a vector": (I % 7, None),
    "far apart": ((9 * I) % 1000, None),
    "no quotient": (3 * I + Q, None),
}


@pytest.mark.parametrize("name", RUNS)
def test_offsets_grow_evenly_as_long_as_no_quotient_changes(name: str) -> None:
    offset, step = RUNS[name]
    run = find_run(offset, "i", lanes := 16)
    assert (None if run is None else run.step) == step
    if run is None:
        return
    taken = 0
    for start in range(1200):
        env = {"i": start, "q": 2, "N": 77}
        is_even = all(
            0 <= remainder.evaluate(env) + slope * (lanes - 1) < divisor.evaluate(env)
            for remainder, divisor, slope in run.remainders
        )
        found = [offset.evaluate({**env, "i": start + lane}) for lane in range(lanes)]
        assert not is_even or found == [found[0] + lane * run.step for lane in range(lanes)]
        taken += is_even
    assert taken > 600, "most vectors lie between two multiples"


@pytest.mark.parametrize("dtype", [f32, dt.bf16, bool_, i64], ids=str)
@pytest.mark.parametrize("size", [1, 15, 16, 33, 100])
def test_loads_with_quotients_and_remainders(dtype: DType, size: int) -> None:
    """Of divisors above and below a vector, known and not; what is outside of the line is not read."""
    offsets = ((I + 37) % N, (I + 2) % 40, (2 * I) % N, I % 3, I // 7, I // 40, N - 1 - (I + 1) % N)
    b = builder(([N + 40], dtype), *[([N], dtype)] * len(offsets), writes=range(1, len(offsets) + 1))

    def body(region: TileRegion) -> None:
        for at, offset in enumerate(offsets):
            b.store(b.load(b.arguments[0], [offset], region), b.arguments[at + 1], [I], region)

    walk(b, body)
    given = numbers([size + 40], dtype)
    agree(b.finish(), [given, *(numbers([size], dtype, 1) for _ in offsets)], N=size)


def rolled(x: Any) -> Any:
    return ts.ops.roll(x, 37, axis=1)


def tiled(x: Any) -> Any:
    return ts.ops.tile(x, (2, 3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_rolled_or_tiled_is_loaded_in_vectors(dynamic: bool) -> None:
    for function in (rolled, tiled):
        text = str(ts.jit(function, dynamic=dynamic).lower(np.zeros((9, 1000), np.float32)).llvm)
        assert re.search(r"= load <\d+ x float>", text)


def joined(x: Any) -> Any:
    return ts.ops.concat([x.T, x.T], axis=0)


def padded(x: Any) -> Any:
    return ts.ops.pad(ts.ops.transpose(x[:, 1:] + x[:, :-1]), ((1, 1), (2, 0)))


@pytest.mark.parametrize("function", [joined, padded])
def test_boxes_of_what_is_transposed_are_stored_by_squares(function: Callable[[Any], Any]) -> None:
    x = (np.arange(77 * 662, dtype=np.float32) % 1009).reshape(77, 662)
    lowered = str(ts.jit(function).lower(x).target)
    assert re.search(r'axes = \["_p0", "_p1"\], offset = _p0 \+ 662\*_p1', lowered)
    expected = ts.jit(function, backend="reference")(x)
    for given in (x, x.astype(np.int16), x.astype(np.int64)):
        np.testing.assert_array_equal(np.asarray(ts.jit(function)(given)), np.asarray(expected).astype(given.dtype))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "every second row of a transpose": lambda x: x.T[5:60:2],
    "a transpose of what is flipped": lambda x: ts.ops.flip(x, axis=1).T,
    "every third row from the end": lambda x: x.T[::-3] + 1,
    "every fifth row": lambda x: x.T[::5],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_rows_that_are_near_are_transposed_in_registers(name: str, dtype: type) -> None:
    """Lanes are picked from vectors along the dim in which elements are a few apart, if not too far."""
    x = (np.arange(45 * 203) % 101).reshape(45, 203).astype(dtype)
    avx2 = ts.jit(VIEWS[name], features=("avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx"))
    for jitted in (ts.jit(VIEWS[name]), avx2):
        assert ('axes = ["_p0", "_p1"]' in str(jitted.lower(x).target)) == ("fifth" not in name)
        np.testing.assert_array_equal(np.asarray(jitted(x)), np.asarray(ts.jit(VIEWS[name], backend="reference")(x)))
