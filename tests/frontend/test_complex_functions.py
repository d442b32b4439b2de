"""Elementary functions of complex tensors: how far they are off, their special values and cuts, and derivatives."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops

Array = np.ndarray[Any, Any]

INF, NAN = math.inf, math.nan
NAMES = {
    **{name: name for name in ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "square")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
"""Functions here, and NumPy's names for them."""
SLACK = 3.0
"""Units in the last place of the size of a result; 2 is the largest that is known of them."""


def drawn(dtype: Any) -> Array:
    """Numbers of all sizes and angles, near the points where functions have poles, zeros and cuts, and on the axes."""
    rng = np.random.default_rng(0)
    rays = np.exp(1j * rng.uniform(-np.pi, np.pi, 400)) * 10.0 ** rng.uniform(-8, 1.5, 400)
    near = np.concatenate([point + 1e-3 * rays[:60] for point in (1, -1, 1j, -1j, np.pi / 2, 1j * np.pi / 2)])
    along = np.concatenate([rng.normal(size=40) * 3, 1j * rng.normal(size=40) * 3, np.exp(1j * rng.normal(size=40))])
    return np.concatenate([rays, near, along]).astype(dtype)


def reference(name: str, z: Array) -> Array:
    """NumPy's function in the widest complex numbers that there are; of two it is its own formula that cancels."""
    wide = z.astype(np.clongdouble)
    x, y = wide.real, wide.imag
    if name == "log1p":
        is_small = np.abs(wide) < 0.5
        small = 0.5 * np.log1p(np.where(is_small, x * (2 + x) + y * y, 0))
        return np.where(is_small, small, np.log(np.abs(1 + wide))) + 1j * np.arctan2(y, 1 + x)
    if name == "expm1":
        return np.expm1(x) * np.cos(y) - 2 * np.sin(y / 2) ** 2 + 1j * np.exp(x) * np.sin(y)
    return getattr(np, NAMES[name])(wide)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", NAMES)
def test_results_are_within_units_in_the_last_place_of_their_sizes(name: str, dtype: Any) -> None:
    z = drawn(dtype)
    found = np.asarray(getattr(ops, name)(ts.array(z)))
    assert found.dtype == dtype
    expected = reference(name, z)
    unit = np.finfo(dtype).eps + 8 * np.finfo(np.clongdouble).eps
    error = np.abs(found - expected) / np.maximum(np.abs(expected), np.finfo(dtype).tiny)
    # On a cut both limits are right: which one a zero of the other sign asks for is held by the table below.
    cut = (z.real == 0) | (z.imag == 0)
    for mirrored in (expected.conj(), -expected.conj()):
        error = np.where(cut, np.minimum(error, np.abs(found - mirrored) / np.abs(expected)), error)
    assert error.max() <= SLACK * unit


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "asin", "acos", "atan", "asinh", "acosh", "atanh"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_nothing_overflows_that_need_not(name: str, dtype: Any) -> None:
    info = np.finfo(dtype)
    large, small = float(info.max) / 4, float(info.tiny)
    sizes = [large, small, -large, -small] if name != "exp" else [0.0, math.log(float(info.max)) + 0.2]
    z = np.array([complex(x, y) for x in sizes for y in (1.0, 1.5, large, small, -large)], dtype)
    z = z[np.abs(z.imag) <= 1.5] if name == "exp" else z
    found = np.asarray(getattr(ops, name)(ts.array(z)))
    with np.errstate(all="ignore"):
        expected = getattr(np, NAMES[name])(z.astype(np.clongdouble)).astype(dtype)
    kept = np.isfinite(expected)
    assert np.isfinite(found[kept]).all()
    np.testing.assert_allclose(found[kept], expected[kept], rtol=64 * info.eps)


def is_like(found: complex, expected: complex) -> bool:
    """Equal, with signs of zeros; NaN equals NaN."""
    pairs = ((found.real, expected.real), (found.imag, expected.imag))
    return all(
        (math.isnan(a) and math.isnan(b))
        or (math.isclose(a, b, rel_tol=1e-14) and math.copysign(1, a) == math.copysign(1, b))
        for a, b in pairs
    )


_UNKNOWN = {
    "exp": {"inf inf", "inf nan"},
    "cosh": {"0.0 inf", "0.0 nan", "inf inf", "inf nan", "nan 0.0"},
    "sinh": {"0.0 inf", "0.0 nan", "inf inf", "inf nan"},
    "tanh": {"inf 2.0", "inf inf", "inf nan", "0.0 inf", "0.0 nan"},
    "acosh": {"0.0 nan"},
    "acos": {"inf nan"},
    "asinh": {"nan inf"},
    "atanh": {"nan inf"},
}
"""Arguments for which the standard leaves a sign open, or asks for another one than C."""


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "acos"])
def test_special_values_are_those_of_c(name: str) -> None:
    parts = (0.0, 2.0, INF, NAN)
    points = [complex(x, y) for x in (*parts, -0.0, -2.0, -INF) for y in parts]
    given = [z for z in points if f"{abs(z.real)} {z.imag}" not in _UNKNOWN.get(name, set())]
    found = getattr(ops, name)(ts.array(np.array(given))).tolist()
    for z, own in zip(given, found, strict=True):
        try:
            expected = getattr(cmath, name)(z)
        except (ValueError, OverflowError):
            continue  # where C raises a flag, and Python an error
        assert is_like(own, expected), (z, own, expected)


def test_signs_of_zeros_say_on_which_side_of_a_cut_an_element_is() -> None:
    z = ts.array(np.array([complex(-4, 0.0), complex(-4, -0.0)]))
    assert ops.sqrt(z).tolist() == [2j, -2j]
    assert ops.log(z).imag.tolist() == [math.pi, -math.pi]
    for name in ("asin", "acos", "acosh", "atanh"):
        above, below = getattr(ops, name)(z).tolist()
        assert above.imag == -below.imag != 0
        np.testing.assert_allclose(above, getattr(cmath, name)(complex(-4, 0.0)), rtol=1e-14)
        np.testing.assert_allclose(below, getattr(cmath, name)(complex(-4, -0.0)), rtol=1e-14)


@pytest.mark.parametrize("exponent", [0, 1, 2, -3, 7, 0.5, 2.5, 1 + 2j, -1j])
def test_powers_are_those_of_numpy(exponent: complex) -> None:
    z = drawn(np.complex128)[:50]
    z = z[np.abs(z) > 1e-3]
    found = np.asarray(ts.array(z) ** exponent)
    np.testing.assert_allclose(found, z.astype(np.clongdouble) ** exponent, rtol=1e-13)


def test_powers_of_tensors_and_of_zero() -> None:
    x, y = np.array([0.0, 0.0, 2.0]), np.array([2 + 1j, 0j, 1j])
    found = np.asarray(ops.pow(ts.array(x), ts.array(y)))
    np.testing.assert_allclose(found, [0, 1, 2**1j], rtol=1e-15)
    np.testing.assert_allclose(np.asarray(2.0 ** ts.array(y)), 2.0**y, rtol=1e-15)
    assert (ts.array([2j]) ** 2).tolist() == [-4]


DERIVATIVES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "expm1": np.exp, "log": lambda z: 1 / z, "log1p": lambda z: 1 / (1 + z),
    "sqrt": lambda z: 0.5 / np.sqrt(z), "atan": lambda z: 1 / (1 + z * z),
    "sin": np.cos, "cos": lambda z: -np.sin(z), "tan": lambda z: 1 / np.cos(z) ** 2,
    "sinh": np.cosh, "cosh": np.sinh, "tanh": lambda z: 1 / np.cosh(z) ** 2,
    "asin": lambda z: 1 / np.sqrt(1 - z * z), "acos": lambda z: -1 / np.sqrt(1 - z * z),
    "asinh": lambda z: 1 / np.sqrt(1 + z * z), "acosh": lambda z: 1 / (np.sqrt(z - 1) * np.sqrt(z + 1)),
    "atanh": lambda z: 1 / (1 - z * z), "reciprocal": lambda z: -1 / (z * z),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVES)
def test_gradients_are_conjugates_of_derivatives(name: str) -> None:
    """On axes too, where special values are patched in, and where parts are equal."""
    z = np.array([0.3 + 0.4j, -1.2 + 0.7j, 0.5, complex(0.5, -0.0), 0.7j, complex(-0.0, 0.7), 0.25 + 0.25j, 3 - 2j])
    given = z[:2] if name == "acosh" else z

    def loss(z: Any) -> Any:
        return getattr(ops, name)(z).real.sum()

    slopes = np.asarray(ts.jit(ts.grad(loss))(ts.array(given)))
    np.testing.assert_allclose(slopes, DERIVATIVES[name](given).conj(), rtol=1e-12, atol=1e-12)


def test_functions_run_in_one_program_for_all_sizes_and_on_nothing() -> None:
    function = ts.jit(lambda z: ops.exp(ops.sqrt(z)), dynamic=True)
    for size in (0, 1, 5):
        z = drawn(np.complex64)[:size]
        np.testing.assert_allclose(np.asarray(function(ts.array(z))), np.exp(np.sqrt(z)), rtol=1e-6)
    assert function.cache_info().misses == 1


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_growth_near_the_largest_numbers_is_in_range_and_keeps_zeros(dtype: Any) -> None:
    high, beyond = (87.0, 1e30) if dtype == np.complex64 else (705.0, 1e300)
    z = np.array([complex(high, 1), complex(-high, -2), high, beyond, complex(0, high), complex(0, beyond)], dtype)
    for name in ("exp", "sinh", "cosh", "sin", "cos"):
        with np.errstate(over="ignore"):
            expected = getattr(np, name)(z)
        for run in (getattr(ops, name), ts.jit(getattr(ops, name))):
            np.testing.assert_allclose(np.asarray(run(ts.array(z))), expected, rtol=40 * np.finfo(dtype).eps)
