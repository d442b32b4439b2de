"""Convolutions on a GPU: values against float64, and the bits of a CPU where the recipe is a chain of FMAs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.passes import plan_threads
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.test_matrix import distance, on_gpu
from tests.graph.test_convolution import convolve as exact

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

DTYPES = {"bf16": (ml_dtypes.bfloat16, 6e-3), "f16": (np.float16, 1e-3), "f32": (np.float32, 1e-6)}
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((3, 16, 9, 16), (24, 16, 3, 3), {"padding": (1,)}),
    "3x3, rows of no multiple of 16 bytes": ((3, 16, 7, 7), (24, 16, 3, 3), {"padding": (1,)}),
    "1x1": ((2, 64, 8, 8), (40, 64, 1, 1), {}),
    "1x1, strided": ((2, 64, 9, 9), (40, 64, 1, 1), {"stride": (2,)}),
    "stem": ((2, 3, 20, 20), (16, 3, 7, 7), {"stride": (2,), "padding": (3,)}),
    "patches": ((2, 3, 16, 16), (24, 3, 4, 4), {"stride": (4,)}),
    "dilated": ((2, 8, 12, 11), (16, 8, 3, 3), {"dilation": (2, 1), "padding": (2, 1)}),
    "strided": ((3, 64, 19, 17), (72, 64, 3, 3), {"stride": (3, 2), "padding": (1, 2)}),
    "lines of 32 bytes": ((2, 48, 15, 13), (40, 48, 3, 2), {"padding": (1,)}),
    "small images": ((9, 96, 7, 7), (136, 96, 3, 3), {"padding": (1,)}),
    "groups": ((2, 16, 6, 8), (24, 4, 3, 3), {"groups": 4, "padding": (1,)}),
    "depthwise": ((2, 24, 10, 13), (24, 1, 3, 3), {"groups": 24, "padding": (1,)}),
    "depthwise 7x7": ((2, 8, 14, 14), (16, 1, 7, 7), {"groups": 8, "padding": (3,)}),
}


def layer(attributes: dict[str, Any]) -> Any:
    def function(x: Any, w: Any) -> Any:
        return ts.ops.conv2d(x, w, **attributes)

    return function


def channels_last(attributes: dict[str, Any]) -> Any:
    """The same with channels last before and behind it, and an epilogue."""

    def function(x: Any, w: Any) -> Any:
        made = ts.ops.conv2d(ts.ops.transpose(x, (0, 3, 1, 2)), w, **attributes)
        return ts.ops.relu(ts.ops.transpose(made, (0, 2, 3, 1)))

    return function


def on_cpu(function: Any, *arrays: Any) -> Any:
    jitted: Any = ts.jit(function)
    return np.asarray(jitted(*arrays))


def operands(name: str, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    image, weights, _ = LAYERS[name]
    return rng.standard_normal(image).astype(dtype), rng.standard_normal(weights).astype(dtype)


def wanted(x: Any, w: Any, attributes: dict[str, Any]) -> Any:
    usual = {"stride": (1,), "padding": (0,), "padding_mode": "explicit", "dilation": (1,), "groups": 1}
    return exact(x.astype(np.float64), w.astype(np.float64), {**usual, **attributes})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_values_in_both_layouts(name: str, dtype: str) -> None:
    (x, w), attributes = operands(name, DTYPES[dtype][0]), LAYERS[name][2]
    expected = wanted(x, w, attributes)
    made = on_gpu(layer(attributes), x, w)
    assert distance(made, expected) < DTYPES[dtype][1]
    last = on_gpu(channels_last(attributes), np.ascontiguousarray(np.moveaxis(x, 1, -1)), w)
    np.testing.assert_array_equal(np.moveaxis(last, -1, 1), np.maximum(made, np.zeros((), made.dtype)))


@pytest.mark.parametrize("name", LAYERS)
def test_f32_has_the_bits_of_a_cpu(name: str) -> None:
    (x, w), attributes = operands(name, np.float32), LAYERS[name][2]
    expected = on_cpu(layer(attributes), x, w)
    assert on_gpu(layer(attributes), x, w).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["depthwise", "depthwise 7x7"])
def test_depthwise_bf16_has_the_bits_of_a_cpu(name: str) -> None:
    (x, w), attributes = operands(name, ml_dtypes.bfloat16), LAYERS[name][2]
    expected = on_cpu(layer(attributes), x, w)
    assert on_gpu(layer(attributes), x, w).tobytes() == expected.tobytes()


@pytest.mark.parametrize("by", ["x", "w"])
@pytest.mark.parametrize("name", ["3x3", "dilated", "strided", "lines of 32 bytes", "small images"])
def test_gradients_of_tensor_cores_are_those_of_exact_convolutions(name: str, by: str) -> None:
    """Against f64 on a CPU, by the image and by the weights."""
    (x, w), attributes = operands(name, ml_dtypes.bfloat16), LAYERS[name][2]
    shape = wanted(x, w, attributes).shape
    rng: Any = np.random.default_rng(4)
    y = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)

    def gradient(x: Any, w: Any, y: Any) -> Any:
        def of_one(one: Any) -> Any:
            return layer(attributes)(*((one, w) if by == "x" else (x, one)))

        return ts.vjp(of_one, x if by == "x" else w)[1](y)[0]

    expected = on_cpu(gradient, *(one.astype(np.float64) for one in (x, w, y)))
    assert distance(on_gpu(gradient, x, w, y), expected) < DTYPES["bf16"][1]


@pytest.mark.parametrize("shape", [(2, 8, 56, 56), (3, 8, 28, 28), (5, 24, 14, 14), (7, 40, 7, 7), (3, 5, 57, 31)])
@pytest.mark.parametrize("taps", [3, 7])
def test_rows_that_threads_share_have_the_bits_of_a_cpu(
    shape: tuple[int, ...], taps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads have several rows of small images too, where they would not otherwise."""
    monkeypatch.setattr(plan_threads, "FULL", 1)
    rng, attributes = np.random.default_rng(5), {"padding": (taps // 2,), "groups": shape[1]}
    x = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    w = rng.standard_normal((shape[1], 1, taps, taps)).astype(ml_dtypes.bfloat16)
    assert on_gpu(layer(attributes), x, w).tobytes() == on_cpu(layer(attributes), x, w).tobytes()


@pytest.mark.parametrize("name", ["3x3", "stem", "1x1", "strided"])
def test_an_image_alone_is_that_of_a_batch(name: str) -> None:
    (x, w), attributes = operands(name, ml_dtypes.bfloat16), LAYERS[name][2]
    made = on_gpu(layer(attributes), x, w)
    assert on_gpu(layer(attributes), x[1:2].copy(), w).tobytes() == made[1:2].tobytes()
