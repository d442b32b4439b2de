"""Bidiagonal matrices: divide and conquer of every kind of them, and reduction by blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.linalg.bidiagonal import reduce_to_bidiagonal
from tessera.linalg.singular import solve_bidiagonal
from tessera.linalg.tridiagonal import apply_panels
from tests.linalg.matrices import EPS, adjoint, complex_numbers, departure, error_of, numbers

N = 40
INDEX = np.arange(N)
BIDIAGONALS: dict[str, tuple[Any, Any]] = {
    "normal": (numbers(N), numbers(N, seed=1)),
    "of equal elements": (np.ones(N), np.ones(N)),
    "zero": (np.zeros(N), np.zeros(N)),
    "nilpotent": (np.zeros(N), np.ones(N)),
    "nearly diagonal": (np.ones(N), np.full(N, 1e-17)),
    "graded": (np.logspace(0, -18, N), np.logspace(0, -18, N) / 2),
    "graded upwards": (np.logspace(-18, 0, N), np.logspace(-18, 0, N) / 2),
    "clustered": (np.resize([1.0, 1.0, 0.0, 2.0], N), np.resize([1e-9, 0.0, 1.0, 1e-15], N)),
    "with small rows between parts": (
        np.where(INDEX % 6 == 5, np.logspace(-12, -3, N), 0.5),
        np.where(INDEX % 6 == 4, 0.3, 0.0),
    ),
    "of half rank": (np.where(INDEX < N // 2, numbers(N), 0.0), np.where(INDEX < N // 2, 1.0, 0.0)),
}


def dense(d: Any, e: Any) -> Any:
    return np.diag(d) + np.diag(e[:-1], 1)


def solve_both(d: Any, e: Any) -> Any:
    return *solve_bidiagonal(d, e, has_vectors=True), solve_bidiagonal(d, e, has_vectors=False)[0]


def test_bidiagonal_matrices_of_every_kind_alone_and_in_a_batch() -> None:
    d, e = (np.stack([pair[at] for pair in BIDIAGONALS.values()]) for at in (0, 1))
    e[:, -1] = 0.0
    solve = ts.jit(solve_both)
    values, left, right, alone = (np.asarray(part) for part in solve(d, e))
    for at, name in enumerate(BIDIAGONALS):
        matrix = dense(d[at], e[at])
        reference = np.linalg.svd(matrix, compute_uv=False)
        for found in (values[at], alone[at]):
            assert np.abs(found - reference).max() <= 2 * N * EPS["float64"] * reference[0], name
            assert (found >= 0).all()
        assert error_of((left[at] * values[at]) @ right[at].T - matrix, matrix) <= 2, name
        assert max(departure(left[at]), departure(right[at])) <= 2, name
        own = solve(d[at : at + 1], e[at : at + 1])
        for whole, one in zip((values, left, right, alone), own, strict=True):
            assert np.array_equal(whole[at], np.asarray(one)[0]), name


@pytest.mark.parametrize("is_complex", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_blocks_of_columns_and_rows_make_a_matrix_bidiagonal(is_complex: bool) -> None:
    a = (complex_numbers if is_complex else numbers)(N, N) / 4

    def reduce(a: Any) -> Any:
        d, e, lefts, rights = reduce_to_bidiagonal(a)
        identity = ts.ops.eye(N, dtype=a.dtype)[None]
        return d, e, apply_panels(lefts, identity), apply_panels(rights, identity)

    made = ts.jit(reduce)(ts.array(a[None], ts.c128 if is_complex else ts.f64))
    d, e, p, q = (np.asarray(part)[0] for part in made)
    assert e[-1] == 0
    assert error_of(p @ dense(d, e) @ adjoint(q) - a, a) <= 2
    assert max(departure(p), departure(q)) <= 2
