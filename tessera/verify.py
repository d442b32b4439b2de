"""`tessera.verify`: promises about the numbers of a function, checked on its results."""

from __future__ import annotations

from tessera.api.verify import numerics

__all__ = ["numerics"]
