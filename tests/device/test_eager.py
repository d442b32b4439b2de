"""Operators, methods and functions of tensors of a GPU outside `jit`: where they run, and what they give."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda.driver import is_available
from tests.api.eager_surface import WRITTEN, I, X, Y, double, twice

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_written_gives_what_the_cpu_gives(what: str) -> None:
    expected = WRITTEN[what](ts.array(X), ts.array(Y), ts.array(I))
    found = WRITTEN[what](*(ts.cuda.array(value) for value in (X, Y, I)))
    assert isinstance(found, ts.cuda.CudaTensor)
    assert (found.dtype, found.shape, found.device.kind) == (expected.dtype, expected.shape, "gpu")
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_long_chains_of_any_size_are_right() -> None:
    rng = np.random.default_rng(4)
    for rows, columns in ((1, 1), (7, 129), (300, 64)):
        a, b = (rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
        x, y = ts.cuda.array(a), ts.cuda.array(b)
        found = ((x * 2.0 + y) / 4.0 - x[:, :1]).astype(ts.f64).sum(axis=1)
        wanted = ((a * 2 + b) / 4 - a[:, :1]).astype(np.float64).sum(axis=1)
        np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-4)


def test_values_are_read() -> None:
    x = ts.cuda.array(X)
    assert float(x.sum()) == X.sum()
    assert bool((x > -10).all())
    assert [row.tolist() for row in x] == X.tolist()
    assert f"{x[0, 0]:.1f}" == "1.0"
    assert repr(x[0]) == "CudaTensor([3] f32, [1, -2, 3])"
    assert np.max(x) == 4.0


def test_functions_and_kernels_run_where_their_tensors_are() -> None:
    for work in (twice, double):
        for _ in range(3):
            found = work(ts.cuda.array(X))
            assert isinstance(found, ts.cuda.CudaTensor)
            np.testing.assert_array_equal(np.asarray(found), 2 * X)
        assert isinstance(work(X), ts.Tensor)


def test_tensors_of_two_memories_are_refused() -> None:
    for other in (Y, ts.array(Y)):
        with pytest.raises(DeviceError, match="tensors in two memories"):
            _ = ts.cuda.array(X) + other
    with ts.device(ts.gpu[0]):
        assert isinstance(ts.cuda.array(X) + ts.array(Y), ts.cuda.CudaTensor)
