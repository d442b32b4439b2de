"""Tiles in lines of 64 and 32 bytes on tensor cores of a GPU: dots and attention with heads of any sixteens."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.backends.nvptx.lines import BLOCKS, KERNELS, dot, shapes
from tests.device.test_matrix import attended, distance, on_gpu, random, wide

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

CASES = [((300, 136, 200), ml_dtypes.bfloat16), ((77, 104, 40), ml_dtypes.bfloat16), ((129, 72, 136), np.float16)]
ATTENDED = [(200, 200, 4, ml_dtypes.bfloat16), (1, 500, 1, ml_dtypes.bfloat16), (130, 300, 2, np.float16)]
"""Queries, keys, and heads that have their own."""


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", KERNELS)
def test_products_in_blocks_of_narrow_lines(name: str, block: tuple[int, int, int]) -> None:
    for size, dtype in CASES:
        a, b = (random(shape, dtype) for shape in shapes(name, *size))
        wanted = wide(a) @ (wide(b).T if name == "nt" else wide(b))
        assert distance(on_gpu(dot(name, block), a, b), wanted) <= 1e-6, (size, dtype)


@pytest.mark.parametrize("depth", [32, 64, 96])
def test_single_bytes_in_narrow_lines(depth: int) -> None:
    a, b = (random((extent, 208), ml_dtypes.float8_e4m3fn) for extent in (300, 136))
    for name, times in (("nt", 1), ("parts", 2)):
        assert distance(on_gpu(dot(name, (64, 64, depth)), a, b), times * (wide(a) @ wide(b).T)) <= 3e-4


def test_bits_do_not_depend_on_lines() -> None:
    a, b = random((300, 200)), random((264, 200))
    blocks = ((64, 64, 16), (64, 64, 32), (64, 64, 48), (64, 64, 64), (128, 128, 96), (128, 64, 128))
    assert len({on_gpu(dot("nt", block), a, b).tobytes() for block in blocks}) == 1


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("head", [16, 32, 48, 80, 96, 112])
def test_attention_with_heads_of_any_sixteens(head: int, is_causal: bool) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return ts.ops.attention(q, k, v, causal=is_causal)

    for queries, keys, shared, dtype in ATTENDED:
        q = random((2, 4, queries, head), dtype)
        k, v = (random((2, shared, keys, head), dtype) for _ in range(2))
        found = on_gpu(attention, q, k, v)
        assert distance(found, attended(q, k, v, is_causal)) <= 2.0**-8, (dtype, queries, keys)
    if head in (32, 96):
        text = ts.jit(attention, backend="cuda").lower(*(random((1, 2, 256, head)) for _ in range(3))).target
        assert "ttarget.matrix_kernel" in text
