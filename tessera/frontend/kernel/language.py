"""The kernel language: all names of `tessera.tile`."""
# What is imported here is the language.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from tessera.frontend.kernel.attention import (
    dot,
    dropout_in_kernel,
    mask_causal,
    softmax_accumulate,
    softmax_online,
    transpose,
)
from tessera.frontend.kernel.block_scope import per_block
from tessera.frontend.kernel.collectives import all_gather, all_reduce, reduce_scatter
from tessera.frontend.kernel.elementwise import bitcast, broadcast, cast, col_index, fma, full, row_index, where, zeros
from tessera.frontend.kernel.extents import context, program
from tessera.frontend.kernel.loops import pipeline, range_k, range_m, range_n, steps
from tessera.frontend.kernel.memory import atomic_add, atomic_max, atomic_min, load, store
from tessera.frontend.kernel.reductions import (
    butterfly,
    max,
    min,
    reduce,
    scan,
    shuffle,
    softmax,
    sum,
    tile_reduce_rowmax,
    tile_reduce_rowsum,
    tile_scan,
    tile_softmax_rmax,
    vote,
)
from tessera.frontend.kernel.scalar import *  # noqa: F403 - its stub lists them
from tessera.frontend.kernel.tiles import INF, KTile, Tile

mma = dot

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - the imports are the list
    name for name in globals() if not name.startswith("_") and name != "annotations"
]
