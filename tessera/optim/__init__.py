"""`tessera.optim`: optimizers, learning rate schedules, and what goes around them, as pure functions on trees."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.optim.schedules import constant, cosine, exponential, join, linear, piecewise, warmup_cosine
from tessera.optim.training_state import (
    AccumulationState,
    AverageState,
    MasterState,
    ParameterAverage,
    ScaledState,
    accumulate,
    ema,
    with_loss_scale,
    with_master,
)
from tessera.optim.transforms import (
    Assigned,
    CountState,
    EmptyState,
    Optimizer,
    add_decayed_weights,
    apply_updates,
    chain,
    clip,
    clip_by_global_norm,
    global_norm,
    matrices,
    scale,
    scale_by_schedule,
    stateless,
)
from tessera.optim.update_rules import (
    AdafactorState,
    AdamState,
    LionState,
    MomentumState,
    adafactor,
    adam,
    adamw,
    lion,
    scale_by_adam,
    sgd,
)

__all__ = [
    "AccumulationState",
    "AdafactorState",
    "AdamState",
    "Assigned",
    "AverageState",
    "CountState",
    "EmptyState",
    "LionState",
    "MasterState",
    "MomentumState",
    "Optimizer",
    "ParameterAverage",
    "ScaledState",
    "accumulate",
    "adafactor",
    "adam",
    "adamw",
    "add_decayed_weights",
    "apply_updates",
    "chain",
    "clip",
    "clip_by_global_norm",
    "constant",
    "cosine",
    "ema",
    "exponential",
    "global_norm",
    "join",
    "linear",
    "lion",
    "matrices",
    "piecewise",
    "scale",
    "scale_by_adam",
    "scale_by_schedule",
    "sgd",
    "stateless",
    "warmup_cosine",
    "with_loss_scale",
    "with_master",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a checker would take it to mean that every name is there
    __getattr__ = _answer_names(__name__)
