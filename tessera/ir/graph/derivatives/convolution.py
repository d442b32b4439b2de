"""Transposes of convolutions, which are convolutions.

By the weights it is one of the image with the cotangents, by the image one of the
cotangents with the taps in the other order.
"""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import restate, slice_axis
from tessera.ir.graph.derivatives.movement import dilate
from tessera.ir.graph.derivatives.shared import Values, in_dtype
from tessera.ir.graph.transforms.facets import Linear
from tessera.types.dim import Dim, maximum
from tessera.types.promotion import promote
from tessera.types.shape import ZERO, TensorType


def _type(b: Builder, operand: Any) -> TensorType:
    return operand.type if isinstance(operand, Linear) else b.type_of(operand)


def conv_windows(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """`w` is [(groups), out, in, taps], `x` [batch, (groups), in, positions], the result as `x` with out channels."""
    w, x = operands
    weights, image = _type(b, w), _type(b, x)
    dtype = promote(weights.dtype, image.dtype)
    assert dtype is not None
    value = in_dtype(b, cotangents[0], dtype)
    if isinstance(w, Linear):
        return (_by_weights(b, value, x, weights, attributes), None)
    return (None, _by_image(b, value, w, image, attributes))


def _swapped(rank: int, first: int, second: int) -> tuple[int, ...]:
    order = list(range(rank))
    order[first], order[second] = second, first
    return tuple(order)


def _by_weights(b: Builder, value: Any, x: Any, weights: TensorType, attributes: Attributes) -> Any:
    """For each tap, the sum over batch and positions: images are the channels now, and the batch is what is summed."""
    is_grouped = bool(attributes["grouped"])
    lead, rank = 3 if is_grouped else 2, weights.rank
    low = [Dim.of(one) for one in attributes["low"]]
    high: list[Dim] = []
    for axis, (stride, dilation) in enumerate(zip(attributes["stride"], attributes["dilation"], strict=True)):
        size, taps = b.type_of(x).shape[lead + axis], weights.shape[lead + axis]
        positions = b.type_of(value).shape[lead + axis]
        needed = (taps - 1) * dilation + (positions - 1) * stride + 1 - low[axis]
        # Of an image that no window reads to its end the rest is left out.
        excess = maximum(size - needed, ZERO)
        if excess.value != 0:
            x = slice_axis(b, x, lead + axis, ZERO, size - excess)
        high.append(needed - (size - excess))
    image = b.emit("transpose", x, axes=_swapped(rank, 0, lead - 1))
    if is_grouped:
        # [batch, groups, out, ...] to [groups, out, batch, ...]
        filters = b.emit("transpose", value, axes=(1, 2, 0, *range(3, rank)))
    else:
        filters = b.emit("transpose", value, axes=_swapped(rank, 0, 1))
    made = b.emit(
        "conv_windows", filters, image, stride=attributes["dilation"], dilation=attributes["stride"],
        low=tuple(low), high=tuple(high), grouped=is_grouped, accumulate=attributes["accumulate"],
        dtype=weights.dtype,
    )  # fmt: skip
    # [in, (groups), out, taps] to [(groups), out, in, taps]
    order = (1, 2, 0, *range(3, rank)) if is_grouped else _swapped(rank, 0, 1)
    return restate(b, b.emit("transpose", made, axes=order), weights.shape)


def _by_image(b: Builder, value: Any, w: Any, image: TensorType, attributes: Attributes) -> Any:
    """Each cotangent spread over the window that it came from: a convolution with the taps in the other order."""
    is_grouped = bool(attributes["grouped"])
    lead, rank = 3 if is_grouped else 2, image.rank
    taps = b.type_of(w).shape[lead:]
    low, high = list[Dim](), list[Dim]()
    for axis, (stride, dilation) in enumerate(zip(attributes["stride"], attributes["dilation"], strict=True)):
        at, reach = lead + axis, (taps[axis] - 1) * dilation
        value = dilate(b, value, at, int(stride))
        before = reach - Dim.of(attributes["low"][axis])
        size = b.type_of(value).shape[at]
        behind = image.shape[at] + reach - size - before
        # More padding than the window reaches: what came from padding alone is left out.
        cut_low, cut_high = maximum(ZERO - before, ZERO), maximum(ZERO - behind, ZERO)
        if cut_low.value != 0 or cut_high.value != 0:
            value = slice_axis(b, value, at, cut_low, size - cut_high)
        low.append(before + cut_low)
        high.append(behind + cut_high)
    filters = b.emit("transpose", w, axes=_swapped(rank, lead - 2, lead - 1))
    filters = b.emit("flip", filters, axes=tuple(range(lead, rank)))
    made = b.emit(
        "conv_windows", filters, value, stride=(1,) * len(taps), dilation=attributes["dilation"], low=tuple(low),
        high=tuple(high), grouped=is_grouped, accumulate=attributes["accumulate"], dtype=image.dtype,
    )  # fmt: skip
    return restate(b, made, image.shape)
