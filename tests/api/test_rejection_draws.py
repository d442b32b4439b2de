"""Distributions drawn by rejection and by inversion: distribution functions, edges, and independence of sizes."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError

random = ts.random
COUNT = 8000
KEY = random.key(5)
LEAST = 1e-4
"""The least probability of a statistic that passes; keys are fixed, so that a test passes always or never."""


def integrate(density: Callable[[Any], Any], low: float, high: float) -> Callable[[Any], Any]:
    """A distribution function by Simpson's rule over a fine grid, from a density that may lack its constant."""
    x = np.linspace(low, high, 40_001)
    with np.errstate(all="ignore"):
        y = np.nan_to_num(density(x), posinf=0.0)
    parts = np.concatenate([[0.0], np.cumsum((y[:-2:2] + 4 * y[1:-1:2] + y[2::2]) / 3)])
    return lambda at: np.interp(at, x[::2], parts / parts[-1])


def kolmogorov(found: Any, distribution: Callable[[Any], Any]) -> float:
    """The probability of a distance between distribution functions as large as that of a sample (Stephens' formula)."""
    ordered = np.sort(np.asarray(found, np.float64).reshape(-1))
    n = ordered.size
    values, steps = distribution(ordered), np.arange(n + 1) / n
    distance = max((steps[1:] - values).max(), (values - steps[:-1]).max())
    t = distance * (n**0.5 + 0.12 + 0.11 / n**0.5)
    return float(2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * t) ** 2) for k in range(1, 100)))


def chi_squared(found: Any, probabilities: Any, first: int = 0) -> float:
    """The probability of counts as far from what is expected; classes with few are joined with their neighbours."""
    numbers = np.asarray(found).reshape(-1) - first
    counts = np.bincount(np.clip(numbers, 0, len(probabilities)), minlength=len(probabilities) + 1).astype(float)
    expected = np.append(probabilities, max(1.0 - sum(probabilities), 0.0)) * numbers.size
    joined, own = [[0.0, 0.0]], 0.0
    for count, share in zip(counts, expected, strict=True):
        if joined[-1][1] >= 8.0:
            joined.append([0.0, 0.0])
        joined[-1][0] += count
        joined[-1][1] += share
    if joined[-1][1] < 8.0 and len(joined) > 1:
        last = joined.pop()
        joined[-1] = [joined[-1][0] + last[0], joined[-1][1] + last[1]]
    own = sum((count - share) ** 2 / share for count, share in joined)
    freedom = len(joined) - 1
    # Wilson and Hilferty: the cube root of a chi-squared number is near a normal one.
    z = ((own / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


def of_gamma(a: float, scale: float = 1.0) -> Callable[[Any], Any]:
    """By the logarithm of the variable, whose density has no pole."""
    by_log = integrate(lambda y: np.exp(a * y - np.exp(y)), -40.0 / min(a, 1.0), math.log(a + 60 * max(a, 1.0) ** 0.5))
    return lambda x: by_log(np.log(np.asarray(x) / scale))


def of_beta(a: float, b: float) -> Callable[[Any], Any]:
    by_logit = integrate(lambda y: np.exp(-a * np.logaddexp(0, -y) - b * np.logaddexp(0, y)), -60.0 / a, 60.0 / b)
    return lambda x: by_logit(np.log(x) - np.log1p(-np.asarray(x)))


erf = np.vectorize(math.erf)
CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gamma of 0.3": (lambda s: random.gamma(KEY, s, 0.3, scale=2.0, dtype=ts.f64), of_gamma(0.3, 2.0)),
    "gamma of 1": (lambda s: random.gamma(KEY, s, 1.0), lambda x: 1 - np.exp(-x)),
    "gamma of 4.5": (lambda s: random.gamma(KEY, s, 4.5), of_gamma(4.5)),
    "gamma of 1e4": (lambda s: random.gamma(KEY, s, 1e4),
     integrate(lambda x: np.exp(9999 * np.log(x / 1e4) - x + 1e4), 9e3, 1.1e4)),
    "chi_square": (lambda s: random.chi_square(KEY, s, 3), of_gamma(1.5, 2.0)),
    "student_t": (lambda s: random.student_t(KEY, s, 3),
     lambda x: 0.5 + (x / 3**0.5 / (1 + x * x / 3) + np.arctan(x / 3**0.5)) / math.pi),
    "beta": (lambda s: random.beta(KEY, s, 2.0, 3.5), of_beta(2.0, 3.5)),
    "beta near its ends": (lambda s: random.beta(KEY, s, 0.5, 0.5), lambda x: 2 / math.pi * np.arcsin(np.sqrt(x))),
    "dirichlet": (lambda s: random.dirichlet(KEY, ts.array([1.0, 2.0, 0.5]), s)[..., 1], of_beta(2.0, 1.5)),
    "lognormal": (lambda s: random.lognormal(KEY, s, mean=0.5, std=2.0),
     lambda x: 0.5 + 0.5 * erf((np.log(x) - 0.5) / 2 / 2**0.5)),
    "rayleigh": (lambda s: random.rayleigh(KEY, s, scale=2.0), lambda x: 1 - np.exp(-x * x / 8)),
    "maxwell": (lambda s: random.maxwell(KEY, s, scale=2.0),
     lambda x: erf(x / 8**0.5) - (2 / math.pi) ** 0.5 * x / 2 * np.exp(-x * x / 8)),
    "weibull": (lambda s: random.weibull(KEY, s, 1.5, scale=2.0), lambda x: 1 - np.exp(-((x / 2) ** 1.5))),
    "pareto": (lambda s: random.pareto(KEY, s, 2.5, scale=2.0), lambda x: 1 - (x / 2) ** -2.5),
    "triangular": (lambda s: random.triangular(KEY, s, -1.0, 0.0, 3.0),
     lambda x: np.where(x < 0, (x + 1) ** 2 / 4, 1 - (3 - x) ** 2 / 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_have_their_distribution(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    found = np.asarray(draw((COUNT,)), np.float64)
    assert np.isfinite(found).all()
    assert kolmogorov(found, distribution) > LEAST
    assert kolmogorov(np.where(np.arange(COUNT) % 10, found, np.median(found)), distribution) < LEAST


def poisson_probabilities(rate: float, most: int) -> list[float]:
    return [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(most)]


def binomial_probabilities(n: int, p: float) -> list[float]:
    ways = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    return [math.exp(way + k * math.log(p) + (n - k) * math.log1p(-p)) for k, way in enumerate(ways)]


COUNTS: dict[str, tuple[Callable[[Any], Any], Any, int]] = {
    "poisson of 0.5": (lambda s: random.poisson(KEY, s, 0.5), poisson_probabilities(0.5, 12), 0),
    "poisson of 9.9": (lambda s: random.poisson(KEY, s, 9.9), poisson_probabilities(9.9, 40), 0),
    "poisson of 10": (lambda s: random.poisson(KEY, s, 10.0), poisson_probabilities(10.0, 40), 0),
    "poisson of 300": (lambda s: random.poisson(KEY, s, 300.0), poisson_probabilities(300.0, 450), 0),
    "binomial of few": (lambda s: random.binomial(KEY, s, 7, 0.3), binomial_probabilities(7, 0.3), 0),
    "binomial of likely": (lambda s: random.binomial(KEY, s, 20, 0.9), binomial_probabilities(20, 0.9), 0),
    "binomial of 20 and a half": (lambda s: random.binomial(KEY, s, 20, 0.5), binomial_probabilities(20, 0.5), 0),
    "binomial of many": (lambda s: random.binomial(KEY, s, 200, 0.85), binomial_probabilities(200, 0.85), 0),
    "geometric": (lambda s: random.geometric(KEY, s, 0.2), [0.2 * 0.8**k for k in range(60)], 1),
    "rademacher": (lambda s: (random.rademacher(KEY, s) + 1) / 2, [0.5, 0.5], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_counts_have_their_distribution(name: str) -> None:
    draw, probabilities, first = COUNTS[name]
    found = np.asarray(draw((COUNT,))).astype(np.int64)
    assert found.min() >= first
    assert chi_squared(found, probabilities, first) > LEAST
    wrong = np.where(np.arange(COUNT) % 10, found, np.sort(found)[COUNT // 2])
    assert chi_squared(wrong, probabilities, first) < LEAST


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "gamma": lambda key, s: random.gamma(key, s, 0.7),
    "beta": lambda key, s: random.beta(key, s, 0.7, 2.0),
    "student_t": lambda key, s: random.student_t(key, s, 3.0),
    "poisson": lambda key, s: random.poisson(key, s, 9.0),
    "many events": lambda key, s: random.poisson(key, s, 30.0),
    "binomial": lambda key, s: random.binomial(key, s, 100, 0.3),
}


@pytest.mark.parametrize("name", DRAWS)
def test_an_element_depends_on_key_and_index_alone(name: str) -> None:
    draw = DRAWS[name]
    found = np.asarray(draw(KEY, (600,)))
    np.testing.assert_array_equal(np.asarray(draw(KEY, (37,))), found[:37])
    compiled = ts.jit(lambda key: draw(key, (20, 30)))
    np.testing.assert_array_equal(np.asarray(compiled(KEY)).reshape(-1), found)
    keys = ts.ops.stack(random.split(KEY, 3))
    rows = np.stack([np.asarray(draw(key, (7,))) for key in keys])
    batched = ts.jit(ts.vmap(lambda key: draw(key, (7,))), backend="reference")
    np.testing.assert_allclose(np.asarray(batched(keys)), rows, rtol=2e-5)  # functions of the reference round otherwise
    assert draw(KEY, (0, 3)).shape == (0, 3)


def test_sizes_may_be_symbolic() -> None:
    @ts.jit
    def draw(x: ts.Tensor["N", ts.f32]) -> Any:
        return random.gamma(KEY, x.shape, 2.0), random.poisson(KEY, x.shape, 12.0)

    for size in (5, 9):
        found = draw(ts.zeros((size,)))
        np.testing.assert_array_equal(np.asarray(found[0]), np.asarray(random.gamma(KEY, (size,), 2.0)))
        np.testing.assert_array_equal(np.asarray(found[1]), np.asarray(random.poisson(KEY, (size,), 12.0)))
    assert draw.cache_info().misses == 1


def test_parameters_are_tensors_that_broadcast() -> None:
    a = np.array([0.5, 1.0, 20.0], np.float32)
    found = np.asarray(random.gamma(KEY, (COUNT, 3), a))
    np.testing.assert_allclose(found.mean(0), a, rtol=5 * COUNT**-0.5 * 1.5)
    rates = np.array([0.0, 3.0, 40.0])
    found = np.asarray(random.poisson(KEY, (COUNT, 3), rates))
    np.testing.assert_allclose(found.mean(0), rates, rtol=5 * COUNT**-0.5)
    found = np.asarray(random.binomial(KEY, (COUNT, 3), np.array([5.0, 50.0, 500.0]), 0.4))
    np.testing.assert_allclose(found.mean(0), [2.0, 20.0, 200.0], rtol=5 * COUNT**-0.5)
    rows = np.asarray(random.dirichlet(KEY, ts.array([[1.0, 5.0], [0.01, 0.01]]), (COUNT,)))
    np.testing.assert_allclose(rows.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(rows.mean(0), [[1 / 6, 5 / 6], [0.5, 0.5]], atol=0.03)


def test_illegal_elements_of_parameters_are_marked() -> None:
    nan = float("nan")
    assert np.isnan(np.asarray(random.gamma(KEY, (4,), ts.array([1.0, 0.0, -1.0, nan])))).tolist() == [False] + 3 * [
        True
    ]
    assert (np.asarray(random.poisson(KEY, (4,), ts.array([1.0, -1.0, nan, float("inf")]))) < 0).tolist() == [
        False
    ] + 3 * [True]
    assert random.binomial(KEY, (3,), ts.array([0.0, -1.0, 5.0]), ts.array([0.5, 0.5, 2.0])).tolist() == [0, -1, -1]
    assert random.geometric(KEY, (3,), ts.array([1.0, 0.0, 1.5])).tolist() == [1, -1, -1]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: random.gamma(KEY, (2,), 0.0), "`gamma` takes `a` above 0 and finite, got 0"),
        (lambda: random.gamma(KEY, (2,), 1.0, scale=-1.0), "`gamma` takes `scale` above 0 and finite, got -1"),
        (lambda: random.beta(KEY, (2,), 1.0, float("nan")), "`beta` takes `b` above 0 and finite, got nan"),
        (lambda: random.poisson(KEY, (2,), -1), "`poisson` takes `rate` of at least 0 and finite, got -1"),
        (lambda: random.binomial(KEY, (2,), 3, 1.5), "`binomial` takes `p` of at least 0 and at most 1, got 1.5"),
        (lambda: random.geometric(KEY, (2,), 0), "`geometric` takes `p` above 0 and at most 1, got 0"),
        (lambda: random.poisson(KEY, (2,), 1.0, dtype=ts.bool_), "`poisson` draws counts, got `dtype=bool`"),
        (lambda: random.weibull(KEY, (2,), 0), "`weibull` takes `concentration` above 0 and finite, got 0"),
        (lambda: random.rademacher(KEY, (2,), dtype=ts.u8), "which u8 does not hold"),
        (lambda: random.triangular(KEY, (2,), 0.0, 2.0, 1.0), "needs finite `left <= mode <= right`"),
    ],
)
def test_parameters_that_are_none_are_refused(draw: Callable[[], Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        draw()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: random.poisson(KEY, (2,), 60, dtype=ts.i8), "`poisson` with `rate=60` draws counts beyond 127"),
        (lambda: random.poisson(KEY, (2,), 1e30), "beyond 9223372036854775807, the largest that i64 has"),
        (lambda: random.binomial(KEY, (2,), 1000, 0.2, dtype=ts.u8), "`n=1000` and `p=0.2` draws counts beyond 255"),
        (lambda: random.binomial(KEY, (2,), 300, 1.0, dtype=ts.u8), "`n=300` and `p=1` draws counts beyond 255"),
        (lambda: random.geometric(KEY, (2,), 0.2, dtype=ts.i8), "`geometric` with `p=0.2` draws counts beyond 127"),
        (
            lambda: random.geometric(KEY, (2,), 1e-18),
            "`geometric` with `p=1e-18` draws counts beyond 9223372036854775807",
        ),
    ],
)
def test_counts_that_a_dtype_may_not_have_are_refused(draw: Callable[[], Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        draw()
    assert words in str(caught.value)
    assert "write `dtype=ts.i64`" in str(caught.value)


def test_counts_that_a_dtype_surely_has_are_drawn() -> None:
    for drawn in (
        random.poisson(KEY, (4096,), 50, dtype=ts.i8),
        random.binomial(KEY, (4096,), 127, 0.9, dtype=ts.i8),
        random.binomial(KEY, (4096,), 1000, 0.02, dtype=ts.i8),
        random.geometric(KEY, (4096,), 0.3, dtype=ts.i8),
        random.geometric(KEY, (4096,), 1e-17),
        random.poisson(KEY, (4096,), 9e18),
        random.poisson(KEY, (16,), 0, dtype=ts.i8),
    ):
        counts = np.asarray(drawn)
        assert (counts >= 0).all()
        assert (counts < np.iinfo(counts.dtype).max).all() or counts.max() == 127


def test_counts_of_tensors_beyond_a_dtype_are_its_largest() -> None:
    rates = ts.array(np.array([3.0, 1e9, -1.0]))
    assert np.asarray(random.poisson(KEY, (3,), rates, dtype=ts.i8)).tolist()[1:] == [127, -1]
    assert np.asarray(random.poisson(KEY, (3,), rates, dtype=ts.u8)).tolist()[1:] == [255, 255]
    assert np.asarray(random.geometric(KEY, (2,), ts.array(np.array([1e-300, 2.0])))).tolist() == [2**63 - 1, -1]
    assert np.asarray(random.poisson(KEY, (2,), 1e30, dtype=ts.f64)).tolist() == pytest.approx([1e30, 1e30])


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_triangles_are_as_wide_as_their_dtype_has_numbers(size: float) -> None:
    found = np.asarray(random.triangular(KEY, (64,), 0.0, size, 2 * size), np.float64) / size
    np.testing.assert_allclose(found, np.asarray(random.triangular(KEY, (64,), 0.0, 1.0, 2.0)), rtol=1e-5)


def test_a_scalar_has_no_classes() -> None:
    with pytest.raises(ShapeError, match="`dirichlet` takes concentrations"):
        random.dirichlet(KEY, ts.array(1.0))


def test_scales_have_a_derivative_and_shapes_of_gammas_none() -> None:
    a = ts.array([0.5, 3.0])

    def total(a: Any, scale: Any) -> Any:
        return random.gamma(KEY, (2,), a, scale=scale).sum()

    by_a, by_scale = ts.jit(ts.grad(total, (0, 1)))(a, ts.array(2.0))
    assert by_a.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(float(by_scale), float(total(a, ts.array(1.0))), rtol=1e-6)


def test_ends_of_parameters() -> None:
    assert random.poisson(KEY, (3,), 0.0).tolist() == [0, 0, 0]
    assert random.binomial(KEY, (3,), 9, 0.0).tolist() == [0, 0, 0]
    assert random.binomial(KEY, (3,), 900, 1.0).tolist() == [900] * 3
    assert random.geometric(KEY, (3,), 1.0).tolist() == [1, 1, 1]
    large = np.asarray(random.poisson(KEY, (1000,), 1e12)).astype(np.float64)
    assert abs(large.mean() - 1e12) < 5e6 / 1000**0.5
    assert abs(large.std() - 1e6) < 1e5
    small = np.asarray(random.gamma(KEY, (1000,), 1e-3))
    assert (small >= 0).all()


def test_soft_classes_are_drawn_and_have_the_derivative_of_softmax() -> None:
    logits = np.array([0.0, 1.0, -1.0])
    rows = ts.array(np.tile(logits, (COUNT, 1)))
    hard = np.asarray(random.gumbel_softmax(KEY, rows, hard=True))
    assert set(np.unique(np.round(hard, 6)).tolist()) == {0.0, 1.0}
    assert chi_squared(hard.argmax(-1), np.exp(logits) / np.exp(logits).sum()) > LEAST
    weights = ts.array([1.0, 2.0, 3.0], dtype="f64")

    def total(x: Any, hard: bool) -> Any:
        return (random.gumbel_softmax(KEY, x, 0.5, hard=hard) * weights).sum()

    soft, by_hard = (ts.jit(ts.grad(lambda x, hard=hard: total(x, hard)))(logits) for hard in (False, True))
    np.testing.assert_allclose(np.asarray(soft), np.asarray(by_hard), rtol=1e-12)
    across = random.gumbel_softmax(KEY, ts.array(logits).reshape(3, 1), hard=True, axis=0)
    assert (across.shape, float(across.sum())) == ((3, 1), 1.0)


def test_dropout_of_channels_and_of_activations() -> None:
    x = ts.ones((40, 50, 3))
    found = np.asarray(random.feature_dropout(x, KEY, 0.25))
    assert (found == found[:, :, :1]).all()
    assert abs((found == 0).mean() - 0.25) < 0.05
    np.testing.assert_allclose(found[found > 0], 1 / 0.75, rtol=1e-6)
    drawn = random.normal(KEY, (COUNT,))
    found = np.asarray(random.alpha_dropout(drawn, random.fold(KEY, 1), 0.3))
    assert abs(found.mean()) < 5 * COUNT**-0.5
    assert abs(found.var() - 1) < 0.1
    with pytest.raises(ArgumentError, match="`rate` of at least 0 and below 1, got 1"):
        random.feature_dropout(x, KEY, 1.0)
    with pytest.raises(ShapeError, match="takes features"):
        random.feature_dropout(ts.ones((3,)), KEY, 0.5)
