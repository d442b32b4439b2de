"""Singular values and vectors: a bidiagonal matrix in parts until these are small, and what is made of them.

Matrices with more rows than columns are `Q R` first. A small triangle goes through one-sided Jacobi rotations: the
columns of `R^H`, which are nearly orthogonal already, are made so. A rotation of two columns makes their inner product
zero, and N / 2 pairs that have no column in common are rotated together. After N - 1 rounds every pair has met (a
round-robin tournament), and sweeps are repeated until no pair needs a rotation. Norms of the columns are the singular
values, the columns are one set of vectors, and the rotations together are the other. Small singular values have more
digits by it than methods by way of a bidiagonal matrix give them, which is how larger matrices go.

A matrix of a batch that is done is passed through sweeps that others need, so its bits are those that it has alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tessera.api.control import scan, while_loop
from tessera.api.custom import custom_jvp
from tessera.diagnostics.codes import DifferentiationError
from tessera.frontend.arguments import check_bool
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import is_tensor
from tessera.linalg.bidiagonal import merge_rows, reduce_to_bidiagonal
from tessera.linalg.operands import (
    Program,
    adjoint,
    as_batch,
    check_rows,
    diagonal,
    dtype_of,
    epsilon_of,
    index_of,
    like_batch,
    narrow_floats,
    scale_of,
    take_matrix,
    take_rows,
    take_tensors,
)
from tessera.linalg.orthogonal import factor_qr, orthogonal_columns
from tessera.linalg.tridiagonal import apply_panels
from tessera.types.dtype import i64

SWEEPS = 40
"""Sweeps after which the loop ends; matrices take 5 to 12."""
LEAF = 9
"""Columns up to which a matrix, or a part of a bidiagonal one, is rotated; larger ones are divided."""
TINY = {"f32": 2.0**-100, "f64": 2.0**-960}
"""Squares of lengths that count as zero, of matrices whose largest element is near 1: others have all their digits."""


class SVD(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as rows."""

    U: Any
    S: Any
    Vh: Any


class LeastSquares(NamedTuple):
    """The solution of least squares, sums of squared residuals, the rank, and singular values."""

    x: Any
    residuals: Any
    rank: Any
    s: Any


def _square(x: Any) -> Any:
    size = ops.abs(x)
    return size * size


def _rotate_pairs(top: Any, bottom: Any, is_open: Any, tiny: float, eps: float) -> tuple[Any, Any, Any]:
    """Cosine and sine that make rows [B, h, m] orthogonal in pairs, and how far from it they are, [B]."""
    first, second = ops.sum(_square(top), -1), ops.sum(_square(bottom), -1)
    inner = ops.sum(ops.conj(top) * bottom, -1)
    size = ops.abs(inner)
    is_usual = (first > tiny) & (second > tiny)
    cosine_between = ops.where(is_usual, size / (ops.sqrt(first) * ops.sqrt(ops.where(is_usual, second, 1.0))), 0.0)
    is_rotated = (cosine_between > eps) & is_open[:, None]
    divisor = ops.where(is_rotated, size, 1.0)
    ratio = (second - first) / (2.0 * divisor)
    tangent = ops.copysign(1.0, ratio) / (ops.abs(ratio) + ops.hypot(ratio, 1.0))
    cosine = ops.where(is_rotated, 1.0 / ops.hypot(tangent, 1.0), 1.0)
    sine = ops.where(is_rotated, cosine * tangent, 0.0) * (inner / divisor)
    return cosine[:, :, None], sine[:, :, None], ops.max(cosine_between, -1)


def _rotate(top: Any, bottom: Any, cosine: Any, sine: Any) -> tuple[Any, Any]:
    """Rows rotated in pairs, and moved on by one seat: the first stays, and the others go around."""
    up, down = cosine * top - ops.conj(sine) * bottom, sine * top + cosine * bottom
    if top.shape[1] == 1:
        return up, down
    return ops.concat([up[:, :1], down[:, :1], up[:, 1:-1]], 1), ops.concat([down[:, 1:], up[:, -1:]], 1)


def orthogonalize_rows(rows: Any, rotated: Any) -> tuple[Any, Any]:
    """[B, n, m] with rows orthogonal to each other, by rotations that `rotated` [B, n, k] takes part in."""
    count, eps = rows.shape[1], epsilon_of(dtype_of(ops.real(rows)))
    tiny, goal = TINY[dtype_of(ops.real(rows)).name], eps * math.sqrt(rows.shape[-1])
    half = (count + 1) // 2
    if count % 2:
        rows = ops.pad(rows, [(0, 0), (0, 1), (0, 0)])
        rotated = None if rotated is None else ops.pad(rotated, [(0, 0), (0, 1), (0, 0)])

    def is_open(state: Any) -> Any:
        return (state[0] < SWEEPS) & ops.any(state[1] > goal)

    def sweep(state: Any) -> Any:
        trips, worst, parts = state
        is_needed = worst > goal

        def rotate_all(state: Any, _: Any) -> Any:
            worst, parts = state
            cosine, sine, found = _rotate_pairs(parts[0][0], parts[0][1], is_needed, tiny, eps)
            rotated = tuple(_rotate(top, bottom, cosine, sine) for top, bottom in parts)
            return (ops.maximum(worst, found), rotated), None

        start = ops.zeros_like(worst), parts
        worst, parts = scan(rotate_all, start, length=2 * half - 1)[0]
        return trips + 1, worst, parts

    given = [rows] if rotated is None else [rows, rotated]
    parts = tuple((part[:, :half], part[:, half:]) for part in given)
    worst = ops.full((rows.shape[0],), 1.0, dtype_of(ops.real(rows)))
    _, _, parts = while_loop(is_open, sweep, (ops.zeros((), i64), worst, parts))
    made = [ops.concat([*part], 1) for part in parts]
    # A row of padding is zero, and stays in its seat.
    made = [part[:, :count] for part in made]
    return made[0], made[-1]


def _svd(a: Any, *, full: bool, has_vectors: bool) -> Any:
    rows, columns = a.shape[-2:]
    batch, kind = as_batch(a), dtype_of(ops.real(a))
    if rows < columns:
        u, s, vh = _svd_tall(adjoint(batch), full, has_vectors)
        u, vh = (adjoint(vh), adjoint(u)) if has_vectors else (u, vh)
    elif columns == 0:
        count = batch.shape[0], rows, rows if full else 0
        u, s = ops.broadcast_to(ops.eye(*count[1:], dtype=dtype_of(a)), count), ops.zeros((count[0], 0), kind)
        vh = ops.zeros((count[0], 0, 0), dtype_of(a))
    else:
        u, s, vh = _svd_tall(batch, full, has_vectors)
    if not has_vectors:
        return (like_batch(s, a, 1),)
    return like_batch(u, a), like_batch(s, a, 1), like_batch(vh, a)


def _svd_tall(a: Any, full: bool, has_vectors: bool) -> tuple[Any, Any, Any]:
    rows, columns = a.shape[1:]
    if columns == 0:
        return _svd(a, full=full, has_vectors=True)
    is_finite = ops.all(ops.isfinite(ops.abs(a)), (-2, -1))[:, None, None]
    a = ops.where(is_finite, a, 0.0)
    scale = scale_of(a)
    a, packed, tau = a / scale, None, None
    if rows > columns or columns <= LEAF:
        packed, tau = factor_qr(a)
        a = ops.triu(packed[:, :columns])
    u, s, vh = (_rotate_triangle if columns <= LEAF else _divide_square)(a, has_vectors)
    nothing = ops.where(is_finite, 0.0, math.nan)
    s = s * scale[:, :, 0] + nothing[:, :, 0]
    if not has_vectors:
        return u, s, vh
    if packed is not None:
        q = orthogonal_columns(packed, tau, rows if full else columns)
        inner = q[:, :, :columns] @ u
        u = ops.concat([inner, q[:, :, columns:]], 2) if full and rows > columns else inner
    return u + nothing, s, vh + nothing


def _rotate_triangle(r: Any, has_vectors: bool) -> tuple[Any, Any, Any]:
    """The decomposition of [B, n, n] triangles by rotations of their columns."""
    columns, kind = r.shape[-1], dtype_of(ops.real(r))
    start = ops.conj(r)
    rotated = ops.broadcast_to(ops.eye(columns, dtype=dtype_of(r)), tuple(r.shape)) if has_vectors else None
    found, rotated = orthogonalize_rows(start, rotated)
    squares = ops.sum(_square(found), -1)
    lengths = ops.sqrt(squares)
    if not has_vectors:
        return r, -ops.sort(-lengths, -1), r
    order = ops.argsort(-lengths, -1)
    lengths, squares = (ops.take_along_axis(one, order, 1) for one in (lengths, squares))
    found, rotated = take_rows(found, order), take_rows(rotated, order)
    is_zero = (squares <= TINY[kind.name])[:, :, None]
    found = ops.where(is_zero, 0.0, found / ops.where(is_zero, 1.0, lengths[:, :, None]))
    # Vectors of singular values that are zero are any that complete the others, as reflections do.
    complete = orthogonal_columns(*factor_qr(ops.swapaxes(found, 1, 2)), columns)
    vh = ops.conj(ops.where(is_zero, ops.swapaxes(complete, 1, 2), found))
    return ops.swapaxes(rotated, 1, 2), lengths, vh


def _divide_square(a: Any, has_vectors: bool) -> tuple[Any, Any, Any]:
    """The decomposition of [B, n, n] by way of a bidiagonal matrix, which is divided."""
    d, e, lefts, rights = reduce_to_bidiagonal(a)
    s, u, v = solve_bidiagonal(d, e, has_vectors=has_vectors)
    if not has_vectors:
        return a, s, a
    u, v = (apply_panels(*both) for both in ((lefts, ops.astype(u, dtype_of(a))), (rights, ops.astype(v, dtype_of(a)))))
    return u, s, adjoint(v)


def _solve_leaves(d: Any, e: Any) -> tuple[Any, Any, Any]:
    """Singular values, and left and right vectors, of the first h - 1 rows of [M, h] bidiagonal matrices."""
    size = d.shape[-1]
    index = index_of(size)
    dense = ops.where(index[:, None] == index, d[:, :, None], 0.0)
    dense = dense + ops.where(index[:, None] + 1 == index, e[:, :, None], 0.0)
    tall = ops.swapaxes(dense[:, : size - 1], 1, 2)
    right, values, left = _svd_tall(tall, True, True)
    return values, ops.swapaxes(left, 1, 2), right


def solve_bidiagonal(d: Any, e: Any, *, has_vectors: bool) -> tuple[Any, Any, Any]:
    """Singular values [B, n], descending, and left and right vectors as columns, or None, of upper bidiagonal matrices.

    The last element of `e` is zero. A column of zeros is added, and rows with a singular value above all others until
    halves are of one size.
    """
    count, size = d.shape
    parts = 1
    while -(-(size + 1) // parts) > LEAF:
        parts *= 2
    leaf = -(-(size + 1) // parts)
    more = leaf * parts - size
    before = ops.pad(e[:, :-1], [(0, 0), (1, 0)])
    bound = ops.max(ops.abs(d) + ops.abs(e) + ops.abs(before), -1, keepdims=True)
    above = ops.broadcast_to(ops.where(bound > 0, 1.5 * bound, 1.0), (count, more))
    d, e = ops.concat([d, above], 1), ops.pad(e, [(0, 0), (0, more)])
    values, left, right = _solve_leaves(*(ops.reshape(one, (count * parts, leaf)) for one in (d, e)))
    if not has_vectors:
        right = ops.stack([right[:, 0], right[:, -1]], 1)
    while parts > 1:
        parts //= 2
        half, pairs = right.shape[-1], count * parts
        row = tuple(ops.reshape(one, (pairs, 2 * half))[:, half - 1] for one in (d, e))
        needs = "all" if has_vectors else "ends" if parts > 1 else "none"
        values = ops.reshape(values, (pairs, 2, half - 1))
        right = ops.reshape(right, (pairs, 2, right.shape[1], half))
        left = ops.reshape(left, (pairs, 2, half - 1, half - 1)) if has_vectors else None
        values, left, right = merge_rows(values, left, right, (row[0], row[1]), needs=needs)
    values = ops.flip(values[:, :size], -1)
    left, right = (ops.flip(one[:, :size, :size], -1) if has_vectors else None for one in (left, right))
    return values, left, right


_svd_program = Program(_svd)


def _decompose(a: Any, full: bool) -> Any:
    return _svd_program(a, full=full, has_vectors=True)


decompose_plain = custom_jvp(_decompose, nondiff_argnums=1)
"""The three factors of matrices in any leading dims, with their derivative."""


@custom_jvp
def find_singular_values(a: Any) -> Any:
    """The singular values of matrices in any leading dims, with their derivative."""
    return _svd_program(a, full=False, has_vectors=False)[0]


@find_singular_values.defjvp
def _svdvals_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    u, s, vh = decompose_plain(primals[0], False)
    return s, ops.real(diagonal(adjoint(u) @ tangents[0] @ adjoint(vh)))


@decompose_plain.defjvp
def _svd_jvp(full: bool, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    rows, columns = a.shape[-2:]
    if full and rows != columns:
        raise DifferentiationError(
            f"`svd` with `full_matrices=True` has no derivative for {rows} by {columns} matrices: vectors that "
            "complete a basis are not determined",
            fix="write `full_matrices=False`",
        )
    u, s, vh = decompose_plain(a, False)
    inner = adjoint(u) @ da @ adjoint(vh)
    across = s[..., None, :]
    down = s[..., :, None]
    gaps = (across - down) * (across + down)
    factors = ops.where(gaps == 0, 0.0, 1.0 / ops.where(gaps == 0, 1.0, gaps))
    scaled, flipped = inner * across, down * inner
    du = u @ (factors * (scaled + adjoint(scaled)))
    # A change of phase of a pair is that of the left vector.
    phases = diagonal(inner) - ops.real(diagonal(inner))
    dv = adjoint(vh) @ (factors * (flipped + adjoint(flipped)))
    inverse = ops.where(across == 0, 0.0, 1.0 / ops.where(across == 0, 1.0, across))
    du = du + u * (phases[..., None, :] * inverse)
    if rows > columns:
        outside = da @ adjoint(vh)
        du = du + (outside - u @ (adjoint(u) @ outside)) * inverse
    if columns > rows:
        outside = adjoint(da) @ u
        dv = dv + (outside - adjoint(vh) @ (vh @ outside)) * inverse
    return (u, s, vh), (du, ops.real(diagonal(inner)), adjoint(dv))


@narrow_floats(1)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition `(U, S, Vh)` of [..., M, N]: `a = U diag(S) Vh`, with `S` in descending order.

    With `full_matrices` `U` is [..., M, M] and `Vh` [..., N, N], without it [..., M, K] and [..., K, N] for
    K = min(M, N). `compute_uv=False` gives `S` alone. A pair of vectors may have the opposite sign, or another phase,
    than elsewhere; equal bits of `a` give equal ones. NaN and infinities in `a` give NaN. The derivative leaves out
    what rotates vectors of equal singular values into each other, and needs `full_matrices=False` where M and N differ.

    `U diag(S) Vh` is within a few `N eps |a|` of `a`, `U` and `Vh` are orthogonal within a few `N eps`, and singular
    values within a few `N eps` times the largest, as LAPACK's are. That is absolute: one of `1e-10` times the largest
    has six digits left in f64, and one below `N eps` times it may have none. Up to 9 columns small ones of a matrix
    with scaled columns keep their digits.

    >>> ts.linalg.svd(ts.array([[0.0, 2.0], [3.0, 0.0]])).S
    Tensor([2] f32, [3, 2])
    """
    a = take_matrix("svd", a)
    full, has_vectors = check_bool("svd", "full_matrices", full_matrices), check_bool("svd", "compute_uv", compute_uv)
    return SVD(*decompose_plain(a, full)) if has_vectors else find_singular_values(a)


@narrow_floats(1)
def svdvals(a: Any) -> Any:
    """The singular values of [..., M, N] in descending order, [..., min(M, N)], as accurate as those of `svd`.

    >>> ts.linalg.svdvals(ts.array([[3.0, 0.0], [0.0, 4.0]]))
    Tensor([2] f32, [4, 3])
    """
    return find_singular_values(take_matrix("svdvals", a))


def is_above(s: Any, a: Any, rtol: Any) -> Any:
    """Which singular values are above `max(M, N) eps` times the largest, or above `rtol` times it."""
    if not s.shape[-1]:
        return s > 0
    default = max(a.shape[-2:]) * epsilon_of(dtype_of(s))
    return s > s[..., :1] * (default if rtol is None else _per_matrix(rtol))


def _per_matrix(limit: Any) -> Any:
    """A number, or a tensor with one for each matrix, beside singular values."""
    return limit[..., None] if is_tensor(limit) and len(limit.shape) else limit


@narrow_floats(1)
def pinv(a: Any, rtol: Any = None, hermitian: bool = False) -> Any:
    """The pseudo-inverse of [..., M, N], [..., N, M]: singular values up to `rtol` times the largest count as zero.

    `rtol` is a number, or a tensor of the leading dims; `max(M, N) eps` without one. `hermitian` is for NumPy's
    callers: the result is the same without.

    >>> ts.linalg.pinv(ts.array([[2.0, 0.0], [0.0, 0.0]]))
    Tensor([2, 2] f32, [[0.5, 0], [0, 0]])
    """
    a = take_matrix("pinv", a)
    u, s, vh = decompose_plain(a, False)
    is_kept = is_above(s, a, rtol)
    inverse = ops.where(is_kept, 1.0 / ops.where(is_kept, s, 1.0), 0.0)
    return adjoint(vh) @ (inverse[..., :, None] * adjoint(u))


@narrow_floats(1)
def matrix_rank(a: Any, rtol: Any = None, *, tol: Any = None, hermitian: bool = False) -> Any:
    """How many singular values of [..., M, N] are above `rtol` times the largest, or above `tol`.

    Without either, above `max(M, N) eps` times the largest.

    >>> ts.linalg.matrix_rank(ts.ones((3, 3)))
    Tensor([] i64, 1)
    """
    a = take_matrix("matrix_rank", a)
    s = find_singular_values(a)
    is_kept = is_above(s, a, rtol) if tol is None else s > _per_matrix(tol)
    return ops.sum(ops.astype(is_kept, i64), -1)


@narrow_floats(2)
def lstsq(a: Any, b: Any, rcond: Any = None) -> LeastSquares:
    """The `x` of smallest norm that minimizes `|a x - b|`, `(x, residuals, rank, s)`, for [..., M, N] and [..., M, K].

    `b` may be a vector [M]. `residuals` are the sums of squares of `a x - b` by columns, whatever the rank; `s` are the
    singular values, of which those up to `rcond` times the largest (`max(M, N) eps` without it) count as zero.

    >>> ts.linalg.lstsq(ts.array([[1.0], [1.0]]), ts.array([1.0, 3.0])).x
    Tensor([1] f32, [2])
    """
    a, b = take_tensors("lstsq", a, b)
    a = take_matrix("lstsq", a)
    is_vector = len(b.shape) == 1
    b = b[:, None] if is_vector else b
    check_rows("lstsq", a, b, is_vector=is_vector)
    u, s, vh = decompose_plain(a, False)
    is_kept = is_above(s, a, rcond)
    inverse = ops.where(is_kept, 1.0 / ops.where(is_kept, s, 1.0), 0.0)
    x = adjoint(vh) @ (inverse[..., :, None] * (adjoint(u) @ b))
    residuals = ops.sum(_square(a @ x - b), -2)
    rank = ops.sum(ops.astype(is_kept, i64), -1)
    return LeastSquares(x[..., 0] if is_vector else x, residuals[..., 0] if is_vector else residuals, rank, s)
