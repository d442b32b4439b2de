"""`tessera.dist`: ranks, the mesh they make, collectives over its axes, and when they ran."""

from __future__ import annotations

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
from tessera.runtime.timeline import record_timeline as timeline

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "axis_index",
    "mesh",
    "rank",
    "reduce_scatter",
    "replicated",
    "run",
    "save_trace",
    "timeline",
    "world_size",
]
