"""Optimizers against PyTorch's in f64 and f32, and against NumPy, over twenty steps of a whole tree."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, PytreeError
from tessera.stdlib.optimizers import bias_correction

torch: Any = pytest.importorskip("torch", reason="a peer")

STEPS = 20
EPSILON = float(np.finfo(np.float32).eps)
SHAPES: dict[str, tuple[int, ...]] = {"w": (5, 7), "b": (7,), "deep": (2, 3, 4), "one": ()}
Array = np.ndarray[Any, Any]
Tree = dict[str, Any]


def arrays(seed: int, dtype: Any, scale: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape) * scale, dtype) for name, shape in SHAPES.items()}


GRADIENTS = [arrays(seed, np.float64, 0.3) for seed in range(1, STEPS + 1)]


def descend(optimizer: ts.optim.Optimizer, dtype: Any) -> dict[str, Array]:
    """The parameters after twenty steps of one jitted function."""

    @ts.jit
    def step(params: Tree, state: Any, gradients: Tree) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return ts.optim.apply_updates(params, updates), state

    params = {name: ts.array(value) for name, value in arrays(0, dtype).items()}
    state = optimizer.init(params)
    for gradients in GRADIENTS:
        given = {name: ts.array(value.astype(dtype)) for name, value in gradients.items()}
        params, state = step(params, state, given)
    assert step.cache_info().misses == 1
    return {name: np.asarray(value) for name, value in params.items()}


def descend_in_torch(make: Callable[..., Any], dtype: Any) -> dict[str, Array]:
    params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in arrays(0, dtype).items()}
    optimizer = make(list(params.values()))
    for gradients in GRADIENTS:
        for name, value in gradients.items():
            params[name].grad = torch.tensor(value.astype(dtype))
        optimizer.step()
    return {name: value.detach().numpy() for name, value in params.items()}


TORCH: dict[str, tuple[ts.optim.Optimizer, Callable[..., Any]]] = {
    "sgd": (ts.optim.sgd(0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (ts.optim.sgd(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "nesterov": (
        ts.optim.sgd(0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "l2": (
        ts.optim.chain(ts.optim.add_decayed_weights(0.05), ts.optim.sgd(0.1, momentum=0.5)),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.05),
    ),
    "adam": (ts.optim.adam(0.01, b2=0.99), lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.99))),
    "adamw": (ts.optim.adamw(0.01, weight_decay=0.1), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
    "adafactor": (
        ts.optim.adafactor(0.05, weight_decay=0.1),
        lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_and_we_take_the_same_steps(name: str) -> None:
    ours, theirs = TORCH[name]
    exact = descend_in_torch(theirs, np.float64)
    double, single, rival = descend(ours, np.float64), descend(ours, np.float32), descend_in_torch(theirs, np.float32)
    for leaf, wanted in exact.items():
        # Each of so many steps rounds some ten times; values are of order one.
        bound = 10 * STEPS * float(np.finfo(np.float64).eps)
        np.testing.assert_allclose(double[leaf], wanted, rtol=bound, atol=bound)
        # In f32 both err; we not more than twice as much, or an epsilon for each step.
        error = np.abs(rival[leaf] - wanted).max()
        assert np.abs(single[leaf] - wanted).max() <= max(2 * error, STEPS * EPSILON)


def lion(params: dict[str, Array]) -> dict[str, Array]:
    mu = {name: np.zeros_like(value) for name, value in params.items()}
    for gradients in GRADIENTS:
        for name, gradient in gradients.items():
            step = np.sign(0.9 * mu[name] + (1.0 - 0.9) * gradient)
            mu[name] = 0.99 * mu[name] + (1.0 - 0.99) * gradient
            params[name] = params[name] - 0.02 * (step + 0.1 * params[name])
    return params


def test_lion_is_that_of_numpy() -> None:
    found = descend(ts.optim.lion(0.02, weight_decay=0.1), np.float64)
    for leaf, wanted in lion(arrays(0, np.float64)).items():
        bound = 10 * STEPS * float(np.finfo(np.float64).eps)
        np.testing.assert_allclose(found[leaf], wanted, rtol=bound, atol=bound)


def adamw(params: Tree, rates: list[Array], decayed: set[str]) -> Tree:
    """AdamW in f32, one operation at a time."""
    b1, b2, eps, decay = (np.float32(number) for number in (0.9, 0.999, 1e-8, 0.1))
    mu, nu = ({name: np.zeros_like(value) for name, value in params.items()} for _ in range(2))
    for count, (gradients, rate) in enumerate(zip(GRADIENTS, rates, strict=True), start=1):
        c1, c2 = (np.asarray(ts.jit(lambda t, b=b: correction(b, t))(ts.array(count))) for b in (0.9, 0.999))
        for name, value in gradients.items():
            gradient = value.astype(np.float32)
            mu[name] = b1 * mu[name] + np.float32(1 - 0.9) * gradient
            nu[name] = b2 * nu[name] + np.float32(1 - 0.999) * (gradient * gradient)
            step = (mu[name] * c1) / (np.sqrt(nu[name] * c2) + eps)
            step = step + decay * params[name] if name in decayed else step
            params[name] = params[name] - rate * step
    return params


def correction(decay: float, count: Any) -> Any:
    return bias_correction(decay, count, ts.f32)


def test_corrections_are_exact_to_the_last_bits() -> None:
    for count in (1, 2, 10, 1000, 100_000):
        found = float(correction(0.999, count))
        assert abs(found * (1 - 0.999**count) - 1) <= 4 * EPSILON


def test_adamw_equals_numpy_bit_for_bit_with_a_schedule_and_a_mask() -> None:
    schedule = ts.optim.warmup_cosine(0.02, warmup=4, steps=STEPS)
    optimizer = ts.optim.adamw(schedule, weight_decay=0.1, mask=ts.optim.matrices)
    found = descend(optimizer, np.float32)
    rates = [np.asarray(ts.jit(schedule)(ts.array(step))) for step in range(STEPS)]
    wanted = adamw(arrays(0, np.float32), rates, {"w", "deep"})
    for leaf, value in found.items():
        assert value.tobytes() == wanted[leaf].tobytes(), leaf


def test_masks_are_trees_or_functions_of_paths() -> None:
    params = {"w": ts.ones((2, 2)), "b": ts.ones((2,))}
    still = {name: ts.zeros(value.shape) for name, value in params.items()}
    for mask in ({"w": True, "b": False}, lambda path, leaf: path == "['w']"):
        optimizer = ts.optim.lion(1.0, weight_decay=0.5, mask=mask)
        updates, _ = optimizer.update(still, optimizer.init(params), params)
        assert updates["b"].tolist() == [0.0, 0.0]
        assert updates["w"].tolist() == [[-0.5, -0.5], [-0.5, -0.5]]
    with pytest.raises(ArgumentError, match="True or False for each parameter"):
        ts.optim.lion(1.0, weight_decay=0.5, mask={"w": 1, "b": 0}).update(still, optimizer.init(params), params)


def test_wrong_arguments_are_named() -> None:
    params = {"w": ts.ones((2,))}
    optimizer = ts.optim.adamw(0.1)
    state = optimizer.init(params)
    with pytest.raises(PytreeError, match=r"`adam` takes `gradients` in the form of the parameters, \{'w': tensor\}"):
        optimizer.update({"v": ts.ones((2,))}, state, params)
    with pytest.raises(ArgumentError, match="`adamw` needs the parameters"):
        optimizer.update(params, state)
    with pytest.raises(ArgumentError, match=r"`sgd` updates tensors of floats, and `params\['n'\]` is a tensor of i64"):
        ts.optim.sgd(0.1, momentum=0.9).init({"n": ts.array([1])})
    with pytest.raises(ArgumentError, match="`adamw` takes `learning_rate` as a number of at least 0, got -1"):
        ts.optim.adamw(-1)
    with pytest.raises(ArgumentError, match="`scale_by_adam` takes `b1` as a number from 0 to 1, got 2"):
        ts.optim.adam(0.1, b1=2.0)
    with pytest.raises(ArgumentError, match="`chain` takes optimizers"):
        ts.optim.chain(optimizer, 0.1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="`momentum` is 0"):
        ts.optim.sgd(0.1, nesterov=True)


def test_clipping() -> None:
    tree = {"a": np.array([3.0, -4.0], np.float32), "b": np.array([[12.0]], np.float32)}
    assert float(ts.optim.global_norm(tree)) == 13.0
    clipped, _ = ts.optim.clip_by_global_norm(6.5).update(tree, ())
    np.testing.assert_array_equal(np.asarray(clipped["a"]), tree["a"] / 2)
    kept, _ = ts.optim.clip_by_global_norm(100.0).update(tree, ())
    np.testing.assert_array_equal(np.asarray(kept["b"]), tree["b"])
    bounded, _ = ts.optim.clip(3.5).update(tree, ())
    assert bounded["a"].tolist() == [3.0, -3.5]
    assert bounded["b"].tolist() == [[3.5]]
