"""Dots and attention on tensor cores of a GPU: right on any size, the same bits whatever was chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(11)
SIZES = [(128, 256, 64), (300, 520, 200), (257, 264, 1000), (1, 8, 8), (129, 257, 72), (77, 100, 33), (513, 1001, 512)]
DTYPES = {
    "bf16": (ml_dtypes.bfloat16, 2.0**-8),
    "f16": (np.float16, 2.0**-11),
    "i8": (np.int8, 0.0),
    "e4m3": (ml_dtypes.float8_e4m3fn, 3e-4),
}
"""What is multiplied, and how far the result may be off, in parts of its size: its rounding, or sums of e4m3."""


def random(shape: Sequence[int], dtype: Any = ml_dtypes.bfloat16) -> Any:
    if dtype is np.int8:
        return RNG.integers(-128, 128, shape).astype(np.int8)
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


def wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)


def distance(made: Any, wanted: Any) -> float:
    return float(np.linalg.norm(wide(made) - wanted) / np.linalg.norm(wanted))


def on_gpu(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    with poisoned():
        return np.asarray(ts.jit(function, backend="cuda", **options)(*arrays))


def nt(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def nn(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, w)


def into_f32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


def into_i32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DTYPES)
def test_products_of_any_size(name: str, size: tuple[int, int, int]) -> None:
    (m, n, k), (dtype, bound) = size, DTYPES[name]
    x, w = random((m, k), dtype), random((n, k), dtype)
    function = into_i32 if name == "i8" else into_f32 if name == "e4m3" else nt
    assert distance(on_gpu(function, x, w), wide(x) @ wide(w).T) <= bound


@pytest.mark.parametrize("size", SIZES)
def test_a_right_side_of_either_orientation(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k)), random((k, n))
    first = on_gpu(nn, x, w)
    assert distance(first, wide(x) @ wide(w)) <= 2.0**-8
    assert first.tobytes() == on_gpu(nt, x, np.ascontiguousarray(w.T)).tobytes()


@pytest.mark.parametrize("size", [(700, 904, 1000), (513, 1001, 512)])
def test_bits_do_not_depend_on_the_block(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k)), random((n, k))
    found = {block: hash(on_gpu(nt, x, w, overrides={"contraction.block": block}).tobytes()) for block in WGMMA_BLOCKS}
    assert len(set(found.values())) == 1, found


def test_bits_do_not_depend_on_the_run() -> None:
    x, w = random((1000, 776)), random((1304, 776))
    jitted = ts.jit(nt, backend="cuda")
    given = [ts.cuda.array(x), ts.cuda.array(w)]
    assert len({np.asarray(jitted(*given)).tobytes() for _ in range(100)}) == 1


def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh") + r


def test_an_epilogue_stays_in_the_kernel() -> None:
    x, w, b, r = random((300, 200)), random((200, 264)), random((264,)), random((300, 264))
    inner = (wide((wide(x) @ wide(w)).astype(ml_dtypes.bfloat16)) + wide(b)).astype(ml_dtypes.bfloat16)
    u = wide(inner)
    gelu = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    assert distance(on_gpu(layer, x, w, b, r), gelu + wide(r)) <= 8e-3
    assert len(ts.jit(layer, backend="cuda").lower(x, w, b, r).target.split("ttarget.matrix_kernel")) == 2


def attended(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    """Attention in float64."""
    heads = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(wide(part), heads, axis=1) for part in (k, v))
    scores = wide(q) @ keys.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        seen = np.tril(np.ones((q.shape[2], k.shape[2])), k.shape[2] - q.shape[2])
        scores = np.where(seen > 0, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = powers.sum(-1, keepdims=True)
    return powers @ values / np.where(total == 0, 1.0, total)


def full(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 2, 2, 300, 300, 128), (2, 4, 1, 200, 333, 64), (1, 1, 1, 333, 200, 128), (2, 2, 2, 512, 512, 64)],
)
def test_attention_of_any_length(shape: tuple[int, ...], is_causal: bool) -> None:
    batch, heads, shared, queries, keys, head = shape
    q = random((batch, heads, queries, head))
    k, v = (random((batch, shared, keys, head)) for _ in range(2))
    found = on_gpu(causal if is_causal else full, q, k, v)
    assert distance(found, attended(q, k, v, is_causal)) <= 4e-3


def test_kernels_of_users_are_right_too() -> None:
    from tests.backends.nvptx.test_matrix import attention_by_hand, dot_by_hand

    a, b = random((300, 200)), random((200, 520))
    assert distance(on_gpu(dot_by_hand, a, b), wide(a) @ wide(b)) <= 2.0**-8
    q, k, v = random((3, 300, 128)), random((3, 333, 128)), random((3, 333, 128))
    wanted = attended(q[:, None], k[:, None], v[:, None], is_causal=False)[:, 0]
    assert distance(on_gpu(attention_by_hand, q, k, v), wanted) <= 4e-3


@ts.jit(backend="cuda")
def free(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def test_one_compilation_serves_all_sizes() -> None:
    """Rows of whole 16 bytes or not, and nothing at all to sum, where multiply-adds take over."""
    for m, n, k in [*SIZES, (5, 7, 0)]:
        x, w = random((m, k)), random((n, k))
        with poisoned():
            found = wide(free(x, w))
        wanted = wide(x) @ wide(w).T
        assert found.shape == (m, n)
        assert np.linalg.norm(found - wanted) <= 2.0**-8 * np.linalg.norm(wanted)
