"""Long convolutions: by Fourier transforms that are matmuls, or directly where that is less work.

A sequence of `N = N1 N2` elements is a matrix of N1 rows. Its transform is a matmul with the N1 x N1 Fourier matrix, an
elementwise product with twiddle factors, and a matmul with the N2 x N2 matrix (Monarch form): work for tensor cores,
and rows that are known to be zero are left out of the first matmul and out of the last. Frequencies are odd multiples
of half a step: a filter and a sequence that are padded to N do not wrap around, so the transform may have any sign at
the end of the period, and at odd frequencies the spectrum of a real sequence is N / 2 numbers without special cases.

Which of the two is less work is decided by `plan_convolution` from the two lengths alone, so that machines agree. All
of it is linear ops of the graph: derivatives follow, and are transforms too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.stdlib.operand_dims import promote_tensors
from tessera.types.dtype import f64
from tessera.types.frozen import frozen

MODES = ("same", "full", "valid", "causal", "circular")
_WIDEST = 128
"""Columns of the matrix that a long sequence is: the K dimension of the second matmul is two times as many."""
_MOST_TAPS = 1 << 14
_DIRECT_COST = 4.0
"""What a multiply-add of a direct convolution costs, in those of a matmul: it has no tensor cores, and no reuse."""
_ELEMENT_COST = 16.0
"""What an element that is written and read between matmuls costs, in their multiply-adds."""


@frozen
class ConvolutionPlan:
    """How a convolution of `length` elements with `taps` is computed, and what both ways cost for one sequence."""

    length: int
    taps: int
    algorithm: str
    rows: int
    columns: int
    direct_cost: float
    transform_cost: float

    @property
    def crossover(self) -> int | None:
        """The least number of taps for which a sequence of this length is transformed; None for short sequences."""
        # Sizes of transforms go in steps, so costs cross more than once: the first time counts.
        taps = range(1, _MOST_TAPS)
        return next((count for count in taps if plan_convolution(self.length, count).algorithm == "transform"), None)

    def __str__(self) -> str:
        least = self.crossover
        return (
            f"{self.algorithm} convolution of {self.length} elements with {self.taps} taps: "
            f"direct {self.direct_cost:.3g}, by transforms of {self.rows} x {self.columns} {self.transform_cost:.3g} "
            f"multiply-adds; " + (f"transforms from {least} taps on" if least else "never by transforms")
        )


def plan_convolution(length: int, taps: int) -> ConvolutionPlan:
    """The plan for a sequence of `length` elements and a filter of `taps`.

    >>> from tessera.stdlib.long_convolution import plan_convolution
    >>> plan_convolution(8192, 8192).algorithm, plan_convolution(8192, 4).algorithm
    ('transform', 'direct')
    """
    total = max(1, length + taps - 1)
    columns = min(_WIDEST, max(8, 1 << math.isqrt(total).bit_length()))
    rows = -(-total // columns)
    rows += rows % 2
    used = -(-max(1, length) // columns)
    # Matmuls by rows on both ends, complex matmuls by columns between them, and seven passes over the spectrum.
    work = 2 * rows * used * columns + 2 * (rows // 2) * (2 * columns) ** 2 + 7 * rows * columns * _ELEMENT_COST
    direct = _DIRECT_COST * length * taps
    algorithm = "direct" if direct <= work else "transform"
    return ConvolutionPlan(length, taps, algorithm, rows, columns, direct, work)


# Fourier matrices, made in f64 and rounded once.


@lru_cache(maxsize=64)
def _row_matrix(rows: int, used: int) -> Any:
    """Cosines above negative sines of odd half frequencies, [rows, used], scaled to keep lengths."""
    # Angles are reduced as integers: their cosines are exact to the last digit however long the sequence is.
    steps = np.arange(used) * (2 * np.arange(rows // 2)[:, None] + 1) % (2 * rows)
    angles = steps * (np.pi / rows)
    return np.concatenate([np.cos(angles), -np.sin(angles)]) / math.sqrt(rows)


@lru_cache(maxsize=64)
def _twiddles(rows: int, columns: int) -> Any:
    """Cosines and sines of what is left of a frequency along columns, [2, rows / 2, columns]."""
    angles = np.arange(columns) * (2 * np.arange(rows // 2)[:, None] + 1) * (np.pi / (rows * columns))
    return np.stack([np.cos(angles), np.sin(angles)])


@lru_cache(maxsize=64)
def _column_matrix(columns: int) -> Any:
    """The Fourier matrix of columns on real and imaginary parts side by side, [2 columns, 2 columns]."""
    index = np.arange(columns)
    angles = index * index[:, None] % columns * (2 * np.pi / columns)
    cosines, sines = np.cos(angles), np.sin(angles)
    return np.block([[cosines, -sines], [sines, cosines]]) / math.sqrt(columns)


def _table(values: Any, dtype: Any) -> Any:
    return cast(as_tensor(values.astype(np.float64 if dtype is f64 else np.float32)), dtype)


def _as_matrix(x: Any, columns: int) -> Any:
    """[..., L] as rows of `columns`, zeros at the end."""
    length = int(x.shape[-1])
    rows = -(-length // columns)
    padded = (
        x if rows * columns == length else ops.pad(x, [*[(0, 0)] * (len(x.shape) - 1), (0, rows * columns - length)])
    )
    return ops.reshape(padded, (*x.shape[:-1], rows, columns))


def _transform(x: Any, plan: ConvolutionPlan, dtype: Any) -> Any:
    """The spectrum of [..., L] as [..., rows / 2, 2 columns], real parts before imaginary ones."""
    matrix, half = _as_matrix(x, plan.columns), plan.rows // 2
    parts = _table(_row_matrix(plan.rows, int(matrix.shape[-2])), dtype) @ matrix
    c, s = _table(_twiddles(plan.rows, plan.columns), dtype.compute)
    real, imaginary = (cast(part, dtype.compute) for part in (parts[..., :half, :], parts[..., half:, :]))
    twisted = ops.concat([real * c + imaginary * s, imaginary * c - real * s], -1)
    return cast(twisted, dtype) @ _table(_column_matrix(plan.columns), dtype)


def _restore(spectrum: Any, plan: ConvolutionPlan, rows: int, dtype: Any) -> Any:
    """The first `rows` rows of the sequence that has a spectrum, [..., rows * columns]."""
    twisted = cast(spectrum @ _table(_column_matrix(plan.columns).T, dtype), dtype.compute)
    real, imaginary = twisted[..., : plan.columns], twisted[..., plan.columns :]
    c, s = _table(_twiddles(plan.rows, plan.columns), dtype.compute)
    parts = cast(ops.concat([real * c - imaginary * s, real * s + imaginary * c], -2), dtype)
    # Frequencies come in pairs of which one is kept, and counts twice.
    out = _table(2.0 * _row_matrix(plan.rows, rows).T, dtype) @ parts
    return ops.reshape(out, (*out.shape[:-2], rows * plan.columns))


def _convolve_spectra(x: Any, k: Any, plan: ConvolutionPlan, count: int) -> Any:
    """The first `count` elements of the full convolution."""
    dtype, wide, columns = dtype_of(x), dtype_of(x).compute, plan.columns
    # The filter is transformed in f32 or f64: it is the same for a whole batch.
    filters = _transform(cast(k, wide), plan, wide) * math.sqrt(plan.rows * columns)
    spectrum = cast(_transform(x, plan, dtype), wide)
    real, imaginary = spectrum[..., :columns], spectrum[..., columns:]
    a, b = filters[..., :columns], filters[..., columns:]
    product = cast(ops.concat([real * a - imaginary * b, real * b + imaginary * a], -1), dtype)
    return _restore(product, plan, -(-count // columns), dtype)[..., :count]


def _convolve_direct(x: Any, k: Any, count: int) -> Any:
    """The same as a convolution of channels, each with its own filter."""
    length, taps = int(x.shape[-1]), int(k.shape[-1])
    channels = math.prod(int(dim) for dim in k.shape[:-1])
    inner = len(k.shape) - 1
    batch = x.shape[: len(x.shape) - 1 - inner]
    rows = ops.reshape(x, (-1, channels, length))
    weights = ops.reshape(ops.flip(k, -1), (channels, 1, taps))
    out = ops.conv1d(rows, weights, padding=[(taps - 1, max(0, count - length))], groups=channels)
    return ops.reshape(out[..., :count], (*batch, *x.shape[len(x.shape) - 1 - inner : -1], count))


def fft_conv1d(x: Any, k: Any, mode: str = "same", *, algorithm: str = "auto") -> Any:
    """Convolution of the last axis of `x`, [..., L], with filters `k`, [..., taps], whose leading dims broadcast.

    `mode` is that of NumPy, `"full"`, `"same"` (as long as `x`, in the middle of the full one) or `"valid"`, or
    `"causal"` (the first L elements of the full one) or `"circular"` (with period L). `algorithm` is `"transform"`,
    `"direct"`, or `"auto"`: the one of less work by `plan_convolution`, which says what each costs when it is printed.
    Narrow floats are rounded between matmuls, whose sums are f32; those of f64 are f64.

    >>> ts.ops.fft_conv1d(ts.array([1.0, 2.0, 3.0]), ts.array([0.0, 1.0, 0.5]))
    Tensor([3] f32, [1, 2.5, 4])
    """
    if mode not in MODES or algorithm not in ("auto", "transform", "direct"):
        raise ArgumentError(
            f"`fft_conv1d` knows no mode {mode!r} by {algorithm!r}",
            notes=(f"modes are {', '.join(MODES)}; algorithms are auto, transform, direct",),
            fix='write `fft_conv1d(x, k, "causal")`',
        )
    x, k = promote_tensors("fft_conv1d", x, k, takes_f64=True)
    length, taps = _check_lengths(x, k, mode)
    plan = plan_convolution(length, taps)
    start, stop = _window(length, taps, mode)
    k = _broadcast_filters(x, k)
    is_direct = plan.algorithm == "direct" if algorithm == "auto" else algorithm == "direct"
    out = _convolve_direct(x, k, stop) if is_direct else _convolve_spectra(x, k, plan, stop)
    if mode != "circular":
        return out[..., start:]
    wrapped = ops.pad(out[..., length:], [*[(0, 0)] * (len(out.shape) - 1), (0, length - (stop - length))])
    return out[..., :length] + wrapped


def _window(length: int, taps: int, mode: str) -> tuple[int, int]:
    """The part of the full convolution that a mode asks for."""
    full = length + taps - 1
    if mode == "same":
        return (taps - 1) // 2, (taps - 1) // 2 + length
    if mode == "valid":
        return min(length, taps) - 1, max(length, taps)
    return 0, length if mode == "causal" else full


def _check_lengths(x: Any, k: Any, mode: str) -> tuple[int, int]:
    if not x.shape or not k.shape or not all(isinstance(dim, int) and dim > 0 for dim in (x.shape[-1], k.shape[-1])):
        raise ShapeError(
            f"`fft_conv1d` takes sequences of a known length above 0, got {list(x.shape)} and {list(k.shape)}",
            notes=("rule: the lengths decide the size of the transform, at compile time",),
            fix="call it with concrete lengths, or pad to one",
        )
    length, taps = int(x.shape[-1]), int(k.shape[-1])
    if mode == "circular" and taps > length:
        raise ShapeError(
            f'`fft_conv1d` with `mode="circular"` has period {length}, and the filter has {taps} taps',
            fix="add up the taps that are a period apart",
        )
    return length, taps


def _broadcast_filters(x: Any, k: Any) -> Any:
    """Filters with a dim for each dim of `x` that they differ along: leading dims of 1 are dropped."""
    lead = tuple(k.shape[:-1])
    if len(lead) > len(x.shape) - 1 or any(
        own not in (1, other) for own, other in zip(reversed(lead), reversed(tuple(x.shape[:-1])), strict=False)
    ):
        raise ShapeError(
            f"`fft_conv1d`: filters {list(k.shape)} do not broadcast to sequences {list(x.shape)}",
            notes=("rule: leading dims of `k` are those of `x`, or 1",),
            fix="give one filter for each channel, `k` as [channels, taps]",
        )
    while lead and lead[0] == 1:
        k, lead = ops.reshape(k, tuple(k.shape[1:])), lead[1:]
    own = tuple(x.shape[len(x.shape) - 1 - len(lead) : -1])
    return k if lead == own else ops.broadcast_to(k, (*own, k.shape[-1]))
