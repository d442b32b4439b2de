"""Index maps of view ops: for each dim read, an expression over the coordinates written, kept as small as can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tessera.ir.tile.facets import IndexMap, coordinate
from tessera.types.dim import Dim, product
from tessera.types.shape import ONE, ZERO, Shape

Axes: TypeAlias = list[tuple[int, Dim]]


def transpose_map(axes: Sequence[int]) -> IndexMap:
    """Result axis `j` reads operand axis `axes[j]`."""
    return tuple(coordinate(list(axes).index(axis)) for axis in range(len(axes)))


def broadcast_map(x: Shape, out: Shape) -> IndexMap:
    """Trailing dims aligned; a dim of 1 is always read at 0."""
    missing = len(out) - len(x)
    return tuple(ZERO if dim.value == 1 else coordinate(axis + missing) for axis, dim in enumerate(x))


def reshape_map(x: Shape, out: Shape) -> IndexMap:
    """The same row-major position in another shape.

    Both shapes are cut where their leading sizes agree, so that kept dims stay bare coordinates, an operand dim split
    into several is a sum of products, and only operand dims merged into one need floordiv and mod.
    """
    indices = [ZERO] * len(x)
    if any(dim.value == 0 for dim in (*x, *out)):
        return tuple(indices)
    for taken, given in _matched_groups(x, out):
        linear = _linear(given)
        stride = ONE
        for position in range(len(taken) - 1, -1, -1):
            axis, dim = taken[position]
            index = linear // stride
            # the first dim of a group takes what is left, which is in range
            indices[axis] = index if position == 0 else index % dim
            stride = stride * dim
    return tuple(indices)


def _matched_groups(x: Shape, out: Shape) -> list[tuple[Axes, Axes]]:
    """Groups of operand dims and result dims with one size each; dims of 1 belong to no group."""
    taken, given = ([(axis, dim) for axis, dim in enumerate(shape) if dim.value != 1] for shape in (x, out))
    ends = {product(dim for _, dim in given[:end]): end for end in range(1, len(given) + 1)}
    groups: list[tuple[Axes, Axes]] = []
    first_taken = first_given = 0
    for end_taken in range(1, len(taken) + 1):
        end_given = ends.get(product(dim for _, dim in taken[:end_taken]))
        if end_given is not None and end_given > first_given:
            groups.append((taken[first_taken:end_taken], given[first_given:end_given]))
            first_taken, first_given = end_taken, end_given
    if first_taken < len(taken):
        # sizes that are equal by a guard only
        groups.append((taken[first_taken:], given[first_given:]))
    return groups


def _linear(axes: Axes) -> Dim:
    """The row-major position within some result dims."""
    total, stride = ZERO, ONE
    for axis, dim in reversed(axes):
        total = total + coordinate(axis) * stride
        stride = stride * dim
    return total


def insert_axes(rank: int, axes: Sequence[int]) -> list[int]:
    """The result axes that existing dims land on when dims of 1 are inserted at `axes` of a result of `rank`."""
    return [axis for axis in range(rank) if axis not in axes]


def expand_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """Dims of 1 inserted at result positions `axes`."""
    landed = insert_axes(len(x) + len(axes), axes)
    return tuple(coordinate(axis) for axis in landed)


def squeeze_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """Dims of 1 dropped from operand positions `axes`."""
    kept = iter(range(len(x)))
    return tuple(ZERO if axis in axes else coordinate(next(kept)) for axis in range(len(x)))


def slice_map(start: Sequence[Dim], step: Sequence[int]) -> IndexMap:
    """`start + d * step` on each axis."""
    return tuple(first + coordinate(axis) * by for axis, (first, by) in enumerate(zip(start, step, strict=True)))


def flip_map(x: Shape, axes: Sequence[int]) -> IndexMap:
    """The chosen axes read from their end."""
    return tuple(dim - 1 - coordinate(axis) if axis in axes else coordinate(axis) for axis, dim in enumerate(x))


def roll_map(x: Shape, shifts: Sequence[int], axes: Sequence[int]) -> IndexMap:
    """Elements move up by the shift and come back in at the start."""
    by: dict[int, int] = {}
    for shift, axis in zip(shifts, axes, strict=True):
        by[axis] = by.get(axis, 0) + shift
    return tuple(_rolled(coordinate(axis), by.get(axis, 0), dim) for axis, dim in enumerate(x))


def _rolled(index: Dim, shift: int, dim: Dim) -> Dim:
    if dim.value is not None:
        shift = -(-shift % dim.value) if dim.value else 0  # read ahead, so that no index is negative
    return (index - shift) % dim if shift else index


def tile_map(x: Shape, reps: Sequence[int]) -> IndexMap:
    """The whole operand again and again along each axis."""
    return tuple(
        ZERO if dim.value == 1 else (coordinate(axis) if count == 1 else coordinate(axis) % dim)
        for axis, (dim, count) in enumerate(zip(x, reps, strict=True))
    )


def repeat_map(x: Shape, repeats: int, axis: int) -> IndexMap:
    """Each element `repeats` times in a row."""
    return tuple(coordinate(own) // repeats if own == axis else coordinate(own) for own in range(len(x)))
