"""Random tensors of each distribution: their distribution functions, ranges, and that equal keys draw equal numbers."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tessera as ts
from tessera.api.truncation import draw_truncated
from tessera.diagnostics.codes import ArgumentError, ShapeError

random = ts.random
COUNT = 4000
KEY = random.key(11)
LEAST = 1e-4
"""The least probability of a statistic that passes; keys are fixed, so that a test passes always or never."""

CONTINUOUS: dict[str, tuple[Any, Any]] = {
    "exponential": (lambda shape: random.exponential(KEY, shape, scale=2.0), stats.expon(scale=2.0).cdf),
    "gumbel": (lambda shape: random.gumbel(KEY, shape), stats.gumbel_r.cdf),
    "laplace": (lambda shape: random.laplace(KEY, shape), stats.laplace.cdf),
    "logistic": (lambda shape: random.logistic(KEY, shape), stats.logistic.cdf),
    "cauchy": (lambda shape: random.cauchy(KEY, shape), stats.cauchy.cdf),
    "truncated_normal": (lambda shape: random.truncated_normal(KEY, shape, -1.0, 2.5), stats.truncnorm(-1.0, 2.5).cdf),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_have_their_distribution(name: str) -> None:
    draw, distribution = CONTINUOUS[name]
    found = np.asarray(draw((COUNT,)), np.float64)
    assert np.isfinite(found).all()
    assert stats.kstest(found, distribution).pvalue > LEAST
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda: draw((COUNT,)))()), found.astype(np.float32))


def is_likely(found: Any, probabilities: Any) -> bool:
    """Whether counts of classes go with their probabilities, by the chi-squared test."""
    counts = np.bincount(np.asarray(found).reshape(-1), minlength=len(probabilities))
    return stats.chisquare(counts, np.asarray(probabilities) * counts.sum()).pvalue > LEAST


def test_integers_are_equally_likely() -> None:
    found = np.asarray(random.randint(KEY, (COUNT,), -3, 4))
    assert (found.min(), found.max()) == (-3, 3)
    assert is_likely(found + 3, [1 / 7] * 7)
    assert random.randint(KEY, (2,), 0, 200, ts.u8).dtype is ts.u8
    with pytest.raises(ArgumentError, match=r"`randint` draws from 1 to 2\^32 integers, got 5 up to and without 5"):
        random.randint(KEY, (2,), 5, 5)


def test_integers_that_no_element_holds_are_refused() -> None:
    with pytest.raises(ArgumentError, match="draws from 0 to 256, and u8 has 0 to 255"):
        random.randint(KEY, (2,), 0, 257, ts.u8)
    with pytest.raises(ArgumentError, match="draws from -1 to 1, and u64 has 0 to 18446744073709551615"):
        random.randint(KEY, (2,), -1, 2, ts.u64)
    with pytest.raises(ArgumentError, match="`randint` draws integers, got `dtype=f32`"):
        random.randint(KEY, (2,), 0, 2, ts.f32)
    found = np.asarray(random.randint(KEY, (COUNT,), 2**63 + 1, 2**63 + 4, ts.u64))
    assert sorted(set(found.tolist())) == [2**63 + 1, 2**63 + 2, 2**63 + 3]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_of_exponentials_are_positive(scale: float) -> None:
    with pytest.raises(ArgumentError, match="takes a `scale` above 0 and finite"):
        random.exponential(KEY, (2,), scale=scale)


def test_classes_are_drawn_by_softmax() -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.0])
    shares = np.exp(logits) / np.exp(logits).sum()
    assert is_likely(random.categorical(KEY, ts.array(logits), shape=(COUNT,)), shares)
    rows = ts.array(np.tile(np.array([[0.0, 50.0], [50.0, 0.0]]), (3, 1)))
    assert random.categorical(KEY, rows, 1).tolist() == [1, 0] * 3
    assert random.categorical(KEY, rows, 0).shape == (2,)


def test_choices_with_probabilities() -> None:
    shares = np.array([0.1, 0.0, 0.6, 0.3])
    found = np.asarray(random.choice(KEY, 4, (COUNT,), p=shares))
    assert 1 not in found
    # The test of counts divides by what it expects, so the class that is never drawn is left out of it.
    assert is_likely(np.searchsorted([0, 2, 3], found), shares[[0, 2, 3]])
    assert not is_likely(np.searchsorted([0, 2, 3], found), shares[[0, 3, 2]])
    np.testing.assert_array_equal(np.asarray(random.choice(KEY, 4, (COUNT,), p=shares.tolist())), found)
    assert is_likely(random.choice(KEY, 5, (COUNT,)), [0.2] * 5)
    names = ts.array([[1.0, 2.0], [3.0, 4.0]])
    assert random.choice(KEY, names, (5,), axis=1).shape == (2, 5)


def test_nothing_is_drawn_twice_without_replacement() -> None:
    for shares in (None, np.array([0.1, 0.2, 0.3, 0.2, 0.2])):
        drawn = random.choice(KEY, 5, (2, 2), replace=False, p=shares)
        assert drawn.shape == (2, 2)
        assert len(set(np.asarray(drawn).reshape(-1).tolist())) == 4
    first = [
        int(random.choice(random.key(seed), 3, (1,), replace=False, p=np.array([0.7, 0.2, 0.1]))[0])
        for seed in range(400)
    ]
    assert is_likely(np.array(first), [0.7, 0.2, 0.1])
    with pytest.raises(ArgumentError, match="`choice` cannot draw 4 of 3 without `replace`"):
        random.choice(KEY, 3, (4,), replace=False)


def test_probabilities_that_cannot_be_drawn_by_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"one probability for each of 4, got `p` of the shape \[3\]"):
        random.choice(KEY, 4, (2,), p=np.ones(3))
    with pytest.raises(ShapeError, match=r"one probability for each of 4, got `p` of the shape \[2, 2\]"):
        ts.jit(lambda p: random.choice(KEY, 4, (2,), p=p))(np.ones((2, 2)))
    for wrong in (-0.5, float("nan")):
        with pytest.raises(ArgumentError, match="probabilities of at least 0, got"):
            random.choice(KEY, 2, (2,), p=ts.array([1.0, wrong]))
    with pytest.raises(ArgumentError, match="all of `p` are 0"):
        random.choice(KEY, 2, (2,), p=np.zeros(2))
    with pytest.raises(ArgumentError, match="cannot draw 3 without `replace` where 2 of 4 probabilities are above 0"):
        random.choice(KEY, 4, (3,), replace=False, p=np.array([0.5, 0.0, 0.5, 0.0]))


def test_permutations_are_all_as_likely() -> None:
    orders = [tuple(random.permutation(random.key(seed), 3).tolist()) for seed in range(600)]
    codes = {order: at for at, order in enumerate(sorted(set(orders)))}
    assert len(codes) == 6
    assert is_likely(np.array([codes[order] for order in orders]), [1 / 6] * 6)
    x = ts.array([[1, 2, 3], [4, 5, 6]])
    assert sorted(random.permutation(KEY, x, 1)[0].tolist()) == [1, 2, 3]


def test_vectors_have_their_covariance() -> None:
    factor = np.array([[1.0, 0.0], [0.5, 2.0]])
    mean = np.array([3.0, -1.0])
    found = np.asarray(random.multivariate_normal(KEY, ts.array(mean), ts.array(factor), (COUNT,)))
    np.testing.assert_allclose(found.mean(0), mean, atol=5 * 2.1 / COUNT**0.5)
    np.testing.assert_allclose(np.cov(found.T), factor @ factor.T, atol=0.4)


def test_vectors_of_a_batch_are_independent() -> None:
    means = np.array([[3.0, -1.0], [0.0, 5.0], [1.0, 1.0]])
    factors = np.array([[[1.0, 0.0], [0.5, 2.0]], [[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [-1.0, 0.5]]])
    found = np.asarray(random.multivariate_normal(KEY, ts.array(means), ts.array(factors), (COUNT,)))
    assert found.shape == (COUNT, 3, 2)
    joint = np.cov(found.reshape(COUNT, 6).T)
    for row, factor in enumerate(factors):
        own = slice(2 * row, 2 * row + 2)
        np.testing.assert_allclose(joint[own, own], factor @ factor.T, atol=0.4)
        joint[own, own] = 0.0
    np.testing.assert_allclose(joint, 0.0, atol=0.25)
    np.testing.assert_allclose(found.mean(0), means, atol=5 * 2.1 / COUNT**0.5)
    one = random.multivariate_normal(KEY, ts.array(means), ts.array(factors[0]))
    assert one.shape == (3, 2)
    several = random.multivariate_normal(KEY, ts.array(means[0]), ts.array(factors), (3,))
    assert several.shape == (3, 3, 2)


INFINITY = float("inf")
TAILS = [(9.0, 10.0), (-INFINITY, -9.0), (8.0, 20.0), (3.0, INFINITY), (-3.5, -3.25), (2.5, INFINITY), (40.0, 41.0)]


@pytest.mark.parametrize("dtype", [ts.f32, ts.f64])
@pytest.mark.parametrize(("low", "high"), TAILS)
def test_tails_of_the_normal_distribution(low: float, high: float, dtype: Any) -> None:
    found = np.asarray(random.truncated_normal(KEY, (COUNT,), low, high, dtype=dtype), np.float64)
    assert ((found >= low) & (found <= high)).all()
    assert len(set(found.tolist())) > 0.5 * COUNT
    assert stats.kstest(found, stats.truncnorm(low, high).cdf).pvalue > LEAST


def test_the_tail_is_inverted_to_the_last_digits() -> None:
    shares = np.linspace(1e-9, 1 - 1e-3, 500)
    for low, high in ((3.0, INFINITY), (9.0, 10.0), (20.0, 20.5)):
        found = np.asarray(draw_truncated(ts.array(shares), low, high, ts.f64))
        np.testing.assert_allclose(found, stats.truncnorm.ppf(shares, low, high), rtol=1e-11)
        mirrored = np.asarray(draw_truncated(ts.array(shares), -high, -low, ts.f64))
        np.testing.assert_array_equal(mirrored, -found)


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f16, ts.f32])
def test_rounded_numbers_stay_between_the_ends(dtype: Any) -> None:
    for low, high in ((0.0, 0.1), (-0.1, 0.0), (9.001, 9.3)):
        found = random.truncated_normal(KEY, (COUNT,), low, high, dtype=dtype).astype(ts.f64)
        assert low <= float(found.min()) < float(found.max()) <= high


def test_ends_between_which_there_is_no_number_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"bf16 from 1\.001 to 1\.002, and no number of bf16 lies there"):
        random.truncated_normal(KEY, (2,), 1.001, 1.002, dtype=ts.bf16)
    with pytest.raises(ArgumentError, match="no number of f16 lies there"):
        random.truncated_normal(KEY, (2,), 1e5, INFINITY, dtype=ts.f16)


def test_ends_of_a_truncated_normal_are_in_order() -> None:
    with pytest.raises(ArgumentError, match=r"needs `low` below `high`, got 2\.0 and 1\.0"):
        random.truncated_normal(KEY, (2,), 2.0, 1.0)
