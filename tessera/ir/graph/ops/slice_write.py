"""Writing a slice of a tensor at starts that are computed: a copy, or the slice alone where the old is not needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.ir.base.interval import IntervalRule
from tessera.ir.base.spec import KEEP, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import (
    Types,
    axes_attribute,
    check_at_least,
    check_integer,
    common_dtype,
    match_dims,
    visits,
)
from tessera.ir.graph.ops.indexing import STORED
from tessera.ir.graph.samples import Make
from tessera.ir.tile.facets import Library
from tessera.types.shape import Named, path, text

IN_PLACE = Attribute("in_place", "bool", False, "the result is in the memory of `x`: only the slice is written")


def _infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, update, *starts = types
    axes = axes_attribute(attributes, "axes")
    common_dtype(ctx, "slice_write", (x, update))
    if len(starts) != len(axes) or not axes or sorted(set(axes)) != list(axes) or not 0 <= axes[0] <= axes[-1] < x.rank:
        raise ctx.fail(
            f"`slice_write` needs axes of {text(x.shape)} in order, a start for each: got {axes}, {len(starts)}"
        )
    if update.rank != x.rank:
        raise ctx.fail(f"`slice_write` writes a slice of as many dims, got {text(update.shape)} for {text(x.shape)}")
    others = [axis for axis in range(x.rank) if axis not in axes]
    match_dims(ctx, "slice_write", Named("x", x.shape), Named("update", update.shape), others)
    for axis, start in zip(axes, starts, strict=True):
        check_integer(ctx, "slice_write", start, "starts")
        if start.rank:
            raise ctx.fail(f"`slice_write` takes scalars as starts, got {text(start.shape)} for axis {axis}")
        message = f"`slice_write` puts {update.shape[axis]} elements into {path('x', axis, x.shape[axis])}"
        check_at_least(ctx, x.shape[axis] - update.shape[axis], 0, message)
    return [x]


def slice_write_reference(
    x: Array, update: Array, *starts: Array, axes: Sequence[int], in_place: bool = False
) -> Array:
    """A copy with the update in it; starts are legal."""
    out, where = x.copy(), [slice(None)] * x.ndim
    for axis, start in zip(axes, starts, strict=True):
        where[axis] = slice(int(start), int(start) + update.shape[axis])
    out[tuple(where)] = update
    return out


def _sample(own: Sequence[int], new: Sequence[int], *starts: int) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        x, update = (rng.standard_normal(tuple(shape)).astype(np.float32) for shape in (own, new))
        return [x, update, *(np.array(start, np.int64) for start in starts)]

    return make


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.slice_write",
        summary="`x` with the slice that begins at legal starts along some axes replaced.",
        operands=("x", "update", "starts*"),
        attributes=(Attribute("axes", "ints", doc="the axes of `x` that starts are for, in order"), IN_PLACE),
        infer=_infer,
        reference=slice_write_reference,
        samples=(
            Sample("rows", _sample((5, 4), (2, 4), 3), {"axes": (0,)}),
            Sample("columns", _sample((3, 70), (3, 37), 20), {"axes": (1,)}),
            Sample("both", _sample((5, 3, 6), (2, 3, 5), 1, 1), {"axes": (0, 2)}),
            Sample("inner dims", _sample((2, 5, 3, 2), (2, 2, 3, 2), 2), {"axes": (1,)}),
            Sample("nothing", _sample((5, 3), (0, 3), 5), {"axes": (0,)}),
        ),
        dtypes=STORED,
        cost=visits(0),
        lower=Library("slice_write", overwrites=0),
        shard="library:slice_write",
        jvp="indexing:slice_write_jvp",
        transpose="indexing:slice_write",
        batch="movement:slice_write",
        policy=KEEP,
        interval=IntervalRule(lambda query: query.operands[0].hull(query.operands[1]), is_exact=True),
    ),
)
