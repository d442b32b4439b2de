"""Loads through windows of an image as TMA makes them (im2col): which those are, and where a copy begins.

An image [N, ..., C] has its channels last. A copy begins at the first position of a tile and walks on, along the last
spatial dim first and from one image to the next, inside of a box of positions whose corners and strides its descriptor
says; of each it takes some channels, at offsets within the window that the copy says. What lies outside of the image
reads as zero. (PTX ISA, tensors in im2col mode; CUDA driver API, `cuTensorMapEncodeIm2col`.)

What a load reads is told from its map alone: positions are one axis of the tile, taken apart into images and spatial
dims, and elements of the window with their channels are the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import BlockArgument, OpResult, SSAValue

from tessera.backends.nvptx.mma.boxes import Box
from tessera.backends.nvptx.tensor_cores import CORNER_BITS, MAX_BOX, MAX_STRIDE, UnfitError
from tessera.backends.nvptx.types import shaped_type, sizes_of
from tessera.ir.base.index_maps import delinear, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.indexing import size_expr
from tessera.ir.tile.typed_ops import ForOp, LoadOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO


@frozen
class WindowCopies:
    """How TMA reads the windows of a load: the corners and strides of its box, and where its copies begin.

    `first` is the index of an image and of the first position in each spatial dim, `offsets` those within a window and
    `channel` the first channel: the latter two over `along`, the name of the tile's axis along K. `inner` is the number
    of that axis.
    """

    inner: int
    along: str
    low: tuple[int, ...]
    high: tuple[int, ...]
    strides: tuple[int, ...]
    first: tuple[Dim, ...]
    offsets: tuple[Dim, ...]
    channel: Dim

    def at(self, distance: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Indices of the copy so many elements of K further on, outermost first, and its offsets."""
        further = {self.along: Dim.symbol(self.along) + distance}
        image, *spatial = self.first
        indices = (image.substitute(further), *spatial, self.channel.substitute(further))
        return indices, tuple(offset.substitute(further) for offset in self.offsets)


def find_windows(load: SpecOp) -> WindowCopies:
    """The windows that a load reads; raises `UnfitError` where TMA does not read them."""
    buffer, map, axes = shaped_type(load.operands[0]), load.value("map"), load.value("axes")
    shape, rank = buffer.shape, len(buffer.shape)
    if not isinstance(load.operands[0], BlockArgument) or len(axes) != 2 or rank - 2 not in CORNER_BITS:
        raise UnfitError(f"TMA reads windows of arguments of 3 to 5 dims, and this one has {rank}")
    if load.value("pad") or len(load.operands) != 1 + len(load.value("coords")):
        raise UnfitError("what TMA reads outside of windows is 0, at indices that are no tiles")
    windows = load.value("windows")
    if tuple(windows[::2]) != tuple(map[1:-1]) or tuple(windows[1::2]) != tuple(shape[1:-1]):
        raise UnfitError("windows are of all dims between images and channels, and end where those do")
    inner = [number for number, axis in enumerate(axes) if axis in map[-1].symbols]
    if len(inner) != 1 or any(dim.value is None for dim in shape[1:]):
        raise UnfitError(f"channels `{map[-1]}` are not along one axis of the tile, or sizes are not known")
    along, across = axes[inner[0]], axes[1 - inner[0]]
    taps, positions = zip(*(_apart(expr, along) for expr in map[:-1]), strict=True)
    channel, length = _channel(map[-1], along, shape[-1].value or 0), _extent(load, inner[0])
    step = sizes_of(load.results[0])[inner[0]]
    # The last step goes on behind the end of K, where all images are behind the last: offsets count on all the same.
    reach = -(-length // step) * step
    offsets = [_offset(one, along, shape[-1].value or 0, length, reach, rank - 2) for one in taps[1:]]
    if taps[0] != ZERO:
        raise UnfitError(f"`{along}` walks images, and elements of a window are in one")
    is_with_images = across in positions[0].symbols
    low, strides, extents = _positions(positions, across, 0 if is_with_images else _extent(load, 1 - inner[0]))
    bits = CORNER_BITS[rank - 2]
    high = [
        (extent - 1) * stride + 1 + corner - (size.value or 0)
        for extent, stride, corner, size in zip(extents, strides, low, shape[1:-1], strict=True)
    ]
    if any(not -(1 << (bits - 1)) <= corner < 1 << (bits - 1) for corner in (*low, *high)):
        raise UnfitError(f"corners {low} and {high} of a box of positions do not have {bits} bits")
    end = (Dim.symbol(along) // length) * shape[0] if length % step else ZERO
    first = (positions[0] + end, *positions[1:])
    return WindowCopies(inner[0], along, low, tuple(high), strides, first, tuple(offsets), channel)


def _apart(expr: Dim, along: str) -> tuple[Dim, Dim]:
    """The terms of an index that depend on an axis, and all others."""
    inside, outside = ZERO, ZERO
    for term in expr.terms:
        single = Dim((term,))
        if along not in single.symbols:
            outside = outside + single
        elif single.symbols == frozenset([along]):
            inside = inside + single
        else:
            raise UnfitError(f"`{single}` is neither of a window nor of its position")
    return inside, outside


def _channel(expr: Dim, along: str, channels: int) -> Dim:
    if expr not in (Dim.symbol(along), Dim.symbol(along) % channels):
        raise UnfitError(f"channels are `{expr}`, and `{along} mod {channels}` are contiguous")
    return expr


def _offset(expr: Dim, along: str, channels: int, length: int, reach: int, spatial: int) -> Dim:
    """The offset within a window along a dim: the same for all channels of an element of it, below `reach` of K."""
    single = expr.substitute({along: Dim.symbol(along) * channels}).substitute({along: Dim.symbol(along) // channels})
    most = (1 << CORNER_BITS[spatial]) - 1
    found = [expr.evaluate({along: at}) for at in range(0, reach, channels)]
    if length % channels or (expr != single and expr != ZERO) or not 0 <= min(found) <= max(found) <= most:
        raise UnfitError(f"`{expr}` is no offset of elements of a window, from 0 to {most}, with {channels} channels")
    return expr


def _positions(
    starts: Sequence[Dim], across: str, count: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The first corner, the stride and the extent of each spatial dim of which positions are an axis."""
    parts = [_start(expr, across) for expr in starts[1:]]
    extents = [_modulus(part) for _, _, part in parts]
    is_with_images = across in starts[0].symbols
    if not is_with_images and None in extents:
        # The first dim has what is left.
        known = [extent for extent in extents if extent is not None]
        left = count
        for extent in known:
            left = -(-left // extent)
        extents[extents.index(None)] = left
    sizes = [1 if extent is None else extent for extent in extents]
    lead = [Dim.symbol("")] if is_with_images else []
    shape, found = [*lead, *map(Dim.constant, sizes)], [*starts[: len(lead)], *(part for _, _, part in parts)]
    flat = linear(found, shape)
    # All positions, or from where a tile's segment of them begins.
    step = flat.coefficient(across)
    if step is None or step[0].value != 1 or list(delinear(flat, shape)) != found:
        raise UnfitError(f"positions `{found}` are not those of images of {sizes}, one after the other")
    strides = tuple(stride for _, stride, _ in parts)
    if any(not 1 <= stride <= MAX_STRIDE for stride in strides):
        raise UnfitError(f"TMA walks in strides of 1 to {MAX_STRIDE}, and these are {strides}")
    return tuple(low for low, _, _ in parts), strides, tuple(sizes)


def _start(expr: Dim, across: str) -> tuple[int, int, Dim]:
    """Where positions begin along a dim, the stride, and the part of the axis along it; a stride of 1 of none."""
    low, stride, part = 0, 1, ZERO
    for monomial, coefficient in expr.terms:
        if not monomial:
            low = coefficient
        elif len(monomial) == 1 and part == ZERO and across in Dim(((monomial, 1),)).symbols:
            stride, part = coefficient, Dim(((monomial, 1),))
        else:
            raise UnfitError(f"`{expr}` is not a position of windows")
    return low, stride, part


def _modulus(part: Dim) -> int | None:
    """How many positions a part of an axis has; None for the first part, which has what is left; 1 of none."""
    if part == ZERO:
        return 1
    ((monomial, _),) = part.terms
    return monomial[0].args[1].value if monomial[0].kind == "mod" else None


def _extent(load: SpecOp, number: int) -> int:
    """How many elements an axis of a load has: up to its bound, else up to where a loop or the grid ends."""
    bound, name = load.value("bounds")[number], load.value("axes")[number]
    if bound.value is not None and bound.value >= 0:
        return bound.value
    index = dict(zip(load.value("coords"), load.operands[1:], strict=True))[name]
    owner = index.owner
    if isinstance(index, BlockArgument) and isinstance(loop := index.owner.parent_op(), ForOp):
        end = size_expr(loop.high)
        found = None if end is None else end.value
    else:
        found = _largest(index, load) if isinstance(owner, SpecOp) else None
    if found is None:
        raise UnfitError(f"nobody knows where `{name}` ends")
    return found if isinstance(index, BlockArgument) else found + sizes_of(load.results[0])[number]


def _largest(index: SSAValue, load: SpecOp) -> int | None:
    """The largest value of an index that grows with programs."""
    op = index.op if isinstance(index, OpResult) else None
    kernel = load
    while not kernel.name.endswith(".kernel"):
        parent = kernel.parent_op()
        assert isinstance(parent, SpecOp)
        kernel = parent
    if isinstance(op, SpecOp) and op.name == "ttile.program_id":
        extent = kernel.value("grid")[op.value("axis")].value
        return None if extent is None else extent - 1
    if not isinstance(op, SpecOp) or op.name != "ttile.index":
        return None
    tops: dict[str, int] = {}
    for name, value in zip(op.value("names"), op.operands, strict=True):
        top = _largest(value, load)
        if top is None:
            return None
        tops[name] = top
    return op.value("expr").evaluate(tops)


def window_box(load: LoadOp, lines: Sequence[int]) -> Box:
    """The boxes of a load through windows: so many positions, and a line of channels of one element of a window.

    Lines divide a tile and the channels, so that wherever a tile begins, none has channels of two elements.
    """
    found = find_windows(load)
    tile, channels = shaped_type(load.result), shaped_type(load.operands[0]).shape[-1].value or 0
    length, count, each = tile.sizes[found.inner], tile.sizes[1 - found.inner], tile.dtype.bytes
    fitting = [line // each for line in lines if length * each % line == 0 == channels * each % line]
    asked = (load.value("swizzle") or 0) // each or (load.value("box") or (0,))[-1]
    if not fitting or (asked and asked not in fitting):
        raise UnfitError(f"{channels} channels in steps of {length} are not made of lines of {lines} bytes, or {asked}")
    if count > MAX_BOX or count % 8:
        raise UnfitError(f"a copy has up to {MAX_BOX} positions in eights, and a tile has {count}")
    line = asked or fitting[0]
    return Box(found.inner, (count, line), length // line)


def is_windowed(load: SpecOp) -> bool:
    """Whether a load reads through windows."""
    return bool(load.value("windows"))
