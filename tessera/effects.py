"""`tessera.effects`: what code does besides computing, and scopes that say what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.effects import deterministic, infer, ordered, seeded, suspend
from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.types.effect import ALL, KINDS, PURE, Effects, may_swap

__all__ = ["ALL", "KINDS", "PURE", "Effects", "deterministic", "infer", "may_swap", "ordered", "seeded", "suspend"]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
