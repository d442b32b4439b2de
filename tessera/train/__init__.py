"""`ts.train`: states, steps, the training loop, evaluation, and checkpoints that a run continues from bit for bit."""

from __future__ import annotations

from tessera.diagnostics.frames import guard_public as _guard
from tessera.train.checkpoint import restore, save
from tessera.train.checkpointer import Checkpointer, Restored
from tessera.train.fit import Event, Fit, every, fit
from tessera.train.progress import History
from tessera.train.state import State
from tessera.train.step import evaluate, make_step

__all__ = [
    "Checkpointer",
    "Event",
    "Fit",
    "History",
    "Restored",
    "State",
    "evaluate",
    "every",
    "fit",
    "make_step",
    "restore",
    "save",
]

_guard(globals(), __all__)
