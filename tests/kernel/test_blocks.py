"""Products in the middle of a kernel: blocks of any width beside each other, and numbers that all rows of one share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.compare import agree
from tests.oracles.nvptx_backend import NvptxBackend

BF16: Any = ml_dtypes.bfloat16

RNG = np.random.default_rng(29)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@kernel
def scores(q: KTile["S", "D", f32], k: KTile["T", "D", f32], out: KTile["S", "T", f32]) -> None:
    """Each query by each key, and how far apart they stand."""
    T = tile.context()
    rows = tile.load(q, rows=T.m, cols=T.d)
    for n in tile.range_n(k.shape, T.n):
        apart = tile.cast(tile.col_index(n)[None, :] - tile.row_index()[:, None], f32)
        tile.store(out, tile.dot(rows, tile.transpose(tile.load(k, n, cols=T.d)), apart), T.m, n)


@kernel
def squared(q: KTile["S", "D", f32], k: KTile["T", "D", f32]) -> KTile["S", "D", f32]:
    """Two products, the second of what the first gives."""
    T = tile.context()
    rows, acc = tile.load(q, rows=T.m, cols=T.d), tile.zeros((T.m, T.d), f32)
    for n in tile.range_n(k.shape, T.n):
        keys = tile.load(k, n, cols=T.d)
        acc += tile.dot(tile.dot(rows, tile.transpose(keys)), tile.load(k, n, cols=T.d))
    return acc


@kernel(Schedule(block=(32, 16)))
def weighed(q: KTile["H", "S", "D", f32], k: KTile["H", "T", "D", f32], weight: KTile["H", f32]) -> Any:
    """Two products with a number of each head between them, which is loaded once."""
    T = tile.context()
    rows, acc, by = tile.load(q, rows=T.m, cols=T.d), tile.zeros((T.m, T.d), f32), tile.load(weight)
    for n in tile.range_n(k.shape, T.n):
        part = tile.dot(rows, tile.transpose(tile.load(k, n, cols=T.d))) * by
        acc += tile.dot(part, tile.load(k, n, cols=T.d))
    return acc


@pytest.mark.parametrize("width", [8, 40, 72, 100, 229])
def test_blocks_of_any_width_do_not_write_into_the_next_row(width: int) -> None:
    q, k = normal(13, 24), normal(width + 5, 24)
    apart = np.arange(width + 5)[None, :] - np.arange(13)[:, None]
    found = agree(scores.with_schedule(Schedule(block=(16, width))), q, k, ulps=4)[0]
    np.testing.assert_allclose(found, q.astype(np.float64) @ k.T + apart, atol=2e-4)


@pytest.mark.parametrize(("width", "depth"), [(72, 16), (112, 72), (24, 112)])
def test_the_result_of_a_dot_is_an_operand_of_the_next_at_any_width(width: int, depth: int) -> None:
    q, k = normal(13, depth), normal(2 * width - 3, depth)
    found = agree(squared.with_schedule(Schedule(block=(16, width))), q, k, ulps=4)[0]
    expected = q.astype(np.float64) @ k.T @ k
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_number_that_a_loop_reads_is_one_for_all_rows_of_a_block() -> None:
    q, k, weight = normal(2, 40, 16), normal(2, 40, 16), np.array([0.5, -2.0], np.float32)
    found = agree(weighed, q, k, weight, ulps=4)[0]
    expected = (q.astype(np.float64) @ np.swapaxes(k, 1, 2) * weight[:, None, None]) @ k
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@kernel(Schedule(block=(64, 128, 64)))
def transposed(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16], out: KTile["N", "M", bf16]) -> None:
    """A product whose columns are rows of the result."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, T.m, k), tile.load(b, k, T.n))
    tile.store(out, tile.relu(acc).T, rows=T.n, cols=T.m)


def test_a_dot_is_stored_transposed_without_a_transpose() -> None:
    a, b = normal(70, 100).astype(BF16), normal(100, 150).astype(BF16)
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0.0).T
    np.testing.assert_allclose(agree(transposed, a, b)[0], expected, atol=0.2)
    assert "ttarget.gemm" in transposed.lower(a, b).target
    program = transposed.program(a, b, kind="gpu")
    for machine, kind in (("sm_90a", "matrix_kernel"), ("sm_80", "warp_kernel")):
        target = NvptxBackend(GPUS[machine]).matrix(write_kernel(program))
        assert target is not None
        assert target.name == f"ttarget.{kind}"
