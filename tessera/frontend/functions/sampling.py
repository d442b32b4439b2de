"""Functions of networks that read images at any position, and that norm or mix neighbours: grids, channels, pools.

Images are [batch, channels, ...], with any number of spatial axes. Narrow floats are computed in f32 and rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_number, check_string
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import reduction as r
from tessera.frontend.functions.contraction import avg_pool, matmul
from tessera.frontend.functions.creation import iota, ones
from tessera.frontend.functions.images import cubic_weights, for_axes
from tessera.frontend.functions.indexing import getitem, take
from tessera.frontend.functions.movement import (
    broadcast_to,
    expand_dims,
    moveaxis,
    pad,
    reshape,
    stack,
    swapaxes,
)
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, rank_of, shape_dims
from tessera.frontend.functions.special import compute_wide
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.dtype import i64

Tap: TypeAlias = "tuple[Any, Any, Any]"
"""A pixel along one axis: its index, its weight, and whether it is in the image; None where that is 1, or so."""

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
_OTHER_MODES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def grid_sample(x: Any, grid: Any, mode: str = "linear", padding: str = "zeros", *, align_corners: bool = False) -> Any:
    """Images [batch, channels, ...] read at the positions of `grid` [batch, ..., axes], each from -1 to 1.

    The last axis of the grid counts spatial axes from the last one, which comes first: (x, y) of an image. `mode` is
    "linear", "nearest" or "cubic"; beyond the ends are "zeros", the "border", or the "reflection" of the image. -1 and
    1 are the corners of corner pixels, or their centres with `align_corners`.

    The result is [batch, channels, ...] with the axes of the grid; it has derivatives by images and positions.

    >>> ts.ops.grid_sample(ts.array([[[0.0, 4.0, 8.0]]]), ts.array([[[0.0], [1.0]]]), align_corners=True)
    Tensor([1, 1, 2] f32, [[[4, 8]]])
    """
    if check_string("grid_sample", "mode", mode) not in _MODES:
        close = _OTHER_MODES.get(mode)
        raise ArgumentError(
            f"`grid_sample` has no mode {mode!r}",
            fix=f"write {close!r}" if close else f"write one of {', '.join(map(repr, _MODES))}",
        )
    if check_string("grid_sample", "padding", padding) not in _PADDINGS:
        raise ArgumentError(
            f"`grid_sample` has no padding {padding!r}", fix=f"write one of {', '.join(map(repr, _PADDINGS))}"
        )
    aligned = check_bool("grid_sample", "align_corners", align_corners)
    x, grid = as_tensor(x), as_tensor(grid)
    axes = rank_of(x) - 2
    if axes < 1 or rank_of(grid) != rank_of(x) or shape_dims(grid)[-1].value not in (axes, None):
        raise ShapeError(
            "`grid_sample` takes images [batch, channels, ...] and positions [batch, ..., axes] with as many dims, got"
            f" {list(x.shape)} and {list(grid.shape)}"
        )

    def sample(x: Any, grid: Any) -> Any:
        taps = [
            _TAPS[mode](getitem(grid, (Ellipsis, axes - 1 - axis)), x, axis + 2, padding, aligned)
            for axis in range(axes)
        ]
        return _gather_pixels(x, taps)

    return compute_wide("grid_sample", (x, grid), sample)


def _gather_pixels(x: Any, taps: Sequence[Sequence[Tap]]) -> Any:
    """The sum of pixels with the product of their weights, over all combinations of taps along each axis."""
    # Rows of all channels of a pixel, which are read as wholes.
    rows = reshape(moveaxis(x, 1, -1), (-1, x.shape[1]))
    first = reshape(iota((x.shape[0],)), (-1, *([1] * (rank_of(x) - 2))))
    total: Any = None
    for chosen in itertools.product(*taps):
        index, weight, inside = first, None, None
        for axis, (at, share, own) in enumerate(chosen, 2):
            index = e.add(e.mul(index, x.shape[axis]), at)
            weight = share if weight is None else weight if share is None else e.mul(weight, share)
            inside = own if inside is None else inside if own is None else e.logical_and(inside, own)
        pixels = take(rows, index, 0)
        pixels = pixels if weight is None else e.mul(pixels, expand_dims(weight, -1))
        pixels = pixels if inside is None else e.where(expand_dims(inside, -1), pixels, 0.0)
        total = pixels if total is None else e.add(total, pixels)
    return moveaxis(total, -1, 1)


def _last(x: Any, axis: int) -> Any:
    """The index of the last pixel along an axis, in the dtype of positions."""
    return e.sub(cast(as_tensor(x.shape[axis], i64), dtype_of(x)), 1.0)


def _positions(grid: Any, x: Any, axis: int, aligned: bool) -> Any:
    """Where positions from -1 to 1 are among the pixels of an axis."""
    last = _last(x, axis)
    if aligned:
        return e.mul(e.mul(e.add(grid, 1.0), 0.5), last)
    return e.mul(e.sub(e.mul(e.add(grid, 1.0), e.add(last, 1.0)), 1.0), 0.5)


def _bring_inside(at: Any, last: Any, padding: str, aligned: bool) -> Any:
    """Positions beyond the ends as those of the border or of the reflection, without a slope where they are clamped."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, last) if aligned else (-0.5, e.add(last, 1.0))
        has_span = e.gt(span, 0.0)
        span = e.where(has_span, span, 1.0)
        apart = e.sub(at, low)
        apart = e.where(e.lt(apart, 0.0), e.neg(apart), apart)
        flips = e.floor(e.div(apart, span))
        rest = e.sub(apart, e.mul(flips, span))
        back = e.where(e.eq(e.mod(flips, 2.0), 0.0), rest, e.sub(span, rest))
        at = e.where(has_span, e.add(back, low), 0.0)
    return e.where(e.gt(at, 0.0), e.where(e.lt(at, last), at, last), 0.0)


def _tap(at: Any, share: Any, last: Any) -> Tap:
    """The pixel at a whole position, of which one beyond the ends is none."""
    inside = e.logical_and(e.ge(at, 0.0), e.le(at, last))
    return cast(e.where(inside, at, 0.0), i64), share, inside


def _nearest_taps(grid: Any, x: Any, axis: int, padding: str, aligned: bool) -> list[Tap]:
    last = _last(x, axis)
    at = e.round(_bring_inside(_positions(grid, x, axis, aligned), last, padding, aligned))
    return [_tap(at, None, last)]


def _linear_taps(grid: Any, x: Any, axis: int, padding: str, aligned: bool) -> list[Tap]:
    last = _last(x, axis)
    at = _bring_inside(_positions(grid, x, axis, aligned), last, padding, aligned)
    below = e.floor(at)
    share = e.sub(at, below)
    return [_tap(below, e.sub(1.0, share), last), _tap(e.add(below, 1.0), share, last)]


def _cubic_taps(grid: Any, x: Any, axis: int, padding: str, aligned: bool) -> list[Tap]:
    last, at = _last(x, axis), _positions(grid, x, axis, aligned)
    below = e.floor(at)
    weights = cubic_weights(e.sub(at, below))
    places = [_bring_inside(e.add(below, float(by)), last, padding, aligned) for by in (-1, 0, 1, 2)]
    return [_tap(place, weight, last) for place, weight in zip(places, weights, strict=True)]


_TAPS: dict[str, Callable[..., list[Tap]]] = {"linear": _linear_taps, "nearest": _nearest_taps, "cubic": _cubic_taps}


def affine_grid(theta: Any, size: Any, *, align_corners: bool = False) -> Any:
    """The grid for `grid_sample` of affine maps `theta` [batch, axes, axes + 1], for a result of a spatial `size`.

    >>> ts.ops.affine_grid(ts.array([[[1.0, 0.5]]]), (2,), align_corners=True)
    Tensor([1, 2, 1] f32, [[[-0.5],
                            [1.5]]])
    """
    sizes = [check_int("affine_grid", "size", one) for one in as_tuple(size)]
    aligned = check_bool("affine_grid", "align_corners", align_corners)
    wanted = (len(sizes), len(sizes) + 1)
    if rank_of(theta) != 3 or any(
        dim.value not in (None, size) for dim, size in zip(shape_dims(theta)[1:], wanted, strict=True)
    ):
        raise ShapeError(
            f"`affine_grid` takes maps [batch, {len(sizes)}, {len(sizes) + 1}] for {len(sizes)} spatial sizes, got"
            f" {list(theta.shape)}"
        )

    def transform(theta: Any) -> Any:
        dtype, parts = dtype_of(theta), list[Any]()
        for axis, count in reversed(list(enumerate(sizes))):
            steps = max(count - 1, 1) if aligned else max(count, 1)
            first = (-1.0 if count > 1 else 0.0) if aligned else 1.0 / steps - 1.0
            along = e.add(e.mul(cast(iota((count,)), dtype), 2.0 / steps), first)
            shape = [count if own == axis else 1 for own in range(len(sizes))]
            parts.append(reshape(broadcast_to(reshape(along, shape), sizes), (-1,)))
        points = stack([*parts, broadcast_to(ones((1,), dtype), (parts[0].shape[0],))], -1)
        return reshape(matmul(points, swapaxes(theta, 1, 2)), (theta.shape[0], *sizes, len(sizes)))

    return compute_wide("affine_grid", (theta,), transform)


# Neighbours.


def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """`x` over `(k + alpha * mean(x**2))**beta`, with the mean over `size` channels around each; beyond them are zeros.

    >>> ts.ops.local_response_norm(ts.array([[[1.0], [2.0]]]), 2, 1.0, 1.0)
    Tensor([1, 2, 1] f32, [[[0.666667],
                            [0.571429]]])
    """
    name = "local_response_norm"
    count = check_int(name, "size", size)
    numbers = [check_number(name, key, one) for key, one in (("alpha", alpha), ("beta", beta), ("k", k))]
    if count < 1:
        raise ArgumentError(f"`{name}` takes `size` from 1 up, got {count}")
    if rank_of(x) < 3:
        raise ShapeError(f"`{name}` takes images [batch, channels, ...], got {list(x.shape)}")

    def normalize(x: Any) -> Any:
        channels, total = x.shape[1], None
        around = [(0, 0), (count // 2, (count - 1) // 2)] + [(0, 0)] * (rank_of(x) - 2)
        squares = pad(e.mul(x, x), around)
        for start in range(count):
            own = getitem(squares, (slice(None), slice(start, start + channels)))
            total = own if total is None else e.add(total, own)
        return e.div(x, e.pow(e.add(e.mul(total, numbers[0] / count), numbers[2]), numbers[1]))

    return compute_wide(name, (x,), normalize)


def channel_shuffle(x: Any, groups: int) -> Any:
    """Channels of images [batch, channels, ...] in another order: one of each group after the other.

    >>> ts.ops.channel_shuffle(ts.array([[[1], [2], [3], [4]]]), 2).reshape(4)
    Tensor([4] i64, [1, 3, 2, 4])
    """
    number = check_int("channel_shuffle", "groups", groups)
    if rank_of(x) < 3:
        raise ShapeError(f"`channel_shuffle` takes images [batch, channels, ...], got {list(x.shape)}")
    channels = shape_dims(x)[1]
    if number < 1 or (channels % number).value not in (0, None):
        raise ShapeError(f"`channel_shuffle` cannot cut {channels} channels into {number} groups")
    sizes = tuple(x.shape)
    apart = reshape(x, (sizes[0], number, sizes[1] // number, *sizes[2:]))
    return reshape(swapaxes(apart, 1, 2), sizes)


def lp_pool(x: Any, order: float, window: Any, *, stride: Any = ()) -> Any:
    """The norm of `order` over each window, as `avg_pool` has them: 1 sums sizes, and large ones come to `max_pool`.

    >>> ts.ops.lp_pool(ts.array([[[3.0, 4.0, 0.0, 2.0]]]), 2, 2)
    Tensor([1, 1, 2] f32, [[[5, 2]]])
    """
    power = check_number("lp_pool", "order", order)
    if not power > 0:
        raise ArgumentError(f"`lp_pool` takes `order` above 0, got {power}", fix="write `order=2`")
    if is_sequence(window):
        taps = [check_int("lp_pool", "window", one) for one in window]
    else:
        taps = for_axes("lp_pool", "window", window, max(rank_of(x) - 2, 1))
    count = 1.0
    for one in taps:
        count *= one

    def pool(x: Any) -> Any:
        sizes = e.mul(x, x) if power == 2.0 else e.pow(e.abs(x), power)
        total = e.mul(avg_pool(sizes, window, stride=stride), count)
        is_zero = e.le(total, 0.0)
        safe = e.where(is_zero, 1.0, total)
        return e.where(is_zero, 0.0, e.sqrt(safe) if power == 2.0 else e.pow(safe, 1.0 / power))

    return compute_wide("lp_pool", (x,), pool)


def normalize(x: Any, axis: Any = -1, *, order: float = 2.0, eps: float = 1e-12) -> Any:
    """`x` over its norm along `axis`; norms below `eps` count as `eps`.

    >>> ts.ops.normalize(ts.array([3.0, 4.0]))
    Tensor([2] f32, [0.6, 0.8])
    """
    power, least = check_number("normalize", "order", order), check_number("normalize", "eps", eps)
    return compute_wide(
        "normalize", (x,), lambda a: e.div(a, e.maximum(r.norm(a, axis, order=power, keepdims=True), least))
    )


def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    """`x @ weight[k] @ y` for each `k`, plus `bias`: vectors along the last axes, with a weight [out, in x, in y].

    >>> ts.ops.bilinear(ts.array([1.0, 2.0]), ts.array([3.0]), ts.array([[[1.0], [10.0]]]))
    Tensor([1] f32, [63])
    """
    if rank_of(weight) != 3:
        raise ShapeError(f"`bilinear` takes `weight` [out, in x, in y], got {list(weight.shape)}")
    outs, left, right = weight.shape
    # [..., in x] by [in x, out * in y], and then the rows of `in y` with `y`: no tensor of both inputs is made.
    flat = reshape(moveaxis(weight, 1, 0), (left, -1))
    made = matmul(expand_dims(x, -2), flat)
    rows = reshape(made, (*tuple(made.shape)[:-2], outs, right))
    found = getitem(matmul(rows, expand_dims(y, -1)), (Ellipsis, 0))
    return found if bias is None else e.add(found, bias)


__all__ = [
    "affine_grid",
    "bilinear",
    "channel_shuffle",
    "grid_sample",
    "local_response_norm",
    "lp_pool",
    "normalize",
]
