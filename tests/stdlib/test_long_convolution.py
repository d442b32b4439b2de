"""Long convolutions: SciPy's answer for any sizes by both algorithms, derivatives, and the crossover between them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.stdlib.long_convolution import MODES, plan_convolution
from tests.stdlib.slopes import check_gradients, compare, normal

signal = pytest.importorskip("scipy.signal")

_LENGTHS = (1, 2, 3, 5, 8, 17, 31, 64, 100, 129, 255, 257, 500, 777, 1000, 1024, 1999, 2048, 3001, 4096)
SIZES = [
    *((length, length) for length in _LENGTHS),
    *((length, max(1, length // 3)) for length in _LENGTHS),
    *((length, 2 * length + 1) for length in _LENGTHS[:10]),
]


def convolve(x: Any, k: Any, mode: str) -> Any:
    """Sequence by sequence, in f64."""
    x, k = (np.asarray(one).astype(np.float64) for one in (x, k))
    rows = np.broadcast_to(k, (*x.shape[:-1], k.shape[-1])).reshape(-1, k.shape[-1])
    full = np.stack([signal.convolve(a, b) for a, b in zip(x.reshape(-1, x.shape[-1]), rows, strict=True)])
    length, taps = x.shape[-1], k.shape[-1]
    if mode == "circular":
        full = full[:, :length] + np.pad(full[:, length:], [(0, 0), (0, length - taps + 1)])
    first = (taps - 1) // 2 if mode == "same" else min(length, taps) - 1 if mode == "valid" else 0
    count = {"full": length + taps - 1, "valid": abs(length - taps) + 1}.get(mode, length)
    return full[:, first : first + count].reshape(*x.shape[:-1], count)


def test_there_are_fifty_sizes() -> None:
    assert len(SIZES) == 50
    assert sum(length % 2 for length, _ in SIZES) >= 20


@pytest.mark.parametrize(("length", "taps"), SIZES)
def test_transforms_equal_scipy(length: int, taps: int) -> None:
    x, k = normal(2, length), normal(taps)
    compare(ts.ops.fft_conv1d(x, k, "full", algorithm="transform"), convolve(x, k, "full"), 2.0**-19)
    if taps <= length:
        same = signal.convolve(x.astype(np.float64), k.astype(np.float64)[None], "same")
        compare(ts.ops.fft_conv1d(x, k), same, 2.0**-18)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("length", "taps"), [(7, 3), (60, 61), (300, 129)])
def test_both_algorithms_agree(mode: str, length: int, taps: int) -> None:
    if mode == "circular" and taps > length:
        pytest.skip("a period has as many taps as elements at most")
    for shape in ((taps,), (3, taps), (1, taps), (2, 1, taps)):
        x, k = normal(2, 3, length), normal(*shape)
        for algorithm in ("direct", "transform"):
            compare(ts.ops.fft_conv1d(x, k, mode, algorithm=algorithm), convolve(x, k, mode), 2.0**-18)


@pytest.mark.parametrize(("dtype", "step"), [(np.float16, 2.0**-8), (ml_dtypes.bfloat16, 2.0**-5)], ids=["f16", "bf16"])
def test_narrow_floats_are_near(dtype: Any, step: float) -> None:
    x, k = normal(2, 3, 1000, dtype=dtype), (normal(3, 1000) / 32).astype(dtype)
    found = ts.ops.fft_conv1d(x, k, "causal", algorithm="transform")
    assert str(found.dtype) == ("f16" if dtype is np.float16 else "bf16")
    compare(found, convolve(x, k, "causal"), step)


@pytest.mark.parametrize("algorithm", ["direct", "transform"])
def test_gradients_are_slopes(algorithm: str) -> None:
    x, k = normal(2, 3, 50), normal(3, 21)

    def found(x: Any, k: Any) -> Any:
        return ts.ops.fft_conv1d(x, k, "causal", algorithm=algorithm)

    def exact(x: Any, k: Any) -> Any:
        return convolve(x, k, "causal")

    check_gradients(found, exact, x, k)


@pytest.mark.parametrize("algorithm", ["auto", "transform", "direct"])
def test_f64_has_the_digits_of_f64(algorithm: str) -> None:
    rng = np.random.default_rng(3)
    x, k = rng.normal(size=(2, 3, 700)), rng.normal(size=(3, 600))
    found = ts.ops.fft_conv1d(x, k, "causal", algorithm=algorithm)
    assert np.asarray(found).dtype == np.float64
    compare(found, convolve(x, k, "causal"), 2.0**-45)


def test_the_crossover_is_where_transforms_are_less_work() -> None:
    for length in (64, 1000, 8192, 65536):
        plan = plan_convolution(length, length)
        least = plan.crossover
        assert least is not None
        assert plan_convolution(length, least).algorithm == "transform"
        assert least == 1 or plan_convolution(length, least - 1).algorithm == "direct"
        assert f"transforms from {least} taps on" in str(plan)
        chosen = plan_convolution(length, least)
        assert chosen.transform_cost < chosen.direct_cost
    assert plan_convolution(2, 65536).crossover is None
    assert "never by transforms" in str(plan_convolution(2, 4))


def test_calls_that_do_not_fit_are_refused() -> None:
    x = normal(2, 3, 10)
    with pytest.raises(ts.TesseraError, match="knows no mode 'wrap'"):
        ts.ops.fft_conv1d(x, normal(4), "wrap")
    with pytest.raises(ts.TesseraError, match=r"do not broadcast to sequences \[2, 3, 10\]"):
        ts.ops.fft_conv1d(x, normal(2, 4))
    with pytest.raises(ts.TesseraError, match="has period 10, and the filter has 11 taps"):
        ts.ops.fft_conv1d(x, normal(11), "circular")
    with pytest.raises(ts.TesseraError, match="a known length above 0"):
        ts.ops.fft_conv1d(x[:, :, :0], normal(4))
