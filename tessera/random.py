"""`tessera.random`: keys, and random tensors made from them."""

from __future__ import annotations

from tessera.api.eager import install as _install
from tessera.api.randomness import bernoulli, bits, dropout, fold, key, normal, record, run, split, uniform

__all__ = ["bernoulli", "bits", "dropout", "fold", "key", "normal", "record", "run", "split", "uniform"]

_install()
