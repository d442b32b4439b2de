"""Split attention for decoding (Flash-Decoding): single queries over parts of the keys, and the combination of parts.

A single query leaves most rows of a block empty and reads all keys in one program. Here the rows of a block are the
heads that share keys, and a program has one part of the keys; it stores a result and a log-sum-exp for each head. The
combining kernel weighs each part by `exp(lse - max lse)` over the sum of all and adds them in order, so that the result
does not depend on when parts finish.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place, TileBuilder
from tessera.stdlib.kernels.attention import Attention, NarrowAttention, is_narrow
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum


class _Parts(Attention):
    """Emits one kernel: programs over batch, KV heads, blocks of their queries, and parts."""

    @property
    def _group(self) -> Dim:
        """How many query heads share a KV head."""
        return self.heads // self.shared

    @property
    def _part(self) -> int:
        return int(self.call.attributes["keys"])

    @property
    def _is_even(self) -> bool:
        """Whether all parts have the same number of keys."""
        count = self.call.operands[1].shape[2].value
        return count is not None and count % self._part == 0

    @property
    def _row_count(self) -> Dim:
        return self._group

    @property
    def _key_count(self) -> Dim:
        """Keys from the start of the part on: blocks that end with the part never reach those of the next."""
        if self._is_even:
            return Dim.constant(self._part)
        remaining = self.call.operands[1].shape[2] - Dim.symbol("_s")
        return minimum(self._part, remaining) if self._part % self.width else remaining

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
        """The last query sees all keys."""
        return False

    @property
    def _filled(self) -> Dim:
        """The number of valid keys of the part; parts beyond the length of a cache have none."""
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
        return [Dim.symbol("_b"), self._head, Dim.constant(0), self.head.at]

    @property
    def _key_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), Dim.symbol("_g"), Dim.symbol("_s") + self.keys.at]


class _NarrowParts(_Parts, NarrowAttention):
    """The same on tensor cores, whose blocks have 64 rows: those beyond the group are read, but not stored."""

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (64,)

    @property
    def _query_place(self) -> Place:
        place = super()._query_place
        bounds = {**place.bounds, "_i": self.heads - self._group * Dim.symbol("_g")}
        return place.along(place.axes, place.sizes, bounds)

    def _quotient(self, acc: SSAValue, divisor: SSAValue) -> SSAValue:
        """One division per row: dividing the whole block would cost as much as several keys."""
        b = self.b
        inverse = b.elementwise("div", b.full(1.0, (self.rows.tile,), self.dtype), divisor)
        return b.elementwise("mul", acc, self._across(inverse, self.columns.tile))


def _write_parts(call: Call) -> list[SpecOp]:
    return [(_NarrowParts if is_narrow(call) else _Parts)(call).write()]


ATTENTION_PARTS = LibraryKernel(
    "attention_parts", "Attention of single queries, each part of the keys by itself.", _write_parts
)


# Combining parts: each is weighed by its fraction of the sum of all exponentials, and they are added in order.

_BLOCK = 32
"""Parts whose maximum and sum are reduced together."""
_COLUMNS = 128
_LOW = float("-inf")


def _write_join(call: Call) -> list[SpecOp]:
    """Programs over batch, heads and columns; a loop over the parts carries the columns of the result."""
    (parts, lse), (out,) = call.operands, call.results
    count, width = parts.shape[2], parts.shape[3]
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    b = call.builder([*parts.shape[:2], width.ceildiv(columns)])
    start = b.index(Dim.symbol("_p") * columns, {"_p": b.program_id(2)})
    coords = {"_b": b.program_id(0), "_h": b.program_id(1), "_e": start}
    row, dtype = [Dim.symbol("_b"), Dim.symbol("_h")], lse.dtype.compute
    bounds = {} if width.value is not None and width.value % columns == 0 else {"_e": width}
    place = Place(coords, ("_e",), (columns,), bounds)

    def logarithms(p: SSAValue) -> tuple[SSAValue, Place]:
        at = Place({**coords, "_s": p}, ("_s",), (_BLOCK,), {"_s": count})
        return b.cast(b.load(call.input(b, 1), call.at(1, [*row, Dim.symbol("_s")]), at), dtype), at

    def larger(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        return [b.elementwise("max", carried[0], b.clip(found, "_s", _LOW, at))]

    low, high = b.index(0), b.index(count)
    tops = b.loop(low, high, _BLOCK, larger, [b.full(_LOW, (_BLOCK,), dtype)])[0]
    top = _finite(call, b, b.reduce(tops, "max", 0))

    def summed(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        weights = b.elementwise("exp", b.elementwise("sub", found, b.broadcast(top, (_BLOCK,), ())))
        return [b.elementwise("add", carried[0], b.clip(weights, "_s", 0.0, at))]

    total = b.reduce(b.loop(low, high, _BLOCK, summed, [b.full(0.0, (_BLOCK,), dtype)])[0], "sum", 0)
    none = b.elementwise("eq", total, b.full(0.0, (), dtype))
    divisor = b.select(none, b.full(1.0, (), dtype), total)

    def joined(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        at = [*row, Dim.symbol("_s")]
        one = b.cast(b.load(call.input(b, 1), call.at(1, at), Place({**coords, "_s": p})), dtype)
        fraction = b.elementwise("div", b.elementwise("exp", b.elementwise("sub", one, top)), divisor)
        part = b.cast(b.load(call.input(b, 0), call.at(0, [*at, Dim.symbol("_e")]), place.with_coords(_s=p)), dtype)
        return [b.elementwise("fma", b.broadcast(fraction, (columns,), ()), part, carried[0])]

    acc = b.loop(low, high, 1, joined, [b.full(0.0, (columns,), dtype)])[0]
    made, where = b.cast(acc, out.dtype), [*row, Dim.constant(0), Dim.symbol("_e")]
    if call.outputs[0] is not None:
        b.store(made, call.output(b, 0), where, place)
    if call.epilogue is not None:
        call.epilogue.store(b, made, place, where)
    return [b.finish()]


def _finite(call: Call, b: TileBuilder, top: SSAValue) -> SSAValue:
    """What to subtract: 0 where a maximum is -inf, since -inf - -inf is NaN."""
    dtype = call.operands[1].dtype.compute
    nothing = b.elementwise("eq", top, b.full(_LOW, (), dtype))
    return b.select(nothing, b.full(0.0, (), dtype), top)


ATTENTION_JOIN = LibraryKernel(
    "attention_join", "Parts of an attention, weighed by their fractions of the sum.", _write_join
)
