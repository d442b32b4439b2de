"""Norms, condition numbers, and products of many matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool
from tessera.frontend.complex.dispatch import is_complex
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, axis_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.linalg.elimination import invert_matrix, solve_matrix
from tessera.linalg.operands import (
    check_choice,
    check_known,
    check_square,
    dtype_of,
    eye_like,
    narrow_floats,
    take_matrix,
    take_square,
    take_tensors,
)
from tessera.linalg.singular import find_singular_values

_DEGREE = 8
"""Of the numerator and the denominator of the Padé approximant of `expm`."""


_MATRIX_NORMS = ("fro", "nuc", 1, -1, 2, -2, 1.0, -1.0, 2.0, -2.0, math.inf, -math.inf)
"""What `ord` of `matrix_norm` may be."""


@narrow_floats(1)
def vector_norm(x: Any, ord: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors along `axis`, an int or several, or of all elements: `sum(|x|^ord)^(1/ord)`.

    `ord` is a number; infinity is the largest magnitude, minus infinity the smallest, and 0 counts what is not zero.
    That of order 2 neither overflows nor vanishes where the elements' squares would.

    >>> ts.linalg.vector_norm(ts.array([3.0, 4.0]))
    Tensor([] f32, 5)
    """
    (x,) = take_tensors("vector_norm", x)
    if isinstance(ord, bool) or not isinstance(ord, int | float):
        raise ArgumentError(f"`vector_norm` takes `ord` as a number, got {ord!r}", fix='use `matrix_norm` for "fro"')
    keepdims = check_bool("vector_norm", "keepdims", keepdims)
    axes = (
        tuple(range(len(x.shape)))
        if axis is None
        else tuple(axis_of("norm", one, len(x.shape)) for one in as_tuple(axis))
    )
    if not axes:
        return ops.astype(x != 0, dtype_of(ops.real(x))) if ord == 0 else ops.abs(x)
    size = ops.abs(x)
    if ord == math.inf:
        return _largest(size, axes, keepdims)
    if ord == -math.inf:
        return ops.min(size, axes, keepdims=keepdims)
    if ord == 0:
        return ops.sum(ops.astype(size != 0, dtype_of(size)), axes, keepdims=keepdims)
    if ord == 1:
        return ops.sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return _euclidean(size, axes, keepdims)
    total = ops.sum(ops.pow(size, float(ord)), axes, keepdims=keepdims)
    # A root has no derivative at zero: there it counts as zero, as that of order 2 does.
    return ops.where(total == 0, 0.0 if ord > 0 else math.inf, ops.pow(ops.where(total == 0, 1.0, total), 1.0 / ord))


def _is_empty(x: Any, axes: tuple[int, ...]) -> bool:
    """Whether an axis is known to have no elements."""
    sizes = [x.shape[at] for at in axes]
    return any(isinstance(size, int) and size == 0 for size in sizes)


def _largest(size: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest magnitude, of no elements 0."""
    return (ops.sum if _is_empty(size, axes) else ops.max)(size, axes, keepdims=keepdims)


def _euclidean(size: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The root of the sum of squares, of elements scaled to at most 1; its derivative at zero is zero."""
    if _is_empty(size, axes):
        return ops.sum(size, axes, keepdims=keepdims)
    from tessera.api.autodiff import stop_gradient  # noqa: PLC0415 - loads what takes derivatives

    largest = stop_gradient(ops.max(size, axes, keepdims=True))
    is_usual = (largest > 0) & ops.isfinite(largest)
    # A power of two scales without rounding.
    scale = ops.where(is_usual, ops.exp2(ops.floor(ops.log2(ops.where(is_usual, largest, 1.0)))), 1.0)
    scaled = size / scale
    total = ops.sum(scaled * scaled, axes, keepdims=True)
    root = ops.where(total == 0, 0.0, ops.sqrt(ops.where(total == 0, 1.0, total))) * scale
    return root if keepdims else ops.squeeze(root, axes)


@narrow_floats(1)
def matrix_norm(x: Any, ord: Any = "fro", keepdims: bool = False) -> Any:
    """The norm of matrices [..., M, N].

    `ord` is "fro" (the root of the sum of squares), "nuc" (the sum of singular values), 2 or -2 (the largest or the
    smallest of them), 1 or -1 (the largest or smallest sum of magnitudes of a column), inf or -inf (of a row). Those
    by singular values take matrices of known sizes.

    >>> ts.linalg.matrix_norm(ts.array([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    Tensor([] f32, 6)
    """
    (x,) = take_tensors("matrix_norm", x)
    if len(x.shape) < 2:
        raise ShapeError(f"`matrix_norm` takes matrices, in the last two dims, got {list(x.shape)}")
    rank, keepdims = len(x.shape), check_bool("matrix_norm", "keepdims", keepdims)
    check_choice("matrix_norm", "ord", ord, _MATRIX_NORMS)
    if ord == "fro":
        return vector_norm(x, 2, (rank - 2, rank - 1), keepdims)
    if ord in ("nuc", 2, -2):
        s = find_singular_values(take_matrix("matrix_norm", x))
        if not s.shape[-1]:
            made = ops.sum(s, -1)
        else:
            made = ops.sum(s, -1) if ord == "nuc" else s[..., 0] if ord == 2 else s[..., -1]
        return made[..., None, None] if keepdims else made
    sums = ops.sum(ops.abs(x), -2 if abs(ord) == 1 else -1, keepdims=True)
    axes = (rank - 2, rank - 1)
    if ord > 0 or _is_empty(sums, axes):
        return _largest(sums, axes, keepdims)
    return ops.min(sums, axes, keepdims=keepdims)


@narrow_floats(1)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors or matrices, as in NumPy.

    Without `ord` it is the root of the sum of squares over `axis`, or of all elements. With one, `axis` is an int for
    vectors (`vector_norm`) or a pair for matrices (`matrix_norm`), and may be left out where `x` has one or two dims.

    >>> ts.linalg.norm(ts.array([[3.0, 0.0], [0.0, 4.0]]), "nuc")
    Tensor([] f32, 7)
    """
    (x,) = take_tensors("norm", x)
    rank = len(x.shape)
    if ord is None:
        return vector_norm(x, 2, axis, keepdims)
    if axis is None and rank not in (1, 2):
        raise ArgumentError(f"`norm` with `ord` takes an `axis` for {rank} dims", fix="write `axis=-1` for vectors")
    axes = tuple(range(rank)) if axis is None else tuple(axis_of("norm", one, rank) for one in as_tuple(axis))
    if len(axes) == 1:
        return vector_norm(x, ord, axes, keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentError(f"`norm` takes `axis` as one or two different axes, got {axis!r}")
    others = [at for at in range(rank) if at not in axes]
    made = matrix_norm(ops.transpose(x, (*others, *axes)), ord)
    return ops.expand_dims(made, tuple(sorted(axes))) if keepdims else made


@narrow_floats(1)
def cond(x: Any, p: Any = None) -> Any:
    """The condition number of matrices: `|x| |x^-1|` in the norm `p`, by default 2, the ratio of singular values.

    With 2 or -2 matrices may have any shape; other norms are those of `matrix_norm`, of square ones. Of a singular
    matrix it is inf.

    >>> ts.linalg.cond(ts.array([[4.0, 0.0], [0.0, 2.0]]))
    Tensor([] f32, 2)
    """
    x = take_matrix("cond", x)
    if p is None or (isinstance(p, int | float) and p in (2, -2)):
        s = find_singular_values(x)
        if not s.shape[-1]:
            raise ShapeError(f"`cond` takes matrices with elements, got {list(x.shape)}")
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        check_square("cond", x, "x")
        found = matrix_norm(x, p) * matrix_norm(invert_matrix(x), p)
    # Of a singular matrix the inverse has NaNs, of a matrix with NaNs the norm; the ratio of one of zeros is NaN.
    is_known = ops.isnan(found) & ~ops.any(ops.isnan(ops.abs(x)), (-2, -1))
    return ops.where(is_known, math.inf, found)


@narrow_floats(1)
def matrix_power(a: Any, n: Any) -> Any:
    """`a` multiplied with itself n times, by repeated squares; the inverse's power for a negative n, 1 for 0.

    >>> ts.linalg.matrix_power(ts.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    Tensor([2, 2] f32, [[1, 5], [0, 1]])
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise ArgumentError(f"`matrix_power` takes `n` as an int, got {n!r}")
    if not is_complex(a) and dtype_of(as_tensor(a)).is_integer and n >= 0:
        a = as_tensor(a)  # products of integers are exact
        if len(a.shape) < 2:
            raise ShapeError(f"`matrix_power` takes matrices, in the last two dims, got {list(a.shape)}")
    else:
        a = take_square("matrix_power", a)
    check_known("matrix_power", a, -1, "a")
    check_square("matrix_power", a)
    if n == 0:
        return ops.broadcast_to(eye_like(a), tuple(a.shape))
    square, left, made = invert_matrix(a) if n < 0 else a, abs(n), None
    while left:
        if left % 2:
            made = square if made is None else made @ square
        left //= 2
        square = square @ square if left else square
    return made


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of two or more matrices, multiplied in the order that takes the fewest operations.

    The first and the last may be vectors: a row and a column, whose dim the result does not have. Sizes are known.

    >>> ts.linalg.multi_dot([ts.ones((2, 3)), ts.ones((3, 4)), ts.ones(4)])
    Tensor([2] f32, [12, 12])
    """
    if not is_sequence(arrays) or len(arrays) < 2:
        raise ArgumentError("`multi_dot` takes a list of at least two matrices", fix="write `multi_dot([a, b])`")
    given = take_tensors("multi_dot", *arrays)
    is_row, is_column = len(given[0].shape) == 1, len(given[-1].shape) == 1
    given[0] = given[0][None] if is_row else given[0]
    given[-1] = given[-1][:, None] if is_column else given[-1]
    for at, one in enumerate(given):
        if len(one.shape) != 2:
            raise ShapeError(f"`multi_dot` takes matrices, of two dims, got {list(one.shape)} as number {at}")
    sizes = [check_known("multi_dot", one, 0, "arrays") for one in given]
    sizes.append(check_known("multi_dot", given[-1], 1, "arrays"))
    made = _multiply(given, _best_splits(sizes), 0, len(given) - 1)
    made = made[0] if is_row else made
    return made[..., 0] if is_column else made


def _best_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """For each run of matrices, after which of them it is best split (Godbole's dynamic program)."""
    count = len(sizes) - 1
    cost = {(at, at): 0 for at in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for low in range(count - length):
            high = low + length
            choices = {
                at: cost[low, at] + cost[at + 1, high] + sizes[low] * sizes[at + 1] * sizes[high + 1]
                for at in range(low, high)
            }
            split[low, high] = min(choices, key=lambda at: choices[at])
            cost[low, high] = choices[split[low, high]]
    return split


def _multiply(given: Sequence[Any], split: dict[tuple[int, int], int], low: int, high: int) -> Any:
    if low == high:
        return given[low]
    at = split[low, high]
    return _multiply(given, split, low, at) @ _multiply(given, split, at + 1, high)


@narrow_floats(1)
def expm(a: Any, *, max_squarings: int = 32) -> Any:
    """The exponential of square matrices [..., N, N], by scaling and squaring a Padé approximant of degree 8.

    Each matrix is halved until its 1-norm is below 1/2, and the result squared as often. A matrix that would need more
    than `max_squarings` gives NaN.

    >>> ts.linalg.expm(ts.zeros((2, 2)))
    Tensor([2, 2] f32, [[1, 0], [0, 1]])
    """
    from tessera.api.autodiff import stop_gradient  # noqa: PLC0415 - loads what takes derivatives
    from tessera.api.control import scan  # noqa: PLC0415 - loads tracing

    a = take_square("expm", a)
    if not a.shape[-1]:
        return a
    size = stop_gradient(matrix_norm(a, 1))[..., None, None]
    halvings = ops.where(size > 0.5, ops.ceil(ops.log2(ops.where(size > 0.5, size, 1.0))) + 1.0, 0.0)
    is_usual = halvings <= max_squarings
    scaled = a * ops.exp2(-ops.where(is_usual, halvings, 0.0))
    identity = ops.broadcast_to(eye_like(a), tuple(a.shape))
    top, bottom, power, factor = identity, identity, identity, 1.0
    for at in range(1, _DEGREE + 1):
        factor *= (_DEGREE - at + 1) / (at * (2 * _DEGREE - at + 1))
        power = power @ scaled
        top, bottom = top + factor * power, bottom + (factor if at % 2 == 0 else -factor) * power

    def square(x: Any, trip: Any) -> Any:
        return ops.where(ops.astype(trip, dtype_of(halvings)) < halvings, x @ x, x), None

    made = scan(square, solve_matrix(bottom, top), ops.iota((max_squarings,)))[0]
    return ops.where(is_usual, made, math.nan)
