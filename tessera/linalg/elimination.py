"""LU factors with partial pivoting, and what is made of them: solutions, inverses and determinants.

The factorization halves the columns: the left half is factored, its permutation and its triangle are applied to the
right half, and a matmul takes their product off what is left. A leaf goes column by column, and finds the element of
largest magnitude in each; of equal ones the first is the pivot. A column without one is passed over, as LAPACK does:
the factors of a singular matrix are numbers, and solutions, which divide by its zero, hold infinities and NaNs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tessera.api.control import fori_loop
from tessera.api.custom import custom_jvp
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import (
    Program,
    as_batch,
    broadcast_batch,
    check_rows,
    diagonal,
    dtype_of,
    eye_like,
    index_of,
    leaf_size,
    like_batch,
    narrow_floats,
    pad_matrix,
    split_size,
    take_matrix,
    take_rows,
    take_square,
    take_tensors,
)
from tessera.linalg.triangular import flip_both, solve_triangle, substitute
from tessera.types.dtype import i64

LEAF = 16
"""Columns that are eliminated one after the other: each takes a pass over all of them."""


class LUFactors(NamedTuple):
    """`a[..., permutation, :] = L U`, both in one matrix: `U` on the diagonal and above it, the rest of `L` below."""

    lu: Any
    permutation: Any


class Slogdet(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


def factor_lu(a: Any) -> tuple[Any, Any]:
    """The factors of [B, m, n] in one matrix, and the rows of `a` in their order, [B, m]."""
    rows, columns = a.shape[-2:]
    if rows == 0 or columns == 0:
        return a, ops.broadcast_to(index_of(rows), (a.shape[0], rows))
    return _factor(a, leaf_size(min(rows, columns), LEAF))


def _factor(a: Any, leaf: int) -> tuple[Any, Any]:
    rows, columns = a.shape[-2:]
    size = min(rows, columns)
    if size <= leaf and columns <= leaf:
        return _factor_columns(a)
    half = split_size(size, leaf) if size > leaf else size
    left, order = _factor(a[:, :, :half], leaf)
    right = take_rows(a[:, :, half:], order)
    above = substitute(left[:, :half], right[:, :half], unit=True)
    if half == rows:
        return ops.concat([left, above], 2), order
    second, moved = _factor(right[:, half:] - left[:, half:] @ above, leaf)
    below = ops.concat([take_rows(left[:, half:], moved), second], 2)
    order = ops.concat([order[:, :half], ops.take_along_axis(order[:, half:], moved, 1)], 1)
    return ops.concat([ops.concat([left[:, :half], above], 2), below], 1), order


def _factor_columns(a: Any) -> tuple[Any, Any]:
    rows, columns = index_of(a.shape[1]), index_of(a.shape[2])

    def factor_column(j: Any, state: Any) -> Any:
        x, order = state
        # A NaN is the pivot of its column: what depends on it is NaN too.
        largest = ops.argmax(ops.where(rows >= j, ops.abs(ops.take(x, j, 2)), -1.0), 1)[:, None]
        source = ops.where(rows == j, largest, ops.where(rows == largest, j, rows))
        row = take_rows(x, largest)
        x = ops.where((rows == j)[:, None], row, ops.where((rows == largest)[:, :, None], x[:, j][:, None], x))
        column, pivot = ops.take(x, j, 2), ops.take(row, j, 2)
        # Below a pivot of zero is nothing but zeros, which stay: so says LAPACK too.
        factors = ops.where(rows > j, column / ops.where(pivot == 0, 1.0, pivot), 0.0)[:, :, None]
        x = x - factors * ops.where(columns > j, row, 0.0)
        x = ops.where((columns == j) & (rows > j)[:, None], factors, x)
        return x, ops.take_along_axis(order, source, 1)

    order = ops.broadcast_to(rows, (a.shape[0], a.shape[1]))
    return fori_loop(0, min(a.shape[1], a.shape[2]), factor_column, (a, order))


def _lu(a: Any) -> tuple[Any, Any]:
    packed, order = factor_lu(as_batch(a))
    return like_batch(packed, a), like_batch(order, a, 1)


_lu_program = Program(_lu)


@custom_jvp
def factor_plain(a: Any) -> Any:
    """The packed factors and the order of rows of matrices in any leading dims, with their derivative."""
    return _lu_program(a)


@factor_plain.defjvp
def _lu_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    packed, order = factor_plain(a)
    rows, columns = a.shape[-2:]
    if rows == 0 or columns == 0:
        return (packed, order), (da, None)
    size = min(rows, columns)
    # Both triangles made square with ones on the diagonal, as LAPACK's packed form has them.
    lower = pad_matrix(ops.tril(packed, -1)[..., :size], rows, rows) + ops.eye(rows, dtype=dtype_of(a))
    upper = pad_matrix(ops.triu(packed)[..., :size, :], columns, columns)
    if columns > size:
        upper = upper + ops.where(index_of(columns) >= size, eye_like(upper), 0.0)
    index = ops.broadcast_to(order[..., None], tuple(a.shape))
    inner = inverse_triangle(lower, True, True) @ ops.take_along_axis(da, index, -2) @ inverse_triangle(upper)
    return (packed, order), (ops.tril(lower @ ops.tril(inner, -1), -1) + ops.triu(ops.triu(inner) @ upper), None)


def inverse_triangle(a: Any, lower: bool = False, unit: bool = False) -> Any:
    """The inverse of triangles in any leading dims."""
    return solve_triangle(a, ops.broadcast_to(eye_like(a), tuple(a.shape)), lower, unit)


@narrow_floats(1)
def lu(a: Any) -> LUFactors:
    """The LU factors with partial pivoting of [..., M, N]: `(lu, permutation)`, with `a[permutation] = L U`.

    `lu` is [..., M, N]: `U` on its diagonal and above, and below it `L`, whose diagonal is of ones and not stored.
    `permutation` is [..., M], the rows of `a` in their new order. Every element of `L` is at most 1 in magnitude, and
    `U` of a singular matrix has a zero on its diagonal.

    `L U` differs from the rows of `a` by at most `n eps |L| |U|`, element by element.

    >>> ts.linalg.lu(ts.array([[1.0, 2.0], [4.0, 4.0]]))
    LUFactors(lu=Tensor([2, 2] f32, [[4, 4],
                                     [0.25, 1]]), permutation=Tensor([2] i64, [1, 0]))
    """
    return LUFactors(*factor_plain(take_matrix("lu", a)))


# Systems.


def _solve_batch(a: Any, b: Any) -> Any:
    packed, order = factor_lu(a)
    first = substitute(packed, take_rows(b, order), unit=True)
    return ops.flip(substitute(flip_both(packed), ops.flip(first, 1)), 1)


def _solve(a: Any, b: Any) -> Any:
    a, b = broadcast_batch(a, b)
    return like_batch(_solve_batch(as_batch(a), as_batch(b)), b)


def _invert(a: Any) -> Any:
    batch = as_batch(a)
    return like_batch(_solve_batch(batch, ops.broadcast_to(eye_like(a), tuple(batch.shape))), a)


_solve_program, _invert_program = Program(_solve), Program(_invert)


@custom_jvp
def solve_matrix(a: Any, b: Any) -> Any:
    """`a^-1 b` for matrices in any leading dims, with its derivative."""
    return _solve_program(a, b)


@custom_jvp
def invert_matrix(a: Any) -> Any:
    """`a^-1` for matrices in any leading dims, with its derivative."""
    return _invert_program(a)


@solve_matrix.defjvp
def _solve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    x = solve_matrix(a, b)
    return x, invert_matrix(a) @ (db - da @ x)


@invert_matrix.defjvp
def _invert_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    inverse = invert_matrix(primals[0])
    return inverse, -(inverse @ tangents[0] @ inverse)


@narrow_floats(2)
def solve(a: Any, b: Any) -> Any:
    """The solution of `a x = b` for square matrices [..., N, N], by LU with partial pivoting.

    `b` is [..., N, K], or a vector [N] where it has one dim, as in NumPy 2; leading dims broadcast. A singular matrix
    gives infinities and NaNs; nothing raises. The derivative multiplies with the inverse.

    Each column of `x` solves `(a + e) x = b` with `|e| <= 3 n eps P |L| |U|`, where `P` orders the rows: in practice
    a residual of a few `n eps |a| |x|`.

    >>> ts.linalg.solve(ts.array([[3.0, 1.0], [1.0, 2.0]]), ts.array([9.0, 8.0]))
    Tensor([2] f32, [2, 3])
    """
    a, b = take_tensors("solve", a, b)
    a = take_square("solve", a)
    is_vector = len(b.shape) == 1
    b = b[:, None] if is_vector else b
    check_rows("solve", a, b, is_vector=is_vector)
    x = solve_matrix(a, b)
    return x[..., 0] if is_vector else x


@narrow_floats(1)
def inv(a: Any) -> Any:
    """The inverse of square matrices [..., N, N]; that of a singular one has infinities and NaNs.

    Where it is multiplied with something, `solve` is quicker and more accurate. `a x - 1` is within a few
    `n eps |a| |x|` of zero.

    >>> ts.linalg.inv(ts.array([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([2, 2] f32, [[0.5, 0], [0, 0.25]])
    """
    return invert_matrix(take_square("inv", a))


# Determinants.


def _parity(order: Any) -> Any:
    """1 for even permutations, and -1 for odd ones: by the number of pairs that are out of order."""
    index = index_of(order.shape[-1])
    crossed = (order[..., :, None] > order[..., None, :]) & (index[:, None] < index)
    return 1 - 2 * ops.mod(ops.sum(ops.astype(crossed, i64), (-2, -1)), 2)


def _det(a: Any) -> Any:
    packed, order = _lu(a)
    return ops.prod(diagonal(packed), -1) * ops.astype(_parity(order), dtype_of(packed))


def _slogdet(a: Any) -> tuple[Any, Any]:
    packed, order = _lu(a)
    pivots = diagonal(packed)
    size = ops.abs(pivots)
    # Of a zero the sign is zero, and what follows a zero pivot is no number.
    is_singular = ops.any(size == 0, -1)
    shares = pivots / ops.where(size == 0, 1.0, size)
    if dtype_of(packed).is_float:
        shares = ops.where(ops.isinf(size), ops.copysign(1.0, pivots), shares)
    phases = ops.prod(shares, -1) * ops.astype(_parity(order), dtype_of(packed))
    logarithm = ops.sum(ops.log(size), -1)
    return ops.where(is_singular, 0.0, phases), ops.where(is_singular, -math.inf, logarithm)


_det_program, _slogdet_program = Program(_det), Program(_slogdet)


@custom_jvp
def det_plain(a: Any) -> Any:
    """The determinant, with its derivative."""
    return _det_program(a)


@custom_jvp
def slogdet_plain(a: Any) -> Any:
    """The sign and the logarithm of the determinant, with their derivative."""
    return _slogdet_program(a)


def _trace_of(x: Any, y: Any) -> Any:
    """The trace of `x y`."""
    return ops.sum(x * ops.swapaxes(y, -1, -2), (-2, -1))


@det_plain.defjvp
def _det_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    value = det_plain(primals[0])
    return value, value * _trace_of(invert_matrix(primals[0]), tangents[0])


@slogdet_plain.defjvp
def _slogdet_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    value = slogdet_plain(primals[0])
    change = _trace_of(invert_matrix(primals[0]), tangents[0])
    return value, (value[0] * (change - ops.real(change)), ops.real(change))


@narrow_floats(1)
def det(a: Any) -> Any:
    """The determinant of square matrices [..., N, N], the product of LU's pivots; 1 for N = 0.

    It overflows where `slogdet` does not. The derivative needs the inverse: of a singular matrix it is NaN.

    >>> ts.linalg.det(ts.array([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([] f32, -2)
    """
    return det_plain(take_square("det", a))


@narrow_floats(1)
def slogdet(a: Any) -> Slogdet:
    """The sign of the determinant of [..., N, N], and the logarithm of its magnitude; of a singular one 0 and -inf.

    >>> ts.linalg.slogdet(ts.array([[0.0, 2.0], [2.0, 0.0]])).sign
    Tensor([] f32, -1)
    """
    return Slogdet(*slogdet_plain(take_square("slogdet", a)))
