"""Convolutions backwards: transposed ones, which add each element to all of a window, and sums for weights over images.

A convolution with stride s reads its image in s phases: position i of the image is read by the taps r for which
i + low - r * dilation is a multiple of s. So the transpose is one convolution of stride 1 for each phase, with the taps
of that phase alone and in the other order, and the phases are interleaved. Nothing is multiplied by the zeros that
would lie between the elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product as combinations
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, round_as, static_shape
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, Builder, InferContext, OpSpec, PolicyRule, Sample
from tessera.ir.graph.building import (
    Types,
    axes_attribute,
    check_at_least,
    cost_of,
    dilate,
    dims,
    expand,
    restate,
    same_dim,
    slice_axis,
)
from tessera.ir.graph.ops.contraction import (
    NUMERICS,
    check_segments,
    contract_reference,
    contraction_dtype,
    coordinate,
    reference_dtype,
    segment_maps,
    with_segments,
)
from tessera.ir.graph.ops.convolution import (
    WINDOW,
    accumulate_conv,
    check_declared_window,
    check_window,
    conv_windows_reference,
    declared_window,
    per_axis,
    window_of,
    window_values,
)
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Contraction, ContractionMaps
from tessera.types.dim import Dim, maximum, product
from tessera.types.dtype import BlockFormat, DType
from tessera.types.frozen import frozen
from tessera.types.promotion import promote
from tessera.types.shape import ZERO, Shape, TensorType, text


@frozen
class Phase:
    """One phase of an axis: elements `offset`, `offset + stride`, ... of the image, and the taps that reach them.

    They are `first`, `first + step`, ..., `count` of them; the convolution has `dilation`, and `low` zeros before.
    """

    offset: int
    first: int
    step: int
    count: int
    dilation: int
    low: int


def phases_of(taps: int, stride: int, dilation: int, low: int) -> list[Phase]:
    """The phases of an axis of the image, by their first element."""
    shared = math.gcd(stride, dilation)
    step = stride // shared
    found: list[Phase] = []
    for offset in range(stride):
        turn, phase = divmod(offset + low, stride)
        first = next((tap for tap in range(min(step, taps)) if (tap * dilation - phase) % stride == 0), taps)
        count = len(range(first, taps, step))
        reach = max(count - 1, 0) * (dilation // shared)
        start = turn + (phase - first * dilation) // stride - reach if count else 0
        found.append(Phase(offset, first, step, count, dilation // shared, -start))
    return found


def transpose_windows(b: Builder, value: Any, w: Any, image: TensorType, attributes: Attributes) -> Any:
    """The transpose of `conv_windows` by its image: each element of `value` goes to all of the window it came from."""
    made = _Transposed(b, value, w, image, attributes)
    return restate(b, made.by_phases() if made.is_known else made.by_zeros(), image.shape)


class _Transposed:
    """One transpose: the weights as [G?, C, ..., O], and how the convolution that it undoes read its image."""

    def __init__(self, b: Builder, value: Any, w: Any, image: TensorType, attributes: Attributes) -> None:
        self.b, self.value, self.image, self.attributes = b, value, image, attributes
        self.lead = 3 if attributes["grouped"] else 2
        rank, spatial = image.rank, image.rank - self.lead
        channels, first = (rank - 1, self.lead - 1) if attributes["taps_first"] else (self.lead - 1, self.lead)
        order = (*range(self.lead - 2), channels, *range(first, first + spatial), self.lead - 2)
        self.filters = b.emit("transpose", w, axes=order)
        self.taps = b.type_of(self.filters).shape[self.lead - 1 : -1]
        self.low = [Dim.of(one) for one in attributes["low"]]
        self.strides = tuple(int(one) for one in attributes["stride"])
        self.dilations = tuple(int(one) for one in attributes["dilation"])

    @property
    def is_known(self) -> bool:
        """Whether it is known which taps reach which elements."""
        return all(one.value is not None for one in (*self.low, *self.taps))

    def by_zeros(self) -> Any:
        """Zeros between the elements, and one convolution of stride 1: of taps or padding that are symbolic."""
        value = self.value
        for axis, stride in enumerate(self.strides):
            value = dilate(self.b, value, self.lead + axis, stride)
        low = [
            (tap - 1) * dilation - before
            for tap, dilation, before in zip(self.taps, self.dilations, self.low, strict=True)
        ]
        return self._convolve(value, self.filters, self.dilations, low, self.image.shape[self.lead :])

    def by_phases(self) -> Any:
        """One convolution for each phase of each axis, interleaved."""
        sizes = [Dim.of(size).ceildiv(by) for size, by in zip(self.image.shape[self.lead :], self.strides, strict=True)]
        found = [
            phases_of(tap.value or 0, stride, dilation, low.value or 0)
            for tap, stride, dilation, low in zip(self.taps, self.strides, self.dilations, self.low, strict=True)
        ]
        return self._interleave(found, (), sizes)

    def _interleave(self, axes: Sequence[Sequence[Phase]], chosen: tuple[Phase, ...], sizes: Sequence[Dim]) -> Any:
        b, axis = self.b, len(chosen)
        if axis == len(axes):
            return self._one_phase(chosen, sizes)
        parts = [self._interleave(axes, (*chosen, phase), sizes) for phase in axes[axis]]
        if len(parts) == 1:
            return parts[0]
        at = self.lead + axis
        whole = b.emit("concat", *(expand(b, part, at + 1) for part in parts), axis=at + 1)
        shape = b.type_of(whole).shape
        flat = b.emit("reshape", whole, shape=(*shape[:at], shape[at] * len(parts), *shape[at + 2 :]))
        return slice_axis(b, flat, at, ZERO, self.image.shape[at])

    def _one_phase(self, phases: Sequence[Phase], sizes: Sequence[Dim]) -> Any:
        b = self.b
        if any(phase.count == 0 for phase in phases):
            return b.emit("full", shape=(*self.image.shape[: self.lead], *sizes), value=0, dtype=self.image.dtype)
        filters = self.filters
        for axis, phase in enumerate(phases):
            if phase.step > 1 or phase.first:
                at = self.lead - 1 + axis
                filters = slice_axis(b, filters, at, phase.first, self.taps[axis], phase.step)
        low = [Dim.constant(phase.low) for phase in phases]
        return self._convolve(self.value, filters, tuple(phase.dilation for phase in phases), low, sizes)

    def _convolve(
        self, value: Any, filters: Any, dilations: Sequence[int], low: Sequence[Dim], sizes: Sequence[Dim]
    ) -> Any:
        """`sizes` positions of a convolution with the taps in the other order; negative padding leaves elements out."""
        b, before, behind = self.b, list[Dim](), list[Dim]()
        taps = b.type_of(filters).shape[self.lead - 1 : -1]
        for axis, (tap, dilation, start, positions) in enumerate(zip(taps, dilations, low, sizes, strict=True)):
            at, size = self.lead + axis, b.type_of(value).shape[self.lead + axis]
            end = positions + (tap - 1) * dilation - size - start
            cut_low, cut_high = maximum(ZERO - start, ZERO), maximum(ZERO - end, ZERO)
            if cut_low.value != 0 or cut_high.value != 0:
                value = slice_axis(b, value, at, cut_low, maximum(size - cut_high, cut_low))
            before.append(start + cut_low)
            behind.append(end + cut_high)
        rank = b.type_of(filters).rank
        # One tap or one channel leaves nothing to order, and the weights are read as they are.
        taps_first = product(taps).value != 1 and b.type_of(filters).shape[-1].value != 1
        if product(taps).value != 1:
            filters = b.emit("flip", filters, axes=tuple(range(self.lead - 1, rank - 1)))
        if not taps_first:
            filters = b.emit(
                "transpose", filters, axes=(*range(self.lead - 1), rank - 1, *range(self.lead - 1, rank - 1))
            )
        return b.emit(
            "conv_windows", filters, value, stride=(1,) * len(taps), dilation=tuple(dilations), low=tuple(before),
            high=tuple(behind), grouped=self.attributes["grouped"], taps_first=taps_first,
            accumulate=self.attributes["accumulate"], dtype=self.image.dtype,
        )  # fmt: skip


# Transposed convolutions.

OUTPUT_PADDING = Attribute("output_padding", "ints", (0,), "elements more at the end of each spatial axis")


def _infer_transposed(op: str, spatial: int) -> Any:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        x, w = types
        for name, operand in (("x", x), ("w", w)):
            if operand.rank != spatial + 2:
                raise ctx.fail(
                    f"`{op}` needs `{name}` of rank {spatial + 2}, got {text(operand.shape)}",
                    help="`x` is [N, C, ...], `w` is [C, O // groups, ...kernel]",
                )
        dtype = contraction_dtype(ctx, op, types, attributes)
        check_window(ctx, op, attributes, spatial)
        if attributes["padding_mode"] == "same":
            raise ctx.fail(
                f"`{op}` has no padding `same`: several sizes of a result have one of {text(x.shape[2:])}",
                help="give `padding` and `output_padding` as numbers",
            )
        _check_output_padding(ctx, op, attributes, spatial)
        groups = int(attributes["groups"])
        if groups < 1 or (x.shape[1] % groups).value not in (0, None):
            raise ctx.fail(f"`groups` = {groups} must divide the {x.shape[1]} channels in")
        message = f"`{op}` of {text(x.shape)} with {text(w.shape)}: the channels differ"
        same_dim(ctx, x.shape[1], w.shape[0], message, help="`w` is [C, O // groups, ...kernel]")
        sizes = _transposed_extents(x.shape[2:], w.shape[2:], attributes)
        for axis, size in enumerate(sizes):
            check_at_least(ctx, size, 0, f"`{op}` cuts more than there is of axis {axis + 2}: its size would be {size}")
        return [TensorType((x.shape[0], w.shape[1] * groups, *sizes), dtype)]

    return infer


def _check_output_padding(ctx: InferContext, op: str, attributes: Attributes, spatial: int) -> None:
    more = axes_attribute(attributes, "output_padding")
    if len(more) not in (1, spatial) or any(value < 0 for value in more):
        raise ctx.fail(f"`{op}` needs 1 or {spatial} numbers of at least 0 as `output_padding`, got {list(more)}")
    names = ("stride", "dilation", "output_padding")
    each = zip(*(per_axis(attributes, name, spatial) for name in names), strict=True)
    for axis, (stride, dilation, extra) in enumerate(each):
        if extra and extra >= max(stride, dilation):
            raise ctx.fail(
                f"`{op}` has an `output_padding` of {extra} along axis {axis + 2}, which must be below the larger of "
                f"stride {stride} and dilation {dilation}",
                help="pad the result instead: those elements are zero",
            )


def _transposed_extents(sizes: Shape, taps: Shape, attributes: Attributes) -> Shape:
    window = window_of(sizes, taps, attributes)
    more = per_axis(attributes, "output_padding", len(sizes))
    return tuple(
        (size - 1) * window.strides[axis]
        + (taps[axis] - 1) * window.dilations[axis]
        + 1
        + more[axis]
        - window.low[axis]
        - window.high[axis]
        for axis, size in enumerate(sizes)
    )


def _decompose_transposed(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, w = operands
    x_type, w_shape = b.type_of(x), b.type_of(w).shape
    groups, window = int(attributes["groups"]), window_of(x_type.shape[2:], w_shape[2:], attributes)
    sizes = _transposed_extents(x_type.shape[2:], w_shape[2:], attributes)
    shape = (x_type.shape[0], w_shape[1] * groups, *sizes)
    split: Shape = ()
    if groups > 1:
        split = (Dim.constant(groups),)
        x = b.emit("reshape", x, shape=(x_type.shape[0], *split, x_type.shape[1] // groups, *x_type.shape[2:]))
        w = b.emit("reshape", w, shape=(*split, w_shape[0] // groups, *w_shape[1:]))
    dtype: DType | None = attributes["dtype"] or promote(x_type.dtype, b.type_of(w).dtype)
    assert dtype is not None, "operands that do not promote are refused by `infer`"
    image = TensorType((x_type.shape[0], *split, w_shape[1], *sizes), dtype)
    numerics = {"accumulate": attributes["accumulate"], "grouped": groups > 1, "taps_first": False}
    made = transpose_windows(b, x, w, image, {**window.attributes, **numerics})
    return made if groups == 1 else b.emit("reshape", made, shape=shape)


def _cut_or_pad(x: Array, axis: int, low: int, high: int) -> Array:
    """Zeros around an axis; fewer than none leaves elements out."""
    size = x.shape[axis]
    kept = np.take(x, range(max(-low, 0), max(size - max(-high, 0), max(-low, 0))), axis)
    return np.pad(kept, [(max(low, 0), max(high, 0)) if at == axis else (0, 0) for at in range(x.ndim)])


def conv_transpose_reference(
    x: Array, w: Array, *, groups: int = 1, dtype: DType | None = None, accumulate: DType | None = None, **given: Any
) -> Array:
    """Phase by phase: the taps of each, in the other order, on the elements that they multiply."""
    attributes = {one.name: given.get(one.name, one.default) for one in (*WINDOW, OUTPUT_PADDING)}
    window = window_of(dims(*x.shape[2:]), dims(*w.shape[2:]), attributes)
    sizes = static_shape(_transposed_extents(dims(*x.shape[2:]), dims(*w.shape[2:]), attributes))
    spatial, low = len(sizes), static_shape(window.low)
    result = reference_dtype(x, w, dtype)
    values = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    # [G, C, O, taps] to [G, O, C, taps]
    filters = np.moveaxis(w.reshape(groups, w.shape[0] // groups, *w.shape[1:]), 1, 2)
    out = np.zeros((x.shape[0], groups, w.shape[1], *sizes), round_as(np.zeros(1), result).dtype)
    axes = [
        phases_of(w.shape[2 + axis], window.strides[axis], window.dilations[axis], low[axis]) for axis in range(spatial)
    ]
    for phases in combinations(*axes):
        if any(phase.count == 0 for phase in phases):
            continue
        image, taps = values, filters
        places = [slice(None)] * 3
        for axis, phase in enumerate(phases):
            positions = len(range(phase.offset, sizes[axis], window.strides[axis]))
            high = positions + (phase.count - 1) * phase.dilation - x.shape[2 + axis] - phase.low
            image = _cut_or_pad(image, 3 + axis, phase.low, high)
            taps = np.flip(np.take(taps, range(phase.first, w.shape[2 + axis], phase.step), 3 + axis), 3 + axis)
            places.append(slice(phase.offset, None, window.strides[axis]))
        none = {"low": (0,) * spatial, "high": (0,) * spatial, "stride": (1,) * spatial}
        dilations = {"dilation": tuple(phase.dilation for phase in phases)}
        numerics: dict[str, Any] = {"accumulate": accumulate, "dtype": result}
        if 0 not in out[tuple(places)].shape:
            out[tuple(places)] = conv_windows_reference(taps, image, grouped=True, **none, **dilations, **numerics)
    return out.reshape(x.shape[0], groups * w.shape[1], *sizes)


def _accumulate_transposed(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """In an accumulator that kernels lack: zeros between the elements, and the sum of a convolution of stride 1."""
    x, w = operands
    spatial, groups = b.type_of(x).rank - 2, int(attributes["groups"])
    window = window_of(b.type_of(x).shape[2:], b.type_of(w).shape[2:], attributes)
    sizes = _transposed_extents(b.type_of(x).shape[2:], b.type_of(w).shape[2:], attributes)
    for axis in range(spatial):
        x = dilate(b, x, 2 + axis, window.strides[axis])
        reach = (window.taps[axis] - 1) * window.dilations[axis]
        low = reach - window.low[axis]
        high = sizes[axis] + reach - b.type_of(x).shape[2 + axis] - low
        x = _resize_axis(b, x, 2 + axis, low, high)
    shape = b.type_of(w).shape
    w = b.emit("flip", w, axes=tuple(range(2, 2 + spatial)))
    w = b.emit("reshape", w, shape=(Dim.constant(groups), shape[0] // groups, *shape[1:]))
    w = b.emit("transpose", w, axes=(0, 2, 1, *range(3, 3 + spatial)))
    w = b.emit("reshape", w, shape=(shape[1] * groups, shape[0] // groups, *shape[2:]))
    plain = {"stride": (1,), "padding": (0,), "padding_mode": "valid", "dilation": window.dilations, "groups": groups}
    made = accumulate_conv(b, (x, w), plain, total, emit_composite)
    return restate(b, made, (b.type_of(x).shape[0], shape[1] * groups, *sizes))


def _resize_axis(b: Builder, x: Any, axis: int, low: Dim, high: Dim) -> Any:
    size, rank = b.type_of(x).shape[axis], b.type_of(x).rank
    cut_low, cut_high = maximum(ZERO - low, ZERO), maximum(ZERO - high, ZERO)
    if cut_low.value != 0 or cut_high.value != 0:
        x = slice_axis(b, x, axis, cut_low, maximum(size - cut_high, cut_low))
    pads = [[ZERO] * rank, [ZERO] * rank]
    pads[0][axis], pads[1][axis] = low + cut_low, high + cut_high
    return b.emit("pad", x, low=tuple(pads[0]), high=tuple(pads[1]), value=0.0)


def _transposed_block_axis(
    op: str, type: TensorType, number: int, attributes: Attributes, blocks: BlockFormat
) -> int | tuple[str, str]:
    """The channels in, which blocks must not cross groups of."""
    groups, axis = int(attributes["groups"]), 0 if number else 1
    channels = type.shape[axis] // groups
    if groups > 1 and (channels % blocks.block).value != 0:
        return (
            f"`{op}` has groups of {channels} channels, and blocks of {blocks} have {blocks.block}",
            "use groups of whole blocks, or a policy that stores a dtype here",
        )
    return axis


def _conv_transpose(spatial: int, layout: str, samples: tuple[Sample, ...]) -> OpSpec:
    op = f"conv_transpose{spatial}d"
    return OpSpec(
        name=f"tgraph.{op}",
        summary=f"The transpose of a convolution by its image: x[N, C, {layout}] with w[C, O // groups, ...].",
        operands=("x", "w"),
        attributes=(
            *WINDOW,
            OUTPUT_PADDING,
            Attribute("groups", "int", 1, "channels split into this many parts"),
            *NUMERICS,
        ),
        infer=_infer_transposed(op, spatial),
        reference=conv_transpose_reference,
        cost=cost_of(lambda operands, results, attributes: operands[0].size * product(operands[1].shape[1:]) * 2),
        dtypes=FLOATS,
        decompose=_decompose_transposed,
        samples=samples,
        policy=PolicyRule(
            "contract", accumulate=_accumulate_transposed, block_axis=partial(_transposed_block_axis, op)
        ),
        interval=ANYTHING,
    )


# Sums for weights.


def _infer_weights(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    y, x = types
    lead, spatial = (3 if attributes["grouped"] else 2), len(attributes["stride"])
    if y.rank != lead + spatial or x.rank != y.rank or len(attributes["taps"]) != spatial:
        raise ctx.fail(f"`conv_weights` over {spatial} axes needs rank {lead + spatial} and taps, got {y} and {x}")
    check_declared_window(ctx, "conv_weights", attributes)
    for axis in (0, 1) if attributes["grouped"] else (0,):
        same_dim(ctx, y.shape[axis], x.shape[axis], "`conv_weights` needs equal batches and groups")
    dtype = contraction_dtype(ctx, "conv_weights", types, attributes)
    taps = tuple(map(Dim.of, attributes["taps"]))
    extents = declared_window(taps, attributes).extents(x.shape[lead:])
    for axis, (size, extent) in enumerate(zip(y.shape[lead:], extents, strict=True)):
        same_dim(ctx, size, extent, f"`conv_weights` needs a position of the window for each of axis {lead + axis}")
    whole = TensorType((*y.shape[1:lead], x.shape[lead - 1], *taps), dtype)
    return [check_segments(ctx, "conv_weights", whole, y.shape[0] * product(y.shape[lead:]), attributes)]


def _weights_sizes(types: Types, attributes: Attributes) -> tuple[Dim, Dim]:
    """K is images and positions, and columns are channels out: those of the product that a 1 x 1 convolution is."""
    y, lead = types[0], 3 if attributes["grouped"] else 2
    return y.shape[0] * product(y.shape[lead:]), y.shape[lead - 1]


def _weights_maps(types: Types, attributes: Attributes) -> ContractionMaps:
    """Rows are channels out, columns channels in and taps, K is images and then positions of the window."""
    y, x = types
    lead = 3 if attributes["grouped"] else 2
    taps = tuple(map(Dim.of, attributes["taps"]))
    window = declared_window(taps, attributes)
    group = (coordinate("b", 0),) if attributes["grouped"] else ()
    read: list[Dim] = []
    windows: list[tuple[int, Dim, Dim]] = []
    for axis, size in enumerate(x.shape[lead:]):
        start = coordinate("k", axis + 1) * window.strides[axis] - window.low[axis]
        read.append(start + coordinate("n", axis + 1) * window.dilations[axis])
        if window.low[axis].value != 0 or window.high[axis].value != 0:
            windows.append((1, read[-1], size))
    maps = ContractionMaps(
        batch=y.shape[1 : lead - 1],
        m=(y.shape[lead - 1],),
        n=(x.shape[lead - 1], *taps),
        k=(y.shape[0], *y.shape[lead:]),
        lhs=(coordinate("k", 0), *group, coordinate("m", 0), *(coordinate("k", at + 1) for at in range(len(taps)))),
        rhs=(coordinate("k", 0), *group, coordinate("n", 0), *read),
        windows=tuple(windows),
    )
    return segment_maps(maps, attributes)


def conv_weights_reference(
    y: Array, x: Array, *, grouped: bool = False, dtype: DType | None = None, taps: Any = (), **given: Any
) -> Array:
    """The windows of all images as one matrix, [images and positions, channels and taps], times the cotangents."""
    values, image = (y, x) if grouped else (y[:, np.newaxis], x[:, np.newaxis])
    window = declared_window(tuple(map(Dim.of, taps)), given)
    positions, groups = math.prod(values.shape[3:]), values.shape[1]
    count = y.shape[0] * positions
    columns = np.moveaxis(window_values(image, 3, window, 0.0), 0, -1)
    # [N, G, C, positions, taps] to [G, K, C taps]
    matrix = np.moveaxis(columns.reshape(*image.shape[:3], positions, columns.shape[-1]), 2, 3)
    matrix = np.moveaxis(matrix, 1, 0).reshape(groups, count, math.prod((image.shape[2], *static_shape(window.taps))))
    rows = np.moveaxis(values.reshape(*values.shape[:3], positions), (1, 2), (0, 1)).reshape(
        groups, values.shape[2], count
    )
    numerics: dict[str, Any] = {name: given.get(name) for name in ("accumulate", "segment")}
    partial_results = bool(given.get("partial"))
    out = contract_reference(rows, matrix, reference_dtype(y, x, dtype), **numerics, partial=partial_results)
    shape = (values.shape[2], image.shape[2], *static_shape(window.taps))
    lead = out.shape[: out.ndim - 3]
    return out.reshape(*lead, *((groups,) if grouped else ()), *shape)


CONV_WEIGHTS = OpSpec(
    name="tgraph.conv_weights",
    summary="The transpose of `conv_windows` by its weights: y[N, G?, O, ...], x[N, G?, C, ...] to [G?, O, C, taps].",
    operands=("y", "x"),
    attributes=(
        Attribute("taps", "dims", doc="the size of the window"),
        Attribute("stride", "ints"),
        Attribute("dilation", "ints"),
        Attribute("low", "dims", doc="zeros before each spatial axis"),
        Attribute("high", "dims", doc="zeros after each spatial axis"),
        Attribute("grouped", "bool", False, "whether `y` and `x` have a group axis"),
        *NUMERICS,
    ),
    jvp="multilinear",
    transpose="contraction:conv_weights",
    batch="conv_weights",
    infer=_infer_weights,
    attribute_rule=with_segments(_weights_sizes),
    reference=conv_weights_reference,
    cost=cost_of(
        lambda operands, results, attributes: (
            operands[0].size
            * 2
            * product(map(Dim.of, attributes["taps"]))
            * operands[1].shape[2 if attributes["grouped"] else 1]
        )
    ),
    dtypes=FLOATS,
    lower=Contraction(_weights_maps),
    samples=(
        Sample(
            "padded",
            normal((2, 3, 4), (2, 2, 8)),
            {"taps": dims(3), "stride": (2,), "dilation": (1,), "low": dims(1), "high": dims(0)},
        ),
        Sample(
            "grouped",
            normal((2, 2, 3, 5), (2, 2, 2, 6)),
            {"taps": dims(2), "stride": (1,), "dilation": (2,), "low": dims(0), "high": dims(1), "grouped": True},
        ),
        Sample(
            "two axes",
            normal((2, 3, 4, 3), (2, 2, 5, 5)),
            {"taps": dims(2, 3), "stride": (1, 2), "dilation": (1, 1), "low": dims(0, 1), "high": dims(0, 1)},
        ),
    ),
    policy=KEEP,
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (
    _conv_transpose(
        1,
        "L",
        (
            Sample("plain", normal((2, 3, 5), (3, 4, 3))),
            Sample("strided", normal((1, 2, 4), (2, 3, 4)), {"stride": (2,), "padding": (1,)}),
            Sample("gaps", normal((1, 4, 3), (4, 1, 2)), {"stride": (3,), "groups": 2, "output_padding": (1,)}),
        ),
    ),
    _conv_transpose(
        2,
        "H, W",
        (
            Sample("plain", normal((1, 3, 4, 3), (3, 2, 3, 2))),
            Sample(
                "strided", normal((2, 2, 3, 4), (2, 3, 3, 3)), {"stride": (2,), "padding": (1,), "output_padding": (1,)}
            ),
            Sample(
                "uneven",
                normal((1, 4, 3, 3), (4, 2, 2, 4)),
                {"stride": (3, 2), "dilation": (2, 3), "groups": 2, "padding": (2, 1, 0, 3)},
            ),
        ),
    ),
    _conv_transpose(
        3, "D, H, W", (Sample("strided", normal((1, 2, 2, 3, 2), (2, 2, 2, 2, 3)), {"stride": (1, 2, 2)}),)
    ),
    CONV_WEIGHTS,
)
