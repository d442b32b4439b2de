"""Forms of what transforms take and give, and what errors say: the name that was called, forms as they are written."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, PytreeError
from tessera.frontend.pytree import flatten, leaves_like

X = np.array([0.5, -1.0, 2.0])
UNORDERED = {"w": X, "b": X * 2, "a": [X, {"z": X, "y": X}]}


class Pair(NamedTuple):
    """A container with names."""

    left: Any
    right: Any


def total(tree: Any) -> Any:
    found, _ = flatten(tree)
    return sum((leaf * leaf).sum() for leaf in found)


def order_of(tree: Any) -> Any:
    return flatten(tree, keep_order=True)[1]


@pytest.mark.parametrize(
    "run",
    [
        lambda tree: ts.grad(total)(tree),
        lambda tree: ts.jit(ts.grad(total))(tree),
        lambda tree: ts.value_and_grad(total)(tree)[1],
        lambda tree: ts.vjp(total, tree)[1](np.float64(1.0))[0],
        lambda tree: ts.jacrev(total)(tree),
        lambda tree: ts.jacfwd(total)(tree),
        lambda tree: ts.hvp(total, (tree,), (tree,))[0],
        lambda tree: ts.jvp(lambda t: t, (tree,), (tree,))[1],
        lambda tree: ts.linearize(lambda t: t, tree)[1](tree),
        lambda tree: ts.stop_gradient(tree),
        lambda tree: ts.jit(lambda t: t)(tree),
    ],
)
def test_the_order_of_keys_is_that_of_the_caller(run: Any) -> None:
    other = {"b": UNORDERED["b"], "a": UNORDERED["a"], "w": UNORDERED["w"]}
    # Once in each order: what was compiled for one does not answer for the other.
    for tree in (UNORDERED, other, UNORDERED):
        assert order_of(run(tree)) == order_of(tree)


def test_a_function_that_goes_through_keys_sees_their_order() -> None:
    first = ts.jit(lambda tree: tree[next(iter(tree))])
    for tree in ({"b": X, "a": X * 2}, {"a": X * 2, "b": X}, {"b": X, "a": X * 2}):
        np.testing.assert_array_equal(np.asarray(first(tree)), next(iter(tree.values())))


def test_tangents_and_cotangents_may_have_their_keys_in_any_order() -> None:
    tree, other = {"b": X, "a": X[:2]}, {"a": X[:2] * 3, "b": X * 5}
    found = ts.jvp(lambda t: t, (tree,), (other,))[1]
    np.testing.assert_array_equal(np.asarray(found["b"]), X * 5)
    pulled = ts.vjp(lambda t: {"b": t["b"] * 2.0, "a": t["a"]}, tree)[1](other)[0]
    np.testing.assert_array_equal(np.asarray(pulled["a"]), X[:2] * 3)
    np.testing.assert_array_equal(np.asarray(pulled["b"]), X * 10)


def test_leaves_follow_a_form() -> None:
    form = flatten({"b": 1, "a": (2, 3)}, keep_order=True)[1]
    assert leaves_like(form, {"a": (5, 6), "b": 4}) == [4, 5, 6]
    assert leaves_like(form, {"a": None, "b": 4}, has_none=True) == [4, None, None]
    for other in ({"a": (5, 6)}, {"a": [5, 6], "b": 4}, {"a": (5,), "b": 4}, {"a": None, "b": 4}, 3, (4, (5, 6))):
        assert leaves_like(form, other) is None


def test_a_form_is_shown_as_one_writes_it() -> None:
    given = {"w": (X, [X]), "n": None, "p": Pair(X, (X,))}
    shown = "{'w': (tensor, [tensor]), 'n': None, 'p': Pair(left=tensor, right=(tensor,))}"
    assert str(flatten(given, keep_order=True)[1]) == shown


def test_integers_of_a_result_have_zero_tangents() -> None:
    def both(x: Any) -> Any:
        return {"y": x * 2.0, "n": (x > 0.0).sum()}

    value, push = ts.linearize(both, X)
    pushed = push(X)
    assert int(value["n"]) == 2
    assert [np.asarray(one).tolist() for one in (pushed["y"], pushed["n"])] == [(X * 2).tolist(), 0]
    again = ts.jit(lambda x: ts.linearize(both, x)[1](x))(X)
    assert np.asarray(again["n"]).tolist() == 0
    assert np.asarray(ts.jvp(both, (X,), (X,))[1]["n"]).tolist() == 0


def test_second_derivatives_of_several_results() -> None:
    """As JAX: each element has its own, behind the axes of the result."""
    found = np.asarray(ts.hessian(lambda x: x * x * x)(X))
    expected = np.zeros((3, 3, 3))
    for at in range(3):
        expected[at, at, at] = 6 * X[at]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (lambda: ts.jacrev(lambda x: x)(np.arange(3)), DifferentiationError, "^.*`jacrev` differentiates by floats"),
        (lambda: ts.jacfwd(lambda a, x: x, 1)(X, np.arange(3)), DifferentiationError, "`jacfwd` .* argument 1 is"),
        (lambda: ts.hessian(lambda x: x.sum())(np.arange(3)), DifferentiationError, "`hessian` differentiates"),
        (lambda: ts.hessian(lambda x: x.sum(), 3)(X), ArgumentError, "`hessian` is to differentiate by argument 3"),
        (lambda: ts.hvp(lambda x: x.sum(), (np.arange(3),), (X,)), DifferentiationError, "`hvp` differentiates"),
        (lambda: ts.hvp(lambda x: x, (X,), (X,)), DifferentiationError, "`hvp` needs a function that returns a scalar"),
        (lambda: ts.hvp(lambda x: x.sum(), (X,), (X[:2],)), DifferentiationError, "`hvp` takes tangents"),
        (
            lambda: ts.jacrev(lambda x: (x, x > 0.0))(X),
            DifferentiationError,
            r"and `result\[1\]` is \[3\] bool",
        ),
        (lambda: ts.vjp(lambda x: x, X)[1]((X, X)), PytreeError, r"their values, tensor, got \(tensor, tensor\)"),
        (lambda: ts.grad(lambda x: {"a": x})(X), DifferentiationError, r"returns \{'a': tensor\}"),
        (lambda: ts.vmap(lambda x: x, in_dims=0)(X), ArgumentError, "`in_dims` of `vmap`(.|\n)*write `in_axes=0`"),  # pyright: ignore[reportCallIssue]
        (lambda: ts.grad(lambda x: x, argnum=0), ArgumentError, "`argnum` of `grad`(.|\n)*write `argnums=0`"),  # pyright: ignore[reportCallIssue]
        (lambda: ts.jvp(lambda x: x), ArgumentError, "wrong arguments of `jvp`"),  # pyright: ignore[reportCallIssue]
        (lambda: ts.scan(lambda c, x: (c, x), init=X), ArgumentError, "unexpected argument `init` of `scan`"),  # pyright: ignore[reportCallIssue]
    ],
)
def test_errors_name_what_was_called(ask: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_at_sizes_whose_squares_leave_the_range(dtype: Any) -> None:
    tiny, huge = (np.array(one, dtype) for one in ((1e-30, 1e20) if dtype is np.float32 else (1e-200, 1e200)))
    slope = ts.grad(lambda x: ops.gelu(x, approximate="tanh").sum())(np.stack([-huge, np.zeros((), dtype), huge]))
    np.testing.assert_array_equal(np.asarray(slope), np.array([0.0, 0.5, 1.0], dtype))
    for size in (tiny, huge):
        y, x = 3 * size, 4 * size
        found = ts.grad(lambda a, b: ops.atan2(a, b), (0, 1))(y, x)
        expected = [np.float64(4) / 25 / np.float64(size), -np.float64(3) / 25 / np.float64(size)]
        np.testing.assert_allclose([float(one) for one in found], expected, rtol=8 * float(np.finfo(dtype).eps))
