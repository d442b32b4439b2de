"""Derivatives of linear algebra against central differences in f64, in both modes; batches by vmap; GPUs."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.diagnostics.codes import DifferentiationError
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.device.cases import OPTIONS
from tests.linalg.matrices import complex_numbers, differences, numbers

linalg, ops = ts.linalg, ts.ops
WEIGHTS = np.abs(numbers(4, 4, seed=5))
RIGHT = numbers(3, 2, seed=6)
TRIANGLE = numbers(3, 3, seed=6) + 3 * np.eye(3)


def weighed(x: Any) -> Any:
    """A sum of squares of magnitudes, each with a weight: signs and phases of vectors do not matter."""
    size = ops.abs(x)
    return (size * size * WEIGHTS[: x.shape[-2], : x.shape[-1]]).sum()


def symmetric(a: Any) -> Any:
    return a + ops.swapaxes(ops.conj(a), -1, -2)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    "cholesky": (lambda a: weighed(linalg.cholesky(a @ ops.swapaxes(ops.conj(a), -1, -2))), (3, 3)),
    "solve_triangular": (lambda a: weighed(linalg.solve_triangular(a, RIGHT)), (3, 3)),
    "solve": (lambda a: weighed(linalg.solve(a, RIGHT)), (3, 3)),
    "inv": (lambda a: weighed(linalg.inv(a)), (3, 3)),
    "det": (lambda a: ops.abs(linalg.det(a)), (3, 3)),
    "slogdet": (lambda a: linalg.slogdet(a)[1], (3, 3)),
    "lu tall": (lambda a: weighed(linalg.lu(a).lu), (4, 2)),
    "qr": (lambda a: weighed(linalg.qr(a).Q) + weighed(linalg.qr(a).R), (4, 3)),
    "eigh": (lambda a: weighed(linalg.eigh(symmetric(a)).eigenvectors), (3, 3)),
    "svd": (lambda a: weighed(linalg.svd(a, full_matrices=False).U), (4, 3)),
    "svdvals": (lambda a: (linalg.svdvals(a) * WEIGHTS[0, :3]).sum(), (3, 3)),
    "pinv": (lambda a: weighed(linalg.pinv(a)), (4, 3)),
    "norm": (lambda a: linalg.norm(a), (3, 3)),
}
QUICK = ("cholesky", "solve", "slogdet")
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FUNCTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_both_modes_agree_with_differences(name: str) -> None:
    function, shape = FUNCTIONS[name]
    a, change = numbers(*shape), numbers(*shape, seed=3)
    found = np.asarray(ts.grad(function)(a))
    expected = differences(lambda x: float(function(ts.array(x, ts.f64))), a)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    _, pushed = ts.jvp(function, (a,), (change,))
    np.testing.assert_allclose(float(pushed), float((found * change).sum()), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qr", "svd"])
def test_derivatives_by_complex_matrices(name: str) -> None:
    function, shape = FUNCTIONS[name]
    a = complex_numbers(*shape)
    found = np.asarray(ts.grad(function)(ts.array(a, ts.c128)))
    expected = differences(lambda x: float(function(ts.array(x, ts.c128))), a)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.slow
def test_a_second_derivative() -> None:
    a = TRIANGLE
    inverse = np.linalg.inv(a)
    found = np.asarray(ts.hessian(lambda x: linalg.slogdet(x)[1])(a))
    np.testing.assert_allclose(found, -np.einsum("jk,li->ijkl", inverse, inverse), atol=1e-12)


def test_a_derivative_by_the_right_hand_side_and_the_triangle_that_is_read() -> None:
    found = np.asarray(ts.grad(lambda b: linalg.solve_triangular(TRIANGLE, b, lower=True).sum())(RIGHT))
    np.testing.assert_allclose(found, np.linalg.solve(np.tril(TRIANGLE).T, np.ones((3, 2))), atol=1e-13)
    by_matrix = np.asarray(ts.grad(lambda a: linalg.solve_triangular(a, RIGHT, lower=True).sum())(TRIANGLE))
    assert not np.triu(by_matrix, 1).any()


def test_vmap_is_a_batch() -> None:
    a = numbers(4, 3, 3)
    np.testing.assert_allclose(np.asarray(ts.vmap(linalg.inv)(a)), np.linalg.inv(a), atol=1e-12)


def test_what_has_no_derivative_says_so() -> None:
    with pytest.raises(DifferentiationError, match="`qr` has a derivative for matrices with at least as many rows"):
        ts.grad(lambda a: linalg.qr(a).R.sum())(numbers(2, 3))
    with pytest.raises(DifferentiationError, match="full_matrices=True"):
        ts.grad(lambda a: linalg.svd(a).U.sum())(numbers(3, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["solve", "eigvalsh"])
def test_programs_for_a_gpu_assemble(name: str) -> None:
    function = {"solve": lambda a: linalg.solve(a, a), "eigvalsh": linalg.eigvalsh}[name]
    tape = ts.jit(function).trace(np.eye(5, dtype=np.float32)).tape
    _, *kernels, _ = compile_tape(tape, OPTIONS).objects
    assert all(b".visible .entry" in ptx for ptx in kernels)
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    for ptx in kernels:
        assemble(ptx, "sm_90a")
