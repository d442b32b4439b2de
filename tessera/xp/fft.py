"""The extension `fft` of the array API standard: Fourier transforms of any length, along one axis or several.

Transforms along one axis are those of `tessera.ops`; along several they follow one another. Their lengths, or where
they are not given the sizes of axes, are numbers.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.frames import guard_public
from tessera.frontend.arguments import check_int, check_number, check_string
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import axis_of
from tessera.frontend.pytree import as_tuple
from tessera.stdlib import fourier
from tessera.types.dtype import f32, f64
from tessera.xp.data_types import check_device, check_kind, parse
from tessera.xp.operands import rank_of

_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The transform of a real or complex tensor along an axis.

    >>> ts.xp.fft.fft(ts.array([1.0, 0.0]))
    ComplexTensor([2] c64, [1+0j, 1+0j])
    """
    return fourier.fft(check_kind("fft", x, "floating"), n, axis, norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """What `fft` is the transform of."""
    return fourier.ifft(check_kind("ifft", x, "floating"), n, axis, norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The first half of the transform of a real tensor, and the element after it."""
    return fourier.rfft(check_kind("rfft", x, "real floating"), n, axis, norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The real tensor of `n` elements, by default `2 (size - 1)`, whose `rfft` it is."""
    return fourier.irfft(check_kind("irfft", x, "complex floating"), n, axis, norm)


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The transform, which is real, of what mirrors itself: its first half, and the element after it, are passed."""
    z = check_kind("hfft", x, "complex floating")
    return fourier.irfft(ops.conj(z), n, axis, _opposite("hfft", norm))


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """What `hfft` is the transform of."""
    made = fourier.rfft(check_kind("ihfft", x, "real floating"), n, axis, _opposite("ihfft", norm))
    return ops.conj(made)


def _opposite(name: str, norm: str) -> str:
    if check_string(name, "norm", norm) not in _OPPOSITE:
        raise ArgumentError(f"`{name}` has the norms {', '.join(_OPPOSITE)}, not {norm!r}", fix='write `norm="ortho"`')
    return _OPPOSITE[norm]


# Several axes.


def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The transform along several axes, by default all."""
    return _along("fftn", fourier.fft, check_kind("fftn", x, "floating"), s, axes, norm)


def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """What `fftn` is the transform of."""
    return _along("ifftn", fourier.ifft, check_kind("ifftn", x, "floating"), s, axes, norm)


def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The transform of a real tensor along several axes: of the last its first half, and the element after it."""
    check_kind("rfftn", x, "real floating")
    sizes, listed = _lengths("rfftn", x, s, axes)
    made = fourier.rfft(x, sizes[-1], listed[-1], norm)
    return _along("rfftn", fourier.fft, made, sizes[:-1], listed[:-1], norm)


def irfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The real tensor whose `rfftn` it is; of the last axis it has `2 (size - 1)` elements unless `s` says so."""
    check_kind("irfftn", x, "complex floating")
    sizes, listed = _lengths("irfftn", x, s, axes)
    made = _along("irfftn", fourier.ifft, x, sizes[:-1], listed[:-1], norm)
    return fourier.irfft(made, sizes[-1], listed[-1], norm)


def _lengths(name: str, x: Any, s: Any, axes: Any) -> tuple[list[int | None], list[int]]:
    """The length along each axis that is transformed, None for as many as there are, and those axes."""
    rank = rank_of(x)
    if axes is None:
        listed = list(range(rank)) if s is None else list(range(rank - len(as_tuple(s)), rank))
    else:
        listed = [axis_of(name, axis, rank) for axis in as_tuple(axes)]
    sizes: list[int | None] = [None] * len(listed) if s is None else list(as_tuple(s))
    if len(sizes) != len(listed) or not listed or min(listed) < 0:
        raise ArgumentError(
            f"`{name}` takes one length for each axis, got {len(sizes)} lengths, {len(listed)} axes and {rank} dims",
            fix="pass `s` and `axes` of one length",
        )
    return sizes, listed


def _along(name: str, transform: Any, x: Any, s: Any, axes: Any, norm: str) -> Any:
    if axes is not None and not as_tuple(axes):
        return x
    sizes, listed = _lengths(name, x, s, axes)
    for size, axis in zip(sizes, listed, strict=True):
        x = transform(x, size, axis, norm)
    return x


# Frequencies.


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a transform of `n` elements, `d` apart: from 0 up, then the negative ones.

    >>> ts.xp.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    check_device(device)
    n, d = _check_points("fftfreq", n, d)
    return _frequencies([*range((n + 1) // 2), *range(-(n // 2), 0)], n, d, dtype)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft` of `n` elements, `d` apart."""
    check_device(device)
    n, d = _check_points("rfftfreq", n, d)
    return _frequencies([*range(n // 2 + 1)], n, d, dtype)


def _check_points(name: str, n: Any, d: Any) -> tuple[int, float]:
    count, apart = check_int(name, "n", n), check_number(name, "d", d)
    if not 1 <= count <= 2**31 or not apart:
        raise ArgumentError(f"`{name}` takes `n` of at least 1 and `d` other than 0, got {count} and {apart}")
    return count, apart


def _frequencies(counts: list[int], n: int, d: float, dtype: Any) -> Any:
    from tessera.api.eager import array  # noqa: PLC0415 - as the namespace does

    wanted = parse(dtype, f32)
    return ops.astype(array([count / (n * d) for count in counts], f64), wanted)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """`x` with the element of frequency 0 in the middle of each axis."""
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """What `fftshift` moves to where it is."""
    return _shift("ifftshift", x, axes, -1)


def _shift(name: str, x: Any, axes: Any, sign: int) -> Any:
    check_kind(name, x, "floating")
    rank = rank_of(x)
    listed = list(range(rank)) if axes is None else sorted({axis_of(name, axis, rank) for axis in as_tuple(axes)})
    shifts = [int(x.shape[axis]) // 2 if sign > 0 else -(int(x.shape[axis]) // 2) for axis in listed]
    return ops.roll(x, tuple(shifts), tuple(listed)) if listed else x


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip

guard_public(globals(), tuple(__all__))
