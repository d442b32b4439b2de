"""The kernel language: all names of `tessera.tile`."""

from __future__ import annotations

from tessera.frontend.kernel import scalar
from tessera.frontend.kernel.attention import (
    dot,
    dropout_in_kernel,
    mask_causal,
    softmax_accumulate,
    softmax_online,
    transpose,
)
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


__all__ = [
    "INF",
    "KTile",
    "Tile",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "bitcast",
    "broadcast",
    "butterfly",
    "cast",
    "col_index",
    "context",
    "dot",
    "dropout_in_kernel",
    "fma",
    "full",
    "load",
    "mask_causal",
    "max",
    "min",
    "mma",
    "pipeline",
    "program",
    "range_k",
    "range_m",
    "range_n",
    "reduce",
    "row_index",
    "scan",
    "shuffle",
    "softmax",
    "softmax_accumulate",
    "softmax_online",
    "steps",
    "store",
    "sum",
    "tile_reduce_rowmax",
    "tile_reduce_rowsum",
    "tile_scan",
    "tile_softmax_rmax",
    "transpose",
    "vote",
    "where",
    "zeros",
]
__all__ += scalar.__all__
