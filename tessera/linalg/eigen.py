"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices: tridiagonal ones, in parts until these are small.

The eigenvalues of a small part come out one after the other, from the top: a sweep of rotations with Wilkinson's shift
makes its first element off the diagonal small, cubically so near the end, and on average fewer than two sweeps are
needed for each (implicit QL). The rotations are numbers alone; the eigenvectors follow row by row, from a matrix whose
rows are the columns of `Q`. Parts are merged by divide and conquer.

Matrices of a batch go through the same loops with shifts and ranges of their own: where one has no rotation it is
passed through unchanged, so what it becomes does not depend on the others.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tessera.api.control import scan, while_loop
from tessera.api.custom import custom_jvp
from tessera.frontend.functions import public as ops
from tessera.linalg.divide import merge
from tessera.linalg.operands import (
    Program,
    adjoint,
    as_batch,
    diagonal,
    dtype_of,
    epsilon_of,
    eye_like,
    index_of,
    like_batch,
    narrow_floats,
    scale_of,
    take_rows,
    take_square,
)
from tessera.linalg.tridiagonal import apply_panels, reduce_to_tridiagonal
from tessera.types.dtype import i64

SWEEPS = 30
"""Sweeps for each eigenvalue after which the loop ends; LAPACK reports a failure after as many."""


LEAF = 16
"""Rows up to which a matrix, or a part of one, goes through QL; larger ones are divided."""


class Eigh(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


def _find_blocks(d: Any, e: Any, index: Any, eps: float) -> tuple[Any, Any, Any]:
    """`e` with zeros for what is negligible, and of each matrix the first other block: its first and last row."""
    size = d.shape[-1]
    after = ops.concat([d[:, 1:], d[:, -1:]], 1)
    # The matrix is scaled to 1: what is below eps^2 is noise even where the diagonal vanishes.
    e = ops.where(ops.abs(e) <= eps * (ops.abs(d) + ops.abs(after)) + eps * eps, 0.0, e)
    first = ops.min(ops.where(e != 0, index, size - 1), -1, keepdims=True)
    last = ops.min(ops.where((e == 0) & (index >= first), index, size - 1), -1, keepdims=True)
    return e, first, last


def _at(x: Any, index: Any) -> Any:
    return ops.take_along_axis(x, index, 1)


def _start_sweep(d: Any, e: Any, first: Any, last: Any) -> Any:
    """The last diagonal element less Wilkinson's shift, by which a sweep starts."""
    top, beside = _at(d, first), _at(e, first)
    is_open = beside != 0
    ratio = (_at(d, ops.minimum(first + 1, d.shape[-1] - 1)) - top) / (2.0 * ops.where(is_open, beside, 1.0))
    length = ops.copysign(ops.hypot(ratio, 1.0), ratio)
    return _at(d, last) - top + beside / (ratio + length)


def _rotate(d: Any, e: Any, first: Any, last: Any) -> tuple[Any, Any, Any, Any]:
    """One sweep: the new tridiagonal matrix, and the cosines and sines of its rotations, [n - 1, B]."""
    size, index = d.shape[-1], index_of(d.shape[-1])
    start = _start_sweep(d, e, first, last)[:, 0]
    low, high = first[:, 0], last[:, 0]

    def rotate(state: Any, row: Any) -> Any:
        g, c, s, p = state
        i, upper, lower, beside = row
        is_inside = (i >= low) & (i < high)
        # A sweep starts at the last row of its block: below it the state is as it was made.
        f, b = s * beside, c * beside
        length = ops.hypot(f, g)
        divisor = ops.where(length == 0, 1.0, length)
        new_s, new_c = ops.where(length == 0, 0.0, f / divisor), ops.where(length == 0, 1.0, g / divisor)
        base = lower - p
        mixed = (upper - base) * new_s + 2.0 * new_c * b
        new_p = new_s * mixed
        state = (
            ops.where(is_inside, new_c * mixed - b, g),
            ops.where(is_inside, new_c, c),
            ops.where(is_inside, new_s, s),
            ops.where(is_inside, new_p, p),
        )
        made = ops.where(is_inside, base + new_p, lower), ops.where(is_inside & (i + 1 < high), length, 0.0)
        return state, (*made, ops.where(is_inside, new_c, 1.0), ops.where(is_inside, new_s, 0.0))

    rows = ops.swapaxes(d, 0, 1), ops.swapaxes(e, 0, 1)
    given = index[: size - 1], rows[0][: size - 1], rows[0][1:], rows[1][: size - 1]
    one = ops.ones_like(start)
    (g, _, _, p), (diagonals, lengths, cosines, sines) = scan(
        rotate, (start, one, one, ops.zeros_like(start)), given, reverse=True
    )
    is_open = (index == first) & (first < last)
    is_moved = (index > first) & (index <= last)
    new_d = ops.where(is_moved, ops.pad(ops.swapaxes(diagonals, 0, 1), [(0, 0), (1, 0)]), d)
    new_e = ops.where(is_moved, ops.pad(ops.swapaxes(lengths, 0, 1), [(0, 0), (1, 0)]), e)
    return ops.where(is_open, d - p[:, None], new_d), ops.where(is_open, g[:, None], new_e), cosines, sines


def _rotate_rows(rows: Any, cosines: Any, sines: Any) -> Any:
    """The rows [n, M, k] of eigenvectors after the rotations [n - 1, M] of a sweep: one row goes up through all."""

    def rotate(carried: Any, given: Any) -> Any:
        row, c, s = given
        c, s = c[:, None], s[:, None]
        return c * row - s * carried, s * row + c * carried

    first, others = scan(rotate, rows[-1], (rows[:-1], cosines, sines), reverse=True)
    return ops.concat([first[None], others], 0)


def iterate_tridiagonal(d: Any, e: Any, rows: Any) -> tuple[Any, Any]:
    """The eigenvalues of tridiagonal matrices [M, n], unsorted, and `rows` [n, M, k] rotated as eigenvectors."""
    size, index = d.shape[-1], index_of(d.shape[-1])
    eps = epsilon_of(dtype_of(d))

    def is_open(state: Any) -> Any:
        return (state[0] < SWEEPS * size) & ops.any(state[3] < state[4])

    def sweep(state: Any) -> Any:
        count, d, e, first, last, rows = state
        d, e, cosines, sines = _rotate(d, e, first, last)
        rows = None if rows is None else _rotate_rows(rows, cosines, sines)
        return (count + 1, d, *_find_blocks(d, e, index, eps), rows)

    state = (ops.zeros((), i64), d, *_find_blocks(d, e, index, eps), rows)
    _, d, _, _, _, rows = while_loop(is_open, sweep, state)
    return d, rows


def _tear(d: Any, e: Any, leaf: int) -> tuple[Any, Any]:
    """Leaves [B * m, leaf] of matrices [B, m * leaf]: what couples them is taken off the diagonal on both sides."""
    size, index = d.shape[-1], index_of(d.shape[-1])
    is_torn = index % leaf == leaf - 1
    coupled = ops.where(is_torn, ops.abs(e), 0.0)
    d = d - coupled - ops.pad(coupled[:, : size - 1], [(0, 0), (1, 0)])
    shape = d.shape[0] * (size // leaf), leaf
    return ops.reshape(d, shape), ops.reshape(ops.where(is_torn, 0.0, e), shape)


def _pad_tridiagonal(d: Any, e: Any, size: int) -> tuple[Any, Any]:
    """More rows, coupled to none, with an eigenvalue above all others."""
    more = size - d.shape[-1]
    if not more:
        return d, e
    before = ops.pad(e[:, :-1], [(0, 0), (1, 0)])
    bound = ops.max(ops.abs(d) + ops.abs(e) + ops.abs(before), -1, keepdims=True)
    above = ops.where(bound > 0, 1.5 * bound, 1.0)
    d = ops.concat([d, ops.broadcast_to(above, (d.shape[0], more))], 1)
    return d, ops.pad(e, [(0, 0), (0, more)])


def solve_tridiagonal(d: Any, e: Any, *, has_vectors: bool) -> tuple[Any, Any]:
    """The eigenvalues of tridiagonal matrices [B, n], ascending, and their eigenvectors [B, n, n] as columns, or None.

    The last element of `e`, beside the diagonal, is zero. The largest element of a matrix is to be near 1.
    """
    count, size = d.shape
    parts = 1
    while -(-size // parts) > LEAF:
        parts *= 2
    leaf = -(-size // parts)
    d, e = _pad_tridiagonal(d, e, leaf * parts)
    values, inner = _tear(d, e, leaf)
    identity = ops.eye(leaf, dtype=dtype_of(d))
    rows = identity if has_vectors else ops.stack([identity[:, 0], identity[:, -1]], 1)
    rows = ops.broadcast_to(rows[:, None], (leaf, values.shape[0], rows.shape[-1]))
    is_needed = has_vectors or parts > 1
    values, rows = iterate_tridiagonal(values, inner, rows if is_needed else None)
    if parts == 1:
        order = ops.argsort(values, -1)
        values = ops.take_along_axis(values, order, -1)
        return values, ops.swapaxes(take_rows(ops.swapaxes(rows, 0, 1), order), 1, 2) if has_vectors else None
    rows = ops.transpose(rows, (1, 2, 0))
    while parts > 1:
        parts //= 2
        half, pairs = values.shape[-1], count * parts
        beside = ops.reshape(ops.reshape(e, (pairs, 2 * half))[:, half - 1], (pairs,))
        needs = "all" if has_vectors else "ends" if parts > 1 else "none"
        values = ops.reshape(values, (pairs, 2, half))
        values, rows = merge(values, ops.reshape(rows, (pairs, 2, rows.shape[1], half)), beside, needs=needs)
    return values[:, :size], rows[:, :size, :size] if has_vectors else None


def _eigh(a: Any, *, has_vectors: bool) -> Any:
    batch = as_batch(a)
    lower = ops.tril(batch, -1)
    batch = lower + adjoint(lower) + ops.where(ops.eye(a.shape[-1]) > 0, ops.real(batch), 0.0)
    if a.shape[-1] < 2:
        values = ops.real(diagonal(a))
        return (values, ops.broadcast_to(eye_like(a), tuple(a.shape))) if has_vectors else (values,)
    is_finite = ops.all(ops.isfinite(ops.abs(batch)), (-2, -1))[:, None, None]
    batch, nothing = ops.where(is_finite, batch, 0.0), ops.where(is_finite, 0.0, math.nan)
    scale = scale_of(batch)
    d, e, panels = reduce_to_tridiagonal(batch / scale)
    values, vectors = solve_tridiagonal(d, e, has_vectors=has_vectors)
    values = like_batch(values * scale[:, :, 0] + nothing[:, :, 0], a, 1)
    if not has_vectors:
        return (values,)
    return values, like_batch(apply_panels(panels, ops.astype(vectors, dtype_of(a))) + nothing, a)


def decompose_batch(a: Any) -> Any:
    """The eigenvectors of [B, n, n], inside a program."""
    return _eigh(a, has_vectors=True)[1]


_eigh_program = Program(_eigh)


@custom_jvp
def decompose_hermitian(a: Any) -> Any:
    """Eigenvalues and eigenvectors of matrices in any leading dims, with their derivative."""
    return _eigh_program(a, has_vectors=True)


@custom_jvp
def find_eigenvalues(a: Any) -> Any:
    """Eigenvalues of matrices in any leading dims, with their derivative."""
    return _eigh_program(a, has_vectors=False)[0]


@decompose_hermitian.defjvp
def _eigh_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    values, v = decompose_hermitian(a)
    inner = adjoint(v) @ ((da + adjoint(da)) * 0.5) @ v
    gaps = values[..., None, :] - values[..., :, None]
    # Vectors of equal eigenvalues have no derivative: what rotates them into each other is left out.
    factors = ops.where(gaps == 0, 0.0, 1.0 / ops.where(gaps == 0, 1.0, gaps))
    return (values, v), (ops.real(diagonal(inner)), v @ (inner * factors))


@find_eigenvalues.defjvp
def _eigvalsh_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    values, v = decompose_hermitian(a)
    return values, ops.real(diagonal(adjoint(v) @ ((da + adjoint(da)) * 0.5) @ v))


@narrow_floats(1)
def eigh(a: Any) -> Eigh:
    """The eigenvalues of symmetric or Hermitian matrices [..., N, N], ascending, and their eigenvectors as columns.

    Only the lower triangle is read, and the derivative is that of `(a + a^H) / 2`; eigenvectors of equal eigenvalues
    have none, and what rotates them into each other is left out of it. An eigenvector's sign, or phase, is whatever the
    algorithm makes it, and the same for the same bits of `a`. NaN and infinities in `a` give NaN.

    `a v - v diag(w)` is within a few `N eps |a|` of zero, `v` orthogonal within a few `N eps`, and eigenvalues within a
    few `N eps |a|`, which is absolute: small ones of a graded matrix have fewer digits.

    >>> ts.linalg.eigh(ts.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Tensor([2] f32, [1, 2])
    """
    return Eigh(*decompose_hermitian(take_square("eigh", a)))


@narrow_floats(1)
def eigvalsh(a: Any) -> Any:
    """The eigenvalues that `eigh` gives, without the vectors; its derivative needs them.

    >>> ts.linalg.eigvalsh(ts.array([[0.0, 1.0], [1.0, 0.0]]))
    Tensor([2] f32, [-1, 1])
    """
    return find_eigenvalues(take_square("eigvalsh", a))
