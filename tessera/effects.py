"""`tessera.effects`: what code does besides computing, and scopes that say what it may do."""

from __future__ import annotations

from tessera.api.effects import deterministic, infer, ordered, seeded, suspend
from tessera.types.effect import ALL, KINDS, PURE, Effects, may_swap

__all__ = ["ALL", "KINDS", "PURE", "Effects", "deterministic", "infer", "may_swap", "ordered", "seeded", "suspend"]
