"""The contraction under a convolution on machines whose copies read windows by themselves (im2col of TMA).

It is what `unfold` and `dot_general` are together, of an image with its channels last, and nothing of what windows read
is written down. It is made behind all transforms, by `graph-unfold-windows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Types, cost_of, dims, same_dim
from tessera.ir.graph.ops.contraction import (
    NUMERICS,
    check_segments,
    contract_reference,
    contraction_dtype,
    coordinate,
    reference_dtype,
    segment_maps,
)
from tessera.ir.graph.ops.unfold import unfold_reference
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Contraction, ContractionMaps
from tessera.types.dim import Dim, product
from tessera.types.shape import ZERO, Shape, TensorType

ROWS, COLUMNS, SUMMED = POSITIONS = ("rows", "columns", "k")
"""What the positions of windows are: rows or columns of the result, or what is summed for a gradient by weights."""


def _operands(operands: Sequence[Any], attributes: Attributes) -> tuple[Any, Any]:
    """The image and the other operand: what windows read is the A operand where positions are rows."""
    return (operands[0], operands[1]) if attributes["positions"] == ROWS else (operands[1], operands[0])


def _window_sizes(other: Shape, attributes: Attributes) -> Shape:
    """The sizes of windows: of weights, or as they are said."""
    return tuple(map(Dim.of, attributes["taps"])) if attributes["positions"] == SUMMED else other[1:-1]


def _infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    if attributes["positions"] not in POSITIONS:
        raise ctx.fail(f"`dot_windows` has positions as {' or '.join(POSITIONS)}, not {attributes['positions']!r}")
    x, other = _operands(types, attributes)
    is_summed = attributes["positions"] == SUMMED
    names = ("shape", "stride", "dilation", "low", *(["taps"] if is_summed else []))
    counts = [len(attributes[name]) for name in names]
    if x.rank < 3 or other.rank != x.rank or any(count != x.rank - 2 for count in counts):
        raise ctx.fail(
            f"`dot_windows` of an image of rank {x.rank} has another operand of that rank and {max(x.rank - 2, 1)} "
            f"numbers as {', '.join(f'`{name}`' for name in names)}, got {other} and {counts}",
            help="the image is [N, ..., C], weights are [O, ..., C], and what is summed with it is [N, ..., O]",
        )
    if min((*attributes["stride"], *attributes["dilation"])) < 1:
        raise ctx.fail("`dot_windows` has a stride and a dilation from 1 on")
    dtype = contraction_dtype(ctx, "dot_windows", types, attributes)
    extents = tuple(map(Dim.of, attributes["shape"]))
    if is_summed:
        for axis, (size, extent) in enumerate(zip(other.shape, (x.shape[0], *extents), strict=False)):
            same_dim(ctx, size, extent, f"`dot_windows` needs an element for each position along axis {axis}")
        whole = TensorType((other.shape[-1], *_window_sizes(other.shape, attributes), x.shape[-1]), dtype)
        return [check_segments(ctx, "dot_windows", whole, product(other.shape[:-1]), attributes)]
    same_dim(ctx, other.shape[-1], x.shape[-1], "`dot_windows` needs equal channels")
    own = (*extents, other.shape[0]) if attributes["positions"] == ROWS else (other.shape[0], *extents)
    whole = TensorType((x.shape[0], *own), dtype)
    return [check_segments(ctx, "dot_windows", whole, product(other.shape[1:]), attributes)]


_GROUPS = {ROWS: ("m", "m", "k", "n"), COLUMNS: ("b", "n", "k", "m"), SUMMED: ("k", "k", "n", "m")}
"""The coordinates of images, of positions, of elements of a window with their channels, and of the other operand."""


def _maps(types: Types, attributes: Attributes) -> ContractionMaps:
    """An implicit GEMM: K is the window and then channels, or images and then positions."""
    x, other = _operands(types, attributes)
    form, extents = attributes["positions"], tuple(map(Dim.of, attributes["shape"]))
    images, positions, window, others = _GROUPS[form]
    first = 1 if images == positions else 0
    places = tuple(coordinate(positions, first + axis) for axis in range(len(extents)))
    inner = tuple(coordinate(window, axis) for axis in range(len(extents) + 1))
    read: list[Dim] = []
    for axis, (stride, dilation, low) in enumerate(_window(attributes)):
        read.append(places[axis] * stride + inner[axis] * dilation - low)
    image = (coordinate(images, 0), *read, inner[-1])
    sizes: dict[str, Shape] = dict.fromkeys("bmnk", ())
    sizes[images] = x.shape[:1]
    sizes[positions] = (*sizes[positions], *extents)
    sizes[window] = (*_window_sizes(other.shape, attributes), x.shape[-1])
    sizes[others] = other.shape[-1:] if form == SUMMED else other.shape[:1]
    own = coordinate(others, 0)
    weights = (coordinate(images, 0), *places, own) if form == SUMMED else (own, *inner)
    number = 0 if form == ROWS else 1
    maps = ContractionMaps(
        sizes["b"],
        sizes["m"],
        sizes["n"],
        sizes["k"],
        *((image, weights) if form == ROWS else (weights, image)),
        windows=tuple((number, index, size) for index, size in zip(read, x.shape[1:-1], strict=True)),
        in_memory=(0, 1),
        are_copied=True,
    )
    return segment_maps(maps, attributes)


def _window(attributes: Attributes) -> list[tuple[int, int, Dim]]:
    """Stride, dilation and zeros in front of each spatial dim."""
    low = map(Dim.of, attributes["low"])
    return list(zip(attributes["stride"], attributes["dilation"], low, strict=True))


def dot_windows_reference(lhs: Array, rhs: Array, **attributes: Any) -> Array:
    """Write down what windows read, and multiply."""
    x, other = _operands((lhs, rhs), attributes)
    extents, spatial, form = static_shape(attributes["shape"]), x.ndim - 2, attributes["positions"]
    window = (*static_shape(_window_sizes(dims(*other.shape), attributes)), x.shape[-1])
    shape = (x.shape[0], *extents, *window)
    steps = [0] * (x.ndim * len(shape))
    steps[0] = steps[-1] = 1
    for axis, (stride, dilation, _) in enumerate(_window(attributes)):
        steps[(1 + axis) * len(shape) + 1 + axis] = stride
        steps[(1 + axis) * len(shape) + 1 + spatial + axis] = dilation
    low = (ZERO, *(one for _, _, one in _window(attributes)), ZERO)
    read = unfold_reference(x, shape=dims(*shape), steps=tuple(steps), low=low)
    rows = read.reshape(x.shape[0] * math.prod(extents), math.prod(window))
    numerics: dict[str, Any] = {name: attributes.get(name) for name in ("accumulate", "segment")}
    numerics["partial"] = bool(attributes.get("partial"))
    result = reference_dtype(x, other, attributes.get("dtype"))
    if form == SUMMED:
        out = contract_reference(other.reshape(len(rows), other.shape[-1]).T, rows, result, **numerics)
        return out.reshape(*out.shape[:-1], *window)
    out = contract_reference(rows, other.reshape(other.shape[0], math.prod(window)).T, result, **numerics)
    first = out.ndim - 2
    out = out.reshape(*out.shape[:first], x.shape[0], *extents, other.shape[0])
    if form == ROWS:
        return out
    return out.transpose(*range(first + 1), out.ndim - 1, *range(first + 1, out.ndim - 1))


def _channels(x: TensorType, other: TensorType, attributes: Attributes) -> Dim:
    """Images times channels in and out."""
    return x.shape[0] * x.shape[-1] * (other.shape[-1] if attributes["positions"] == SUMMED else other.shape[0])


def _plain(*, shape: Shape, stride: tuple[int, ...], low: Shape, positions: str) -> dict[str, Any]:
    return {"shape": shape, "stride": stride, "dilation": (1,) * len(stride), "low": low, "positions": positions}


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.dot_windows",
        summary="An image [N, ..., C] read through windows, times [O, ..., C] or [N, ..., O], the latter for weights.",
        operands=("lhs", "rhs"),
        attributes=(
            Attribute("shape", "dims", doc="positions of windows along each spatial dim"),
            Attribute("stride", "ints", doc="from a position to the next"),
            Attribute("dilation", "ints", doc="from an element of a window to the next"),
            Attribute("low", "dims", doc="zeros before each spatial dim"),
            Attribute(
                "positions", "str", ROWS, "rows: of `lhs`; columns: of `rhs`, image by image; k: of both, summed"
            ),
            Attribute("taps", "dims", (), "the size of a window, where no weights have it: positions are summed"),
            *NUMERICS,
        ),
        infer=_infer,
        reference=dot_windows_reference,
        samples=(
            Sample(
                "rows",
                normal((2, 5, 6, 4), (3, 3, 3, 4)),
                _plain(shape=dims(5, 6), stride=(1, 1), low=dims(1, 1), positions="rows"),
            ),
            Sample(
                "columns",
                normal((3, 3, 4), (2, 9, 4)),
                _plain(shape=dims(4), stride=(2,), low=dims(0), positions="columns"),
            ),
            Sample(
                "summed",
                normal((2, 4, 3), (2, 9, 4)),
                {**_plain(shape=dims(4), stride=(2,), low=dims(1), positions="k"), "taps": dims(3)},
            ),
        ),
        dtypes=FLOATS,
        cost=cost_of(
            lambda operands, results, attributes: (
                product(map(Dim.of, attributes["shape"]))
                * product((*_window_sizes(_operands(operands, attributes)[1].shape, attributes), 2))
                * _channels(*_operands(operands, attributes), attributes)
            )
        ),
        lower=Contraction(_maps),
        no_derivative="it is made of contractions behind all transforms",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
