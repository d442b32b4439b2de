"""A fused multiply-add of f32 written in f64: rounded once, where the sum in f64 is a tie of f32 too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tessera.ir.base.arrays import added_once

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest(value: Fraction) -> float:
    """The f32 that is nearest to a number, ties to even."""
    near = np.float32(float(value))
    candidates = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    finite = [one for one in candidates if np.isfinite(one)]
    return float(min(finite, key=lambda one: (abs(Fraction(float(one)) - value), int(one.view(np.uint32)) & 1)))


@given(NUMBERS, NUMBERS, NUMBERS)
@example(448.0, -0.03554292768239975, -3.553692905527736e-42)
@example(16777215.0, 1.5, 2.0**-149)
@example(16777215.0, 1.5, -(2.0**-149))
@example(2.0**-100, 2.0**-50, 2.0**-149)
@example(3 * 2.0**-100, 2.0**-50, 2.0**-149)
def test_it_is_the_nearest_f32(x: float, y: float, z: float) -> None:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if abs(exact) >= Fraction(2) ** 127:
        return
    (given_,) = added_once(np.array([x * y]), np.array([z], np.float32))
    assert float(given_) == nearest(exact)


def test_what_is_not_finite_stays() -> None:
    with np.errstate(all="ignore"):
        found = added_once(np.array([np.inf, np.nan, np.inf, 1e300]), np.array([1, 1, -np.inf, 0], np.float32))
    assert np.isposinf(found[[0, 3]]).all()
    assert np.isnan(found[1:3]).all()
