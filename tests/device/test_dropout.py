"""What keys and indices in memory decide: a dropout drops what it should, and a scatter adds up what it should."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(2, 4, 128, 64), (1, 3, 77, 128)], ids=str)
def test_attention_drops_the_weights_that_the_cpu_does(size: tuple[int, ...], causal: bool) -> None:
    """A key says which; sums in another order are all that differs, and another key drops others."""
    q, k, v = (random(size) for _ in range(3))

    def program(q: Any, k: Any, v: Any, key: Any) -> Any:
        return ts.ops.flash_attention(q, k, v, causal=causal, dropout=0.25, key=key)

    keys = [ts.random.key(number) for number in (7, 8)]
    found = [on_gpu(program, q, k, v, key) for key in keys]
    wanted = np.asarray(ts.jit(program)(q, k, v, keys[0]))
    assert distance(found[0], wide(wanted)) <= 2.0**-7
    assert distance(found[1], wide(wanted)) > 2.0**-4
    assert found[0].tobytes() == on_gpu(program, q, k, v, keys[0]).tobytes()


def test_integers_of_a_scatter_are_exact_in_any_order() -> None:
    """Many updates of few elements, by all programs at once, and indices that are dropped."""
    rng = np.random.default_rng(5)
    for shape, count in (((11, 300), 5000), ((64,), 100_000), ((1, 40), 777)):
        x, indices = rng.integers(-9, 9, shape).astype(np.int32), rng.integers(-3, shape[0] + 2, count)
        updates = rng.integers(-99, 99, (count, *shape[1:])).astype(np.int32)
        for name in ("add", "max", "min"):

            def program(x: Any, i: Any, u: Any, name: str = name) -> Any:
                return getattr(x.at[i], name)(u)

            wanted = np.asarray(ts.jit(program)(x, indices, updates))
            np.testing.assert_array_equal(on_gpu(program, x, indices, updates), wanted)
