"""Segments of K on a GPU: values, equal bits whoever computes a row, and those of a CPU where both multiply alike."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

SHAPES = [(512, 8192, 512), (33, 5001, 100), (200, 9000, 760), (1, 20000, 64), (700, 4096, 1)]


def _operands(shape: tuple[int, int, int], dtype: Any) -> tuple[Any, Any]:
    rng, (m, k, n) = np.random.default_rng(7), shape
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def _layer(a: Any, b: Any) -> Any:
    return ts.ops.relu(ts.ops.matmul(a, b))


def _free(a: ts.Tensor["M", "K"], b: ts.Tensor["K", "N"]) -> Any:
    return ts.ops.relu(ts.ops.matmul(a, b))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32], ids=["bf16", "f16", "f32"])
def test_rows_runs_and_symbolic_sizes_have_one_set_of_bits(shape: tuple[int, int, int], dtype: Any) -> None:
    a, b = _operands(shape, dtype)
    layer, free = ts.jit(_layer), ts.jit(_free)
    x, w = ts.cuda.array(a), ts.cuda.array(b)
    found = np.asarray(layer(x, w).cpu())
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    scale = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    steps = 2.0**-24 * shape[1] + (0 if dtype is np.float32 else 2.0**-8)
    assert np.all(np.abs(found.astype(np.float64) - exact) <= steps * scale + 1e-30)
    assert all(np.asarray(layer(x, w).cpu()).tobytes() == found.tobytes() for _ in range(100))
    assert np.asarray(layer(ts.cuda.array(a[:1].copy()), w).cpu()).tobytes() == found[:1].tobytes()
    assert np.asarray(free(x, w).cpu()).tobytes() == found.tobytes()
    if dtype is np.float32:
        assert np.asarray(layer(a, b)).tobytes() == found.tobytes()


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (16896, 4096, 128),
        (16800, 3100, 120),
        (8448, 4100, 250),
        (8448, 4096, 512),
        (16500, 7000, 24),
        (16890, 9000, 40),
    ],
)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
def test_segments_that_one_kernel_joins_have_the_bits_of_partial_results(m: int, k: int, n: int, dtype: Any) -> None:
    """Two, three and four of them, whole and not: results that fill the machine, and some of their rows alone."""
    a, b = _operands((m, k, n), dtype)
    layer: Any = ts.jit(_layer)
    x, w = ts.cuda.array(a), ts.cuda.array(b)
    found = np.asarray(layer(x, w).cpu())
    assert len(layer.explain(x, w).report["kernels"]) == 1
    few = ts.cuda.array(a[-300:].copy())
    assert np.asarray(layer(few, w).cpu()).tobytes() == found[-300:].tobytes()
    assert len(layer.explain(few, w).report["kernels"]) == 2
