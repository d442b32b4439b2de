"""`tessera.op`: the same functions as `tessera.ops`, under the short name."""

from __future__ import annotations

from tessera.ops import *  # noqa: F403
from tessera.ops import __all__ as __all__


def __dir__() -> list[str]:
    return __all__
