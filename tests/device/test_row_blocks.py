"""Scans, scatters, sorts and short rows on a GPU, whoever has which part of a row: the bits are those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

RNG = np.random.default_rng(23)
BF16 = ml_dtypes.bfloat16


def same(function: Callable[[Any], Any], given: Any) -> None:
    """Bits of the CPU, in memory that was full of NaN; all NaN are alike."""
    with poisoned():
        there = np.asarray(ts.jit(function, backend="cuda")(given))
    here = np.asarray(ts.jit(function)(given))
    assert here.dtype == there.dtype
    assert here.shape == there.shape
    bits = [part.view(f"u{part.dtype.itemsize}") for part in (here, there)]
    nan = [part.astype(np.float64) != part.astype(np.float64) for part in (here, there)]
    agree = (bits[0] == bits[1]) | (nan[0] & nan[1])
    assert agree.all(), (np.argwhere(~agree)[:3], here[~agree][:3], there[~agree][:3])


def drawn(shape: tuple[int, ...], dtype: Any, scale: float = 9.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.float64, np.int8, np.int32], ids=str)
@pytest.mark.parametrize("shape", [(1, 1 << 20), (3, 70001), (7, 16385), (2, 300000)], ids=str)
def test_programs_share_long_rows(shape: tuple[int, ...], dtype: Any) -> None:
    """Totals are of one chunk of blocks, of several, and of a row that ends anywhere."""
    x = drawn(shape, dtype)
    same(lambda x: ts.ops.cumsum(x, axis=1), x)
    same(lambda x: ts.ops.cummax(x, axis=1), x)


def test_rows_that_are_shared_propagate_nan() -> None:
    x = drawn((2, 50000), np.float32)
    x[0, 20000] = np.nan
    same(lambda x: ts.ops.cumsum(x, axis=1), x)
    same(lambda x: ts.ops.cumprod(x * 0.01 + 1.0, axis=1), x)
    same(lambda x: ts.ops.cummax(x, axis=1), -np.abs(x))


def test_more_totals_than_one_block_has() -> None:
    same(lambda x: ts.ops.cumsum(x, axis=0), drawn((4096 * 4097,), BF16, 1.0))


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8, np.int32], ids=str)
@pytest.mark.parametrize("shape", [(600, 4096), (530, 11000), (700, 5003), (300, 8192), (5000, 129)], ids=str)
def test_rows_of_a_program_each(shape: tuple[int, ...], dtype: Any) -> None:
    x = drawn(shape, dtype)
    same(lambda x: ts.ops.cumsum(x, axis=1), x)
    same(lambda x: ts.ops.cummax(x, axis=1), x)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.int8], ids=str)
@pytest.mark.parametrize("shape", [(39, 8, 1003), (5, 8, 4096), (3, 300, 40000), (200, 17, 20), (1, 64, 3)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_columns_of_threads(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = drawn(shape, dtype)
    same(lambda x: ts.ops.cumsum(x, axis=axis), x)
    same(lambda x: ts.ops.cummax(x, axis=axis), x)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.int16], ids=str)
@pytest.mark.parametrize(("shape", "count"), [((2048, 2), 128), ((700, 900), 1300), ((65, 3, 5), 40), ((3, 7), 5000)])
def test_scatters_into_rows_of_few_columns(shape: tuple[int, ...], count: int, dtype: Any) -> None:
    """Many equal indices, some out of bounds."""
    x, updates = drawn(shape, dtype), drawn((shape[0], count, *shape[2:]), dtype)
    at = RNG.integers(0, shape[1] + 1, count)
    same(lambda of: ts.ops.scatter_add(of[0], of[1], of[2], axis=1), (x, at, updates))
    same(lambda of: ts.ops.scatter(of[0], of[1], of[2], axis=1), (x, at, updates))


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16], ids=str)
@pytest.mark.parametrize("width", [2, 3, 8, 16, 20, 32, 40, 64, 100, 128, 200, 256])
def test_short_rows_in_slices(width: int, dtype: Any) -> None:
    x = drawn((1003, width), dtype)
    x[5, 0], x[7] = np.inf, np.nan
    same(lambda x: ts.ops.layernorm(x), x)
    same(lambda x: ts.ops.softmax(x, axis=-1), x)
    same(lambda x: x.sum(axis=-1), x)
    same(lambda x: ts.ops.argmax(x, axis=-1), x)
    same(lambda x: (x > 0).any(axis=-1), x)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.int8, np.bool_, np.float32], ids=str)
@pytest.mark.parametrize("count", [1024, 5000, 8192, 16384, 16411, 70000])
def test_sorts_of_long_rows_of_narrow_keys(count: int, dtype: Any) -> None:
    x = drawn((3, count), dtype)
    if x.dtype.kind not in "ib":
        x[:, ::7], x[:, ::11], x[:, ::13], x[:, ::17] = np.nan, -0.0, 0.0, -np.inf
    same(lambda x: ts.ops.sort(x, axis=1), x)
    same(lambda x: ts.ops.argsort(x, axis=1, descending=True), x)
    same(lambda x: ts.ops.topk(x, 900, axis=1)[1], x)


def test_short_rows_with_weights_and_of_integers() -> None:
    x, weight, bias = drawn((4000, 32), BF16), drawn((32,), BF16), drawn((32,), BF16)
    same(lambda of: ts.ops.layernorm(*of), (x, weight, bias))
    same(lambda x: x.sum(axis=-1), drawn((999, 48), np.int8))
    same(lambda x: x.max(axis=-1) - x.min(axis=-1), drawn((999, 64), np.int32))
