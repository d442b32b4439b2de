"""`tessera.dist`: ranks, the mesh they make, collectives over its axes, and when they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.auto_shard import alpa_shard, auto_shard
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
from tessera.api.mesh_layout import shard_of
from tessera.api.other_names import answer_names as _answer_names
from tessera.api.shard_map import LOCAL, P, pmap, shard_map
from tessera.api.sharding import partition, partition_report, shard
from tessera.diagnostics.frames import guard_public as _guard
from tessera.distributed.context import ring_attention, sharded_scan
from tessera.distributed.exchanges import enter_split, leave_split, shift
from tessera.distributed.experts import dropped_tokens
from tessera.distributed.layers import split_rule
from tessera.distributed.layout import Parallel
from tessera.distributed.placement import Cut
from tessera.distributed.recipe import Recipe, recipe
from tessera.distributed.stage_functions import pipeline
from tessera.runtime.timeline import record_timeline as timeline
from tessera.types.sharding import Sharding

__all__ = [
    "LOCAL",
    "Cut",
    "P",
    "Parallel",
    "Recipe",
    "Sharding",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "alpa_shard",
    "auto_shard",
    "axis_index",
    "dropped_tokens",
    "enter_split",
    "leave_split",
    "mesh",
    "partition",
    "partition_report",
    "pipeline",
    "pmap",
    "rank",
    "recipe",
    "reduce_scatter",
    "replicated",
    "ring_attention",
    "run",
    "save_trace",
    "shard",
    "shard_map",
    "shard_of",
    "sharded_scan",
    "shift",
    "split_rule",
    "timeline",
    "world_size",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a type checker is to see that a name is not here
    __getattr__ = _answer_names(__name__)
