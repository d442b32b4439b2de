"""Collectives by mesh axis: all_reduce, all_gather, reduce_scatter, all_to_all; the rank, and replicated values.

A program is written for one rank; `size` is how many ranks the mesh axis has. A reference takes the arrays of all ranks
of that axis in order and gives the results of all, so a world of one rank is an ordinary call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.arrays import RANK_REDUCTIONS, Array, reduce_ranks, static
from tessera.ir.base.index_maps import coordinates
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import KEEP, NUMBERS, Attribute, Attributes, Builder, Cost, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Types, constant, same_dim, visits
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import View
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import TensorType, normalize_axis, path
from tessera.types.sharding import Sharding

MESH = (
    Attribute("axis", "str", doc="name of the mesh axis"),
    Attribute("size", "dims", doc="how many ranks that axis has, as one dim"),
)
REDUCE = Attribute("op", "str", "sum", "sum, prod, max, min or mean, reduced in the order of the ranks")


def mesh_size(ctx: InferContext, op: str, attributes: Attributes) -> Dim:
    """The size of the mesh axis; raises where axis or size are not given as they should be."""
    if not attributes["axis"]:
        raise ctx.fail(f"`{op}` needs the name of a mesh axis")
    if len(attributes["size"]) != 1:
        raise ctx.fail(f"`{op}` needs the size of mesh axis `{attributes['axis']}` as one dim")
    size = Dim.of(attributes["size"][0])
    if size.value is not None and size.value < 1:
        raise ctx.fail(f"`{op}`: mesh axis `{attributes['axis']}` has {size} ranks")
    return size


def _check_reduction(ctx: InferContext, op: str, x: TensorType, attributes: Attributes) -> None:
    if attributes["op"] not in RANK_REDUCTIONS:
        raise ctx.fail(f"`{op}` reduces with {', '.join(RANK_REDUCTIONS)}, not {attributes['op']!r}")
    if x.dtype.is_bool:
        raise ctx.fail_dtype(f"`{op}` reduces numbers, got bool", help='cast it, as in `x.cast("i32")`')
    if attributes["op"] == "mean" and not x.dtype.is_float:
        raise ctx.fail_dtype(f"`{op}` gives means of floats, got {x.dtype}", help='cast it, as in `x.cast("f32")`')


def _part_of_rank(ctx: InferContext, op: str, x: TensorType, axis: int, size: Dim, mesh: str) -> Dim:
    """The part of one rank of an axis that is split among the ranks."""
    part = x.shape[axis] // size
    same_dim(
        ctx,
        x.shape[axis],
        part * size,
        f"`{op}` divides {path('x', axis, x.shape[axis])} among the {size} ranks of `{mesh}`, which must come out even",
    )
    return part


def _resize(x: TensorType, axis: int, dim: Dim) -> TensorType:
    return x.with_shape(dim if own == axis else other for own, other in enumerate(x.shape))


def _infer_all_reduce(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    mesh_size(ctx, "all_reduce", attributes)
    _check_reduction(ctx, "all_reduce", types[0], attributes)
    return [types[0]]


def _infer_all_gather(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    size = mesh_size(ctx, "all_gather", attributes)
    axis = normalize_axis(ctx, "all_gather", attributes["dim"], x.rank)
    return [_resize(x, axis, x.shape[axis] * size)]


def _infer_reduce_scatter(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    size = mesh_size(ctx, "reduce_scatter", attributes)
    _check_reduction(ctx, "reduce_scatter", x, attributes)
    axis = normalize_axis(ctx, "reduce_scatter", attributes["dim"], x.rank)
    return [_resize(x, axis, _part_of_rank(ctx, "reduce_scatter", x, axis, size, attributes["axis"]))]


def _infer_all_to_all(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    size = mesh_size(ctx, "all_to_all", attributes)
    split = normalize_axis(ctx, "all_to_all", attributes["split"], x.rank)
    joined = normalize_axis(ctx, "all_to_all", attributes["concat"], x.rank)
    cut = _resize(x, split, _part_of_rank(ctx, "all_to_all", x, split, size, attributes["axis"]))
    return [_resize(cut, joined, cut.shape[joined] * size)]


def _world(ranks: Sequence[Array], size: Sequence[Dim | int]) -> None:
    if size and len(ranks) != static(size[0]):
        raise ValueError(f"the mesh axis has {static(size[0])} ranks, got the arrays of {len(ranks)}")


def all_reduce_reference(*ranks: Array, axis: str, size: Sequence[Dim], op: str = "sum") -> tuple[Array, ...]:
    """The reduction over all ranks, rank 0 first, on every rank; narrow floats are reduced in f32 and rounded once.

    A mean is the sum divided by the number of ranks, before it is rounded.
    """
    _world(ranks, size)
    return (reduce_ranks(ranks, op),) * len(ranks)


def all_gather_reference(
    *ranks: Array, axis: str, size: Sequence[Dim], dim: int = 0, purpose: str = ""
) -> tuple[Array, ...]:
    """The arrays of all ranks one after the other, on every rank."""
    _world(ranks, size)
    return (np.concatenate(ranks, dim),) * len(ranks)


def reduce_scatter_reference(
    *ranks: Array, axis: str, size: Sequence[Dim], dim: int = 0, op: str = "sum"
) -> tuple[Array, ...]:
    """The reduction over all ranks, rank r keeping its r-th part."""
    _world(ranks, size)
    return tuple(np.ascontiguousarray(part) for part in np.split(reduce_ranks(ranks, op), len(ranks), dim))


def all_to_all_reference(
    *ranks: Array, axis: str, size: Sequence[Dim], split: int = 0, concat: int = 0, purpose: str = ""
) -> tuple[Array, ...]:
    """Rank r gets the r-th part of every rank, one after the other."""
    _world(ranks, size)
    parts = [np.split(x, len(ranks), split) for x in ranks]
    return tuple(np.concatenate([own[rank] for own in parts], concat) for rank in range(len(ranks)))


def _infer_axis_index(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    mesh_size(ctx, "axis_index", attributes)
    return [TensorType((), dt.i64)]


def _decompose_axis_index(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """The only rank of an axis is the first; of several, the host program asks which one it runs as."""
    (size,) = attributes["size"]
    return constant(b, 0, dt.i64) if size.value == 1 else None


def axis_index_reference(*, axis: str, size: Sequence[Dim]) -> Array:
    """In a world of one rank."""
    return np.array(0, np.int64)


def _infer_replicated(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    mesh_size(ctx, "replicated", attributes)
    return [types[0]]


def _decompose_replicated(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return operands[0]


def replicated_reference(x: Array, *, axis: str, size: Sequence[Dim]) -> Array:
    """A promise changes nothing."""
    return x.copy()


def _infer_shard(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    try:
        rank = len(Sharding.parse(attributes["sharding"]).dims)
    except ShardingError as error:
        raise ctx.fail(error.message) from error
    if rank != x.rank:
        raise ctx.fail(f"`shard` has axes for {rank} dims, and `x` is {x} of {x.rank}")
    return [x]


def shard_reference(x: Array, *, sharding: str) -> Array:
    """Where a tensor is kept does not change it."""
    return x.copy()


def _cost_nothing(operands: Types, results: Types, attributes: Attributes) -> Cost:
    return Cost(Dim.constant(0), Dim.constant(0))


def _collective(name: str, summary: str, extra: tuple[Attribute, ...], infer: Any, reference: Any) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(*MESH, *extra),
        infer=infer,
        reference=reference,
        effects=frozenset({"collective"}),
        samples=(Sample("one rank", normal((4, 6)), {"axis": "dp", "size": (Dim.constant(1),)}),),
        dtypes=NUMBERS,
        cost=visits(1),
        policy=KEEP,
        interval=ANYTHING,
        jvp="movement:reduce_jvp" if REDUCE in extra else "linear",
        transpose=f"movement:{name}",
        batch="movement:along_dims",
        shard="library:collective",
    )


DIM = Attribute("dim", "int", 0, "the axis of `x` that grows or is divided")
PURPOSE = Attribute(
    "purpose", "str", "", "the collective that it is a part of; ranks that synchronize must agree on it"
)

SPECS: tuple[OpSpec, ...] = (
    _collective(
        "all_reduce",
        "The reduction of `x` over all ranks of a mesh axis, on each of them.",
        (REDUCE,),
        _infer_all_reduce,
        all_reduce_reference,
    ),
    _collective(
        "all_gather",
        "`x` of all ranks of a mesh axis, one after the other.",
        (DIM, PURPOSE),
        _infer_all_gather,
        all_gather_reference,
    ),
    _collective(
        "reduce_scatter",
        "The reduction of `x` over all ranks of a mesh axis, each rank keeping its part.",
        (DIM, REDUCE),
        _infer_reduce_scatter,
        reduce_scatter_reference,
    ),
    _collective(
        "all_to_all",
        "Part r of `x` goes to rank r of a mesh axis, and the parts that come in are joined.",
        (
            Attribute("split", "int", 0, "the axis that is divided among the ranks"),
            Attribute("concat", "int", 0, "the axis along which what comes in is joined"),
            PURPOSE,
        ),
        _infer_all_to_all,
        all_to_all_reference,
    ),
    OpSpec(
        name="tgraph.axis_index",
        summary="The number of this rank along a mesh axis.",
        attributes=MESH,
        infer=_infer_axis_index,
        reference=axis_index_reference,
        samples=(Sample("one rank", lambda _: [], {"axis": "dp", "size": (Dim.constant(1),)}),),
        cost=_cost_nothing,
        decompose=_decompose_axis_index,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.replicated",
        summary="`x`, which its author promises is the same on all ranks of a mesh axis.",
        operands=("x",),
        attributes=MESH,
        infer=_infer_replicated,
        reference=replicated_reference,
        samples=(Sample("one rank", normal((4, 6)), {"axis": "dp", "size": (Dim.constant(1),)}),),
        dtypes=NUMBERS,
        cost=_cost_nothing,
        decompose=_decompose_replicated,
        policy=KEEP,
        interval=SAME,
    ),
    OpSpec(
        name="tgraph.shard",
        summary="`x`, which is sharded over a mesh as `sharding` says where the program is partitioned.",
        operands=("x",),
        attributes=(Attribute("sharding", "str", doc="axes of each dim in braces, as in `[{dp}, {}]`"),),
        infer=_infer_shard,
        reference=shard_reference,
        samples=(Sample("rows", normal((4, 6)), {"sharding": "[{dp}, {}]"}),),
        dtypes=NUMBERS,
        cost=_cost_nothing,
        lower=View(lambda x, outs, attributes: [coordinates(x.rank)]),
        policy=KEEP,
        interval=SAME,
        jvp="linear",
        transpose="movement:shard",
        batch="movement:shard",
    ),
)
