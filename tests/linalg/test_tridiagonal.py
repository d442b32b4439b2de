"""Tridiagonal matrices: divide and conquer, deflation, the secular equation, and reduction by blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.linalg.divide import deflate
from tessera.linalg.eigen import solve_tridiagonal
from tessera.linalg.secular import correct_weights, distances, solve_secular
from tessera.linalg.tridiagonal import apply_panels, reduce_to_tridiagonal
from tests.linalg.matrices import EPS, adjoint, complex_numbers, departure, error_of, numbers

N = 40
TRIDIAGONALS: dict[str, tuple[Any, Any]] = {
    "normal": (numbers(N), numbers(N, seed=1)),
    "of equal elements": (np.full(N, 2.0), np.full(N, -1.0)),
    "of Wilkinson": (np.abs(np.arange(N) - N / 2), np.ones(N)),
    "zero": (np.zeros(N), np.zeros(N)),
    "nearly diagonal": (np.ones(N), np.full(N, 1e-17)),
    "graded": (np.logspace(0, -12, N), np.logspace(0, -12, N) / 2),
    "graded upwards": (np.logspace(-12, 0, N), np.logspace(-12, 0, N) / 2),
    "clustered": (np.resize([1.0, 1.0, 1.0, 2.0], N), np.resize([1e-9, 0.0, 1.0, 1e-15], N)),
    "without a diagonal": (np.zeros(N), numbers(N)),
}


def dense(d: Any, e: Any) -> Any:
    return np.diag(d) + np.diag(e[:-1], 1) + np.diag(e[:-1], -1)


def solve_both(d: Any, e: Any) -> Any:
    return *solve_tridiagonal(d, e, has_vectors=True), solve_tridiagonal(d, e, has_vectors=False)[0]


def test_tridiagonal_matrices_of_every_kind_alone_and_in_a_batch() -> None:
    d, e = (np.stack([pair[at] for pair in TRIDIAGONALS.values()]) for at in (0, 1))
    e[:, -1] = 0.0
    solve = ts.jit(solve_both)
    values, vectors, alone = (np.asarray(part) for part in solve(d, e))
    for at, name in enumerate(TRIDIAGONALS):
        matrix = dense(d[at], e[at])
        reference, norm = np.linalg.eigvalsh(matrix), np.linalg.norm(matrix, 2)
        for found in (values[at], alone[at]):
            assert np.abs(found - reference).max() <= 2 * N * EPS["float64"] * norm, name
        assert error_of(matrix @ vectors[at] - vectors[at] * values[at], matrix) <= 2, name
        assert departure(vectors[at]) <= 2, name
        own = solve(d[at : at + 1], e[at : at + 1])
        for whole, one in zip((values, vectors, alone), own, strict=True):
            assert np.array_equal(whole[at], np.asarray(one)[0]), name


def test_equal_poles_are_rotated_into_one_and_small_weights_vanish() -> None:
    poles = np.array([[1.0, 1.0, 1.0 + 1e-17, 2.0, 3.0]])
    z = np.array([[0.5, 0.5, 0.5, 1e-20, 0.5]])
    limit, reach = ts.array([1e-15], ts.f64), ts.array([1.0], ts.f64)
    made = deflate(ts.array(poles, ts.f64), ts.array(z, ts.f64), limit, reach)
    found = np.asarray(made.z)[0]
    assert (found != 0).sum() == 2
    assert np.isclose(np.abs(found).max(), 0.5 * np.sqrt(3.0))
    assert sorted(np.asarray(made.poles)[0]) == pytest.approx([1.0, 1.0, 1.0, 2.0, 3.0])


def test_roots_of_close_poles_have_all_their_digits() -> None:
    poles = np.array([[0.0, 1e-14, 1.0, 1.0 + 1e-13, 5.0]])
    z = np.array([[1e-9, 0.5, 1.0, -1e-6, 0.1]])
    roots = solve_secular(ts.array(poles, ts.f64), ts.array(z, ts.f64))
    gaps = np.asarray(distances(roots))[0]
    # Root j is between pole j and the next one.
    assert (np.sign(gaps) == np.where(np.arange(5)[:, None] <= np.arange(5), -1, 1)).all()
    weights = np.asarray(correct_weights(roots, ts.array(z, ts.f64)))[0]
    np.testing.assert_allclose(weights, z[0], rtol=1e-13)
    vectors = weights[:, None] / gaps
    assert departure(vectors / np.linalg.norm(vectors, axis=0)) <= 1


@pytest.mark.parametrize("is_complex", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_blocks_of_columns_make_a_matrix_tridiagonal(is_complex: bool) -> None:
    a = (complex_numbers if is_complex else numbers)(N, N)
    a = (a + adjoint(a)) / 8

    def reduce(a: Any) -> Any:
        d, e, panels = reduce_to_tridiagonal(a)
        return d, e, apply_panels(panels, ts.ops.eye(N, dtype=a.dtype)[None])

    d, e, q = (np.asarray(part)[0] for part in ts.jit(reduce)(ts.array(a[None], ts.c128 if is_complex else ts.f64)))
    assert e[-1] == 0
    assert error_of(q @ dense(d, e) @ adjoint(q) - a, a) <= 2
    assert departure(q) <= 2


def test_complex_columns_whose_squares_vanish_count_as_zero() -> None:
    scale = np.logspace(0, -15, 17)
    a = complex_numbers(17, 17)
    graded = ((a + adjoint(a)) * scale * scale[:, None]).astype(np.complex64)
    values, vectors = (np.asarray(part) for part in ts.linalg.eigh(ts.array(graded)))
    assert error_of(graded @ vectors - vectors * values, graded) <= 2
    assert departure(vectors) <= 2
    found = np.asarray(ts.linalg.svdvals(ts.array(graded)))
    np.testing.assert_allclose(found, np.linalg.svd(graded, compute_uv=False), atol=4e-6 * found[0])
