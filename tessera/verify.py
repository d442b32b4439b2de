"""`tessera.verify`: promises about numbers, proved where a program is traced and watched where they cannot be."""

from __future__ import annotations

from tessera.api.verify import finite, numerics

__all__ = ["finite", "numerics"]
