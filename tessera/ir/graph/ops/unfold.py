"""What a convolution is on machines that multiply whole matrices: its windows side by side, or a chain over taps.

`unfold` (im2col, elsewhere) writes what windows read as the rows of a matrix; `fma_chain` is the chain of FMAs that
a contraction is, of terms that are tensors. Both are made behind all transforms, by `graph-unfold-windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, exact, numpy_dtype, round_as, static_shape
from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.interval import ANYTHING, IntervalRule, point
from tessera.ir.base.spec import KEEP, ROUND, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Types, broadcast_types, cost_of, dims, moving_cost
from tessera.ir.graph.ops.movement import STORED
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Gather, Pointwise
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.promotion import holds
from tessera.types.shape import ZERO, TensorType

_F32 = {"accumulate": dt.f32, "dtype": dt.f32}
_BEHIND = "it is made of contractions behind all transforms"


def _infer_unfold(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,), shape, steps, low = types, attributes["shape"], attributes["steps"], attributes["low"]
    if len(steps) != x.rank * len(shape) or len(low) != x.rank:
        raise ctx.fail(
            f"`unfold` of rank {x.rank} to rank {len(shape)} has {x.rank * len(shape)} steps and {x.rank} offsets, "
            f"got {len(steps)} and {len(low)}",
            help="`steps` has a row for each dim of the operand, with a step for each dim of the result",
        )
    return [TensorType(tuple(map(Dim.of, shape)), x.dtype)]


def _unfold_maps(types: Types, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    """Each dim of the operand at a sum of steps along dims of the result."""
    places = coordinates(outs[0].rank)
    found: list[Dim] = []
    for axis, low in enumerate(attributes["low"]):
        row = attributes["steps"][axis * len(places) : (axis + 1) * len(places)]
        start: Dim = ZERO - low
        found.append(sum((place * step for place, step in zip(places, row, strict=True) if step), start))
    return [tuple(found)]


def unfold_reference(x: Array, *, shape: Sequence[Dim], steps: Sequence[int], low: Sequence[Dim]) -> Array:
    """Every element by its index, zeros where that is outside."""
    sizes, before = static_shape(shape), static_shape(low)
    places, inside = np.indices(sizes, sparse=True) if sizes else (), np.ones(sizes, bool)
    index: list[Any] = []
    for axis, size in enumerate(x.shape):
        row = steps[axis * len(sizes) : (axis + 1) * len(sizes)]
        at = np.zeros(sizes, np.int64) - before[axis]
        for place, step in zip(places, row, strict=True):
            at = at + place * step
        inside &= (at >= 0) & (at < size)
        index.append(np.clip(at, 0, max(size - 1, 0)))
    if 0 in x.shape:
        return np.zeros(sizes, x.dtype)
    return np.where(inside, x[tuple(index)], np.zeros((), x.dtype))


def _infer_chain(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    if not types or len(types) % 2:
        raise ctx.fail(
            f"`fma_chain` multiplies pairs of operands, got {len(types)} of them",
            help="give the factors of the first product, then those of the second, and so on",
        )
    names = tuple(f"terms[{number}]" for number in range(len(types)))
    dtype, total = attributes["dtype"], attributes["accumulate"]
    if any(not holds(total, one.dtype) for one in types) or dtype.is_float != total.is_float:
        given = ", ".join(sorted({str(one.dtype) for one in types}))
        raise ctx.fail_dtype(
            f"`fma_chain` cannot add products of {given} in {total} and give {dtype}",
            help="the accumulator holds every value of the operands, and is of the kind of the result",
        )
    return [TensorType(broadcast_types(ctx, "fma_chain", names, types), dtype)]


def fma_chain_reference(*terms: Array, accumulate: DType, dtype: DType) -> Array:
    """One FMA after the other, from 0, in the accumulator; rounded once at the end."""
    values = [term.astype(numpy_dtype(accumulate)) for term in terms]
    total = np.zeros(np.broadcast_shapes(*(term.shape for term in terms)), values[0].dtype)
    for left, right in zip(values[::2], values[1::2], strict=True):
        total = scalars.apply("fma", (left, right, total), accumulate)
    return round_as(exact(total), dtype)


def _chain_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    dtype = attributes["accumulate"]
    total = builder.constant(0, dtype)
    for left, right in zip(tiles[::2], tiles[1::2], strict=True):
        total = builder.elementwise("fma", builder.cast(left, dtype), builder.cast(right, dtype), total)
    return builder.cast(total, out.dtype.compute)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.unfold",
        summary="What windows of `x` read, side by side: each element at a sum of steps, zeros outside.",
        operands=("x",),
        attributes=(
            Attribute("shape", "dims", doc="of the result"),
            Attribute("steps", "ints", doc="for each dim of `x`, how far it goes with each dim of the result"),
            Attribute("low", "dims", doc="zeros before each dim of `x`"),
        ),
        infer=_infer_unfold,
        reference=unfold_reference,
        samples=(
            Sample("windows", normal((3, 9)), {"shape": dims(3, 7, 3), "steps": (1, 0, 0, 0, 1, 1), "low": dims(0, 0)}),
            Sample("padded", normal((9, 2)), {"shape": dims(5, 3, 2), "steps": (2, 1, 0, 0, 0, 1), "low": dims(1, 0)}),
            Sample("moved", normal((4, 33)), {"shape": dims(33, 4), "steps": (0, 1, 1, 0), "low": dims(0, 0)}),
            Sample("backwards", normal((7, 3)), {"shape": dims(3, 7), "steps": (0, -1, 1, 0), "low": dims(-6, 0)}),
            Sample("outside", normal((5,)), {"shape": dims(4), "steps": (3,), "low": dims(-7)}),
        ),
        dtypes=STORED,
        cost=moving_cost,
        lower=Gather(_unfold_maps, lambda attributes: 0),
        no_derivative=_BEHIND,
        batch="loop",
        policy=KEEP,
        interval=IntervalRule(lambda query: query.x.hull(point(0.0)), is_exact=True),
    ),
    OpSpec(
        name="tgraph.fma_chain",
        summary="Products of pairs of operands added one after the other, each sum rounded once: a contraction.",
        operands=("terms*",),
        attributes=(
            Attribute("accumulate", "dtype", doc="of the sum"),
            Attribute("dtype", "dtype", doc="of the result"),
        ),
        infer=_infer_chain,
        reference=fma_chain_reference,
        samples=(
            Sample("one", normal((7, 33), (7, 33)), _F32),
            Sample("broadcast", normal((3, 1, 5), (4, 1), (3, 4, 5), (4, 5), (5,), (1, 1)), _F32),
        ),
        dtypes=("f32",),
        cost=cost_of(lambda operands, results, attributes: results[0].size * len(operands)),
        lower=Pointwise(_chain_block, 2),
        no_derivative=_BEHIND,
        policy=ROUND,
        interval=ANYTHING,
    ),
)
