"""Derivatives that functions and kernels are given, on a GPU: those of a CPU."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.kernel.test_derivatives import A, B, product
from tests.transforms.test_custom import NESTINGS, swell, tide, wave

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")
RNG = np.random.default_rng(9)
X, Y = (RNG.standard_normal((4, 3)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize("function", [wave, swell, tide], ids=lambda one: one.name)
@pytest.mark.parametrize("nesting", NESTINGS)
def test_gradients_of_custom_functions(function: Any, nesting: str) -> None:
    slopes = ts.grad(NESTINGS[nesting](function), (0, 1))
    found = ts.jit(lambda x, y: slopes(x, y), backend="cuda")(X, Y)
    for mine, wanted in zip(found, slopes(X.astype(np.float64), Y.astype(np.float64)), strict=True):
        # A few roundings of f32 for each of a few ops on numbers of about one.
        np.testing.assert_allclose(np.asarray(mine), np.asarray(wanted), rtol=2.0**-17, atol=2.0**-17)


def test_gradients_of_a_kernel_with_a_derivative() -> None:
    made, calls = product()
    slopes = ts.grad(lambda a, b: (made(a, b) ** 2.0).sum(), (0, 1))
    found = ts.jit(lambda a, b: slopes(a, b), backend="cuda")(A, B)
    assert calls == ["vjp"]
    for mine, wanted in zip(found, (2 * A @ B @ B.T, A.T @ (2 * A @ B)), strict=True):
        np.testing.assert_allclose(np.asarray(mine.cpu()), wanted, rtol=2e-5, atol=2e-5)
