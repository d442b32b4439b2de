"""Special functions, tests of floats and remainders, against SciPy and NumPy."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import tessera as ts
from tests.functions.cases import Case, check_case, compare

ops = ts.ops


def wide(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 3)) * 3]


def positive(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.uniform(0.3, 6.0, (size, 3))]


def shares(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.uniform(0.05, 0.95, (size, 3))]


def pairs(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 3)) * 3, rng.normal(size=(size, 3)) * 2]


def integers(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.integers(-40, 40, (size, 3)), rng.integers(-40, 40, (size, 3))]


def with_specials(rng: np.random.Generator, size: int) -> list[Any]:
    values = rng.normal(size=(size, 3))
    values[0], values[1, 0] = (np.inf, -np.inf, np.nan), -0.0
    return [values]


def nearly(x: Any) -> list[Any]:
    return [x, x * (1 + np.array([1e-7, 1e-3, 0.0]))]


CASES = [
    Case("lgamma", ops.lgamma, positive, sp.gammaln),
    Case("lgamma of negative numbers", ops.lgamma, lambda rng, n: [-rng.uniform(0.2, 0.8, (n, 3)) - 2], sp.gammaln),
    Case("digamma", ops.digamma, positive, sp.digamma),
    Case("erfinv", ops.erfinv, lambda rng, n: [rng.uniform(-0.99, 0.99, (n, 3))], sp.erfinv),
    Case("logaddexp", ops.logaddexp, pairs, np.logaddexp, (0, 1)),
    Case("logaddexp2", ops.logaddexp2, pairs, np.logaddexp2, (0, 1)),
    Case("xlogy", ops.xlogy, lambda rng, n: [*wide(rng, n), *positive(rng, n)], sp.xlogy, (0, 1)),
    Case("logit", ops.logit, shares, sp.logit),
    Case("sinc", ops.sinc, wide, np.sinc, narrow=False),
    Case("deg2rad", ops.deg2rad, wide, np.deg2rad),
    Case("rad2deg", ops.rad2deg, wide, np.rad2deg),
    Case("heaviside", ops.heaviside, pairs, np.heaviside, ()),
    Case("lerp", lambda x, y: ops.lerp(x, y, 0.3), pairs, lambda x, y: x + 0.3 * (y - x), (0, 1)),
    Case("fmod", ops.fmod, pairs, np.fmod, (), narrow=False),
    Case("isfinite", ops.isfinite, with_specials, np.isfinite, (), narrow=False),
    Case("isposinf", ops.isposinf, with_specials, np.isposinf, (), narrow=False),
    Case("isneginf", ops.isneginf, with_specials, np.isneginf, (), narrow=False),
    Case("signbit", ops.signbit, with_specials, np.signbit, (), narrow=False),
    Case("nan_to_num", lambda x: ops.nan_to_num(x, 5.0, 9.0, -9.0), with_specials,
         lambda x: np.nan_to_num(x, nan=5.0, posinf=9.0, neginf=-9.0), ()),
    Case("isclose", ops.isclose, lambda rng, n: nearly(rng.normal(size=(n, 3))), np.isclose, (), narrow=False),
    Case("allclose", ops.allclose, lambda rng, n: nearly(rng.normal(size=(n, 3))), np.allclose, (), narrow=False),
    Case("nextafter", ops.nextafter, pairs, np.nextafter, (), narrow=False, rtol=0.0),
    Case("ldexp", ops.ldexp, lambda rng, n: [*wide(rng, n), rng.integers(-8, 8, (n, 3))], np.ldexp),
    Case("lcm", ops.lcm, integers, np.lcm, (), narrow=False),
    Case("gcd", ops.gcd, integers, np.gcd, (), narrow=False),
    Case("bitwise_count", ops.bitwise_count, lambda rng, n: integers(rng, n)[:1], np.bitwise_count, (), narrow=False),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_function_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, -2.0, 2.0, 1e-8, 1e8, 1e300, np.inf, np.nan, 0.5, -7.5])


@pytest.mark.parametrize(
    ("name", "reference"),
    [("lgamma", sp.gammaln), ("digamma", sp.digamma), ("erfinv", sp.erfinv), ("logit", sp.logit), ("erfc", sp.erfc)],
)
def test_edges_are_those_of_scipy(name: str, reference: Any) -> None:
    with np.errstate(all="ignore"):
        expected = reference(EDGES)
    compare(getattr(ops, name)(ts.array(EDGES)), expected, 1e-12)


def test_the_share_of_equal_operands_is_a_half() -> None:
    x = ts.array([2.0, float("-inf")])
    found = ts.grad(lambda a, b: ops.logaddexp(a, b).sum(), (0, 1))(x, x)
    assert [one.tolist() for one in found] == [[0.5, 0.5], [0.5, 0.5]]


def test_a_log_of_zero_that_counts_for_nothing_has_a_derivative() -> None:
    x, y = ts.array([0.0, 1.0]), ts.array([0.0, 1.0])
    assert ts.grad(lambda b: ops.xlogy(x, b).sum())(y).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("y", [3.0, -3.0])
def test_slopes_at_negative_zero_are_those_at_zero(y: float) -> None:
    zeros = ts.array(np.array([0.0, -0.0]))
    found = ts.grad(lambda x: ops.erfinv(x).sum())(zeros)
    np.testing.assert_allclose(np.asarray(found), np.full(2, np.sqrt(np.pi) / 2), rtol=1e-14)
    assert ts.grad(lambda x: ops.fmod(x, y).sum())(zeros).tolist() == [1.0, 1.0]
    assert np.signbit(np.asarray(ops.fmod(zeros, y))).tolist() == [False, True]
    assert np.signbit(np.asarray(ops.erfinv(zeros))).tolist() == [False, True]


def test_remainders_of_the_smallest_integer() -> None:
    x, y = np.array([-128, 5, -128, -128, 7, -7, 127], np.int8), np.array([3, -128, -128, -1, -3, 3, -128], np.int8)
    assert ops.fmod(ts.array(x), ts.array(y)).tolist() == np.fmod(x, y).tolist()
    bytes_ = np.array([255, 7], np.uint8)
    assert ops.fmod(ts.array(bytes_), ts.array(np.array([2, 9], np.uint8))).tolist() == [1, 7]


@pytest.mark.parametrize("backend", ["reference", None])
def test_powers_out_of_range_with_products_in_it(backend: str | None) -> None:
    ldexp = ts.jit(ops.ldexp, backend=backend) if backend else ts.jit(ops.ldexp)
    x = np.array([5e-324, 1e-300, 1e300, 0.0, 1.75, -1.3, 5e-324, 1e300, 1.7e308, np.inf, np.nan, -0.0, 1.1])
    power = np.array([1074, 1030, -1080, 2000, -1074, -1060, 2097, 10, -2097, -5000, 1, 9000, 2**40])
    with np.errstate(all="ignore"):
        expected = np.ldexp(x, np.clip(power, -10000, 10000).astype(np.int32))
    np.testing.assert_array_equal(np.asarray(ldexp(x, power)), expected)
    narrow = np.array([0.0, 1.0, 1e-45, 3e38], np.float32)
    powers = np.array([2000, -2000, 149, -270])
    np.testing.assert_array_equal(np.asarray(ldexp(narrow, powers)), np.ldexp(narrow, powers.astype(np.int32)))


def test_a_weight_of_one_gives_the_end() -> None:
    assert float(ops.lerp(ts.array(np.array(1e16)), 1.0, 1.0)) == 1.0
    assert float(ops.lerp(ts.array(np.array(1.0)), 1e16, 0.0)) == 1.0


def test_a_number_for_nan_is_not_replaced_again() -> None:
    found = ops.nan_to_num(ts.array([float("nan"), 1.0, float("inf")]), nan=float("inf"), posinf=5.0)
    assert found.tolist() == [float("inf"), 1.0, 5.0]


def test_the_slope_of_xlogy_at_zero_is_the_logarithm() -> None:
    y = ts.array(np.array([2.0, 0.5, 0.0, -1.0]))
    found = np.asarray(ts.grad(lambda x: ops.xlogy(x, y).sum())(ts.array(np.zeros(4))))
    np.testing.assert_allclose(found, [np.log(2.0), np.log(0.5), 0.0, 0.0], rtol=1e-15)
    values = np.asarray(ops.xlogy(ts.array([0.0, 0.0, 0.0]), ts.array([float("nan"), float("inf"), -1.0])))
    np.testing.assert_array_equal(values, [np.nan, 0.0, 0.0])
    for backend in ("reference", "cpu"):
        values = np.asarray(ts.jit(ops.xlogy, backend=backend)(np.zeros(2), np.array([0.5, 2.0])))
        assert np.signbit(values).tolist() == [False, False]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_digits_are_kept_where_terms_cancel(backend: str) -> None:
    for dtype in (np.float32, np.float64):
        bound = 8 * float(np.finfo(dtype).eps)
        x = np.array([0.5 + 1e-7, 0.50001, 0.4999, 0.26, 0.3, 0.74, 0.76, 0.5], dtype)
        wide = x.astype(np.longdouble)
        exact = np.log1p((2 * wide - 1) / (1 - wide))
        np.testing.assert_allclose(np.asarray(ts.jit(ops.logit, backend=backend)(x)), exact.astype(dtype), rtol=bound)
        x = np.array([1e-8, 1e-4, 0.01, 0.1, 0.3, -1e-4], dtype)
        angle = x.astype(np.longdouble) * np.longdouble("3.14159265358979323846")
        terms = [(-1) ** k * 2 * k * angle ** (2 * k - 1) / sp.factorial(2 * k + 1) for k in range(1, 12)]
        exact = np.longdouble("3.14159265358979323846") * sum(terms)
        found = np.asarray(ts.jit(ts.grad(lambda x: ops.sinc(x).sum()), backend=backend)(x))
        np.testing.assert_allclose(found, exact.astype(dtype), rtol=bound)


def test_angles_are_rounded_once() -> None:
    x = np.linspace(0.1, 400.0, 500).astype(np.float16)
    for function, scale in ((ops.deg2rad, np.pi / 180), (ops.rad2deg, 180 / np.pi)):
        found = np.asarray(function(ts.array(x)))
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, (x.astype(np.float64) * scale).astype(np.float16))


def test_steps_from_zero_have_the_sign_of_their_direction() -> None:
    zero = np.zeros(2, np.float32)
    found = np.asarray(ops.nextafter(ts.array(zero), ts.array([-1.0, 1.0])))
    np.testing.assert_array_equal(found, np.nextafter(zero, np.array([-1, 1], np.float32)))


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f16])
def test_a_number_between_narrow_operands_keeps_its_digits(dtype: Any) -> None:
    """0.3 is no bf16: rounded to one it would move results by more than they are rounded by."""
    low = ts.full((3,), -1024.0, dtype)
    high = ts.full((3,), 1024.0, dtype)
    found = np.asarray(ops.lerp(low, high, 0.3).cast(ts.f64))
    expected = np.asarray(ts.full((3,), -1024.0 + 0.3 * 2048.0, dtype).cast(ts.f64))
    np.testing.assert_array_equal(found, expected)


def test_powers_of_two_reach_all_of_a_narrow_range() -> None:
    """From the largest number to the smallest that is not zero, and beyond both, with one rounding."""
    x = np.array([1.5, -3.4e38, 1e-45, 1.1754942e-38, 0.0, np.inf, np.nan], np.float32)[:, None]
    powers = np.array([-2000, -600, -300, -277, -149, -24, 0, 23, 127, 277, 300, 2000], np.int32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(ops.ldexp(x, powers)), np.ldexp(x, powers))
