"""Views: ops that only read elsewhere, each declared by its index map, and `prefetch`, which keeps its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ne
from typing import Any

import numpy as np

from tessera.ir.base import index_maps
from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.scalar_functions import keeps_shape, producer_named
from tessera.ir.base.spec import ANY, Attribute, Attributes, InferContext, OpSpec, Sample, Simplifier, Simplify
from tessera.ir.graph.building import Types, check_axes, check_sizes, dims, drop_when, moving_cost
from tessera.ir.graph.samples import moving_sample, shape_name
from tessera.ir.tile.facets import View
from tessera.types.device import problem
from tessera.types.dim import Dim, minimum, product
from tessera.types.shape import (
    ZERO,
    TensorType,
    equal_dims,
    is_at_least,
    is_at_most,
    is_refuted,
    path,
    slice_extent,
    text,
)

STORED = (*ANY, "i4")
"""Moving elements asks nothing of their dtype."""


def view(
    name: str,
    summary: str,
    *,
    attributes: tuple[Attribute, ...],
    infer: Any,
    reference: Callable[..., Any],
    maps: Callable[[TensorType, Types, Attributes], Sequence[IndexMap]],
    samples: tuple[Sample, ...],
    simplify: Simplify | None = None,
    results: tuple[str, ...] = ("out",),
    space: Callable[[Attributes], str] | None = None,
    order: str = "",
    jvp: str = "linear",
) -> OpSpec:
    """The declaration of an op that only reads elsewhere."""
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=attributes,
        results=results,
        infer=infer,
        reference=reference,
        samples=samples,
        dtypes=STORED,
        cost=moving_cost,
        simplify=simplify,
        lower=View(maps, space, order=order),
        jvp=jvp,
        transpose=f"movement:{name}" if jvp == "linear" else None,
    )


def _infer_reshape(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    out = x.with_shape(attributes["shape"])
    check_sizes(ctx, "reshape", out.shape)
    if x.size != out.size:
        if is_refuted(x.size, out.size):
            raise ctx.fail(
                f"`reshape` cannot give {text(x.shape)} the shape {text(out.shape)}: it has {x.size} elements, "
                f"the new shape {out.size}"
            )
        ctx.equal(x.size, out.size, f"`reshape` from {text(x.shape)} to {text(out.shape)} keeps the number of elements")
    return [out]


def _reshape_reference(x: Array, *, shape: Sequence[Dim]) -> Array:
    return np.reshape(x, static_shape(shape))


def _simplify_reshape(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a reshape to the same shape; rewrite reshape(reshape(x)) to reshape(x)."""
    if simplifier.type_of(operands[0]).shape == tuple(attributes["shape"]):
        return operands[0]
    inner = simplifier.producer(operands[0])
    if inner is None or inner.name not in ("reshape", "expand_dims", "squeeze"):
        return None
    x = simplifier.type_of(inner.operands[0])
    if x.shape == tuple(attributes["shape"]):
        return inner.operands[0]
    # sizes equal by a guard only are left alone: the one reshape would need a guard of its own
    return (
        simplifier.emit("reshape", inner.operands[0], **attributes) if x.size == product(attributes["shape"]) else None
    )


def _infer_transpose(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    axes: tuple[int, ...] = tuple(attributes["axes"])
    if sorted(axes) != list(range(x.rank)):
        raise ctx.fail(
            f"`transpose` needs each axis of {text(x.shape)} once, got {axes}",
            help=f"an order of {', '.join(map(str, range(x.rank)))}" if x.rank else "a scalar has no axes",
        )
    return [x.with_shape(x.shape[axis] for axis in axes)]


def _transpose_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.ascontiguousarray(np.transpose(x, axes)).reshape([x.shape[axis] for axis in axes])


def _simplify_transpose(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a transpose that keeps the order; rewrite transpose(transpose(x, p), q) to transpose(x, p[q]).

    Where a reshape between the two joins dims, it comes last: rows and columns of the heads of attention are then one
    transpose of four dims, and the reshape of what that writes costs nothing.
    """
    axes = tuple(attributes["axes"])
    if axes == tuple(range(len(axes))):
        return operands[0]
    inner = producer_named(simplifier, operands[0], "transpose")
    if inner is None:
        return _transpose_before_reshape(simplifier, operands[0], axes)
    merged = tuple(inner.attributes["axes"][axis] for axis in axes)
    return (
        inner.operands[0]
        if merged == tuple(range(len(axes)))
        else simplifier.emit("transpose", inner.operands[0], axes=merged)
    )


def _transpose_before_reshape(simplifier: Simplifier, operand: Any, axes: Sequence[int]) -> Any:
    """reshape(transpose(x)) for transpose(reshape(x)), where `x` is a transpose and dims are joined; None elsewhere."""
    joined = producer_named(simplifier, operand, "reshape")
    if joined is None or producer_named(simplifier, joined.operands[0], "transpose") is None:
        return None
    given, shape = simplifier.type_of(joined.operands[0]).shape, simplifier.type_of(operand).shape
    groups = _joined_dims(given, shape)
    if groups is None:
        return None
    moved = simplifier.emit("transpose", joined.operands[0], axes=tuple(one for axis in axes for one in groups[axis]))
    return simplifier.emit("reshape", moved, shape=tuple(shape[axis] for axis in axes))


def _joined_dims(given: Sequence[Dim], shape: Sequence[Dim]) -> list[list[int]] | None:
    """The dims that each dim of another shape is the product of, in order; None where they are not joined so."""
    groups, pending = list[list[int]](), list(range(len(given)))
    for dim in shape:
        group, size = list[int](), Dim.constant(1)
        while pending and size != dim:
            group.append(pending.pop(0))
            size = size * given[group[-1]]
        if size != dim or size.value == 0:
            return None
        groups.append(group)
    return None if pending else groups


def _infer_broadcast(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    out = x.with_shape(attributes["shape"])
    if out.rank < x.rank:
        raise ctx.fail(f"`broadcast_to` cannot drop dims: from {text(x.shape)} to {text(out.shape)}")
    missing = out.rank - x.rank
    for axis, dim in enumerate(x.shape):
        wanted = out.shape[axis + missing]
        if dim.value != 1:
            what = f"{path('x', axis, dim)} and {path('out', axis + missing, wanted)}"
            equal_dims(ctx, "broadcast_to", dim, wanted, what)
    return [out]


def _broadcast_reference(x: Array, *, shape: Sequence[Dim]) -> Array:
    return np.broadcast_to(x, static_shape(shape)).copy()


def _simplify_broadcast(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a broadcast to the same shape; rewrite broadcast(broadcast(x)) to broadcast(x)."""
    if simplifier.type_of(operands[0]).shape == tuple(attributes["shape"]):
        return operands[0]
    inner = producer_named(simplifier, operands[0], "broadcast_to")
    if inner is None or not keeps_shape(tuple(attributes["shape"]), simplifier.type_of(inner.operands[0]).shape):
        return None
    return simplifier.emit("broadcast_to", inner.operands[0], shape=attributes["shape"])


def _infer_expand(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,), axes = types, tuple(attributes["axes"])
    rank = x.rank + len(axes)
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
        raise ctx.fail(f"`expand_dims` needs different sorted axes within 0..{rank - 1} of its result, got {axes}")
    own = iter(x.shape)
    return [x.with_shape(1 if axis in axes else next(own) for axis in range(rank))]


def _expand_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(axes))


def _infer_squeeze(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    axes = check_axes(ctx, "squeeze", x, attributes["axes"])
    for axis in axes:
        if x.shape[axis].value != 1:
            what = f"{path('x', axis, x.shape[axis])} and 1"
            equal_dims(ctx, "squeeze", x.shape[axis], Dim.constant(1), what)
    return [x.with_shape(dim for axis, dim in enumerate(x.shape) if axis not in axes)]


def _squeeze_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.squeeze(x, tuple(axes))


def _undo(inverse: str) -> Simplify:
    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        """Drop an op on no axes, and one that undoes its inverse."""
        if not attributes["axes"]:
            return operands[0]
        inner = producer_named(simplifier, operands[0], inverse)
        if inner is None or tuple(inner.attributes["axes"]) != tuple(attributes["axes"]):
            return None
        return inner.operands[0]

    return simplify


def _reshape_sample(x: tuple[int, ...], *out: int) -> Sample:
    return moving_sample(x, f"to {shape_name([out])}", shape=dims(*out))


RESHAPE = view(
    "reshape",
    "The same elements in row-major order in another shape.",
    attributes=(Attribute("shape", "dims", doc="the new shape; its size is that of `x`"),),
    infer=_infer_reshape,
    reference=_reshape_reference,
    maps=lambda x, outs, attributes: [index_maps.reshape_map(x.shape, outs[0].shape)],
    samples=(
        _reshape_sample((6,), 2, 3),
        _reshape_sample((2, 3), 6),
        _reshape_sample((2, 3, 5), 2, 15),
        _reshape_sample((2, 15), 2, 3, 5),
        _reshape_sample((4, 6), 6, 4),
        _reshape_sample((1, 7, 1), 7),
        _reshape_sample((), 1, 1),
        _reshape_sample((0, 3), 5, 0),
        _reshape_sample((7, 11, 13), 13, 77),
    ),
    simplify=_simplify_reshape,
)

TRANSPOSE = view(
    "transpose",
    "The axes in another order: result axis `j` is operand axis `axes[j]`.",
    attributes=(Attribute("axes", "ints", doc="an order of all axes"),),
    infer=_infer_transpose,
    reference=_transpose_reference,
    maps=lambda x, outs, attributes: [index_maps.transpose_map(attributes["axes"])],
    order="axes",
    samples=(
        moving_sample((3, 5), axes=(1, 0)),
        moving_sample((2, 3, 5), axes=(2, 0, 1)),
        moving_sample((2, 3, 5, 7), axes=(0, 2, 1, 3)),
        moving_sample((1, 7), axes=(1, 0)),
        moving_sample((0, 3), axes=(1, 0)),
        moving_sample((), axes=()),
        moving_sample((67, 131), axes=(1, 0)),
    ),
    simplify=_simplify_transpose,
)

BROADCAST_TO = view(
    "broadcast_to",
    "Stretched to a shape: trailing dims aligned, dims of 1 repeated.",
    attributes=(Attribute("shape", "dims", doc="the new shape"),),
    infer=_infer_broadcast,
    reference=_broadcast_reference,
    maps=lambda x, outs, attributes: [index_maps.broadcast_map(x.shape, outs[0].shape)],
    samples=(
        _reshape_sample((), 3, 5),
        _reshape_sample((5,), 3, 5),
        _reshape_sample((3, 1), 3, 5),
        _reshape_sample((1, 3, 1), 2, 3, 5),
        _reshape_sample((1,), 0),
        _reshape_sample((7, 13), 7, 13),
    ),
    simplify=_simplify_broadcast,
)

EXPAND_DIMS = view(
    "expand_dims",
    "Dims of 1 inserted where the result is to have them.",
    attributes=(Attribute("axes", "ints", doc="sorted positions in the result"),),
    infer=_infer_expand,
    reference=_expand_reference,
    maps=lambda x, outs, attributes: [index_maps.expand_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((3, 5), axes=(0,)),
        moving_sample((3, 5), axes=(1, 3)),
        moving_sample((), axes=(0,)),
        moving_sample((0, 3), axes=(2,)),
    ),
    simplify=drop_when(lambda attributes: not attributes["axes"]),
)

SQUEEZE = view(
    "squeeze",
    "Dims of 1 dropped.",
    attributes=(Attribute("axes", "ints", doc="sorted positions in the operand"),),
    infer=_infer_squeeze,
    reference=_squeeze_reference,
    maps=lambda x, outs, attributes: [index_maps.squeeze_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((1, 3, 5), axes=(0,)),
        moving_sample((3, 1, 5, 1), axes=(1, 3)),
        moving_sample((1,), axes=(0,)),
        moving_sample((0, 1), axes=(1,)),
    ),
    simplify=_undo("expand_dims"),
)


# Views that read some elements, in another order, or repeatedly: slice, flip, roll, tile, repeat, split.


def _check_at_most(ctx: InferContext, left: Dim, right: Dim, message: str) -> None:
    """`left <= right`, proved, or guarded as an equality."""
    if is_at_most(left, right):
        return
    if is_at_least(left - right, 1):
        raise ctx.fail(message)
    ctx.equal(minimum(left, right), left, message)


def _infer_slice(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
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
        extent = slice_extent(first, last, by, x.shape[axis])
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
    shape, whole = (simplifier.type_of(one).shape for one in (inner.operands[0], operands[0]))
    if not all(is_at_least(a, 0) and is_at_most(b, dim) for a, b, dim in zip(first, last, shape, strict=True)):
        return None
    # all of an axis by a guard is not written as its size is: the one slice may be all by algebra, and the two not
    if any(map(ne, map(slice_extent, first, last, step, shape), map(slice_extent, start, stop, step, whole))):
        return None
    return simplifier.emit("slice", inner.operands[0], start=first, stop=last, step=step)


def _infer_flip(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_axes(ctx, "flip", types[0], attributes["axes"])
    return [types[0]]


def _flip_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.flip(x, tuple(axes)).copy()


def _infer_roll(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    shifts, axes = tuple(attributes["shifts"]), tuple(attributes["axes"])
    check_axes(ctx, "roll", types[0], axes)
    if len(shifts) != len(axes):
        raise ctx.fail(f"`roll` needs one shift for each axis, got {len(shifts)} shifts and {len(axes)} axes")
    return [types[0]]


def _roll_reference(x: Array, *, shifts: Sequence[int], axes: Sequence[int]) -> Array:
    return np.roll(x, tuple(shifts), tuple(axes))


def _infer_tile(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,), reps = types, tuple(attributes["reps"])
    if len(reps) != x.rank or any(count < 0 for count in reps):
        raise ctx.fail(
            f"`tile` needs one count, 0 or more, for each of {x.rank} axes, got {reps}",
            help="insert dims of 1 first with `expand_dims`",
        )
    return [x.with_shape(dim * count for dim, count in zip(x.shape, reps, strict=True))]


def _tile_reference(x: Array, *, reps: Sequence[int]) -> Array:
    return np.tile(x, tuple(reps))


def _infer_repeat(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,), axis, repeats = types, attributes["axis"], attributes["repeats"]
    check_axes(ctx, "repeat", x, (axis,))
    if repeats < 0:
        raise ctx.fail(f"`repeat` needs a count of 0 or more, got {repeats}")
    return [x.with_shape(dim * repeats if own == axis else dim for own, dim in enumerate(x.shape))]


def _repeat_reference(x: Array, *, repeats: int, axis: int) -> Array:
    return np.repeat(x, repeats, axis)


def _infer_split(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
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


def _split_maps(x: TensorType, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
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
    maps=lambda x, outs, attributes: [index_maps.slice_map(attributes["start"], attributes["step"])],
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
    maps=lambda x, outs, attributes: [index_maps.flip_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((7,), axes=(0,)),
        moving_sample((3, 5), axes=(0, 1)),
        moving_sample((2, 3, 5), axes=(1,)),
        moving_sample((0, 3), axes=(0,)),
        moving_sample((1,), axes=(0,)),
        moving_sample((13, 67), axes=(1,)),
    ),
    simplify=_undo("flip"),
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
    maps=lambda x, outs, attributes: [index_maps.roll_map(x.shape, attributes["shifts"], attributes["axes"])],
    samples=(
        moving_sample((7,), shifts=(2,), axes=(0,)),
        moving_sample((7,), shifts=(-9,), axes=(0,)),
        moving_sample((3, 5), shifts=(1, -2), axes=(0, 1)),
        moving_sample((0, 3), shifts=(1,), axes=(0,)),
        moving_sample((13, 67), shifts=(30,), axes=(1,)),
    ),
    simplify=drop_when(lambda attributes: not any(attributes["shifts"])),
)

TILE = view(
    "tile",
    "The whole repeated along each axis.",
    attributes=(Attribute("reps", "ints", doc="how often, for each axis"),),
    infer=_infer_tile,
    reference=_tile_reference,
    maps=lambda x, outs, attributes: [index_maps.tile_map(x.shape, attributes["reps"])],
    samples=(
        moving_sample((5,), reps=(3,)),
        moving_sample((3, 5), reps=(2, 1)),
        moving_sample((1, 7), reps=(4, 2)),
        moving_sample((0, 3), reps=(2, 2)),
        moving_sample((3,), reps=(0,)),
        moving_sample((13, 31), reps=(2, 3)),
    ),
    simplify=drop_when(lambda attributes: all(count == 1 for count in attributes["reps"])),
)

REPEAT = view(
    "repeat",
    "Each element several times in a row along one axis.",
    attributes=(Attribute("repeats", "int", doc="how often"), Attribute("axis", "int", doc="the axis that grows")),
    infer=_infer_repeat,
    reference=_repeat_reference,
    maps=lambda x, outs, attributes: [index_maps.repeat_map(x.shape, attributes["repeats"], attributes["axis"])],
    samples=(
        moving_sample((5,), repeats=3, axis=0),
        moving_sample((3, 5), repeats=2, axis=0),
        moving_sample((3, 5), repeats=2, axis=1),
        moving_sample((0, 3), repeats=2, axis=0),
        moving_sample((13, 31), repeats=3, axis=1),
    ),
    simplify=drop_when(lambda attributes: attributes["repeats"] == 1),
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


# Prefetch: the same elements, and a hint to the loops that load them.

OVERLAPS = ("compute",)
"""What a movement may go on beside."""


def _infer_prefetch(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    wrong = problem("global", attributes["space"])
    if wrong:
        raise ctx.fail(f"`prefetch`: {wrong}", help="write `shared`, the memory of a program")
    if attributes["overlap"] not in OVERLAPS:
        raise ctx.fail(f"`prefetch` goes on beside {' or '.join(OVERLAPS)}, got {attributes['overlap']!r}")
    return list(types)


def _prefetch_reference(x: Array, *, space: str = "shared", overlap: str = "compute") -> Array:
    return x.copy()


PREFETCH = view(
    "prefetch",
    "A tensor prefetched to a memory space before its use, overlapped with other work; elements are the same.",
    attributes=(
        Attribute("space", "str", "shared", "the memory it goes to"),
        Attribute("overlap", "str", "compute", "what the movement goes on beside"),
    ),
    infer=_infer_prefetch,
    reference=_prefetch_reference,
    maps=lambda x, outs, attributes: [coordinates(x.rank)],
    space=lambda attributes: str(attributes["space"]),
    samples=(moving_sample((3, 4), "shared"), moving_sample((), "scalar")),
)


def _infer_same(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    return list(types)


def _same_reference(x: Array) -> Array:
    return x.copy()


STOP_GRADIENT = view(
    "stop_gradient",
    "The same elements, which derivatives take as constant.",
    attributes=(),
    infer=_infer_same,
    reference=_same_reference,
    maps=lambda x, outs, attributes: [coordinates(x.rank)],
    simplify=lambda simplifier, operands, attributes: operands[0],
    samples=(moving_sample((3, 4), "matrix"), moving_sample((), "scalar")),
    jvp="zero",
)

SPECS: tuple[OpSpec, ...] = (
    RESHAPE,
    TRANSPOSE,
    BROADCAST_TO,
    EXPAND_DIMS,
    SQUEEZE,
    SLICE,
    FLIP,
    ROLL,
    TILE,
    REPEAT,
    SPLIT,
    PREFETCH,
    STOP_GRADIENT,
)
