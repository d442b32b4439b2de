"""Functions of NumPy that lay tensors out: along a first, second or third axis, on diagonals, in parts, rotated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, AxisError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_repeats
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.algebra import meshgrid
from tessera.frontend.functions.contraction import diagonal
from tessera.frontend.functions.creation import iota, ones_like
from tessera.frontend.functions.indexing import getitem
from tessera.frontend.functions.movement import (
    concat,
    expand_dims,
    flip,
    moveaxis,
    pad,
    reshape,
    split,
    stack,
    swapaxes,
)
from tessera.frontend.functions.operands import as_tensor, axis_of, dims_of, promote_operands, rank_of, shape_dims
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import Size, size_of
from tessera.types.dtype import i32, i64
from tessera.types.shape import is_refuted

# Axes that are not there.


def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one axis; of one the tensor itself, of several a tuple.

    >>> ts.ops.atleast_1d(ts.array(2.0))
    Tensor([1] f32, [2])
    """
    return _each(tensors, _with_an_axis)


def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two axes; a vector becomes a row.

    >>> ts.ops.atleast_2d(ts.array([1.0, 2.0]))
    Tensor([1, 2] f32, [[1, 2]])
    """
    return _each(tensors, _with_two_axes)


def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three axes: a vector [N] becomes [1, N, 1], and a matrix gets a last axis.

    >>> ts.ops.atleast_3d(ts.array([1.0, 2.0])).shape
    (1, 2, 1)
    """
    return _each(tensors, _with_three_axes)


def _each(tensors: Sequence[Any], function: Any) -> Any:
    made = tuple(function(as_tensor(one)) for one in tensors)
    return made[0] if len(made) == 1 else made


def _with_an_axis(x: Any) -> Any:
    return reshape(x, (1,)) if rank_of(x) == 0 else x


def _with_two_axes(x: Any) -> Any:
    return reshape(x, (1, 1)) if rank_of(x) == 0 else expand_dims(x, 0) if rank_of(x) == 1 else x


def _with_three_axes(x: Any) -> Any:
    wide = _with_two_axes(x)
    return expand_dims(wide, 2) if rank_of(wide) == 2 else wide


def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """The shape that shapes broadcast to; sizes may be symbolic.

    >>> ts.ops.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    listed = [dims_of(shape) for shape in shapes]
    rank = max(map(len, listed), default=0)
    made: list[Any] = [1] * rank
    for dims in listed:
        for axis, dim in enumerate(dims, rank - len(dims)):
            if dim.value == 1:
                continue
            own = dims_of(made[axis])[0]
            if own.value != 1 and is_refuted(own, dim):
                raise ShapeError(
                    f"shapes {', '.join(str(list(one)) for one in listed)} do not broadcast: {own} and {dim} differ"
                )
            made[axis] = size_of(dim)
    return tuple(made)


# Joining and cutting along an axis that a name says.


def _promote_list(op: str, tensors: Any) -> list[Any]:
    if not is_sequence(tensors) or not tensors:
        raise ShapeError(f"`{op}` takes a list of at least one tensor, got {tensors!r}", fix=f"write `{op}([a, b])`")
    return promote_operands(op, list(tensors))


def hstack(tensors: Sequence[Any]) -> Any:
    """Tensors joined along their second axis, vectors along their only one.

    >>> ts.ops.hstack([ts.array([1, 2]), ts.array([3])])
    Tensor([3] i64, [1, 2, 3])
    """
    listed = [atleast_1d(one) for one in _promote_list("hstack", tensors)]
    return concat(listed, 0 if rank_of(listed[0]) == 1 else 1)


def vstack(tensors: Sequence[Any]) -> Any:
    """Tensors joined along their first axis; vectors are rows.

    >>> ts.ops.vstack([ts.array([1, 2]), ts.array([3, 4])])
    Tensor([2, 2] i64, [[1, 2],
                        [3, 4]])
    """
    return concat([_with_two_axes(one) for one in _promote_list("vstack", tensors)], 0)


def dstack(tensors: Sequence[Any]) -> Any:
    """Tensors joined along a third axis, which vectors and matrices get.

    >>> ts.ops.dstack([ts.array([1, 2]), ts.array([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return concat([_with_three_axes(one) for one in _promote_list("dstack", tensors)], 2)


def column_stack(tensors: Sequence[Any]) -> Any:
    """Vectors as columns, and matrices, side by side.

    >>> ts.ops.column_stack([ts.array([1, 2]), ts.array([3, 4])])
    Tensor([2, 2] i64, [[1, 3],
                        [2, 4]])
    """
    listed = _promote_list("column_stack", tensors)
    return concat([reshape(one, (-1, 1)) if rank_of(one) < 2 else one for one in listed], 1)


def array_split(x: Any, parts: Any, axis: int = 0) -> tuple[Any, ...]:
    """`x` cut along `axis` into that many parts, the first ones larger by one, or at the indices given.

    >>> [part.shape for part in ts.ops.array_split(ts.ones((7,)), 3)]
    [(3,), (2,), (2,)]
    """
    at = axis_of("array_split", axis, rank_of(x))
    size = shape_dims(x)[at].value
    if size is None:
        raise ShapeError(f"`array_split` needs a size that is a number, got `x.shape[{at}] = {shape_dims(x)[at]}`")
    if not is_sequence(parts):
        count = check_repeats("array_split", "parts", parts)
        each, larger = divmod(size, count)
        return split(x, [each + (number < larger) for number in range(count)], at)
    ends = [check_int("array_split", "parts", one) for one in as_tuple(parts)]
    made: list[Any] = []
    for start, stop in zip([0, *ends], [*ends, size], strict=True):
        made.append(getitem(x, (slice(None),) * at + (slice(start, stop),)))
    return tuple(made)


# Diagonals and rotations.


def diag(x: Any, offset: int = 0) -> Any:
    """A matrix with a vector on its diagonal, moved up by `offset`, or the diagonal of a matrix.

    >>> ts.ops.diag(ts.array([1, 2]))
    Tensor([2, 2] i64, [[1, 0],
                        [0, 2]])
    """
    if rank_of(x) not in (1, 2):
        raise ShapeError(
            f"`diag` takes a vector or a matrix, got a tensor of {rank_of(x)} dims",
            fix="write `tessera.ops.diag_embed(x)`, or `tessera.ops.diagonal(x)`, for a batch of them",
        )
    return diag_embed(x, offset) if rank_of(x) == 1 else diagonal(x, offset=offset)


def diag_embed(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Matrices along two new axes, with the vectors along the last axis of `x` on diagonals moved up by `offset`.

    >>> ts.ops.diag_embed(ts.array([[1], [2]]), 1).tolist()
    [[[0, 1], [0, 0]], [[0, 2], [0, 0]]]
    """
    if rank_of(x) < 1:
        raise ShapeError("`diag_embed` takes vectors along the last axis, got a scalar")
    by = check_int("diag_embed", "offset", offset)
    first, second = (axis_of("diag_embed", axis, rank_of(x) + 1) for axis in (axis1, axis2))
    if first == second:
        raise AxisError(f"`diag_embed` got axis {first} twice")
    around = [(0, 0)] * (rank_of(x) - 1)
    along = pad(x, [*around, (abs(by), 0) if by > 0 else (0, abs(by))]) if by else x
    size = along.shape[-1]
    # A row of the matrix has an element where its column is `offset` from it.
    wide = i32 if isinstance(size, int) and size < 1 << 30 else i64
    apart = e.sub(iota((1, size), 1, wide), iota((size, 1), 0, wide))
    made = e.cast_like(e.where(e.eq(apart, by), expand_dims(along, -2), 0), x)
    # The two new axes are the last ones so far.
    if first > second:
        made, first, second = swapaxes(made, -1, -2), second, first
    return moveaxis(moveaxis(made, -2, first), -1, second)


def rot90(x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """`x` rotated by `k` right angles in the plane of two axes, from the first to the second.

    >>> ts.ops.rot90(ts.array([[1, 2], [3, 4]]))
    Tensor([2, 2] i64, [[2, 4],
                        [1, 3]])
    """
    pair = [axis_of("rot90", axis, rank_of(x)) for axis in as_tuple(axes)]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise AxisError(f"`rot90` takes two different axes, got {axes!r}")
    angles = check_int("rot90", "k", k) % 4
    if angles == 2:
        return flip(flip(x, pair[0]), pair[1])
    if angles == 0:
        return x
    return flip(swapaxes(x, *pair), pair[0]) if angles == 1 else swapaxes(flip(x, pair[0]), *pair)


def vander(x: Any, n: int | None = None, *, increasing: bool = False) -> Any:
    """The powers of each element of `x` along a new last axis, from `n - 1` down to 0, or from 0 up.

    >>> ts.ops.vander(ts.array([2, 3]), 3)
    Tensor([2, 3] i64, [[4, 2, 1],
                        [9, 3, 1]])
    """
    if rank_of(x) < 1:
        raise ShapeError("`vander` takes numbers along the last axis, got a scalar")
    size = shape_dims(x)[-1].value if n is None else n
    if size is None:
        raise ArgumentError("`vander` needs `n` where the size is no number", fix="write `n=3`")
    size = check_repeats("vander", "n", size, 0)
    is_rising = check_bool("vander", "increasing", increasing)
    powers: list[Any] = []
    for _ in range(max(size, 1)):
        # Products, which have a derivative at 0.
        powers.append(e.mul(powers[-1], x) if powers else ones_like(x))
    made = stack(powers if is_rising else powers[::-1], -1)
    return getitem(made, (Ellipsis, slice(0, 0))) if size == 0 else made


def cartesian_prod(*tensors: Any) -> Any:
    """All combinations of an element of each of several rows, as rows of a matrix; of one row itself.

    >>> ts.ops.cartesian_prod(ts.array([1, 2]), ts.array([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    listed = _promote_list("cartesian_prod", tensors)
    for one in listed:
        if rank_of(one) != 1:
            raise ShapeError(f"`cartesian_prod` takes rows, got a tensor of {rank_of(one)} dims")
    if len(listed) == 1:
        return listed[0]
    return stack([reshape(one, (-1,)) for one in meshgrid(*listed, indexing="ij")], 1)


# Positions as one number, and as one for each axis.


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Positions in row-major order as positions along each axis of a shape; negative ones count from the end.

    >>> [one.tolist() for one in ts.ops.unravel_index(ts.array([1, 5]), (2, 3))]
    [[0, 1], [1, 2]]
    """
    sizes = [one if isinstance(one, Size) else check_int("unravel_index", "shape", one) for one in as_tuple(shape)]
    found, left = list[Any](), as_tensor(indices)
    for size in reversed(sizes):
        found.append(e.mod(left, size))
        left = e.floordiv(left, size)
    return tuple(reversed(found))


def ravel_multi_index(indices: Sequence[Any], shape: Any) -> Any:
    """Positions along each axis of a shape as positions in row-major order; they broadcast, and are not checked.

    >>> ts.ops.ravel_multi_index((ts.array([0, 1]), ts.array([1, 2])), (2, 3))
    Tensor([2] i64, [1, 5])
    """
    sizes = [one if isinstance(one, Size) else check_int("ravel_multi_index", "shape", one) for one in as_tuple(shape)]
    if not is_sequence(indices) or len(indices) != len(sizes) or not sizes:
        raise ArgumentError(f"`ravel_multi_index` takes positions along each of {len(sizes)} axes, got {indices!r}")
    made: Any = None
    for at, size in zip(indices, sizes, strict=True):
        made = as_tensor(at) if made is None else e.add(e.mul(made, size), at)
    return made


__all__ = [
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "cartesian_prod", "column_stack",
    "diag", "diag_embed", "dstack", "hstack", "ravel_multi_index", "rot90", "unravel_index", "vander", "vstack",
]  # fmt: skip
