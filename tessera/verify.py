"""`tessera.verify`: promises about numbers, proved where a program is traced and watched where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.other_names import answer_names as _answer_names
from tessera.api.verify import finite, numerics
from tessera.diagnostics.frames import guard_public as _guard

__all__ = ["finite", "numerics"]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
