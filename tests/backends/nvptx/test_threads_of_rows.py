"""Rows that threads share, run on this CPU as the text that a GPU gets: the bits are those of the CPU's own kernels.

A thread of this machine stands for each thread of a block, with barriers and exchanges between lanes as a GPU has them
(`tests/oracles/native_threads.py`); `tests/device/test_row_blocks.py` is the same on a device, at more sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.oracles.native_threads import kernels_of, run, run_whole

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(29)


def drawn(shape: tuple[int, ...], dtype: Any) -> Any:
    return (RNG.standard_normal(shape) * 9).astype(dtype)


def same(function: Callable[[Any], Any], x: Any) -> None:
    found, wanted = run(function, [x])
    assert found.tobytes() == wanted.tobytes()


# Short rows, whose totals stay with the threads that have them.

SHORT: dict[str, Callable[[Any], Any]] = {
    "layernorm": lambda x: ts.ops.layernorm(x),
    "softmax": lambda x: ts.ops.softmax(x, axis=-1),
    "sum": lambda x: x.sum(axis=-1),
    "argmax": lambda x: ts.ops.argmax(x, axis=-1),
    "any": lambda x: (x > 0).any(axis=-1),
}


@pytest.mark.parametrize("width", [2, 8, 16, 20, 40, 100, 256])
@pytest.mark.parametrize("name", ["layernorm", "sum"])
def test_short_rows_in_slices(name: str, width: int) -> None:
    x = drawn((515, width), BF16 if width % 8 == 0 else np.float32)
    x[5, 0], x[7] = np.inf, np.nan
    same(SHORT[name], x)


@pytest.mark.parametrize("name", ["softmax", "argmax", "any"])
@pytest.mark.parametrize("dtype", [BF16, np.float32], ids=str)
def test_short_rows_of_other_reductions(name: str, dtype: Any) -> None:
    x = drawn((303, 32), dtype)
    x[5, 0], x[7] = np.inf, np.nan
    same(SHORT[name], x)


# Long rows of a scan, which programs share.


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.int32, np.int8], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cummax"])
def test_programs_share_long_rows(name: str, dtype: Any) -> None:
    """Totals of blocks, their prefixes, and all blocks again, with totals in memory of their own between."""
    x = drawn((2, 16999), dtype)

    def scanned(x: Any) -> Any:
        return getattr(ts.ops, name)(x, axis=1)

    codes = kernels_of(scanned, [x])
    assert [code.name.rpartition("_")[2] for code in codes] == ["totals", "prefixes", "blocks"]
    wanted = np.asarray(ts.jit(scanned)(x))
    carried = np.float32 if x.dtype.itemsize == 2 else wanted.dtype
    out, totals = np.full(wanted.shape, 77, wanted.dtype), np.full((2, 5), 77, carried)
    run_whole(codes, [x, out, totals])
    assert out.tobytes() == wanted.tobytes()


# Scatters into rows of few columns.


@pytest.mark.parametrize("mode", ["add", "set"])
@pytest.mark.parametrize(("shape", "count"), [((100, 2), 128), ((40, 5), 30), ((7, 3, 5), 40)], ids=str)
def test_scatters_into_rows_of_few_columns(shape: tuple[int, ...], count: int, mode: str) -> None:
    """Many equal indices, some out of bounds; what is found first is a copy of the operand."""
    x, updates = drawn(shape, np.float32), drawn((shape[0], count, *shape[2:]), np.float32)
    at = RNG.integers(0, shape[1] + 1, count)
    write: Any = ts.ops.scatter_add if mode == "add" else ts.ops.scatter

    def scattered(x: Any, at: Any, updates: Any) -> Any:
        return write(x, at, updates, axis=1)

    codes = [code for code in kernels_of(scattered, [x, at, updates]) if code.name.startswith("scatter_rows")]
    assert [code.name.rpartition("_")[2] for code in codes] == ["copy", "owned"]
    wanted: Any = np.asarray(ts.jit(scattered)(x, at, updates))
    out = np.full_like(x, 77)
    run_whole(codes, [x, updates, at, out])
    assert out.tobytes() == wanted.tobytes()


# Long rows, sorted by the bytes of their keys.


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.int8, np.bool_, np.float32], ids=str)
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_long_rows_are_sorted_by_keys_of_few_bytes(name: str, dtype: Any) -> None:
    x = drawn((2, 1100), dtype)
    if x.dtype.kind not in "ib":
        x[:, ::7], x[:, ::11], x[:, ::13], x[:, ::17] = np.nan, -0.0, 0.0, -np.inf

    def ordered(x: Any) -> Any:
        return getattr(ts.ops, name)(x, axis=1, descending=True)

    (code,) = kernels_of(ordered, [x])
    wanted: Any = np.asarray(ts.jit(ordered)(x))
    out = np.full_like(wanted, 1)
    run_whole([code], [x, out])
    assert out.tobytes() == wanted.tobytes()
