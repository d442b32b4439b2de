"""Pooling against a naive loop, and its shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.types.dtype import f32, i32
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, run_decomposition, tensor


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1])
def test_pooling_equals_a_naive_loop(stride: int, pad: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 7, 8)).astype(np.float32)
    attributes = {"window": (3, 2), "stride": (stride,), "padding": (pad,)}
    high = run_decomposition("max_pool", x, **attributes)
    mean = run_decomposition("avg_pool", x, **attributes, count_padding=False)
    zeros = run_decomposition("avg_pool", x, **attributes)
    for n, i, j in np.ndindex(*high.shape):
        rows = range(max(i * stride - pad, 0), min(i * stride - pad + 3, 7))
        columns = range(max(j * stride - pad, 0), min(j * stride - pad + 2, 8))
        window = x[n][np.ix_(rows, columns)]
        assert high[n, i, j] == window.max()
        np.testing.assert_allclose(mean[n, i, j], window.mean(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(zeros[n, i, j], window.sum() / 6, rtol=1e-5, atol=1e-6)


def test_the_default_stride_is_the_window() -> None:
    rules = Rules()
    (out,) = infer("max_pool", tensor("N", "C", "H", "W", dtype=f32), window=(2, 2), rules=rules)
    assert out.shape[:2] == tensor("N", "C", dtype=f32).shape
    assert out.shape[2].evaluate({"H": 9}) == 4


def test_pooling_says_what_is_wrong() -> None:
    with pytest.raises(RuleError, match="does not fit"):
        infer("max_pool", tensor(2, 3, dtype=f32), window=(3, 3))
    with pytest.raises(RuleError, match="needs a window"):
        infer("max_pool", tensor(4, dtype=f32), window=(2, 2))
    with pytest.raises(RuleDTypeError, match="floating"):
        infer("avg_pool", tensor(4, dtype=i32), window=(2,))
