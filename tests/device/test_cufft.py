"""cuFFT on a GPU, where the library is there: values of NumPy, and no plan for a size that was seen before."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError
from tessera.ir.base.arrays import Array
from tessera.runtime.devices.cuda import cufft
from tessera.runtime.devices.cuda.driver import is_available

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


def has_library() -> bool:
    try:
        cufft.cufft()
    except DeviceError:
        return False
    return True


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 64, 1000, 1009])
def test_transforms_are_those_of_numpy(n: int, dtype: Any) -> None:
    if not has_library():
        pytest.skip("there is no cuFFT here")
    rng = np.random.default_rng(n)
    x: Array = rng.standard_normal((3, n, 2)).astype(dtype)
    z = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    bound = 16 * float(np.finfo(dtype).eps) * (1 + math.log2(n))

    def check(found: ts.cuda.CudaTensor, expected: Array) -> None:
        values = np.asarray(found.cpu()).astype(np.float64)
        values = values[..., 0] + 1j * values[..., 1] if np.iscomplexobj(expected) else values
        assert np.linalg.norm(values - expected) <= bound * max(float(np.linalg.norm(expected)), 1e-300)

    check(cufft.fft(ts.cuda.array(x)), np.fft.fft(z))
    check(cufft.fft(ts.cuda.array(x), inverse=True), np.fft.ifft(z) * n)
    real: Array = np.ascontiguousarray(x[..., 0])
    half = cufft.rfft(ts.cuda.array(real))
    check(half, np.fft.rfft(real.astype(np.float64)))
    check(cufft.irfft(half, n), real.astype(np.float64) * n)


def test_a_second_call_makes_no_plan() -> None:
    if not has_library():
        pytest.skip("there is no cuFFT here")
    x, library = ts.cuda.array(np.ones((5, 4099), np.float32)), cufft.cufft()
    cufft.rfft(x)
    created, reused = library.created, library.reused
    cufft.rfft(x)
    assert (library.created, library.reused) == (created, reused + 1)
