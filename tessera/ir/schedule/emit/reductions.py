"""Reductions along a loop: what a loop carries, how a tile is accumulated, and how the lanes are reduced at the end.

The lanes are an accumulator tile whose first axis is as long as a step of the loop: step by step each lane combines its
own elements, and after the loop the lanes are reduced by an aligned tree. That order is part of a program's meaning
(docs/guide/numerics.md), so it does not depend on the machine. What reaches over the end of a row is replaced by the
identity. For argmax and argmin a second tile carries the indices; ties take the lower index, and NaN propagates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.tape import Record, Tape
from tessera.ir.tile.facets import Reduction
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim
from tessera.types.dtype import DType, i64
from tessera.types.frozen import frozen

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
_NO_INDEX = (1 << 63) - 1
"""The index of an empty row while it is reduced: above all others."""


def identity(kind: str, dtype: DType) -> Any:
    """The result of a reduction of no elements."""
    if kind in ("sum", "any"):
        return False if dtype.is_bool else 0
    if kind in ("prod", "all"):
        return True if dtype.is_bool else 1
    highest = kind in ("min", "argmin")
    if dtype.is_float:
        return math.inf if highest else -math.inf
    if dtype.is_bool:
        return highest
    if dtype.kind == "uint":
        return (1 << dtype.bits) - 1 if highest else 0
    return (1 << (dtype.bits - 1)) - 1 if highest else -(1 << (dtype.bits - 1))


@frozen
class Reducer:
    """One reduction of a pass: its lanes are a tile whose first axis is reduced at the end."""

    tile: TileBuilder
    record: Record
    body: Tape
    lower: Reduction
    shape: tuple[int, ...]

    @property
    def is_argreduce(self) -> bool:
        return self.lower.kind in ("argmax", "argmin")

    @property
    def width(self) -> int:
        """How many tiles are carried."""
        return len(self.dtypes)

    @property
    def dtype(self) -> DType:
        """The accumulator's dtype: the operand's compute dtype for min and max, the result's for a sum."""
        if self.is_argreduce or self.lower.kind in ("max", "min"):
            return self.body.types[self.record.operands[0]].dtype.compute
        if self._asked is not None:
            return self._asked.compute
        return self.body.types[self.record.results[0]].dtype.compute

    @property
    def _asked(self) -> DType | None:
        """The accumulator dtype that the op states, if it states one."""
        return self.record.attributes.get("accumulate")

    @property
    def dtypes(self) -> list[DType]:
        """The dtypes of the tiles that are carried."""
        return [self.dtype, i64] if self.is_argreduce else [self.dtype]

    def start(self) -> list[SSAValue]:
        self.tile.span = self.record.span
        first = self.tile.full(identity(self.lower.kind, self.dtype), self.shape, self.dtype)
        return [first, self.tile.full(_NO_INDEX, self.shape, i64)] if self.is_argreduce else [first]

    def step(self, carried: Sequence[SSAValue], operand: SSAValue, place: Place) -> list[SSAValue]:
        tile = self.tile
        tile.span = self.record.span
        value = tile.cast(operand, self.dtype)
        value = tile.clip(value, "_r", identity(self.lower.kind, self.dtype), place)
        if not self.is_argreduce:
            joined = tile.elementwise(_JOIN[self.lower.kind], carried[0], value)
            is_narrow = self._asked is not None and self._asked.compute is not self._asked
            return [tile.round(joined, format=str(self._asked)) if is_narrow else joined]
        best, at = carried
        here = tile.coordinate_of(Dim.symbol("_r"), place)
        beats = tile.elementwise("gt" if self.lower.kind == "argmax" else "lt", value, best)
        ties = tile.elementwise("and", tile.elementwise("eq", value, best), tile.elementwise("lt", here, at))
        takes = tile.elementwise("or", beats, ties)
        if self.dtype.is_float:
            was_number = tile.elementwise("eq", best, best)
            takes = tile.elementwise("or", takes, tile.elementwise("and", tile.elementwise("isnan", value), was_number))
        return [tile.select(takes, value, best), tile.select(takes, here, at)]

    def finish(self, carried: Sequence[SSAValue]) -> SSAValue:
        self.tile.span = self.record.span
        out = self.body.types[self.record.results[0]].dtype
        if self.is_argreduce:
            index = self.tile.arg_reduce(carried[0], carried[1], self.lower.kind, 0)
            # The index of an empty row is 0.
            shape = self.shape[1:]
            is_empty = self.tile.elementwise("eq", index, self.tile.full(_NO_INDEX, shape, i64))
            return self.tile.cast(self.tile.select(is_empty, self.tile.full(0, shape, i64), index), out)
        return self.tile.cast(self.tile.reduce(carried[0], self.lower.kind, 0), out)
