"""References on NumPy arrays that several ops share: the canonical recipe of reductions, and Philox4x32-10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, widen_array
from tessera.types.dtype import DType
from tessera.types.promotion import sum_of

# The canonical recipe of reductions. The order of additions is part of the meaning: element i goes to lane i % 32, each
# lane adds its elements in order, and a halving tree joins the lanes. Kernels keep to it whatever their tile, thread
# count or machine, so that bits never depend on those.

LANES = 32
"""Fixed for every machine: when an element is added depends on its index alone."""

REDUCTION_UFUNCS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def identity(kind: str, dtype: np.dtype[Any]) -> Any:
    """The identity of a reduction: what an empty one gives."""
    if kind in ("sum", "any"):
        return dtype.type(0)
    if kind in ("prod", "all"):
        return dtype.type(1)
    if dtype.kind == "f":
        return dtype.type(-np.inf if kind == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if kind == "max" else limits.max)


def reduced_last(x: Array, axes: Sequence[int]) -> Array:
    """The array as [kept elements, reduced elements], the reduced ones in row-major order of their axes."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose((*kept, *axes))
    return moved.reshape(
        int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64)),
        int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64)),
    )


def kept_shape(x: Array, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """The shape of the result of a reduction."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def reduce_lanes(kind: str, x: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array:
    """Sum, prod, max or min over `axes` in the dtype of `x`, bit for bit as compiled kernels do it.

    Lane `l` starts from the identity and takes elements `l`, `l + 32`, ... in order; then lane `l` takes in lane
    `l + 16`, then `l + 8`, `l + 4`, `l + 2`, `l + 1`.
    """
    ufunc, rows = REDUCTION_UFUNCS[kind], reduced_last(x, axes)
    steps = -(-rows.shape[1] // LANES)
    lanes = np.full((steps + 1, rows.shape[0], LANES), identity(kind, x.dtype), x.dtype)
    padded = np.full((rows.shape[0], steps * LANES), identity(kind, x.dtype), x.dtype)
    padded[:, : rows.shape[1]] = rows
    lanes[1:] = padded.reshape(rows.shape[0], steps, LANES).transpose(1, 0, 2)
    with np.errstate(all="ignore"):
        # accumulate, unlike reduce, is defined to go one element after the other
        total = ufunc.accumulate(lanes, axis=0)[-1]
        width = LANES // 2
        while width:
            total = ufunc(total[:, :width], total[:, width : 2 * width])
            width //= 2
    return total.reshape(kept_shape(x, axes, keepdims))


def _reduce_narrow(kind: str, x: Array, axes: Sequence[int], total: DType, *, keepdims: bool = False) -> Array:
    """As `reduce_lanes` of f32, with every lane rounded to a narrow accumulator at each step; the tree is in f32."""
    ufunc, rows = REDUCTION_UFUNCS[kind], reduced_last(x, axes)
    steps = -(-rows.shape[1] // LANES)
    padded = np.full((rows.shape[0], steps * LANES), identity(kind, x.dtype), x.dtype)
    padded[:, : rows.shape[1]] = rows
    lanes = np.full((rows.shape[0], LANES), identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        for step in range(steps):
            joined = ufunc(lanes, padded[:, step * LANES : (step + 1) * LANES])
            lanes = round_as(joined, total).astype(x.dtype)
    return reduce_lanes(kind, lanes, (1,)).reshape(kept_shape(x, axes, keepdims))


def scan_reference(kind: str, x: Array, axis: int, total: DType) -> Array:
    """Each element reduced with all before it along an axis, in order: in a wide accumulator, or one rounded each time.

    A narrow accumulator rounds the first element too, as it rounds every other step.
    """
    ufunc = REDUCTION_UFUNCS[kind]
    with np.errstate(all="ignore"):
        if total.compute is total:
            return ufunc.accumulate(x.astype(numpy_dtype(total)), axis=axis)
        out = np.moveaxis(x.astype(np.float32), axis, 0)
        for at in range(out.shape[0]):
            joined = ufunc(out[at - 1], out[at]) if at else out[at]
            out[at] = round_as(joined, total).astype(np.float32)
    return np.moveaxis(out, 0, axis)


def reduce(
    kind: str, x: Array, axes: Sequence[int], *, keepdims: bool = False, accumulate: DType | None = None
) -> Array:
    """The reduction of an array of any dtype: narrow floats in f32, integer sums in 64 bits, rounded once.

    `accumulate` is another float to keep running sums in: a wider one, or a narrow one that rounds at each step.
    """
    dtype = dtype_of(x)
    if accumulate is not None and dtype.is_float and accumulate is not dtype.compute:
        if accumulate.compute is not accumulate:
            return round_as(_reduce_narrow(kind, widen_array(x), axes, accumulate, keepdims=keepdims), dtype)
        return round_as(reduce_lanes(kind, x.astype(numpy_dtype(accumulate)), axes, keepdims=keepdims), dtype)
    if kind in ("sum", "prod") and not dtype.is_float:
        return reduce_lanes(kind, x.astype(numpy_dtype(sum_of(dtype))), axes, keepdims=keepdims)
    return round_as(reduce_lanes(kind, widen_array(x), axes, keepdims=keepdims), dtype)


# Philox4x32-10 on arrays: the counter-based generator that all random ops draw from.

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10
_WORD = 0xFFFFFFFF
KEY_BRANCH = 0x6B657900 << 32
"""XORed with the stream of a key, it gives one that no sample is drawn from; few bits, so that it is an exact float."""


def philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Four random words for each counter of four words under a key of two, all as u64 arrays below 2**32."""
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = (word.astype(np.uint64) for word in key)
    shift, mask = np.uint64(32), np.uint64(_WORD)
    m0, m1 = (np.uint64(m) for m in PHILOX_MULTIPLIERS)
    for _ in range(PHILOX_ROUNDS):
        first, second = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (second >> shift) ^ c1 ^ k0, second & mask, (first >> shift) ^ c3 ^ k1, first & mask
        k0, k1 = (k0 + np.uint64(PHILOX_KEY_STEPS[0])) & mask, (k1 + np.uint64(PHILOX_KEY_STEPS[1])) & mask
    return c0, c1, c2, c3


def split_words(words: Array) -> tuple[Array, Array]:
    """Low and high halves of u64 words."""
    return words & np.uint64(_WORD), words >> np.uint64(32)


def draw_bits(counter: Array, key: Array, stream: Array) -> Array:
    """64 random bits for each u64 counter: the first two words under `key`, `stream` being the counter's upper half."""
    low, high, *_ = philox((*split_words(counter), *split_words(stream)), split_words(key))
    return low | (high << np.uint64(32))


def key_words(key: Array) -> tuple[Array, Array]:
    """Key and stream of a key array, u64[2], or u32[4] with low words first."""
    wide = np.ascontiguousarray(key).view(np.uint64) if key.dtype == np.uint32 else key
    return wide[0], wide[1]


def random_bits(key: Array, shape: Sequence[int]) -> Array:
    """64 random bits for each element of a shape; the counter is the element's row-major index."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    return draw_bits(np.arange(count, dtype=np.uint64), *key_words(key)).reshape(tuple(shape))


def fold_key(key: Array, data: Array) -> Array:
    """The key of a branch: u64[2] made from a key and a number that names the branch."""
    own, stream = key_words(key)
    counters = np.asarray(data).astype(np.uint64) * np.uint64(2) + np.arange(2, dtype=np.uint64)
    return draw_bits(counters, own, stream ^ np.uint64(KEY_BRANCH))


def make_key(seed: int, *path: int) -> Array:
    """A key, u64[2], from a seed and numbers that say where it is used: function, site, iteration, step."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, 0], np.uint64)
    for number in path:
        key = fold_key(key, np.array(number & 0xFFFFFFFFFFFFFFFF, np.uint64))
    return key
