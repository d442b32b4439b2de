"""Arithmetic of complex tensors: sums, products, quotients, sizes and comparisons.

A real operand is no complex number with an imaginary part of 0: nothing is multiplied by that, so that infinities and
signs of zeros stay as they are. Products are the four of the textbook, as NumPy's are. Quotients are Smith's, scaled so
that only quotients that overflow themselves do.
"""

from __future__ import annotations

from typing import Any

from tessera.frontend.complex.parts import Parts, as_complex, join, parts_of, truth
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import special
from tessera.frontend.functions.operands import as_truth


def add(x: Any, y: Any) -> ComplexTensor:
    """`x + y`."""
    a, b = parts_of("add", x, y)
    imag = a.imag if b.imag is None else b.imag if a.imag is None else a.imag + b.imag
    return join(a.real + b.real, imag)


def sub(x: Any, y: Any) -> ComplexTensor:
    """`x - y`."""
    a, b = parts_of("sub", x, y)
    imag = a.imag if b.imag is None else -b.imag if a.imag is None else a.imag - b.imag
    return join(a.real - b.real, imag)


def mul(x: Any, y: Any) -> ComplexTensor:
    """`x * y`."""
    return join(*multiply(*parts_of("mul", x, y)))


def multiply(a: Parts, b: Parts) -> Parts:
    """The product of two operands in parts."""
    if b.imag is None:
        return Parts(a.real * b.real, None if a.imag is None else a.imag * b.real)
    if a.imag is None:
        return Parts(a.real * b.real, a.real * b.imag)
    return Parts(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def div(x: Any, y: Any) -> ComplexTensor:
    """`x / y`."""
    return join(*divide(*parts_of("div", x, y)))


def divide(a: Parts, b: Parts) -> Parts:
    """The quotient of two operands in parts: Smith's, by the larger part of the divisor.

    By zero, it is each part divided by zero; by an infinity, zero.
    """
    if b.imag is None:
        return Parts(a.real / b.real, None if a.imag is None else a.imag / b.real)
    # Of an infinite divisor only the direction counts, and the quotient is made zero at the end.
    is_infinite = e.logical_or(e.isinf(b.real), e.isinf(b.imag))
    c, d = (e.where(is_infinite, e.copysign(e.where(e.isinf(part), 1.0, 0.0), part), part) for part in (b.real, b.imag))
    is_real = e.ge(e.abs(c), e.abs(d))
    large, small = e.where(is_real, c, d), e.where(is_real, d, c)
    ratio = e.where(e.eq(large, 0.0), 0.0, small / large)
    if a.imag is None:
        real, imag = e.where(is_real, a.real, a.real * ratio), -e.where(is_real, a.real * ratio, a.real)
    else:
        real = e.where(is_real, a.real + a.imag * ratio, a.real * ratio + a.imag)
        imag = e.where(is_real, a.imag - a.real * ratio, a.imag * ratio - a.real)
    whole = large + small * ratio
    return Parts(*(e.where(is_infinite, part * 0.0, part / whole) for part in (real, imag)))


def reciprocal(x: Any) -> ComplexTensor:
    """`1 / x`."""
    return div(1.0, x)


def neg(x: Any) -> ComplexTensor:
    """`-x`."""
    z = as_complex(x)
    return ComplexTensor(-z.real, -z.imag)


def square(x: Any) -> ComplexTensor:
    """`x * x`, whose real part does not cancel."""
    z = as_complex(x)
    return ComplexTensor((z.real - z.imag) * (z.real + z.imag), 2.0 * (z.real * z.imag))


def abs(x: Any) -> Any:
    """The size of each element, a real number, without overflow."""
    z = as_complex(x)
    return e.hypot(z.real, z.imag)


def angle(x: Any) -> Any:
    """The angle of each element, from -pi to pi."""
    z = as_complex(x)
    return e.atan2(z.imag, z.real)


def sign(x: Any) -> ComplexTensor:
    """Each element divided by its size; 0 of 0."""
    z = as_complex(x)
    largest = e.maximum(e.abs(z.real), e.abs(z.imag))
    is_zero = e.eq(largest, 0.0)
    largest = e.where(is_zero, 1.0, largest)  # 0 is divided by 1, and so has a derivative, of 0
    real, imag = z.real / largest, z.imag / largest
    size = e.where(is_zero, 1.0, e.hypot(real, imag))
    return ComplexTensor(e.where(is_zero, 0.0, real / size), e.where(is_zero, 0.0, imag / size))


# What is asked of elements; the answers are bools.


def eq(x: Any, y: Any) -> Any:
    """Whether elements are equal."""
    a, b = parts_of("eq", x, y)
    return e.logical_and(e.eq(a.real, b.real), e.eq(_imag(a), _imag(b)))


def ne(x: Any, y: Any) -> Any:
    """Whether elements differ."""
    return e.logical_not(eq(x, y))


def _imag(parts: Parts) -> Any:
    return 0.0 if parts.imag is None else parts.imag


def isfinite(x: Any) -> Any:
    """Whether both parts are finite."""
    z = as_complex(x)
    return e.logical_and(special.isfinite(z.real), special.isfinite(z.imag))


def isinf(x: Any) -> Any:
    """Whether a part is infinite."""
    z = as_complex(x)
    return e.logical_or(e.isinf(z.real), e.isinf(z.imag))


def isnan(x: Any) -> Any:
    """Whether a part is NaN."""
    z = as_complex(x)
    return e.logical_or(e.isnan(z.real), e.isnan(z.imag))


def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Whether the distance of elements is at most `atol + rtol * |y|`; infinities are close to themselves."""
    first, second = as_complex(x), as_complex(y)
    near = e.le(abs(sub(first, second)), atol + rtol * abs(second))
    near = e.logical_or(e.logical_and(near, isfinite(second)), eq(first, second))
    return e.logical_or(near, e.logical_and(isnan(first), isnan(second))) if equal_nan else near


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` holds, else `y`."""
    mask = as_truth(truth(condition))
    if not any(isinstance(one, ComplexTensor | complex) for one in (x, y)):
        return e.where(mask, x, y)
    a, b = parts_of("where", x, y)
    return join(e.where(mask, a.real, b.real), e.where(mask, _imag(a), _imag(b)))
