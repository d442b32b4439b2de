"""`tessera.random`: keys, and random tensors made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.api.count_distributions import binomial, geometric, poisson
from tessera.api.distributions import (
    alpha_dropout,
    categorical,
    cauchy,
    choice,
    exponential,
    feature_dropout,
    gumbel,
    gumbel_softmax,
    laplace,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    pareto,
    permutation,
    rademacher,
    randint,
    rayleigh,
    triangular,
    truncated_normal,
    weibull,
)
from tessera.api.eager import install as _install
from tessera.api.gamma_distributions import beta, chi_square, dirichlet, gamma, student_t
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.randomness import bernoulli, bits, dropout, fold, key, normal, record, run, split, stream, uniform
from tessera.diagnostics.frames import guard_public as _guard

__all__ = [
    "alpha_dropout",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chi_square",
    "choice",
    "dirichlet",
    "dropout",
    "exponential",
    "feature_dropout",
    "fold",
    "gamma",
    "geometric",
    "gumbel",
    "gumbel_softmax",
    "key",
    "laplace",
    "logistic",
    "lognormal",
    "maxwell",
    "multivariate_normal",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "record",
    "run",
    "split",
    "stream",
    "student_t",
    "triangular",
    "truncated_normal",
    "uniform",
    "weibull",
]

_install()

if not TYPE_CHECKING:  # a checker would take it to mean that every name is there
    __getattr__ = _answer_names(__name__)

_guard(globals(), __all__)
