"""Recurrences, long convolutions and fused norms of the library on a GPU: values of f64, bits of every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import rotary_embedding
from tests.device.poison import poisoned
from tests.stdlib import test_channel_scan, test_chunked_attention, test_delta_rule, test_long_convolution
from tests.stdlib.slopes import compare, normal

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

NARROW = ml_dtypes.bfloat16


def on_gpu(function: Callable[..., Any], *operands: Any) -> Any:
    with poisoned(), ts.device(ts.gpu[0]):
        return ts.jit(function)(*operands)


def equal_runs(function: Callable[..., Any], *operands: Any) -> Any:
    """What a function gives on the GPU, the same twice."""
    first, second = on_gpu(function, *operands), on_gpu(function, *operands)
    for one, other in zip(as_tuple(first), as_tuple(second), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    return first


def gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    return ts.grad(lambda *x: ts.ops.cast(function(*x), ts.f32).sum(), argnums=tuple(range(count)))


def agree_backwards(function: Callable[..., Any], operands: list[Any], step: float) -> None:
    """Gradients of narrow operands against those of the CPU in f32."""
    found = equal_runs(gradients(function, len(operands)), *operands)
    exact = gradients(function, len(operands))(*(np.asarray(one).astype(np.float32) for one in operands))
    for one, other in zip(found, exact, strict=True):
        compare(one, np.asarray(other).astype(np.float64), step)


@pytest.mark.parametrize(("rows", "head"), [(128, 64), (1000, 128), (300, 256)])
def test_linear_attention(rows: int, head: int) -> None:
    q, k, v = (normal(2, 4, rows, head, dtype=NARROW) for _ in range(3))
    g = -np.abs(normal(2, 4, rows)) * 0.1
    compare(equal_runs(ts.ops.linear_attention, q, k, v), test_chunked_attention.recur(q, k, v), 2.0**-6)
    compare(equal_runs(ts.ops.linear_attention, q, k, v, g), test_chunked_attention.recur(q, k, v, g), 2.0**-6)
    agree_backwards(ts.ops.linear_attention, [q, k, v], 2.0**-5)
    agree_backwards(ts.ops.linear_attention, [q, k, v, g], 2.0**-5)


@pytest.mark.parametrize("dtype", [np.float32, NARROW], ids=["f32", "bf16"])
def test_the_selective_scan(dtype: Any) -> None:
    given = test_channel_scan.operands(2, 600, 200, 16, dtype)
    compare(equal_runs(ts.ops.selective_scan, *given), test_channel_scan.recur(*given), 2.0**-7)
    agree_backwards(ts.ops.selective_scan, given, 2.0**-5)
    if dtype is np.float32:  # one recipe for both machines
        np.testing.assert_array_equal(
            np.asarray(on_gpu(ts.ops.selective_scan, *given)), np.asarray(ts.ops.selective_scan(*given))
        )


def test_the_delta_rule() -> None:
    given = test_delta_rule.operands(200, 4, 2, NARROW)
    compare(equal_runs(ts.ops.gated_delta_rule, *given), test_delta_rule.recur(*given), 2.0**-5)
    agree_backwards(ts.ops.gated_delta_rule, given, 2.0**-4)


@pytest.mark.parametrize(("length", "dtype", "step"), [(1000, np.float32, 2.0**-17), (8192, NARROW, 2.0**-5)])
def test_long_convolutions(length: int, dtype: Any, step: float) -> None:
    x, k = normal(2, 3, length, dtype=dtype), (normal(3, length) / length**0.5).astype(dtype)

    def program(x: Any, k: Any) -> Any:
        return ts.ops.fft_conv1d(x, k, "causal")

    compare(equal_runs(program, x, k), test_long_convolution.convolve(x, k, "causal"), step)


@pytest.mark.parametrize(("length", "taps"), test_long_convolution.SIZES)
def test_convolutions_of_fifty_sizes(length: int, taps: int) -> None:
    x, k = normal(2, length), normal(taps)
    for algorithm in ("transform", "direct"):

        def program(x: Any, k: Any, algorithm: str = algorithm) -> Any:
            return ts.ops.fft_conv1d(x, k, "full", algorithm=algorithm)

        compare(on_gpu(program, x, k), test_long_convolution.convolve(x, k, "full"), 2.0**-18)


def test_rotations_backwards_have_the_bits_of_the_cpu() -> None:
    x, angles = normal(2, 3, 65, 32), normal(65, 16)

    def cubes(x: Any, cos: Any, sin: Any) -> Any:
        return (rotary_embedding(x, cos, sin) ** 3.0).sum()

    program = ts.grad(cubes)

    given = (x, np.cos(angles), np.sin(angles))
    np.testing.assert_array_equal(np.asarray(equal_runs(program, *given)), np.asarray(ts.jit(program)(*given)))


def test_norms_draw_the_mask_of_the_cpu() -> None:
    x, residual, weight, bias = normal(2, 40, 256), normal(2, 40, 256), normal(256), normal(256)
    key = ts.random.key(5)

    def program(*operands: Any) -> Any:
        return ts.ops.dropout_residual_layernorm(*operands, p=0.25, key=key)

    for one, other in zip(
        equal_runs(program, x, residual, weight, bias), program(x, residual, weight, bias), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
