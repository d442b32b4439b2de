"""Lanes and swizzled memory on a GPU: the same elements as the interpreter's, whatever the vector width."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@kernel
def all_of_it(x: KTile["M", "D", f32], *, width: int, by: int) -> Any:
    """Every way of looking at a neighbour, and every vote."""
    T = tile.context()
    y = tile.load(x, rows=T.m, cols=T.d)
    b = y > 0.0
    return (
        tile.shuffle(y, "down", by, width=width),
        tile.shuffle(y, "up", by, width=width),
        tile.shuffle(y, "index", by, width=width),
        tile.butterfly(y, by, width=width),
        tile.cast(tile.vote(b, "any", width=width), f32),
        tile.cast(tile.vote(b, "all", width=width), f32),
        tile.vote(b, "count", width=width),
        tile.vote(b, "ballot", width=width),
    )


@pytest.mark.parametrize(("vector", "width"), [(1, 32), (4, 32), (4, 8), (4, 2), (2, 16)])
def test_lanes_on_a_gpu_are_the_interpreters(vector: int, width: int) -> None:
    x = np.random.default_rng(width).standard_normal((5, 128)).astype(np.float32)
    for by, rows in itertools.product((0, 1, width // 2, width - 1), (1, 4)):
        made = all_of_it.with_schedule(Schedule(block=(rows,), vector=vector))

        def call(x: Any, made: Any = made, by: int = by) -> Any:
            return made(x, width=width, by=by)

        with poisoned():
            found = ts.jit(call, backend="cuda")(x)
        for one, wanted in zip(found, made.interpret(x, width=width, by=by), strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(wanted))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
@pytest.mark.parametrize("shape", [(64, 128), (33, 65), (256, 32), (100, 8)])
def test_tiles_that_are_transposed(dtype: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).integers(-100, 100, shape).astype(dtype)

    def turned(x: Any) -> Any:
        return ts.ops.transpose(x) + x.sum().reshape((1, 1)) * 0

    with poisoned():
        np.testing.assert_array_equal(np.asarray(ts.jit(turned, backend="cuda")(x)), x.T)


@pytest.mark.parametrize("size", [(64, 64, 64), (70, 50, 30), (128, 96, 200), (1, 7, 5)])
def test_dots_of_threads_in_all_orientations(size: tuple[int, int, int]) -> None:
    m, n, k = size
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    wanted = a @ b

    def nn(a: Any, b: Any) -> Any:
        return a @ b

    def nt(a: Any, b: Any) -> Any:
        return a @ ts.ops.transpose(b)

    def tn(a: Any, b: Any) -> Any:
        return ts.ops.transpose(a) @ b

    with poisoned():
        plain = np.asarray(ts.jit(nn, backend="cuda")(a, b))
        right = np.asarray(ts.jit(nt, backend="cuda")(a, np.ascontiguousarray(b.T)))
        left = np.asarray(ts.jit(tn, backend="cuda")(np.ascontiguousarray(a.T), b))
    for found in (plain, right, left):
        np.testing.assert_array_equal(found, wanted)


@kernel
def turned_product(a: KTile["M", "K", f32], b: KTile["N", "K", f32]) -> KTile["M", "N", f32]:
    """A dot with its B operand turned over in shared memory."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, T.m, k), tile.transpose(tile.load(b, T.n, k)))
    return acc


def test_an_operand_that_is_transposed_by_a_kernel() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((70, 96), (50, 96)))
    made = turned_product.with_schedule(Schedule(block=(32, 32, 16)))

    def call(a: Any, b: Any) -> Any:
        return made(a, b)

    with poisoned():
        found = np.asarray(ts.jit(call, backend="cuda")(a, b))
    np.testing.assert_array_equal(found, a @ b.T)


@kernel
def doubled_over(x: KTile["M", "N", f32], out: KTile["N", "M", f32]) -> None:
    """A tile that is turned over in registers: its elements change hands."""
    T = tile.context()
    tile.store(out, tile.transpose(tile.load(x, rows=T.m, cols=T.n) * 2.0), rows=T.n, cols=T.m)


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_a_tile_that_is_transposed_by_a_kernel(vector: int) -> None:
    x = np.random.default_rng(5).standard_normal((96, 128)).astype(np.float32)
    made = doubled_over.with_schedule(Schedule(block=(32, 64), vector=vector))

    def call(x: Any) -> Any:
        return made(x)

    with poisoned():
        found = np.asarray(ts.jit(call, backend="cuda")(x))
    np.testing.assert_array_equal(found, 2 * x.T)
