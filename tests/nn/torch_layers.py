"""A layer of ours beside one of PyTorch's with the same weights: results and gradients of both, in f64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.frontend.pytree import map_leaves

torch: Any = pytest.importorskip("torch")


def widen(tree: Any) -> Any:
    """A tree of tensors in f64, in which nothing but mistakes is left to see."""
    return nn.cast(tree, ts.f64)


def tolerance(terms: int, scale: float) -> float:
    """What sums of so many terms in f64, in two orders, may differ by: rounding of each partial sum, both ways."""
    return 2 * terms * float(np.finfo(np.float64).eps) * max(scale, 1.0)


def own_gradients(layer: Any, inputs: tuple[Any, ...], call: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """The result for the inputs, and gradients of its product with fixed numbers, by the layer and the first input."""

    def loss(layer: Any, x: Any, *others: Any) -> Any:
        y = call(layer, x, *others)
        return (y * weights_like(y)).sum(), y

    (_, y), (by_layer, by_x) = ts.value_and_grad(loss, (0, 1), has_aux=True)(layer, *inputs)
    return np.asarray(y), by_layer, np.asarray(by_x)


def weights_like(y: Any) -> Any:
    """Numbers from -1 to 1 that differ along all axes, in either library."""
    count: int = math.prod(y.shape)
    if hasattr(y, "backward"):
        return torch.sin(torch.arange(count, dtype=y.dtype) * 1.7).reshape(y.shape)
    return ts.ops.sin(ts.ops.astype(ts.ops.iota((count,)), y.dtype) * 1.7).reshape(y.shape)


def call_layer(layer: Any, *inputs: Any) -> Any:
    """What most layers are called like."""
    return layer(*inputs)


def compare(
    layer: Any,
    theirs: Any,
    *inputs: Any,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    own_call: Callable[..., Any] = call_layer,
    their_call: Callable[..., Any] = call_layer,
    terms: int = 1000,
) -> Any:
    """Load the weights of PyTorch's layer, and assert that results and all gradients agree; gives our layer."""
    theirs = theirs.double()
    layer = nn.load_state_dict(widen(layer), dict(theirs.state_dict()), names=names, layout="torch", is_strict=False)
    arrays = [np.asarray(one) for one in inputs]
    tensors = [torch.tensor(one) for one in arrays]
    tensors[0].requires_grad_(tensors[0].is_floating_point())
    expected = their_call(theirs, *tensors)
    (expected * weights_like(expected)).sum().backward()
    y, by_layer, by_x = own_gradients(layer, tuple(ts.asarray(one) for one in arrays), own_call)
    assert_close("y", y, expected, terms)
    assert_close("x", by_x, tensors[0].grad, terms)
    found = nn.state_dict(by_layer, layout="torch")
    known = dict(theirs.named_parameters())
    loaded = {name: nn.translate(name, names) for name in found}
    assert set(loaded.values()) >= set(known), "a parameter of PyTorch's layer has no counterpart"
    for name, their_name in loaded.items():
        if their_name in known:
            assert_close(name, np.asarray(found[name]), known[their_name].grad, terms)
    return layer


def assert_close(name: str, found: Any, expected: Any, terms: int) -> None:
    """Assert that values are those of a tensor of PyTorch, as closely as sums of so many terms allow."""
    wanted = expected.detach().numpy()
    scale = float(np.max(np.abs(wanted), initial=0.0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance(terms, scale), err_msg=name)


def numbers(*shape: int, seed: int = 0) -> Any:
    """Normal numbers in f64."""
    return np.random.default_rng(seed).standard_normal(shape)


def as_arrays(tree: Any) -> Any:
    """A tree of NumPy arrays."""
    return map_leaves(np.asarray, tree)
