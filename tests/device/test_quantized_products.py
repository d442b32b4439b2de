"""Operands computed for tensor cores, and grouped contractions, on a GPU: values, bits, and groups that stay apart."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.ir.graph.ops.quantize import dequantize_reference
from tessera.ir.graph.ops.ragged import ragged_dot_reference
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.test_matrix import on_gpu

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(7)
BF16, E4M3 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)


def random(*shape: int, dtype: Any = BF16) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("m", [1, 7, 16, 64, 200])
@pytest.mark.parametrize(("dtype", "group"), [(np.int8, 128), (np.int8, 32), (E4M3, 64)])
def test_dequantized_weights_have_the_bits_of_those_in_memory(m: int, dtype: Any, group: int) -> None:
    n, k = 1000, 640
    w = RNG.integers(-128, 128, (n, k)).astype(np.float32)
    w = (w if dtype is np.int8 else w / 64).astype(dtype)
    s, x = RNG.uniform(0.01, 0.02, (n, k // group)).astype(np.float32), random(m, k)
    weight = dequantize_reference(w, s, dtype=ts.bf16, block=(1, group))
    fused = on_gpu(lambda x, w, s: x @ ts.ops.dequantize(w, s, dtype=ts.bf16, block=(1, group)).T, x, w, s)
    apart = on_gpu(lambda x, w: x @ w.T, x, weight)
    assert fused.tobytes() == apart.tobytes()
    across = on_gpu(
        lambda x, w, s: x @ ts.ops.dequantize(w, s, dtype=ts.bf16, block=(group, 1)),
        *(x, np.ascontiguousarray(w.T)[:, :992], np.ascontiguousarray(s.T)[:, :992]),
    )
    assert across.tobytes() == np.ascontiguousarray(apart[:, :992]).tobytes()


@pytest.mark.parametrize("m", [1, 16, 64, 200])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_of_4_bits_have_the_bits_of_those_in_memory(m: int, axis: int) -> None:
    n, k = 1040, 1024
    y = RNG.integers(-128, 128, (k // 2, n) if axis == 0 else (n, k // 2)).astype(np.int8)
    s, x = RNG.uniform(0.01, 0.02, (1, n) if axis == 0 else (n, 1)).astype(np.float32), random(m, k)
    weight = dequantize_reference(np.concatenate([(y & 15) - 8, y >> 4], axis), s, dtype=ts.bf16, block=())

    def product(x: Any, y: Any, s: Any) -> Any:
        made = ts.ops.dequantize(ts.ops.concat([(y & 15) - 8, y >> 4], axis), s, dtype=ts.bf16)
        return x @ (made if axis == 0 else made.T)

    apart = on_gpu(lambda x, w: x @ w, x, weight if axis == 0 else np.ascontiguousarray(weight.T))
    assert on_gpu(product, x, y, s).tobytes() == apart.tobytes()


@pytest.mark.parametrize("sizes", [[0, 0, 4000, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1300, 0, 77, 2600]], ids=str)
def test_blocks_of_groups_have_the_bits_of_their_own_matmul(sizes: list[int]) -> None:
    """Of more blocks than there are multiprocessors, most of which are passed over where groups are short."""
    x, w = random(4000, 512), random(4, 512, 4096)
    found, start = on_gpu(ts.ops.ragged_dot, x, w, np.array(sizes)), 0
    for matrix, size in zip(w, sizes, strict=True):
        if size:
            own = on_gpu(lambda x, y: x @ y, np.ascontiguousarray(x[start : start + size]), matrix)
            assert found[start : start + size].tobytes() == own.tobytes()
        start += size
    assert not found[start:].astype(np.float32).any()


@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)])
def test_groups_are_multiplied_by_their_matrices_alone(dtype: Any) -> None:
    x, w = random(700, 128, dtype=dtype), random(5, 128, 200, dtype=dtype)
    sizes = np.array([3, 0, 197, 257, 143])
    x[3:200], x[600:] = np.nan, np.inf
    found = on_gpu(ts.ops.ragged_dot, x, w, sizes)
    wanted = ragged_dot_reference(x, w, np.cumsum([0, *sizes]))
    assert np.isnan(found[3:200].astype(np.float32)).all()
    assert not found[600:].astype(np.float32).any()
    for rows in (slice(0, 3), slice(200, 600)):
        ours, exact = found[rows].astype(np.float64), wanted[rows].astype(np.float64)
        # The sum of 128 products of about 1, then rounded.
        assert np.all(np.abs(ours - exact) <= 128 * 2.0**-20 + np.abs(exact) * 2.0**-7)


def test_gradients_of_groups() -> None:
    x, w, sizes = random(300, 64), random(3, 64, 72), np.array([100, 0, 180])
    loss = ts.grad(lambda x, w, s: (ts.ops.ragged_dot(x, w, s).cast(ts.f32) ** 2.0).sum(), argnums=(0, 1))
    on_device: Any = ts.jit(loss, backend="cuda")
    for found, wanted in zip(on_device(x, w, sizes), ts.jit(loss)(x, w, sizes), strict=True):
        exact = np.asarray(wanted).astype(np.float32)
        assert np.abs(np.asarray(found).astype(np.float32) - exact).max() <= np.abs(exact).max() * 2.0**-6
