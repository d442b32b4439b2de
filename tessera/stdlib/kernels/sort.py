"""Sort and top-k of rows: a merge sort in scratch memory, or repeated selection where only few elements are needed.

Sort: a program copies its row and the indices of its elements to scratch, sorts both there (stable, NaN last), and
stores them.

Selection (top-k): a row is cut into blocks of several stretches of `width` elements, and the maximum of each column of
a block is kept in scratch. An iteration finds the lowest block that has the best key, takes the first element with that
key, and reduces that block anew over elements after the one taken (by key, then by index). So a row is read once, and
an iteration reads one block and the maxima of all.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.stdlib.kernels.compact import TILE, Compaction, Kept
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, bf16, f16, i8, i16, i32, i64, u8, u16
from tessera.types.promotion import integer_range

# The first few of each row in order, without sorting the others: the best of every block, and iterations that take one.

_MOST_DYNAMIC = 64
"""The most elements that are selected from rows of dynamic length; sorting a row that short costs about as much."""
_ITERATION, _BLOCK, _STRETCH, _STEP = 60, 1, 6, 5
"""Cost in nanoseconds of an iteration, per block and per stretch of it, and of one merge step per element (a static
model: only their ratios matter)."""
_MOST_ITERATIONS = 32
"""The most iterations on a GPU, where each has several dependent memory latencies."""


def _log2(number: int) -> int:
    return max(number - 1, 1).bit_length()


def stretches_per_block(count: Dim, width: int) -> int:
    """Stretches of a block, a power of two: more of them make an iteration read more elements, but fewer blocks."""
    stretches = 256 if count.value is None else -(-count.value // width)
    found = 2
    while 2 * _STRETCH * found * found <= _BLOCK * stretches and found < 64:
        found *= 2
    return found


def is_selected(call: Call) -> bool:
    """Whether selection is cheaper than sorting, by a static model."""
    count, keep = call.operands[0].shape[1].value, int(call.attributes["keep"])
    if call.machine.is_gpu and keep > _MOST_ITERATIONS:
        return False
    if count is None:
        return keep <= _MOST_DYNAMIC
    width = call.lanes
    stretches = stretches_per_block(Dim.constant(count), width)
    cost = keep * (_ITERATION + _STRETCH * stretches + _BLOCK * -(-count // (width * stretches)))
    return cost <= _STEP * count * _log2(count)


def _key_dtype(dtype: DType) -> DType:
    """Integers in the order of the values, with a spare value below those of floats and narrow integers."""
    if dtype.is_float:
        return i64 if dtype.compute.bytes == 8 else i32
    return dtype if dtype.bytes >= 4 else i32


def _whole(b: TileBuilder, region: TileRegion, dtype: DType) -> Callable[[int | float], SSAValue]:
    return lambda value: b.full(value, region.sizes, dtype)


def _key(b: TileBuilder, tile: SSAValue, dtype: DType, region: TileRegion, *, descending: bool) -> SSAValue:
    """The elements as keys, the largest taken first; NaN comes after all numbers."""
    kind = _key_dtype(dtype)
    number = _whole(b, region, kind)
    if not dtype.is_float:
        key = b.cast(tile, kind)
        return key if descending else b.elementwise("not", key)
    wide = b.cast(tile, dtype.compute)
    # Adding 0.0 makes -0.0 0.0, which compares equal.
    bits = b.bitcast(b.elementwise("add", wide, _whole(b, region, dtype.compute)(0.0)), kind)
    low, high = integer_range(kind)
    sign = b.elementwise("shr", bits, number(kind.bits - 1))
    key = b.elementwise("xor", bits, b.elementwise("and", sign, number(high)))
    key = key if descending else b.elementwise("not", key)
    return b.select(b.elementwise("isnan", wide), number(low + 1), key)


class Selection:
    """Emits the selection kernel: one row per program."""

    def __init__(self, call: Call) -> None:
        (self.x,), self.call = call.operands, call
        rows, self.count = self.x.shape
        self.width = call.choose("select.tile", [times * call.lanes for times in (1, 2, 4)])
        self.stretches = call.choose("select.stretches", _stretch_candidates(self.count, self.width))
        self.block = self.width * self.stretches
        self.blocks = self.count.ceildiv(self.block)
        self.kind = _key_dtype(self.x.dtype)
        self.nothing = integer_range(self.kind)[0]
        self.b = call.builder([rows])
        self.row = self.b.program_id(0)
        self.bests = self.b.scratch([self.blocks, self.width], self.kind)
        self.cell = self.b.scratch([3], i64)
        """Scratch to convert values to indices: block of the best key, element taken, whether to search all."""

    def write(self) -> SpecOp:
        b = self.b

        def reduce_all(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            self._reduce_block(at, None)
            return carried

        b.loop(b.index(0), b.index(self.blocks), 1, reduce_all)
        start = [b.full(self.nothing, (), self.kind), b.full(-1, (), i64)]
        b.loop(b.index(0), b.index(int(self.call.attributes["keep"])), 1, self._take_next, start)
        return b.finish()

    def _keys(self, j: SSAValue, *, beyond: int) -> tuple[SSAValue, SSAValue]:
        """The keys of a stretch and their indices; `beyond` the row for out-of-bounds elements."""
        b, region = self.b, TileRegion({"_i": self.row, "_j": j}, ("_j",), (self.width,), {"_j": self.count})
        loaded = b.load(self.call.input(b, 0), [Dim.symbol("_i"), Dim.symbol("_j")], region)
        key = _key(b, loaded, self.x.dtype, region, descending=bool(self.call.attributes["descending"]))
        return b.clip(key, "_j", beyond, region), b.coordinate_of(Dim.symbol("_j"), region)

    def _broadcast(self, scalar: SSAValue) -> SSAValue:
        return self.b.broadcast(scalar, (self.width,), ())

    def _cell_of(self, number: int, value: SSAValue) -> SSAValue:
        """A value as an index, through scratch memory."""
        b = self.b
        b.store(value, self.cell, [Dim.constant(number)], TileRegion({}))
        # All threads read what one wrote; before the next write to this cell comes the barrier of another.
        b.barrier()
        return b.fetch(self.cell, [Dim.constant(number)], {})

    def _ends(self, at: SSAValue) -> tuple[SSAValue, SSAValue]:
        start = Dim.symbol("_b") * self.block
        return self.b.index(start, {"_b": at}), self.b.index(minimum(self.count, start + self.block), {"_b": at})

    def _reduce_block(self, at: SSAValue, taken: tuple[SSAValue, SSAValue] | None) -> None:
        """The maximum of each column of a block, over elements after the one that was taken."""
        b = self.b
        beaten = None if taken is None else [self._broadcast(part) for part in taken]

        def join(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            key, indices = self._keys(j, beyond=self.nothing)
            if beaten is not None:
                later = b.elementwise(
                    "and", b.elementwise("eq", key, beaten[0]), b.elementwise("gt", indices, beaten[1])
                )
                is_left = b.elementwise("or", b.elementwise("lt", key, beaten[0]), later)
                key = b.select(is_left, key, b.full(self.nothing, (self.width,), self.kind))
            return [b.elementwise("max", carried[0], key)]

        low, high = self._ends(at)
        (best,) = b.loop(low, high, self.width, join, [b.full(self.nothing, (self.width,), self.kind)])
        b.store(best, self.bests, [Dim.symbol("_b"), Dim.symbol("_w")], self._column(at))

    def _column(self, at: SSAValue) -> TileRegion:
        return TileRegion({"_b": at, "_w": self.b.index(0)}, ("_w",), (self.width,))

    def _best(self) -> tuple[SSAValue, SSAValue]:
        """The best key that is left, and the lowest block that has it."""
        b = self.b

        def join(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            best, where = carried
            region = self._column(at)
            found = b.load(self.bests, [Dim.symbol("_b"), Dim.symbol("_w")], region)
            is_better = b.elementwise("gt", found, best)
            number = b.coordinate_of(Dim.symbol("_b"), region)
            return [b.elementwise("max", found, best), b.select(is_better, number, where)]

        start = [b.full(self.nothing, (self.width,), self.kind), b.full(0, (self.width,), i64)]
        best, where = b.loop(b.index(0), b.index(self.blocks), 1, join, start)
        return b.reduce(best, "max", 0), b.arg_reduce(best, where, "argmax", 0)

    def _first(self, best: SSAValue, before: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
        """The index of the first element after `before` that has the key."""
        b = self.b
        wanted, passed, none = self._broadcast(best), self._broadcast(before), b.full((1 << 63) - 1, (self.width,), i64)

        def join(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            key, indices = self._keys(j, beyond=self.nothing)
            is_one = b.elementwise("and", b.elementwise("eq", key, wanted), b.elementwise("gt", indices, passed))
            return [b.elementwise("min", carried[0], b.select(is_one, indices, none))]

        (found,) = b.loop(low, high, self.width, join, [none])
        return b.reduce(found, "min", 0)

    def _take_next(self, number: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """One more element of the row."""
        b = self.b
        last, last_index = carried
        best, block = self._best()
        before = b.select(b.elementwise("eq", best, last), last_index, b.full(-1, (), i64))
        low, high = self._ends(self._cell_of(0, block))
        if self.kind is self.x.dtype:
            low, high = self._or_row(best, low, high)
        index = self._first(best, before, low, high)
        taken = self._cell_of(1, index)
        self._put(number, taken, index)
        self._reduce_block(b.index(Dim.symbol("_t") // self.block, {"_t": taken}), (best, index))
        return [best, index]

    def _or_row(self, best: SSAValue, low: SSAValue, high: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Search the whole row where the best key equals the out-of-bounds key: its block may have none left."""
        b = self.b
        is_nothing = b.elementwise("eq", best, b.full(self.nothing, (), self.kind))
        is_whole = self._cell_of(2, b.select(is_nothing, b.full(1, (), i64), b.full(0, (), i64)))
        names, own = {"_f": is_whole, "_l": low, "_h": high}, Dim.constant(1) - Dim.symbol("_f")
        end = own * Dim.symbol("_h") + Dim.symbol("_f") * self.count
        return b.index(own * Dim.symbol("_l"), names), b.index(end, names)

    def _put(self, number: SSAValue, taken: SSAValue, index: SSAValue) -> None:
        b, call = self.b, self.call
        here = TileRegion({"_i": self.row, "_n": number, "_t": taken})
        at = [Dim.symbol("_i"), Dim.symbol("_n")]
        if call.outputs[0] is not None:
            b.store(b.load(call.input(b, 0), [at[0], Dim.symbol("_t")], here), call.output(b, 0), at, here)
        if call.outputs[1] is not None:
            b.store(index, call.output(b, 1), at, here)


class Threshold:
    """Emits the kernel of top-k by a threshold: one row per program of a GPU.

    A row is read in stretches, and the maximum of each column of them is kept. A key that as many maxima reach as are
    wanted, and no larger one, is a threshold: every element that is wanted reaches it, and fewer columns than wanted
    have elements beyond it. Those are compacted to a list, which is sorted; elements at the threshold come after them,
    the first ones first. So a row is read twice, and what is sorted is short.
    """

    def __init__(self, call: Call) -> None:
        (self.x,), self.call = call.operands, call
        rows, self.count = self.x.shape
        self.keep, self.kind = int(call.attributes["keep"]), _key_dtype(self.x.dtype)
        self.width = threshold_columns(self.keep)
        self.nothing = integer_range(self.kind)[0]
        self.b = b = call.builder([rows], warps=8)
        self.row = b.program_id(0)
        most = maximum((self.keep - 1) * self.count.ceildiv(self.width), 1)
        self.keys, self.spare_keys = (b.scratch([most], self.kind) for _ in range(2))
        self.indices, self.spare_indices = (b.scratch([most], i64) for _ in range(2))
        self.ties = b.scratch([self.keep], i64, space="shared")
        # Two counts in one integer, which must hold that of the longest list that there can be.
        self.wide = i32 if most.value is not None and most.value < 1 << 15 else i64
        self.cell = b.scratch([1], self.wide, space="shared")
        self.compaction = Compaction(b, _TILES, self.wide)

    def write(self) -> SpecOp:
        b, zero, end = self.b, self.b.index(0), self.b.index(self.count)

        def keep_best(j: SSAValue, best: list[SSAValue]) -> list[SSAValue]:
            return [b.elementwise("max", best[0], self._keys(j, self.width)[0])]

        (best,) = b.loop(zero, end, self.width, keep_best, [b.full(self.nothing, (self.width,), self.kind)])
        threshold = self._find_threshold(best)

        def collect(j: SSAValue, counts: list[SSAValue]) -> list[SSAValue]:
            starts = [b.index(Dim.symbol("_s") + number * TILE, {"_s": j}) for number in range(_TILES)]
            found = [self._keys(start, TILE) for start in starts]
            tiles = [self._divide(key, region, threshold, counts[0]) for key, region in found]
            return [self.compaction.append(tiles, counts[0])]

        (counts,) = b.loop(zero, end, TILE * _TILES, collect, [b.full(0, (), self.wide)])
        number = self.compaction.part(counts, 0)
        b.store(number, self.cell, [Dim.constant(0)], TileRegion({}))
        b.barrier()
        count = b.fetch(self.cell, [Dim.constant(0)], {})
        b.sort(self.keys, self.indices, [self.spare_keys, self.spare_indices], count, descending=True)
        b.loop(zero, b.index(self.keep), _OUT, lambda j, _: self._put(j, count))
        return b.finish()

    def _keys(self, j: SSAValue, width: int) -> tuple[SSAValue, TileRegion]:
        b, region = self.b, TileRegion({"_i": self.row, "_j": j}, ("_j",), (width,), {"_j": self.count})
        loaded = b.load(self.call.input(b, 0), [Dim.symbol("_i"), Dim.symbol("_j")], region)
        key = _key(b, loaded, self.x.dtype, region, descending=bool(self.call.attributes["descending"]))
        return b.clip(key, "_j", self.nothing, region), region

    def _find_threshold(self, best: SSAValue) -> SSAValue:
        """The largest key that as many maxima reach as are kept: bit by bit, from the highest."""
        b, sizes = self.b, (self.width,)

        def try_bit(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            shift = b.cast(
                b.coordinate_of(Dim.constant(self.kind.bits - 1) - Dim.symbol("_b"), TileRegion({"_b": at})), self.kind
            )
            bit = b.elementwise("shl", b.full(1, (), self.kind), shift)
            tried = b.elementwise("add", carried[0], bit)
            reaches = b.elementwise("ge", best, b.broadcast(tried, sizes, ()))
            number = b.reduce(b.select(reaches, b.full(1, sizes, i32), b.full(0, sizes, i32)), "sum", 0)
            return [b.select(b.elementwise("ge", number, b.full(self.keep, (), i32)), tried, carried[0])]

        return b.loop(b.index(0), b.index(self.kind.bits), 1, try_bit, [b.full(self.nothing, (), self.kind)])[0]

    def _divide(self, key: SSAValue, region: TileRegion, threshold: SSAValue, counts: SSAValue) -> Kept:
        """A tile's elements beyond the threshold, and those at it."""
        b = self.b
        bound, indices = b.broadcast(threshold, (TILE,), ()), b.coordinate_of(Dim.symbol("_j"), region)
        is_tie = b.elementwise("eq", key, bound)
        if self.kind is self.x.dtype:  # the smallest integer is the key of what is out of bounds too
            is_tie = b.elementwise("and", is_tie, b.elementwise("lt", indices, b.coordinate_of(self.count, region)))
        # As many ties as are kept are enough, and no more can be counted.
        seen = b.broadcast(self.compaction.part(counts, self.compaction.half), (TILE,), ())
        is_tie = b.elementwise("and", is_tie, b.elementwise("lt", seen, b.full(self.keep, (TILE,), self.wide)))
        lists = [(key, self.keys), (indices, self.indices)]
        return Kept(b.elementwise("gt", key, bound), lists, is_tie, [(indices, self.ties)])

    def _put(self, j: SSAValue, count: SSAValue) -> list[SSAValue]:
        """Some of the results: what was sorted, then what is at the threshold."""
        b, call, at = self.b, self.call, Dim.symbol("_n")
        region = TileRegion({"_i": self.row, "_n": j, "_c": count}, ("_n",), (_OUT,), {"_n": Dim.constant(self.keep)})
        sorted_ = b.load(
            self.indices,
            [minimum(at, Dim.symbol("_c"))],
            region,
            windows=[Dim.symbol("_c") - 1 - at, Dim.constant(1 << 40)],
        )
        ties = b.load(
            self.ties,
            [maximum(at - Dim.symbol("_c"), 0)],
            region,
            windows=[at - Dim.symbol("_c"), Dim.constant(self.keep)],
        )
        is_sorted = b.elementwise("lt", b.coordinate_of(at, region), b.coordinate_of(Dim.symbol("_c"), region))
        index, place = b.select(is_sorted, sorted_, ties), [Dim.symbol("_i"), at]
        if call.outputs[0] is not None:
            value = b.load(call.input(b, 0), [Dim.symbol("_i"), Dim.symbol("t0")], region, indices=[index])
            b.store(value, call.output(b, 0), place, region)
        if call.outputs[1] is not None:
            b.store(index, call.output(b, 1), place, region)
        return []


_TILES = 2
"""Tiles that are compacted at a time."""
_OUT = 256
"""Results that are stored at a time."""


def threshold_columns(keep: int) -> int:
    """Columns whose maxima are kept: more than are wanted, so that few elements are beyond the threshold."""
    return 2048 if keep <= 512 else 4096


def has_threshold(call: Call) -> bool:
    """Whether a threshold is worth its two reads of a row: some elements are wanted, and few are beyond it."""
    count, keep = call.operands[0].shape[1].value, int(call.attributes["keep"])
    width = threshold_columns(keep)
    if not call.machine.is_gpu or not _FEW < keep <= width // 2:
        return False
    return count is None or (count > width and 2 * (keep - 1) * -(-count // width) <= count)


_FEW = 2
"""So many are found sooner one by one."""


def _stretch_candidates(count: Dim, width: int) -> list[int]:
    best = stretches_per_block(count, width)
    return [best, best * 2, best // 2]


def _sort_dtype(dtype: DType) -> DType:
    """The dtype that elements are compared in, with the same order."""
    return u8 if dtype.is_bool else i8 if dtype.name == "i4" else dtype.compute


_INFINITY = {f16: 0x7C00, bf16: 0x7F80}
"""The bits of infinity of floats of two bytes, beyond which there are no numbers."""


def _narrow_key(b: TileBuilder, tile: SSAValue, dtype: DType, region: TileRegion, *, descending: bool) -> SSAValue:
    """Floats of two bytes as integers in their order: both zeros are one, and NaN comes after all numbers."""
    number = _whole(b, region, i16)
    bits = b.bitcast(tile, i16)
    magnitude = b.elementwise("and", bits, number(0x7FFF))
    below = b.elementwise("sub", number(0), magnitude)
    key = b.select(b.elementwise("lt", bits, number(0)), below, magnitude)
    is_missing = b.elementwise("gt", magnitude, number(_INFINITY[dtype]))
    return b.select(is_missing, number(-0x8000 if descending else 0x7FFF), key)


def _write_sort(call: Call) -> list[SpecOp]:
    """Sort whole rows, or select the first few: by the static model, unless the tuner chooses."""
    if int(call.attributes.get("keep", -1)) < 0:
        return _write_sorted(call)
    kinds = ["select", "sort"] if is_selected(call) else ["sort", "select"]
    kinds = ["threshold", *kinds] if has_threshold(call) else kinds
    chosen = call.choose("topk.algorithm", kinds)
    if chosen == "sort":
        return _write_sorted(call)
    return [(Threshold if chosen == "threshold" else Selection)(call).write()]


_LONG = 1024
"""Elements of a row from which on a program of a GPU sorts it by the bytes of its keys.

It copies it in larger tiles then, of a few elements to each thread, with keys and indices of as few bytes as hold
them; floats of two bytes are found by their index again.
"""


def _write_sorted(call: Call) -> list[SpecOp]:
    """One row per program: keys and indices to scratch, sorted there, and stored; an unused result is not stored."""
    (x,), (values, _) = call.operands, call.results
    rows, count = x.shape
    # At most a whole row is kept, which the shape rule knows and a kernel does not.
    kept = count if values.shape[1] == count else minimum(values.shape[1], count)
    is_long = call.machine.is_gpu and count.value is not None and count.value >= _LONG
    width = call.choose("sort.tile", [_LONG, 2 * _LONG] if is_long else [times * call.lanes for times in (2, 1, 4)])
    is_gathered = is_long and x.dtype in _INFINITY
    key = i16 if is_gathered else _sort_dtype(x.dtype)
    descending = bool(call.attributes["descending"])
    b = call.builder([rows])
    row, low, high = b.program_id(0), b.index(0), b.index(count)
    keys, spare_keys = b.scratch([count], key), b.scratch([count], key)
    kind = i32 if count.value is not None and count.value < 1 << 31 else i64
    kind = u16 if is_long and (count.value or 0) <= 1 << 16 else kind
    indices, spare_indices = b.scratch([count], kind), b.scratch([count], kind)
    column = [Dim.symbol("_j")]
    at = [Dim.symbol("_i"), *column]

    def here(j: SSAValue, extent: Dim = count) -> TileRegion:
        return TileRegion({"_i": row, "_j": j}, ("_j",), (width,), {"_j": extent})

    def fill(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = here(j)
        loaded = b.load(call.input(b, 0), at, region)
        ordered = _narrow_key(b, loaded, x.dtype, region, descending=descending) if is_gathered else b.cast(loaded, key)
        b.store(ordered, keys, column, region)
        b.store(b.cast(b.coordinate_of(column[0], region), kind), indices, column, region)
        return carried

    def empty(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = here(j, kept)
        index = b.cast(b.load(indices, column, region), i64)
        if call.outputs[0] is not None:
            value = b.cast(b.load(keys, column, region), x.dtype) if not is_gathered else None
            if value is None:
                value = b.load(call.input(b, 0), [at[0], Dim.symbol("t0")], region, indices=[index])
            b.store(value, call.output(b, 0), at, region)
        if call.outputs[1] is not None:
            b.store(index, call.output(b, 1), at, region)
        return carried

    b.loop(low, high, width, fill)
    b.sort(keys, indices, [spare_keys, spare_indices], high, descending=descending)
    b.loop(low, high if kept == count else b.index(kept), width, empty)
    return [b.finish()]


SORT = LibraryKernel("sort", "Sorted rows and the indices of their elements; stable, NaN last.", _write_sort)
