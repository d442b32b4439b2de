"""Circular and hyperbolic functions of complex tensors, and their inverses.

Six are computed, and the others are made of them by `sin(z) = -i sinh(iz)` and its like. The inverses are Kahan's
("Branch cuts for complex elementary functions"). Cuts and special values are those of C99, Annex G, but that `tanh` of
an infinity has a zero of the sign of its imaginary part, as the array API standard asks.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.frontend.complex.exponentials import LN2, is_unbounded, keep_zero, log_size, overflow_of, root
from tessera.frontend.complex.parts import as_complex
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.creation import full_like
from tessera.frontend.functions.operands import dtype_of
from tessera.types.dtype import f64


def _multiply_by_i(z: ComplexTensor) -> ComplexTensor:
    """`iz`."""
    return ComplexTensor(-z.imag, z.real)


def _divide_by_i(z: ComplexTensor) -> ComplexTensor:
    """`-iz`."""
    return ComplexTensor(z.imag, -z.real)


def _both_hyperbolic(x: Any) -> tuple[Any, Any, Any]:
    """The hyperbolic cosine and sine of a real tensor, and what is to be multiplied to them in the end."""
    limit, shift = overflow_of(x)
    size = e.abs(x)
    is_large = e.gt(size, limit)
    near = e.where(is_large, e.copysign(size - shift, x), x)
    return e.cosh(near), e.sinh(near), e.where(is_large, full_like(x, math.exp(shift)), 1.0)


def _circular(x: Any, y: Any) -> tuple[Any, Any]:
    """The cosine and the sine of `y`; the cosine is 1 where there is none beside an infinite `x`."""
    is_lost = e.logical_and(is_unbounded(y), e.isinf(x))
    return e.where(is_lost, 1.0, e.cos(y)), e.sin(y)


def sinh(x: Any) -> ComplexTensor:
    """Hyperbolic sine."""
    z = as_complex(x)
    wide, odd, scale = _both_hyperbolic(z.real)
    cosine, sine = _circular(z.real, z.imag)
    real = keep_zero(z.real, z.imag, (odd * cosine) * scale)
    return ComplexTensor(real, keep_zero(z.imag, wide * scale, (wide * sine) * scale))


def cosh(x: Any) -> ComplexTensor:
    """Hyperbolic cosine."""
    z = as_complex(x)
    wide, odd, scale = _both_hyperbolic(z.real)
    cosine, sine = _circular(z.real, z.imag)
    # Where a part is 0 the imaginary part is 0 too, whatever the other one is.
    first, second = z.real * e.copysign(1.0, z.imag), z.imag * e.copysign(1.0, z.real)
    imag = keep_zero(second, wide * scale, (odd * sine) * scale)
    return ComplexTensor((wide * cosine) * scale, keep_zero(first, z.imag, imag))


def tanh(x: Any) -> ComplexTensor:
    """Hyperbolic tangent."""
    z = as_complex(x)
    size = e.abs(z.real)
    # Beyond it, the tangent is 1 to the last digit, and its imaginary part small.
    is_far = e.gt(size, 20.0 if dtype_of(size) is f64 else 10.0)
    near = e.where(is_far, 1.0, z.real)
    wide, odd, cosine, sine = e.cosh(near), e.sinh(near), e.cos(z.imag), e.sin(z.imag)
    whole = odd * odd + cosine * cosine
    is_lost, is_infinite = is_unbounded(z.imag), e.isinf(z.real)
    one = e.copysign(e.where(e.logical_and(is_lost, e.logical_not(is_infinite)), math.nan, 1.0), z.real)
    real = e.where(is_far, one, (odd * wide) / whole)
    tail = (4.0 * sine * cosine) * e.exp(-2.0 * size)
    imag = e.where(is_far, tail, (sine * cosine) / whole)
    imag = e.where(is_infinite, e.copysign(0.0, z.imag), imag)
    return ComplexTensor(keep_zero(z.real, z.imag, real), keep_zero(z.imag, z.real, imag))


def sin(x: Any) -> ComplexTensor:
    """Sine."""
    return _divide_by_i(sinh(_multiply_by_i(as_complex(x))))


def cos(x: Any) -> ComplexTensor:
    """Cosine."""
    return cosh(_multiply_by_i(as_complex(x)))


def tan(x: Any) -> ComplexTensor:
    """Tangent."""
    return _divide_by_i(tanh(_multiply_by_i(as_complex(x))))


# Inverses.


def _is_huge(x: Any, y: Any) -> Any:
    """Where a part is so large that 1 is nothing beside it: a root of the largest numbers, or infinite."""
    limit = 2.0**500 if dtype_of(x) is f64 else 2.0**60
    return e.logical_or(e.gt(e.abs(x), limit), e.gt(e.abs(y), limit))


def _inverse_growth(x: Any, y: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The parts of the roots of `1 - z` and `1 + z`, and `asinh(Im(conj(root(1 - z)) root(1 + z)))`."""
    below, above = root(1.0 - x, -y), root(1.0 + x, y)
    near = e.asinh(below.real * above.imag - below.imag * above.real)
    far = (log_size(x, y) + LN2) * e.copysign(1.0, y)
    return (*below, *above, e.where(_is_huge(x, y), far, near))


def asin(x: Any) -> ComplexTensor:
    """Inverse of `sin`; cut along the reals beyond -1 and 1."""
    z = as_complex(x)
    a, b, c, d, grown = _inverse_growth(z.real, z.imag)
    near = e.atan2(z.real, a * c - b * d)
    angle = e.where(_is_huge(z.real, z.imag), e.atan2(z.real, e.abs(z.imag)), near)
    return ComplexTensor(keep_zero(z.real, z.imag, angle), grown)


def acos(x: Any) -> ComplexTensor:
    """Inverse of `cos`; cut along the reals beyond -1 and 1."""
    z = as_complex(x)
    a, _, c, _, grown = _inverse_growth(z.real, z.imag)
    angle = e.where(_is_huge(z.real, z.imag), e.atan2(e.abs(z.imag), z.real), 2.0 * e.atan2(a, c))
    is_middle = e.logical_and(e.eq(z.real, 0.0), e.isnan(z.imag))
    return ComplexTensor(e.where(is_middle, math.pi / 2, angle), -grown)


def acosh(x: Any) -> ComplexTensor:
    """Inverse of `cosh`, whose real part is not negative; cut along the reals below 1."""
    z = as_complex(x)
    other, sign = acos(z), e.copysign(1.0, z.imag)
    return ComplexTensor(-other.imag * sign, other.real * sign)


def asinh(x: Any) -> ComplexTensor:
    """Inverse of `sinh`; cut along the imaginary numbers beyond -i and i."""
    return _multiply_by_i(asin(_divide_by_i(as_complex(x))))


def atanh(x: Any) -> ComplexTensor:
    """Inverse of `tanh`; cut along the reals beyond -1 and 1."""
    z = as_complex(x)
    sign, height = e.copysign(1.0, z.real), z.imag
    size = z.real * sign
    rest = 1.0 - size
    distance = e.hypot(rest, height)
    near = 0.5 * (e.log(e.hypot(1.0 + size, height)) - e.log(distance))
    far = 0.25 * e.log1p(4.0 * (size / distance) / distance)
    real = e.where(e.lt(distance, 0.5), near, far)
    is_infinite = e.logical_or(e.isinf(z.real), e.isinf(height))
    real = e.where(is_infinite, 0.0, real) * sign
    imag = 0.5 * e.atan2(height, (rest * (1.0 + size) - height * height) * 0.5)
    is_right = e.logical_or(e.isinf(height), e.logical_and(e.isinf(z.real), e.logical_not(e.isnan(height))))
    imag = e.where(is_right, e.copysign(math.pi / 2, height), imag)
    return ComplexTensor(keep_zero(z.real, height, real), imag)


def atan(x: Any) -> ComplexTensor:
    """Inverse of `tan`; cut along the imaginary numbers beyond -i and i."""
    return _divide_by_i(atanh(_multiply_by_i(as_complex(x))))
