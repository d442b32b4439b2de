"""Derivatives of kernels on a GPU: those of the CPU, for each derived family, narrow floats and ragged sizes."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax
from tests.device.poison import poisoned
from tests.kernel import kernels
from tests.transforms import test_kernels as derived

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(31)
UNITS = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


BF16 = ml_dtypes.bfloat16
CASES: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "elementwise": (derived.blend, [normal(70, 300), normal(70, 300), normal(70), normal(300)], {}),
    "rms norm": (derived.rms_norm, [normal(70, 229), normal(229)], {}),
    "softmax": (stable_softmax, [normal(70, 229)], {}),
    "softmax in bf16": (stable_softmax, [normal(64, 256, dtype=BF16)], {}),
    "layer norm": (efficient_layernorm, [normal(2, 35, 96), normal(96), normal(96)], {}),
    "rotary": (rotary_embedding, [normal(2, 3, 70, 64), normal(70, 32), normal(70, 32)], {}),
    "matmul": (kernels.matmul, [normal(70, 90), normal(90, 133)], {}),
    "linear in bf16": (kernels.linear, [normal(128, 256, dtype=BF16), normal(256, 128, dtype=BF16), normal(128)], {}),
    "attention": (flash_attention_2, [normal(2, 4, 70, 64), normal(2, 2, 133, 64), normal(2, 2, 133, 64)], {}),
    "causal in bf16": (flash_attention_2, [normal(1, 4, 256, 64, dtype=BF16) for _ in range(3)], {"causal": True}),
    "attention in f64": derived.SAMPLES["causal"],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_cpu(name: str) -> None:
    """Each rounds its sums in its own order: they differ by a few units of the longest sum, and not by more."""
    made, args, statics = CASES[name]
    results = as_tuple(made(*args, **statics))
    weights = tuple(normal(*one.shape, dtype=np.asarray(one).dtype) for one in results)

    def gradients(*given: Any) -> Any:
        _, back = ts.vjp(lambda *xs: as_tuple(made(*xs, **statics)), *given)
        return back(weights)

    here = ts.jit(gradients)(*args)
    with poisoned(), ts.device(ts.gpu[0]):
        there = ts.jit(gradients)(*args)
        again = ts.jit(gradients)(*args)
    unit = max(UNITS[np.asarray(one).itemsize] for one in (*args, *results))
    for one, other, repeated in zip(here, there, again, strict=True):
        np.testing.assert_array_equal(np.asarray(other), np.asarray(repeated))
        wanted, found = np.asarray(one).astype(np.float64), np.asarray(other).astype(np.float64)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * unit * max(1.0, float(np.abs(wanted).max())))


def test_a_kernel_trains_on_the_gpu() -> None:
    """A step of a loss through a matmul, a norm and attention, jitted: the loss falls."""
    w, g, x = normal(64, 64) * 0.1, np.ones(64, np.float32), normal(2, 2, 40, 64)

    @ts.jit
    def step(w: Any, g: Any, x: Any) -> Any:
        def loss(w: Any, g: Any) -> Any:
            q = efficient_layernorm((kernels.matmul(x.reshape(160, 64), w)).reshape(2, 80, 64), g, ts.ops.zeros_like(g))
            y = flash_attention_2(q.reshape(2, 2, 40, 64), x, x, causal=True)
            return ((y - 1.0) ** 2.0).mean()

        value, (dw, dg) = ts.value_and_grad(loss, (0, 1))(w, g)
        return w - 0.5 * dw, g - 0.5 * dg, value

    values: list[float] = []
    with ts.device(ts.gpu[0]):
        for _ in range(10):
            w, g, value = step(w, g, x)
            values.append(float(value))
    assert values[-1] < values[0]
