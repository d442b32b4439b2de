"""Square matrices as upper bidiagonal ones, by reflections of blocks of columns and rows.

Reflections from the left and from the right take turns: each makes one column, or one row, of its final form. Within a
block the matrix stays as it is, and what the reflections so far take off it is kept as `V Y^H + X U^H`: `V` and `U`
are their vectors, `Y` and `X` products of the matrix with these. After a block one matmul takes all of it off what is
left, as in `tridiagonal`.
"""

from __future__ import annotations

from typing import Any

from tessera.api.control import scan
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import dtype_of, index_of
from tessera.linalg.tridiagonal import Panel, block_width, reflect_scaled, sum_rows


def _inner(rows: Any, x: Any) -> Any:
    """[B, k, m] rows, conjugated, times [B, m]."""
    return ops.conj(ops.sum(rows * ops.conj(x)[:, None, :], -1))


def _reduce_panel(a: Any, width: int) -> tuple[Panel, Panel, Any, Any]:
    """The first columns and rows of [B, m, m]: panels from the left and from the right, and the rows of `Y` and `X`."""
    index, turned = index_of(a.shape[-1]), ops.swapaxes(a, 1, 2)

    def reduce_both(state: Any, j: Any) -> Any:
        vs, ys, xs, us = state
        own_y, own_u, own_v, own_x = (ops.conj(ops.take(rows, j, 2)) for rows in (ys, us, vs, xs))
        v, left, diagonal = reflect_scaled(ops.take(a, j, 2) - sum_rows(own_y, vs) - sum_rows(own_u, xs), j, index)
        product = ops.conj(sum_rows(ops.conj(v), a))
        product = product - sum_rows(_inner(vs, v), ys) - sum_rows(_inner(xs, v), us)
        y = ops.where(index > j, left * product, 0.0)
        row = ops.conj(ops.take(a, j, 1)) - sum_rows(own_v, ys) - sum_rows(own_x, us) - y
        u, right, beside = reflect_scaled(row, j + 1, index)
        product = sum_rows(u, turned)
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
