"""`tessera.random`: keys, and random tensors made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tessera.api.eager import install as _install
from tessera.api.randomness import bernoulli, bits, dropout, fold, key, normal, record, run, split, uniform

__all__ = ["bernoulli", "bits", "dropout", "fold", "key", "normal", "record", "run", "split", "uniform"]

_KEYS = "where `key = random.key(0)`: numbers are drawn with a key, and equal keys draw equal numbers"
_OTHER_NAMES = {
    **dict.fromkeys(("randn", "standard_normal", "randn_like"), f"write `random.normal(key, (2, 3))`, {_KEYS}"),
    **dict.fromkeys(("rand", "random", "random_sample", "rand_like"), f"write `random.uniform(key, (2, 3))`, {_KEYS}"),
    **dict.fromkeys(("randint", "integers"), f"write `random.bits(key, (2, 3)) % 10` for 0..9, {_KEYS}"),
    **dict.fromkeys(("seed", "manual_seed", "PRNGKey", "default_rng", "Generator"), "write `random.key(0)`"),
    "fold_in": "write `random.fold(key, number)`",
}
"""What other libraries call what is here by another name."""

_install()

if not TYPE_CHECKING:  # a checker would take it to mean that every name is there

    def __getattr__(name: str) -> NoReturn:
        """Say of a name that is not here what to write instead, where that is known."""
        hint = _OTHER_NAMES.get(name)
        raise AttributeError(f"module `tessera.random` has no attribute `{name}`{f': {hint}' if hint else ''}")
