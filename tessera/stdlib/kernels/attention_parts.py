"""Attention of single queries over parts of the keys in parallel (Flash-Decoding), and the joining of parts.

A program has a part of the keys of one KV head, and the queries of all heads that share it, so keys are read once. What
it gives is what `Attention` carries from part to part: accumulators, maxima and sums. A second kernel joins them as
that does, in order, so both have the same bits.
"""

from __future__ import annotations

from functools import partial

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileRegion, tile_type
from tessera.stdlib.kernels.attention import (
    Attention,
    NarrowAttention,
    QueryView,
    bounds_of,
    divide_rows,
    is_narrow,
    join_factors,
    join_parts,
)
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.shape import TensorType


def share_parts(heads: int, parts: int, blocks: int) -> int:
    """How many programs share the parts of each head: the fewest of those that so many blocks do soonest.

    The start and the end of a program take as long as a quarter of a part.
    """

    def time_of(count: int) -> tuple[int, int]:
        return -(-heads * count // blocks) * (4 * -(-parts // count) + 1), count

    return min(range(1, max(parts, 1) + 1), key=time_of)


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
        # Keys are read once for each block of queries: a block has as many as there are, up to what threads hold.
        rows, sizes = self._row_count.value or 1, (8, 16, 32)
        return tuple(sorted(sizes, key=lambda size: (-(-rows // size), size)))

    @property
    def _part_count(self) -> Dim:
        return self.call.operands[1].shape[2].ceildiv(self.part)

    @property
    def _stride(self) -> int:
        """How many programs share the parts of a head, where each takes several; 0 where each takes one.

        On a GPU copies of a program run ahead of its dots, over all of its parts, and one that has none to read is
        soon done, so that there are no more programs than multiprocessors need to be done at the same time.
        """
        heads, count = self.batch * self.shared * self.rows.size.ceildiv(self.rows.tile), self._part_count.value
        blocks = self._blocks
        return share_parts(heads.value or 1, count or blocks, blocks) if blocks else 0

    @property
    def _blocks(self) -> int:
        """Programs that run at a time: several on a multiprocessor, whose threads wait for memory themselves."""
        return 4 * self.call.machine.blocks

    def _grid(self) -> list[Dim]:
        parts = minimum(self._part_count, self._stride) if self._stride else self._part_count
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile), parts]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_g": b.program_id(1), "_i": self._start(2, self.rows.tile)}
        if not self._stride:
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

    def write(self) -> SpecOp:
        if not self._stride:
            return super().write()
        b = self.b
        first = self._queries(b.index(0)) if self._has_first else None

        def attend_part(part: SSAValue, _: list[SSAValue]) -> list[SSAValue]:
            self.coords |= {"_part": part, "_s": b.index(Dim.symbol("_p") * self.part, {"_p": part})}
            self._finish(*self._attend_all(first))
            return []

        # The join reads nothing of parts beyond the length of a cache.
        end = (
            minimum(self._part_count, maximum(0, Dim.symbol("_filled")).ceildiv(self.part)) if self.is_cached else None
        )
        b.loop(b.program_id(3), b.index(end or self._part_count, self.coords), self._stride, attend_part)
        return b.finish()

    def _attend_all(self, first: SSAValue | None) -> list[SSAValue]:
        return self._attend(first, self.b.index(0), self.b.index(self._round_up(self._end, self.width), self.coords))

    def _finish(self, *found: SSAValue) -> None:
        acc, top, total = found
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
    def _blocks(self) -> int:
        return self.call.machine.blocks

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (64,)

    def _view_queries(self) -> QueryView:
        view = super()._view_queries()
        if view.shapes:
            return view
        return QueryView({}, view.at, {**view.bounds, self.rows.name: self.heads - self._group * Dim.symbol("_g")})


class GroupedAttention(NarrowAttention):
    """Attention of single queries on tensor cores, all keys in one program: rows are the heads of a group.

    They see the same keys, which are copied once for all of them; `causal` hides nothing from a last query.
    """

    @staticmethod
    def takes(call: Call) -> bool:
        """Whether heads of queries share those of keys, each with one query, and programs have them as rows."""
        q, k = call.operands[:2]
        group = (q.shape[1] // k.shape[1]).value if k.shape[1].value != 0 else None
        return "wgmma" in call.features and q.shape[2].value == 1 and group is not None and group > 1

    @property
    def _group(self) -> Dim:
        return self.heads // self.shared

    @property
    def _row_count(self) -> Dim:
        return self._group

    def _grid(self) -> list[Dim]:
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile)]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_g": b.program_id(1), "_i": self._start(2, self.rows.tile)}
        if self.is_cached:
            found["_filled"] = b.fetch(self.call.input(b, 3), self.call.at(3, ()), {})
        return found

    @property
    def is_causal(self) -> bool:
        """The last query sees all keys."""
        return False

    @property
    def _row_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), self._group * Dim.symbol("_g") + self.rows.at, Dim.constant(0)]

    def _mask_at(self, mask: TensorType) -> list[Dim]:
        place = {"_h": self._row_at[1], "_i": Dim.constant(0)}
        return [expr.substitute(place) for expr in super()._mask_at(mask)]

    def _view_queries(self) -> QueryView:
        """Heads of a group as a dim of their own where memory has them so, or else those that follow as well."""
        view, number = super()._view_queries(), self.call.inputs[0]
        if view.shapes:
            return view
        size, is_alone = self.head.size, self.call.epilogue is None and self.call.inputs.count(number) == 1
        is_plain = list(self.call.arguments[number].shape) == [self.batch, self.heads, Dim.constant(1), size]
        if is_alone and is_plain and list(view.at) == self._query_at:
            at = [Dim.symbol("_b"), Dim.symbol("_g"), self.rows.at, self.head.at]
            return QueryView({number: [self.batch, self.shared, self._group, size]}, at, view.bounds)
        # Rows beyond the group are read, but not stored.
        return QueryView({}, view.at, {**view.bounds, self.rows.name: self.heads - self._group * Dim.symbol("_g")})


ATTENTION_PARTS = LibraryKernel(
    "attention_parts",
    "Attention of single queries, each part of the keys by itself.",
    lambda call: [(_NarrowParts if is_narrow(call) else _Parts)(call).write()],
)


# Joining: a program has some columns of a head, and goes over its parts in order.

_BLOCK = 8
"""Parts that are loaded together at most, before any is joined."""
_LANES, _LANE_BLOCK = 32, 64
"""The same where lanes have a part each while factors are computed: twice as many, each thread with one column."""
_COLUMNS = 128


class _Join:
    """Programs over batch, heads and columns; a loop over the parts carries the columns of the result."""

    def __init__(self, call: Call) -> None:
        self.call = call
        parts = call.operands[0]
        self.count, self.width, self.dtype = parts.shape[2], parts.shape[3], parts.dtype.compute
        known, parts_known = self.width.value, self.count.value
        self.is_by_lanes = call.lanes == _LANES and (parts_known is None or parts_known > _BLOCK)
        self.columns = _LANES if self.is_by_lanes else known if known and known <= 2 * _COLUMNS else _COLUMNS
        self.b = b = call.builder([*parts.shape[:2], self.width.ceildiv(self.columns)])
        start = b.index(Dim.symbol("_p") * self.columns, {"_p": b.program_id(2)})
        self.coords = {"_b": b.program_id(0), "_h": b.program_id(1), "_e": start}
        if len(call.operands) > 3:
            self.coords["_filled"] = b.fetch(call.input(b, 3), call.at(3, ()), {})
        self.bounds = bounds_of("_e", self.width, self.columns)
        few = max(1, min(_BLOCK, parts_known if parts_known is not None else _BLOCK))
        self.together = _LANE_BLOCK if self.is_by_lanes else few
        shared = range(4 if self.is_by_lanes else 0)
        self.shared = [b.scratch([self.together], self.dtype, space="shared") for _ in shared]

    @property
    def _end(self) -> Dim:
        """Parts that there are; those beyond the length of a cache have nothing."""
        if "_filled" not in self.coords:
            return self.count
        return minimum(self.count, maximum(0, Dim.symbol("_filled")).ceildiv(self.call.attributes["keys"]))

    def _load(self, number: int, names: tuple[str, ...], sizes: tuple[int, ...], p: SSAValue) -> SSAValue:
        """Accumulators, maxima or sums; of a part that is not there, nothing seen."""
        bounds = {**self.bounds, **bounds_of("_s", self._end, self.together)}
        kept = {name: bounds[name] for name in names if name in bounds}
        where = TileRegion({**self.coords, "_s": p}, names, sizes, kept)
        at = self.call.at(number, [Dim.symbol("_b"), Dim.symbol("_h"), *map(Dim.symbol, names)])
        pad = float("-inf") if number == 1 else 0
        return self.b.cast(self.b.load(self.call.input(self.b, number), at, where, pad=pad), self.dtype)

    def _load_part(self, number: int, p: SSAValue) -> SSAValue:
        if number:
            return self.b.reduce(self._load(number, ("_s",), (1,), p), "max", 0)
        if self.call.lanes != _LANES:
            return self.b.reduce(self._load(number, ("_s", "_e"), (1, self.columns), p), "sum", 0)
        return self._load_columns(p)

    def _load_columns(self, p: SSAValue) -> SSAValue:
        """Accumulators of a part, as threads hold the sums; of one that is not there, those of another, and then 0."""
        b, call, coords = self.b, self.call, {**self.coords, "_s": p}
        is_bounded = bool(bounds_of("_s", self._end, self.together))
        last = minimum(Dim.symbol("_s"), maximum(self._end - 1, 0)) if is_bounded else Dim.symbol("_s")
        region = TileRegion({**coords, "_s": b.index(last, coords)}, ("_e",), (self.columns,), self.bounds)
        at = call.at(0, [Dim.symbol(name) for name in ("_b", "_h", "_s", "_e")])
        made = b.cast(b.load(call.input(b, 0), at, region), self.dtype)
        if not is_bounded:
            return made
        left = b.coordinate_of(self._end - Dim.symbol("_s"), TileRegion(coords, (), (), {}))
        is_there = b.elementwise("gt", left, b.full(0, (), tile_type(left).dtype))
        return b.select(b.broadcast(is_there, (self.columns,), ()), made, b.full(0.0, (self.columns,), self.dtype))

    def _following(self, p: SSAValue) -> list[SSAValue]:
        b = self.b
        return [p, *(b.index(Dim.symbol("_s") + number, {"_s": p}) for number in range(1, self.together))]

    def _join_block(self, p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        loaded = [[self._load_part(number, at) for number in range(3)] for at in self._following(p)]
        for part in loaded:
            carried = join_parts(self.b, carried, part)
        return carried

    def _join_by_lanes(self, p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """The same, with the factors of each part computed by a lane of its own, as `join_parts` does in order.

        The maximum so far of each part is a prefix, which comes out the same in any order.
        """
        b = self.b
        acc, top, total = carried
        loaded = [self._load_part(0, at) for at in self._following(p)]
        firsts = range(0, self.together, _LANES)
        at = {first: b.index(Dim.symbol("_s") + first, {"_s": p}) for first in firsts}
        rows = {first: [self._load(number, ("_s",), (_LANES,), at[first]) for number in (1, 2)] for first in firsts}
        before = b.broadcast(top, (_LANES,), ())
        for first in firsts:
            before = self._share_factors(first, before, *rows[first])
        b.barrier()
        kept, taken, added, most = (partial(self._read, memory) for memory in self.shared)
        for number, part in enumerate(loaded):
            total = b.elementwise("add", b.elementwise("mul", total, kept(number)), added(number))
            scaled = b.elementwise("mul", acc, b.broadcast(kept(number), (self.columns,), ()))
            acc = b.elementwise("fma", part, b.broadcast(taken(number), (self.columns,), ()), scaled)
        new = most(self.together - 1)
        b.barrier()
        return [acc, new, total]

    def _share_factors(self, first: int, before: SSAValue, tops: SSAValue, totals: SSAValue) -> SSAValue:
        """Write what parts from the first on are multiplied by, for all threads to read; gives their maximum."""
        b = self.b
        most = b.elementwise("max", tops, before)
        for by in (1, 2, 4, 8, 16):
            most = b.elementwise("max", most, b.shuffle(most, "up", by))
        lane = b.coordinate_of(Dim.symbol("_l"), TileRegion({"_l": b.index(0)}, ("_l",), (_LANES,), {}))
        is_first = b.elementwise("eq", lane, b.full(0, (_LANES,), tile_type(lane).dtype))
        previous = b.select(is_first, before, b.shuffle(most, "up", 1))
        kept, taken = join_factors(b, (previous, tops), most)
        region = TileRegion({"_l": b.index(first)}, ("_l",), (_LANES,), {})
        for tile, memory in zip((kept, taken, b.elementwise("mul", totals, taken), most), self.shared, strict=True):
            b.store(tile, memory, [Dim.symbol("_l")], region)
        return b.shuffle(most, "index", _LANES - 1)

    def _read(self, memory: SSAValue, number: int) -> SSAValue:
        return self.b.load(memory, [Dim.constant(number)], TileRegion({}, (), (), {}))

    def write(self) -> SpecOp:
        b, call, dtype, columns = self.b, self.call, self.dtype, self.columns
        nothing = [b.full(0.0, (columns,), dtype), b.full(float("-inf"), (), dtype), b.full(0.0, (), dtype)]
        block = self._join_by_lanes if self.is_by_lanes else self._join_block
        acc, _, total = b.loop(b.index(0), b.index(self._end, self.coords), self.together, block, nothing)
        none = b.elementwise("eq", total, b.full(0.0, (), dtype))
        divisor = b.select(none, b.full(1.0, (), dtype), total)
        result = call.results[0].dtype
        made = b.cast(divide_rows(b, acc, divisor, result, is_split=True), result)
        where = [Dim.symbol("_b"), Dim.symbol("_h"), Dim.constant(0), Dim.symbol("_e")]
        region = TileRegion(self.coords, ("_e",), (columns,), self.bounds)
        if call.outputs[0] is not None:
            b.store(made, call.output(b, 0), where, region)
        if call.epilogue is not None:
            call.epilogue.store(b, made, region, where)
        return b.finish()


ATTENTION_JOIN = LibraryKernel(
    "attention_join", "Parts of an attention, joined in order.", lambda call: [_Join(call).write()]
)
