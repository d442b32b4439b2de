"""Exponentials, logarithms, roots and powers of complex tensors.

Each is written with functions of its real parts such that nothing cancels and only results that are too large overflow;
infinities, NaNs and the signs of zeros are those of C99, Annex G. Elements are within a few units in the last place of
their size; a part that is much smaller than the other may have lost more.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.frontend.complex.arithmetic import div, mul, multiply
from tessera.frontend.complex.parts import Parts, as_complex, join, parts_of
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import special
from tessera.frontend.functions.creation import full_like, ones_like, zeros_like
from tessera.frontend.functions.operands import dtype_of
from tessera.types.dtype import f64

LN2 = math.log(2.0)
_MOST_FACTORS = 64
"""Integer powers up to which elements are multiplied, which loses less than a logarithm does."""


def overflow_of(x: Any) -> tuple[float, float]:
    """From where on `exp` may overflow in the dtype of `x`, and by how much to shift it: `x - shift` is exact there."""
    return (700.0, 512.0) if dtype_of(x) is f64 else (80.0, 64.0)


def is_unbounded(x: Any) -> Any:
    """Where elements are infinite or NaN."""
    return e.logical_not(special.isfinite(x))


def scaled_exp(x: Any) -> tuple[Any, Any]:
    """`exp(x)` as two factors, in the dtype of `x`: their product alone may overflow."""
    limit, shift = overflow_of(x)
    is_large = e.gt(x, limit)
    return e.exp(e.where(is_large, x - shift, x)), e.where(is_large, full_like(x, math.exp(shift)), 1.0)


def direction_of(x: Any, y: Any) -> tuple[Any, Any]:
    """The cosine and the sine of `y`, to be multiplied to `exp(x)`: an infinite `x` decides where `y` has none."""
    is_lost, is_low = is_unbounded(y), e.eq(x, -math.inf)
    cosine = e.where(e.logical_and(is_lost, e.isinf(x)), 1.0, e.cos(y))
    return cosine, e.where(e.logical_and(is_lost, is_low), 1.0, e.sin(y))


def keep_zero(zero: Any, other: Any, made: Any) -> Any:
    """What was made of two parts, and 0 where one is 0 and the other, or what grows with it, infinite or NaN.

    Where both are finite the formula stands, whose value is 0 too: its derivative is not that of a constant.
    """
    return e.where(e.logical_and(e.eq(zero, 0.0), is_unbounded(other)), zero, made)


def exp(x: Any) -> ComplexTensor:
    """`e` to the power of each element."""
    z = as_complex(x)
    cosine, sine = direction_of(z.real, z.imag)
    factor, more = scaled_exp(z.real)
    return ComplexTensor((factor * cosine) * more, keep_zero(z.imag, factor * more, (factor * sine) * more))


def expm1(x: Any) -> ComplexTensor:
    """`exp(x) - 1`, without cancellation near 0."""
    z = as_complex(x)
    far = exp(z)
    half = e.sin(z.imag * 0.5)
    grown = e.expm1(z.real)
    # exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2
    near = (0.0 - 2.0 * (half * half)) + grown * e.cos(z.imag)
    is_near = e.logical_and(e.lt(e.abs(z.real), 1.0), special.isfinite(z.imag))
    return ComplexTensor(e.where(is_near, near, far.real - 1.0), far.imag)


def log_size(x: Any, y: Any) -> Any:
    """The logarithm of the size of `x + iy`, without overflow; infinite where a part is."""
    first, second = e.abs(x), e.abs(y)
    is_wide = e.logical_not(e.lt(first, second))  # of equal ones each is taken once, as derivatives ask
    large, small = e.where(is_wide, first, second), e.where(is_wide, second, first)
    ratio = e.where(e.eq(large, 0.0), small, small / large)
    is_infinite = e.logical_or(e.isinf(x), e.isinf(y))
    return e.where(is_infinite, math.inf, e.log(large) + 0.5 * e.log1p(ratio * ratio))


def log(x: Any) -> ComplexTensor:
    """The natural logarithm; cut along the negative reals, on which the sign of a zero says from which side."""
    z = as_complex(x)
    return ComplexTensor(log_size(z.real, z.imag), e.atan2(z.imag, z.real))


def log1p(x: Any) -> ComplexTensor:
    """`log(1 + x)`, without cancellation near 0."""
    z = as_complex(x)
    near = 0.5 * e.log1p(z.real * (2.0 + z.real) + z.imag * z.imag)
    is_near = e.lt(e.maximum(e.abs(z.real), e.abs(z.imag)), 0.5)
    whole = 1.0 + z.real
    return ComplexTensor(e.where(is_near, near, log_size(whole, z.imag)), e.atan2(z.imag, whole))


def log2(x: Any) -> ComplexTensor:
    """The logarithm to base 2."""
    return _scale(log(x), 1.0 / LN2)


def log10(x: Any) -> ComplexTensor:
    """The logarithm to base 10."""
    return _scale(log(x), 1.0 / math.log(10.0))


def _scale(z: ComplexTensor, by: float) -> ComplexTensor:
    return ComplexTensor(z.real * by, z.imag * by)


def sqrt(x: Any) -> ComplexTensor:
    """The square root whose real part is not negative; cut along the negative reals."""
    z = as_complex(x)
    return join(*root(z.real, z.imag))


def root(x: Any, y: Any) -> Parts:
    """The square root of `x + iy`; large and small elements are multiplied by a power of 4 for the time being."""
    largest = e.maximum(e.abs(x), e.abs(y))
    high, low, up, down = (
        (2.0**1000, 2.0**-960, 2.0**108, 2.0**-54) if dtype_of(x) is f64 else (2.0**120, 2.0**-100, 2.0**48, 2.0**-24)
    )
    is_large, is_small = e.gt(largest, high), e.lt(largest, low)
    before = e.where(is_large, 0.0625, e.where(is_small, up, 1.0))
    after = e.where(is_large, 4.0, e.where(is_small, down, 1.0))
    a, b = x * before, y * before
    sign = e.copysign(1.0, y)  # to multiply by it has a derivative on both sides of 0
    longer = e.sqrt((e.abs(a) + e.hypot(a, b)) * 0.5)
    shorter = e.where(e.eq(longer, 0.0), b, b / (2.0 * longer))
    is_right = e.logical_or(e.ge(x, 0.0), e.isnan(x))
    real = e.where(is_right, longer, shorter * sign) * after
    imag = e.where(is_right, shorter, longer * sign) * after
    is_infinite = e.isinf(y)
    return Parts(e.where(is_infinite, math.inf, real), e.where(is_infinite, y, imag))


# Powers.


def pow(x: Any, y: Any) -> ComplexTensor:
    """`x` to the power `y`: `exp(y log(x))`, of a small integer a product; 0 where `x` is 0 and `y` positive."""
    if isinstance(y, int) and abs(y) <= _MOST_FACTORS:
        made = _multiply_repeatedly(x, abs(y))
        return made if y >= 0 else div(1.0, made)
    if isinstance(y, float) and y == 0.5:
        return sqrt(x)
    base, exponent = (join(*parts) for parts in parts_of("pow", x, y))
    made = exp(mul(y if isinstance(y, float) else exponent, log(base)))
    is_zero = e.logical_and(e.eq(base.real, 0.0), e.eq(base.imag, 0.0))
    is_none = e.logical_and(e.eq(exponent.real, 0.0), e.eq(exponent.imag, 0.0))
    gone = e.logical_and(is_zero, e.gt(exponent.real, 0.0))
    real = e.where(is_none, 1.0, e.where(gone, 0.0, made.real))
    imag = e.where(e.logical_or(is_none, gone), 0.0, made.imag)
    return ComplexTensor(real, imag)


def _multiply_repeatedly(x: Any, count: int) -> ComplexTensor:
    z = as_complex(x)
    square, made = Parts(z.real, z.imag), None
    while count:
        if count % 2:
            made = square if made is None else multiply(made, square)
        count //= 2
        square = multiply(square, square) if count else square
    return ComplexTensor(ones_like(z.real), zeros_like(z.imag)) if made is None else join(*made)
