"""Attention of single queries in parts of the keys: all heads that share keys are the rows of one block.

A query alone leaves most rows of a block empty and reads all keys in one program. Here a program has one part of the
keys for all heads of a group, and gives a result and a log-sum-exp for each of them, which the graph joins.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place
from tessera.stdlib.kernels.attention import Attention, NarrowAttention, is_narrow
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum


class _Parts(Attention):
    """The writing of one kernel: programs over batch, heads of keys, blocks of their queries, and parts."""

    @property
    def _group(self) -> Dim:
        """How many queries share a key."""
        return self.heads // self.shared

    @property
    def _part(self) -> int:
        return int(self.call.attributes["keys"])

    @property
    def _is_even(self) -> bool:
        """Whether all parts have as many keys."""
        count = self.call.operands[1].shape[2].value
        return count is not None and count % self._part == 0

    @property
    def _row_count(self) -> Dim:
        return self._group

    @property
    def _key_count(self) -> Dim:
        """Keys from the start of the part on: those of the next are not met where blocks end with the part."""
        if self._is_even:
            return Dim.constant(self._part)
        rest = self.call.operands[1].shape[2] - Dim.symbol("_s")
        return minimum(self._part, rest) if self._part % self.width else rest

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (8, 16, 32)

    def _grid(self) -> list[Dim]:
        parts = self.call.operands[1].shape[2].ceildiv(self._part)
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile), parts]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_g": b.program_id(1), "_i": self._start(2, self.rows.tile)}
        found |= {"_part": b.program_id(3), "_s": self._start(3, self._part)}
        if self.is_cached:
            found["_filled"] = b.fetch(self.call.input(b, 3), self.call.at(3, ()), {})
        return found

    @property
    def is_causal(self) -> bool:
        """A last query sees all keys."""
        return False

    @property
    def _filled(self) -> Dim:
        """How many keys of the part there are; parts beyond the length of a cache have none."""
        if not self.is_cached:
            return self.keys.size
        return maximum(0, minimum(self.keys.size, Dim.symbol("_filled") - Dim.symbol("_s")))

    @property
    def _end(self) -> Dim:
        return minimum(self._part, self._filled)

    @property
    def _head(self) -> Dim:
        return self._group * Dim.symbol("_g") + self.rows.at

    @property
    def _row_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), self._head, Dim.symbol("_part")]

    @property
    def _query_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), self._head, Dim.constant(0), self.depth.at]

    @property
    def _key_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), Dim.symbol("_g"), Dim.symbol("_s") + self.keys.at]


class _NarrowParts(_Parts, NarrowAttention):
    """The same on matrix units, whose blocks have 64 rows: those beyond the group are read, and not written."""

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (64,)

    @property
    def _query_place(self) -> Place:
        place = super()._query_place
        bounds = {**place.bounds, "_i": self.heads - self._group * Dim.symbol("_g")}
        return place.along(place.axes, place.sizes, bounds)

    def _quotient(self, acc: SSAValue, divisor: SSAValue) -> SSAValue:
        """One division for each row: those of a whole block would take as long as some keys."""
        b = self.b
        turned = b.elementwise("div", b.full(1.0, (self.rows.tile,), self.dtype), divisor)
        return b.elementwise("mul", acc, self._across(turned, self.columns.tile))


def _write(call: Call) -> list[SpecOp]:
    return [(_NarrowParts if is_narrow(call) else _Parts)(call).write()]


KERNEL = LibraryKernel("attention_parts", "Attention of single queries, each part of the keys by itself.", _write)
