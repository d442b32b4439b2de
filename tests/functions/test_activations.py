"""Activations, against their formulas in NumPy."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import tessera as ts
from tessera.diagnostics.codes import ShapeError
from tests.functions.cases import Case, check_case

ops = ts.ops


def wide(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 4)) * 4]


def with_weight(rng: np.random.Generator, size: int) -> list[Any]:
    return [*wide(rng, size), rng.normal(size=(4,))]


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


def elu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def gate(x: Any) -> Any:
    return np.clip(x + 3, 0, 6) / 6


CASES = [
    Case("leaky_relu", lambda x: ops.leaky_relu(x, 0.2), wide, lambda x: np.where(x > 0, x, 0.2 * x)),
    Case("prelu", ops.prelu, with_weight, lambda x, w: np.where(x > 0, x, w * x), (0, 1), batched=False),
    Case("elu", lambda x: ops.elu(x, 0.7), wide, lambda x: elu(x, 0.7)),
    Case("celu", lambda x: ops.celu(x, 2.0), wide, lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2))),
    Case("selu", ops.selu, wide, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    Case("relu6", ops.relu6, wide, lambda x: np.clip(x, 0, 6)),
    Case("hard_tanh", ops.hard_tanh, wide, lambda x: np.clip(x, -1, 1)),
    Case("hard_sigmoid", ops.hard_sigmoid, wide, gate),
    Case("hard_swish", ops.hard_swish, wide, lambda x: x * gate(x)),
    Case("mish", ops.mish, wide, lambda x: x * np.tanh(softplus(x))),
    Case("log_sigmoid", ops.log_sigmoid, wide, lambda x: -softplus(-x)),
    Case("tanhshrink", ops.tanhshrink, wide, lambda x: x - np.tanh(x)),
    Case("softshrink", ops.softshrink, wide, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    Case("hardshrink", ops.hardshrink, wide, lambda x: np.where(np.abs(x) > 0.5, x, 0), narrow=False),
    Case("glu", ops.glu, wide, lambda x: x[:, :2] * sp.expit(x[:, 2:])),
    Case("swiglu", ops.swiglu, wide, lambda x: x[:, :2] * sp.expit(x[:, :2]) * x[:, 2:]),
    Case("geglu", ops.geglu, wide, lambda x: x[:, :2] * sp.ndtr(x[:, :2]) * x[:, 2:]),
]


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_an_activation_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


@pytest.mark.parametrize("name", ["elu", "celu", "selu", "mish", "log_sigmoid"])
def test_derivatives_are_finite_far_out(name: str) -> None:
    far = ts.array([-1e4, 1e4])
    slopes = np.asarray(ts.grad(lambda x: getattr(ops, name)(x).sum())(far))
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize(("name", "slope"), [("elu", 1.0), ("celu", 1.0), ("selu", 1.7580993408473766)])
def test_the_slope_at_zero_is_that_below(name: str, slope: float) -> None:
    zeros = np.array([0.0, -0.0])
    found = np.asarray(ts.grad(lambda x: getattr(ops, name)(x).sum())(ts.array(zeros)))
    np.testing.assert_allclose(found, [slope, slope], rtol=1e-15)


def test_an_odd_axis_has_no_halves() -> None:
    with pytest.raises(ShapeError, match=r"`glu` cuts an axis into two halves, and `x.shape\[1\] = 3` is odd"):
        ops.glu(ts.ones((2, 3)))
