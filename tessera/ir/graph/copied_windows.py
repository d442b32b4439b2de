"""Contractions over windows that a machine's copies read by themselves: which there are, and what they become.

Copies walk the positions of windows of all images, one after the other, and bring some channels of one element of each
window (im2col of TMA). So the image has its channels last, and what windows read is never written down. K and its order
are as in the product of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.ir.base.build import tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Builder
from tessera.ir.graph.ops.convolution import weight_dims
from tessera.ir.graph.typed_ops import ConvWindowsOp, TransposeOp
from tessera.ir.graph.window_readings import Reading, WindowedContraction
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO

SMALL = 96
"""Positions of an image up to which those of all images are rows: a tile of one image would be mostly outside of it."""
SEVERAL = 4
"""Elements of a window from which on a copy of the image with its channels last costs little beside them."""


WIDEST_TILE = 256
"""Elements that a tile has at most along windows: steps of K, or columns of a gradient by weights, divide it."""


@frozen
class CopyLimits:
    """What copies take: bytes that channels are a multiple of, the longest stride, and bits of distances.

    Those are distances from the edges of an image, and within a window, by how many spatial dims there are. Channels
    have one of `dtypes`.
    """

    line: int
    stride: int
    bits: tuple[int, ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(text: str) -> CopyLimits | None:
        """Limits as the text of a pass has them: names of dtypes, then the line, the stride and bits."""
        words = text.split()
        numbers = [int(word) for word in words if word.isdigit()]
        names = tuple(word for word in words if not word.isdigit())
        return CopyLimits(numbers[0], numbers[1], tuple(numbers[2:]), names) if words else None


@frozen
class ImageWindows:
    """Windows of an image: the axes of images, spatial dims and channels, and the window along each spatial dim."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]
    extents: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]

    def fits(self, limits: CopyLimits, channels: int) -> bool:
        """Whether copies take it."""
        if not 1 <= len(self.sizes) <= len(limits.bits) or max(self.strides) > limits.stride:
            return False
        bits = limits.bits[len(self.sizes) - 1]
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        for axis, low in enumerate(self.low):
            last = (self.extents[axis] - 1) * self.strides[axis] + 1 - low - self.sizes[axis]
            reach = (self.taps[axis] - 1 + (self._taps_behind(channels) if not axis else 0)) * self.dilations[axis]
            if not (least <= -low <= most and least <= last <= most and reach < 1 << bits):
                return False
        return True

    def _taps_behind(self, channels: int) -> int:
        """Elements along the first dim by which a last tile can go on behind the window; others begin anew."""
        length, line = channels * math.prod(self.taps), channels * math.prod(self.taps[1:])
        return (-length % WIDEST_TILE + line - 1) // line


@frozen
class _Names:
    """Coordinates of an image: of images, of positions, of elements of a window, and of channels."""

    images: str
    positions: tuple[str, ...]
    taps: tuple[str, ...]
    channels: str
    others: tuple[str, ...]
    """Those of the result that the other operand has."""


def _names(found: WindowedContraction, number: int) -> _Names | None:
    """The coordinates of an operand that may be an image; None where it is none."""
    batch, own, others = found.names("b"), found.names("mn"[number]), found.names("mn"[1 - number])
    contracted = found.names("k")
    if len(others) != 1 or set(batch) & set(found.readings[1 - number].names) or not contracted:
        return None
    if len(batch) == 1:
        return _Names(batch[0], tuple(own), tuple(contracted[:-1]), contracted[-1], tuple(others))
    # Images and positions are summed: a gradient by weights, of segments that are known.
    is_summed = not batch and len(own) == len(contracted) and found.sizes[contracted[0]].value is not None
    return _Names(contracted[0], tuple(contracted[1:]), tuple(own[1:]), own[0], tuple(others)) if is_summed else None


def find_image(found: WindowedContraction, number: int) -> ImageWindows | None:
    """The windows of an operand that is an image of channels; None for one that is not."""
    reading, names = found.readings[number], _names(found, number)
    rank = len(reading.shape)
    if names is None or not len(names.positions) == len(names.taps) == rank - 2:
        return None
    channels = [axis for axis, row in enumerate(reading.steps) if row == {names.channels: 1}]
    images = [axis for axis, row in enumerate(reading.steps) if row == {names.images: 1}]
    if found.sizes[names.images].value == 1 and names.images[0] != "k":
        images = [axis for axis, row in enumerate(reading.steps) if not row and reading.shape[axis].value == 1]
    if len(channels) != 1 or not images:
        return None
    ends = (channels[0], names.channels), (images[0], names.images)
    spatial = [axis for axis in range(rank) if axis not in (channels[0], images[0])]
    order = images[0], *spatial, channels[0]
    return _windows(found, reading, spatial, order, names) if _is_whole(found, reading, *ends) else None


def _is_whole(found: WindowedContraction, reading: Reading, *dims: tuple[int, str]) -> bool:
    """Whether dims are read from their first element to their last."""
    return all(reading.starts[axis] == ZERO and reading.shape[axis] == found.sizes[name] for axis, name in dims)


def _windows(
    found: WindowedContraction,
    reading: Reading,
    spatial: Sequence[int],
    order: tuple[int, ...],
    names: _Names,
) -> ImageWindows | None:
    numbers: list[tuple[int, ...]] = []
    for axis, position, tap in zip(spatial, names.positions, names.taps, strict=True):
        row = reading.steps[axis]
        known = [reading.shape[axis].value, found.sizes[position].value, found.sizes[tap].value]
        low = (ZERO - reading.starts[axis]).value
        if set(row) - {position, tap} or min(row.values(), default=1) < 1 or low is None:
            return None
        sizes = [size for size in known if size is not None and size > 0]
        if len(sizes) < len(known):
            return None
        numbers.append((*sizes, row.get(position, 1), row.get(tap, 1), low))
    sizes, extents, taps, strides, dilations, low = zip(*numbers, strict=True)
    return ImageWindows(order, sizes, extents, taps, strides, dilations, low)


def is_copied(b: Builder, op: SpecOp, found: WindowedContraction, number: int, limits: CopyLimits | None) -> bool:
    """Whether copies read the windows of an operand: an image that they take, and enough of each window."""
    image = None if limits is None else find_image(found, number)
    if limits is None or image is None:
        return False
    types = [b.type_of(value) for value in found.operands]
    channels = types[number].shape[image.order[-1]].value or 0
    is_taken = types[0].dtype == types[1].dtype and types[0].dtype.name in limits.dtypes
    is_last = image.order == tuple(range(len(image.order)))
    is_plain, read = found.readings[number].is_plain, _taps_read(found.operands[number], image.order)
    # What is read as it is needs no copy of its own, and is multiplied as others have it.
    is_many = not is_plain and (is_last or math.prod(image.taps) >= SEVERAL)
    is_line = channels * types[number].dtype.bytes % limits.line == 0
    return is_taken and is_line and (is_many or (not is_last and read >= SEVERAL)) and image.fits(limits, channels)


def reorder(b: Builder, op: SpecOp, value: Any, axes: Sequence[int]) -> Any:
    """A value with its dims in another order: as another op before this one has it, or transposed."""
    if list(axes) == list(range(len(axes))):
        return value
    for use in value.uses:
        made = use.operation
        is_same = isinstance(made, TransposeOp) and list(made.axes) == list(axes) and made.parent is op.parent
        if is_same and made.is_before_in_block(op):
            return made.results[0]
    return b.emit("transpose", value, axes=tuple(axes))


def _taps_read(value: Any, order: tuple[int, ...]) -> int:
    """Elements of windows that all readers of an image have together; many where its channels are last in one."""
    found = 0
    for use in value.uses:
        reader = use.operation
        if isinstance(reader, TransposeOp) and tuple(reader.axes) == order:
            return SEVERAL
        if isinstance(reader, ConvWindowsOp):
            _, taps = weight_dims(tensor_value(reader.operands[0]).shape, reader.values())
            found += math.prod(size.value or 1 for size in taps)
    return found


def other_names(found: WindowedContraction, number: int) -> list[str]:
    """The coordinates of the other operand's dims: of weights along K, of what is summed with its channels last."""
    names = _names(found, number)
    assert names is not None
    is_summed = names.images[0] == "k"
    inner = (*names.taps, names.channels)
    return [names.images, *names.positions, *names.others] if is_summed else [*names.others, *inner]


def emit_dot_windows(
    b: Builder, op: SpecOp, found: WindowedContraction, number: int, other: Any, wants_rows: bool
) -> Any:
    """The contraction of the other operand with windows of an image, its dims in the order of the op's."""
    image, names, value = find_image(found, number), _names(found, number), found.operands[number]
    assert image is not None
    assert names is not None
    value = reorder(b, op, value, image.order)
    is_rows, is_summed = wants_rows or math.prod(image.extents) <= SMALL, names.images[0] == "k"
    form = "k" if is_summed else "rows" if is_rows else "columns"
    kept = {name: given for name, given in op.values().items() if name in ("accumulate", "dtype", "segment")}
    made = b.emit(
        "dot_windows",
        *((value, other) if form == "rows" else (other, value)),
        shape=tuple(map(Dim.constant, image.extents)),
        stride=image.strides,
        dilation=image.dilations,
        low=tuple(map(Dim.constant, image.low)),
        positions=form,
        taps=tuple(map(Dim.constant, image.taps)) if is_summed else (),
        **kept,
        partial=False,
    )
    order = {
        "k": (*names.others, *names.taps, names.channels),
        "rows": (names.images, *names.positions, *names.others),
        "columns": (names.images, *names.others, *names.positions),
    }[form]
    wanted = found.names("bmn")
    return made if list(order) == wanted else b.emit("transpose", made, axes=tuple(map(order.index, wanted)))
