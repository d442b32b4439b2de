"""QR factors by Householder reflections, which blocks of columns apply together as one product.

A reflection is `1 - tau v v^H`, and k of them are `1 - V T V^H` (the compact WY form), with a triangle
`T = (1 + diag(tau) S)^-1 diag(tau)`, `S` the part of `V^H V` above its diagonal. So a block of columns is reflected by
three matmuls. The factorization halves the columns as LU does, and a leaf goes column by column. `Q` is made of all
reflections together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera.api.control import fori_loop
from tessera.api.custom import custom_jvp
from tessera.diagnostics.codes import DifferentiationError
from tessera.frontend.functions import public as ops
from tessera.linalg.elimination import inverse_triangle
from tessera.linalg.operands import (
    Program,
    adjoint,
    as_batch,
    check_choice,
    dtype_of,
    eye_like,
    index_of,
    leaf_size,
    like_batch,
    narrow_floats,
    split_size,
    take_matrix,
)
from tessera.linalg.triangular import flip_both, substitute


class QRFactors(NamedTuple):
    """An orthogonal matrix, and an upper triangular one."""

    Q: Any
    R: Any


def reflect(x: Any, at: Any, index: Any) -> tuple[Any, Any, Any]:
    """The reflection of [B, m] vectors that leaves one number of the elements from `at` on: (v, tau, that number).

    `v` is 1 at `at` and 0 before it; the number is real, and of the sign opposite to that of the element there. Where
    the elements after it are zero already, `tau` is 0.
    """
    x = ops.where(index >= at, x, 0.0)
    alpha = ops.take(x, at, 1)[:, None]
    largest = ops.max(ops.abs(x), -1, keepdims=True)
    scale = ops.where(largest > 0, largest, 1.0)
    size = ops.abs(x / scale)
    norm = scale * ops.sqrt(ops.sum(size * size, -1, keepdims=True))
    rest = ops.max(ops.abs(ops.where(index > at, x, 0.0)), -1, keepdims=True)
    is_done = (rest == 0) & (alpha == ops.real(alpha))
    beta = ops.where(is_done, ops.real(alpha), ops.where(ops.real(alpha) > 0, -norm, norm))
    tau = ops.where(is_done, 0.0, (beta - alpha) / ops.where(is_done, 1.0, beta))
    v = ops.where(index > at, x / ops.where(is_done, 1.0, alpha - beta), ops.where(index == at, 1.0, 0.0))
    return ops.where(is_done & (index > at), 0.0, v), tau, beta


def join_reflections(v: Any, tau: Any) -> Any:
    """The triangle `T` of `1 - V T V^H`, for [B, m, k] vectors and [B, k] factors: their product."""
    above = ops.triu(adjoint(v) @ v, 1) * tau[:, :, None]
    right = tau[:, :, None] * ops.eye(tau.shape[-1], dtype=dtype_of(tau))
    return ops.flip(substitute(flip_both(above), ops.flip(right, 1), unit=True), 1)


def factor_qr(a: Any) -> tuple[Any, Any]:
    """`R` on and above the diagonal of [B, m, n], below it the vectors of the reflections; and their factors."""
    size = min(a.shape[-2:])
    if size == 0:
        return a, ops.zeros((a.shape[0], 0), dtype_of(a))
    return _factor(a, leaf_size(size))


def vectors_of(packed: Any, count: int) -> Any:
    """The vectors of the first reflections: ones on the diagonal, and zeros above."""
    return ops.tril(packed[:, :, :count], -1) + ops.eye(packed.shape[1], count, dtype=dtype_of(packed))


def _factor(a: Any, leaf: int) -> tuple[Any, Any]:
    rows, columns = a.shape[-2:]
    size = min(rows, columns)
    if size <= leaf and columns <= leaf:
        return _factor_columns(a)
    half = split_size(size, leaf) if size > leaf else size
    left, tau = _factor(a[:, :, :half], leaf)
    v = vectors_of(left, half)
    right = a[:, :, half:]
    right = right - v @ (adjoint(join_reflections(v, tau)) @ (adjoint(v) @ right))
    if half == rows:
        return ops.concat([left, right], 2), tau
    below, more = _factor(right[:, half:], leaf)
    right = ops.concat([right[:, :half], below], 1)
    return ops.concat([left, right], 2), ops.concat([tau, more], 1)


def _factor_columns(a: Any) -> tuple[Any, Any]:
    rows, columns = index_of(a.shape[1]), index_of(a.shape[2])
    size = min(a.shape[1], a.shape[2])

    def factor_column(j: Any, state: Any) -> Any:
        x, taus = state
        column = ops.take(x, j, 2)
        v, tau, beta = reflect(column, j, rows)
        products = ops.conj(tau)[:, :, None] * (ops.conj(v)[:, None, :] @ x)
        x = x - v[:, :, None] * ops.where(columns > j, products, 0.0)
        done = ops.where(rows > j, v, ops.where(rows == j, beta, column))
        return ops.where(columns == j, done[:, :, None], x), taus.at[:, j].set(tau[:, 0])

    return fori_loop(0, size, factor_column, (a, ops.zeros((a.shape[0], size), dtype_of(a))))


def apply_reflections(v: Any, tau: Any, x: Any) -> Any:
    """The product of all reflections with [B, m, k]."""
    return x - v @ (join_reflections(v, tau) @ (adjoint(v) @ x))


def orthogonal_columns(packed: Any, tau: Any, count: int) -> Any:
    """The first columns of `Q`."""
    rows, size = packed.shape[1], tau.shape[-1]
    v = vectors_of(packed, size)
    start = adjoint(v[:, :count])
    if count > rows:
        count = rows
    return ops.eye(rows, count, dtype=dtype_of(packed)) - v @ (join_reflections(v, tau) @ start)


def _qr(a: Any, *, mode: str) -> Any:
    batch = as_batch(a)
    rows, columns = a.shape[-2:]
    size = min(rows, columns)
    packed, tau = factor_qr(batch)
    if mode == "r":
        return (like_batch(ops.triu(packed[:, :size]), a),)
    count = rows if mode == "complete" else size
    q = orthogonal_columns(packed, tau, count)
    return like_batch(q, a), like_batch(ops.triu(packed[:, :count]), a)


_qr_program = Program(_qr)


def _factor_plain(a: Any, mode: str) -> Any:
    return _qr_program(a, mode=mode)


factor_plain = custom_jvp(_factor_plain, nondiff_argnums=1)
"""The factors of matrices in any leading dims, with their derivative."""


@factor_plain.defjvp
def _qr_jvp(mode: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    rows, columns = a.shape[-2:]
    if rows < columns or (mode == "complete" and rows > columns):
        raise DifferentiationError(
            f"`qr` has a derivative for matrices with at least as many rows as columns and `mode='reduced'`, got "
            f"{rows} by {columns} and `mode={mode!r}`",
            fix="factor the first columns, or the transpose",
        )
    q, r = factor_plain(a, "reduced")
    inverse = inverse_triangle(r)
    scaled = da @ inverse
    inner = adjoint(q) @ scaled
    below = ops.tril(inner, -1)
    # What is left of a phase belongs to `Q`: the diagonal of `R` is real.
    skew = below - adjoint(below) + eye_like(r) * (inner - ops.real(inner))
    dq = q @ (skew - inner) + scaled
    dr = (inner - skew) @ r
    return ((r,), (dr,)) if mode == "r" else ((q, r), (dq, dr))


@narrow_floats(1)
def qr(a: Any, mode: str = "reduced") -> Any:
    """The factors `(Q, R)` of [..., M, N], `a = Q R`: orthonormal columns, and an upper triangle.

    With `mode="reduced"` `Q` is [..., M, K] and `R` [..., K, N] for K = min(M, N), with `"complete"` [..., M, M] and
    [..., M, N], and `"r"` gives `R` alone. Signs are those of LAPACK: a column's diagonal of `R` has the sign opposite
    to the element that it was made of, or of that element where nothing is below it. The derivative is that of M >= N
    and the reduced form, where `R` is not singular.

    `Q` is orthogonal within a few `sqrt(N) eps`, and `Q R` within a few `N eps |a|` of `a`, by columns.

    >>> ts.linalg.qr(ts.array([[3.0, 1.0], [4.0, 2.0]])).R
    Tensor([2, 2] f32, [[-5, -2.2], [0, 0.4]])
    """
    check_choice("qr", "mode", mode, ("reduced", "complete", "r"))
    made = factor_plain(take_matrix("qr", a), mode)
    return made[0] if mode == "r" else QRFactors(*made)
