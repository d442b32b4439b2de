"""Random tensors of each distribution: their distribution functions, ranges, and that equal keys draw equal numbers."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tessera as ts
from tessera.diagnostics.codes import ArgumentError

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


def test_classes_are_drawn_by_softmax() -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.0])
    shares = np.exp(logits) / np.exp(logits).sum()
    assert is_likely(random.categorical(KEY, ts.array(logits), shape=(COUNT,)), shares)
    rows = ts.array(np.tile(np.array([[0.0, 50.0], [50.0, 0.0]]), (3, 1)))
    assert random.categorical(KEY, rows, 1).tolist() == [1, 0] * 3
    assert random.categorical(KEY, rows, 0).shape == (2,)


def test_choices_with_probabilities() -> None:
    shares = np.array([0.1, 0.0, 0.6, 0.3])
    assert is_likely(np.asarray(random.choice(KEY, 4, (COUNT,), p=shares)) // 2, [0.1, 0.9])
    assert 1 not in random.choice(KEY, 4, (COUNT,), p=shares).tolist()
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


def test_ends_of_a_truncated_normal_are_in_order() -> None:
    with pytest.raises(ArgumentError, match=r"needs `low` below `high`, got 2\.0 and 1\.0"):
        random.truncated_normal(KEY, (2,), 2.0, 1.0)
