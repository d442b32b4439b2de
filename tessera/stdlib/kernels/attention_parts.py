"""Attention of single queries over parts of the keys in parallel (Flash-Decoding), and the joining of parts.

A program has a part of the keys of one KV head, and the queries of all heads that share it, so keys are read once. What
it gives is what `Attention` carries from part to part: accumulators, maxima and sums. A second kernel joins them as
that does, in order, so both have the same bits.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileRegion
from tessera.stdlib.kernels.attention import Attention, NarrowAttention, QueryView, bounds_of, is_narrow, join_parts
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum


class _Parts(Attention):
    """Emits one kernel: programs over batch, KV heads, blocks of their queries, and parts."""

    @property
    def _group(self) -> Dim:
        """How many query heads share a KV head."""
        return self.heads // self.shared

    @property
    def _is_even(self) -> bool:
        """Whether all parts have the same number of keys."""
        count = self.call.operands[1].shape[2].value
        return count is not None and count % self.part == 0

    @property
    def _row_count(self) -> Dim:
        return self._group

    @property
    def _key_count(self) -> Dim:
        """Keys from the start of the part on: blocks that end with the part never reach those of the next."""
        if self._is_even:
            return Dim.constant(self.part)
        remaining = self.call.operands[1].shape[2] - Dim.symbol("_s")
        return minimum(self.part, remaining) if self.part % self.width else remaining

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (8, 16, 32)

    def _grid(self) -> list[Dim]:
        parts = self.call.operands[1].shape[2].ceildiv(self.part)
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile), parts]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_g": b.program_id(1), "_i": self._start(2, self.rows.tile)}
        found |= {"_part": b.program_id(3), "_s": self._start(3, self.part)}
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
        return minimum(self.part, self._filled)

    def _attend_all(self, first: SSAValue | None) -> list[SSAValue]:
        return self._attend(first, self.b.index(0), self.b.index(self._round_up(self._end, self.width), self.coords))

    def _finish(self, acc: SSAValue, top: SSAValue, total: SSAValue) -> None:
        region = self._make_region(self.rows, self.columns)
        self.b.store(acc, self.call.output(self.b, 0), [*self._row_at, self.columns.at], region)
        for number, rows in enumerate((top, total), 1):
            self._store_rows(rows, self.call.output(self.b, number))

    @property
    def part(self) -> int:
        return int(self.call.attributes["keys"])

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

    def _view_queries(self) -> QueryView:
        view = super()._view_queries()
        if view.shapes:
            return view
        return QueryView({}, view.at, {**view.bounds, self.rows.name: self.heads - self._group * Dim.symbol("_g")})


ATTENTION_PARTS = LibraryKernel(
    "attention_parts",
    "Attention of single queries, each part of the keys by itself.",
    lambda call: [(_NarrowParts if is_narrow(call) else _Parts)(call).write()],
)


# Joining: a program has some columns of a head, and goes over its parts in order.

_BLOCK = 8
"""Parts that are loaded together at most, before any is joined."""
_COLUMNS = 128


def _write_join(call: Call) -> list[SpecOp]:
    """Programs over batch, heads and columns; a loop over the parts carries the columns of the result."""
    parts, (out,) = call.operands[0], call.results
    count, width = parts.shape[2], parts.shape[3]
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    together = max(1, min(_BLOCK, count.value)) if count.value is not None else _BLOCK
    b = call.builder([*parts.shape[:2], width.ceildiv(columns)])
    start = b.index(Dim.symbol("_p") * columns, {"_p": b.program_id(2)})
    coords = {"_b": b.program_id(0), "_h": b.program_id(1), "_e": start}
    row, dtype = [Dim.symbol("_b"), Dim.symbol("_h")], parts.dtype.compute
    region = TileRegion(coords, ("_e",), (columns,), bounds_of("_e", width, columns))

    def load(number: int, p: SSAValue) -> SSAValue:
        """Of a part that is not there: nothing seen."""
        names = ("_s", "_e") if number == 0 else ("_s",)
        sizes = (1, columns) if number == 0 else (1,)
        bounds = {**region.bounds, **bounds_of("_s", count, together)}
        where = TileRegion({**coords, "_s": p}, names, sizes, {name: bounds[name] for name in names if name in bounds})
        pad = float("-inf") if number == 1 else 0
        at = call.at(number, [*row, *map(Dim.symbol, names)])
        tile = b.load(call.input(b, number), at, where, pad=pad)
        return b.reduce(b.cast(tile, dtype), "sum" if number == 0 else "max", 0)

    def block(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        at = [p, *(b.index(Dim.symbol("_s") + number, {"_s": p}) for number in range(1, together))]
        loaded = [[load(number, index) for number in range(3)] for index in at]
        for part in loaded:
            carried = join_parts(b, carried, part)
        return carried

    nothing = [b.full(0.0, (columns,), dtype), b.full(float("-inf"), (), dtype), b.full(0.0, (), dtype)]
    acc, _, total = b.loop(b.index(0), b.index(count), together, block, nothing)
    none = b.elementwise("eq", total, b.full(0.0, (), dtype))
    divisor = b.select(none, b.full(1.0, (), dtype), total)
    made = b.cast(b.elementwise("div", acc, b.broadcast(divisor, (columns,), ())), out.dtype)
    where = [*row, Dim.constant(0), Dim.symbol("_e")]
    if call.outputs[0] is not None:
        b.store(made, call.output(b, 0), where, region)
    if call.epilogue is not None:
        call.epilogue.store(b, made, region, where)
    return [b.finish()]


ATTENTION_JOIN = LibraryKernel("attention_join", "Parts of an attention, joined in order.", _write_join)
