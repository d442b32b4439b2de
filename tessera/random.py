"""`tessera.random`: keys, and random tensors made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.api.distributions import (
    categorical,
    cauchy,
    choice,
    exponential,
    gumbel,
    laplace,
    logistic,
    multivariate_normal,
    permutation,
    randint,
    truncated_normal,
)
from tessera.api.eager import install as _install
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.randomness import bernoulli, bits, dropout, fold, key, normal, record, run, split, uniform
from tessera.diagnostics.frames import guard_public as _guard

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dropout",
    "exponential",
    "fold",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "randint",
    "record",
    "run",
    "split",
    "truncated_normal",
    "uniform",
]

_install()

if not TYPE_CHECKING:  # a checker would take it to mean that every name is there
    __getattr__ = _answer_names(__name__)

_guard(globals(), __all__)
