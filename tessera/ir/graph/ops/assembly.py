"""Results put together from boxes: concat, stack, pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as, static_shape
from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.interval import IntervalRule, point
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec, Sample, Simplifier
from tessera.ir.graph.building import Types, check_axes, check_same, check_value, dims, drop_when, moving_cost
from tessera.ir.graph.ops.movement import STORED
from tessera.ir.graph.samples import moving_sample, normal, shape_name
from tessera.ir.tile.facets import Assembly, Gather, Piece
from tessera.types.dim import Dim
from tessera.types.shape import ONE, ZERO, Shape, TensorType, equal_dims, is_at_least, path, text


def _check_alike(ctx: InferContext, op: str, types: Types) -> TensorType:
    if not types:
        raise ctx.fail(f"`{op}` needs at least one operand")
    first = types[0]
    check_same(ctx, op, [f"xs[{number}]" for number in range(len(types))], types)
    for x in types[1:]:
        if x.rank != first.rank:
            raise ctx.fail(f"`{op}` needs operands of one rank, got {text(first.shape)} and {text(x.shape)}")
    return first


def _common_dims(ctx: InferContext, op: str, types: Types, but: int | None) -> list[Dim]:
    """The dims all operands share, except on axis `but`."""
    shape = list(types[0].shape)
    for number, x in enumerate(types[1:], 1):
        for axis, dim in enumerate(x.shape):
            if axis != but:
                what = f"{path('xs[0]', axis, shape[axis])} and {path(f'xs[{number}]', axis, dim)}"
                shape[axis] = equal_dims(ctx, op, shape[axis], dim, what)
    return shape


def _infer_concat(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    first, axis = _check_alike(ctx, "concat", types), int(attributes["axis"])
    check_axes(ctx, "concat", first, (axis,))
    shape = _common_dims(ctx, "concat", types, axis)
    shape[axis] = sum((x.shape[axis] for x in types), ZERO)
    return [first.with_shape(shape)]


def _concat_reference(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


def _concat_pieces(types: Types, outs: Types, attributes: Attributes) -> Sequence[Piece]:
    axis, begin, pieces = int(attributes["axis"]), ZERO, list[Piece]()
    for number, x in enumerate(types):
        start = tuple(begin if own == axis else ZERO for own in range(x.rank))
        pieces.append(Piece(number, start, x.shape, coordinates(x.rank)))
        begin = begin + x.shape[axis]
    return pieces


def _simplify_concat(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a concat of one; rewrite concat to leave out operands known to be empty."""
    if len(operands) == 1:
        return operands[0]
    axis = int(attributes["axis"])
    shapes = [simplifier.type_of(x).shape for x in operands]
    # operands equal by a guard only may differ in how their dims are written, and so in type
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
        return None
    kept = [x for x, shape in zip(operands, shapes, strict=True) if shape[axis].value != 0] or list(operands[:1])
    if len(kept) == len(operands):
        return None
    return kept[0] if len(kept) == 1 else simplifier.emit("concat", *kept, axis=axis)


def _infer_stack(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    first, axis = _check_alike(ctx, "stack", types), attributes["axis"]
    if not 0 <= axis <= first.rank:
        raise ctx.fail(f"`stack` cannot put an axis at {axis} of a result of rank {first.rank + 1}")
    shape = _common_dims(ctx, "stack", types, None)
    return [first.with_shape((*shape[:axis], len(types), *shape[axis:]))]


def _stack_reference(*xs: Array, axis: int) -> Array:
    return np.stack(xs, axis)


def _stack_pieces(types: Types, outs: Types, attributes: Attributes) -> Sequence[Piece]:
    axis, rank = attributes["axis"], outs[0].rank
    pieces: list[Piece] = []
    for number, x in enumerate(types):
        start = tuple(Dim.constant(number) if own == axis else ZERO for own in range(rank))
        extent = (*x.shape[:axis], ONE, *x.shape[axis:])
        read = tuple(index for own, index in enumerate(coordinates(rank)) if own != axis)
        pieces.append(Piece(number, start, extent, read))
    return pieces


def _simplify_stack(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite a stack of one to an inserted dim."""
    return simplifier.emit("expand_dims", operands[0], axes=(attributes["axis"],)) if len(operands) == 1 else None


def _infer_pad(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,), low, high = types, tuple(attributes["low"]), tuple(attributes["high"])
    if not len(low) == len(high) == x.rank:
        raise ctx.fail(f"`pad` needs one width before and after each of {x.rank} axes, got {len(low)} and {len(high)}")
    for axis, width in (*enumerate(low), *enumerate(high)):
        if not is_at_least(width, 0):
            raise ctx.fail(f"`pad` needs widths of 0 or more, got {width} on axis {axis}", help="cut with a slice")
    check_value(ctx, "pad", attributes["value"], x.dtype)
    return [x.with_shape(before + dim + after for before, dim, after in zip(low, x.shape, high, strict=True))]


def _pad_reference(x: Array, *, low: Sequence[Dim], high: Sequence[Dim], value: float = 0.0) -> Array:
    before, after = static_shape(low), static_shape(high)
    shape = [b + size + a for b, size, a in zip(before, x.shape, after, strict=True)]
    out = np.empty(shape, x.dtype)
    # An integer that no float holds comes as an int.
    out[...] = round_as(np.asarray(value) if type(value) is int else np.float64(value), dtype_of(x))
    out[tuple(slice(b, b + size) for b, size in zip(before, x.shape, strict=True))] = x
    return out


def _pad_pieces(types: Types, outs: Types, attributes: Attributes) -> Sequence[Piece]:
    """The operand, and on each axis a box before and one after it, over what earlier axes left: no cell twice."""
    x, low, high = types[0].shape, tuple(attributes["low"]), tuple(attributes["high"])
    pieces: list[Piece] = []
    for axis in range(len(x)):
        for begin, width in ((ZERO, low[axis]), (low[axis] + x[axis], high[axis])):
            if width != ZERO:
                start = (*low[:axis], begin, *[ZERO] * (len(x) - axis - 1))
                extent: Shape = (*x[:axis], width, *outs[0].shape[axis + 1 :])
                pieces.append(Piece(None, start, extent, fill=attributes["value"]))
    return [*pieces, Piece(0, low, x, coordinates(len(x)))]


def _pad_maps(types: Types, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    low = tuple(attributes["low"])
    return [tuple(index - before for index, before in zip(coordinates(types[0].rank), low, strict=True))]


def _several(axis: int, *shapes: tuple[int, ...]) -> Sample:
    return Sample(f"{shape_name(shapes)} on {axis}", normal(*shapes), {"axis": axis})


CONCAT = OpSpec(
    name="tgraph.concat",
    summary="Operands one after the other along an axis.",
    operands=("xs*",),
    attributes=(Attribute("axis", "int", doc="the axis that grows"),),
    infer=_infer_concat,
    jvp="linear",
    transpose="movement:concat",
    batch="movement:join",
    reference=_concat_reference,
    samples=(
        _several(0, (3,), (4,)),
        _several(1, (3, 2), (3, 5), (3, 1)),
        _several(0, (2, 3, 5), (1, 3, 5)),
        _several(0, (0, 3), (4, 3)),
        _several(1, (2, 0), (2, 0)),
        _several(0, (7,)),
        _several(1, (13, 31), (13, 67)),
    ),
    dtypes=STORED,
    cost=moving_cost,
    simplify=_simplify_concat,
    lower=Assembly(_concat_pieces),
)

STACK = OpSpec(
    name="tgraph.stack",
    summary="Operands of one shape stacked along a new axis.",
    operands=("xs*",),
    attributes=(Attribute("axis", "int", doc="where the result has the new axis"),),
    infer=_infer_stack,
    jvp="linear",
    transpose="movement:stack",
    batch="movement:join",
    reference=_stack_reference,
    samples=(
        _several(0, (3,), (3,)),
        _several(1, (3, 5), (3, 5), (3, 5)),
        _several(2, (3, 5), (3, 5)),
        _several(0, (), (), ()),
        _several(1, (0, 3), (0, 3)),
        _several(0, (7,)),
    ),
    dtypes=STORED,
    cost=moving_cost,
    simplify=_simplify_stack,
    lower=Assembly(_stack_pieces),
)


PAD = OpSpec(
    name="tgraph.pad",
    summary="The operand with a border of one value.",
    operands=("x",),
    attributes=(
        Attribute("low", "dims", doc="width before each axis"),
        Attribute("high", "dims", doc="width after each axis"),
        Attribute("value", "float", 0.0, doc="what the border is filled with"),
    ),
    infer=_infer_pad,
    jvp="movement:pad_jvp",
    transpose="movement:pad",
    batch="movement:pad",
    reference=_pad_reference,
    samples=(
        moving_sample((5,), low=dims(2), high=dims(1)),
        moving_sample((3, 5), low=dims(1, 0), high=dims(0, 2), value=3.0),
        moving_sample((2, 3, 5), low=dims(1, 2, 3), high=dims(3, 2, 1), value=1.0),
        moving_sample((0, 3), low=dims(1, 1), high=dims(1, 0)),
        moving_sample((3,), low=dims(0), high=dims(0)),
        moving_sample((13, 31), low=dims(0, 1), high=dims(3, 32)),
    ),
    dtypes=STORED,
    cost=moving_cost,
    simplify=drop_when(lambda attributes: all(width == ZERO for width in (*attributes["low"], *attributes["high"]))),
    lower=Assembly(_pad_pieces, "tgraph.pad_gather"),
    interval=IntervalRule(
        lambda query: query.x.hull(point(float(query.attributes.get("value", 0.0) or 0.0))), is_exact=True
    ),
)

PAD_GATHER = replace(
    PAD,
    name="tgraph.pad_gather",
    summary="The operand with a border of one value, each element read where it is wanted.",
    lower=Gather(_pad_maps, lambda attributes: attributes["value"]),
)

SPECS: tuple[OpSpec, ...] = (CONCAT, STACK, PAD, PAD_GATHER)
