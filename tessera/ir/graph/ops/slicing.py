"""Views that read some elements, in another order, or repeatedly: slice, flip, roll, tile, repeat, split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.index_maps import IndexMap, coordinates, flip_map, repeat_map, roll_map, slice_map, tile_map
from tessera.ir.base.scalar_functions import producer_named
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec, Simplifier
from tessera.ir.graph.ops.movement import dims, moving_sample, view
from tessera.ir.graph.ops.reduce import check_axes
from tessera.types.dim import Dim, minimum
from tessera.types.shape import ZERO, TensorType, equal_dims, is_at_least, is_at_most, path, slice_extent


def _check_at_most(ctx: InferContext, left: Dim, right: Dim, message: str) -> None:
    """`left <= right`, proved, or guarded as an equality."""
    if is_at_most(left, right):
        return
    if is_at_least(left - right, 1):
        raise ctx.fail(message)
    ctx.equal(minimum(left, right), left, message)


def _infer_slice(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    start, stop, step = (tuple(attributes[name]) for name in ("start", "stop", "step"))
    if not len(start) == len(stop) == len(step) == x.rank:
        raise ctx.fail(
            f"`slice` needs one start, stop and step for each of {x.rank} axes, "
            f"got {len(start)}, {len(stop)} and {len(step)}"
        )
    extents: list[Dim] = []
    for axis, (first, last, by) in enumerate(zip(start, stop, step, strict=True)):
        where = f"`slice` of {path('x', axis, x.shape[axis])} from {first} to {last} by {by}"
        if by == 0:
            raise ctx.fail(f"{where}: the step cannot be 0")
        extent = slice_extent(first, last, by)
        if extent.value != 0:
            lowest, highest = (first, last) if by > 0 else (last + 1, first + 1)
            _check_at_most(ctx, ZERO, lowest, f"{where} starts before the axis")
            _check_at_most(ctx, highest, x.shape[axis], f"{where} reaches past the axis")
        extents.append(extent)
    return [x.with_shape(extents)]


def _slice_reference(x: Array, *, start: Sequence[Dim], stop: Sequence[Dim], step: Sequence[int]) -> Array:
    for axis, (first, last, by) in enumerate(zip(static_shape(start), static_shape(stop), step, strict=True)):
        x = np.take(x, np.arange(first, last, by, dtype=np.int64), axis=axis)
    return x


def _simplify_slice(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a slice of everything; rewrite a slice of a slice, both without gaps, to one slice."""
    start, stop, step = (tuple(attributes[name]) for name in ("start", "stop", "step"))
    if any(by != 1 for by in step):
        return None
    if all(first == ZERO for first in start) and simplifier.type_of(operands[0]).shape == stop:
        return operands[0]
    inner = producer_named(simplifier, operands[0], "slice")
    if inner is None or any(by != 1 for by in inner.attributes["step"]):
        return None
    base = tuple(inner.attributes["start"])
    first, last = (tuple(own + by for own, by in zip(base, ends, strict=True)) for ends in (start, stop))
    # bounds that hold by a guard on the two slices may need another on the one: leave those
    shape = simplifier.type_of(inner.operands[0]).shape
    if not all(is_at_least(a, 0) and is_at_most(b, dim) for a, b, dim in zip(first, last, shape, strict=True)):
        return None
    return simplifier.emit("slice", inner.operands[0], start=first, stop=last, step=step)


def _infer_flip(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    check_axes(ctx, "flip", types[0], attributes["axes"])
    return [types[0]]


def _flip_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.flip(x, tuple(axes)).copy()


def _simplify_flip(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a flip of no axes, and one that undoes another."""
    if not attributes["axes"]:
        return operands[0]
    inner = producer_named(simplifier, operands[0], "flip")
    same = inner is not None and tuple(inner.attributes["axes"]) == tuple(attributes["axes"])
    return inner.operands[0] if inner is not None and same else None


def _infer_roll(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    shifts, axes = tuple(attributes["shifts"]), tuple(attributes["axes"])
    check_axes(ctx, "roll", types[0], axes)
    if len(shifts) != len(axes):
        raise ctx.fail(f"`roll` needs one shift for each axis, got {len(shifts)} shifts and {len(axes)} axes")
    return [types[0]]


def _roll_reference(x: Array, *, shifts: Sequence[int], axes: Sequence[int]) -> Array:
    return np.roll(x, tuple(shifts), tuple(axes))


def _simplify_roll(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a roll by nothing."""
    return None if any(attributes["shifts"]) else operands[0]


def _infer_tile(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,), reps = types, tuple(attributes["reps"])
    if len(reps) != x.rank or any(count < 0 for count in reps):
        raise ctx.fail(
            f"`tile` needs one count, 0 or more, for each of {x.rank} axes, got {reps}",
            help="insert dims of 1 first with `expand_dims`",
        )
    return [x.with_shape(dim * count for dim, count in zip(x.shape, reps, strict=True))]


def _tile_reference(x: Array, *, reps: Sequence[int]) -> Array:
    return np.tile(x, tuple(reps))


def _simplify_tile(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a tiling by ones."""
    return operands[0] if all(count == 1 for count in attributes["reps"]) else None


def _infer_repeat(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,), axis, repeats = types, attributes["axis"], attributes["repeats"]
    check_axes(ctx, "repeat", x, (axis,))
    if repeats < 0:
        raise ctx.fail(f"`repeat` needs a count of 0 or more, got {repeats}")
    return [x.with_shape(dim * repeats if own == axis else dim for own, dim in enumerate(x.shape))]


def _repeat_reference(x: Array, *, repeats: int, axis: int) -> Array:
    return np.repeat(x, repeats, axis)


def _simplify_repeat(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a repetition by one."""
    return operands[0] if attributes["repeats"] == 1 else None


def _infer_split(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,), sizes = types, tuple(attributes["sizes"])
    axis: int = attributes["axis"]
    check_axes(ctx, "split", x, (axis,))
    total = sum(sizes, ZERO)
    shown = " + ".join(map(str, sizes)) or "nothing"
    equal_dims(ctx, "split", x.shape[axis], total, f"{path('x', axis, x.shape[axis])} and {shown} = {total}")
    return [x.with_shape(size if own == axis else dim for own, dim in enumerate(x.shape)) for size in sizes]


def _split_reference(x: Array, *, sizes: Sequence[Dim], axis: int) -> tuple[Array, ...]:
    ends = np.cumsum(static_shape(sizes), dtype=np.int64)
    return tuple(np.ascontiguousarray(part) for part in np.split(x, [int(end) for end in ends[:-1]], axis))


def _split_maps(x: TensorType, outs: Sequence[TensorType], attributes: Attributes) -> Sequence[IndexMap]:
    axis, start, maps = attributes["axis"], ZERO, list[IndexMap]()
    for size in attributes["sizes"]:
        maps.append(tuple(index + start if own == axis else index for own, index in enumerate(coordinates(x.rank))))
        start = start + size
    return maps


SLICE = view(
    "slice",
    "Elements `start, start + step, ...` before `stop` on each axis; `stop` is -1 for a walk down to element 0.",
    attributes=(
        Attribute("start", "dims", doc="first position on each axis"),
        Attribute("stop", "dims", doc="where each axis ends, exclusive"),
        Attribute("step", "ints", doc="distance on each axis; not 0"),
    ),
    infer=_infer_slice,
    reference=_slice_reference,
    maps=lambda x, outs, attributes: [slice_map(attributes["start"], attributes["step"])],
    samples=(
        moving_sample((7,), start=dims(2), stop=dims(5), step=(1,)),
        moving_sample((7,), start=dims(6), stop=dims(-1), step=(-1,)),
        moving_sample((11, 5), start=dims(1, 4), stop=dims(10, 0), step=(3, -2)),
        moving_sample((3, 4, 5), start=dims(0, 1, 0), stop=dims(3, 2, 5), step=(1, 1, 2)),
        moving_sample((5,), start=dims(3), stop=dims(3), step=(1,)),
        moving_sample((0, 3), start=dims(0, 0), stop=dims(0, 3), step=(1, 1)),
        moving_sample((67, 131), start=dims(0, 1), stop=dims(67, 130), step=(1, 1)),
    ),
    simplify=_simplify_slice,
)

FLIP = view(
    "flip",
    "The order of some axes reversed.",
    attributes=(Attribute("axes", "ints", doc="sorted axes"),),
    infer=_infer_flip,
    reference=_flip_reference,
    maps=lambda x, outs, attributes: [flip_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((7,), axes=(0,)),
        moving_sample((3, 5), axes=(0, 1)),
        moving_sample((2, 3, 5), axes=(1,)),
        moving_sample((0, 3), axes=(0,)),
        moving_sample((1,), axes=(0,)),
        moving_sample((13, 67), axes=(1,)),
    ),
    simplify=_simplify_flip,
)

ROLL = view(
    "roll",
    "Elements moved along axes by shifts; what leaves at one end comes in at the other.",
    attributes=(
        Attribute("shifts", "ints", doc="how far along each of `axes`; negative moves down"),
        Attribute("axes", "ints", doc="sorted axes"),
    ),
    infer=_infer_roll,
    reference=_roll_reference,
    maps=lambda x, outs, attributes: [roll_map(x.shape, attributes["shifts"], attributes["axes"])],
    samples=(
        moving_sample((7,), shifts=(2,), axes=(0,)),
        moving_sample((7,), shifts=(-9,), axes=(0,)),
        moving_sample((3, 5), shifts=(1, -2), axes=(0, 1)),
        moving_sample((0, 3), shifts=(1,), axes=(0,)),
        moving_sample((13, 67), shifts=(30,), axes=(1,)),
    ),
    simplify=_simplify_roll,
)

TILE = view(
    "tile",
    "The whole repeated along each axis.",
    attributes=(Attribute("reps", "ints", doc="how often, for each axis"),),
    infer=_infer_tile,
    reference=_tile_reference,
    maps=lambda x, outs, attributes: [tile_map(x.shape, attributes["reps"])],
    samples=(
        moving_sample((5,), reps=(3,)),
        moving_sample((3, 5), reps=(2, 1)),
        moving_sample((1, 7), reps=(4, 2)),
        moving_sample((0, 3), reps=(2, 2)),
        moving_sample((3,), reps=(0,)),
        moving_sample((13, 31), reps=(2, 3)),
    ),
    simplify=_simplify_tile,
)

REPEAT = view(
    "repeat",
    "Each element several times in a row along one axis.",
    attributes=(Attribute("repeats", "int", doc="how often"), Attribute("axis", "int", doc="the axis that grows")),
    infer=_infer_repeat,
    reference=_repeat_reference,
    maps=lambda x, outs, attributes: [repeat_map(x.shape, attributes["repeats"], attributes["axis"])],
    samples=(
        moving_sample((5,), repeats=3, axis=0),
        moving_sample((3, 5), repeats=2, axis=0),
        moving_sample((3, 5), repeats=2, axis=1),
        moving_sample((0, 3), repeats=2, axis=0),
        moving_sample((13, 31), repeats=3, axis=1),
    ),
    simplify=_simplify_repeat,
)

SPLIT = view(
    "split",
    "Parts of one axis, in order.",
    attributes=(
        Attribute("sizes", "dims", doc="the size of each part; together the size of the axis"),
        Attribute("axis", "int", doc="the axis that is cut"),
    ),
    results=("parts*",),
    infer=_infer_split,
    reference=_split_reference,
    maps=_split_maps,
    samples=(
        moving_sample((7,), sizes=dims(2, 5), axis=0),
        moving_sample((3, 9), sizes=dims(3, 3, 3), axis=1),
        moving_sample((4, 5, 2), sizes=dims(1, 0, 4), axis=1),
        moving_sample((0, 6), sizes=dims(2, 4), axis=1),
        moving_sample((13, 67), sizes=dims(66, 1), axis=1),
    ),
)


SPECS: tuple[OpSpec, ...] = (SLICE, FLIP, ROLL, TILE, REPEAT, SPLIT)
