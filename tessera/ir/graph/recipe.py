"""The canonical recipe of reductions on NumPy arrays: 32 lanes, each in order, then a halving tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, rounded, widened
from tessera.types.dtype import DType
from tessera.types.promotion import sum_of

LANES = 32
"""Fixed for every machine: a reduced element's place in the sum depends on its index alone."""

_UFUNCS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def identity(kind: str, dtype: np.dtype[Any]) -> Any:
    """The value that changes nothing: what an empty reduction gives."""
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


def fold(kind: str, x: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array:
    """Sum, prod, max or min over `axes` in the dtype of `x`, bit for bit as compiled kernels do it.

    Lane `l` starts from the identity and takes elements `l`, `l + 32`, ... in order; then lane `l` takes in lane
    `l + 16`, then `l + 8`, `l + 4`, `l + 2`, `l + 1`.
    """
    ufunc, rows = _UFUNCS[kind], reduced_last(x, axes)
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


def narrow_fold(kind: str, x: Array, axes: Sequence[int], total: DType, *, keepdims: bool = False) -> Array:
    """As `fold` of f32, with every lane rounded to a narrow accumulator at each step; the tree is in f32."""
    ufunc, rows = _UFUNCS[kind], reduced_last(x, axes)
    steps = -(-rows.shape[1] // LANES)
    padded = np.full((rows.shape[0], steps * LANES), identity(kind, x.dtype), x.dtype)
    padded[:, : rows.shape[1]] = rows
    lanes = np.full((rows.shape[0], LANES), identity(kind, x.dtype), x.dtype)
    with np.errstate(all="ignore"):
        for step in range(steps):
            joined = ufunc(lanes, padded[:, step * LANES : (step + 1) * LANES])
            lanes = rounded(joined, total).astype(x.dtype)
    return fold(kind, lanes, (1,)).reshape(kept_shape(x, axes, keepdims))


def running_fold(kind: str, x: Array, axis: int, total: DType) -> Array:
    """Each element folded with all before it along an axis, in order: in a wide accumulator, or one rounded each time.

    The first element joins nothing, and a narrow accumulator rounds it as it rounds every other step.
    """
    ufunc = _UFUNCS[kind]
    with np.errstate(all="ignore"):
        if total.compute is total:
            return ufunc.accumulate(x.astype(numpy_dtype(total)), axis=axis)
        out = np.moveaxis(x.astype(np.float32), axis, 0)
        for at in range(out.shape[0]):
            joined = ufunc(out[at - 1], out[at]) if at else out[at]
            out[at] = rounded(joined, total).astype(np.float32)
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
            return rounded(narrow_fold(kind, widened(x), axes, accumulate, keepdims=keepdims), dtype)
        return rounded(fold(kind, x.astype(numpy_dtype(accumulate)), axes, keepdims=keepdims), dtype)
    if kind in ("sum", "prod") and not dtype.is_float:
        return fold(kind, x.astype(numpy_dtype(sum_of(dtype))), axes, keepdims=keepdims)
    return rounded(fold(kind, widened(x), axes, keepdims=keepdims), dtype)
