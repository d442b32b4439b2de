"""Dots of 8-bit floats with a scale for each tile of 128 x 128: scales are operands, dots of tensor cores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.ir.tile.write_records import write_kernel
from tests.oracles.nvptx_backend import NvptxBackend

TILE = 128
BACKEND = NvptxBackend()
DTYPES = {"e4m3": (ts.f8e4m3, ml_dtypes.float8_e4m3fn), "e5m2": (ts.f8e5m2, ml_dtypes.float8_e5m2)}
RNG = np.random.default_rng(8)


@kernel(Schedule(block=(TILE, TILE, TILE)))
def scaled_product(a: KTile["M", "K"], sa: KTile["M", "T", f32], b: KTile["N", "K"], sb: KTile["N", "T", f32]) -> Any:
    """a by b transposed: the sum of each 128 terms is scaled by its row and column before it is added."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        part = tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=T.n, cols=k).T)
        left, right = tile.load(sa, T.m, k.start // TILE), tile.load(sb, T.n, k.start // TILE)
        acc += part * left[:, None] * right[None, :]
    return acc


def by_row(scale: Any, rows: int) -> Any:
    """Scales of tiles as one for each row of them, which changes every 128 rows."""
    tiles, steps = scale.shape
    spread = ts.ops.broadcast_to(ts.ops.reshape(scale, (tiles, 1, steps)), (tiles, TILE, steps))
    return ts.ops.reshape(spread, (rows, steps))


def product(a: Any, b: Any) -> Any:
    """Two quantized matrices, the second transposed."""
    return scaled_product(a.values, by_row(a.scale, a.shape[0]), b.values, by_row(b.scale, b.shape[0]))


def sides(name: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Quantized matrices whose tiles are of very different sizes."""
    made: list[Any] = []
    for rows in (m, n):
        sizes = np.exp(3 * RNG.standard_normal((rows // TILE, 1, k // TILE, 1)))
        x = RNG.standard_normal((rows // TILE, TILE, k // TILE, TILE)) * sizes
        made.append(ts.quantize(x.reshape(rows, k).astype(np.float32), DTYPES[name][0], block=(TILE, TILE)))
    return made[0], made[1]


def exact(q: Any) -> Any:
    """What a quantized matrix stands for, in float64."""
    scale = np.kron(np.asarray(q.scale).astype(np.float64), np.ones((TILE, TILE)))
    return np.asarray(q.values).astype(np.float64) * scale


@pytest.mark.parametrize("name", DTYPES)
def test_scaled_matmuls_are_near_float64(name: str) -> None:
    a, b = sides(name, 128, 256, 384)
    found = np.asarray(ts.jit(product)(a, b)).astype(np.float64)
    left, right = exact(a), exact(b).T
    # Each of 384 sums is rounded once, and so are two dots by scales in each of three steps.
    assert np.all(np.abs(found - left @ right) <= (384 + 6) * 2.0**-24 * (np.abs(left) @ np.abs(right)))


@pytest.mark.parametrize("name", DTYPES)
def test_scales_are_operands_and_dots_run_on_tensor_cores(name: str) -> None:
    a, b = sides(name, 256, 256, 256)
    text = ts.jit(product).lower(a, b)
    assert "%a.scale: !tgraph.tensor<[2, 2], f32>" in text.graph
    assert text.tile.count("(_k floordiv 128)") == 2
    values, rows = np.zeros((256, 256), DTYPES[name][1]), np.zeros((256, 2), np.float32)
    target = BACKEND.matrix(write_kernel(scaled_product.program(values, rows, values, rows, kind="gpu")))
    assert target is not None
    assert "wgmma.mma_async" in BACKEND.code(target).text
    loads = [op for op in target.walk() if op.name == "ttarget.fragment_load"]
    assert len(loads) == 2
