"""Special functions by series: against PyTorch in f64, at their ends, and with their derivatives."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError
from tests.functions.cases import Case, check_case

torch: Any = pytest.importorskip("torch")
special = torch.special
ops = ts.ops
NAN, INF = math.nan, math.inf


def numbers(low: float, high: float) -> Any:
    return lambda rng, n: [rng.uniform(low, high, (n, 3))]


def theirs(function: Any) -> Any:
    return lambda *arrays: function(*map(torch.tensor, arrays)).numpy()


CASES = [
    Case("ndtr", ops.ndtr, numbers(-6, 6), theirs(special.ndtr)),
    Case("log_ndtr", ops.log_ndtr, numbers(-40, 4), theirs(special.log_ndtr)),
    Case("ndtri", ops.ndtri, numbers(0.01, 0.99), theirs(special.ndtri)),
    Case("erfcx", ops.erfcx, numbers(-3, 30), theirs(special.erfcx)),
    Case("entr", ops.entr, numbers(0.0, 3.0), theirs(special.entr)),
    Case("xlog1py", ops.xlog1py, lambda rng, n: [rng.normal(size=(n, 3)), rng.uniform(-0.9, 3, (n, 3))],
         theirs(special.xlog1py), (0, 1)),
    Case("i0", ops.i0, numbers(-45, 45), theirs(special.i0)),
    Case("i0e", ops.i0e, numbers(-60, 60), theirs(special.i0e)),
    Case("i1", ops.i1, numbers(-4, 4), theirs(special.i1)),
    Case("i1e", ops.i1e, numbers(-60, 60), theirs(special.i1e)),
    Case("zeta", ops.zeta, lambda rng, n: [rng.uniform(1.2, 9, (n, 3)), rng.uniform(0.2, 9, (n, 3))],
         theirs(special.zeta), (0, 1)),
    Case("polygamma", lambda x: ops.polygamma(3, x), numbers(0.3, 9), theirs(lambda x: special.polygamma(3, x))),
    Case("multigammaln", lambda x: ops.multigammaln(x, 3), numbers(1.2, 9),
         theirs(lambda x: special.multigammaln(x, 3))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_a_function_holds(case: Case) -> None:
    check_case(case, {"i0e": 0, "ndtr": 1}.get(case.name, 2))


def test_fractions_and_exponents_are_those_of_numpy() -> None:
    x = np.array([0.0, -0.0, 1.0, -0.75, 8.0, 1e300, 5e-324, -1e-310, 2.0**-1022, INF, -INF, NAN])
    for values in (x, np.where(np.abs(x) < 1e30, x, 3.0).astype(np.float32), np.array([6, -3])):
        for function in (ops.frexp, ts.jit(ops.frexp)):
            fraction, exponent = function(ts.array(values))
            expected = np.frexp(values)
            is_finite = np.isfinite(values)
            np.testing.assert_array_equal(np.asarray(fraction), expected[0])
            np.testing.assert_array_equal(np.asarray(exponent), np.where(is_finite, expected[1], 0))
    slope = ts.jit(ts.grad(lambda x: ops.frexp(x)[0].sum()))(np.array([3.0, 0.3]))
    np.testing.assert_allclose(np.asarray(slope), [0.25, 2.0])


ENDS: dict[str, tuple[Any, list[float], list[float]]] = {
    "ndtri": (ops.ndtri, [0.0, 1.0, -0.1, 1.1, NAN], [-INF, INF, NAN, NAN, NAN]),
    "ndtr": (ops.ndtr, [-INF, INF, NAN], [0.0, 1.0, NAN]),
    "log_ndtr": (ops.log_ndtr, [-INF, INF, NAN], [-INF, 0.0, NAN]),
    "erfcx": (ops.erfcx, [INF, -INF, NAN], [0.0, INF, NAN]),
    "entr": (ops.entr, [0.0, -1.0, NAN, INF], [0.0, -INF, NAN, -INF]),
    "i0": (ops.i0, [0.0, INF, -INF, NAN], [1.0, INF, INF, NAN]),
    "i1": (ops.i1, [0.0, INF, -INF, NAN], [0.0, INF, -INF, NAN]),
    "i1e": (ops.i1e, [0.0, INF, NAN], [0.0, 0.0, NAN]),
    "zeta": (lambda x: ops.zeta(x, 1.0), [1.0, 0.5, NAN, 60.0, 1e200, INF], [INF, NAN, NAN, 1.0, 1.0, 1.0]),
    "zeta from 2": (lambda x: ops.zeta(x, 2.0), [1.0, 1e200, INF], [INF, 0.0, 0.0]),
    "zeta by q": (lambda q: ops.zeta(2.0, q), [0.0, 1e300, INF], [INF, 1e-300, 0.0]),
    "polygamma": (lambda x: ops.polygamma(2, x), [0.0, -0.5, INF], [-INF, NAN, 0.0]),
    "xlog1py": (lambda x: ops.xlog1py(0.0, x), [-1.0, -2.0, INF, NAN], [0.0, 0.0, 0.0, NAN]),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_are_what_they_should_be(name: str) -> None:
    function, x, expected = ENDS[name]
    np.testing.assert_array_equal(np.asarray(function(ts.array(np.array(x)))), expected)


def test_tails_have_their_digits() -> None:
    x = np.concatenate([-np.logspace(-3, 2, 60), np.logspace(-3, 2, 60)])
    p = np.logspace(-300, -0.31, 80)
    for own, other, values in (
        (ops.log_ndtr, special.log_ndtr, x),
        (ops.erfcx, special.erfcx, x[x > -20]),
        (ops.i0e, special.i0e, 7 * x),
        (ops.i1e, special.i1e, 7 * x),
        (ops.ndtri, special.ndtri, p),
        (ops.ndtri, special.ndtri, 0.5 + 1e-9 * p),
    ):
        np.testing.assert_allclose(np.asarray(own(ts.array(values))), other(torch.tensor(values)).numpy(), rtol=2e-12)
    # Near the largest number, where the exponential alone is beyond it.
    np.testing.assert_allclose(
        float(ops.i0(ts.array(np.array(712.0)))), math.exp(712 - math.log(2 * math.pi * 712) / 2), rtol=1e-3
    )
    np.testing.assert_allclose(float(ops.zeta(ts.array(np.array(2.0)), 1.0)), math.pi**2 / 6, rtol=1e-15)


def test_a_tail_of_the_normal_distribution_has_all_its_digits() -> None:
    """By its continued fraction in wider floats: what an exponential makes of a rounded square would show."""
    a = np.random.default_rng(0).uniform(5.0, 37.0, 400)
    wide = a.astype(np.longdouble)
    under = wide
    for step in range(200, 0, -1):
        under = wide + step / under
    expected = np.exp(-wide * wide / 2) / np.sqrt(2 * np.longdouble("3.14159265358979323846")) / under
    np.testing.assert_allclose(np.asarray(ops.ndtr(ts.array(-a))), expected.astype(np.float64), rtol=4e-15)
    near = a[a < 12.5].astype(np.float32)
    exact = np.asarray(ops.ndtr(ts.array(-near.astype(np.float64))))
    np.testing.assert_allclose(np.asarray(ops.ndtr(ts.array(-near))), exact, rtol=1e-6)


NARROW: dict[str, tuple[float, float]] = {
    "ndtr": (-8, 6), "log_ndtr": (-60, 3), "erfcx": (-6, 60), "ndtri": (0, 1), "erfinv": (-1, 1), "i0": (-60, 60),
    "i1": (-60, 60), "i0e": (-90, 90), "i1e": (-90, 90), "logit": (0, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_f32_is_within_units_in_the_last_place_of_f64(name: str) -> None:
    """Each dtype has fits of its own; slopes come from them too."""
    function, (low, high) = getattr(ops, name), NARROW[name]
    x = np.random.default_rng(0).uniform(low, high, 4000).astype(np.float32)
    wide = x.astype(np.float64)
    eps = float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(np.asarray(ops.cast(function(x), ts.f64)), np.asarray(function(wide)), rtol=8 * eps)
    slope = ts.jit(ts.grad(lambda x: function(x).sum()))
    found, expected = np.asarray(slope(x)).astype(np.float64), np.asarray(slope(wide))
    np.testing.assert_allclose(found, expected, rtol=64 * eps, atol=64 * eps)


@pytest.mark.parametrize("n", [1, 2, 5, 30, 100])
def test_derivatives_of_digamma_are_sums_of_powers(n: int) -> None:
    x = np.array([0.1 if n < 100 else 0.4, 1.0, 7.99, 8.0, 11.5, 12.0, 60.0, 300.0])
    found = np.asarray(ops.polygamma(n, ts.array(x)))
    scale = (-1.0) ** (n + 1) * math.factorial(n)
    np.testing.assert_allclose(found, scale * np.asarray(ops.zeta(n + 1.0, ts.array(x))), rtol=2e-13)


def test_far_terms_of_zeta_are_there_where_a_power_alone_is_too_small() -> None:
    np.testing.assert_allclose(float(ops.zeta(ts.array(np.array(3.5)), 1e100)), 4e-251, rtol=1e-12)
    np.testing.assert_allclose(float(ops.polygamma(1, ts.array(np.array(1e300)))), 1e-300, rtol=1e-12)


def test_values_in_range_where_a_factor_alone_is_not() -> None:
    x = np.array([1e4, 8.8e6])
    scale = [math.factorial(99), math.factorial(49)]
    for n, at, factor in ((100, x[0], scale[0]), (50, x[1], scale[1])):
        power = n * math.log10(at) - math.log10(factor)  # the first term of the series, which is nearly all
        expected = -(10.0**-power) * (1 + n / (2 * at))
        np.testing.assert_allclose(float(ops.polygamma(n, ts.array(np.array(at)))), expected, rtol=1e-3 * n * n / at)
    for dtype, large in ((np.float32, 3e38), (np.float64, 1.7e308)):
        expected = 1 / math.sqrt(2 * math.pi) / math.sqrt(large)
        found = [float(function(ts.array(np.array(large, dtype)))) for function in (ops.i0e, ops.i1e)]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    tiny = np.array([5e-324, -5e-324, 2.0**-1022, -1e-305, 1e-290])
    np.testing.assert_allclose(np.asarray(ops.lgamma(ts.array(tiny))), -np.log(np.abs(tiny)), rtol=1e-14)


def test_scaled_bessel_functions_have_the_slope_of_their_middle_at_zero() -> None:
    for function, expected in ((ops.i0e, 0.0), (ops.i1e, 0.5)):
        assert np.asarray(ts.grad(lambda x, f=function: f(x).sum())(ts.zeros((1,)))).tolist() == [expected]


def test_narrow_counts_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`polygamma` takes `n` from 0 to 100, got -1"):
        ops.polygamma(-1, ts.ones((2,)))
    with pytest.raises(ArgumentError, match="`multigammaln` takes `d` from 1 to 10000, got 0"):
        ops.multigammaln(ts.ones((2,)), 0)
    np.testing.assert_allclose(np.asarray(ops.polygamma(0, ts.ones((1,)))), [-0.5772157], rtol=1e-6)
