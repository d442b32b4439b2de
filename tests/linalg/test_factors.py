"""Cholesky, LU and QR factors, and what solves systems: backward errors, shapes, batches and what is refused."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.linalg.matrices import FAMILIES, adjoint, complex_numbers, departure, error_of, numbers

linalg = ts.linalg
QUICK = (0, 1, 3, 16)
SIZES = [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 7, 100))]
FEW = 4.0
"""Backward errors are at most so many `n eps |a|`, in norms; the largest seen is below 1."""


def positive(n: int, dtype: Any = np.float64) -> Any:
    x = numbers(n, n)
    return (x @ x.T + np.eye(n)).astype(dtype)


def unpacked(packed: Any) -> tuple[Any, Any]:
    """The two triangles of LU factors."""
    rows, columns = packed.shape[-2:]
    size = min(rows, columns)
    return np.tril(packed, -1)[..., :size] + np.eye(rows, size), np.triu(packed)[..., :size, :]


@pytest.mark.parametrize("n", SIZES)
def test_cholesky_multiplies_to_what_it_was_made_of(n: int) -> None:
    a = positive(n)
    lower = np.asarray(linalg.cholesky(a))
    assert np.array_equal(lower, np.tril(lower))
    assert error_of(lower @ lower.T - a, a) <= FEW
    # Of the other triangle nothing is read.
    other = np.tril(a) + np.triu(np.full((n, n), np.nan), 1)
    assert np.array_equal(np.asarray(linalg.cholesky(other)), lower)
    assert np.array_equal(np.asarray(linalg.cholesky(a, upper=True)), lower.T)


def test_a_matrix_that_is_not_positive_definite_is_nan_and_others_are_not() -> None:
    a = np.stack([np.eye(3), -np.eye(3), np.diag([1.0, 0.0, 1.0]), 4 * np.eye(3)])
    found = np.asarray(linalg.cholesky(a))
    assert np.array_equal(found[[0, 3]], np.stack([np.eye(3), 2 * np.eye(3)]))
    assert np.isnan(found[1:3][:, np.tri(3, dtype=bool)]).all()
    assert not found[:, ~np.tri(3, dtype=bool)].any()
    assert np.array_equal(np.asarray(ts.jit(linalg.cholesky)(a)), found, equal_nan=True)


@pytest.mark.parametrize("n", SIZES)
def test_triangles_are_solved(n: int) -> None:
    a, b = np.tril(numbers(n, n)) + 3 * np.eye(n), numbers(n, 2)
    x = np.asarray(linalg.solve_triangular(a, b, lower=True))
    assert error_of(a @ x - b, a, x) <= FEW


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_triangle_is_read_as_its_settings_say(is_complex: bool) -> None:
    made = complex_numbers if is_complex else numbers
    dtype = ts.c128 if is_complex else ts.f64
    a, b = made(5, 5) + 4 * np.eye(5), made(2, 5, 3, seed=1)
    settings = [(lower, trans, unit) for lower in (False, True) for trans in ("N", "T", 2) for unit in (False, True)]
    found = ts.jit(
        lambda a, b: [linalg.solve_triangular(a, b, lower=i, trans=j, unit_diagonal=k) for i, j, k in settings]
    )(ts.array(a, dtype), ts.array(b, dtype))
    for x, (lower, trans, unit) in zip(found, settings, strict=True):
        triangle = np.tril(a) if lower else np.triu(a)
        triangle = triangle - np.diag(np.diag(a)) + np.eye(5) if unit else triangle
        matrix = triangle if trans == "N" else triangle.T if trans == "T" else adjoint(triangle)
        np.testing.assert_allclose(np.asarray(x), np.linalg.solve(matrix, b), rtol=1e-11, atol=1e-12)


def test_a_triangle_on_the_other_side_and_a_vector() -> None:
    a, b = np.triu(numbers(4, 4)) + 3 * np.eye(4), numbers(3, 4)
    x = np.asarray(linalg.solve_triangular(a, b, left=False))
    np.testing.assert_allclose(x @ a, b, atol=1e-13)
    np.testing.assert_allclose(a @ np.asarray(linalg.solve_triangular(a, b[0])), b[0], atol=1e-13)
    lower = linalg.cholesky(positive(4))
    np.testing.assert_allclose(positive(4) @ np.asarray(linalg.cholesky_solve(lower, b[0])), b[0], atol=1e-12)


LARGE = pytest.mark.slow


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(0, 0), (0, 3), (3, 5), (5, 3), *(pytest.param(*two, marks=LARGE) for two in ((100, 100), (20, 70)))],
)
def test_lu_multiplies_to_the_rows_in_their_order(rows: int, columns: int) -> None:
    a = numbers(rows, columns)
    packed, order = (np.asarray(part) for part in linalg.lu(a))
    lower, upper = unpacked(packed)
    assert sorted(order) == list(range(rows))
    assert np.abs(lower).max(initial=0.0) <= 1.0
    assert error_of(lower @ upper - a[order], a) <= FEW


@pytest.mark.parametrize("n", SIZES)
def test_solve_is_near_a_system_nearby(n: int) -> None:
    a, b = numbers(n, n), numbers(n, 2)
    x = np.asarray(linalg.solve(a, b))
    assert error_of(a @ x - b, a, x) <= FEW


@pytest.mark.parametrize("name", FAMILIES)
def test_factors_of_matrices_of_every_kind(name: str) -> None:
    a = FAMILIES[name](16)
    packed, order = (np.asarray(part) for part in linalg.lu(a))
    lower, upper = unpacked(packed)
    assert error_of(lower @ upper - a[order], a) <= FEW
    q, r = (np.asarray(part) for part in linalg.qr(a))
    assert error_of(q @ r - a, a) <= FEW
    assert departure(q) <= FEW
    if name != "rank one":
        x = np.asarray(linalg.solve(a, np.ones((16, 1))))
        assert error_of(a @ x - 1.0, a, x) <= FEW


@pytest.mark.parametrize(
    ("rows", "columns"), [(0, 0), (3, 0), (0, 3), (3, 5), (5, 3), pytest.param(80, 70, marks=LARGE)]
)
def test_qr_in_every_mode(rows: int, columns: int) -> None:
    a = numbers(rows, columns)
    for mode in ("reduced", "complete"):
        q, r = (np.asarray(part) for part in linalg.qr(a, mode))
        expected = np.linalg.qr(a, mode) if a.size else (np.eye(rows, q.shape[1]), np.zeros((q.shape[1], columns)))
        assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
        assert np.array_equal(r, np.triu(r))
        assert error_of(q @ r - a, a) <= FEW
        assert departure(q) <= FEW
        # Signs are those of LAPACK.
        np.testing.assert_allclose(r, expected[1], atol=1e-12)
    assert np.array_equal(np.asarray(linalg.qr(a, "r")), r[: min(rows, columns)])


def test_singular_matrices_do_not_raise() -> None:
    ones, zeros = np.ones((2, 2)), np.zeros((2, 2))
    assert not np.isfinite(np.asarray(linalg.inv(ones))).any()
    assert not np.isfinite(np.asarray(linalg.solve(ones, np.ones(2)))).any()
    assert [float(linalg.det(a)) for a in (ones, zeros)] == [0.0, 0.0]
    assert [tuple(map(float, linalg.slogdet(a))) for a in (ones, zeros)] == [(0.0, -np.inf)] * 2
    assert not np.asarray(linalg.lu(zeros).lu).any()


def test_infinite_pivots_have_a_sign() -> None:
    a = np.array([[1.0, 2.0], [-np.inf, 3.0]])
    assert float(linalg.det(a)) == np.inf
    assert tuple(map(float, linalg.slogdet(a))) == (1.0, np.inf)


@pytest.mark.parametrize("n", [0, 2, pytest.param(33, marks=LARGE)])
def test_determinants_are_those_of_numpy(n: int) -> None:
    a = np.stack([numbers(n, n), numbers(n, n, seed=1)])
    np.testing.assert_allclose(np.asarray(linalg.det(a)), np.linalg.det(a), rtol=1e-12)
    sign, logarithm = linalg.slogdet(a)
    np.testing.assert_array_equal(np.asarray(sign), np.linalg.slogdet(a)[0])
    np.testing.assert_allclose(np.asarray(logarithm), np.linalg.slogdet(a)[1], rtol=1e-12)


FUNCTIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "cholesky": (lambda a: (linalg.cholesky(a),), True),
    "lu": (linalg.lu, False),
    "inv": (lambda a: (linalg.inv(a),), False),
    "qr": (linalg.qr, False),
    "eigh": (linalg.eigh, True),
    "svd": (linalg.svd, False),
}


NAMES = [pytest.param(name, marks=[] if name in ("cholesky", "inv") else pytest.mark.slow) for name in FUNCTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_a_matrix_has_the_same_bits_alone_and_in_a_batch(name: str) -> None:
    function, is_positive = FUNCTIONS[name]
    n = {"lu": 70, "qr": 70, "eigh": 40}.get(name, 16)
    a = numbers(3, n, n) * np.array([1.0, 1e-3, 1e5])[:, None, None]
    a = (a @ adjoint(a)) if is_positive else a
    whole = [np.asarray(part) for part in function(a)]
    alone = [np.asarray(part) for part in function(a[1])]
    assert all(np.array_equal(many[1], one) for many, one in zip(whole, alone, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_symbolic_batch_and_f32(name: str) -> None:
    function, is_positive = FUNCTIONS[name]
    x = numbers(6, 16, 16).astype(np.float32)
    x = (x @ adjoint(x)) if is_positive else x

    def run(a: Any) -> Any:
        return tuple(function(a))

    run.__annotations__["a"] = ts.Tensor["B", 16, 16, ts.f32]
    jitted = ts.jit(run)
    found = jitted(x)
    assert all(
        np.array_equal(np.asarray(a), np.asarray(b))
        for a, b in zip(jitted(x[:2]), [part[:2] for part in found], strict=True)
    )
    assert np.asarray(found[0]).dtype == np.float32
    assert jitted(x[:0])[0].shape[0] == 0


def test_leading_dims_broadcast_and_narrow_floats_are_rounded_once() -> None:
    a, b = numbers(2, 1, 3, 3), numbers(4, 3, 2)
    np.testing.assert_allclose(np.asarray(linalg.solve(a, b)), np.linalg.solve(a, b), atol=1e-12)
    narrow = (np.eye(3) * 3.0).astype(ml_dtypes.bfloat16)
    found = linalg.inv(narrow)
    assert found.dtype is ts.bf16
    assert np.array_equal(
        np.asarray(found), np.asarray(linalg.inv(np.eye(3, dtype=np.float32) * 3)).astype(narrow.dtype)
    )
    for named in (linalg.svd(a=narrow).S, linalg.cholesky(a=narrow), linalg.solve(narrow, b=narrow)):
        assert named.dtype is ts.bf16
    assert linalg.det(np.eye(2, dtype=np.int16)).dtype is ts.f32
    assert linalg.det(np.eye(2, dtype=np.int64)).dtype is ts.f64


def test_what_is_refused() -> None:
    with pytest.raises(ShapeError, match="takes `a` as matrices, in its last two dims"):
        linalg.inv(np.ones(3))
    with pytest.raises(ShapeError, match="square matrices, got 2 rows and 3 columns"):
        linalg.solve(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match="square") as caught:
        linalg.det(np.ones((2, 3), np.float32))
    assert "give it as many rows as columns" in str(caught.value)
    with pytest.raises(ShapeError, match="square") as caught:
        linalg.inv(np.ones((2, 3), np.float32))
    assert "`tessera.linalg.pinv`" in str(caught.value)
    with pytest.raises(ShapeError, match="as many rows as `a`, got 2 and 3") as caught:
        linalg.solve(np.eye(3), np.ones((2, 3)))
    assert "write `b[..., None]`" in str(caught.value)
    for call in (linalg.solve, linalg.solve_triangular, linalg.lstsq):
        with pytest.raises(ShapeError, match="as many rows as `a`, got 4 and 3") as caught:
            call(np.eye(3), np.ones(4))
        assert "and `b` is [4]" in str(caught.value)
        assert "give `b` 3 rows" in str(caught.value)
    with pytest.raises(ShapeError, match="as many columns as `a`, got 4 and 3") as caught:
        linalg.solve_triangular(np.eye(3), np.ones((2, 4)), left=False)
    assert "and `b` is [2, 4]" in str(caught.value)
    assert "give `b` 3 columns" in str(caught.value)
    with pytest.raises(ArgumentError, match="`mode` as one of 'reduced', 'complete', 'r'"):
        linalg.qr(np.eye(2), "economic")
    with pytest.raises(ShapeError, match="takes `b` as a vector or as matrices"):
        linalg.solve(np.eye(2), ts.array(1.0, ts.f64))


def anything(function: Any) -> Any:
    """The function, of which a checker knows nothing."""
    return function


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: linalg.cholesky(a, a), "wrong arguments of `cholesky`"),
        (lambda a: linalg.inv(x=a), "unexpected argument `x` of `inv`"),
        (lambda a: anything(linalg.multi_dot)(a, a), "wrong arguments of `multi_dot`"),
        (lambda a: linalg.multi_dot([a]), "a list of at least two matrices"),
        (lambda a: linalg.svd(a, a), "`full_matrices`"),
        (lambda a: linalg.solve_triangular(a, a, lower=[]), "`lower`"),
        (lambda a: linalg.matrix_norm(a, a), "`ord`"),
        (lambda a: anything(ts.ops.fft)(a, axis="last"), "`axis`"),
        (lambda a: ts.xp.fft.fftfreq(4, d=0), "`d` other than 0"),
        (lambda a: ts.nn.mse_loss(a, a, reduction=a), "no reduction"),
    ],
)
def test_wrong_arguments_are_explained(call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(np.eye(2))
    assert words in str(caught.value)

    def symbolic(a: Any) -> Any:
        return linalg.cholesky(a)

    symbolic.__annotations__["a"] = ts.Tensor["N", "N", ts.f32]
    with pytest.raises(ShapeError, match="matrices of known sizes"):
        ts.jit(symbolic)(np.eye(3, dtype=np.float32))
