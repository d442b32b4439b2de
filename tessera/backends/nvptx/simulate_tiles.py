"""What consumers of a matrix kernel compute, on NumPy: elements of fragments, coordinates, loads and stores.

A consumer has its share of the rows of every tile, one after the other, and all of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from tessera.backends.nvptx.types import ColumnVectorAttr
from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.tile.indexing import along, cells_of, evaluate


def multiplied(op: SpecOp, acc: Array, left: Array, right: Array, rows: slice) -> Array:
    """`acc + left @ right`, sides as they lie, of some rows of the left one; a right side may be wider than the sum."""
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    a = wide_left if op.value("lhs_major") == "k" else wide_left.T
    b = wide_right.T if op.value("rhs_major") == "k" else wide_right
    with np.errstate(invalid="ignore"):
        return (acc.astype(np.float64) + a[rows] @ b[:, : acc.shape[1]]).astype(acc.dtype)


class Tiles:
    """The values of one role: of a tile in registers, consumer `consumer` of `consumers` has its rows."""

    def __init__(self, values: dict[SSAValue, Any], sizes: dict[str, int], consumer: int, consumers: int) -> None:
        self.values, self.sizes = values, sizes
        self.consumer, self.consumers = consumer, consumers

    def of(self, values: Sequence[SSAValue]) -> list[Any]:
        """What is known of values."""
        return [self.values[value] for value in values]

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape of what this consumer has of a tile."""
        assert isinstance(value.type, ShapedAttr)
        sizes = [dim.value or 0 for dim in value.type.shape]
        if sizes and not isinstance(value.type, ColumnVectorAttr):
            sizes[0] //= self.consumers
        return tuple(sizes)

    def rows(self, count: int) -> slice:
        """Which of so many rows are this consumer's."""
        share = count // self.consumers
        return slice(share * self.consumer, share * (self.consumer + 1))

    # Elements.

    def on_constant(self, op: SpecOp) -> list[Any]:
        given = op.value("value")
        number = given if isinstance(given, bool | int | float) else given.evaluate(self.sizes)
        return [np.full(self.shape(op.result), number, numpy_dtype(_dtype(op.result)))]

    def on_elementwise(self, op: SpecOp) -> list[Any]:
        return [scalars.apply(op.value("fn"), self.of(op.operands), _dtype(op.operands[0]))]

    def on_cast(self, op: SpecOp) -> list[Any]:
        return [scalars.cast(self.values[op.operands[0]], dtype=_dtype(op.result))]

    def on_select(self, op: SpecOp) -> list[Any]:
        return [np.where(*self.of(op.operands))]

    def on_broadcast(self, op: SpecOp) -> list[Any]:
        tile, shape = self.values[op.operands[0]], self.shape(op.result)
        axes: tuple[int, ...] = op.value("axes")
        sizes = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        return [np.broadcast_to(tile.reshape(sizes), shape).copy()]

    def on_reduce_rows(self, op: SpecOp) -> list[Any]:
        fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[op.value("kind")]
        tile = self.values[op.operands[0]]
        return [fold(tile.astype(np.float64), axis=1).astype(tile.dtype)]

    def on_partial_rows(self, op: SpecOp) -> list[Any]:
        return [np.zeros(self.shape(op.result), numpy_dtype(_dtype(op.result)))]

    def on_grow_rows(self, op: SpecOp) -> list[Any]:
        sums, factors, tile = (part.astype(np.float64) for part in self.of(op.operands))
        return [(sums * factors + tile.sum(axis=1)).astype(np.float32)]

    def on_join_rows(self, op: SpecOp) -> list[Any]:
        return self.of(op.operands)

    # Memory.

    def _env(self, op: SpecOp, first: int, tile: SSAValue) -> dict[str, Any]:
        """What each name stands for at every element of a tile."""
        coords = dict(zip(op.value("coords"), self.of(op.operands[first:]), strict=True))
        axes, shape = op.value("axes"), self.shape(tile)
        if shape and not isinstance(tile.type, ColumnVectorAttr):
            coords[axes[0]] += shape[0] * self.consumer
        return along(coords, axes, shape, self.sizes)

    def on_coordinate(self, op: SpecOp) -> list[Any]:
        shape = self.shape(op.result)
        found = evaluate(op.value("expr"), self._env(op, 0, op.result))
        return [np.broadcast_to(np.asarray(found), shape).astype(numpy_dtype(_dtype(op.result)))]

    def on_clip(self, op: SpecOp) -> list[Any]:
        tile = self.values[op.operands[0]]
        env = self._env(op, 1, op.result)
        is_inside = np.broadcast_to(env[op.value("axis")] < evaluate(op.value("bound"), env), tile.shape)
        return [np.where(is_inside, tile, np.asarray(op.value("identity"), tile.dtype))]

    def on_fragment_load(self, op: SpecOp) -> list[Any]:
        buffer, shape = self.values[op.operands[0]], self.shape(op.result)
        cells = cells_of({**op.values()}, self._env(op, 1, op.result), shape, ())
        made = np.full(shape, op.value("pad"), buffer.dtype)
        made[cells.inside] = buffer[tuple(index[cells.inside] for index in cells.indices)]
        return [made]

    def on_fragment_store(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[1], 2)
        return []

    def on_store_tile(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[3], 4)
        return []

    def _put(self, op: SpecOp, target: SSAValue, first: int) -> None:
        tile, buffer = self.values[op.operands[0]], self.values[target]
        assert isinstance(target.type, BufferAttr)
        cells = cells_of({"windows": (), **op.values()}, self._env(op, first, op.operands[0]), tile.shape, ())
        buffer[tuple(index[cells.inside] for index in cells.indices)] = tile[cells.inside]


def _dtype(value: SSAValue) -> Any:
    assert isinstance(value.type, ShapedAttr)
    return value.type.dtype
