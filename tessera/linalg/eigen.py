"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices: a tridiagonal matrix by reflections, then QL.

Each of n - 1 reflections makes one column tridiagonal: a matrix-vector product and an update of rank 2. The eigenvalues
of what is left come out one after the other, from the top: a sweep of rotations with Wilkinson's shift makes its first
element off the diagonal small, cubically so near the end, and on average fewer than two sweeps are needed for each. The
rotations are numbers alone; the eigenvectors follow row by row, from a matrix whose rows are the columns of `Q`.

Matrices of a batch go through the same loops with shifts and ranges of their own: where one has no rotation it is
passed through unchanged, so what it becomes does not depend on the others.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tessera.api.control import scan, while_loop
from tessera.api.custom import custom_jvp
from tessera.frontend.functions import public as ops
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
from tessera.linalg.orthogonal import apply_reflections, reflect
from tessera.types.dtype import i64

SWEEPS = 30
"""Sweeps for each eigenvalue after which the loop ends; LAPACK reports a failure after as many."""


TOGETHER = 8
"""Sweeps whose rotations turn the eigenvectors in one pass: with one, a pass is all memory traffic."""
SMALL = 100
"""Rows up to which one sweep at a time is as quick, since all rows are in a cache, and is compiled sooner."""


class Eigh(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


def reduce_to_tridiagonal(a: Any) -> tuple[Any, Any, Any, Any]:
    """[B, n, n] Hermitian matrices as `Q T Q^H`: the diagonal of `T`, what is beside it, vectors and factors.

    `Q` is the product of the reflections that the vectors, which are columns, and their factors are.
    """
    size, index = a.shape[-1], index_of(a.shape[-1])

    def reduce_column(x: Any, k: Any) -> Any:
        v, tau, beta = reflect(ops.take(x, k, 2), k + 1, index)
        moved = ops.where(index > k, tau * (x @ v[:, :, None])[:, :, 0], 0.0)
        shared = ops.sum(ops.conj(moved) * v, -1, keepdims=True)
        moved = moved - 0.5 * tau * shared * v
        x = x - v[:, :, None] * ops.conj(moved)[:, None, :] - moved[:, :, None] * ops.conj(v)[:, None, :]
        return x, (v, tau[:, 0], ops.real(beta)[:, 0])

    x, (vectors, taus, beside) = scan(reduce_column, a, index_of(size - 1))
    beside = ops.pad(ops.swapaxes(beside, 0, 1), [(0, 0), (0, 1)])
    return ops.real(diagonal(x)), beside, ops.transpose(vectors, (1, 2, 0)), ops.swapaxes(taus, 0, 1)


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
    """The rows [n, B, m] of eigenvectors after the rotations [k, n - 1, B] of some sweeps, in one pass.

    A row goes up through all others, rotated with each. What a sweep leaves behind is final, so the next one follows it
    one row later: a step takes a row, and gives the row k below it. Rotations that are not there do nothing.
    """
    count, sweeps = rows.shape[0], cosines.shape[0]

    def align(values: Any, outside: float) -> Any:
        ends = [(sweeps - at, at + 1) for at in range(sweeps)]
        return ops.stack([ops.pad(values[at], [end, (0, 0)], outside) for at, end in enumerate(ends)], 1)

    def rotate(carried: Any, given: Any) -> Any:
        row, c, s = given
        after: list[Any] = []
        for at in range(sweeps):
            own, cosine, sine = carried[at], c[at][:, None], s[at][:, None]
            after.append(cosine * row - sine * own)
            row = sine * row + cosine * own
        return tuple(after), row

    given = ops.pad(rows, [(sweeps, 0), (0, 0), (0, 0)]), align(cosines, 1.0), align(sines, 0.0)
    return scan(rotate, (ops.zeros_like(rows[0]),) * sweeps, given, reverse=True)[1][:count]


def solve_tridiagonal(d: Any, e: Any, rows: Any) -> tuple[Any, Any]:
    """The eigenvalues of tridiagonal matrices [B, n], unsorted, and `rows` [n, B, m] rotated as eigenvectors."""
    size, index = d.shape[-1], index_of(d.shape[-1])
    eps, together = epsilon_of(dtype_of(d)), 1 if rows is None or size <= SMALL else TOGETHER

    def is_open(state: Any) -> Any:
        return (state[0] < SWEEPS * size) & ops.any(state[3] < state[4])

    def sweep(state: Any, _: Any) -> Any:
        d, e, first, last = state
        d, e, cosines, sines = _rotate(d, e, first, last)
        return (d, *_find_blocks(d, e, index, eps)), (cosines, sines)

    def sweep_together(state: Any) -> Any:
        count, *matrix, rows = state
        matrix, (cosines, sines) = scan(sweep, tuple(matrix), length=together)
        return count + together, *matrix, None if rows is None else _rotate_rows(rows, cosines, sines)

    state = (ops.zeros((), i64), d, *_find_blocks(d, e, index, eps), rows)
    _, d, _, _, _, rows = while_loop(is_open, sweep_together, state)
    return d, rows


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
    d, e, vectors, taus = reduce_to_tridiagonal(batch / scale)
    if not has_vectors:
        values = ops.sort(solve_tridiagonal(d, e, None)[0], -1) * scale[:, :, 0] + nothing[:, :, 0]
        return (like_batch(values, a, 1),)
    q = apply_reflections(vectors, taus, ops.broadcast_to(eye_like(a), tuple(batch.shape)))
    d, rows = solve_tridiagonal(d, e, ops.transpose(q, (2, 0, 1)))
    rows = ops.swapaxes(rows, 0, 1)
    order = ops.argsort(d, -1)
    values = ops.take_along_axis(d, order, 1) * scale[:, :, 0] + nothing[:, :, 0]
    columns = ops.swapaxes(take_rows(rows, order), -1, -2) + nothing
    return like_batch(values, a, 1), like_batch(columns, a)


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
