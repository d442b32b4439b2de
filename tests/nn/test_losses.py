"""Losses are those of PyTorch, with their gradients, in f64; narrow floats are widened first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.nn.torch_layers import numbers, tolerance

torch: Any = pytest.importorskip("torch")
functional = torch.nn.functional

X, Y = numbers(5, 7) * 3.0, numbers(5, 7, seed=1)
LABELS = np.array([0, 6, -1, 2, 3])
PROBABILITIES = np.exp(Y) / np.exp(Y).sum(-1, keepdims=True)

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "cross_entropy": (nn.cross_entropy, partial(functional.cross_entropy, ignore_index=-1), LABELS),
    "smoothed": (
        partial(nn.cross_entropy, label_smoothing=0.1),
        partial(functional.cross_entropy, ignore_index=-1, label_smoothing=0.1),
        LABELS,
    ),
    "mse": (nn.mse_loss, functional.mse_loss, Y),
    "l1": (partial(nn.l1_loss, reduction="sum"), partial(functional.l1_loss, reduction="sum"), Y),
    "huber": (partial(nn.huber_loss, delta=1.5), partial(functional.huber_loss, delta=1.5), Y),
    "binary": (nn.binary_cross_entropy, functional.binary_cross_entropy_with_logits, PROBABILITIES),
    "kl": (nn.kl_divergence, partial(functional.kl_div, reduction="batchmean"), PROBABILITIES),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_pytorch(name: str) -> None:
    own, theirs, target = CASES[name]

    def loss(x: Any, target: Any) -> Any:
        return own(x, target)

    value, gradient = ts.value_and_grad(loss)(ts.asarray(X), ts.asarray(target))
    x = torch.tensor(X, requires_grad=True)
    expected = theirs(x, torch.tensor(target))
    expected.backward()
    assert x.grad is not None
    np.testing.assert_allclose(float(value), expected.item(), rtol=tolerance(X.size, 1.0))
    np.testing.assert_allclose(np.asarray(gradient), x.grad.numpy(), atol=tolerance(X.size, 1.0), rtol=0)


def test_sure_predictions_have_a_loss_and_a_gradient() -> None:
    """Where `softplus(x) - x` has no digits left in f32; each term is rounded a few times."""
    x, target = np.array([20.0, 30.0, -20.0, -30.0], np.float32), np.array([1.0, 1.0, 0.0, 0.0], np.float32)
    value, gradient = ts.value_and_grad(partial(nn.binary_cross_entropy, reduction="sum"))(ts.array(x), target)
    small = np.exp(-np.abs(x.astype(np.float64)))
    np.testing.assert_allclose(float(value), np.log1p(small).sum(), rtol=8 * 2**-23)
    np.testing.assert_allclose(np.asarray(gradient), -np.sign(x) * small / (1 + small), rtol=8 * 2**-23)


def test_narrow_floats_are_widened_and_wrong_calls_refused() -> None:
    narrow = ts.asarray(X.astype(np.float32)).astype(ts.bf16)
    assert nn.mse_loss(narrow, narrow).dtype is ts.f32
    with pytest.raises(ShapeError, match=r"of one shape, got \[5, 7\] and \[5\]"):
        nn.mse_loss(ts.asarray(X), ts.asarray(LABELS))
    with pytest.raises(ArgumentError, match="no reduction 'max'"):
        nn.l1_loss(ts.asarray(X), ts.asarray(Y), reduction="max")
    with pytest.raises(ArgumentError, match="`delta` above 0"):
        nn.huber_loss(ts.asarray(X), ts.asarray(Y), delta=0.0)
