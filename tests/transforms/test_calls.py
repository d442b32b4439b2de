"""Calls of what transforms give: natively, as calls of a jitted function are, and traced once however they are made."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.transforms import test_calls as own

X, W = (np.full(8, value, np.float32) for value in (1.0, 2.0))
SCALE = 3.0
COUNT = [0]


def loss(x: Any, w: Any) -> Any:
    COUNT[0] += 1
    return (x * w).sum() * own.SCALE


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "grad": lambda: ts.grad(loss),
    "grad by two": lambda: ts.grad(loss, (0, 1)),
    "value_and_grad": lambda: ts.value_and_grad(loss, argnums=(0, 1)),
    "jit of grad": lambda: ts.jit(ts.grad(loss)),
    "grad of jit": lambda: ts.grad(ts.jit(lambda x, w: (x * w).sum())),
    "vmap": lambda: ts.vmap(lambda x, w: x * w + x),
    "jacrev": lambda: ts.jacrev(lambda x, w: x * w),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_second_call_goes_the_native_path(name: str) -> None:
    """The fast path looks at no variable of ours, and answers by itself."""
    made = TRANSFORMS[name]()
    made(X, W)
    (one,) = made.specializations
    before = one.fast_calls
    assert made._fast(X, W) is not NotImplemented
    assert one.fast_calls == before + 1
    watched = one.captures.current[0]
    assert len(watched) <= 2, "globals of the user's function alone are looked at"


def test_the_same_transform_of_a_function_is_made_once() -> None:
    assert ts.grad(loss) is ts.grad(loss)
    assert ts.grad(loss) is not ts.grad(loss, (0,))
    assert ts.grad(loss) is not ts.value_and_grad(loss)
    assert ts.vmap(loss, (0, None)) is ts.vmap(loss, (0, None))
    assert ts.vmap(loss) is not ts.vmap(loss, (0, None))
    ts.grad(loss)(X, W)
    traced = COUNT[0]
    for _ in range(3):
        ts.grad(loss)(X, W)
        ts.jvp(loss, (X, W), (X, W))
    assert COUNT[0] <= traced + 1


def test_what_the_function_captures_is_still_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.asarray(ts.grad(loss)(X, W))
    monkeypatch.setattr(own, "SCALE", 5.0)
    np.testing.assert_array_equal(np.asarray(ts.grad(loss)(X, W)), first / 3 * 5)
    _, pull = ts.vjp(loss, X, W)
    np.testing.assert_array_equal(np.asarray(pull(np.float32(1.0))[0]), first / 3 * 5)


def test_a_wrapper_has_transforms_of_its_own() -> None:

    ts.grad(loss)(X, W)

    @functools.wraps(loss)
    def twice(x: Any, w: Any) -> Any:
        return loss(x, w) * 2

    np.testing.assert_array_equal(np.asarray(ts.grad(twice)(X, W)), 2 * np.asarray(ts.grad(loss)(X, W)))


def test_floats_of_an_eager_vjp_are_no_part_of_the_program() -> None:
    def power(x: Any) -> Any:
        COUNT[0] += 1
        return x * x * x

    traced = COUNT[0]
    for value in (1.0, 2.0, 3.0):
        _, pull = ts.vjp(power, value)
        assert float(pull(np.float32(1.0))[0]) == 3 * value * value
    assert COUNT[0] == traced + 1


def test_lists_changed_later_change_no_transform() -> None:
    def product(a: Any, b: Any) -> Any:
        return (a * a * b).sum()

    a, b, numbers = ts.array([3.0]), ts.array([5.0]), [0]
    held = ts.grad(product, numbers), ts.jacrev(product, numbers)
    numbers[0] = 1
    for made in (*held, ts.grad(product, [0]), ts.jacrev(product, [0])):
        assert [one.tolist() for one in made(a, b)] == [[30.0]]
    axes: list[Any] = [0, None]
    held_map = ts.vmap(product, axes)
    axes[:] = [None, 0]
    pair = ts.array([[1.0], [2.0]])
    assert held_map(pair, b).tolist() == ts.vmap(product, [0, None])(pair, b).tolist() == [5.0, 20.0]


def test_reduce_axes_changed_later() -> None:
    def combine(a: Any, b: Any) -> Any:
        return a + b

    axes, x = [0], ts.array([[1.0, 2.0], [3.0, 4.0]])
    assert ts.reduce(x, 0.0, combine, axes).tolist() == [4.0, 6.0]
    axes[0] = 1
    wide = ts.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])  # another program of what was kept for [0]
    assert ts.reduce(wide, 0.0, combine, [0]).tolist() == [4.0, 6.0, 8.0]


def _take(transform: str, function: Any, x: Any) -> Any:
    if transform == "vjp":
        return ts.vjp(function, x)[1](ts.array(1.0))[0]
    if transform == "jvp":
        return ts.jvp(function, (x,), (x,))[1]
    made: Any = getattr(ts, transform)(function)
    return made(x)


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "jacrev", "vmap"])
def test_functions_defined_anew_are_transformed_anew(transform: str) -> None:
    def scale(x: Any, k: float = 2.0) -> Any:
        return (x * k).sum()

    def scale_named(x: Any, *, k: float = 2.0) -> Any:
        return (x * k).sum()

    def call(x: Any) -> Any:
        return scale(x)

    x = ts.array([1.0])
    functions: tuple[Any, ...] = (scale, scale_named, call)

    def take() -> list[float]:
        return [float(_take(transform, function, x).sum()) for function in functions]

    assert take() == [2.0, 2.0, 2.0]
    scale.__defaults__, scale_named.__kwdefaults__ = (5.0,), {"k": 6.0}
    assert take() == [5.0, 6.0, 5.0]
    scale_named.__kwdefaults__["k"] = 7.0
    scale.__code__ = (lambda x, k: (x * k * 10.0).sum()).__code__
    assert take() == [50.0, 7.0, 50.0]


def test_a_kept_transform_is_of_the_code_and_defaults_of_now() -> None:
    """Whichever part of a function is set, or filled anew as it is."""

    def loss(x: Any, k: float = 1.0, *, n: float = 1.0) -> Any:
        return (x * k * n).sum()

    def other(x: Any, k: float = 1.0, *, n: float = 1.0) -> Any:
        return (x * k * n).sum() * 10.0

    def slope() -> float:
        found = {float(np.asarray(gradient)[0]) for gradient in (ts.grad(loss)(X), ts.grad(loss, (0,))(X)[0])}
        assert ts.grad(loss) is ts.grad(loss)
        (one,) = found
        return one

    assert slope() == 1.0
    loss.__defaults__ = (2.0,)
    assert slope() == 2.0
    assert loss.__kwdefaults__ is not None
    loss.__kwdefaults__["n"] = 3.0
    assert slope() == 6.0
    loss.__code__ = other.__code__
    assert slope() == 60.0
    loss.__kwdefaults__ = {"n": 5.0}
    assert slope() == 100.0


def test_a_wrapper_has_a_transform_of_its_own() -> None:
    def loss(x: Any) -> Any:
        return (x * x).sum()

    assert float(np.asarray(ts.grad(loss)(X))[0]) == 2.0

    @functools.wraps(loss)
    def tripled(x: Any) -> Any:
        return loss(x) * 3.0

    assert float(np.asarray(ts.grad(tripled)(X))[0]) == 6.0
    wrong: Any = True  # equals 1, and is no number of an argument
    with pytest.raises(ts.TesseraError, match="argnums"):
        ts.grad(loss, wrong)(X)
