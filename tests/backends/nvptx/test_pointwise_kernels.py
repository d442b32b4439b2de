"""Pointwise kernels of a GPU, run here thread by thread: elements where they belong, and the bits of a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.oracles.native_threads import run

BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32
ops: Any = ts.ops
Function = Callable[..., Any]


def reversed_axes(x: Any) -> Any:
    return ops.transpose(x, (0, 3, 2, 1))


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    return ops.rotary(ops.transpose(x, (0, 3, 2, 1)), cos, sin, interleaved=True)


def two_transposed(x: Any, y: Any) -> Any:
    return ops.transpose(x) / (ops.transpose(y) + 3.0) + ops.transpose(x * y)


def beside_branches(x: Any, y: Any) -> Any:
    return ops.sin(ops.transpose(x)) + ops.log1p(ops.abs(y))


def pooled(x: Any) -> Any:
    return ops.max_pool(x, window=(2, 3), stride=(2, 1), padding=(1, 1))


def padded(x: Any) -> Any:
    return ops.pad(x, ((0, 0), (1, 2)))


MOVES: dict[str, tuple[Function, tuple[tuple[int, ...], ...], Any]] = {
    "reversed axes": (reversed_axes, ((2, 66, 100, 2),), F16),
    "rotary": (rotated, ((2, 66, 50, 2), (50, 33), (50, 33)), F32),
    "two transposed": (two_transposed, ((130, 100), (130, 100)), F32),
    "transposed beside branches": (beside_branches, ((130, 100), (100, 130)), F16),
    "windows": (pooled, ((2, 2, 45, 11),), F16),
    "padding": (padded, ((40, 61),), F32),
}


@pytest.mark.parametrize("name", MOVES)
def test_elements_are_where_they_belong(name: str) -> None:
    function, shapes, dtype = MOVES[name]
    rng = np.random.default_rng(1)
    stored, wanted = run(function, [rng.standard_normal(shape).astype(dtype) for shape in shapes])
    np.testing.assert_array_equal(stored, wanted)


def kept(x: Any, y: Any) -> Any:
    return ops.maximum(ops.relu(-x), y) * 2.0 + ops.abs(x)


def curved(x: Any, y: Any) -> Any:
    return ops.minimum(ops.sin(ops.log1p(ops.relu(-x))), y)


def differences(x: Any, y: Any) -> Any:
    return ops.relu(ops.maximum(x, -x)) - ops.relu(y)


def widened(x: Any, y: Any) -> Any:
    return ops.cast(ops.abs(x), ts.f32) + ops.cast(ops.minimum(x, -y), ts.f32)


@pytest.mark.parametrize("count", [4 * 2048, 3 * 2048 + 136], ids=["whole tiles", "a tail"])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bf16", "f16"])
@pytest.mark.parametrize("function", [kept, curved, differences, widened])
def test_narrow_floats_have_the_bits_of_a_cpu(function: Function, dtype: Any, count: int) -> None:
    """Any bits, infinities, NaN and denormals among them."""
    rng = np.random.default_rng(2)
    arrays = [rng.integers(0, 1 << 16, count, dtype=np.uint16).view(dtype) for _ in range(2)]
    stored, wanted = run(function, arrays)
    np.testing.assert_array_equal(stored, wanted)
