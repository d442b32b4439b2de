"""Dots and attention on tensor cores of single warps: the kernels that sm_80 runs, on whatever GPU there is."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.test_matrix import attended, causal, distance, full, into_i32, nn, nt, on_gpu, random, wide

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

WARPS = {"matrix.instruction": "mma.sync"}
SIZES = [(128, 256, 64), (300, 520, 200), (257, 264, 1000), (1, 8, 8), (129, 257, 72), (77, 100, 33), (513, 1001, 512)]
"""Some of whose rows begin at multiples of 16 bytes, and some of whose do not."""
BLOCKS = [(128, 128, 64), (256, 128, 64), (128, 256, 64), (128, 64, 64), (64, 128, 64), (64, 64, 64), (192, 128, 64)]


def tn(x: Any, w: Any) -> Any:
    return ts.ops.matmul(ts.ops.transpose(x), w)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "bound"), [(ml_dtypes.bfloat16, 2.0**-8), (np.float16, 2.0**-11), (np.int8, 0.0)])
def test_products_of_any_size(dtype: Any, bound: float, size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k), dtype), random((n, k), dtype)
    found = on_gpu(into_i32 if dtype is np.int8 else nt, x, w, overrides=WARPS)
    assert distance(found, wide(x) @ wide(w).T) <= bound


@pytest.mark.parametrize("size", SIZES)
def test_sides_of_either_orientation(size: tuple[int, int, int]) -> None:
    """A operand across k is turned on its way from shared memory; sums have the same order, so bits are the same."""
    m, n, k = size
    x, w = random((m, k)), random((k, n))
    first = on_gpu(nn, x, w, overrides=WARPS)
    assert distance(first, wide(x) @ wide(w)) <= 2.0**-8
    assert first.tobytes() == on_gpu(nt, x, np.ascontiguousarray(w.T), overrides=WARPS).tobytes()
    assert first.tobytes() == on_gpu(tn, np.ascontiguousarray(x.T), w, overrides=WARPS).tobytes()


@pytest.mark.parametrize("size", [(700, 904, 1000), (513, 1001, 512)])
def test_bits_do_not_depend_on_the_block(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k)), random((n, k))
    made = [on_gpu(nt, x, w, overrides={**WARPS, "contraction.block": block}) for block in BLOCKS]
    assert distance(made[0], wide(x) @ wide(w).T) <= 2.0**-8
    assert len({one.tobytes() for one in made}) == 1


@pytest.mark.parametrize("size", [(128, 256, 64), (300, 520, 200), (77, 100, 33)])
def test_f32_that_was_rounded_to_tf32(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k), np.float32), random((n, k), np.float32)
    found = on_gpu(nt, x, w, overrides=WARPS, policy=ts.compute(ts.tf32))
    rounded = [wide(ts.ops.round_to(one, ts.tf32)) for one in (x, w)]
    assert distance(found, rounded[0] @ rounded[1].T) <= 2e-6


def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh") + r


@pytest.mark.parametrize("columns", [264, 261])
def test_an_epilogue_stays_in_the_kernel(columns: int) -> None:
    x, w, b, r = random((300, 200)), random((200, columns)), random((columns,)), random((300, columns))
    inner = (wide((wide(x) @ wide(w)).astype(ml_dtypes.bfloat16)) + wide(b)).astype(ml_dtypes.bfloat16)
    u = wide(inner)
    gelu = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    assert distance(on_gpu(layer, x, w, b, r, overrides=WARPS), gelu + wide(r)) <= 8e-3


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 2, 300, 300, 128), (2, 4, 1, 200, 333, 64), (1, 1, 1, 333, 200, 128)])
def test_attention_of_any_length(shape: tuple[int, ...], is_causal: bool) -> None:
    batch, heads, shared, queries, keys, head = shape
    q = random((batch, heads, queries, head))
    k, v = (random((batch, shared, keys, head)) for _ in range(2))
    found = on_gpu(causal if is_causal else full, q, k, v, overrides=WARPS)
    assert distance(found, attended(q, k, v, is_causal)) <= 4e-3


@kernel.schedule(Schedule(block=(128, 64, 64), warps=8))
def heads(x: KTile["M", "K", bf16], w: KTile["K", "N", bf16], out: KTile["M", 2, "N", bf16]) -> None:
    """One dot into both places of each row, the second first."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, rows=T.m, cols=k), tile.load(w, rows=k, cols=T.n))
    tile.store(out, tile.cast(acc, bf16), T.m, 1, T.n)
    tile.store(out, tile.cast(acc, bf16), T.m, 0, T.n)


@pytest.mark.parametrize("columns", [36, 40, 100])
def test_rows_that_end_within_a_piece_leave_what_is_behind_them_alone(columns: int) -> None:
    """Rows of 2 x 36 begin at multiples of 16 bytes, and what is behind 36 columns was stored before."""
    x, w = random((300, 72)), random((72, columns))

    def both(x: Any, w: Any) -> Any:
        return heads(x, w)

    found = on_gpu(both, x, w, overrides=WARPS)
    assert found.shape == (300, 2, columns)
    for place in (0, 1):
        assert distance(found[:, place], wide(x) @ wide(w)) <= 2.0**-8


@ts.jit(backend="cuda", overrides=WARPS)
def free(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def test_one_compilation_serves_all_sizes() -> None:
    """Nothing to sum is nothing to copy: such a kernel needs no other beside it."""
    for m, n, k in [*SIZES, (5, 7, 0)]:
        x, w = random((m, k)), random((n, k))
        found, wanted = wide(free(x, w)), wide(x) @ wide(w).T
        assert found.shape == (m, n)
        assert np.linalg.norm(found - wanted) <= 2.0**-8 * np.linalg.norm(wanted)
