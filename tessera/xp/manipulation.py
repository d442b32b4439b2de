"""Functions of the array API standard that move elements, read them by index, and multiply matrices."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ArgumentError, AxisError, ShapeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import axes_of, axis_of
from tessera.frontend.pytree import as_tuple
from tessera.types.dtype import i64
from tessera.xp.data_types import check_kind, result_type
from tessera.xp.operands import cast, dtype_of, is_tensor, rank_of, shape_dims


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """Tensors stretched to the shape that they broadcast to."""
    return list(ops.broadcast_arrays(*arrays))


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """`x` stretched to a shape."""
    return ops.broadcast_to(x, shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Tensors joined end to end along `axis`, or flattened without one."""
    listed = [ops.reshape(one, (-1,)) for one in arrays] if axis is None else list(arrays)
    dtype = result_type(*listed)
    return ops.concat([cast(one, dtype) for one in listed], 0 if axis is None else axis)


def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """`x` with a new axis of size 1."""
    return ops.expand_dims(x, axis)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """`x` in reverse order along `axis`, or all axes."""
    return ops.flip(x, axis) if rank_of(x) else x


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """`x` with some axes moved to other positions."""
    rank = rank_of(x)
    origins = [axis_of("moveaxis", axis, rank) for axis in as_tuple(source)]
    targets = [axis_of("moveaxis", axis, rank) for axis in as_tuple(destination)]
    if len(origins) != len(targets) or len(set(origins)) != len(origins) or len(set(targets)) != len(targets):
        raise AxisError(f"`moveaxis` moves each axis to one place, got {origins} and {targets}")
    order = [axis for axis in range(rank) if axis not in origins]
    for place, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(place, origin)
    return ops.transpose(x, order)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """`x` with its axes in another order."""
    return ops.transpose(x, axes)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """`x` with each element along `axis` repeated, by a number or by one for each; the latter need values."""
    if not is_tensor(repeats):
        _check_repeats(repeats)
        return ops.repeat(x, repeats, axis)
    flat = ops.reshape(x, (-1,)) if axis is None else x
    at = 0 if axis is None else axis_of("repeat", axis, rank_of(x))
    size = flat.shape[at]
    if rank_of(repeats) > 1 or (rank_of(repeats) == 1 and repeats.shape[0] not in (1, size)):
        raise ShapeError(f"`repeat` takes one number for each of {size} elements, got {list(repeats.shape)}")
    counts = ops.broadcast_to(cast(repeats, i64), (size,))
    if size:
        _check_repeats(int(ops.min(counts)))
    ends = ops.cumsum(counts) if size else counts
    total = int(ops.sum(counts))
    places = ops.searchsorted(ends, ops.iota((total,)), "right")
    return ops.take(flat, places, at) if size else flat


def _check_repeats(least: Any) -> None:
    """Raise for a negative number of repetitions."""
    if isinstance(least, int) and least < 0:
        raise ArgumentError(f"`repeat` takes numbers of at least 0, got {least}", fix="write `xp.maximum(repeats, 0)`")


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The same elements in another shape; one size may be -1."""
    return ops.reshape(x, shape)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """`x` moved along `axis`; what falls off one end comes back at the other."""
    if axis is None:
        return ops.reshape(_roll(ops.reshape(x, (-1,)), (shift,), (0,)), tuple(x.shape))
    axes = as_tuple(axis)
    shifts = as_tuple(shift)
    return _roll(x, shifts if len(shifts) > 1 else shifts * len(axes), axes)


def _roll(x: Any, shifts: tuple[Any, ...], axes: tuple[Any, ...]) -> Any:
    if len(shifts) != len(axes):
        raise ArgumentError(f"`roll` takes one shift for each axis, got {len(shifts)} and {len(axes)}")
    by: dict[int, int] = {}
    for shift, axis in zip(shifts, axes, strict=True):
        at = axis_of("roll", axis, rank_of(x))
        by[at] = by.get(at, 0) + int(shift)
    return ops.roll(x, tuple(by.values()), tuple(by)) if by else x


def squeeze(x: Any, /, axis: Any) -> Any:
    """`x` without axes, whose size must be 1."""
    for at in axes_of("squeeze", axis, rank_of(x)):
        if shape_dims(x)[at].value not in (1, None):
            raise ValueError(f"`squeeze` drops axes of size 1, and axis {at} has size {x.shape[at]}")
    return ops.squeeze(x, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Tensors of one shape along a new axis."""
    dtype = result_type(*arrays)
    return ops.stack([cast(one, dtype) for one in arrays], axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """`x` laid side by side along each axis."""
    return ops.tile(x, repetitions) if as_tuple(repetitions) else x


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices of `x` along `axis`."""
    return ops.unstack(x, axis)


# Reading by index.


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Elements at positions along `axis`, which a tensor of one dim may leave out."""
    if axis is None and rank_of(x) != 1:
        raise ArgumentError(f"`take` needs an `axis` for a tensor of {rank_of(x)} dims")
    return ops.take(x, indices, 0 if axis is None else axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements at positions that differ by row; other axes broadcast."""
    at = axis_of("take_along_axis", axis, rank_of(x))
    sizes = [1 if own == at else size for own, size in enumerate(indices.shape)]
    rows = [1 if own == at else size for own, size in enumerate(x.shape)]
    joined = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(sizes, rows, strict=True)]
    x = ops.broadcast_to(x, [size if own == at else joined[own] for own, size in enumerate(x.shape)])
    wide = ops.broadcast_to(indices, [size if own == at else joined[own] for own, size in enumerate(indices.shape)])
    return ops.take_along_axis(x, wide, at)


# Products.


def matmul(x1: Any, x2: Any, /) -> Any:
    """The matrix product, in the dtype of the operands."""
    check_kind("matmul", x1, "numeric")
    check_kind("matmul", x2, "numeric")
    return cast(ops.matmul(x1, x2), result_type(x1, x2))


def matrix_transpose(x: Any, /) -> Any:
    """`x` with its last two axes exchanged."""
    if rank_of(x) < 2:
        raise ShapeError(f"`matrix_transpose` needs a matrix, got {rank_of(x)} dims")
    return ops.swapaxes(x, -1, -2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sums of products over paired axes."""
    return cast(ops.tensordot(x1, x2, axes), result_type(x1, x2))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sums of products along `axis`; other axes broadcast."""
    dtype = dtype_of(x1) if dtype_of(x1) is dtype_of(x2) else result_type(x1, x2)
    return cast(ops.vecdot(cast(x1, dtype), cast(x2, dtype), axis), dtype)


__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "matmul", "matrix_transpose", "moveaxis",
    "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tensordot", "tile",
    "unstack", "vecdot",
]  # fmt: skip
