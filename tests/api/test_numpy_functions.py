"""NumPy at the boundary: its functions on tensors, its masked arrays, and arrays too large to copy."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, OutOfMemoryError, RuntimeArgumentError, TracingError

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3)
MASKED = np.ma.masked_array(X, X > 2)


def jit(function: Any) -> Any:
    return ts.jit(function, backend="reference")


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (lambda x: np.sin(x), "tessera.ops.sin"),
        (lambda x: np.exp(x), "tessera.ops.exp"),
        (lambda x: np.add(x, x), "tessera.ops.add"),
        (lambda x: np.subtract(x, 1), "tessera.ops.sub"),
        (lambda x: np.sum(x), "tessera.ops.sum"),
        (lambda x: np.mean(x, axis=0), "tessera.ops.mean"),
        (lambda x: np.add.reduce(x), "tessera.ops"),
        (lambda x: np.concatenate([x, x]), "tessera.ops"),
        (lambda x: np.linalg.norm(x), "tessera.ops"),
        (lambda x: np.add(X, x, out=X.copy()), "tessera.ops.add"),
    ],
)
def test_a_numpy_function_of_a_traced_tensor_names_ours(function: Any, instead: str) -> None:
    with pytest.raises(TracingError) as caught:
        jit(function)(X)
    assert f"use `{instead}" in str(caught.value)
    assert "NumPy needs the value of a traced tensor [2, 3] f32" in str(caught.value)


OPERATORS: list[Any] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a**b,
    lambda a, b: a.T @ b,
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_array_on_the_left_leaves_every_operator_to_us(operator: Any) -> None:
    left, right = X + 2, X + 1
    made = jit(lambda x: operator(left, x))(right)
    np.testing.assert_allclose(made, operator(left, right), rtol=1e-6)


@pytest.mark.parametrize("operator", [lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b])
def test_bits_of_an_array_on_the_left(operator: Any) -> None:
    left, right = np.array([5, 6]), np.array([3, 4])
    np.testing.assert_array_equal(jit(lambda x: operator(left, x))(right), operator(left, right))
    np.testing.assert_array_equal(jit(lambda x: (left << x) + (left >> x))(right), (left << right) + (left >> right))


def test_a_numpy_scalar_on_the_left() -> None:
    for scalar in (np.float32(2), np.float64(2)):
        np.testing.assert_array_equal(jit(lambda x, scalar=scalar: scalar * x)(X), 2 * X)


def test_what_numpy_does_by_shapes_and_methods_stays() -> None:
    made = jit(lambda x: np.swapaxes(x, 0, 1) * np.shape(x)[0] + np.ndim(x))(X)
    np.testing.assert_array_equal(made, X.T * 2 + 2)


def test_numpy_functions_take_tensors_with_data() -> None:
    x = ts.array(X)
    assert np.sum(x) == X.sum()
    assert np.max(x) == 5
    np.testing.assert_array_equal(np.mean(x, axis=0), X.mean(axis=0))
    np.testing.assert_array_equal(np.var(x, axis=1), X.var(axis=1))
    np.testing.assert_array_equal(np.transpose(x), X.T)
    np.testing.assert_array_equal(np.concatenate([x, x]), np.concatenate([X, X]))
    assert isinstance(np.squeeze(x), np.ndarray)
    narrow = ts.array(X.astype(ml_dtypes.bfloat16))
    assert float(np.sum(narrow)) == 15


def test_what_a_numpy_function_reads_while_tracing_is_watched() -> None:
    held = [ts.array([1.0, 2.0])]
    f = jit(lambda x: x * float(np.sum(held[0])))
    assert float(np.asarray(f(X))[0, 1]) == 3
    held[0] = ts.array([2.0, 2.0])
    assert float(np.asarray(f(X))[0, 1]) == 4


@pytest.mark.parametrize(
    "use",
    [
        lambda: jit(lambda x: x + 1)(MASKED),
        lambda: jit(lambda x: x + MASKED)(X),
        lambda: jit(lambda xs: xs[0] + 1)([MASKED]),
        lambda: ts.ops.sin(MASKED),
        lambda: ts.array(X) + MASKED,
        lambda: ts.array(MASKED),
        lambda: ts.Tensor.of(MASKED),
    ],
)
def test_masked_arrays_are_refused(use: Any) -> None:
    with pytest.raises((ArgumentError, RuntimeArgumentError), match="its mask would be lost") as caught:
        use()
    assert "`x.filled(value)`" in str(caught.value)


def test_a_masked_array_is_refused_by_a_function_that_is_compiled_already() -> None:
    f = jit(lambda x: x + 1)
    f(X)
    with pytest.raises(ArgumentError, match="its mask would be lost"):
        f(MASKED)


def test_an_array_that_cannot_be_copied_says_how_large_it_is() -> None:
    large = np.broadcast_to(F32(1), (1 << 48,))
    with pytest.raises(OutOfMemoryError, match="no memory for 1125899906842624 bytes: a copy of an array") as caught:
        ts.array(large)
    assert caught.value.code == "T0707"
