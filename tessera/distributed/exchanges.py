"""Exchanges between ranks with the derivatives that parallel layers need, and reductions by a tree of fixed form.

The collectives of `dist` are differentiated as parts of a sum over the losses of all ranks. Along a tensor-parallel
axis there is one loss, which all ranks compute: what they all have enters a layer that is split by `enter_split`, and
partial sums leave it by `leave_split`, each the transpose of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.api.collectives import all_gather, all_reduce, all_to_all, axis_index, reduce_scatter
from tessera.api.randomness import fold
from tessera.api.shard_map import P, join_parts, linear_with_rules, take_part
from tessera.frontend.arguments import check_string
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.runtime.ranks.world import mesh_in_force
from tessera.types.dtype import FORMATS, DType, i64
from tessera.types.sharding import Sharding


def size_of(axis: str | None) -> int:
    """How many ranks a mesh axis has; 1 for none."""
    return 1 if axis is None else mesh_in_force().sizes.get(axis, 1)


def key_of_part(key: Any, axis: str | None) -> Any:
    """A key for what ranks of an axis have parts of, so that masks of their parts are not the same; None stays."""
    return key if key is None or axis is None or size_of(axis) == 1 else fold(key, ops.astype(axis_index(axis), i64))


def _if_split(axis: str | None, move: Callable[[Any], Any], back: Callable[[Any], Any], value: Any) -> Any:
    if axis is not None:
        check_string("dist", "axis", axis)
    dtype_of(value)
    return value if size_of(axis) == 1 else linear_with_rules(move, back)(value)


def enter_split(value: Any, axis: str) -> Any:
    """What all ranks have, as it enters a layer of which each has a part: its cotangents are summed over them.

    >>> layer = ts.jit(lambda x, w: ts.dist.leave_split(ts.dist.enter_split(x, "tp") @ w, "tp"))
    >>> with ts.dist.mesh(tp=1):
    ...     layer(ts.ones((1, 2)), ts.ones((2, 1)))
    Tensor([1, 1] f32, [[2]])
    """
    return _if_split(axis, lambda x: x * 1.0, lambda x: all_reduce(x, axis), value)


def leave_split(value: Any, axis: str) -> Any:
    """The sum of what the parts of a layer give; its cotangent is the same on all ranks already.

    >>> with ts.dist.mesh(tp=1):
    ...     ts.jit(lambda x: ts.dist.leave_split(x, "tp"))(ts.ones((2,)))
    Tensor([2] f32, [1, 1])
    """
    return _if_split(axis, lambda x: all_reduce(x, axis), lambda x: x * 1.0, value)


def take_along(value: Any, axis: str, dim: int) -> Any:
    """This rank's part along a dim of what all ranks have; cotangents are gathered."""
    spec, mesh = _along(axis, dim), mesh_in_force()
    return _if_split(axis, lambda x: take_part(x, spec, mesh), lambda x: join_parts(x, spec, mesh), value)


def join_along(value: Any, axis: str, dim: int) -> Any:
    """The whole of which each rank has a part along a dim, for what all ranks compute alike."""
    spec, mesh = _along(axis, dim), mesh_in_force()
    return _if_split(axis, lambda x: join_parts(x, spec, mesh), lambda x: take_part(x, spec, mesh), value)


def gather_along(value: Any, axis: str, dim: int) -> Any:
    """The whole of which each rank has a part along a dim, for what each computes otherwise: cotangents are summed."""
    return value if size_of(axis) == 1 else all_gather(value, axis, dim)


def scatter_sum(value: Any, axis: str, dim: int) -> Any:
    """This rank's part along a dim of the sum over ranks."""
    return value if size_of(axis) == 1 else reduce_scatter(value, axis, dim)


def _along(axis: str, dim: int) -> Sharding:
    return P(*[None] * dim, axis)


# Around a ring.


def shift(value: Any, axis: str, by: int = 1) -> Any:
    """What the rank whose index is less by `by` has, around the ring of an axis; cotangents go the other way.

    >>> with ts.dist.mesh(sp=1):
    ...     ts.jit(lambda x: ts.dist.shift(x, "sp"))(ts.ones((2,)))
    Tensor([2] f32, [1, 1])
    """
    return _if_split(axis, lambda x: _rotate(x, axis, by), lambda x: _rotate(x, axis, -by), value)


def _rotate(value: Any, axis: str, by: int) -> Any:
    # Each rank has a part for every other one, and fills that of its neighbour.
    count, to = size_of(axis), (axis_index(axis) + by) % size_of(axis)
    is_to = ops.iota((count,)) == to
    mask = ops.reshape(is_to, (count, *[1] * len(value.shape)))
    filled = ops.where(mask, ops.expand_dims(value, 0), ops.zeros((), dtype_of(value)))
    arrived = all_to_all(filled, axis, 0, 0)
    start = (axis_index(axis) - by) % count
    return ops.squeeze(ops.dynamic_slice(arrived, _starts(start, len(value.shape)), (1, *value.shape)), 0)


def _starts(first: Any, others: int) -> tuple[Any, ...]:
    return (as_tensor(first), *[as_tensor(0)] * others)


# Sums whose bits do not depend on the number of ranks: a binary tree over a global index.


def sum_by_tree(parts: Sequence[Any]) -> Any:
    """The sum of a power of two of values by an aligned binary tree: `(0 + 1) + (2 + 3)`."""
    left = list(parts)
    while len(left) > 1:
        left = [one + two for one, two in zip(left[::2], left[1::2], strict=True)]
    return left[0]


def tree_all_reduce(value: Any, axis: str) -> Any:
    """The sum over the ranks of an axis by a tree over their positions: an all-to-all, a local sum, and a gather."""
    count = size_of(axis)
    if count == 1:
        return value
    flat = ops.reshape(value, (-1,))
    size = flat.shape[0]
    padded = ops.pad(flat, [(0, -size % count)]) if size % count else flat
    mine = _sum_arrived(ops.reshape(padded, (count, -1)), axis)
    return ops.reshape(all_gather(mine, axis, 0)[:size], value.shape)


def tree_reduce_scatter(value: Any, axis: str, dim: int) -> Any:
    """This rank's part along a dim of the sum over the ranks of an axis, by the same tree."""
    count = size_of(axis)
    if count == 1:
        return value
    part = value.shape[dim] // count
    split = ops.reshape(value, (*value.shape[:dim], count, part, *value.shape[dim + 1 :]))
    return _sum_arrived(ops.moveaxis(split, dim, 0), axis)


def _sum_arrived(parts: Any, axis: str) -> Any:
    arrived = all_to_all(parts, axis, 0, 0)
    return sum_by_tree([arrived[at] for at in range(parts.shape[0])])


def gather_weight(part: Any, axis: str, dim: int, *, canonical: bool) -> Any:
    """The whole of a parameter of which each rank keeps a part; its gradient is summed over ranks, and scattered.

    With `canonical` that sum is by the tree of `tree_reduce_scatter`, else by `reduce_scatter`.
    """
    if not canonical:
        return gather_along(part, axis, dim)
    return _if_split(axis, lambda x: all_gather(x, axis, dim), lambda x: tree_reduce_scatter(x, axis, dim), part)


# Fewer bytes on the wire.


def quantized_all_to_all(value: Any, axis: str, wire: DType) -> Any:
    """An all-to-all of rows [parts, rows, features] that go as an 8-bit float with a scale for each row.

    The cotangent goes back in the dtype of the value, so that rounding does not add up over layers.
    """
    if size_of(axis) == 1:
        return value
    dtype = dtype_of(value)

    def send(x: Any) -> Any:
        largest = ops.max(ops.abs(ops.astype(x, dtype.compute)), axis=-1, keepdims=True)
        scale = ops.maximum(largest, 1e-30) / FORMATS[wire.name].largest
        narrow = ops.astype(ops.astype(x, dtype.compute) / scale, wire)
        codes, scales = all_to_all(narrow, axis, 0, 0), all_to_all(scale, axis, 0, 0)
        return ops.astype(ops.astype(codes, dtype.compute) * scales, dtype)

    def move(x: Any) -> Any:
        return all_to_all(x, axis, 0, 0)

    return linear_with_rules(send, move, move)(value)
