"""Eigenvalues and eigenvectors of tridiagonal matrices by divide and conquer.

A matrix of 2h rows is two of h rows and a matrix of rank one. In the basis of the eigenvectors of the two that is
`diag(d) + z z^T`, whose eigenvectors the secular equation gives; a product with them makes the eigenvectors of the
whole. Nearly all operations are those matmuls, and without vectors there are n^2 of them: only the first and the last
row of the eigenvectors is kept, which is what `z` is made of. Halves of all parts, and of all matrices, are one batch.

Where an element of `z` is negligible, its eigenvalue is already one of the whole; where two poles are as good as equal,
a rotation makes one element zero. One scan over the sorted poles finds both: it carries a pole on until another one
is apart from it. Parts have no shapes of their own by what is found: an element of zero weighs nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera.api.control import scan
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import dtype_of, epsilon_of, index_of
from tessera.linalg.secular import Roots, correct_weights, distances, solve_secular, values_of


class Deflated(NamedTuple):
    """Poles and weights [M, s] without equal ones, and the rotations [s - 1, M] that made them."""

    poles: Any
    z: Any
    cosines: Any
    sines: Any
    others: Any


def deflate(poles: Any, z: Any, limit: Any, reach: Any, *, keeps_first: bool = False) -> Deflated:
    """Weights of zero where they, or the rotation of two poles into one, change a matrix by at most `limit` [M].

    A weight changes it by `reach` [M] times its size. With `keeps_first` no pole is rotated into the first one.

    Step i has a carried pole and pole i: `c` times one and `s` times the other is left behind, and `o` times one and
    `c` times the other is carried on.
    """

    def step(carried: Any, given: Any) -> Any:
        (pole, z, is_first), (own, own_z) = carried, given
        length = ops.hypot(z, own_z)
        divisor = ops.where(length == 0, 1.0, length)
        cosine, sine = own_z / divisor, -z / divisor
        is_small, is_carried_small = is_negligible(own_z), is_negligible(z)
        is_near = ops.abs((own - pole) * cosine * sine) <= limit
        is_rotated = is_near & ~is_small & ~is_carried_small & ~is_first
        is_passed = is_small & ~is_carried_small
        c = ops.where(is_rotated, cosine, ops.where(is_passed, 0.0, 1.0))
        s = ops.where(is_rotated, sine, ops.where(is_passed, 1.0, 0.0))
        o = ops.where(is_rotated, -sine, s)
        behind = c * c * pole + s * s * own, ops.where(is_passed | is_rotated | is_carried_small, 0.0, z)
        onward = s * s * pole + c * c * own, ops.where(is_rotated, length, ops.where(is_passed, z, own_z))
        return (*onward, is_first & is_passed), (*behind, c, s, o)

    def is_negligible(z: Any) -> Any:
        return ops.abs(z) * reach <= limit

    given = ops.swapaxes(poles, 0, 1), ops.swapaxes(z, 0, 1)
    start = given[0][0], given[1][0], ops.full_like(limit, float(keeps_first)) > 0
    (pole, last, _), (behind, zs, c, s, o) = scan(step, start, (given[0][1:], given[1][1:]))
    last = ops.where(is_negligible(last), 0.0, last)
    poles = ops.concat([ops.swapaxes(behind, 0, 1), pole[:, None]], 1)
    return Deflated(poles, ops.concat([ops.swapaxes(zs, 0, 1), last[:, None]], 1), c, s, o)


def rotate_back(made: Deflated, rows: Any) -> Any:
    """The rows [s, M, k] of vectors by deflated poles as those by the given ones."""

    def step(carried: Any, given: Any) -> Any:
        row, c, s, o = given
        c, s, o = c[:, None], s[:, None], o[:, None]
        return c * row + o * carried, s * row + c * carried

    first, others = scan(step, rows[-1], (rows[:-1], made.cosines, made.sines, made.others), reverse=True)
    return ops.concat([first[None], others], 0)


def _find_roots(values: Any, z: Any) -> tuple[Any, Deflated, Roots, Any]:
    """The order of the poles [M, s], what deflation left of them, the roots, and the order of these."""
    order = ops.argsort(values, -1)
    poles, z = ops.take_along_axis(values, order, -1), ops.take_along_axis(z, order, -1)
    # A part that is small beside the whole, which is near 1, is not solved as if it were alone: its squares vanish.
    largest = ops.maximum(ops.maximum(ops.max(ops.abs(poles), -1), ops.max(z * z, -1)), 1.0)
    made = deflate(poles, z, 8.0 * epsilon_of(dtype_of(values)) * largest, ops.sqrt(ops.sum(z * z, -1)))
    roots = solve_secular(made.poles, made.z)
    return order, made, roots, ops.argsort(values_of(roots), -1)


def make_columns(made: Deflated, roots: Roots, ranks: Any) -> Any:
    """`z_i / (d_i - x_j)` [M, s, s] for the `z` that suits the roots, which are in the order of `ranks`."""
    weights = correct_weights(roots, made.z)
    origin, shift, is_open = (ops.take_along_axis(one, ranks, -1) for one in roots[1:4])
    gaps = distances(Roots(roots.poles, origin, shift, is_open, roots.has_squares))
    is_counted = roots.is_open[:, :, None] & is_open[:, None, :]
    return ops.where(is_counted, weights[:, :, None] / ops.where(is_counted, gaps, 1.0), 0.0)


def place_columns(made: Deflated, columns: Any, ranks: Any, order: Any) -> Any:
    """Vectors of length 1 by the poles that were given, of columns by deflated ones; without any the pole's own.

    `order` is that in which the poles were sorted before they were deflated.
    """
    lengths = ops.sqrt(ops.sum(columns * columns, 1, keepdims=True))
    is_unit = index_of(ranks.shape[-1])[None, :, None] == ranks[:, None, :]
    units = ops.where(is_unit, 1.0, 0.0)
    vectors = ops.where(lengths > 0, columns / ops.where(lengths > 0, lengths, 1.0), units)
    vectors = ops.swapaxes(rotate_back(made, ops.swapaxes(vectors, 0, 1)), 0, 1)
    inverse = ops.broadcast_to(ops.argsort(order, -1)[:, :, None], vectors.shape)
    return ops.take_along_axis(vectors, inverse, 1)


def merge(values: Any, rows: Any, beside: Any, *, needs: str) -> tuple[Any, Any]:
    """Eigenvalues [M, 2, h] and rows of eigenvectors [M, 2, r, h] of pairs as those of wholes: [M, s] and [M, r', s].

    `beside` [M] is what couples a pair. `needs` says which rows are made: "all", "ends" or "none".
    """
    count, _, half = values.shape
    upper, lower = rows[:, 0], rows[:, 1]
    sign = ops.copysign(1.0, beside)[:, None]
    z = ops.concat([upper[:, -1], sign * lower[:, 0]], -1) * ops.sqrt(ops.abs(beside))[:, None]
    order, made, roots, ranks = _find_roots(ops.reshape(values, (count, 2 * half)), z)
    found = ops.take_along_axis(values_of(roots), ranks, -1)
    if needs == "none":
        return found, None
    vectors = place_columns(made, make_columns(made, roots, ranks), ranks, order)
    vectors = ops.reshape(vectors, (count, 2, half, 2 * half))
    if needs == "ends":
        rows = ops.stack([upper[:, 0], lower[:, -1]], 1)[:, :, None]
        return found, (rows @ vectors)[:, :, 0]
    return found, ops.reshape(rows @ vectors, (count, 2 * half, 2 * half))
