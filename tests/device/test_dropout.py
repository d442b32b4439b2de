"""Kernels with dots and single numbers from memory: on tensor cores of a GPU a dropout drops what it should."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.backends.nvptx.dropped import dot
from tests.device.test_matrix import distance, on_gpu, random, wide

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("block", [(64, 64, 64), (128, 128, 64)])
@pytest.mark.parametrize("size", [(128, 256, 128), (100, 136, 72)])
def test_a_dot_leaves_out_what_the_cpu_does(size: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random((m, k)), random((k, n))
    key = np.array([0x0123456789ABCDEF, 7], np.uint64)
    found = on_gpu(dot(block), a, b, key)
    kept = wide(np.asarray(ts.jit(dot(block))(a, b, key))) != 0
    assert 0.70 < kept.mean() < 0.80
    assert np.array_equal(wide(found) != 0, kept)
    assert distance(found, np.where(kept, wide(a) @ wide(b) / 0.75, 0.0)) <= 2.0**-8
    given = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((k, n), ml_dtypes.bfloat16), key
    assert "ttarget.matrix_kernel" in ts.jit(dot(block), backend="cuda").lower(*given).target
