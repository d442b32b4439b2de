"""`tessera.dist`: collectives over the axes of a mesh."""

from __future__ import annotations

from tessera.api.collectives import all_gather, all_reduce, all_to_all, axis_index, mesh, reduce_scatter, replicated

__all__ = ["all_gather", "all_reduce", "all_to_all", "axis_index", "mesh", "reduce_scatter", "replicated"]
