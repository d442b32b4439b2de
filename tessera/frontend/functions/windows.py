"""Windows of signals, by which frames are multiplied before their Fourier transforms.

Each is computed in f64 from the positions of its elements and rounded once. A periodic window, which a transform wants,
has one more element in its period than it shows; one that is not is the same from either end.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_bool, check_number
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.creation import iota
from tessera.frontend.functions.operands import as_tensor, cast
from tessera.frontend.functions.special_series import i0e
from tessera.frontend.pytree import is_sequence
from tessera.frontend.size import Size
from tessera.types.dtype import f32, f64, parse_dtype


def _positions(name: str, n: Any, periodic: bool) -> tuple[Any, Any, Any]:
    """The positions of elements, the length of the period, at least 1, and whether an element is all there is."""
    if not isinstance(n, Size) and (isinstance(n, bool) or not isinstance(n, int) or n < 0):
        raise ArgumentError(f"`{name}` takes `n` as a size, got {n!r}", fix="write `n=512`")
    count = cast(as_tensor(n), f64)
    period = count if check_bool(name, "periodic", periodic) else e.sub(count, 1.0)
    return cast(iota((n,)), f64), e.maximum(period, 1.0), e.eq(count, 1.0)


def general_cosine_window(n: Any, weights: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """A sum of cosines of multiples of an angle that goes once around, with these weights and alternating signs.

    >>> ts.ops.general_cosine_window(4, [0.5, 0.5])
    Tensor([4] f32, [0, 0.5, 1, 0.5])
    """
    return _cosines("general_cosine_window", n, weights, periodic, dtype)


def _cosines(name: str, n: Any, weights: Any, periodic: bool, dtype: Any) -> Any:
    if not is_sequence(weights) or not weights:
        raise ArgumentError(
            f"`{name}` takes `weights` as a list of at least one number, got {weights!r}",
            fix="write `weights=[0.5, 0.5]`",
        )
    at, period, is_alone = _positions(name, n, periodic)
    angle = e.mul(e.div(at, period), 2.0 * math.pi)
    total: Any = as_tensor(0.0, f64)
    for number, weight in enumerate(weights):
        signed = (-1.0) ** number * check_number(name, "weights", weight)
        total = e.add(total, e.mul(e.cos(e.mul(angle, float(number))), signed))
    return cast(e.where(is_alone, 1.0, total), parse_dtype(dtype))


def hann_window(n: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """The square of a sine: 0 at its start, and 1 in its middle.

    >>> ts.ops.hann_window(4)
    Tensor([4] f32, [0, 0.5, 1, 0.5])
    """
    return _cosines("hann_window", n, (0.5, 0.5), periodic, dtype)


def hamming_window(n: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """A cosine raised so that the nearest side lobe vanishes: 0.08 at its start, and 1 in its middle.

    >>> ts.ops.hamming_window(4)
    Tensor([4] f32, [0.08, 0.54, 1, 0.54])
    """
    return _cosines("hamming_window", n, (0.54, 0.46), periodic, dtype)


def blackman_window(n: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """Three cosines, with lower side lobes than two have: 0 at its start, and 1 in its middle.

    >>> ts.ops.blackman_window(3, periodic=False)[1]
    Tensor([] f32, 1)
    """
    return _cosines("blackman_window", n, (0.42, 0.5, 0.08), periodic, dtype)


def nuttall_window(n: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """Four cosines with the weights of Nuttall, whose side lobes are lower by 93 dB."""
    return _cosines("nuttall_window", n, (0.3635819, 0.4891775, 0.1365995, 0.0106411), periodic, dtype)


def bartlett_window(n: Any, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """A triangle: 0 at its start, and 1 in its middle.

    >>> ts.ops.bartlett_window(4)
    Tensor([4] f32, [0, 0.5, 1, 0.5])
    """
    at, period, is_alone = _positions("bartlett_window", n, periodic)
    made = e.sub(1.0, e.abs(e.sub(e.div(e.mul(at, 2.0), period), 1.0)))
    return cast(e.where(is_alone, 1.0, made), parse_dtype(dtype))


def gaussian_window(n: Any, std: float = 1.0, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """The normal density around the middle, with this standard deviation in elements, scaled to 1 there.

    >>> ts.ops.gaussian_window(3, 1.0, periodic=False)
    Tensor([3] f32, [0.606531, 1, 0.606531])
    """
    width = check_number("gaussian_window", "std", std)
    if not width > 0:
        raise ArgumentError(f"`gaussian_window` takes `std` above 0, got {std}", fix="write `std=1.0`")
    at, period, is_alone = _positions("gaussian_window", n, periodic)
    apart = e.div(e.sub(at, e.mul(period, 0.5)), width)
    made = e.exp(e.mul(e.mul(apart, apart), -0.5))
    return cast(e.where(is_alone, 1.0, made), parse_dtype(dtype))


def kaiser_window(n: Any, beta: float = 12.0, *, periodic: bool = True, dtype: Any = f32) -> Any:
    """`i0(beta sqrt(1 - t**2)) / i0(beta)` for `t` from -1 to 1: the larger `beta`, the lower and wider its lobes."""
    shape = check_number("kaiser_window", "beta", beta)
    at, period, is_alone = _positions("kaiser_window", n, periodic)
    t = e.sub(e.div(e.mul(at, 2.0), period), 1.0)
    inside = e.maximum(e.sub(1.0, e.mul(t, t)), 0.0)
    # Both Bessel functions are scaled, as those of a large `beta` are out of range.
    at_edge = e.mul(e.sqrt(inside), abs(shape))
    made = e.mul(e.div(i0e(at_edge), i0e(as_tensor(shape, f64))), e.exp(e.sub(at_edge, abs(shape))))
    return cast(e.where(is_alone, 1.0, made), parse_dtype(dtype))


__all__ = [
    "bartlett_window", "blackman_window", "gaussian_window", "general_cosine_window", "hamming_window", "hann_window",
    "kaiser_window", "nuttall_window",
]  # fmt: skip
