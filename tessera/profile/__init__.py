"""`ts.profile`: where the time and the memory of a jitted function went, as tables, traces and one page.

`f.profile(*args)` gives a `Profile`; `write_report` makes an HTML page of one, with curves of a training beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.profile.memory import MemoryTensor, MemoryTimeline
from tessera.profile.report import KernelLowering, write_report
from tessera.profile.result import KernelEvent, Profile
from tessera.profile.roofline import RooflineRow

__all__ = [
    "KernelEvent",
    "KernelLowering",
    "MemoryTensor",
    "MemoryTimeline",
    "Profile",
    "RooflineRow",
    "write_report",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
