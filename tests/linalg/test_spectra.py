"""Eigenvalues, singular values, what is made of them, norms and products, against NumPy in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.linalg.matrices import EPS, FAMILIES, adjoint, complex_numbers, departure, error_of, numbers

linalg = ts.linalg
SLOW = pytest.mark.slow
FEW = 8.0
"""Backward errors are at most so many `n eps |a|`, in norms; the largest seen is 3."""


def check_eigh(a: Any) -> None:
    values, vectors = (np.asarray(part) for part in linalg.eigh(a))
    assert (np.diff(values) >= 0).all()
    assert error_of(a @ vectors - vectors * values, a) <= FEW
    assert departure(vectors) <= FEW
    norm, size = np.linalg.norm(a, 2) if a.size else 0.0, max(len(a), 1)
    reference = np.linalg.eigvalsh(a) if a.size else values
    limit = FEW * size * EPS["float64"] * norm
    assert np.abs(values - reference).max(initial=0.0) <= limit
    assert np.abs(np.asarray(linalg.eigvalsh(a)) - reference).max(initial=0.0) <= limit


def check_svd(a: Any, is_full: bool = True) -> None:
    u, s, vh = (np.asarray(part) for part in linalg.svd(a, full_matrices=is_full))
    rows, columns = a.shape
    size = min(rows, columns)
    assert (u.shape, vh.shape) == (((rows, rows), (columns, columns)) if is_full else ((rows, size), (size, columns)))
    assert (np.diff(s) <= 0).all()
    assert (s >= 0).all()
    assert error_of((u[:, :size] * s) @ vh[:size] - a, a) <= FEW
    assert departure(u) <= FEW
    assert departure(adjoint(vh)) <= FEW
    limit = FEW * max(rows, columns, 1) * EPS["float64"] * (np.linalg.norm(a, 2) if a.size else 0.0)
    reference = np.linalg.svd(a, compute_uv=False) if a.size else s
    assert np.abs(s - reference).max(initial=0.0) <= limit
    assert np.abs(np.asarray(linalg.svdvals(a)) - reference).max(initial=0.0) <= limit


@pytest.mark.parametrize("n", [0, 1, 3, *(pytest.param(n, marks=SLOW) for n in (2, 17, 129))])
def test_eigenvectors_of_any_size(n: int) -> None:
    a = numbers(n, n)
    check_eigh(a + a.T)


@pytest.mark.parametrize("name", FAMILIES)
@SLOW
def test_eigenvectors_and_singular_vectors_of_every_kind(name: str) -> None:
    a = FAMILIES[name](40)
    check_eigh((a + a.T) / 2)
    check_svd(a)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (0, 0),
        (3, 0),
        (0, 3),
        (3, 3),
        *(pytest.param(*two, marks=SLOW) for two in ((5, 8), (9, 4), (129, 129), (20, 70))),
    ],
)
def test_singular_vectors_of_any_size(rows: int, columns: int) -> None:
    check_svd(numbers(rows, columns))


@SLOW
def test_complex_matrices() -> None:
    a = complex_numbers(3, 3)
    hermitian = a + adjoint(a)
    values, vectors = linalg.eigh(hermitian)
    assert (values.dtype, vectors.dtype) == (ts.f64, ts.c128)
    values, vectors = np.asarray(values), np.asarray(vectors)
    assert error_of(hermitian @ vectors - vectors * values, hermitian) <= FEW
    u, s, vh = (np.asarray(part) for part in linalg.svd(a))
    assert error_of((u * s) @ vh - a, a) <= FEW
    assert max(map(departure, (vectors, u, vh))) <= FEW
    q, r = (np.asarray(part) for part in linalg.qr(a))
    assert error_of(q @ r - a, a) <= FEW
    np.testing.assert_allclose(a @ np.asarray(linalg.solve(a, a[:, 0])), a[:, 0], rtol=1e-11)


@SLOW
def test_noise_of_f32_is_not_solved_as_a_matrix_of_its_own() -> None:
    a = np.ones((45, 45), np.float32)
    u, s, vh = (np.asarray(part) for part in linalg.svd(a))
    assert error_of((u * s) @ vh - a, a) <= FEW
    assert max(map(departure, (u, adjoint(vh)))) <= FEW
    values, vectors = (np.asarray(part) for part in linalg.eigh(a))
    assert error_of(a @ vectors - vectors * values, a) <= FEW
    assert departure(vectors) <= FEW


def test_diagonal_matrices_are_exact() -> None:
    values, vectors = linalg.eigh(np.diag([3.0, 1.0, 2.0]))
    assert np.asarray(values).tolist() == [1.0, 2.0, 3.0]
    assert np.array_equal(np.abs(np.asarray(vectors)), np.eye(3)[:, [1, 2, 0]])
    assert np.asarray(linalg.svdvals(np.diag([3.0, -1.0, 0.0]))).tolist() == [3.0, 1.0, 0.0]


def test_what_is_not_finite_is_nan_and_ends() -> None:
    a = np.stack([np.full((3, 3), np.nan), np.eye(3), np.diag([1.0, np.inf, 1.0])])
    values = np.asarray(linalg.eigvalsh(a))
    singular = np.asarray(linalg.svdvals(a))
    for found in (values, singular):
        assert np.isnan(found[[0, 2]]).all()
        assert np.array_equal(found[1], np.ones(3))


def test_ranks_inverses_and_least_squares_of_deficient_matrices() -> None:
    a = numbers(5, 2) @ numbers(2, 3, seed=1)
    assert int(linalg.matrix_rank(a)) == np.linalg.matrix_rank(a) == 2
    assert int(linalg.matrix_rank(a, tol=1e3)) == 0
    np.testing.assert_allclose(np.asarray(linalg.pinv(a)), np.linalg.pinv(a), atol=1e-13)
    b = numbers(5, 2, seed=2)
    x, residuals, rank, s = linalg.lstsq(a, b)
    expected = np.linalg.lstsq(a, b)[0]
    np.testing.assert_allclose(np.asarray(x), expected, atol=1e-13)
    np.testing.assert_allclose(np.asarray(residuals), ((a @ expected - b) ** 2).sum(0), rtol=1e-12)
    assert int(rank) == 2
    assert s.shape == (3,)


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(ord: Any) -> None:
    x = numbers(2, 3, 3)
    found = linalg.norm(x, ord, axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(np.asarray(found), np.linalg.norm(x, ord, axis=(1, 2), keepdims=True), rtol=1e-13)
    with pytest.raises(ArgumentError):
        linalg.matrix_norm(x, 3)


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3.5, -1, np.inf, -np.inf])
def test_norms_of_vectors(ord: Any) -> None:
    x = numbers(2, 5)
    np.testing.assert_allclose(np.asarray(linalg.norm(x, ord, axis=1)), np.linalg.norm(x, ord, axis=1), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(linalg.norm(x[0], ord)), np.linalg.norm(x[0], ord), rtol=1e-13)


def test_a_norm_neither_overflows_nor_has_a_derivative_of_nan_at_zero() -> None:
    np.testing.assert_allclose(float(linalg.norm(np.array([3e200, 4e200]))), 5e200, rtol=1e-15)
    assert np.asarray(ts.grad(linalg.vector_norm)(np.zeros(3))).tolist() == [0.0] * 3
    cubic: Callable[[Any], Any] = lambda x: linalg.vector_norm(x, 3)  # noqa: E731
    assert np.asarray(ts.grad(cubic)(np.zeros(3))).tolist() == [0.0] * 3
    np.testing.assert_allclose(np.asarray(ts.grad(linalg.vector_norm)(np.array([3.0, 4.0]))), [0.6, 0.8])


def test_norms_take_symbolic_sizes() -> None:
    def find_norms(a: Any) -> Any:
        return linalg.norm(a), linalg.norm(a, axis=1, keepdims=True), linalg.norm(a, np.inf), linalg.norm(a, -1)

    find_norms.__annotations__["a"] = ts.Tensor["N", "M", ts.f64]
    run = ts.jit(find_norms)
    for a in (numbers(3, 4), numbers(1, 2)):
        lengths = np.linalg.norm(a, axis=1, keepdims=True)
        expected = np.linalg.norm(a), lengths, np.linalg.norm(a, np.inf), np.linalg.norm(a, -1)
        for one, other in zip(run(a), expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-14)


def test_condition_numbers() -> None:
    a = numbers(3, 3)
    for p in (None, 1, "fro"):
        np.testing.assert_allclose(float(linalg.cond(a, p)), np.linalg.cond(a, p), rtol=1e-11)
    for p in (None, 1, -2):
        assert float(linalg.cond(np.zeros((3, 3)), p)) == np.inf
    assert np.isnan(float(linalg.cond(np.array([[np.nan, 1.0], [1.0, 1.0]]))))


def test_powers_and_products_of_many() -> None:
    a = numbers(3, 3)
    for n in (-2, 0, 1, 5):
        found = np.asarray(linalg.matrix_power(a, n))
        np.testing.assert_allclose(found, np.linalg.matrix_power(a, n), rtol=1e-11, atol=1e-11)
    assert np.asarray(linalg.matrix_power(np.array([[2, 1], [0, 1]]), 3)).tolist() == [[8, 7], [0, 1]]
    parts = [numbers(10, 3), numbers(3, 20), numbers(20, 4), numbers(4)]
    np.testing.assert_allclose(np.asarray(linalg.multi_dot(parts)), np.linalg.multi_dot(parts), rtol=1e-12)
    with pytest.raises(ShapeError, match="of two dims"):
        linalg.multi_dot([numbers(2, 2), numbers(2, 2, 2), numbers(2, 2)])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_exponentials_are_those_of_eigenvalues(scale: float) -> None:
    a = numbers(3, 3) * scale
    values, vectors = np.linalg.eig(a)
    expected = ((vectors * np.exp(values)) @ np.linalg.inv(vectors)).real
    found = np.asarray(linalg.expm(a))
    # Each squaring doubles the relative error at most.
    assert np.linalg.norm(found - expected) <= 100 * max(1.0, np.linalg.norm(a, 1)) * EPS["float64"] * np.linalg.norm(
        expected
    )
