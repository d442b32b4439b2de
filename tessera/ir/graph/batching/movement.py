"""Batching of ops that move elements, of reads and writes by index, and of what works row by row."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Builder
from tessera.ir.graph.batching.shared import BatchedOp, align, first_axis, move_to_front
from tessera.ir.graph.building import axes_attribute, slice_indices
from tessera.ir.graph.transforms.batch import Batched
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import ONE, ZERO


def reshape(b: Builder, op: BatchedOp) -> Any:
    """To the shape behind the batch."""
    return b.emit("reshape", op.operands[0], shape=(op.size, *op.attributes["shape"]))


def transpose(b: Builder, op: BatchedOp) -> Any:
    """The batch stays first."""
    return b.emit("transpose", op.operands[0], axes=(0, *(axis + 1 for axis in axes_attribute(op.attributes, "axes"))))


def broadcast_to(b: Builder, op: BatchedOp) -> Any:
    """Axes that are added come behind the batch."""
    shape = tuple(op.attributes["shape"])
    return b.emit("broadcast_to", align(b, op, 0, len(shape)), shape=(op.size, *shape))


def _move_axes(b: Builder, op: BatchedOp) -> Any:
    rank = op.rank(b, 0)
    return op.emit(b, op.operands[0], axes=tuple(axis % max(rank, 1) + 1 for axis in op.attributes["axes"]))


flip = roll = squeeze = _move_axes
repeat = split = first_axis


def expand_dims(b: Builder, op: BatchedOp) -> Any:
    """Axes count in the result, behind the batch."""
    axes = axes_attribute(op.attributes, "axes")
    rank = op.rank(b, 0) + len(axes)
    return op.emit(b, op.operands[0], axes=tuple(axis % rank + 1 for axis in axes))


def slice(b: Builder, op: BatchedOp) -> Any:
    """All of the batch."""
    start, stop, step = (tuple(op.attributes[name]) for name in ("start", "stop", "step"))
    return b.emit("slice", op.operands[0], start=(ZERO, *start), stop=(op.size, *stop), step=(1, *step))


def tile(b: Builder, op: BatchedOp) -> Any:
    """The batch once."""
    reps = axes_attribute(op.attributes, "reps")
    value = align(b, op, 0, len(reps))
    missing = (1,) * (b.type_of(value).rank - 1 - len(reps))
    return op.emit(b, value, reps=(1, *missing, *reps))


def prefetch(b: Builder, op: BatchedOp) -> Any:
    """The same of all."""
    return op.emit(b, op.operands[0])


stop_gradient = checkpoint_name = prefetch


def shard(b: Builder, op: BatchedOp) -> Any:
    """Every rank has the whole batch of its part."""
    return op.emit(b, op.operands[0], sharding="[{}, " + op.attributes["sharding"].removeprefix("["))


def optimization_barrier(b: Builder, op: BatchedOp) -> Any:
    """The same of all; what is waited for has no part in the result."""
    made = op.emit(b, *op.operands)
    return made if op.is_batched[0] else Batched(made, False)


def diagonal(b: Builder, op: BatchedOp) -> Any:
    """The two axes behind the batch."""
    axes = {name: int(op.attributes[name]) % op.rank(b, 0) + 1 for name in ("axis1", "axis2")}
    return op.emit(b, op.operands[0], **axes)


def pad(b: Builder, op: BatchedOp) -> Any:
    """Nothing around the batch."""
    low, high = ((Dim.of(0), *map(Dim.of, op.attributes[name])) for name in ("low", "high"))
    return op.emit(b, op.operands[0], low=low, high=high)


def join(b: Builder, op: BatchedOp) -> Any:
    """Of `concat` and `stack`: along the axis behind."""
    given = [op.whole(b, at) for at in range(len(op.operands))]
    return op.emit(b, *given, axis=int(op.attributes["axis"]) + 1)


def triangle(b: Builder, op: BatchedOp) -> Any:
    """Matrices are the last two axes."""
    return op.emit(b, op.operands[0])


def along_dims(b: Builder, op: BatchedOp) -> Any:
    """Of a collective: the axes it names are those behind the batch."""
    rank = op.rank(b, 0)
    names = [name for name in ("dim", "split", "concat") if name in op.attributes]
    return op.emit(b, op.operands[0], **{name: int(op.attributes[name]) % rank + 1 for name in names})


def sort_rows(b: Builder, op: BatchedOp) -> Any:
    """Rows of all of the batch, one after the other."""
    size, rows, columns = b.type_of(op.operands[0]).shape
    made = op.emit(b, b.emit("reshape", op.operands[0], shape=(size * rows, columns)))
    return [b.emit("reshape", one, shape=(size, rows, b.type_of(one).shape[1])) for one in made]


# Reads and writes by index.


def take_along(b: Builder, op: BatchedOp) -> Any:
    """Other axes broadcast, and so does the batch."""
    rank = op.rank(b, 0)
    given = [
        value if is_batched else b.emit("reshape", value, shape=(ONE, *b.type_of(value).shape))
        for value, is_batched in zip(op.operands, op.is_batched, strict=True)
    ]
    return op.emit(b, *given, axis=int(op.attributes["axis"]) % rank + 1)


def index_legal(b: Builder, op: BatchedOp) -> Any:
    """With indices of its own each element of the batch reads its own part: the batch is indexed too."""
    axes, at = axes_attribute(op.attributes, "axes"), int(op.attributes["out_axis"])
    indices = op.operands[1:]
    if not any(op.is_batched[1:]):
        return op.emit(b, op.operands[0], *indices, axes=tuple(axis + 1 for axis in axes), out_axis=at + 1)
    rank = max(op.rank(b, number) for number in range(1, len(op.operands)))
    joined = [align(b, op, number, rank) for number in range(1, len(op.operands))]
    if not op.is_batched[0]:
        return move_to_front(b, op.emit(b, op.operands[0], *joined), at)
    own = b.emit("iota", shape=(op.size, *(ONE,) * rank), axis=0, dtype=dt.i64)
    out = op.emit(b, op.operands[0], own, *joined, axes=(0, *(axis + 1 for axis in axes)), out_axis=at)
    return move_to_front(b, out, at)


def slice_legal(b: Builder, op: BatchedOp) -> Any:
    """With starts of its own each element of the batch is read by index."""
    axes, starts = axes_attribute(op.attributes, "axes"), list(op.operands[1:])
    if not any(op.is_batched[1:]):
        return op.emit(b, op.operands[0], *starts, axes=tuple(axis + 1 for axis in axes))
    first, last = axes[0], axes[-1]
    own = b.type_of(op.operands[0]).shape[op.is_batched[0] :]
    shape = [dict(zip(axes, op.attributes["lengths"], strict=True)).get(axis, dim) for axis, dim in enumerate(own)]
    indices = slice_indices(b, starts, tuple(shape), axes)
    every = tuple(range(first, last + 1))
    if not op.is_batched[0]:
        return move_to_front(b, b.emit("index_legal", op.operands[0], *indices, axes=every, out_axis=first), first)
    batch = b.emit("iota", shape=(op.size, *(ONE for _ in every)), axis=0, dtype=dt.i64)
    places = {"axes": (0, *(axis + 1 for axis in every)), "out_axis": first}
    return move_to_front(b, b.emit("index_legal", op.operands[0], batch, *indices, **places), first)


def slice_write(b: Builder, op: BatchedOp) -> Any:
    """With starts of its own each element of the batch is written by index."""
    axes = axes_attribute(op.attributes, "axes")
    x, update = (op.whole(b, at) for at in (0, 1))
    if not any(op.is_batched[2:]):
        return op.emit(b, x, update, *op.operands[2:], axes=tuple(axis + 1 for axis in axes))
    first, every = axes[0], range(axes[0], axes[-1] + 1)
    indices = slice_indices(b, op.operands[2:], b.type_of(update).shape[1:], axes)
    batch = b.emit("iota", shape=(op.size, *(ONE for _ in every)), axis=0, dtype=dt.i64)
    order = (*range(1, first + 1), 0, *range(first + 1, b.type_of(update).rank))
    places = {"axes": (0, *(axis + 1 for axis in every)), "out_axis": first, "mode": "drop"}
    return b.emit("index_put", x, b.emit("transpose", update, axes=order), batch, *indices, reduce="set", **places)


def scatter_rows(b: Builder, op: BatchedOp) -> Any:
    """[outer, extents, inner]: without indices of its own the batch is outer, else one more axis that is indexed."""
    x, updates, *indices = (op.whole(b, at) if at < 2 else value for at, value in enumerate(op.operands))
    size, outer, *extents, inner = b.type_of(x).shape
    rows = b.type_of(updates).shape[2]
    if not any(op.is_batched[2:]):
        flat = b.emit("reshape", x, shape=(size * outer, *extents, inner))
        out = op.emit(b, flat, b.emit("reshape", updates, shape=(size * outer, rows, inner)), *indices)
        return b.emit("reshape", out, shape=(size, outer, *extents, inner))
    places = [op.whole(b, at) for at in range(2, len(op.operands))]
    kind = b.type_of(places[0]).dtype
    own = b.emit("iota", shape=(size, rows), axis=0, dtype=kind)
    flat_places = [b.emit("reshape", one, shape=(size * rows,)) for one in (own, *places)]
    across = (1, 0, *range(2, len(extents) + 3))
    out = op.emit(
        b,
        b.emit("transpose", x, axes=across),
        b.emit("reshape", b.emit("transpose", updates, axes=(1, 0, 2, 3)), shape=(outer, size * rows, inner)),
        *flat_places,
    )
    return b.emit("transpose", out, axes=across)
