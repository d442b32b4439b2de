"""Bidiagonal matrices: square ones reduced to them by reflections, and their singular values by divide and conquer.

Reflections from the left and from the right alternate: each makes one column, or one row, of its final form. Within a
block the matrix stays as it is, and what the reflections so far take off it is kept as `V Y^H + X U^H`: `V` and `U`
are their vectors, `Y` and `X` products of the matrix with these. After a block one matmul takes all of it off what is
left, as in `tridiagonal`.

A bidiagonal matrix of 2h - 1 rows and 2h columns is a row between two of h - 1 rows and h columns. In the basis of the
singular vectors of the two it is a diagonal matrix below a row `z`, whose first pole is zero: `z_0` is what the row has
of the two vectors that the parts map to zero. The squares of its singular values are the roots of the secular equation
with the squares of the poles, and both sets of vectors follow from them (Gu and Eisenstat). Matmuls make those of the
whole; without vectors only the first and the last row of the right ones is kept.

Nothing is squared but in differences, so small singular values are within rounding of the largest, as all others.
"""

from __future__ import annotations

from typing import Any

from tessera.api.control import scan
from tessera.frontend.functions import public as ops
from tessera.linalg.divide import Deflated, deflate, make_columns, place_columns
from tessera.linalg.operands import dtype_of, epsilon_of, index_of
from tessera.linalg.secular import Roots, solve_secular, values_of
from tessera.linalg.tridiagonal import Panel, block_width, reflect_scaled, sum_rows


def _inner(rows: Any, x: Any) -> Any:
    """[B, k, m] rows, conjugated, times [B, m]."""
    return ops.conj(ops.sum(rows * ops.conj(x)[:, None, :], -1))


def _reduce_panel(a: Any, width: int) -> tuple[Panel, Panel, Any, Any]:
    """The first columns and rows of [B, m, m]: panels from the left and from the right, and the rows of `Y` and `X`."""
    index, transposed = index_of(a.shape[-1]), ops.swapaxes(a, 1, 2)

    def reduce_both(state: Any, j: Any) -> Any:
        vs, ys, xs, us = state
        own_y, own_u, own_v, own_x = (ops.conj(ops.take(rows, j, 2)) for rows in (ys, us, vs, xs))
        v, left, diagonal = reflect_scaled(ops.take(a, j, 2) - sum_rows(own_y, vs) - sum_rows(own_u, xs), j, index)
        product = ops.conj(sum_rows(ops.conj(v), a))
        product = product - sum_rows(_inner(vs, v), ys) - sum_rows(_inner(xs, v), us)
        y = ops.where(index > j, left * product, 0.0)
        row = ops.conj(ops.take(a, j, 1)) - sum_rows(own_v, ys) - sum_rows(own_x, us) - y
        u, right, beside = reflect_scaled(row, j + 1, index)
        product = sum_rows(u, transposed)
        product = product - sum_rows(_inner(ys, u), vs) - sum_rows(_inner(us, u), xs)
        x = right * (product - v * ops.sum(ops.conj(y) * u, -1, keepdims=True))
        state = (
            vs.at[:, j].set(v),
            ys.at[:, j].set(y),
            xs.at[:, j].set(ops.where(index > j, x, 0.0)),
            us.at[:, j].set(u),
        )
        return state, (ops.real(diagonal)[:, 0], ops.real(beside)[:, 0], left[:, 0], right[:, 0])

    none = ops.zeros((a.shape[0], width, a.shape[-1]), dtype_of(a))
    (vs, ys, xs, us), made = scan(reduce_both, (none,) * 4, index_of(width))
    diagonal, beside, left, right = (ops.swapaxes(one, 0, 1) for one in made)
    return Panel(diagonal, beside, vs, left), Panel(diagonal, beside, us, right), ys, xs


def reduce_to_bidiagonal(a: Any) -> tuple[Any, Any, list[Panel], list[Panel]]:
    """[B, n, n] matrices as `P R Q^H`: the diagonal of `R`, what is above it [B, n], and what makes `P` and `Q`.

    The last element above the diagonal is zero. The largest element of a matrix is to be near 1.
    """
    width = block_width(a.shape[-1])
    lefts, rights = list[Panel](), list[Panel]()
    while a.shape[-1]:
        count = min(width, a.shape[-1])
        left, right, ys, xs = _reduce_panel(a, count)
        lefts.append(left)
        rights.append(right)
        down = ops.concat([left.vectors[:, :, count:], xs[:, :, count:]], 1)
        across = ops.concat([ys[:, :, count:], right.vectors[:, :, count:]], 1)
        a = a[:, count:, count:] - ops.swapaxes(down, 1, 2) @ ops.conj(across)
    diagonal, beside = (ops.concat([panel[at] for panel in lefts], 1) for at in (0, 1))
    return diagonal, beside, lefts, rights


# Divide and conquer.


def _deflate(poles: Any, z: Any, largest: Any) -> tuple[Any, Deflated]:
    """The order of poles [M, s], the first of which is zero and stays the first, and what deflation leaves of them.

    A first weight that is negligible would leave a row that is no pole's; it is made larger, within rounding, as are
    poles that cannot be told from zero.
    """
    limit = 8.0 * epsilon_of(dtype_of(poles)) * largest
    is_first = index_of(poles.shape[-1]) == 0
    is_open = (ops.abs(z) > limit[:, None]) & ~is_first
    least = ops.where(ops.any(is_open, -1), limit * (1.0 + 1e-3), 0.0)[:, None]
    z = ops.where(is_first, ops.maximum(z, least), z)
    poles = ops.where(is_open, ops.maximum(poles, 0.5 * limit[:, None]), poles)
    order = ops.argsort(ops.where(is_first, -1.0, poles), -1)
    poles, z = (ops.take_along_axis(one, order, -1) for one in (poles, z))
    return order, deflate(poles, z, limit, ops.ones_like(limit), keeps_first=True)


def _make_left(made: Deflated, roots: Roots, columns: Any, ranks: Any) -> Any:
    """The left vectors of the columns that are right ones: poles times these, and -1 for the row between the parts."""
    number = ops.cumsum(ops.astype(roots.is_open, dtype_of(ranks)), -1)
    is_middle = roots.is_open & (number == 1)
    is_open = ops.take_along_axis(roots.is_open, ranks, -1)
    middle = ops.where(is_open[:, None, :], -1.0, 0.0)
    return ops.where(is_middle[:, :, None], middle, made.poles[:, :, None] * columns)


def merge_rows(values: Any, left: Any, right: Any, row: tuple[Any, Any], *, needs: str) -> tuple[Any, Any, Any]:
    """Singular values [M, 2, h - 1] and vectors of pairs as those of wholes, ascending: [M, s] with s = 2h - 1.

    `left` is [M, 2, h - 1, h - 1], and `right` [M, 2, r, h] rows of the vectors of the singular values and of that
    which the part maps to zero, which is the last one. `row` is the row between, [M] twice. `needs` says what is made:
    "all", "ends", the first and the last row of the right vectors, or "none".
    """
    count, _, less = values.shape
    half, (diagonal, beside) = less + 1, row
    upper, lower = diagonal[:, None] * right[:, 0, -1], beside[:, None] * right[:, 1, 0]
    first, second = upper[:, less:], lower[:, less:]
    length = ops.hypot(first, second)
    divisor = ops.where(length == 0, 1.0, length)
    cosine, sine = ops.where(length == 0, 1.0, first / divisor)[:, :, None], (second / divisor)[:, :, None]
    z = ops.concat([length, upper[:, :less], lower[:, :less]], -1)
    poles = ops.pad(ops.reshape(values, (count, 2 * less)), [(0, 0), (1, 0)])
    # As for tridiagonal matrices, a small part is solved as one of a whole that is near 1.
    largest = ops.maximum(ops.maximum(ops.max(poles, -1), 1.0), ops.maximum(ops.abs(diagonal), ops.abs(beside)))
    order, made = _deflate(poles, z, largest)
    roots = solve_secular(made.poles, made.z, has_squares=True)
    found = values_of(roots)
    ranks = ops.argsort(found, -1)
    found = ops.take_along_axis(found, ranks, -1)
    if needs == "none":
        return found, None, None
    columns = make_columns(made, roots, ranks)
    w = place_columns(made, columns, ranks, order)
    nothing = ops.zeros((count, less, 1), dtype_of(values))
    tops = ops.concat([ops.concat([w[:, 1:half], nothing], 2), ops.concat([cosine * w[:, :1], -sine], 2)], 1)
    bottoms = ops.concat([ops.concat([w[:, half:], nothing], 2), ops.concat([sine * w[:, :1], cosine], 2)], 1)
    weights = ops.stack([tops, bottoms], 1)
    if needs == "ends":
        rows = ops.stack([right[:, 0, 0], right[:, 1, -1]], 1)[:, :, None]
        return found, None, (rows @ weights)[:, :, 0]
    right = ops.reshape(right @ weights, (count, 2 * half, 2 * half))
    w = place_columns(made, _make_left(made, roots, columns, ranks), ranks, order)
    left = ops.concat([left[:, 0] @ w[:, 1:half], w[:, :1], left[:, 1] @ w[:, half:]], 1)
    return found, left, right
