"""`tessera.autotune`: searching for faster plans that give the same bits, and keeping what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.collective_tuning import CollectiveChoice, CollectiveTuning, collectives
from tessera.api.online_tuning import Online, OnlineProgram, online
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.plan_search import cache, plan, search, signature
from tessera.api.program_tuning import TuningResult, TuningStep, space, tune
from tessera.api.workload import measurements
from tessera.diagnostics.frames import guard_public as _guard

__all__ = [
    "CollectiveChoice",
    "CollectiveTuning",
    "Online",
    "OnlineProgram",
    "TuningResult",
    "TuningStep",
    "cache",
    "collectives",
    "measurements",
    "online",
    "plan",
    "search",
    "signature",
    "space",
    "tune",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
