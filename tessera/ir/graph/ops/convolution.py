"""Ops over windows of the trailing axes: convolution, channels first, and pooling.

A convolution is a contraction over windows that read zero outside the image; pooling reduces, in order, one shifted
slice of the padded tensor for each element of the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from itertools import product as positions
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, static_shape
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import (
    FLOATS,
    KEEP,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
)
from tessera.ir.graph.building import (
    ACCUMULATE,
    Types,
    axes_attribute,
    cast,
    check_accumulator,
    check_at_least,
    check_float,
    constant,
    cost_of,
    dims,
    restate,
    same_dim,
    size_value,
    slice_axis,
)
from tessera.ir.graph.ops.contraction import (
    NUMERICS,
    contract_reference,
    contraction_dtype,
    coordinate,
    reference_dtype,
)
from tessera.ir.graph.ops.reduce import scan_reference
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Contraction, ContractionMaps
from tessera.types import dtype as dt
from tessera.types.dim import Dim, maximum, product
from tessera.types.dtype import BlockFormat, DType
from tessera.types.frozen import frozen
from tessera.types.shape import ONE, ZERO, Shape, TensorType, text

MODES = ("explicit", "same", "valid")

WINDOW = (
    Attribute("stride", "ints", (1,), "step of the window, one for all spatial axes or one each"),
    Attribute("padding", "ints", (0,), "one for all; one each; or low and high, axis by axis"),
    Attribute(
        "padding_mode", "str", "explicit", "explicit: as `padding` says; same: to ceil(size / stride); valid: none"
    ),
    Attribute("dilation", "ints", (1,), "distance between the window's elements"),
)


@frozen
class Window:
    """A window on spatial axes: its size, step and distance between elements along each, and the padding."""

    taps: Shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: Shape
    high: Shape

    def slack(self, axis: int, size: Dim) -> Dim:
        """How far the window can move along an axis of this size."""
        return size + self.low[axis] + self.high[axis] - (self.taps[axis] - 1) * self.dilations[axis] - 1

    def extents(self, sizes: Sequence[Dim]) -> Shape:
        """How many positions the window has along each axis."""
        return tuple(self.slack(axis, size) // self.strides[axis] + 1 for axis, size in enumerate(sizes))

    @property
    def is_padded(self) -> bool:
        return any(dim.value != 0 for dim in (*self.low, *self.high))

    @property
    def attributes(self) -> dict[str, Any]:
        """The window as attributes of `conv_windows`."""
        return {"stride": self.strides, "dilation": self.dilations, "low": self.low, "high": self.high}


def window_of(sizes: Shape, taps: Shape, attributes: Attributes) -> Window:
    """The window that the attributes `WINDOW` describe; `same` pads the odd one after, as a size that is a dim."""
    strides, dilations = (per_axis(attributes, name, len(sizes)) for name in ("stride", "dilation"))
    if attributes["padding_mode"] == "same":
        covered = [
            (size.ceildiv(stride) - 1) * stride + (tap - 1) * dilation + 1
            for size, tap, stride, dilation in zip(sizes, taps, strides, dilations, strict=True)
        ]
        totals = [maximum(reach - size, 0) for reach, size in zip(covered, sizes, strict=True)]
        low, high = tuple(total // 2 for total in totals), tuple(total.ceildiv(2) for total in totals)
    else:
        padding = (0,) if attributes["padding_mode"] == "valid" else axes_attribute(attributes, "padding")
        if len(padding) != 2 * len(sizes):
            each = padding * len(sizes) if len(padding) == 1 else padding
            padding = tuple(value for value in each for _ in range(2))
        low, high = dims(*padding[::2]), dims(*padding[1::2])
    return Window(taps, strides, dilations, low, high)


def per_axis(attributes: Attributes, name: str, count: int) -> tuple[int, ...]:
    """An attribute given once for all axes, or once for each, as one number each."""
    given = axes_attribute(attributes, name)
    return given * count if len(given) == 1 else given


def check_window(ctx: InferContext, op: str, attributes: Attributes, spatial: int) -> None:
    """Raises where stride, dilation or padding cannot be what they say."""
    for name in ("stride", "dilation"):
        given = axes_attribute(attributes, name)
        if len(given) not in (1, spatial) or any(value < 1 for value in given):
            raise ctx.fail(f"`{op}` needs 1 or {spatial} numbers of at least 1 as `{name}`, got {list(given)}")
    padding = axes_attribute(attributes, "padding")
    if attributes["padding_mode"] not in MODES:
        raise ctx.fail(f"`{op}` has padding modes {', '.join(MODES)}, not {attributes['padding_mode']!r}")
    if len(padding) not in (1, spatial, 2 * spatial) or any(value < 0 for value in padding):
        raise ctx.fail(f"`{op}` needs 1, {spatial} or {2 * spatial} numbers of at least 0 as `padding`, got {padding}")


def _infer_extents(ctx: InferContext, op: str, sizes: Shape, taps: Shape, attributes: Attributes) -> Shape:
    """The spatial dims of the result; a window larger than its padded axis is an error or a guard."""
    window = window_of(sizes, taps, attributes)
    for axis, size in enumerate(sizes if attributes["padding_mode"] != "same" else ()):
        message = f"`{op}` has a window of {taps[axis]} on an axis of {size}: it does not fit"
        check_at_least(ctx, window.slack(axis, size), 0, message)
    return window.extents(sizes)


def _pad(b: Builder, x: Any, window: Window, fill: float) -> Any:
    """A tensor with the padding of a window around its trailing axes."""
    if not window.is_padded:
        return x
    zeros = (ZERO,) * (b.type_of(x).rank - len(window.low))
    return b.emit("pad", x, low=(*zeros, *window.low), high=(*zeros, *window.high), value=fill)


def window_values(x: Array, kept: int, window: Window, fill: float) -> Array:
    """For each element of the window, in row-major order, what it reads at every position of the window."""
    pads = zip(static_shape(window.low), static_shape(window.high), strict=True)
    padded = np.pad(x, [(0, 0)] * kept + list(pads), constant_values=fill)
    taps, extents = static_shape(window.taps), static_shape(window.extents(dims(*x.shape[kept:])))
    found = np.zeros((math.prod(taps), *x.shape[:kept], *extents), x.dtype)
    for number, tap in enumerate(np.ndindex(*taps)):
        read = [slice(None)] * kept
        for at, extent, stride, dilation in zip(tap, extents, window.strides, window.dilations, strict=True):
            read.append(slice(at * dilation, at * dilation + (extent - 1) * stride + 1, stride))
        found[number] = padded[tuple(read)]
    return found


# Convolutions.


def _infer_conv(op: str, spatial: int) -> Any:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        x, w = types
        layout = ("[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]")[spatial - 1]
        for name, operand in (("x", x), ("w", w)):
            if operand.rank != spatial + 2:
                raise ctx.fail(
                    f"`{op}` needs `{name}` of rank {spatial + 2}, got {text(operand.shape)}",
                    help=f"`x` is {layout}, `w` is [O, C // groups, ...kernel]",
                )
        dtype = contraction_dtype(ctx, op, types, attributes)
        check_window(ctx, op, attributes, spatial)
        groups = int(attributes["groups"])
        if groups < 1 or (x.shape[1] % groups).value not in (0, None) or (w.shape[0] % groups).value not in (0, None):
            raise ctx.fail(f"`groups` = {groups} must divide the {x.shape[1]} channels in and {w.shape[0]} out")
        same_dim(
            ctx,
            x.shape[1],
            w.shape[1] * groups,
            f"`{op}` of {text(x.shape)} with {text(w.shape)}{f' in {groups} groups' if groups > 1 else ''}: "
            "the channels differ",
        )
        extents = _infer_extents(ctx, op, x.shape[2:], w.shape[2:], attributes)
        return [TensorType((x.shape[0], w.shape[0], *extents), dtype)]

    return infer


def _decompose_conv(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Split the channels into groups by reshapes, so that a group is a batch axis of the contraction."""
    x, w = operands
    x_shape, w_shape = b.type_of(x).shape, b.type_of(w).shape
    groups, window = int(attributes["groups"]), window_of(x_shape[2:], w_shape[2:], attributes)
    # One channel or one tap leaves nothing to order, and the weights are read as they are.
    taps_first = w_shape[1].value != 1 and product(w_shape[2:]).value != 1
    if taps_first:
        w = b.emit("transpose", w, axes=(0, *range(2, len(w_shape)), 1))
    if groups > 1:
        x = b.emit("reshape", x, shape=(x_shape[0], Dim.constant(groups), w_shape[1], *x_shape[2:]))
        w = b.emit("reshape", w, shape=(Dim.constant(groups), w_shape[0] // groups, *b.type_of(w).shape[1:]))
    out = b.emit(
        "conv_windows",
        w,
        x,
        **window.attributes,
        grouped=groups > 1,
        taps_first=taps_first,
        accumulate=attributes["accumulate"],
        dtype=attributes["dtype"],
    )
    if groups == 1:
        return out
    shape = b.type_of(out).shape
    return b.emit("reshape", out, shape=(shape[0], w_shape[0], *shape[3:]))


def _infer_windows(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    w, x = types
    lead = 3 if attributes["grouped"] else 2
    spatial = len(attributes["stride"])
    if x.rank != lead + spatial or w.rank != x.rank:
        raise ctx.fail(f"`conv_windows` over {spatial} axes needs rank {lead + spatial}, got {w} and {x}")
    check_declared_window(ctx, "conv_windows", attributes)
    dtype = contraction_dtype(ctx, "conv_windows", types, attributes)
    if attributes["grouped"]:
        same_dim(ctx, w.shape[0], x.shape[1], "`conv_windows` needs equal groups")
    channels, taps = weight_dims(w.shape, attributes)
    same_dim(ctx, channels, x.shape[lead - 1], "`conv_windows` needs equal channels")
    extents = declared_window(taps, attributes).extents(x.shape[lead:])
    return [TensorType((x.shape[0], *x.shape[1 : lead - 1], w.shape[lead - 2], *extents), dtype)]


def check_declared_window(ctx: InferContext, op: str, attributes: Attributes) -> None:
    """Raises where the attributes of `declared_window` do not describe a window over one number of axes."""
    spatial = len(attributes["stride"])
    counts = [len(attributes[name]) for name in ("dilation", "low", "high")]
    if any(count != spatial for count in counts) or min((*attributes["stride"], *attributes["dilation"])) < 1:
        raise ctx.fail(f"`{op}` has a stride and dilation from 1 on, low and high for each of {spatial} axes")


def declared_window(taps: Shape, attributes: Attributes) -> Window:
    """The window of `conv_windows`."""
    stride, dilation, low, high = (attributes[name] for name in ("stride", "dilation", "low", "high"))
    return Window(taps, tuple(stride), tuple(dilation), tuple(map(Dim.of, low)), tuple(map(Dim.of, high)))


def _conv_maps(types: Types, attributes: Attributes) -> ContractionMaps:
    """An implicit GEMM: rows are output channels, columns positions of the window, K is the window, then channels."""
    w, x = types
    grouped = bool(attributes["grouped"])
    lead = 3 if grouped else 2
    channels, taps = weight_dims(w.shape, attributes)
    window = declared_window(taps, attributes)
    extents = window.extents(x.shape[lead:])
    group = (coordinate("b", 1),) if grouped else ()
    read: list[Dim] = []
    windows: list[tuple[int, Dim, Dim]] = []
    for axis, size in enumerate(x.shape[lead:]):
        start = coordinate("n", axis) * window.strides[axis] - window.low[axis]
        read.append(start + coordinate("k", axis) * window.dilations[axis])
        # Of one channel all are listed, also those that are never left: they say how the plane lies in memory.
        if window.low[axis].value != 0 or window.high[axis].value != 0 or channels.value == 1:
            windows.append((1, read[-1], size))
    spatial = len(extents)
    inner = tuple(coordinate("k", axis) for axis in range(spatial + 1))
    own = inner if attributes["taps_first"] else (inner[-1], *inner[:-1])
    return ContractionMaps(
        batch=(x.shape[0], *x.shape[1 : lead - 1]),
        m=(w.shape[lead - 2],),
        n=extents,
        k=(*taps, channels),
        lhs=(*group, coordinate("m", 0), *own),
        rhs=(coordinate("b", 0), *group, inner[-1], *read),
        windows=tuple(windows),
        in_memory=(0,) if attributes["taps_first"] else (),
    )


def weight_dims(shape: Shape, attributes: Attributes) -> tuple[Dim, Shape]:
    """The channels and the taps of weights that `conv_windows` reads."""
    inner = shape[2 if attributes["grouped"] else 1 :]
    return (inner[-1], inner[:-1]) if attributes["taps_first"] else (inner[0], inner[1:])


def conv_windows_reference(
    w: Array,
    x: Array,
    *,
    grouped: bool = False,
    taps_first: bool = False,
    accumulate: DType | None = None,
    dtype: DType | None = None,
    **declared: Any,
) -> Array:
    """Pad with zeros, make every window a column (im2col) of its elements, each with all channels, and multiply."""
    weights, image = (w, x) if grouped else (w[np.newaxis], x[:, np.newaxis])
    weights = weights if taps_first else np.moveaxis(weights, 2, -1)
    window = declared_window(dims(*weights.shape[2:-1]), declared)
    columns = np.moveaxis(window_values(image, 3, window, 0.0), 0, 2)
    extents, inner = columns.shape[4:], math.prod(weights.shape[2:])
    matrix = columns.reshape(*image.shape[:2], inner, math.prod(extents))
    rows = weights.reshape(*weights.shape[:2], inner)
    out = contract_reference(rows, matrix, reference_dtype(w, x, dtype), accumulate)
    out = out.reshape(*image.shape[:2], weights.shape[1], *extents)
    return out if grouped else out[:, 0]


def conv_reference(
    x: Array, w: Array, *, groups: int = 1, accumulate: DType | None = None, dtype: DType | None = None, **given: Any
) -> Array:
    """Each group of channels by itself, concatenated."""
    attributes = {attribute.name: given.get(attribute.name, attribute.default) for attribute in WINDOW}
    window = window_of(dims(*x.shape[2:]), dims(*w.shape[2:]), attributes)
    out = conv_windows_reference(
        w.reshape(groups, w.shape[0] // groups, *w.shape[1:]),
        x.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:]),
        **window.attributes,
        grouped=True,
        accumulate=accumulate,
        dtype=dtype,
    )
    return out.reshape(x.shape[0], w.shape[0], *out.shape[3:])


def accumulate_conv(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """A convolution in an accumulator that its kernel lacks: products in f32, summed over window and channels."""
    x, w = (cast(b, value, dt.f32) for value in operands)
    image, filters = b.type_of(x).shape, b.type_of(w).shape
    groups, spatial = int(attributes["groups"]), len(image) - 2
    window = window_of(image[2:], filters[2:], attributes)
    extents = window.extents(image[2:])
    x = _pad(b, x, window, 0.0)
    split, rows = ((), filters[:1]) if groups == 1 else ((Dim.constant(groups),), (filters[0] // groups,))
    # Every window is read by one index into the flattened image, so that the summed elements are contiguous: whichever
    # dims are dynamic, no index is divided.
    padded = b.type_of(x).shape[2:]
    x = b.emit("reshape", x, shape=(image[0], *split, filters[1], product(padded)))
    shape, index = (*filters[2:], *extents), None
    for at in range(spatial):
        inside, outside = (b.emit("iota", shape=shape, axis=axis, dtype=dt.i64) for axis in (at, spatial + at))
        inside = b.emit("mul", inside, constant(b, window.dilations[at], dt.i64))
        outside = b.emit("mul", outside, constant(b, window.strides[at], dt.i64))
        along = b.emit("mul", b.emit("add", inside, outside), size_value(b, product(padded[at + 1 :]), dt.i64))
        index = along if index is None else b.emit("add", index, along)
    x = b.emit("take", x, index, axis=2 + len(split))
    count, windows = product(filters[1:]), product(extents)
    # The window, then its channels: [N, groups?, C, taps, ...] to [N, groups?, taps, C, ...].
    lead, rank = 1 + len(split), b.type_of(x).rank
    order = (*range(lead), *range(lead + 1, lead + 1 + spatial), lead, *range(lead + 1 + spatial, rank))
    x = b.emit("reshape", b.emit("transpose", x, axes=order), shape=(image[0], *split, ONE, count, windows))
    w = b.emit("transpose", w, axes=(0, *range(2, 2 + spatial), 1))
    w = b.emit("reshape", w, shape=(*split, *rows, count, ONE))
    made = b.emit("sum", b.emit("mul", x, w), axes=(2 + len(split),), keepdims=False, accumulate=total)
    return b.emit("reshape", made, shape=(image[0], filters[0], *extents))


def _conv_block_axis(
    op: str, type: TensorType, number: int, attributes: Attributes, blocks: BlockFormat
) -> int | tuple[str, str]:
    """The channels, which blocks must not cross groups of."""
    groups = int(attributes["groups"])
    channels = type.shape[1] if number else type.shape[1] // groups
    if groups > 1 and (channels % blocks.block).value != 0:
        return (
            f"`{op}` has groups of {channels} channels, and blocks of {blocks} have {blocks.block}",
            "use groups of whole blocks, or a policy that stores a dtype here",
        )
    return 1


def _conv(op: str, spatial: int, summary: str, samples: tuple[Sample, ...]) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{op}",
        summary=summary,
        operands=("x", "w"),
        attributes=(*WINDOW, Attribute("groups", "int", 1, "channels split into this many parts"), *NUMERICS),
        infer=_infer_conv(op, spatial),
        reference=conv_reference,
        cost=cost_of(lambda operands, results, attributes: results[0].size * product(operands[1].shape[1:]) * 2),
        dtypes=FLOATS,
        decompose=_decompose_conv,
        samples=samples,
        policy=PolicyRule("contract", accumulate=accumulate_conv, block_axis=partial(_conv_block_axis, op)),
        interval=ANYTHING,
    )


CONV1D = _conv(
    "conv1d",
    1,
    "Convolution (no flip) of x[N, C, L] with w[O, C // groups, K]; gives [N, O, L'].",
    (
        Sample("valid", normal((2, 3, 11), (4, 3, 3))),
        Sample("padded and strided", normal((1, 2, 10), (3, 2, 4)), {"stride": (2,), "padding": (1,)}),
        Sample("depthwise", normal((2, 4, 9), (4, 1, 3)), {"groups": 4, "padding_mode": "same"}),
    ),
)

CONV2D = _conv(
    "conv2d",
    2,
    "Convolution (no flip) of x[N, C, H, W] with w[O, C // groups, KH, KW]; gives [N, O, H', W'].",
    (
        Sample("valid", normal((2, 3, 7, 8), (4, 3, 3, 3))),
        Sample("same", normal((1, 3, 7, 5), (2, 3, 3, 2)), {"padding_mode": "same"}),
        Sample("same, strided", normal((1, 2, 9, 8), (3, 2, 3, 3)), {"padding_mode": "same", "stride": (2, 3)}),
        Sample("uneven", normal((1, 2, 6, 7), (3, 2, 2, 3)), {"padding": (0, 1, 2, 0), "stride": (1, 2)}),
        Sample("dilated", normal((1, 2, 9, 9), (2, 2, 3, 3)), {"dilation": (2, 3), "padding": (2, 1)}),
        Sample("groups", normal((2, 4, 5, 5), (6, 2, 3, 3)), {"groups": 2, "padding": (1,)}),
        Sample("one by one", normal((2, 5, 4, 4), (3, 5, 1, 1))),
    ),
)

CONV3D = _conv(
    "conv3d",
    3,
    "Convolution (no flip) of x[N, C, D, H, W] with w[O, C // groups, KD, KH, KW]; gives [N, O, D', H', W'].",
    (
        Sample("valid", normal((2, 3, 3, 4, 5), (4, 3, 2, 2, 3))),
        Sample("padded", normal((1, 2, 3, 3, 4), (3, 2, 3, 3, 3)), {"padding": (1,), "stride": (1, 2, 1)}),
        Sample("groups", normal((1, 4, 3, 4, 3), (2, 2, 2, 1, 2)), {"groups": 2, "dilation": (1, 2, 1)}),
    ),
)

CONV_WINDOWS = OpSpec(
    name="tgraph.conv_windows",
    summary="The contraction under conv1d, conv2d and conv3d: w[G?, O, C, ...] over windows of x[N, G?, C, ...].",
    operands=("w", "x"),
    attributes=(
        Attribute("stride", "ints"),
        Attribute("dilation", "ints"),
        Attribute("low", "dims", doc="zeros before each spatial axis"),
        Attribute("high", "dims", doc="zeros after each spatial axis"),
        Attribute("grouped", "bool", False, "whether `w` and `x` have a group axis"),
        Attribute("taps_first", "bool", False, "`w` is [G?, O, ..., C], the order that products are added in"),
        *NUMERICS,
    ),
    jvp="multilinear",
    transpose="contraction:conv_windows",
    batch="conv_windows",
    infer=_infer_windows,
    reference=conv_windows_reference,
    cost=cost_of(
        lambda operands, results, attributes: (
            results[0].size * product(operands[0].shape[2 if attributes["grouped"] else 1 :]) * 2
        )
    ),
    dtypes=FLOATS,
    lower=Contraction(_conv_maps),
    samples=(
        Sample(
            "padded", normal((3, 2, 3), (2, 2, 8)), {"stride": (2,), "dilation": (1,), "low": dims(1), "high": dims(0)}
        ),
        Sample(
            "grouped",
            normal((2, 3, 2, 2), (2, 2, 2, 6)),
            {"stride": (1,), "dilation": (2,), "low": dims(0), "high": dims(1), "grouped": True},
        ),
        Sample(
            "taps first",
            normal((3, 2, 3, 2), (2, 2, 4, 5)),
            {"stride": (1, 2), "dilation": (1, 1), "low": dims(1, 0), "high": dims(0, 1), "taps_first": True},
        ),
    ),
    policy=KEEP,
    interval=ANYTHING,
)


# Pooling.

SIZE = Attribute("window", "ints", doc="size of the window, one number for each pooled (trailing) axis")


def _pool_window(shape: Shape, attributes: Attributes) -> tuple[int, Window]:
    """How many leading axes are not pooled, and the window of the others; its default stride is its size."""
    taps = axes_attribute(attributes, "window")
    kept = len(shape) - len(taps)
    return kept, window_of(shape[kept:], dims(*taps), {**attributes, "stride": attributes["stride"] or taps})


def _infer_pool(op: str) -> Any:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        (x,) = types
        check_float(ctx, op, x)
        window = axes_attribute(attributes, "window")
        if not 1 <= len(window) <= x.rank or any(taps < 1 for taps in window):
            raise ctx.fail(f"`{op}` of {text(x.shape)} needs a window of 1..{x.rank} positive numbers, got {window}")
        full = {**attributes, "stride": attributes["stride"] or window}
        check_window(ctx, op, full, len(window))
        check_accumulator(ctx, op, x, attributes.get("accumulate"))
        kept = x.rank - len(window)
        extents = _infer_extents(ctx, op, x.shape[kept:], dims(*window), full)
        return [x.with_shape((*x.shape[:kept], *extents))]

    return infer


def _windows(b: Builder, x: Any, attributes: Attributes, fill: float) -> list[Any]:
    """One strided slice of the padded tensor for each position in the window, in row-major order."""
    shape = b.type_of(x).shape
    kept, window = _pool_window(shape, attributes)
    x = _pad(b, x, window, fill)
    slices: list[Any] = []
    for position in positions(*(range(taps) for taps in attributes["window"])):
        value = x
        for axis, tap in enumerate(position):
            start, stride = tap * window.dilations[axis], window.strides[axis]
            # Up to the last position of the window: the tail after the last full stride is not read.
            last = window.slack(axis, shape[kept + axis]) // stride * stride
            value = slice_axis(b, value, kept + axis, start, last + start + 1, stride)
        slices.append(value)
    return slices


def _restate_pooled(b: Builder, value: Any, shape: Shape, attributes: Attributes) -> Any:
    """The value with its shape as `infer` writes it."""
    kept, window = _pool_window(shape, attributes)
    return restate(b, value, (*shape[:kept], *window.extents(shape[kept:])))


def _decompose_max(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    slices = _windows(b, x, attributes, float("-inf"))
    out = reduce(lambda left, right: b.emit("maximum", left, right), slices)
    return _restate_pooled(b, out, b.type_of(x).shape, attributes)


def _window_sum(b: Builder, x: Any, attributes: Attributes) -> Any:
    """Each window added up in the accumulator; one that is narrow is rounded as each element joins."""
    compute = b.type_of(x).dtype.compute
    asked: DType = attributes["accumulate"] or compute

    def round_total(value: Any) -> Any:
        is_narrow = asked.compute is not asked
        return cast(b, b.emit("round_to", value, format=asked.name), asked.compute) if is_narrow else value

    first, *others = _windows(b, cast(b, x, asked.compute), attributes, 0.0)
    return cast(
        b, reduce(lambda total, one: round_total(b.emit("add", total, one)), others, round_total(first)), compute
    )


def _decompose_avg(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    kind = b.type_of(x)
    compute = kind.dtype.compute
    total = _window_sum(b, x, attributes)
    window = axes_attribute(attributes, "window")
    if attributes["count_padding"]:
        out = b.emit("div", total, constant(b, float(np.prod(window)), compute))
    else:
        ones = b.emit("full", shape=kind.shape[kind.rank - len(window) :], value=1.0, dtype=compute)
        counted = reduce(lambda left, right: b.emit("add", left, right), _windows(b, ones, attributes, 0.0))
        out = b.emit("div", total, counted)
    return _restate_pooled(b, cast(b, out, kind.dtype), kind.shape, attributes)


def _pooled_values(x: Array, attributes: Attributes, fill: float) -> Array:
    return window_values(x, *_pool_window(dims(*x.shape), attributes), fill)


def max_pool_reference(x: Array, **attributes: Any) -> Array:
    """The largest of each window; padding is -inf, NaN propagates."""
    return round_as(_pooled_values(x.astype(np.float64), attributes, -np.inf).max(0), dtype_of(x))


def avg_pool_reference(x: Array, *, accumulate: DType | None = None, **attributes: Any) -> Array:
    """The mean of each window, its elements added in order; padding counts as zeros, or not at all."""
    compute = dtype_of(x).compute
    asked = accumulate or compute
    with np.errstate(all="ignore"):
        terms = _pooled_values(x.astype(numpy_dtype(asked.compute)), attributes, 0.0)
        total = scan_reference("sum", terms, 0, asked)[-1].astype(numpy_dtype(compute))
        window: tuple[int, ...] = tuple(attributes["window"])
        count: Any = total.dtype.type(np.prod(window))
        if not attributes["count_padding"]:
            count = _pooled_values(np.ones(x.shape[x.ndim - len(window) :], total.dtype), attributes, 0.0).sum(0)
        return round_as(total / count, dtype_of(x))


STRIDE = Attribute("stride", "ints", (), "step of the window; default its size, so that windows do not overlap")
ATTRIBUTES = (SIZE, STRIDE, *WINDOW[1:])

_POOL_COST = cost_of(
    lambda operands, results, attributes: results[0].size * product(axes_attribute(attributes, "window"))
)

CASES = (
    Sample("halves", normal((2, 3, 6, 8)), {"window": (2, 2)}),
    Sample("overlapping", normal((1, 2, 7, 9)), {"window": (3, 3), "stride": (2,), "padding": (1,)}),
    Sample("uneven", normal((2, 11)), {"window": (3,), "stride": (2,), "padding": (0, 2)}),
    Sample("same", normal((1, 1, 7, 5)), {"window": (3, 2), "stride": (2, 2), "padding_mode": "same"}),
    Sample("dilated", normal((1, 2, 9)), {"window": (3,), "stride": (1,), "dilation": (2,)}),
)

SPECS: tuple[OpSpec, ...] = (
    CONV1D,
    CONV2D,
    CONV3D,
    CONV_WINDOWS,
    OpSpec(
        name="tgraph.max_pool",
        summary="The largest element of each window of the trailing axes; padding is never chosen, NaN propagates.",
        operands=("x",),
        attributes=ATTRIBUTES,
        infer=_infer_pool("max_pool"),
        reference=max_pool_reference,
        samples=CASES,
        dtypes=FLOATS[:4],
        cost=_POOL_COST,
        decompose=_decompose_max,
        policy=KEEP,
        interval=SAME,
    ),
    OpSpec(
        name="tgraph.avg_pool",
        summary="The mean of each window of the trailing axes, in f32 and rounded once.",
        operands=("x",),
        attributes=(*ATTRIBUTES, Attribute("count_padding", "bool", True, "padding counts as zeros"), ACCUMULATE),
        infer=_infer_pool("avg_pool"),
        reference=avg_pool_reference,
        samples=(
            *CASES,
            Sample("edges", normal((1, 7, 7)), {"window": (3, 3), "padding": (1,), "count_padding": False}),
        ),
        dtypes=FLOATS,
        cost=_POOL_COST,
        decompose=_decompose_avg,
        policy=ROUND,
        interval=ANYTHING,
    ),
)
