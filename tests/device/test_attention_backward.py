"""Gradients of attention on a GPU: values against float64, and the same bits on every run and in every batch."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.transforms.test_attention_backward import exact

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(29)
EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20, "float64": 2.0**-48}
"""Half a step of a narrow dtype, and of a wide one what chains of hundreds of sums make of it."""
SIZES = {
    "heads of 64": (2, 4, 4, 512, 512, 64),
    "heads of 128": (1, 4, 4, 640, 640, 128),
    "heads of 256": (1, 2, 2, 256, 256, 256),
    "shared heads": (2, 8, 2, 384, 384, 64),
    "ragged": (1, 4, 2, 333, 271, 64),
    "longer keys": (1, 2, 2, 100, 700, 128),
    "more queries than keys": (1, 2, 1, 300, 130, 64),
}


def drawn(sizes: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any, Any]:
    batch, heads, shared, queries, keys, size = sizes
    q, k = (batch, heads, queries, size), (batch, shared, keys, size)
    one, two, three, four = (RNG.standard_normal(shape).astype(dtype) for shape in (q, k, k, q))
    return one, two, three, four


@cache
def gradients(causal: bool, dynamic: bool = False) -> Any:
    def pull(q: Any, k: Any, v: Any, given: Any) -> Any:
        return ts.vjp(lambda *x: ts.ops.attention(*x, causal=causal), q, k, v)[1](given)

    return ts.jit(pull, backend="cuda", dynamic=dynamic)


def error_of(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(np.asarray(found).astype(np.float64) - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_values_are_those_of_float64_and_bits_those_of_every_run(name: str, causal: bool) -> None:
    """Weights and gradients of scores are rounded, the result before, in `delta`, and gradients at the end."""
    given = drawn(SIZES[name], ml_dtypes.bfloat16)
    found = [np.asarray(one) for one in gradients(causal)(*given)]
    for own, wanted in zip(found, exact(*given, causal), strict=False):
        assert error_of(own, wanted) <= 4 * EPS["bfloat16"]
    for _ in range(3):
        for one, other in zip(found, gradients(causal)(*given), strict=True):
            assert one.tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=lambda one: one.__name__)
def test_every_dtype_has_a_kernel(dtype: Any) -> None:
    given = drawn((1, 4, 2, 200, 200, 64), dtype)
    for own, wanted in zip(gradients(True)(*given), exact(*given, True), strict=False):
        assert error_of(own, wanted) <= 4 * EPS[np.dtype(dtype).name]


@pytest.mark.parametrize("causal", [False, True])
def test_a_head_has_the_bits_that_it_has_alone(causal: bool) -> None:
    given = drawn((3, 4, 2, 300, 300, 64), ml_dtypes.bfloat16)
    alone = gradients(causal)(*(one[1:2] for one in given))
    for one, part in zip(gradients(causal)(*given), alone, strict=True):
        assert np.asarray(one)[1:2].tobytes() == np.asarray(part).tobytes()


def test_symbolic_sizes_have_a_kernel() -> None:
    given = drawn((2, 4, 2, 200, 200, 64), np.float32)
    for own, wanted in zip(gradients(True, dynamic=True)(*given), exact(*given, True), strict=False):
        assert error_of(own, wanted) <= 4 * EPS["float32"]
