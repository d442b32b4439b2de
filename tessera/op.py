"""`tessera.op`: the same functions as `tessera.ops`, under the short name."""

from __future__ import annotations

from tessera.ops import *  # noqa: F403
