"""Segments of K: how long they are, and the tree that joins what they add up to.

A contraction of a long K with few columns has too little in its result to fill a large machine. Its K is cut into
segments that programs, or ranks, compute apart; their partial results are joined by an aligned binary tree. How long
segments are is decided when an op is first made, from its contracted and its column size alone, and kept by every
rewrite: rows, batch, dtype, fusion and machine change no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, exact, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import INTEGERS, KEEP, Attribute, Attributes, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Types, visits
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim, maximum
from tessera.types.dtype import DType
from tessera.types.shape import TensorType

UNIT, SHORTEST = 256, 1024
"""Segments have a multiple of so many elements, and at least so many."""
MOST_SEGMENTS = 128
_MACHINE = 132 * 128 * 128
"""Elements of a result that fills a large GPU: a block of 128 x 128 for each of 132 multiprocessors."""
_LONG = 3
"""A segment has at least so many times as many elements as the result has columns."""


def segment_length(k: Dim, n: Dim) -> Dim | None:
    """Elements of a segment, from the contracted and the column size alone; None where K is one segment.

    There are as many segments as fill the machine where the result is square, unless that makes them too short: what is
    written and read for a partial result is then no longer little beside what is computed for it.
    """
    shortest = maximum(SHORTEST, n * _LONG, k * maximum(n * n, _MACHINE // MOST_SEGMENTS) // _MACHINE)
    # Of any K: two segments have at least 2 * _LONG * n elements, and beside a result that is so wide there is one.
    is_wide = n.value is not None and _LONG * n.value * (2 * n.value**2 - _MACHINE) >= _MACHINE
    is_short = k.value is not None and k.value < 2 * max(SHORTEST, _LONG * (n.value or 0))
    if is_wide or is_short:
        return None
    return k.ceildiv(maximum(1, k // shortest) * UNIT) * UNIT


def join_segments(parts: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Partial results joined by an aligned binary tree, neighbours first; one without a neighbour goes up as it is."""
    while len(parts) > 1:
        paired = [add(parts[at], parts[at + 1]) for at in range(0, len(parts) - 1, 2)]
        parts = [*paired, *parts[2 * len(paired) :]]
    return parts[0]


def _infer_join(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (parts,), dtype = types, attributes["dtype"]
    if not parts.rank or parts.shape[0].value == 0:
        raise ctx.fail(f"`join_segments` takes partial results along its first axis, got {parts}")
    if (parts.shape[0].value or 0) > MOST_SEGMENTS:
        raise ctx.fail(f"`join_segments` takes {MOST_SEGMENTS} partial results at most, got {parts.shape[0]}")
    if parts.dtype.is_bool or dtype.is_bool or parts.dtype.is_float != dtype.is_float:
        raise ctx.fail_dtype(f"`join_segments` cannot add {parts.dtype} up to {dtype}", help="cast the result instead")
    if parts.dtype.compute != parts.dtype:
        raise ctx.fail_dtype(f"`join_segments` takes accumulators, and {parts.dtype} is none", help="cast to f32 first")
    return [TensorType(parts.shape[1:], dtype)]


def join_segments_reference(parts: Array, *, dtype: DType) -> Array:
    """The tree in the dtype of the parts, rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        return round_as(exact(np.asarray(join_segments(list(parts), np.add))), dtype)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.join_segments",
        summary="Partial results of a contraction, along the first axis, joined by an aligned binary tree.",
        operands=("parts",),
        attributes=(Attribute("dtype", "dtype", doc="of the result"),),
        infer=_infer_join,
        shard="library:join_segments",
        reference=join_segments_reference,
        samples=(
            Sample("one", normal((1, 3, 4)), {"dtype": dt.f32}),
            Sample("ragged", normal((7, 3, 5)), {"dtype": dt.f32}),
            Sample("many", normal((100, 6)), {"dtype": dt.f32}),
        ),
        dtypes=("f32", "f64", *INTEGERS),
        cost=visits(1),
        lower=Library("join_segments"),
        no_derivative="it is made of contractions behind all transforms",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
