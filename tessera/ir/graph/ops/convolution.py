"""Convolutions, channels first, as contractions over windows that read zero outside the image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import (
    FLOATS,
    KEEP,
    Attribute,
    Attributes,
    Builder,
    Cost,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
)
from tessera.ir.graph.building import (
    axes_attribute,
    cast,
    check_at_least,
    constant,
    normal,
    same_dim,
    size_value,
    traffic,
)
from tessera.ir.graph.ops.contraction import (
    NUMERICS,
    contract_reference,
    contraction_dtype,
    coordinate,
    reference_dtype,
)
from tessera.ir.tile.facets import Contraction, ContractionMaps
from tessera.types import dtype as dt
from tessera.types.dim import Dim, maximum, product
from tessera.types.dtype import BlockFormat, DType
from tessera.types.shape import ONE, TensorType, text

MODES = ("explicit", "same", "valid")

WINDOW = (
    Attribute("stride", "ints", (1,), "step of the window, one for all spatial axes or one each"),
    Attribute("padding", "ints", (0,), "one for all; one each; or low and high, axis by axis"),
    Attribute(
        "padding_mode", "str", "explicit", "explicit: as `padding` says; same: to ceil(size / stride); valid: none"
    ),
    Attribute("dilation", "ints", (1,), "distance between the window's elements"),
)


def check_per_axis(
    ctx: InferContext, op: str, name: str, given: Sequence[int], spatial: int, least: int
) -> tuple[int, ...]:
    """An attribute given once for all spatial axes or once for each, as one number each."""
    if len(given) not in (1, spatial) or any(value < least for value in given):
        raise ctx.fail(f"`{op}` needs 1 or {spatial} numbers of at least {least} as `{name}`, got {list(given)}")
    return tuple(given) * spatial if len(given) == 1 else tuple(given)


def window_padding(
    sizes: Sequence[Dim], kernel: Sequence[int | Dim], attributes: Attributes
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Padding before and after each spatial axis; `same` puts the odd one after, as a size that is a dim."""
    count, mode = len(sizes), attributes["padding_mode"]
    given = axes_attribute(attributes, "padding")
    if mode == "valid":
        given = (0,)
    if mode != "same":
        pairs = given if len(given) == 2 * count and count > 0 else ()
        if not pairs:
            each = given * count if len(given) == 1 else given
            pairs = tuple(value for value in each for _ in range(2))
        return tuple(map(Dim.constant, pairs[::2])), tuple(map(Dim.constant, pairs[1::2]))
    strides, dilations = per_axis(attributes, "stride", count), per_axis(attributes, "dilation", count)
    low: list[Dim] = []
    high: list[Dim] = []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        covered = (size.ceildiv(stride) - 1) * stride + (Dim.of(taps) - 1) * dilation + 1
        total = maximum(covered - size, 0)
        low.append(total // 2)
        high.append(total.ceildiv(2))
    return tuple(low), tuple(high)


def per_axis(attributes: Attributes, name: str, count: int) -> tuple[int, ...]:
    """An attribute given once for all axes, or once for each, as one number each."""
    given = axes_attribute(attributes, name)
    return given * count if len(given) == 1 else given


def check_window(ctx: InferContext, op: str, attributes: Attributes, spatial: int) -> None:
    """Raises where stride, dilation or padding cannot be what they say."""
    check_per_axis(ctx, op, "stride", axes_attribute(attributes, "stride"), spatial, 1)
    check_per_axis(ctx, op, "dilation", axes_attribute(attributes, "dilation"), spatial, 1)
    padding = axes_attribute(attributes, "padding")
    if attributes["padding_mode"] not in MODES:
        raise ctx.fail(f"`{op}` has padding modes {', '.join(MODES)}, not {attributes['padding_mode']!r}")
    if len(padding) not in (1, spatial, 2 * spatial) or any(value < 0 for value in padding):
        raise ctx.fail(f"`{op}` needs 1, {spatial} or {2 * spatial} numbers of at least 0 as `padding`, got {padding}")


def window_extent(size: Dim, low: Dim, high: Dim, taps: Dim, stride: int, dilation: int) -> Dim:
    """How many positions a window has along one axis."""
    return (size + low + high - (taps - 1) * dilation - 1) // stride + 1


def window_extents(
    ctx: InferContext, op: str, sizes: Sequence[Dim], kernel: Sequence[Dim], attributes: Attributes
) -> tuple[Dim, ...]:
    """The spatial dims of the result; a window larger than its padded axis is an error or a guard."""
    low, high = window_padding(sizes, kernel, attributes)
    strides, dilations = per_axis(attributes, "stride", len(sizes)), per_axis(attributes, "dilation", len(sizes))
    result: list[Dim] = []
    for axis, size in enumerate(sizes):
        slack = size + low[axis] + high[axis] - (kernel[axis] - 1) * dilations[axis] - 1
        if attributes["padding_mode"] != "same":
            check_at_least(
                ctx, slack, 0, f"`{op}` has a window of {kernel[axis]} on an axis of {size}: it does not fit"
            )
        result.append(slack // strides[axis] + 1)
    return tuple(result)


def _infer_conv(op: str, spatial: int) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, w = types
        layout = "[N, C, L]" if spatial == 1 else "[N, C, H, W]"
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
            f"`{op}` of {text(x.shape)} with {text(w.shape)} in {groups} groups: the channels differ",
        )
        extents = window_extents(ctx, op, x.shape[2:], w.shape[2:], attributes)
        return [TensorType((x.shape[0], w.shape[0], *extents), dtype)]

    return infer


def _decompose_conv(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Split the channels into groups by reshapes, so that a group is a batch axis of the contraction."""
    x, w = operands
    x_shape, w_shape = b.type_of(x).shape, b.type_of(w).shape
    groups, spatial = int(attributes["groups"]), len(x_shape) - 2
    low, high = window_padding(x_shape[2:], w_shape[2:], attributes)
    if groups > 1:
        x = b.emit("reshape", x, shape=(x_shape[0], Dim.constant(groups), w_shape[1], *x_shape[2:]))
        w = b.emit("reshape", w, shape=(Dim.constant(groups), w_shape[0] // groups, *w_shape[1:]))
    out = b.emit(
        "conv_windows",
        w,
        x,
        stride=per_axis(attributes, "stride", spatial),
        dilation=per_axis(attributes, "dilation", spatial),
        low=low,
        high=high,
        grouped=groups > 1,
        accumulate=attributes["accumulate"],
        dtype=attributes["dtype"],
    )
    if groups == 1:
        return out
    shape = b.type_of(out).shape
    return b.emit("reshape", out, shape=(shape[0], w_shape[0], *shape[3:]))


def _infer_windows(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    w, x = types
    lead = 3 if attributes["grouped"] else 2
    spatial = len(attributes["stride"])
    if x.rank != lead + spatial or w.rank != x.rank:
        raise ctx.fail(f"`conv_windows` over {spatial} axes needs rank {lead + spatial}, got {w} and {x}")
    dtype = contraction_dtype(ctx, "conv_windows", types, attributes)
    if attributes["grouped"]:
        same_dim(ctx, w.shape[0], x.shape[1], "`conv_windows` needs equal groups")
    same_dim(ctx, w.shape[lead - 1], x.shape[lead - 1], "`conv_windows` needs equal channels")
    extents = _window_extents(w, x, attributes)
    return [TensorType((x.shape[0], *x.shape[1 : lead - 1], w.shape[lead - 2], *extents), dtype)]


def _window_extents(w: TensorType, x: TensorType, attributes: Attributes) -> tuple[Dim, ...]:
    lead = 3 if attributes["grouped"] else 2
    return tuple(
        window_extent(size, Dim.of(low), Dim.of(high), taps, stride, dilation)
        for size, taps, low, high, stride, dilation in zip(
            x.shape[lead:],
            w.shape[lead:],
            attributes["low"],
            attributes["high"],
            attributes["stride"],
            attributes["dilation"],
            strict=True,
        )
    )


def _conv_maps(types: Sequence[TensorType], attributes: Attributes) -> ContractionMaps:
    """An implicit GEMM: rows are output channels, columns are positions of the window, K is its elements."""
    w, x = types
    grouped = bool(attributes["grouped"])
    lead = 3 if grouped else 2
    extents = _window_extents(w, x, attributes)
    group = (coordinate("b", 1),) if grouped else ()
    read: list[Dim] = []
    windows: list[tuple[int, Dim, Dim]] = []
    for axis, size in enumerate(x.shape[lead:]):
        low, high = Dim.of(attributes["low"][axis]), Dim.of(attributes["high"][axis])
        start = coordinate("n", axis) * attributes["stride"][axis] - low
        read.append(start + coordinate("k", axis + 1) * attributes["dilation"][axis])
        if low.value != 0 or high.value != 0:
            windows.append((1, read[-1], size))
    return ContractionMaps(
        batch=(x.shape[0], *x.shape[1 : lead - 1]),
        m=(w.shape[lead - 2],),
        n=extents,
        k=w.shape[lead - 1 :],
        lhs=(*group, coordinate("m", 0), *(coordinate("k", axis) for axis in range(len(extents) + 1))),
        rhs=(coordinate("b", 0), *group, coordinate("k", 0), *read),
        windows=tuple(windows),
    )


def conv_windows_reference(
    w: Array,
    x: Array,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    low: Sequence[Dim],
    high: Sequence[Dim],
    grouped: bool = False,
    accumulate: DType | None = None,
    dtype: DType | None = None,
) -> Array:
    """Pad with zeros, make every window a column (im2col), and multiply matrices."""
    taken_w, taken_x = (w, x) if grouped else (w[np.newaxis], x[:, np.newaxis])
    before, after, spatial = static_shape(low), static_shape(high), len(stride)
    padded = np.pad(taken_x, [(0, 0)] * 3 + list(zip(before, after, strict=True)))
    taps, sizes = taken_w.shape[3:], padded.shape[3:]
    extents = [(sizes[a] - (taps[a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in range(spatial)]
    columns = np.zeros((*padded.shape[:3], *taps, *extents), padded.dtype)
    every = (slice(None),) * 3
    for tap in np.ndindex(*taps):
        begin = [tap[a] * dilation[a] for a in range(spatial)]
        stop = [begin[a] + (extents[a] - 1) * stride[a] + 1 for a in range(spatial)]
        window = tuple(slice(begin[a], stop[a], stride[a]) for a in range(spatial))
        columns[(*every, *tap)] = padded[(*every, *window)]
    inner, positions = int(np.prod(taken_w.shape[2:])), int(np.prod(extents))
    rows = taken_w.reshape(*taken_w.shape[:2], inner)
    matrix = columns.reshape(*padded.shape[:2], inner, positions)
    out = contract_reference(rows, matrix, reference_dtype(w, x, dtype), accumulate)
    out = out.reshape(*padded.shape[:2], taken_w.shape[1], *extents)
    return out if grouped else out[:, 0]


def conv_reference(
    x: Array,
    w: Array,
    *,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    padding_mode: str = "explicit",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
    accumulate: DType | None = None,
    dtype: DType | None = None,
) -> Array:
    """Each group of channels by itself, concatenated."""
    attributes = {"stride": stride, "padding": padding, "padding_mode": padding_mode, "dilation": dilation}
    spatial = x.ndim - 2
    sizes, taps = tuple(map(Dim.constant, x.shape[2:])), tuple(map(Dim.constant, w.shape[2:]))
    low, high = window_padding(sizes, taps, attributes)
    split_x = x.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:])
    split_w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    out = conv_windows_reference(
        split_w,
        split_x,
        stride=per_axis(attributes, "stride", spatial),
        dilation=per_axis(attributes, "dilation", spatial),
        low=low,
        high=high,
        grouped=True,
        accumulate=accumulate,
        dtype=dtype,
    )
    return out.reshape(x.shape[0], w.shape[0], *out.shape[3:])


def _conv_cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(results[0].size * product(operands[1].shape[1:]) * 2, traffic(operands, results))


def _windows_cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    inner = product(operands[0].shape[2 if attributes["grouped"] else 1 :])
    return Cost(results[0].size * inner * 2, traffic(operands, results))


def _accumulate_conv(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """A convolution in an accumulator that its kernel lacks: products in f32, summed over channels and window."""
    x, w = (cast(b, value, dt.f32) for value in operands)
    image, filters = b.type_of(x).shape, b.type_of(w).shape
    groups, spatial = int(attributes["groups"]), len(image) - 2
    low, high = window_padding(image[2:], filters[2:], attributes)
    if any(dim.value != 0 for dim in (*low, *high)):
        zeros = (Dim.constant(0),) * 2
        x = b.emit("pad", x, low=(*zeros, *low), high=(*zeros, *high), value=0.0)
    strides, dilations = per_axis(attributes, "stride", spatial), per_axis(attributes, "dilation", spatial)
    extents = tuple(
        window_extent(image[2 + at], low[at], high[at], filters[2 + at], strides[at], dilations[at])
        for at in range(spatial)
    )
    split, rows = ((), filters[:1]) if groups == 1 else ((Dim.constant(groups),), (filters[0] // groups,))
    # Every window is read by one index into the flattened image, so that the summed elements are contiguous: whichever
    # dims are dynamic, no index is divided.
    padded = b.type_of(x).shape[2:]
    x = b.emit("reshape", x, shape=(image[0], *split, filters[1], product(padded)))
    shape, index = (*filters[2:], *extents), None
    for at in range(spatial):
        inside, outside = (b.emit("iota", shape=shape, axis=axis, dtype=dt.i64) for axis in (at, spatial + at))
        inside = b.emit("mul", inside, constant(b, dilations[at], dt.i64))
        outside = b.emit("mul", outside, constant(b, strides[at], dt.i64))
        along = b.emit("mul", b.emit("add", inside, outside), size_value(b, product(padded[at + 1 :]), dt.i64))
        index = along if index is None else b.emit("add", index, along)
    x = b.emit("take", x, index, axis=2 + len(split))
    count, windows = product(filters[1:]), product(extents)
    x = b.emit("reshape", x, shape=(image[0], *split, ONE, count, windows))
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
        cost=_conv_cost,
        dtypes=FLOATS,
        decompose=_decompose_conv,
        samples=samples,
        policy=PolicyRule("contract", accumulate=_accumulate_conv, block_axis=partial(_conv_block_axis, op)),
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

CONV_WINDOWS = OpSpec(
    name="tgraph.conv_windows",
    summary="The contraction under conv1d and conv2d: w[G?, O, C, ...] over windows of x[N, G?, C, ...].",
    operands=("w", "x"),
    attributes=(
        Attribute("stride", "ints"),
        Attribute("dilation", "ints"),
        Attribute("low", "dims", doc="zeros before each spatial axis"),
        Attribute("high", "dims", doc="zeros after each spatial axis"),
        Attribute("grouped", "bool", False, "whether `w` and `x` have a group axis"),
        *NUMERICS,
    ),
    infer=_infer_windows,
    reference=conv_windows_reference,
    cost=_windows_cost,
    dtypes=FLOATS,
    lower=Contraction(_conv_maps),
    samples=(
        Sample(
            "padded",
            normal((3, 2, 3), (2, 2, 8)),
            {"stride": (2,), "dilation": (1,), "low": (Dim.constant(1),), "high": (Dim.constant(0),)},
        ),
        Sample(
            "grouped",
            normal((2, 3, 2, 2), (2, 2, 2, 6)),
            {
                "stride": (1,),
                "dilation": (2,),
                "low": (Dim.constant(0),),
                "high": (Dim.constant(1),),
                "grouped": True,
            },
        ),
    ),
    policy=KEEP,
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (CONV1D, CONV2D, CONV_WINDOWS)
