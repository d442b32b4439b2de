"""Dots of tiles in every dtype that is multiplied: near float64 by what their sums may lose, on both machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, kernel, tile
from tessera.diagnostics.codes import DTypeError, KernelError
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.compare import agree
from tests.oracles.nvptx_backend import NvptxBackend

RNG = np.random.default_rng(14)
BACKEND = NvptxBackend()
DTYPES: dict[str, tuple[Any, Any, bool]] = {
    "f64": (np.float64, ts.f64, False),
    "f32": (np.float32, ts.f32, False),
    "bf16": (ml_dtypes.bfloat16, ts.f32, True),
    "f16": (np.float16, ts.f32, True),
    "e4m3": (ml_dtypes.float8_e4m3fn, ts.f32, True),
    "e5m2": (ml_dtypes.float8_e5m2, ts.f32, True),
    "i8": (np.int8, ts.i32, True),
}
"""What is multiplied, what it is summed in, and whether a Hopper GPU has tensor cores for it."""


@kernel(Schedule(block=(64, 64, 64)))
def product(a: KTile["M", "K"], b: KTile["N", "K"], *, total: Any) -> Any:
    """a times b transposed."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), total)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=T.n, cols=k).T)
    return acc


def numbers(dtype: Any, *shape: int) -> Any:
    if dtype is np.int8:
        return RNG.integers(-128, 128, shape).astype(np.int8)
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_matmuls_of_every_dtype_are_near_float64(name: str) -> None:
    dtype, total, _ = DTYPES[name]
    M, K, N = 33, 130, 20
    a, b = numbers(dtype, M, K), numbers(dtype, N, K)
    (found,) = agree(product, a, b, total=total)
    left, right = a.astype(np.float64), b.astype(np.float64).T
    # Each of K sums is rounded once, by at most half a step of what it is then.
    step = {"f64": 2.0**-53, "i8": 0.0}.get(name, 2.0**-24)
    assert np.all(np.abs(found - left @ right) <= K * step * (np.abs(left) @ np.abs(right)))


@pytest.mark.parametrize("name", DTYPES)
def test_tensor_cores_take_what_they_can(name: str) -> None:
    dtype, total, has_units = DTYPES[name]
    operands = np.zeros((256, 256), dtype), np.zeros((256, 256), dtype)
    wide = Schedule(block=(128, 128, 128) if has_units else (64, 64, 64))
    program = product.with_schedule(wide).program(*operands, kind="gpu", total=total)
    target = BACKEND.matrix(write_kernel(program))
    assert (target is not None) == has_units
    code = BACKEND.code(target if target is not None else BACKEND.lower(write_kernel(program)))
    assert ("wgmma.mma_async" in code.text) == has_units


@kernel(Schedule(block=(8, 4)))
def combine(x: KTile["M", "N"], y: KTile["M", "N"], *, function: Any) -> Any:
    T = tile.context()
    return function(tile.load(x, rows=T.m, cols=T.n), tile.load(y, rows=T.m, cols=T.n))


Combine: TypeAlias = Callable[[Any, Any], Any]
UNDEFINED: dict[str, tuple[Combine, Any, str]] = {
    "neg": (lambda x, y: -x, np.bool_, "integers or floats"),
    "abs": (lambda x, y: tile.abs(x), np.bool_, "integers or floats"),
    "sign": (lambda x, y: tile.sign(x), np.bool_, "integers or floats"),
    "relu": (lambda x, y: tile.relu(x), np.bool_, "integers or floats"),
    "sub": (lambda x, y: x - y, np.bool_, "integers or floats"),
    "floordiv": (lambda x, y: x // y, np.bool_, "integers or floats"),
    "mod": (lambda x, y: x % y, np.bool_, "integers or floats"),
    "fma": (lambda x, y: tile.fma(x, y, y), np.bool_, "integers or floats"),
    "not": (lambda x, y: ~x, np.float32, "bools or integers"),
    "and": (lambda x, y: x & y, ml_dtypes.bfloat16, "bools or integers"),
    "shl": (lambda x, y: x << y, np.float32, "integers"),
}
"""Functions of tiles on a dtype that they are not defined for, and what they take."""


@pytest.mark.parametrize("name", UNDEFINED)
def test_functions_refuse_dtypes_that_they_are_not_defined_for(name: str) -> None:
    function, dtype, takes = UNDEFINED[name]
    x = np.ones((8, 4), dtype)
    with pytest.raises(DTypeError, match=f"`{name}` takes tiles of {takes}, got ") as caught:
        combine(x, x, function=function)
    assert "cast" in str(caught.value.fix)
    assert caught.value.span is not None


def test_a_causal_mask_takes_floats_alone() -> None:
    x = np.ones((8, 4), np.int32)
    mask: Combine = lambda x, y: tile.mask_causal(x, tile.row_index(), tile.col_index())  # noqa: E731
    with pytest.raises(DTypeError, match="takes scores that are floats, as masked ones become -inf; got i32"):
        combine(x, x, function=mask)


def test_a_shuffle_takes_its_mode_by_name() -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    down: Combine = lambda x, y: tile.shuffle(x, mode="down", by=1, width=4)  # noqa: E731
    sideways: Combine = lambda x, y: tile.shuffle(x, mode="sideways", by=1, width=4)  # noqa: E731
    (found,) = agree(combine, x, x, function=down)
    np.testing.assert_array_equal(found, x[:, [1, 2, 3, 3]])
    with pytest.raises(KernelError, match="`mode` is one of down, up, index, got 'sideways'"):
        combine(x, x, function=sideways)


def test_a_number_may_come_first_in_every_operator() -> None:
    x = np.array([[1.0, 2.5, 3.0, 0.5]] * 8, np.float32)
    every: Combine = lambda x, y: 2.0**x + 7.0 // x + 7.0 % x + (7.0 - x) + 7.0 / x  # noqa: E731
    (found,) = agree(combine, x, x, function=every)
    np.testing.assert_allclose(found, 2.0**x + 7.0 // x + 7.0 % x + (7.0 - x) + 7.0 / x, rtol=1e-6)
