"""Products of tensors written with `dot_general` and broadcasting: outer, Kronecker, cross, distances, grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_choice, check_int, check_number
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.contraction import dot_general
from tessera.frontend.functions.creation import iota, zeros
from tessera.frontend.functions.indexing import getitem
from tessera.frontend.functions.movement import (
    broadcast_to,
    concat,
    expand_dims,
    moveaxis,
    pad,
    reshape,
    squeeze,
)
from tessera.frontend.functions.operands import (
    as_tensor,
    axis_of,
    cast,
    dtype_of,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.functions.reduction import max as max_of
from tessera.frontend.functions.reduction import sum as sum_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import size_of
from tessera.ir.base.dispatch import apply
from tessera.ir.base.interval import largest_of
from tessera.types.dim import Dim
from tessera.types.dtype import f64, i32, i64
from tessera.types.promotion import FLOATING


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sums of products over paired axes: the last `axes` of `a` and first of `b`, or two lists of axes.

    >>> ts.ops.tensordot(ts.array([[1.0, 2.0], [3.0, 4.0]]), ts.array([[1.0, 0.0], [0.0, 1.0]]), 2)
    Tensor([] f32, 5)
    """
    left, right = promote_operands("tensordot", (a, b))
    if is_sequence(axes):
        pairs = as_tuple(axes)
        if len(pairs) != 2:
            raise ArgumentError(f"`tensordot` takes `axes` as a number or two lists of axes, got {axes!r}")
        first, second = (
            tuple(axis_of("tensordot", axis, rank_of(one)) for axis in (as_tuple(given)))
            for given, one in zip(pairs, (left, right), strict=True)
        )
    else:
        count = check_int("tensordot", "axes", axes)
        if not 0 <= count <= min(rank_of(left), rank_of(right)):
            raise ArgumentError(
                f"`tensordot` cannot pair {count} axes of tensors of {rank_of(left)} and {rank_of(right)} dims"
            )
        first = tuple(range(rank_of(left) - count, rank_of(left)))
        second = tuple(range(count))
    if len(first) != len(second):
        raise ArgumentError(f"`tensordot` pairs axes, got {len(first)} of `a` and {len(second)} of `b`")
    return dot_general(left, right, contract=(first, second))


def outer(a: Any, b: Any) -> Any:
    """Each element of `a` times each of `b`, both as rows: a matrix.

    >>> ts.ops.outer(ts.array([1.0, 2.0]), ts.array([3.0, 4.0]))
    Tensor([2, 2] f32, [[3, 4],
                        [6, 8]])
    """
    return e.mul(expand_dims(reshape(a, (-1,)), 1), reshape(b, (-1,)))


def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    """The sum of products along `axis`, counted from the end of both; other axes broadcast.

    >>> ts.ops.vecdot(ts.array([[1.0, 2.0], [3.0, 4.0]]), ts.array([1.0, 10.0]))
    Tensor([2] f32, [21, 43])
    """
    left, right = promote_operands("vecdot", (a, b))
    dtype = dtype_of(left)
    at = check_int("vecdot", "axis", axis)
    left, right = moveaxis(left, at, -1), moveaxis(right, at, -1)
    if shape_dims(left)[-1] != shape_dims(right)[-1] and None not in (
        shape_dims(left)[-1].value,
        shape_dims(right)[-1].value,
    ):
        raise ShapeError(f"`vecdot` needs axes of one size, got {left.shape[-1]} and {right.shape[-1]}")
    wide = dtype.compute if dtype.is_float else dtype
    return cast(sum_of(e.mul(cast(left, wide), cast(right, wide)), -1), dtype)


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product: `b` times each element of `a`, laid out as `a` is.

    >>> ts.ops.kron(ts.array([1.0, 10.0]), ts.array([1.0, 2.0]))
    Tensor([4] f32, [1, 2, 10, 20])
    """
    left, right = promote_operands("kron", (a, b))
    own = shape_dims(left), shape_dims(right)
    rank = max(map(len, own))
    # Dims of both alternate: those of `a` at even positions, those of `b` at odd ones, where they have any.
    at = [[2 * (rank - len(dims) + i) + side for i in range(len(dims))] for side, dims in enumerate(own)]
    apart = e.mul(*(expand_dims(x, _others(kept, 2 * rank)) for x, kept in zip((left, right), at, strict=True)))
    wide = [(*[Dim.constant(1)] * (rank - len(dims)), *dims) for dims in own]
    return reshape(apart, [size_of(x * y) for x, y in zip(*wide, strict=True)])


def _others(kept: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if axis not in kept)


def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """The vector product of vectors of three along `axis`; other axes broadcast.

    >>> ts.ops.cross(ts.array([1.0, 0.0, 0.0]), ts.array([0.0, 1.0, 0.0]))
    Tensor([3] f32, [0, 0, 1])
    """
    left, right = promote_operands("cross", (a, b))
    at = check_int("cross", "axis", axis)
    left, right = moveaxis(left, at, -1), moveaxis(right, at, -1)
    sizes = [shape_dims(one)[-1].value for one in (left, right)]
    if sizes != [3, 3]:
        raise ShapeError(f"`cross` takes vectors of 3, got {sizes[0]} and {sizes[1]}")

    place = iota((3,))

    def shift(x: Any, by: int) -> Any:
        # Rows of three fill no vector: each element is chosen among the parts that its row has at hand.
        parts = [getitem(x, (..., slice((at + by) % 3, (at + by) % 3 + 1))) for at in range(3)]
        return e.where(e.eq(place, 0), parts[0], e.where(e.eq(place, 1), parts[1], parts[2]))

    made = e.sub(e.mul(shift(left, 1), shift(right, 2)), e.mul(shift(left, 2), shift(right, 1)))
    return moveaxis(made, -1, at)


def cdist(x: Any, y: Any, p: float = 2.0) -> Any:
    """Distances between all rows of `x` [..., N, D] and all of `y` [..., M, D], by the `p`-norm.

    Computed from differences, not from squares, so that near rows have all their digits. `p=0` counts coordinates that
    differ. Where two coordinates are equal the gradient by them is 0. For the 2-norm one power of two scales all rows,
    so that squares are in range: distances below 2**-110 times the largest coordinate (2**-900 in f64) lose digits.

    >>> ts.ops.cdist(ts.array([[0.0, 0.0]]), ts.array([[3.0, 4.0], [0.0, 0.0]]))
    Tensor([1, 2] f32, [[5, 0]])
    """
    order = check_number("cdist", "p", p)
    x, y = promote_operands("cdist", (x, y), FLOATING)
    if rank_of(x) < 2 or rank_of(y) < 2:
        raise ShapeError(f"`cdist` takes rows of vectors, got tensors of {rank_of(x)} and {rank_of(y)} dims")
    if not order >= 0.0:
        raise ArgumentError(f"`cdist` takes `p` from 0 up, got {order}")
    own = dtype_of(x)
    wide = own.compute
    x, y = cast(expand_dims(x, -2), wide), cast(expand_dims(y, -3), wide)
    if order != 2.0:
        apart = e.sub(x, y)
        return cast(norm_of_rows(apart, e.eq(apart, 0.0), order), own)
    scale, back = scales_of_all((x, y), (-3, -2, -1))
    return cast(e.mul(length_of_rows(e.sub(e.mul(x, scale), e.mul(y, scale))), squeeze(back, -1)), own)


def scales_of_all(parts: Sequence[Any], axes: tuple[int, ...]) -> tuple[Any, Any]:
    """A power of two that brings the largest finite element to where no sum of squares overflows; and one over it.

    It is of all along some axes, which it keeps; derivatives do not flow through it.
    """
    dtype = dtype_of(parts[0])
    bits, integer, bias = (52, i64, 1023) if dtype is f64 else (23, i32, 127)
    most = bias // 2 - 12  # a difference is twice as large at most, and a sum has up to 2**20 squares
    largest: Any = zeros((1,) * len(axes), dtype)
    for part in parts:
        size = e.abs(apply("stop_gradient", (part,)))
        if all(dim.value != 0 for dim in shape_dims(size)[-len(axes) :]):
            finite = e.where(e.lt(size, float("inf")), size, 0.0)
            largest = e.maximum(largest, max_of(finite, axes, keepdims=True))
    exponent = e.clamp(e.sub(2 * bias + most, e.shift_right(e.bitcast(largest, integer), bits)), 1, 2 * bias - 1)
    scale, back = (e.bitcast(e.shift_left(one, bits), dtype) for one in (exponent, e.sub(2 * bias, exponent)))
    return scale, back


def length_of_rows(x: Any) -> Any:
    """The 2-norm along the last axis of what is in range; 0 has no slope."""
    total = sum_of(e.mul(x, x), -1)
    is_zero = e.eq(total, 0.0)
    return e.where(is_zero, 0.0, e.sqrt(e.where(is_zero, 1.0, total)))


def norm_of_rows(apart: Any, is_same: Any, order: float) -> Any:
    """A norm, but the 2-norm, of differences along the last axis, of which some are 0 and have no slope."""
    if order == 0.0:
        return sum_of(cast(e.logical_not(is_same), dtype_of(apart)), -1)
    sizes = e.where(is_same, 0.0, e.abs(apart))
    if order == 1.0:
        return sum_of(sizes, -1)
    has_none = shape_dims(apart)[-1].value == 0
    if order == float("inf") and not has_none:
        return max_of(sizes, -1)
    # Powers of what is small or large are out of range where their root is not: they are taken of shares of the
    # largest. The norm does not depend on what it is scaled by, so that this has no derivative.
    scale = as_tensor(1.0, dtype_of(apart)) if has_none else _scale_of_rows(apply("stop_gradient", (sizes,)), order)
    shares = e.div(e.where(is_same, 1.0, sizes), scale)
    total = sum_of(e.where(is_same, 0.0, e.pow(shares, order)), -1)
    is_zero = e.eq(total, 0.0)
    safe = e.where(is_zero, 1.0, total)
    root = e.pow(safe, 1.0 / order)
    return e.where(is_zero, 0.0, e.mul(root, scale if has_none else squeeze(scale, -1)))


def _scale_of_rows(sizes: Any, order: float) -> Any:
    """The largest along the last axis, or 1 where it is 0 or infinite, or where powers of it are far from the ends."""
    largest = max_of(sizes, -1, keepdims=True)
    reach = math.sqrt(largest_of(dtype_of(sizes))) ** (1.0 / max(order, 1.0))
    is_ordinary = e.logical_and(e.gt(largest, 1.0 / reach), e.lt(largest, reach))
    has_scale = e.logical_and(e.gt(largest, 0.0), e.lt(largest, float("inf")))
    return e.where(e.logical_and(has_scale, e.logical_not(is_ordinary)), largest, 1.0)


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """The coordinates of a grid: one tensor for each axis; with "xy" the first two axes are exchanged.

    >>> [one.tolist() for one in ts.ops.meshgrid(ts.array([1, 2]), ts.array([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    check_choice("meshgrid", "indexing", indexing, ("xy", "ij"))
    listed = [reshape(one, (-1,)) for one in tensors]
    order = list(range(len(listed)))
    if indexing == "xy" and len(listed) > 1:
        order[:2] = [1, 0]
    sizes: list[Any] = [listed[at].shape[0] for at in order]
    made: list[Any] = []
    for number, one in enumerate(listed):
        position = order.index(number)
        others = tuple(axis for axis in range(len(listed)) if axis != position)
        made.append(broadcast_to(expand_dims(one, others) if others else one, tuple(sizes)))
    return tuple(made)


def broadcast_arrays(*tensors: Any) -> tuple[Any, ...]:
    """The tensors, all stretched to the shape that they broadcast to."""
    shape = broadcast_dims(tensors)
    return tuple(broadcast_to(one, shape) for one in tensors)


def broadcast_dims(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes that tensors broadcast to; where they do not, the op that is given them says so."""
    rank = max((rank_of(one) for one in tensors), default=0)
    sizes: list[Any] = [1] * rank
    for one in tensors:
        for axis, dim in enumerate(shape_dims(one), rank - rank_of(one)):
            if dim.value != 1:
                sizes[axis] = size_of(dim)
    return tuple(sizes)


def block_diag(*matrices: Any) -> Any:
    """Matrices along a diagonal, zeros elsewhere."""
    listed = promote_operands("block_diag", matrices)
    for one in listed:
        if len(one.shape) != 2:
            raise ShapeError(f"`block_diag` takes matrices, got a tensor of {len(one.shape)} dims: {list(one.shape)}")
    width = sum(one.shape[1] for one in listed)
    rows: list[Any] = []
    before = 0
    for one in listed:
        rows.append(pad(one, [(0, 0), (before, width - before - one.shape[1])]))
        before += one.shape[1]
    return concat(rows, 0)


__all__ = ["block_diag", "broadcast_arrays", "cdist", "cross", "kron", "meshgrid", "outer", "tensordot", "vecdot"]
