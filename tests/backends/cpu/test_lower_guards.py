"""What lowering may leave out: guards that nothing needs, tails that are never run; and what it must keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import f32, i64
from tessera.types.shape import TensorType
from tests.backends.cpu.bodies import Writer, kernel_of
from tests.backends.cpu.native import assert_close, build, interpret, machines, values_of

N, AT = Dim.symbol("N"), Dim.symbol("i")


def targets(kernel: SpecOp, name: str) -> list[SpecOp]:
    """The ops of a name in a kernel's Target IR."""
    target = build(kernel, machines()[0]).target
    return [op for op in target.walk() if isinstance(op, SpecOp) and op.name == f"ttarget.{name}"]


def shifted_copy(size: DimLike, shift: int, width: int = 16) -> SpecOp:
    """out[i] = x[i + shift], zero beyond the end."""
    vector = TensorType.of([size], f32)
    symbols = sorted(Dim.of(size).symbols)
    b = TileBuilder(
        "shifted", [vector, vector], symbols=symbols, grid=[Dim.of(size).ceildiv(width)], writes=[1], kind="map"
    )
    program = b.program_id(0)
    here, there = (b.index(Dim.symbol("p") * width + by, {"p": program}) for by in (0, shift))
    bounds = {"i": Dim.of(size)}
    x = b.load(b.arguments[0], [AT], TileRegion({"i": there}, ("i",), (width,), bounds))
    b.store(x, b.arguments[1], [AT], TileRegion({"i": here}, ("i",), (width,), bounds))
    return b.finish()


@pytest.mark.parametrize("shift", [0, 16, 5, 32])
@pytest.mark.parametrize("size", [64, 48, 40, 16])
def test_a_tile_that_starts_beyond_the_end_stays_guarded(size: int, shift: int) -> None:
    kernel = shifted_copy(size, shift)
    x, out = values_of(np.random.default_rng(1), (size,), f32), np.ones(size, np.float32)
    expected = np.concatenate([x, np.zeros(shift, np.float32)])[shift:]
    for machine in machines():
        assert_close(build(kernel, machine).run([x, out], {}), [x, expected])
    (load,) = targets(kernel, "load")
    assert bool(load.value("guarded")) == (shift > 0 or size % 16 > 0)


def overlapping(width: int, step: int) -> SpecOp:
    """out[0] = the sum of all windows of `width` elements that begin at multiples of `step`, cut at the end."""
    types = [TensorType.of([N], f32), TensorType.of([1], f32)]
    b = TileBuilder("windows", types, symbols=["N"], grid=[1], writes=[1], kind="row")

    def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        x = b.load(b.arguments[0], [AT], TileRegion({"i": i}, ("i",), (width,), {"i": N}))
        return [b.elementwise("add", carried[0], x)]

    (lanes,) = b.loop(b.index(0), b.index(N), step, body, [b.full(0.0, (width,), f32)])
    b.store(b.reduce(lanes, "sum", 0), b.arguments[1], [Dim.constant(0)], TileRegion({}))
    return b.finish()


@pytest.mark.parametrize(("width", "step"), [(16, 1), (16, 8), (8, 16), (16, 16)])
def test_tiles_wider_than_the_step_are_guarded_in_every_iteration(width: int, step: int) -> None:
    kernel = overlapping(width, step)
    for size in (0, 1, 15, 16, 33, 64):
        x, out = values_of(np.random.default_rng(size), (size,), f32), np.zeros(1, np.float32)
        expected = interpret(kernel, [x, out], {"N": size})
        for machine in machines():
            assert_close(build(kernel, machine).run([x, out], {"N": size}), expected)


def test_bounds_of_a_loop_may_have_equal_names_for_different_indices() -> None:
    """From 3 * rows to 3 * columns of the grid, by four: names alone would say that nothing is left over."""
    b = TileBuilder("ends", [TensorType.of([64], i64)], symbols=[], grid=[2, 4], writes=[0], kind="map")
    low = b.index(Dim.symbol("p") * 3, {"p": b.program_id(0)})
    high = b.index(Dim.symbol("p") * 3, {"p": b.program_id(1)})
    cell = b.index(Dim.symbol("r") * 4 + Dim.symbol("c"), {"r": b.program_id(0), "c": b.program_id(1)})

    def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return [b.elementwise("add", carried[0], b.full(1, (), i64))]

    (count,) = b.loop(low, high, 4, body, [b.full(0, (), i64)])
    b.store(count, b.arguments[0], [Dim.symbol("at")], TileRegion({"at": cell}))
    kernel = b.finish()
    out = np.full(64, 9, np.int64)
    expected = interpret(kernel, [out], {})
    for machine in machines():
        assert_close(build(kernel, machine).run([out], {}), expected)


def body_of(size: DimLike) -> SpecOp:
    w = Writer()
    return kernel_of(w.body(w.relu(w.input([size]))), machines()[0])


def test_a_size_that_divides_has_no_guards_and_no_tail() -> None:
    for size in (64, 4096, 2 * 4096, N * 32):
        assert not targets(body_of(size), "tail"), size
        assert all(not op.value("guarded") for op in targets(body_of(size), "store")), size


def test_a_size_that_does_not_divide_is_guarded_in_the_tail_alone() -> None:
    for size in (63, N, N * 4, N * 32 + 1):
        kernel = body_of(size)
        assert len(targets(kernel, "tail")) == 1, size
        assert [bool(op.value("guarded")) for op in targets(kernel, "store")] == [False, True], size


def test_columns_that_divide_have_no_guards() -> None:
    for size, guarded in ((64, False), (N * 16, False), (N, True), (65, True)):
        w = Writer()
        kernel = kernel_of(w.body(w.sum(w.input([5, size]), axes=(0,))), machines()[0])
        stores = [op for op in targets(kernel, "store") if not isinstance(op.operands[1], OpResult)]
        # Only the last columns of a strip can stick out.
        assert [bool(store.value("guarded")) for store in stores] == ([False, True] if guarded else [False]), size


def block_dot(
    *, start: float = 0.0, pad: float = 0.0, swapped: bool = False, shift: int = 0, k_count: DimLike = "K"
) -> SpecOp:
    """A product of blocks written with the names that contractions have, and one thing that is different."""
    M, K, BM, BN, BK = Dim.symbol("M"), Dim.symbol("K"), 16, 16, 16
    shapes = ([M, K], [K, N], [M, N])
    grid = [M.ceildiv(BM), N.ceildiv(BN)]
    b = TileBuilder(
        "product", [TensorType.of(shape, f32) for shape in shapes], symbols=["M", "N", "K"],
        grid=grid[::-1] if swapped else grid, writes=[2], kind="contraction",
    )  # fmt: skip
    rows, columns = (b.program_id(axis) for axis in ((1, 0) if swapped else (0, 1)))
    coords = {"_m": b.index(Dim.symbol("p") * BM, {"p": rows}), "_n": b.index(Dim.symbol("p") * BN, {"p": columns})}
    m, n, k = (Dim.symbol(name) for name in ("_m", "_n", "_k"))

    def step(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = {**coords, "_k": at}
        left = TileRegion(here, ("_m", "_k"), (BM, BK), {"_m": M, "_k": K})
        right = TileRegion(here, ("_k", "_n"), (BK, BN), {"_k": K, "_n": N})
        lhs, rhs = b.load(b.arguments[0], [m, k], left, pad=pad), b.load(b.arguments[1], [k, n], right)
        return [b.dot(lhs, rhs, carried[0])]

    first = [b.full(start, (BM, BN), f32)]
    (total,) = b.loop(b.index(shift), b.index(Dim.of(k_count)), BK, step, first)
    b.store(total, b.arguments[2], [m, n], TileRegion(coords, ("_m", "_n"), (BM, BN), {"_m": M, "_n": N}))
    return b.finish()


@pytest.mark.parametrize("change", [{}, {"start": 1.0}, {"swapped": True}, {"shift": 16}, {"k_count": 16}], ids=str)
def test_what_is_not_quite_a_contraction_is_not_made_one(change: dict[str, Any]) -> None:
    kernel = block_dot(**change)
    sizes = {"M": 37, "N": 33, "K": 40}
    arrays = [values_of(np.random.default_rng(2), shape, f32) for shape in ((37, 40), (40, 33), (37, 33))]
    expected = interpret(kernel, arrays, sizes)
    for machine in machines():
        assert_close(build(kernel, machine).run(arrays, sizes), expected)
    assert bool(targets(kernel, "gemm")) == (not change)
