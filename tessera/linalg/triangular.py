"""Triangular systems and Cholesky factors.

Both halve the matrix until a leaf is left, and what couples the halves is a matmul: of n^3 operations all but those of
the leaves run at its speed. A leaf goes row by row, where each row is a product of a vector with the rows before it.
Diagonal blocks are solved and not inverted, so the solution is that of a matrix near to the given one.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.api.control import fori_loop, scan
from tessera.api.custom import custom_jvp
from tessera.frontend.arguments import check_bool
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import (
    Program,
    adjoint,
    as_batch,
    broadcast_batch,
    check_choice,
    check_matrix,
    check_rows,
    check_square,
    diagonal,
    dtype_of,
    eye_like,
    index_of,
    leaf_size,
    like_batch,
    narrow_floats,
    split_size,
    take_square,
    take_tensors,
    transpose,
)


def substitute(lower: Any, b: Any, *, unit: bool = False) -> Any:
    """`lower^-1 b` for [B, n, n] and [B, n, m]; reads the lower triangle alone, with `unit` without its diagonal."""
    size = lower.shape[-1]
    return _substitute(lower, b, unit, leaf_size(size)) if size else b


def _substitute(lower: Any, b: Any, unit: bool, leaf: int) -> Any:
    size = lower.shape[-1]
    if size <= leaf:
        return _substitute_rows(lower, b, unit)
    half = split_size(size, leaf)
    first = _substitute(lower[:, :half, :half], b[:, :half], unit, leaf)
    left = b[:, half:] - lower[:, half:, :half] @ first
    return ops.concat([first, _substitute(lower[:, half:, half:], left, unit, leaf)], 1)


def _substitute_rows(lower: Any, b: Any, unit: bool) -> Any:
    index = index_of(lower.shape[-1])

    def solve_row(left: Any, i: Any) -> Any:
        column, row = ops.take(lower, i, 2), ops.take(left, i, 1)
        row = row if unit else row / ops.take(column, i, 1)[:, None]
        # What was solved is not read again: all rows are updated, in one pass.
        return left - ops.where(index > i, column, 0.0)[:, :, None] * row[:, None, :], row

    return ops.swapaxes(scan(solve_row, b, index)[1], 0, 1)


def invert_lower(lower: Any, *, unit: bool = False) -> Any:
    """The inverse of [B, n, n] lower triangles."""
    identity = ops.eye(lower.shape[-1], dtype=dtype_of(lower))
    return substitute(lower, ops.broadcast_to(identity, tuple(lower.shape)), unit=unit)


def flip_both(a: Any) -> Any:
    """Rows and columns in reverse order, which makes a lower triangle of an upper one."""
    return ops.flip(a, (-2, -1))


def _solve(a: Any, b: Any, *, lower: bool, unit: bool) -> Any:
    a, b = broadcast_batch(a, b)
    x, y = as_batch(a), as_batch(b)
    solved = substitute(x, y, unit=unit) if lower else ops.flip(substitute(flip_both(x), ops.flip(y, 1), unit=unit), 1)
    return like_batch(solved, b)


_solve_program = Program(_solve)


def _solve_plain(a: Any, b: Any, lower: bool, unit: bool) -> Any:
    return _solve_program(a, b, lower=lower, unit=unit)


solve_triangle = custom_jvp(_solve_plain, nondiff_argnums=(2, 3))
"""`a^-1 b` for triangles in any leading dims, with its derivative."""


@solve_triangle.defjvp
def _solve_jvp(lower: bool, unit: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    x = solve_triangle(a, b, lower, unit)
    identity = ops.broadcast_to(ops.eye(a.shape[-1], dtype=dtype_of(a)), tuple(a.shape))
    inverse = solve_triangle(a, identity, lower, unit)
    triangle = (ops.tril if lower else ops.triu)(da, (-1 if lower else 1) if unit else 0)
    return x, inverse @ (db - triangle @ x)


@narrow_floats(2)
def solve_triangular(
    a: Any, b: Any, *, lower: bool = False, trans: Any = 0, unit_diagonal: bool = False, left: bool = True
) -> Any:
    """The solution of `op(a) x = b`, or with `left=False` of `x op(a) = b`, for a triangular `a`.

    `a` is [..., N, N], of which the triangle that `lower` says is read alone, and with `unit_diagonal` without its
    diagonal, which counts as ones. `trans` is 0 or "N" for `a`, 1 or "T" for its transpose, 2 or "C" for its conjugate
    transpose. `b` is [..., N, K], or a vector [N]; leading dims broadcast. A zero on the diagonal divides: inf or NaN.

    Each column of the result solves a system whose triangle is within `n eps |a|` of `a`, element by element.

    >>> ts.linalg.solve_triangular(ts.array([[2.0, 0.0], [1.0, 4.0]]), ts.array([2.0, 9.0]), lower=True)
    Tensor([2] f32, [1, 2])
    """
    op = "solve_triangular"
    a, b = take_tensors(op, a, b)
    check_matrix(op, a)
    check_square(op, a)
    check_choice(op, "trans", trans, tuple(_TRANSPOSES))
    lower, left = check_bool(op, "lower", lower), check_bool(op, "left", left)
    unit_diagonal = check_bool(op, "unit_diagonal", unit_diagonal)
    kind = _TRANSPOSES[trans]
    if kind:
        a, lower = (adjoint(a) if kind == 2 else transpose(a)), not lower
    is_vector = len(b.shape) == 1
    if not left:
        # x a = b is a^T x^T = b^T.
        a, lower, b = transpose(a), not lower, b if is_vector else transpose(b)
    b = b[:, None] if is_vector else b
    check_rows(op, a, b, is_vector=is_vector, is_transposed=not left)
    x = solve_triangle(a, b, lower, unit_diagonal)
    return x[..., 0] if is_vector else x if left else transpose(x)


_TRANSPOSES: dict[Any, int] = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


# Cholesky.


def factor_cholesky(upper: Any) -> Any:
    """The upper factor `u` of [B, n, n], `u^H u`; reads the upper triangle. NaN where a pivot is not positive."""
    return _factor(upper, leaf_size(upper.shape[-1])) if upper.shape[-1] else upper


def _factor(a: Any, leaf: int) -> Any:
    size = a.shape[-1]
    if size <= leaf:
        return _factor_rows(a)
    half = split_size(size, leaf)
    first = _factor(a[:, :half, :half], leaf)
    across = _substitute(adjoint(first), a[:, :half, half:], False, leaf)
    second = _factor(a[:, half:, half:] - adjoint(across) @ across, leaf)
    below = ops.zeros((a.shape[0], size - half, half), dtype_of(a))
    return ops.concat([ops.concat([first, across], 2), ops.concat([below, second], 2)], 1)


def _factor_rows(a: Any) -> Any:
    index = index_of(a.shape[-1])

    def factor_row(i: Any, u: Any) -> Any:
        known = ops.conj(ops.take(u, i, 2))[:, None, :] @ u
        row = ops.take(a, i, 1) - known[:, 0, :]
        pivot = ops.real(ops.take(row, i, 1))[:, None]
        root = ops.sqrt(ops.where(pivot > 0, pivot, math.nan))
        return u.at[:, i].set(ops.where(index > i, row / root, ops.where(index == i, root, 0.0)))

    return fori_loop(0, a.shape[-1], factor_row, ops.zeros_like(a))


def _cholesky(a: Any) -> Any:
    lower = adjoint(factor_cholesky(adjoint(as_batch(a))))
    is_positive = ops.all(ops.real(diagonal(lower)) > 0, -1)[:, None, None]
    return like_batch(ops.where(is_positive, lower, ops.tril(ops.full_like(lower, math.nan))), a)


_cholesky_program = Program(_cholesky)


@custom_jvp
def factor_lower(a: Any) -> Any:
    """The lower factor of matrices in any leading dims, with its derivative."""
    return _cholesky_program(a)


@factor_lower.defjvp
def _cholesky_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    lower = factor_lower(a)
    inverse = solve_triangle(lower, ops.broadcast_to(eye_like(a), tuple(a.shape)), True, False)
    inner = inverse @ ((da + adjoint(da)) * 0.5) @ adjoint(inverse)
    return lower, lower @ (ops.tril(inner, -1) + inner * (eye_like(a) * 0.5))


@narrow_floats(1)
def cholesky(a: Any, *, upper: bool = False) -> Any:
    """The factor `L` of positive definite matrices, `a = L L^H`: lower triangular, its diagonal positive.

    With `upper` its conjugate transpose. `a` is [..., N, N]; its lower triangle is read alone, and its derivative is
    that of `(a + a^H) / 2`. A matrix that is not positive definite, or has NaN, gives NaN in the whole triangle,
    eagerly and inside `jit` alike; other matrices of the batch are not touched by it.

    `L L^H` differs by at most `(n + 1) eps |L| |L^H|` from `a`, element by element.

    >>> ts.linalg.cholesky(ts.array([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([2, 2] f32, [[2, 0], [1, 2]])
    """
    upper, lower = check_bool("cholesky", "upper", upper), factor_lower(take_square("cholesky", a))
    return adjoint(lower) if upper else lower


@narrow_floats(2)
def cholesky_solve(factor: Any, b: Any, *, upper: bool = False) -> Any:
    """The solution of `a x = b`, where `factor` is what `cholesky` gives for `a`, with the same `upper`.

    `factor` is [..., N, N], `b` is [..., N, K] or a vector [N]; leading dims broadcast.

    >>> a, b = ts.array([[4.0, 2.0], [2.0, 5.0]]), ts.array([8.0, 12.0])
    >>> ts.linalg.cholesky_solve(ts.linalg.cholesky(a), b)
    Tensor([2] f32, [1, 2])
    """
    upper = check_bool("cholesky_solve", "upper", upper)
    first = solve_triangular(factor, b, lower=not upper, trans=2 if upper else 0)
    return solve_triangular(factor, first, lower=not upper, trans=0 if upper else 2)
