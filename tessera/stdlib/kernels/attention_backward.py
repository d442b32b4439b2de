"""The gradient of attention by queries, keys and values in two passes, without atomics (Dao, 2023).

Scores are rematerialized block by block: with their log-sum-exps, `P = exp2(s - lse)` needs no maximum and no sum, and
with `delta = rowsum(dout * out)` the gradient of the scores is `dS = P (dout vᵀ - delta)`. Both passes are one kernel
with queries and keys exchanged: a program has a block of rows of its own, and loops over blocks of the others. With
rows of queries `dq = scale dS k`; with rows of keys, and scores transposed, `dk = scale dSᵀ q` and `dv = Pᵀ dout`,
summed over all heads of queries that share a head of keys, in order. All sums are chains in the order
of what is summed, so sizes of blocks, threads and the batch change no bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion, tile_type
from tessera.stdlib.kernels.attention import LINE, NARROW_HEAD, bounds_of, is_narrow
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, bool_, f64
from tessera.types.frozen import frozen

BLOCKS = ((128, 128), (256, 128), (64, 128), (64, 64))
"""Candidates for the rows and the columns of a block of scores; they change only the speed."""
THREAD_BLOCKS = ((32, 32), (32, 64), (64, 32), (64, 64))
"""The same for GPU kernels without tensor cores, whose threads hold all scores of a block."""
NARROW_BLOCKS = ((128, 64), (64, 64), (64, 128), (128, 128))
"""The same on tensor cores: two warpgroups have a part of the rows each."""
SMALL_HEAD = 64
SMALL_BLOCKS = {True: ((64, 64), (128, 64), (64, 128), (128, 128)), False: ((64, 128), (64, 64), (128, 64), (128, 128))}
"""The same of heads up to that, by keys and by queries: two CTAs with a warpgroup each share a multiprocessor, and one
computes exponentials while the other multiplies. Of 4 x 16 x 3072 x 64 on an H200 both kernels take 0.92 of the time of
two warpgroups, causal 0.94; of heads of 128 registers hold no two."""
_WHOLE = 256
"""A head up to this size is one tile; a larger or dynamic one is processed in parts."""
_PART = 64
_THREAD_PART = 32
_LOG2E = math.log2(math.e)
_LOW = float("-inf")
QUERY, KEY, VALUE, COTANGENT, LSE, DELTA, MASK = range(7)
"""Operands by number; results are those of the first three."""
CHANGES = 0
"""The result of a pass by keys that has no gradients of queries: those of scores."""


@frozen
class Axis:
    """A dim cut into tiles: `bounds` is empty where they always fit."""

    name: str
    size: Dim
    tile: int

    @property
    def at(self) -> Dim:
        return Dim.symbol(self.name)

    @property
    def bounds(self) -> dict[str, Dim]:
        return bounds_of(self.name, self.size, self.tile)

    @property
    def is_one(self) -> bool:
        return self.size.value == self.tile


@frozen
class Factor:
    """A matrix that a pass multiplies: the operand that it is, and its last axis."""

    number: int
    axis: Axis


class BackwardPass:
    """Emits one kernel that gives the gradients of the operands `results`, all of queries or all of keys and values."""

    def __init__(self, call: Call, results: Sequence[int]) -> None:
        self.call, self.results = call, tuple(results)
        self.is_by_keys = QUERY not in results
        q, k, v = call.operands[:3]
        (self.batch, self.heads), self.shared = q.shape[:2], k.shape[1]
        self.dtype: DType = q.dtype.compute
        sizes, (own, other) = {"_i": q.shape[2], "_j": k.shape[2]}, ("_j", "_i") if self.is_by_keys else ("_i", "_j")
        knob = "attention.backward" if self.is_by_keys else "attention.backward_queries"
        rows, columns = call.choose(knob, self._candidates)
        self.rows, self.columns = Axis(own, sizes[own], int(rows)), Axis(other, sizes[other], int(columns))
        head, width = self._in_tiles("_d", q.shape[3]), self._in_tiles("_e", v.shape[3])
        query, key = Factor(QUERY, head), Factor(KEY, head)
        cotangent, value = Factor(COTANGENT, width), Factor(VALUE, width)
        self.own = (key, value) if self.is_by_keys else (query, cotangent)
        self.others = (query, cotangent) if self.is_by_keys else (key, value)
        self.summed = [self.others[1] if number == VALUE else self.others[0] for number in self.results]
        self.b: TileBuilder = call.builder(self._grid(), self._given)
        self.coords = self._coordinates()
        axis = self._result_axis
        self.column = self.b.index(0) if axis.is_one or len(self._grid()) < 4 else self._start(3, axis.tile)
        """Where the columns of the program's results begin."""
        self.factor, self.scale = self._make_scales()

    @property
    def _given(self) -> str:
        """What the kernel gives, in its name."""
        return "".join("qkv"[number] for number in self.results)

    # Blocks.

    @property
    def is_by_threads(self) -> bool:
        """Whether a GPU without tensor cores runs it: tiles are fully unrolled there, so code must stay small."""
        return self.call.lanes == 32

    @property
    def _candidates(self) -> tuple[tuple[int, int], ...]:
        # Of causal blocks those on the diagonal are half hidden: small ones have less of it.
        return THREAD_BLOCKS if self.is_by_threads else BLOCKS[::-1] if self.is_causal else BLOCKS

    def _in_tiles(self, name: str, size: Dim) -> Axis:
        part = _THREAD_PART if self.is_by_threads else _PART
        return Axis(name, size, size.value if size.value and is_whole_head(self.call, size) else part)

    _reads_seen = True
    """Whether keys that no query of the block sees are not read; tensor cores take whole blocks."""

    # Grid and indices.

    @property
    def _result_axis(self) -> Axis:
        """The columns of the results, in parts of which each has programs of its own where a head is not one tile."""
        return self.summed[0].axis

    def _grid(self) -> list[Dim]:
        blocks = self.rows.size.ceildiv(self.rows.tile)
        found = [self.batch, self.shared if self.is_by_keys else self.heads, blocks]
        axis = self._result_axis
        return found if axis.is_one else [*found, axis.size.ceildiv(axis.tile)]

    def _start(self, axis: int, tile: int) -> SSAValue:
        return self.b.index(Dim.symbol("_p") * tile, {"_p": self.b.program_id(axis)})

    def _coordinates(self) -> dict[str, SSAValue]:
        b, group = self.b, self.heads // self.shared
        found = {"_b": b.program_id(0), self.rows.name: self._start(2, self.rows.tile)}
        own = b.program_id(1)
        found["_g" if self.is_by_keys else "_h"] = own
        if self.heads == self.shared:
            found["_g"] = found["_h"] = own
        elif not self.is_by_keys:
            found["_g"] = b.index(Dim.symbol("_h") // group, found)
        return found

    def _index(self, factor: Factor) -> list[Dim]:
        """Where a row of a factor is in its operand."""
        is_query = factor.number in (QUERY, COTANGENT)
        row = Dim.symbol("_h" if is_query else "_g"), Dim.symbol("_i" if is_query else "_j")
        return [Dim.symbol("_b"), *row, factor.axis.at]

    def _region(self, *axes: Axis, **coords: SSAValue) -> TileRegion:
        bounds = {name: bound for axis in axes for name, bound in axis.bounds.items()}
        return TileRegion({**self.coords, **coords}, tuple(a.name for a in axes), tuple(a.tile for a in axes), bounds)

    @property
    def is_causal(self) -> bool:
        """Whether later keys are hidden: the last query is aligned with the last key."""
        return bool(self.call.attributes.get("causal"))

    @property
    def _lead(self) -> Dim:
        """How many keys there are before those that the first query sees last."""
        return self.call.operands[KEY].shape[2] - self.call.operands[QUERY].shape[2]

    @property
    def _limits(self) -> tuple[Dim, Dim]:
        """Where columns that a row of the block sees, or is seen by, begin, and where they end."""
        end, none = self.columns.size, Dim.constant(0)
        if not self.is_causal:
            return none, end
        if self.is_by_keys:
            first = maximum(0, self.rows.at - self._lead)
            return first // self.columns.tile * self.columns.tile, end
        return none, maximum(0, minimum(end, self.rows.at + self._lead + self.rows.tile))

    # Scales: in f64 and rounded once, the same for a head dim that is known here or in a run.

    def _make_scales(self) -> tuple[float | SSAValue, float | SSAValue]:
        """What queries are multiplied by for scores in base 2, and what gradients of scores are."""
        b, given, size = self.b, self.call.attributes["scale"], self.call.operands[QUERY].shape[3]
        if given is None and size.value is not None:
            given = 1.0 / math.sqrt(max(size.value, 1))
        if given is not None:
            return float(given * self._base), float(given)
        count = b.coordinate_of(maximum(size, 1), TileRegion({}, (), (), {}))
        scale = b.elementwise("div", b.full(1.0, (), f64), b.elementwise("sqrt", b.cast(count, f64)))
        wide = b.elementwise("mul", scale, b.full(self._base, (), f64))
        return b.cast(wide, self.dtype), b.cast(scale, self.dtype)

    @property
    def _base(self) -> float:
        """What scores are multiplied by, beside their scale: base 2 here."""
        return _LOG2E

    def _fill(self, number: float | SSAValue, sizes: tuple[int, ...]) -> SSAValue:
        b = self.b
        return b.broadcast(number, sizes, ()) if isinstance(number, SSAValue) else b.full(number, sizes, self.dtype)

    # The kernel.

    def write(self) -> SpecOp:
        b, rows = self.b, self.rows.tile
        used = 1 if self.results == (VALUE,) else 2
        held = [self._load_own(at, b.index(0)) if self.own[at].axis.is_one else None for at in range(used)]
        start = [b.full(0.0, (rows, factor.axis.tile), self.dtype) for factor in self.summed]
        stats = [] if self.is_by_keys else self._load_stats({})
        sums = self._add_heads(partial(self._add_block, held, stats), start)
        for number, factor, total in zip(self.results, self.summed, sums, strict=True):
            self._store(number, factor, total)
        return b.finish()

    def _add_heads(self, block: partial[list[SSAValue]], start: list[SSAValue]) -> list[SSAValue]:
        """Blocks of all heads of queries that belong to the program: one, or those that share the head of keys."""
        b = self.b

        def add(h: SSAValue | None, carried: list[SSAValue]) -> list[SSAValue]:
            own = {} if h is None else {"_h": h}
            return b.loop(
                *self._loop_limits(own),
                self.columns.tile,
                lambda at, inner: block({**own, self.columns.name: at}, inner),
                carried,
            )

        if not self.is_by_keys or self.heads == self.shared:
            return add(None, start)
        group, g = self.heads // self.shared, Dim.symbol("_g")
        limits = [b.index(first * group, self.coords) for first in (g, g + 1)]
        return b.loop(limits[0], limits[1], 1, add, start)

    def _loop_limits(self, own: dict[str, SSAValue]) -> tuple[SSAValue, SSAValue]:
        """Where the loop over columns begins and ends, for one head of queries."""
        low, high = self._limits
        end = self._round_up(high, self.columns.tile)
        return self.b.index(low, self.coords), self.b.index(end, self.coords)

    def _round_up(self, end: Dim, step: int) -> Dim:
        """The end of a loop: without tensor cores it is rounded up to whole steps, to have no remainder loop."""
        return end.ceildiv(step) * step if self.is_by_threads and end.value is None else end

    def _add_block(
        self,
        held: Sequence[SSAValue | None],
        stats: Sequence[SSAValue],
        at: dict[str, SSAValue],
        carried: list[SSAValue],
    ) -> list[SSAValue]:
        """Sums after one more block of columns."""
        lse, *deltas = stats or self._load_stats(at)
        tiles = {factor.number: tile for factor in self.others if (tile := self._load_whole(factor, at)) is not None}
        # Both dots before what is computed from the first: tensor cores are at the second meanwhile.
        scores, *by_weights = [self._multiply(number, held[number], tiles, at) for number in range(1 + len(deltas))]
        weights = self._weigh(scores, lse, at)
        changes = None
        for by_weight, delta in zip(by_weights, deltas, strict=True):
            changes = self._change(weights, by_weight, delta)
        lefts = [self._left(weights if number == VALUE or changes is None else changes) for number in self.results]
        made: list[SSAValue] = []
        for left, factor, total in zip(lefts, self.summed, carried, strict=True):
            right = tiles.get(factor.number)
            if right is None:
                right = self._load_other(factor, {**at, factor.axis.name: self.column})
            made.append(self.b.dot(left, right, total))
        if changes is not None and self.keeps_changes:
            self._keep(changes, at)  # tensor cores are at the dots meanwhile
        return made

    keeps_changes = False
    """Whether gradients of scores are stored for another kernel, with a row for each key."""

    def _keep(self, changes: SSAValue, at: dict[str, SSAValue]) -> None:
        b, region = self.b, self._region(self.rows, self.columns, **at)
        where = [Dim.symbol(name) for name in ("_b", "_h", "_j", "_i")]
        b.store(b.cast(changes, self.call.results[CHANGES].dtype), self.call.output(b, CHANGES), where, region)

    def _load_whole(self, factor: Factor, at: dict[str, SSAValue]) -> SSAValue | None:
        """A block of columns with the whole of a head, for both dots that take it; None where it comes in parts."""
        is_used = factor is self.others[0] or factor in self.summed or self.results != (VALUE,)
        if not factor.axis.is_one or not is_used:
            return None
        return self._load_other(factor, {**at, factor.axis.name: self.b.index(0)})

    def _left(self, tile: SSAValue) -> SSAValue:
        """A block of weights or of changes as the left operand of a dot."""
        return tile

    def _load_own(self, at: int, d: SSAValue) -> SSAValue:
        """A block of the program's rows; those that are multiplied for scores are scaled."""
        b, tile = self.b, self._load_rows(self.own[at], d)
        sizes = (self.rows.tile, self.own[at].axis.tile)
        return tile if at else b.elementwise("mul", tile, self._fill(self.factor, sizes))

    def _load_rows(self, factor: Factor, d: SSAValue) -> SSAValue:
        b, region = self.b, self._region(self.rows, factor.axis, **{factor.axis.name: d})
        where = self.call.at(factor.number, self._index(factor))
        return b.cast(b.load(self.call.input(b, factor.number), where, region), self.dtype)

    def _load_other(self, factor: Factor, at: dict[str, SSAValue]) -> SSAValue:
        """A block of columns."""
        b, region = self.b, self._region(self.columns, factor.axis, **at)
        if self._reads_seen and self.is_causal and not self.is_by_keys:
            region = region.along(region.axes, region.sizes, {**region.bounds, "_j": self._limits[1]})
        where = self.call.at(factor.number, self._index(factor))
        return b.cast(b.load(self.call.input(b, factor.number), where, region), self.dtype)

    def _load_stats(self, at: dict[str, SSAValue]) -> list[SSAValue]:
        """Log-sum-exps of a block of queries and, where gradients of scores are computed, their deltas."""
        b, axis = self.b, self.columns if self.is_by_keys else self.rows
        region, index = self._region(axis, **at), [Dim.symbol(name) for name in ("_b", "_h", "_i")]
        return [
            b.cast(b.load(self.call.input(b, number), self.call.at(number, index), region), self.dtype)
            for number in ((LSE,) if self.results == (VALUE,) else (LSE, DELTA))
        ]

    def _multiply(
        self, number: int, held: SSAValue | None, tiles: dict[int, SSAValue], at: dict[str, SSAValue]
    ) -> SSAValue:
        """The scores of a block, or the gradients of its weights: rows by transposed columns, in parts of a head."""
        b, own, other = self.b, self.own[number], self.others[number]
        axis = own.axis

        def add_part(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            right = tiles.get(other.number)
            right = self._load_other(other, {**at, axis.name: d}) if right is None else right
            return [b.dot(self._load_own(number, d) if held is None else held, b.transpose(right), carried[0])]

        start = b.full(0.0, (self.rows.tile, self.columns.tile), self.dtype)
        if axis.is_one:
            return add_part(b.index(0), [start])[0]
        end = self._round_up(axis.size, axis.tile)
        return b.loop(b.index(0), b.index(end), axis.tile, add_part, [start])[0]

    def _across(self, stat: SSAValue) -> SSAValue:
        """A number for each query, for a block of scores."""
        return self.b.broadcast(stat, (self.rows.tile, self.columns.tile), (1,) if self.is_by_keys else (0,))

    def _weigh(self, scores: SSAValue, lse: SSAValue, at: dict[str, SSAValue]) -> SSAValue:
        """`exp2` of the masked scores less their log-sum-exps."""
        b, region = self.b, self._region(self.rows, self.columns, **at)
        scores = self._mask(scores, region)
        lowered = b.elementwise("fma", self._across(lse), b.full(-_LOG2E, region.sizes, self.dtype), scores)
        return b.elementwise("exp2", lowered)

    def _mask(self, scores: SSAValue, region: TileRegion) -> SSAValue:
        """Scores plus the mask; -inf for keys that are out of bounds or hidden.

        Queries that are out of bounds are zeros, and so is what they add to sums.
        """
        b, keys = self.b, self.call.operands[KEY].shape[2]
        for number in range(MASK, len(self.call.operands)):
            where = self.call.at(number, _mask_index(self.call, number))
            tile = b.cast(b.load(self.call.input(b, number), where, region), self.dtype)
            scores = b.elementwise("fma", tile, b.full(_LOG2E, region.sizes, self.dtype), scores)
        if self.is_by_keys:
            return self._hide_earlier(scores, region) if self.is_causal else scores
        seen = minimum(keys, self.rows.at + 1 + self._lead) if self.is_causal else region.bounds.get("_j")
        if seen is None:
            return scores
        return b.clip(scores, "_j", _LOW, region.along(region.axes, region.sizes, {"_j": seen}))

    def _hide_earlier(self, scores: SSAValue, region: TileRegion) -> SSAValue:
        """Scores of keys with -inf for queries that come before them."""
        b = self.b
        begin = region.along(region.axes, region.sizes, {"_i": self.rows.at - self._lead})
        seen = b.clip(b.full(False, region.sizes, bool_), "_i", True, begin)
        return b.select(seen, scores, b.full(_LOW, region.sizes, self.dtype))

    def _change(self, weights: SSAValue, by_weights: SSAValue, delta: SSAValue) -> SSAValue:
        """The gradients of scores, without their scale."""
        b = self.b
        return b.elementwise("mul", weights, b.elementwise("sub", by_weights, self._across(delta)))

    def _store(self, number: int, factor: Factor, total: SSAValue) -> None:
        b, axis = self.b, factor.axis
        region = self._region(self.rows, axis, **{axis.name: self.column})
        if number != VALUE:
            total = b.elementwise("mul", total, self._fill(self.scale, region.sizes))
        made = b.cast(total, self.call.results[number].dtype)
        head = "_g" if self.is_by_keys else "_h"
        b.store(made, self.call.output(b, number), [Dim.symbol("_b"), Dim.symbol(head), self.rows.at, axis.at], region)


class NarrowBackward(BackwardPass):
    """The same on tensor cores, for 2-byte floats.

    Rows are multiplied unscaled and scores scaled afterwards; weights and gradients of scores are rounded to the dtype
    of the operands before the dots with them.
    """

    _reads_seen = False

    @property
    def is_by_threads(self) -> bool:
        return False

    @property
    def _candidates(self) -> tuple[tuple[int, int], ...]:
        # Of wide heads shared memory holds two blocks of 64 rows, and two of 64 columns twice.
        head = self.call.operands[QUERY].shape[3].value or 0
        if head > NARROW_HEAD:
            return ((64, 64),)
        return SMALL_BLOCKS[self.is_by_keys] if head <= SMALL_HEAD and "wgmma" in self.call.features else NARROW_BLOCKS

    def _load_own(self, at: int, d: SSAValue) -> SSAValue:
        return self._load_rows(self.own[at], d)

    def _weigh(self, scores: SSAValue, lse: SSAValue, at: dict[str, SSAValue]) -> SSAValue:
        b, region = self.b, self._region(self.rows, self.columns, **at)
        lowered = self._across(b.elementwise("mul", lse, b.full(-_LOG2E, tile_type(lse).shape, self.dtype)))
        factor = self._fill(self.factor, region.sizes)
        if len(self.call.operands) > MASK:
            scores = self._mask(b.elementwise("mul", scores, factor), region)
            return b.elementwise("exp2", b.elementwise("add", scores, lowered))
        return b.elementwise("exp2", b.elementwise("fma", self._mask(scores, region), factor, lowered))

    def _left(self, tile: SSAValue) -> SSAValue:
        return self.b.cast(self.b.cast(tile, self.call.operands[QUERY].dtype), self.dtype)


def _mask_index(call: Call, number: int) -> list[Dim]:
    """The index of a mask: trailing dims of [b, h, i, j], a static 1 is broadcast."""
    shape = call.operands[number].shape
    names = ("_b", "_h", "_i", "_j")[4 - len(shape) :]
    return [Dim.constant(0) if dim.value == 1 else Dim.symbol(name) for name, dim in zip(names, shape, strict=True)]


def has_tensor_cores(call: Call) -> bool:
    """Whether the call runs on tensor cores."""
    query = call.operands[QUERY]
    # Tiles of gradients are whole heads, without the zeros that TMA would fill them up with.
    is_whole = (query.shape[3].value or 0) % LINE == 0
    return is_narrow(call) and is_whole and call.operands[COTANGENT].dtype is query.dtype


def is_whole_head(call: Call, size: Dim) -> bool:
    """Whether a head is one tile."""
    known = size.value
    if known is None or known > _WHOLE:
        return False
    return call.lanes != 32 or has_tensor_cores(call) or known <= _PART


def are_together(call: Call) -> bool:
    """Whether one kernel gives the gradients of keys and of values.

    Of heads in parts, and where registers do not hold both, each has a kernel of its own.
    """
    heads = [call.operands[number].shape[3] for number in (QUERY, VALUE)]
    if not all(is_whole_head(call, size) for size in heads):
        return False
    widest = NARROW_HEAD if "wgmma" in call.features else NARROW_HEAD // 2
    return not has_tensor_cores(call) or all((size.value or 0) <= widest for size in heads)


def _write_passes(call: Call) -> list[SpecOp]:
    """A kernel for queries, and one or two for keys and values."""
    groups = ((QUERY,), (KEY, VALUE)) if are_together(call) else ((QUERY,), (KEY,), (VALUE,))
    made: list[SpecOp] = []
    for group in groups:
        wanted = [one for one in group if call.outputs[one] is not None]
        outputs = tuple(buffer if number in wanted else None for number, buffer in enumerate(call.outputs))
        if wanted:
            kind = NarrowBackward if has_tensor_cores(call) else BackwardPass
            made.append(kind(replace(call, outputs=outputs), wanted).write())
    return made


ATTENTION_BACKWARD = LibraryKernel(
    "attention_backward", "The gradient of attention by queries, keys and values.", _write_passes
)


# Gradients of scores, stored for another kernel.


class KeepingBackward(NarrowBackward):
    """The pass by keys that also stores the gradients of scores: gradients of queries are a matmul of them."""

    keeps_changes = True


class ScorePass(BackwardPass):
    """The gradients of scores alone, of any head: passes in parts of a head would store each of them several times."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, (KEY,))

    @property
    def _given(self) -> str:
        return "s"

    def _grid(self) -> list[Dim]:
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile)]

    def write(self) -> SpecOp:
        held = [self._load_own(at, self.b.index(0)) if self.own[at].axis.is_one else None for at in range(2)]
        self._add_heads(partial(self._add_block, held, []), [])
        return self.b.finish()

    def _add_block(
        self,
        held: Sequence[SSAValue | None],
        stats: Sequence[SSAValue],
        at: dict[str, SSAValue],
        carried: list[SSAValue],
    ) -> list[SSAValue]:
        lse, delta = self._load_stats(at)
        tiles = {factor.number: tile for factor in self.others if (tile := self._load_whole(factor, at)) is not None}
        scores, by_weights = (self._multiply(number, held[number], tiles, at) for number in range(2))
        self._keep(self._change(self._weigh(scores, lse, at), by_weights, delta), at)
        return carried


def _write_by_keys(call: Call) -> list[SpecOp]:
    """One kernel on tensor cores; elsewhere those of keys and values, and one for the gradients of scores."""
    if has_tensor_cores(call) and are_together(call) and None not in call.outputs:
        return [KeepingBackward(call, (KEY, VALUE)).write()]
    made = _write_passes(replace(call, outputs=(None, *call.outputs[1:])))
    if call.outputs[CHANGES] is not None:
        made.append(ScorePass(replace(call, outputs=(call.outputs[CHANGES], None, None))).write())
    return made


ATTENTION_BACKWARD_KEYS = LibraryKernel(
    "attention_backward_keys", "The gradient of attention by its scores, keys and values.", _write_by_keys
)
