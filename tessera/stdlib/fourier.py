"""Discrete Fourier transforms of any length, as matmuls: `fft`, `ifft`, `rfft` and `irfft` with NumPy's meaning.

They take and give complex tensors; who passes the parts apart, as a tuple, gets a tuple. A transform of up to `_DIRECT`
elements is one matmul with the Fourier matrix. One of `n1 n2` elements is those of n1, a product with twiddle factors,
and those of n2 (Cooley and Tukey's, with the largest n1 that is one matmul). A length that has no such divisor, as a
long prime, is a convolution with a chirp (Bluestein's), which transforms of a power of two compute.

Angles are reduced as integers and tables made in f64, so each is exact to the last digit of its dtype at any length.
Narrow floats compute in f32; a pair of them is rounded once at the end. Relative to the norm of the result, a transform
is within `error_bound(n)` units in the last place: that grows with the number of its matmuls, not with its length.

All of it is linear ops of the graph: derivatives and batches follow, and are transforms too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_int, check_string
from tessera.frontend.complex.tensor import ComplexTensor, adopt_complex, is_complex_tensor
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.stdlib.operand_dims import promote_tensors
from tessera.types.dtype import DType, f64

Pair: TypeAlias = tuple[Any, Any]
"""The real and the imaginary part of a complex tensor."""

NORMS = ("backward", "ortho", "forward")
_DIRECT = 64
"""Elements of a transform up to which it is one matmul, whose K dimension is twice as many."""


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The discrete Fourier transform along an axis: `sum_j x[j] exp(-2 pi i j k / n)`, a complex tensor.

    `x` is real or complex; of a tuple (real, imaginary) the transform is one too. `n`, `axis` and `norm` are NumPy's:
    `x` is cut or padded with zeros to `n` elements, and the transform is scaled by 1 (`"backward"`), by one over the
    root of n (`"ortho"`) or by one over n (`"forward"`). `n`, or where it is not passed the length, is known when it is
    compiled.

    >>> ts.ops.fft(ts.array([1.0, 0.0, 0.0, 0.0]))
    ComplexTensor([4] c64, [1+0j, 1+0j, 1+0j, 1+0j])
    """
    return _as_given(x, _transform("fft", x, n, axis, norm, -1))


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """What `fft` is the transform of; arguments are those of `fft`, scales the inverse ones.

    >>> ts.ops.ifft(ts.ops.fft(ts.array([1.0, 2.0]))).real.tolist()
    [1.0, 2.0]
    """
    return _as_given(x, _transform("ifft", x, n, axis, norm, 1))


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexTensor:
    """The first `n / 2 + 1` elements of the transform of a real tensor: the others mirror them.

    >>> ts.ops.rfft(ts.ones((3, 8))).shape
    (3, 5)
    """
    if isinstance(x, tuple) or is_complex_tensor(x):
        got = "a pair" if isinstance(x, tuple) else "a complex one"
        raise ArgumentError(f"`rfft` takes a real tensor, got {got}", fix="write `fft(x)`, or pass the real part")
    real, imaginary = _transform("rfft", x, n, axis, norm, -1)
    half = int(real.shape[axis]) // 2 + 1
    return ComplexTensor(_resize(real, half, axis), _resize(imaginary, half, axis))


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The real tensor of `n` elements whose `rfft` is `x`; `n` is even, `2 (size - 1)`, unless it is given.

    `x` is a complex tensor, or the tuple (real, imaginary).

    The imaginary parts of its first element and, for an even `n`, of its last are not read, as NumPy has it.

    >>> ts.ops.irfft(ts.ops.rfft(ts.array([1.0, 2.0, 3.0])), 3).shape
    (3,)
    """
    real, imaginary = _parts("irfft", x)
    _check_axis("irfft", real, axis)
    count = _check_count("irfft", 2 * (_size("irfft", real, axis) - 1) if n is None else n)
    half = count // 2 + 1
    real, imaginary = _resize(real, half, axis), _resize(imaginary, half, axis)
    imaginary = ops.where(_is_read(count, axis, len(real.shape)), imaginary, 0.0)
    # The other half mirrors what is between the first and, of an even number, the last element.
    mirrored = [ops.flip(_slice(part, 1, count - half + 1, axis), axis) for part in (real, imaginary)]
    whole = ops.concat([real, mirrored[0]], axis), ops.concat([imaginary, -mirrored[1]], axis)
    return _transform("irfft", whole, None, axis, norm, 1)[0]


def _is_read(count: int, axis: int, rank: int) -> Any:
    """Which imaginary parts an inverse of `count` real elements reads: not of those that mirror themselves."""
    at = np.arange(count // 2 + 1)
    sizes = [1] * rank
    sizes[axis] = len(at)
    return as_tensor(((at > 0) & (2 * at != count)).reshape(sizes))


def error_bound(n: int) -> float:
    """The norm of a transform's error in units of rounding (`2**-24` of f32) of its own norm, at most.

    A matmul of K = 2 n1 has an error of `gamma(2 n1 + 1) |F| |x|`, and the norm of `|F| |x|` is at most the root of
    2 n1 times that of `F x`. Twiddle factors and tables add four. Of Bluestein's there are two transforms, and the
    chirp makes its vectors no longer than twice the root of their length.
    """
    if n <= _DIRECT:
        return (2 * n + 5) * math.sqrt(2 * n)
    first = _divisor(n)
    if first > 1:
        return error_bound(first) + 4 + error_bound(n // first)
    length = _chirp_length(n)
    return 2 * math.sqrt(length / n) * (2 * error_bound(length) + 12)


# Arguments.


def _as_given(x: Any, made: Pair) -> Any:
    """A transform as its operand is: parts apart where those were passed, else one complex tensor."""
    return made if isinstance(x, tuple) else ComplexTensor(*made)


def _parts(op: str, x: Any) -> Pair:
    """A pair of tensors of one floating dtype and one shape, of a complex tensor or such a pair."""
    x = adopt_complex(x)
    if isinstance(x, ComplexTensor):
        return x.real, x.imag
    if not isinstance(x, tuple) or len(x) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise ArgumentError(
            f"`{op}` takes a complex tensor, or the tuple (real, imaginary), got `{type(x).__name__}`",  # pyright: ignore[reportUnknownArgumentType]
            fix=f"write `{op}((real, imaginary))`",
        )
    real, imaginary = promote_tensors(op, *x, takes_f64=True)
    if tuple(real.shape) != tuple(imaginary.shape):
        raise ShapeError(
            f"`{op}` takes parts of one shape, got {list(real.shape)} and {list(imaginary.shape)}",
            notes=("rule: a complex tensor is the pair of its real and its imaginary part",),
            fix="broadcast one to the shape of the other",
        )
    return real, imaginary


def _check_axis(op: str, x: Any, axis: int) -> None:
    rank = len(x.shape)
    if not -rank <= check_int(op, "axis", axis) < rank:
        raise ShapeError(f"`{op}` has `axis={axis}`, and `x` has {rank} axes: {list(x.shape)}", fix="write `axis=-1`")


def _size(op: str, x: Any, axis: int) -> int:
    """Elements along the axis of a transform; raises where nobody knows them."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise ShapeError(
            f"`{op}` takes a known length, got `x.shape[{axis}] = {size}`",
            notes=("rule: the length decides the matmuls of the transform, at compile time",),
            fix="write the length in the annotation of `x`, or pass `n`",
        )
    return size


def _check_count(op: str, n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ArgumentError(f"`{op}` takes `n` of at least 1, got {n!r}", fix="pass the number of elements")
    return n


def _slice(x: Any, start: int, stop: int, axis: int) -> Any:
    index: list[Any] = [slice(None)] * len(x.shape)
    index[axis] = slice(start, stop)
    return x[tuple(index)]


def _resize(x: Any, count: int, axis: int) -> Any:
    """`x` with so many elements along an axis: cut, or zeros at the end."""
    size = x.shape[axis]
    if isinstance(size, int) and size >= count:
        return x if size == count else _slice(x, 0, count, axis)
    widths = [(0, 0)] * len(x.shape)
    if isinstance(size, int):
        widths[axis] = (0, count - size)
        return ops.pad(x, widths)
    # Of a length that is not known at least `count` are there once so many zeros follow.
    widths[axis] = (0, count)
    return _slice(ops.pad(x, widths), 0, count, axis)


def _transform(op: str, x: Any, n: int | None, axis: int, norm: str, sign: int) -> Pair:
    if check_string(op, "norm", norm) not in NORMS:
        raise ArgumentError(f"`{op}` has the norms {', '.join(NORMS)}, not {norm!r}", fix='write `norm="ortho"`')
    is_pair = isinstance(x, tuple)
    if is_pair or is_complex_tensor(x):
        given: tuple[Any, Any] = _parts(op, x)
    else:
        given = promote_tensors(op, as_tensor(x), takes_f64=True)[0], None
    _check_axis(op, given[0], axis)
    count = _check_count(op, _size(op, given[0], axis) if n is None else n)
    compute = dtype_of(given[0]).compute
    dtype = dtype_of(given[0]) if is_pair else compute
    moved = [part if part is None else _prepare(part, count, axis, compute) for part in given]
    power = NORMS.index(norm) / 2 if sign < 0 else 1 - NORMS.index(norm) / 2
    scale = float(count) ** -power
    made: list[Any] = []
    for part in _fourier((moved[0], moved[1]), count, sign, compute):
        made.append(ops.moveaxis(cast(part if scale == 1.0 else part * scale, dtype), -1, axis))
    return made[0], made[1]


def _prepare(x: Any, count: int, axis: int, compute: DType) -> Any:
    """The transformed axis last, with so many elements, in the dtype of computation."""
    return cast(ops.moveaxis(_resize(x, count, axis), axis, -1), compute)


# Transforms of the last axis.


def _fourier(x: tuple[Any, Any], n: int, sign: int, dtype: DType) -> Pair:
    """The transform of a pair whose imaginary part may be None, for zeros."""
    if n <= _DIRECT:
        return _multiply_matrix(x, n, sign, dtype)
    first = _divisor(n)
    if first == 1:
        return _chirp(x, n, sign, dtype)
    second = n // first
    # Element j1 * n2 + j2 of the sequence, and k1 + n1 * k2 of its transform.
    rows = tuple(part if part is None else _swap(_split(part, first, second)) for part in x)
    partial = _multiply(_fourier((rows[0], rows[1]), first, sign, dtype), _twiddles(first, second, sign), dtype)
    columns = _fourier((_swap(partial[0]), _swap(partial[1])), second, sign, dtype)
    return _join(columns[0], n), _join(columns[1], n)


def _swap(x: Any) -> Any:
    return ops.swapaxes(x, -1, -2)


def _split(x: Any, rows: int, columns: int) -> Any:
    return ops.reshape(x, (*x.shape[:-1], rows, columns))


def _join(x: Any, n: int) -> Any:
    """[..., k1, k2] as [..., n], the first of them next to each other."""
    return ops.reshape(_swap(x), (*x.shape[:-2], n))


def _divisor(n: int) -> int:
    """The largest divisor whose transform is one matmul; 1 where there is none."""
    return next(part for part in range(_DIRECT, 0, -1) if n % part == 0)


def _table(values: Any, dtype: DType) -> Any:
    return as_tensor(np.ascontiguousarray(values, np.float64 if dtype is f64 else np.float32))


def _multiply_matrix(x: tuple[Any, Any], n: int, sign: int, dtype: DType) -> Pair:
    """A matmul with the Fourier matrix: both parts side by side."""
    real, imaginary = x
    matrix = _matrix(n, sign)
    if imaginary is None:
        made = real @ _table(matrix[:n], dtype)
    else:
        made = ops.concat([real, imaginary], -1) @ _table(matrix, dtype)
    return made[..., :n], made[..., n:]


def _multiply(x: Pair, factor: Any, dtype: DType) -> Pair:
    """Complex products, element by element, with a constant."""
    c, s = _table(factor.real, dtype), _table(factor.imag, dtype)
    return x[0] * c - x[1] * s, x[0] * s + x[1] * c


def _chirp(x: tuple[Any, Any], n: int, sign: int, dtype: DType) -> Pair:
    """Bluestein's: `j k = (j^2 + k^2 - (k - j)^2) / 2`, so a transform is a convolution between two products."""
    length, real, imaginary = _chirp_length(n), x[0], x[1]
    chirp, spectrum = _chirps(n, sign)
    if imaginary is None:
        started = real * _table(chirp.real, dtype), real * _table(chirp.imag, dtype)
    else:
        started = _multiply((real, imaginary), chirp, dtype)
    padded = _resize(started[0], length, -1), _resize(started[1], length, -1)
    convolved = _fourier(_multiply(_fourier(padded, length, -1, dtype), spectrum, dtype), length, 1, dtype)
    return _multiply((convolved[0][..., :n], convolved[1][..., :n]), chirp, dtype)


def _chirp_length(n: int) -> int:
    return 1 << (2 * n - 2).bit_length()


# Tables in f64. Exponents are integers, reduced by the period before an angle is made of them.


def _roots(steps: Any, period: int, sign: int) -> Any:
    """`exp(sign 2 pi i steps / period)`."""
    return np.exp(sign * 2j * np.pi * (steps % period) / period)


@lru_cache(maxsize=64)
def _matrix(n: int, sign: int) -> Any:
    """The Fourier matrix on real and imaginary parts side by side, [2 n, 2 n]."""
    index = np.arange(n)
    roots = _roots(index * index[:, None], n, sign)
    return np.block([[roots.real, roots.imag], [-roots.imag, roots.real]])


@lru_cache(maxsize=64)
def _twiddles(first: int, second: int, sign: int) -> Any:
    return _roots(np.arange(first) * np.arange(second)[:, None], first * second, sign)


@lru_cache(maxsize=32)
def _chirps(n: int, sign: int) -> tuple[Any, Any]:
    """The chirp of n elements, and the spectrum of its conjugate, over the length that it is convolved in."""
    length, index = _chirp_length(n), np.arange(n)
    chirp = _roots(index * index, 2 * n, sign)
    filter = np.zeros(length, np.complex128)
    filter[:n] = np.conj(chirp)
    filter[length - n + 1 :] = np.conj(chirp[:0:-1])
    return chirp, np.fft.fft(filter) / length
