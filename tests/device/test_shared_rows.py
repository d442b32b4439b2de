"""Rows that several warps share, on a GPU: every bit is that of the CPU, for widths that are known and free."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_widths import free
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import efficient_layernorm, stable_softmax
from tests.device.poison import poisoned

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

RNG = np.random.default_rng(23)
BF16 = ml_dtypes.bfloat16


def agree(here: Any, there: Any, where: object = "") -> None:
    """Whether two results have the same bits, NaN being one value."""
    for wanted, given in zip(map(np.asarray, as_tuple(here)), map(np.asarray, as_tuple(there)), strict=True):
        assert wanted.shape == given.shape
        wide = [part.astype(np.float64) for part in (wanted, given)]
        equal = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
        assert equal.all(), (where, np.argwhere(~equal)[:3], wanted[~equal][:3], given[~equal][:3])


def same(function: Any, *arrays: Any, times: int = 1) -> None:
    """The bits of the CPU, every time."""
    here, there = ts.jit(function)(*arrays), ts.jit(function, backend="cuda")
    for _ in range(times):
        with poisoned():
            agree(here, there(*arrays))


def rows_of(rows: int, columns: int, dtype: Any = BF16) -> Any:
    """Rows of all sizes, with corners: all of -inf, one of them, NaN, and far apart."""
    x = RNG.standard_normal((rows, columns)) * RNG.choice([1e-3, 1.0, 30.0, 300.0], (rows, 1))
    corners = (float("-inf"), float("inf"), float("nan"))
    for row, number in zip(range(1, rows, 2), corners, strict=False):
        x[row, RNG.integers(columns)] = number
    if rows > 8:
        x[8] = -np.inf
    return x.astype(dtype)


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def log_softmax(x: Any) -> Any:
    return ts.ops.log_softmax(x, axis=-1)


def of_sum(x: Any, y: Any) -> Any:
    return ts.ops.softmax(x * 0.5 + y, axis=-1)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def rmsnorm(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w)


def sums(x: Any) -> Any:
    return x.sum(axis=-1), ts.ops.var(x, axis=-1)


def greatest(x: Any) -> Any:
    return ts.ops.argmax(x, axis=-1), x.max(axis=-1)


def gelu_layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(ts.ops.gelu(x), w, b)


def tanh_softmax(x: Any) -> Any:
    return ts.ops.softmax(ts.ops.tanh(x), axis=-1)


def differences(x: Any) -> Any:
    return ts.ops.softmax(x[1:] - x[:-1], axis=-1)


def two_of_one(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w[: x.shape[1]]) + w[x.shape[1] :]


def others(function: Any, columns: int, dtype: Any = BF16) -> list[Any]:
    count = function.__code__.co_argcount - 1
    return [RNG.standard_normal(columns).astype(dtype) for _ in range(count)]


NORMS = [softmax, log_softmax, layernorm, rmsnorm, sums, greatest]
WIDTHS = [4640, 4865, 5000, 5001, 6144, 8200, 12288, 16385, 32768, 32800]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("function", [softmax, layernorm])
def test_rows_of_known_widths(function: Any, columns: int) -> None:
    same(function, rows_of(10, columns), *others(function, columns), times=2)


@pytest.mark.parametrize("columns", [5000, 5001, 16384])
def test_arguments_that_are_read_in_two_ways(columns: int) -> None:
    same(differences, rows_of(10, columns))
    same(two_of_one, rows_of(10, columns), RNG.standard_normal(2 * columns).astype(BF16))


@pytest.mark.parametrize("function", NORMS)
@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32, np.float64])
def test_rows_of_every_dtype(function: Any, dtype: Any) -> None:
    same(function, rows_of(9, 5013, dtype), *others(function, 5013, dtype))


@pytest.mark.parametrize("rows", [0, 1, 131, 3000])
@pytest.mark.parametrize("function", [softmax, rmsnorm])
def test_any_number_of_rows(function: Any, rows: int) -> None:
    same(function, rows_of(rows, 6145), *others(function, 6145))


@pytest.mark.parametrize("function", [softmax, rmsnorm, layernorm])
@pytest.mark.parametrize("columns", [20480, 32760])
def test_many_rows_that_are_copied_ahead(function: Any, columns: int) -> None:
    """Several to each block, which stays: the first has three, and the last ones two."""
    same(function, rows_of(300, columns), *others(function, columns), times=2)


def test_two_rows_at_a_time() -> None:
    for columns in (5120, 5121, 16384):
        same(of_sum, rows_of(7, columns), rows_of(7, columns))


@pytest.mark.parametrize("function", [gelu_layernorm, tanh_softmax])
@pytest.mark.parametrize("columns", [2048, 4096, 4099])
def test_long_formulas(function: Any, columns: int) -> None:
    same(function, rows_of(9, columns), *others(function, columns))


FREE = [1, 31, 1024, 1025, 1279, 1280, 1281, 2047, 2048, 2303, 2304, 2305, 4096, 5000, 8192, 8447, 8448, 16384,
    16639, 16640, 18432, 18433, 33023, 33024, 131072, 131073]  # fmt: skip


@pytest.mark.parametrize("function", [*NORMS, of_sum, gelu_layernorm, tanh_softmax])
def test_rows_of_free_widths(function: Any) -> None:
    """Through one compilation: of few warps and of many, at the ends of sections, and beyond all of them."""
    given = free(function, ts.bf16)
    here: Any = ts.jit(given)
    there: Any = ts.jit(given, backend="cuda")
    for columns in FREE:
        arrays = [rows_of(9, columns), *others(function, columns)]
        if function is of_sum:
            arrays[1] = rows_of(9, columns)
        with poisoned():
            agree(here(*arrays), there(*arrays), columns)
    assert there.cache_info().misses == 1


@pytest.mark.parametrize("rows", [0, 1, 500, 5000])
def test_many_rows_of_free_widths(rows: int) -> None:
    given = free(softmax, ts.bf16)
    here: Any = ts.jit(given)
    there: Any = ts.jit(given, backend="cuda")
    for columns in (1300, 5001):
        x = rows_of(rows, columns)
        agree(here(x), there(x), columns)


@pytest.mark.parametrize("columns", [4640, 5001, 8192, 16384])
@pytest.mark.parametrize("function", [layernorm, rmsnorm])
@pytest.mark.parametrize("dtype", [BF16, np.float32])
def test_squares_that_overflow(function: Any, columns: int, dtype: Any) -> None:
    """Everywhere in a row, in one place of it, and in the last one, which may be beyond all whole turns."""
    x = RNG.standard_normal((7, columns))
    x[1] *= 1e30
    x[2, columns // 3], x[3, -1], x[4, 0] = 3e25, -1e25, 1e38
    x[5, ::2] = 1e19
    same(function, x.astype(dtype), *others(function, columns, dtype))


@pytest.mark.parametrize("function", [layernorm, rmsnorm])
def test_squares_of_free_rows_that_overflow(function: Any) -> None:
    given = free(function, ts.bf16)
    here: Any = ts.jit(given)
    there: Any = ts.jit(given, backend="cuda")
    for columns in (1100, 5001, 20000):
        x = RNG.standard_normal((5, columns))
        x[1] *= 1e30
        x[2, columns // 3], x[3, -1] = 3e25, -1e25
        arrays = [x.astype(BF16), *others(function, columns)]
        agree(here(*arrays), there(*arrays), columns)


def library_softmax(x: Any) -> Any:
    return stable_softmax(x)


def library_layernorm(x: Any, w: Any, b: Any) -> Any:
    return efficient_layernorm(x, w, b)


@pytest.mark.parametrize("function", [library_softmax, library_layernorm])
@pytest.mark.parametrize("columns", [16384, 20000, 32000])
def test_wide_rows_of_the_library(function: Any, columns: int) -> None:
    """Programs of 256 threads, and of twice as many."""
    for dtype in (BF16, np.float32):
        same(function, rows_of(6, columns, dtype), *others(function, columns, dtype))


def later_columns(x: Any) -> Any:
    return ts.ops.softmax(x[:, 3:], axis=-1)


def test_rows_that_begin_anywhere() -> None:
    """Rows of a view, whose neighbours belong to nobody."""
    for columns in (5003, 5004, 5011):
        same(later_columns, rows_of(6, columns))


def of_columns(x: Any) -> Any:
    return ts.ops.softmax(x, axis=1)


@pytest.mark.parametrize("shape", [(3, 5001, 4), (2, 700, 33), (2, 1024, 64)])
def test_exps_over_columns(shape: tuple[int, ...]) -> None:
    same(of_columns, (RNG.standard_normal(shape) * 5).astype(BF16))
