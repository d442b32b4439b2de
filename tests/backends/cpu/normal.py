"""The normal distribution in many digits, for functions NumPy has no extended form of."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def _density(z: Decimal) -> Decimal:
    return (-z * z / 2).exp() / (2 * _PI).sqrt()


def share_to(z: Decimal) -> Decimal:
    """The share of the distribution between 0 and z: a series of terms of one sign."""
    term = total = z
    n = 1
    while abs(term) > abs(total).scaleb(-78):
        n += 2
        term = term * z * z / n
        total += term
    return _density(z) * total


def share_below(x: Decimal) -> Decimal:
    """The share of the distribution below x, far out by a continued fraction."""
    z = abs(x)
    if z > 200:
        return Decimal(int(x > 0))
    if z < 8:
        return Decimal("0.5") + share_to(x)
    fraction = Decimal(0)
    for n in range(300, 0, -1):
        fraction = n / (z + fraction)
    above = _density(z) / (z + fraction)
    return 1 - above if x > 0 else above


def gelu(x: Array) -> Array:
    """`x` times the share below it; -0 at minus infinity."""
    return _each(x, lambda v: v * share_below(v), {math.inf: math.inf, -math.inf: -0.0})


def erf(x: Array) -> Array:
    """The error function."""
    far = {math.inf: 1.0, -math.inf: -1.0}
    return _each(x, lambda v: 2 * share_to(v * Decimal(2).sqrt()) if abs(v) < 20 else Decimal(1 if v > 0 else -1), far)


def erfc(x: Array) -> Array:
    """1 less the error function."""
    far = {math.inf: 0.0, -math.inf: 2.0, 0.0: 1.0}
    return _each(x, lambda v: 2 * share_below(-v * Decimal(2).sqrt()), far)


def _each(x: Array, function: Callable[[Decimal], Decimal], limits: dict[float, float]) -> Array:
    def one(v: float) -> np.longdouble:
        if math.isfinite(v) and v:
            value = function(Decimal(v))
            return np.longdouble(str(value) if value.adjusted() > -4900 else 0.0)
        return np.longdouble(limits.get(v, v))

    with localcontext() as context:
        context.prec = 80
        context.Emin = -9999
        return np.array([one(float(v)) for v in x], np.longdouble)
