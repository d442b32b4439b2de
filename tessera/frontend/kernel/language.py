"""Everything a kernel may call, under one roof: what `tessera.tile` gives."""

from __future__ import annotations

from typing import Any

from tessera.frontend.kernel.attention import dropout_in_kernel, mask_causal, softmax_accumulate, softmax_online
from tessera.frontend.kernel.elementwise import (
    abs,
    bitcast,
    broadcast,
    cast,
    ceil,
    col_index,
    cos,
    erf,
    exp,
    exp2,
    floor,
    fma,
    full,
    gelu,
    isinf,
    isnan,
    log,
    log2,
    maximum,
    minimum,
    reciprocal,
    relu,
    row_index,
    rsqrt,
    sigmoid,
    sign,
    silu,
    sin,
    sqrt,
    tanh,
    where,
    zeros,
)
from tessera.frontend.kernel.matrix import dot, transpose
from tessera.frontend.kernel.memory import atomic_add, atomic_max, atomic_min, load, store
from tessera.frontend.kernel.reduce import (
    max,
    min,
    reduce,
    scan,
    softmax,
    sum,
    tile_reduce_rowmax,
    tile_reduce_rowsum,
    tile_scan,
    tile_softmax_rmax,
)
from tessera.frontend.kernel.structure import context, pipeline, program, range_k, range_m, range_n, steps
from tessera.frontend.kernel.tiles import INF, Tile
from tessera.types.annotation import TensorAnnotation, annotation_of

mma = dot


class KTile:
    """A tensor that a kernel works on in tiles: `KTile["B*H", "S", "D_h", bf16 @ accum(f32)]`."""

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items, "KTile")


__all__ = [
    "INF",
    "KTile",
    "Tile",
    "abs",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "bitcast",
    "broadcast",
    "cast",
    "ceil",
    "col_index",
    "context",
    "cos",
    "dot",
    "dropout_in_kernel",
    "erf",
    "exp",
    "exp2",
    "floor",
    "fma",
    "full",
    "gelu",
    "isinf",
    "isnan",
    "load",
    "log",
    "log2",
    "mask_causal",
    "max",
    "maximum",
    "min",
    "minimum",
    "mma",
    "pipeline",
    "program",
    "range_k",
    "range_m",
    "range_n",
    "reciprocal",
    "reduce",
    "relu",
    "row_index",
    "rsqrt",
    "scan",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "softmax_accumulate",
    "softmax_online",
    "sqrt",
    "steps",
    "store",
    "sum",
    "tanh",
    "tile_reduce_rowmax",
    "tile_reduce_rowsum",
    "tile_scan",
    "tile_softmax_rmax",
    "transpose",
    "where",
    "zeros",
]
