"""`tessera.dist`: ranks, the mesh they make, collectives over its axes, and when they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    axis_index,
    mesh,
    rank,
    reduce_scatter,
    replicated,
    run,
    save_trace,
    world_size,
)
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.shard_map import LOCAL, P, pmap, shard_map
from tessera.api.sharding import shard
from tessera.diagnostics.frames import guard_public as _guard
from tessera.runtime.timeline import record_timeline as timeline
from tessera.types.sharding import Sharding

__all__ = [
    "LOCAL",
    "P",
    "Sharding",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "axis_index",
    "mesh",
    "pmap",
    "rank",
    "reduce_scatter",
    "replicated",
    "run",
    "save_trace",
    "shard",
    "shard_map",
    "timeline",
    "world_size",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
