"""Hermitian matrices as tridiagonal ones, by reflections of blocks of columns.

A reflection `1 - tau v v^H` from both sides takes `v w^H + w v^H` off a matrix, where `w` is made of the product of the
matrix with `v`. Within a block nothing is taken off: the columns of `V` and `W` are kept, and a product with the matrix
is that with the one before the block, less `V (W^H x) + W (V^H x)`. After a block one matmul takes all of it off what
is left, which is smaller by the block. So half of all operations are matmuls, and the others read a matrix that stays
as it is, once for each column.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera.api.control import scan
from tessera.frontend.functions import public as ops
from tessera.linalg.operands import adjoint, dtype_of, index_of
from tessera.linalg.orthogonal import join_reflections
from tessera.types.dtype import DType

BLOCK = 16
"""Columns of a block: wider ones take longer over `V` and `W` than they save."""
BLOCKS = 16
"""Blocks at most, so that programs of large matrices are no longer."""


class Panel(NamedTuple):
    """A block of columns: diagonal and what is beside it, [B, k]; vectors as rows [B, k, m], and their factors."""

    diagonal: Any
    beside: Any
    vectors: Any
    factors: Any


def block_width(size: int) -> int:
    """Columns of a block of matrices with so many."""
    return max(BLOCK, -(-size // (BLOCKS * 8)) * 8)


def tiny_of(dtype: DType) -> float:
    """Squares of lengths that count as zero beside a matrix whose largest element is near 1."""
    return 2.0**-960 if dtype.name == "f64" else 2.0**-100


def reflect_scaled(x: Any, at: Any, index: Any) -> tuple[Any, Any, Any]:
    """What `orthogonal.reflect` gives, for [B, m] columns of a matrix whose largest element is near 1.

    Squares need no scale there: elements whose squares vanish are nothing beside the rounding of the matrix.
    """
    rest = ops.where(index > at, x, 0.0)
    size = ops.abs(rest)
    squares = ops.sum(size * size, -1, keepdims=True)
    alpha = ops.sum(ops.where(index == at, x, 0.0), -1, keepdims=True)
    magnitude, real = ops.abs(alpha), ops.real(alpha)
    tiny = tiny_of(dtype_of(real))
    is_done = (squares <= tiny) & ((alpha == real) | (magnitude * magnitude <= tiny))
    length = ops.sqrt(squares + magnitude * magnitude)
    beta = ops.where(is_done, real, ops.where(real > 0, -length, length))
    tau = ops.where(is_done, 0.0, (beta - alpha) / ops.where(is_done, 1.0, beta))
    v = ops.where(index == at, 1.0, rest / ops.where(is_done, 1.0, alpha - beta))
    return ops.where(is_done, 0.0, v), tau, beta


def _times(rows: Any, x: Any) -> Any:
    """[B, k, m] rows, each times [B, m]."""
    return ops.sum(rows * x[:, None, :], -1)


def sum_rows(weights: Any, rows: Any) -> Any:
    """[B, k] times [B, k, m] rows."""
    return (weights[:, None, :] @ rows)[:, 0]


def _reduce_panel(a: Any, width: int) -> tuple[Panel, Any]:
    """The first columns of [B, m, m], and the rows of `W` that go with their vectors."""
    index = index_of(a.shape[-1])

    def reduce_column(state: Any, j: Any) -> Any:
        vs, ws = state
        own_v, own_w = ops.conj(ops.take(vs, j, 2)), ops.conj(ops.take(ws, j, 2))
        column = ops.take(a, j, 2) - sum_rows(own_w, vs) - sum_rows(own_v, ws)
        v, tau, beta = reflect_scaled(column, j + 1, index)
        # Of a Hermitian matrix rows are as good as columns, and a sum of rows is quicker.
        product = ops.conj((ops.conj(v)[:, None, :] @ a)[:, 0])
        product = product - sum_rows(_times(ops.conj(ws), v), vs) - sum_rows(_times(ops.conj(vs), v), ws)
        moved = ops.where(index > j, tau * product, 0.0)
        shared = ops.sum(ops.conj(moved) * v, -1, keepdims=True)
        moved = moved - 0.5 * tau * shared * v
        diagonal = ops.real(ops.take(column, j, 1))
        return (vs.at[:, j].set(v), ws.at[:, j].set(moved)), (diagonal, ops.real(beta)[:, 0], tau[:, 0])

    none = ops.zeros((a.shape[0], width, a.shape[-1]), dtype_of(a))
    (vs, ws), made = scan(reduce_column, (none, none), index_of(width))
    diagonal, beside, factors = (ops.swapaxes(one, 0, 1) for one in made)
    return Panel(diagonal, beside, vs, factors), ws


def reduce_to_tridiagonal(a: Any) -> tuple[Any, Any, list[Panel]]:
    """[B, n, n] Hermitian matrices as `Q T Q^H`: the diagonal of `T`, what is beside it [B, n], and what makes `Q`.

    The last element beside the diagonal is zero. The largest element of a matrix is to be near 1.
    """
    width, panels = block_width(a.shape[-1]), list[Panel]()
    while a.shape[-1]:
        count = min(width, a.shape[-1])
        panel, ws = _reduce_panel(a, count)
        panels.append(panel)
        vs, ws = panel.vectors[:, :, count:], ws[:, :, count:]
        both = ops.concat([vs, ws], 1)
        other = ops.concat([ops.conj(ws), ops.conj(vs)], 1)
        a = a[:, count:, count:] - ops.swapaxes(both, 1, 2) @ other
    diagonal, beside = (ops.concat([panel[at] for panel in panels], 1) for at in (0, 1))
    return diagonal, beside, panels


def apply_panels(panels: list[Panel], x: Any) -> Any:
    """`Q x` for [B, n, k]."""
    rows = x.shape[1]
    for panel in reversed(panels):
        start = rows - panel.vectors.shape[-1]
        v = ops.swapaxes(panel.vectors, 1, 2)
        part = x[:, start:]
        made = part - v @ (join_reflections(v, panel.factors) @ (adjoint(v) @ part))
        x = ops.concat([x[:, :start], made], 1) if start else made
    return x
