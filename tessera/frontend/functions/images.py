"""Functions of networks on images, written with ops: resampling, shuffles of pixels, windows, adaptive pools, norms.

Images are [batch, channels, ...], and what is said of one spatial axis is done along each of them in order: resampling
and pools are separable. Narrow floats are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_choice, check_int, check_number, check_sequence, check_string
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import reduction as r
from tessera.frontend.functions.creation import iota, zeros
from tessera.frontend.functions.indexing import embedding, getitem, take
from tessera.frontend.functions.movement import (
    concat,
    expand_dims,
    flip,
    moveaxis,
    pad,
    repeat,
    reshape,
    stack,
    transpose,
)
from tessera.frontend.functions.operands import as_tensor, axis_of, cast, dtype_of, rank_of, shape_dims
from tessera.frontend.functions.special import compute_wide
from tessera.frontend.functions.updates import At
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.dtype import f64, i64

_CUBIC = -0.75
"""The slope of the cubic kernel, as PyTorch has it."""


def _spatial(op: str, x: Any) -> int:
    if rank_of(x) < 3:
        raise ShapeError(f"`{op}` takes images [batch, channels, ...], got {list(x.shape)}")
    return rank_of(x) - 2


def for_axes(op: str, name: str, given: Any, count: int) -> tuple[int, ...]:
    """A number for each spatial axis, from one or from as many."""
    numbers = tuple(check_int(op, name, one) for one in as_tuple(given))
    if len(numbers) not in (1, count):
        raise ArgumentError(f"`{op}` takes `{name}` as 1 or {count} numbers, got {len(numbers)}")
    return numbers * count if len(numbers) == 1 else numbers


# Resampling.


def interpolate(x: Any, size: Any, mode: str = "nearest", *, align_corners: bool = False) -> Any:
    """Images resampled to `size` along their spatial axes: "nearest", "linear" (bi-, trilinear), "cubic" or "area".

    Pixels are areas, whose corners meet those of the result; with `align_corners` the centres of corner pixels do.
    "nearest" takes the pixel at the corner of each area and "nearest-exact" that at its centre; "area" is the mean of
    pixels, as `adaptive_avg_pool` has it.

    >>> ts.ops.interpolate(ts.array([[[0.0, 4.0]]]), 4, "linear")
    Tensor([1, 1, 4] f32, [[[0, 1, 3, 4]]])
    """
    if check_string("interpolate", "mode", mode) not in _RESAMPLE:
        close = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode)
        raise ArgumentError(
            f"`interpolate` has no mode {mode!r}",
            fix=f"write {close!r}" if close else f"write one of {', '.join(map(repr, _RESAMPLE))}",
        )
    count = _spatial("interpolate", x)
    sizes = for_axes("interpolate", "size", size, count)
    aligned = check_bool("interpolate", "align_corners", align_corners)

    def resample(x: Any) -> Any:
        for axis, wanted in enumerate(sizes, 2):
            x = _RESAMPLE[mode](x, axis, wanted, aligned)
        return x

    return resample(x) if mode.startswith("nearest") else compute_wide("interpolate", (x,), resample)


def _positions(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    """Where the pixels of the result are among those of `x`, in f64."""
    own, at = cast(as_tensor(x.shape[axis], i64), f64), cast(iota((wanted,)), f64)
    if aligned:
        return e.mul(at, e.div(e.sub(own, 1.0), float(max(wanted - 1, 1))))
    return e.sub(e.mul(e.add(at, 0.5), e.div(own, float(wanted))), 0.5)


def _nearest(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    own = as_tensor(x.shape[axis], i64)
    return take(x, e.floordiv(e.mul(iota((wanted,)), own), wanted), axis)


def _nearest_centre(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    own, at = as_tensor(x.shape[axis], i64), iota((wanted,))
    return take(x, e.floordiv(e.mul(e.add(e.mul(at, 2), 1), own), 2 * max(wanted, 1)), axis)


def _weigh(x: Any, axis: int, places: Any, taps: Sequence[tuple[int, Any]]) -> Any:
    """The sum of pixels at some distances from a place, times weights; those beyond an end are that end."""
    last = e.sub(as_tensor(x.shape[axis], i64), 1)
    base = cast(e.floor(places), i64)
    shape = tuple(-1 if own == axis else 1 for own in range(rank_of(x)))
    total: Any = None
    for distance, weight in taps:
        pixels = take(x, e.minimum(e.maximum(e.add(base, distance), 0), last), axis)
        part = e.mul(pixels, reshape(cast(weight, dtype_of(x)), shape))
        total = part if total is None else e.add(total, part)
    return total


def _linear(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    places = _positions(x, axis, wanted, aligned)
    share = e.sub(places, e.floor(places))
    return _weigh(x, axis, places, [(0, e.sub(1.0, share)), (1, share)])


def cubic_weights(share: Any) -> list[Any]:
    """The weights of the four pixels around a position that is a share of the way from the second to the third."""

    def near(t: Any) -> Any:
        return e.add(e.mul(e.mul(t, t), e.sub(e.mul(t, _CUBIC + 2), _CUBIC + 3)), 1.0)

    def far(t: Any) -> Any:
        inner = e.add(e.mul(e.sub(e.mul(t, _CUBIC), 5 * _CUBIC), t), 8 * _CUBIC)
        return e.sub(e.mul(inner, t), 4 * _CUBIC)

    other = e.sub(1.0, share)
    return [far(e.add(share, 1.0)), near(share), near(other), far(e.add(other, 1.0))]


def _cubic(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    places = _positions(x, axis, wanted, aligned)
    weights = cubic_weights(e.sub(places, e.floor(places)))
    return _weigh(x, axis, places, list(zip((-1, 0, 1, 2), weights, strict=True)))


def _area(x: Any, axis: int, wanted: int, aligned: bool) -> Any:
    return _pool_parts(x, axis, wanted, _mean_of_parts)


_RESAMPLE: dict[str, Callable[..., Any]] = {
    "nearest": _nearest,
    "nearest-exact": _nearest_centre,
    "linear": _linear,
    "cubic": _cubic,
    "area": _area,
}


def pixel_shuffle(x: Any, factor: int) -> Any:
    """Channels of images [..., C * r * r, H, W] as pixels: [..., C, H * r, W * r].

    >>> ts.ops.pixel_shuffle(ts.ones((1, 8, 2, 3)), 2).shape
    (1, 2, 4, 6)
    """
    by = _factor("pixel_shuffle", x, factor)
    *front, channels, height, width = x.shape
    lead = len(front)
    apart = reshape(x, (*front, channels // (by * by), by, by, height, width))
    order = (*range(lead), lead, lead + 3, lead + 1, lead + 4, lead + 2)
    return reshape(transpose(apart, order), (*front, channels // (by * by), height * by, width * by))


def pixel_unshuffle(x: Any, factor: int) -> Any:
    """Pixels of images [..., C, H * r, W * r] as channels: [..., C * r * r, H, W]."""
    by = _factor("pixel_unshuffle", x, factor)
    *front, channels, height, width = x.shape
    lead = len(front)
    apart = reshape(x, (*front, channels, height // by, by, width // by, by))
    order = (*range(lead), lead, lead + 2, lead + 4, lead + 1, lead + 3)
    return reshape(transpose(apart, order), (*front, channels * by * by, height // by, width // by))


def _factor(op: str, x: Any, factor: Any) -> int:
    by = check_int(op, "factor", factor)
    if rank_of(x) < 3:
        raise ShapeError(f"`{op}` takes images [..., channels, height, width], got {list(x.shape)}")
    if by < 1:
        raise ArgumentError(f"`{op}` takes `factor` from 1 up, got {by}")
    return by


# Windows as columns.


def unfold(x: Any, window: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """The windows of images as columns: [N, C, ...] to [N, C * taps, windows].

    >>> ts.ops.unfold(ts.ones((1, 2, 4, 4)), 3).shape
    (1, 18, 4)
    """
    count = _spatial("unfold", x)
    form = _Windows("unfold", count, window, stride, padding, dilation)
    x = form.pad(x)
    parts = [getitem(x, (Ellipsis, *cuts)) for cuts in form.cuts(tuple(x.shape)[2:])]
    joined = stack(parts, 2)
    batch, channels = joined.shape[:2]
    return reshape(joined, (batch, channels * len(parts), -1))


def sum_windows(x: Any, size: Any, window: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """Columns of windows [N, C * taps, windows] added up to images of `size`: the transpose of `unfold`.

    >>> ts.ops.sum_windows(ts.ones((1, 4, 4)), (3, 3), 2)[0, 0]
    Tensor([3, 3] f32, [[1, 2, 1],
                        [2, 4, 2],
                        [1, 2, 1]])
    """
    sizes = tuple(check_int("sum_windows", "size", one) for one in as_tuple(size))
    form = _Windows("sum_windows", len(sizes), window, stride, padding, dilation)
    whole = tuple(one + 2 * by for one, by in zip(sizes, form.padding, strict=True))
    cuts = form.cuts(whole)
    batch, columns = x.shape[:2]
    channels = columns // len(cuts)
    parts = reshape(x, (batch, channels, len(cuts), *form.counts(whole)))
    made = zeros((batch, channels, *whole), dtype_of(x))
    for number, cut in enumerate(cuts):
        made = At(made)[(Ellipsis, *cut)].add(getitem(parts, (slice(None), slice(None), number)))
    inner = (slice(by, one + by) for one, by in zip(sizes, form.padding, strict=True))
    return getitem(made, (Ellipsis, *inner))


class _Windows:
    """Windows over spatial axes: their taps, and what each reads as slices."""

    def __init__(self, op: str, count: int, window: Any, stride: Any, padding: Any, dilation: Any) -> None:
        self.window = for_axes(op, "window", window, count)
        self.stride = for_axes(op, "stride", stride, count)
        self.padding = for_axes(op, "padding", padding, count)
        self.dilation = for_axes(op, "dilation", dilation, count)

    def pad(self, x: Any) -> Any:
        return pad(x, [(0, 0), (0, 0), *((by, by) for by in self.padding)]) if any(self.padding) else x

    def counts(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        form = zip(sizes, self.window, self.stride, self.dilation, strict=True)
        return tuple((size - (taps - 1) * apart - 1) // step + 1 for size, taps, step, apart in form)

    def cuts(self, sizes: Sequence[int]) -> list[tuple[slice, ...]]:
        """What each tap of the windows reads."""
        found: list[tuple[slice, ...]] = [()]
        for count, taps, step, apart in zip(self.counts(sizes), self.window, self.stride, self.dilation, strict=True):
            found = [
                (*cut, slice(tap * apart, tap * apart + step * (count - 1) + 1, step))
                for cut in found
                for tap in range(taps)
            ]
        return found


# Pools to a given size.


def adaptive_avg_pool(x: Any, size: Any) -> Any:
    """Means of `size` parts along each spatial axis, which overlap by a pixel where they do not divide it.

    >>> ts.ops.adaptive_avg_pool(ts.array([[[1.0, 2.0, 3.0]]]), 2)
    Tensor([1, 1, 2] f32, [[[1.5, 2.5]]])
    """
    return _adapt("adaptive_avg_pool", x, size, _mean_of_parts)


def _mean_of_parts(rows: Any, mask: Any) -> Any:
    count = r.sum(cast(mask, dtype_of(rows)), -1)
    return e.div(r.sum(e.where(mask, expand_dims(rows, -2), 0.0), -1), count)


def adaptive_max_pool(x: Any, size: Any) -> Any:
    """The largest of `size` parts along each spatial axis, which overlap by a pixel where they do not divide it."""
    return _adapt(
        "adaptive_max_pool",
        x,
        size,
        lambda rows, mask: r.max(e.where(mask, expand_dims(rows, -2), float("-inf")), -1),
    )


def _adapt(op: str, x: Any, size: Any, reduce: Callable[[Any, Any], Any]) -> Any:
    sizes = for_axes(op, "size", size, _spatial(op, x))

    def pool(x: Any) -> Any:
        for axis, wanted in enumerate(sizes, 2):
            x = _pool_parts(x, axis, wanted, reduce)
        return x

    return compute_wide(op, (x,), pool)


def _pool_parts(x: Any, axis: int, wanted: int, reduce: Callable[[Any, Any], Any]) -> Any:
    """One axis of images as so many parts, each reduced."""
    own, at = as_tensor(x.shape[axis], i64), iota((wanted, 1))
    start = e.floordiv(e.mul(at, own), wanted)
    stop = e.floordiv(e.add(e.mul(e.add(at, 1), own), wanted - 1), wanted)
    pixels = iota((1, x.shape[axis]), 1)
    mask = e.logical_and(e.ge(pixels, start), e.lt(pixels, stop))
    return moveaxis(reduce(moveaxis(x, axis, -1), mask), -1, axis)


# Norms over channels, and bags of embeddings.


def batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """`x` [batch, channels, ...] less `mean`, over the root of `var`, of each channel, times `weight`, plus `bias`."""
    small = check_number("batch_norm", "eps", eps)

    def normalize(x: Any) -> Any:
        def along(one: Any) -> Any:
            return reshape(cast(one, dtype_of(x)), (1, -1, *([1] * (rank_of(x) - 2))))

        made = e.mul(e.sub(x, along(mean)), e.rsqrt(e.add(along(var), small)))
        made = made if weight is None else e.mul(made, along(weight))
        return made if bias is None else e.add(made, along(bias))

    return compute_wide("batch_norm", (x,), normalize)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """`x` [batch, channels, ...] with mean 0 and variance 1 over each group of channels and all their pixels.

    >>> ts.ops.group_norm(ts.array([[1.0, 3.0, 5.0, 5.0]]), 2, eps=1e-9)
    Tensor([1, 4] f32, [[-1, 1, 0, 0]])
    """
    number, small = check_int("group_norm", "groups", groups), check_number("group_norm", "eps", eps)
    channels = shape_dims(x)[1]
    if number < 1 or (channels % number).value not in (0, None):
        raise ShapeError(f"`group_norm` cannot cut {channels} channels into {number} groups")

    def normalize(x: Any) -> Any:
        rows = reshape(x, (x.shape[0], number, -1))
        apart = e.sub(rows, r.mean(rows, -1, keepdims=True))
        scale = e.rsqrt(e.add(r.mean(e.mul(apart, apart), -1, keepdims=True), small))
        made = reshape(e.mul(apart, scale), tuple(x.shape))
        shape = (1, -1, *([1] * (rank_of(x) - 2)))
        made = made if weight is None else e.mul(made, reshape(cast(weight, dtype_of(x)), shape))
        return made if bias is None else e.add(made, reshape(cast(bias, dtype_of(x)), shape))

    return compute_wide("group_norm", (x,), normalize)


def instance_norm(x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """`x` [batch, channels, ...] with mean 0 and variance 1 over the pixels of each channel of each image."""
    _spatial("instance_norm", x)
    size = shape_dims(x)[1].value
    if size is None:
        raise ShapeError(f"`instance_norm` needs channels that are a number, got {shape_dims(x)[1]}")
    return group_norm(x, size, weight, bias, eps=eps)


def embedding_bag(table: Any, indices: Any, mode: str = "mean", *, axis: int = -1) -> Any:
    """Rows of `table` by number, reduced over an axis of `indices`: "sum", "mean" or "max".

    >>> ts.ops.embedding_bag(ts.array([[1.0], [5.0]]), ts.array([[0, 1]]), "sum")
    Tensor([1, 1] f32, [[6]])
    """
    reductions = {"sum": r.sum, "mean": r.mean, "max": r.max}
    reduce = reductions[check_choice("embedding_bag", "mode", mode, reductions)]
    return reduce(embedding(table, indices), axis_of("embedding_bag", axis, rank_of(indices)))


def pad_with(x: Any, widths: Any, mode: str = "reflect") -> Any:
    """`x` with copies of itself around it: "reflect" without its end, "symmetric" with it, "edge" or "wrap".

    >>> ts.ops.pad_with(ts.array([1.0, 2.0, 3.0]), [(2, 1)])
    Tensor([6] f32, [3, 2, 1, 2, 3, 2])
    """
    names = {"replicate": '"edge"', "circular": '"wrap"', "constant": "`tessera.ops.pad`"}
    check_choice("pad_with", "mode", mode, ("reflect", "symmetric", "edge", "wrap"), names)
    pairs = list(widths) if is_sequence(widths) else [(widths, widths)] * rank_of(x)
    if len(pairs) != rank_of(x):
        raise ShapeError(f"`pad_with` needs (before, after) for each of {rank_of(x)} axes, got {len(pairs)}")
    for axis, pair in enumerate(pairs):
        before, after = (check_int("pad_with", "widths", one) for one in check_sequence("pad_with", "widths", pair, 2))
        known = shape_dims(x)[axis].value
        if known is not None and 0 <= min(before, after) <= max(before, after) <= known - (mode == "reflect"):
            x = _join_copies(x, axis, before, after, mode, known)
        elif before or after:
            size = as_tensor(x.shape[axis], i64)
            at = e.sub(iota((x.shape[axis] + before + after,)), before)
            x = take(x, _pixels(mode, at, size), axis)
    return x


def _join_copies(x: Any, axis: int, before: int, after: int, mode: str, size: int) -> Any:
    """`x` between parts of itself, neither longer than it: slices, which are copied in rows."""

    def part(start: int, length: int, *, is_flipped: bool = False) -> Any:
        cut = getitem(x, (slice(None),) * axis + (slice(start, start + length),))
        return flip(cut, axis) if is_flipped else cut

    gap = 1 if mode == "reflect" else 0
    if mode == "edge":
        front, back = [repeat(part(0, 1), before, axis)], [repeat(part(size - 1, 1), after, axis)]
    elif mode == "wrap":
        front, back = [part(size - before, before)], [part(0, after)]
    else:
        front, back = [part(gap, before, is_flipped=True)], [part(size - gap - after, after, is_flipped=True)]
    parts = [*(front if before else []), x, *(back if after else [])]
    return concat(parts, axis) if len(parts) > 1 else x


def _pixels(mode: str, at: Any, size: Any) -> Any:
    """Which pixel stands at a position, also beyond the ends."""
    if mode == "edge":
        return e.minimum(e.maximum(at, 0), e.sub(size, 1))
    if mode == "wrap":
        return e.mod(at, size)
    gap = 1 if mode == "reflect" else 0
    period = e.maximum(e.sub(e.mul(size, 2), 2 * gap), 1)
    within = e.mod(at, period)
    return e.minimum(within, e.sub(e.sub(period, within), 1 - gap))


__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "batch_norm",
    "embedding_bag",
    "group_norm",
    "instance_norm",
    "interpolate",
    "pad_with",
    "pixel_shuffle",
    "pixel_unshuffle",
    "sum_windows",
    "unfold",
]
