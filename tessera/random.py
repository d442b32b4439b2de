"""`tessera.random`: keys, and random tensors made from them."""

from __future__ import annotations

from tessera.api import eager as _eager  # noqa: F401 - lets these functions run outside `jit`
from tessera.api.randomness import bernoulli, bits, dropout, fold, key, normal, split, uniform

__all__ = ["bernoulli", "bits", "dropout", "fold", "key", "normal", "split", "uniform"]
