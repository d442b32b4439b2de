"""Scans along an axis, by one recipe wherever they run: chunks of 16 elements, 16 of those, 16 of those, and so on.

A chunk is reduced in order. What comes before it, its prefix, is the prefix of the 16 chunks that it is one of, joined
with the totals of those before it, in order; the same holds for the 16 themselves among 16 of their size. A result is
the prefix of its chunk joined with the elements of the chunk up to it. So a block of chunks needs one number of all
that comes before it, whoever computes it.

On a CPU a program loops over chunks and carries a number per column; so does one of a GPU where there are columns for
all threads. Else it has 256 chunks at a time: of one row, of several short ones, or 16 of each of 16 columns along an
axis that is not the last. They are copied to shared memory as they are contiguous, each thread reduces one, and totals
are exchanged. Where rows are too few for all multiprocessors, programs have blocks of them: one kernel writes the
totals of blocks, one makes prefixes of these, and one reads all blocks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.cumulative import CHUNK
from tessera.ir.graph.ops.segments import MOST_SEGMENTS
from tessera.ir.tile.language import TileBuilder, TileRegion, tile_type
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.stdlib.kernels.rows import column_programs
from tessera.types.dim import Dim, DimLike, product
from tessera.types.dtype import DType, bool_, i64
from tessera.types.promotion import reduction_identity
from tessera.types.shape import TensorType

THREADS = CHUNK * CHUNK
"""Chunks that a program of a GPU has at a time, each by a thread."""
BLOCK = CHUNK * THREADS
_VECTOR = 16
"""Bytes that a thread of a GPU moves in one instruction."""
_LONGEST = 1 << 32
"""Rows of dynamic length are taken to be no longer: a loop for each factor of 16."""
_IN_FLIGHT = 36 << 10
"""Bytes that a multiprocessor of an H200 moves in the time in which a program takes a block, 1.5 microseconds, less the
third that reading rows twice costs: with fewer in the blocks of all rows that it has, programs share rows."""
_FEW_BLOCKS = 4
"""A program takes so many blocks of a row sooner than two more kernels start."""
_COLUMNS_PER_UNIT, _SHORT = 512, 4 * CHUNK
"""With so many columns on each multiprocessor, or along so short an axis, threads have columns of their own."""
_MOST_NEIGHBOURS = 4
"""Columns of a thread: a chunk of each is in its registers."""
_FUNCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


class Scan:
    """What all kernels of a scan share: [outer, n, inner], how elements are joined, and in which dtype."""

    def __init__(self, call: Call) -> None:
        (self.x,), (self.out,), self.call = call.operands, call.results, call
        axis, self.kind = int(call.attributes["axis"]) % self.x.rank, str(call.attributes["kind"])
        shape = self.x.shape
        self.outer, self.count, self.inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
        self.shapes = {
            number: (self.outer, self.count, self.inner)
            for number in (*call.inputs, *call.outputs)
            if number is not None
        }
        asked: DType | None = call.attributes.get("accumulate")
        self.compute = (asked or self.out.dtype).compute
        self.identity = reduction_identity(self.kind, self.compute)

    def join(self, b: TileBuilder, before: SSAValue, after: SSAValue) -> SSAValue:
        total = b.elementwise(_FUNCTIONS[self.kind], before, after)
        narrow = self.call.narrow_accumulator
        return total if narrow is None else b.round(total, format=narrow)

    def empty(self, b: TileBuilder, sizes: Sequence[DimLike]) -> SSAValue:
        return b.full(self.identity, sizes, self.compute)

    def place(self, at: Dim) -> Dim:
        """The index along the axis of element `at` of the scan."""
        return self.count - 1 - at if self.call.attributes["reverse"] else at

    def loop(
        self,
        b: TileBuilder,
        size: int,
        count: Dim,
        body: Callable[[SSAValue, SSAValue], SSAValue],
        sizes: Sequence[DimLike] = (),
    ) -> tuple[SSAValue, SSAValue]:
        """Blocks of a power of 16 elements in order: `body` takes the start of one and its prefix, and gives its total.

        A total is carried for every power of 16. Given back is where the last whole block ends, where `count` is no
        multiple of `size`, and the prefix of what is left; those who take that too give a multiple.
        """
        length, levels = _LONGEST if count.value is None else count.value, 1
        while size * CHUNK**levels < length:
            levels += 1

        def find_prefix(at: SSAValue, totals: list[SSAValue]) -> tuple[SSAValue, list[SSAValue]]:
            region, found = TileRegion({"_n": at}), list(totals)
            for level in range(1, levels):
                # So many blocks are whole: their total is one of the next larger ones.
                rest = b.coordinate_of(Dim.symbol("_n") // size % CHUNK**level, region)
                is_whole = b.elementwise("eq", rest, b.full(0, (), tile_type(rest).dtype))
                is_whole = is_whole if not sizes else b.broadcast(is_whole, sizes, ())
                found[level] = b.select(is_whole, self.join(b, found[level], found[level - 1]), found[level])
                found[level - 1] = b.select(is_whole, self.empty(b, sizes), found[level - 1])
            prefix = found[-1]
            for total in reversed(found[:-1]):
                prefix = self.join(b, prefix, total)
            return prefix, found

        def step(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            prefix, found = find_prefix(at, carried)
            return [self.join(b, found[0], body(at, prefix)), *found[1:]]

        end = b.index(count // size * size)
        totals = b.loop(b.index(0), end, size, step, [self.empty(b, sizes) for _ in range(levels)])
        return end, find_prefix(end, totals)[0]


class ColumnScan(Scan):
    """A program has some columns, and all of the axis."""

    def write(self) -> SpecOp:
        self.b, self.region, self.column = b, region, _ = column_programs(
            self.call, "scan.tile", self.outer, self.inner, self.shapes
        )

        def take_chunk(start: SSAValue, prefix: SSAValue) -> SSAValue:
            end = b.index(Dim.symbol("_s") + CHUNK, {"_s": start})
            return self._take(start, end, prefix)

        end, prefix = self.loop(b, CHUNK, self.count, take_chunk, region.sizes)
        self._take(end, b.index(self.count), prefix)
        return b.finish()

    def _take(self, start: SSAValue, end: SSAValue, prefix: SSAValue) -> SSAValue:
        """The results of a chunk, and its total."""
        b, call = self.b, self.call
        at = [Dim.symbol("_o"), self.place(Dim.symbol("_k")), self.column]

        def take_one(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            here = self.region.with_coords(_k=k)
            total = self.join(b, carried[0], b.cast(b.load(call.input(b, 0), at, here), self.compute))
            b.store(b.cast(self.join(b, prefix, total), self.out.dtype), call.output(b, 0), at, here)
            return [total]

        return b.loop(start, end, 1, take_one, [self.empty(b, self.region.sizes)])[0]


class ThreadScan(Scan):
    """A program of a GPU has a few columns for each thread, and all of a short axis or one of many columns.

    All elements of a chunk are loaded before any is joined, so that all are in flight.
    """

    def write(self) -> SpecOp:
        call, column = self.call, Dim.symbol("_c")
        neighbours = min(_MOST_NEIGHBOURS, _VECTOR // max(self.x.dtype.bytes, self.out.dtype.bytes))
        columns, width = self.outer * self.inner, THREADS * neighbours
        self.b = b = call.builder([columns.ceildiv(width)], shapes=self.shapes, warps=THREADS // 32)
        coords = {"_c": b.index(Dim.symbol("_p") * width, {"_p": b.program_id(0)})}
        bounds = {} if columns.value is not None and columns.value % width == 0 else {"_c": columns}
        self.region = TileRegion(coords, ("_c",), (width,), bounds)
        self.at = [column // self.inner, Dim.symbol("_k"), column % self.inner]

        def take_chunk(start: SSAValue, prefix: SSAValue) -> SSAValue:
            return self._take(start, CHUNK, prefix)

        end, prefix = self.loop(b, CHUNK, self.count, take_chunk, self.region.sizes)
        self._take(end, (self.count.value or 0) % CHUNK, prefix)
        return b.finish()

    def _take(self, start: SSAValue, count: int, prefix: SSAValue) -> SSAValue:
        """The results of so many elements, and their total."""
        b, call = self.b, self.call
        numbers = [b.index(self.place(Dim.symbol("_s") + number), {"_s": start}) for number in range(count)]
        here = [self.region.with_coords(_k=number) for number in numbers]
        loaded = [b.cast(b.load(call.input(b, 0), self.at, region), self.compute) for region in here]
        total = self.empty(b, self.region.sizes)
        for region, element in zip(here, loaded, strict=True):
            total = self.join(b, total, element)
            b.store(b.cast(self.join(b, prefix, total), self.out.dtype), call.output(b, 0), self.at, region)
        return total


class BlockScan(Scan):
    """A program has 256 chunks at a time: of one row, of 16 rows of up to 256 elements, or of 256 rows of up to 16.

    Along another axis than the last it has 16 chunks of each of 16 columns. What is `of_totals` scans the last
    temporary of the call, and replaces each element by its prefix.
    """

    def __init__(self, call: Call, *, of_totals: bool = False) -> None:
        super().__init__(call)
        self.of_totals, self.length = of_totals, self.count
        if of_totals:
            self.length = self.count.ceildiv(BLOCK)
        self.is_strip = self.inner.value != 1
        most = self.length.value if self.length.value is not None else BLOCK
        self.chunks = CHUNK if self.is_strip else 1 if most <= CHUNK else CHUNK if most <= THREADS else THREADS
        self.rows = THREADS // self.chunks
        self.width = self.chunks * CHUNK
        self.sizes = (THREADS,) if self.is_strip else ()
        """What is carried from block to block: a number, or one for each column, which all its threads have."""

    def write_whole(self, part: str = "") -> SpecOp:
        """Programs over rows or strips, which loop over blocks of long ones."""
        sides = [self.outer.ceildiv(self.rows)]
        writes = self.call.temporaries if self.of_totals else None
        b = self._begin([self.outer, self.inner.ceildiv(CHUNK)] if self.is_strip else sides, part, writes)
        if self.is_strip:
            coords = {"_o": b.program_id(0), "_r": b.index(Dim.symbol("_p") * CHUNK, {"_p": b.program_id(1)})}
        else:
            coords = {"_r": b.index(Dim.symbol("_p") * self.rows, {"_p": b.program_id(0)})}
        padded = self.length.ceildiv(self.width) * self.width
        self.loop(b, self.width, padded, lambda at, prefix: self._block(coords, at, prefix), self.sizes)
        return b.finish()

    def write_totals(self) -> SpecOp:
        """Programs over blocks of rows: the total of each, to temporary memory."""
        b = self._begin([self.outer, self.length.ceildiv(BLOCK)], "totals", self.call.temporaries)
        total = self._block({"_r": b.program_id(0)}, self._start_of_block(), None)
        b.store(total, b.arguments[-1], *self._place_of_total())
        return b.finish()

    def write_blocks(self) -> SpecOp:
        """Programs over blocks of rows, each of which finds its prefix in temporary memory."""
        b = self._begin([self.outer, self.length.ceildiv(BLOCK)], "blocks")
        above = b.load(b.arguments[-1], *self._place_of_total())
        self._block({"_r": b.program_id(0)}, self._start_of_block(), above)
        return b.finish()

    def _begin(self, grid: Sequence[Dim], part: str, writes: Sequence[int] | None = None) -> TileBuilder:
        self.b = b = self.call.builder(grid, part, self.shapes, warps=THREADS // 32, writes=writes)
        # Skewed by a vector, so that threads which have a chunk each are in all banks, and vectors stay aligned.
        bytes = self.compute.bytes
        apart = CHUNK + (_VECTOR // bytes if CHUNK * bytes // _VECTOR % 2 == 0 else 0)
        shape = [CHUNK, THREADS + CHUNK] if self.is_strip else [THREADS, apart]
        self.elements = b.scratch(shape, self.compute, space="shared")
        self.totals = b.scratch([THREADS], self.compute, space="shared")
        self.groups = b.scratch([CHUNK], self.compute, space="shared")
        self.threads = TileRegion({"_t": b.index(0)}, ("_t",), (THREADS,))
        return b

    def _start_of_block(self) -> SSAValue:
        return self.b.index(Dim.symbol("_p") * BLOCK, {"_p": self.b.program_id(1)})

    def _place_of_total(self) -> tuple[list[Dim], TileRegion]:
        region = TileRegion({"_r": self.b.program_id(0), "_p": self.b.program_id(1)})
        return [Dim.symbol("_r"), Dim.symbol("_p")], region

    def _tile(self, coords: Mapping[str, SSAValue], start: SSAValue) -> tuple[TileRegion, list[Dim], list[Dim]]:
        """The tile of a block as it is contiguous, where it is in memory, and where its chunks are in shared memory."""
        found = {**coords, "_j": start, "_r0": coords["_r"], "_j0": start}
        row, here = Dim.symbol("_r") - Dim.symbol("_r0"), Dim.symbol("_j") - Dim.symbol("_j0")
        at = self.place(Dim.symbol("_j"))
        bounds = {"_j": self.length}
        if self.is_strip:
            bounds = (
                bounds
                if self.inner.value is not None and self.inner.value % CHUNK == 0
                else {**bounds, "_r": self.inner}
            )
            region = TileRegion(found, ("_j", "_r"), (self.width, CHUNK), bounds)
            slot = self._slot(here // CHUNK * CHUNK + row, here % CHUNK)
            return region, [Dim.symbol("_o"), at, Dim.symbol("_r")], slot
        bounds = bounds if self.rows == 1 else {**bounds, "_r": self.outer}
        region = TileRegion(found, ("_r", "_j"), (self.rows, self.width), bounds)
        slot = self._slot(row * self.chunks + here // CHUNK, here % CHUNK)
        if self.of_totals:  # in the order of the scan, whichever way it goes
            return region, [Dim.symbol("_r"), Dim.symbol("_j")], slot
        return region, [Dim.symbol("_r"), at, Dim.constant(0)], slot

    def _slot(self, thread: Dim, number: Dim) -> list[Dim]:
        """Where an element of a thread's chunk is in shared memory."""
        return [number, thread] if self.is_strip else [thread, number]

    def _chunk_at(self, number: int) -> list[Dim]:
        return self._slot(Dim.symbol("_t"), Dim.constant(number))

    def _block(self, coords: Mapping[str, SSAValue], start: SSAValue, above: SSAValue | None) -> SSAValue:
        """The results of a block, whose prefix is `above`, and its total; no results without one."""
        b = self.b
        region, place, slot = self._tile(coords, start)
        everything = region.along(region.axes, region.sizes, {})
        source = b.arguments[-1] if self.of_totals else self.call.input(b, 0)
        loaded = b.cast(b.load(source, place, region), self.compute)
        for axis in region.bounds:
            loaded = b.clip(loaded, axis, self.identity, region)
        b.barrier()
        b.store(loaded, self.elements, slot, everything)
        b.barrier()
        inner: list[SSAValue] = []
        for number in range(CHUNK):
            element = b.load(self.elements, self._chunk_at(number), self.threads)
            inner.append(self.join(b, inner[-1] if inner else self.empty(b, (THREADS,)), element))
        prefix, total = self._exchange(inner[-1], above)
        if prefix is not None:
            results = [self.empty(b, (THREADS,)), *inner[:-1]] if self.of_totals else inner
            results = [self.join(b, prefix, result) for result in results]
            for number, result in enumerate(results):
                b.store(result, self.elements, self._chunk_at(number), self.threads)
            b.barrier()
            made = b.load(self.elements, slot, everything)
            target = b.arguments[-1] if self.of_totals else self.call.output(b, 0)
            b.store(b.cast(made, self.compute if self.of_totals else self.out.dtype), target, place, region)
        return total

    def _exchange(self, totals: SSAValue, above: SSAValue | None) -> tuple[SSAValue | None, SSAValue]:
        """The prefix of each chunk, and the total of the block, by the totals of chunks."""
        b, thread = self.b, Dim.symbol("_t")
        prefix = above if above is None or self.sizes else b.broadcast(above, (THREADS,), ())
        if self.chunks == 1:
            return prefix, self.empty(b, ())
        b.store(totals, self.totals, [thread], self.threads)
        b.barrier()
        starts = [thread % CHUNK + number * CHUNK for number in range(CHUNK)]
        if not self.is_strip:
            starts = [thread // CHUNK * CHUNK + number for number in range(CHUNK)]
        lines = [b.load(self.totals, [at], self.threads) for at in starts]
        before, total = self._chain(lines, thread // CHUNK if self.is_strip else thread % CHUNK)
        if self.chunks == CHUNK:
            joined = None if prefix is None else self.join(b, prefix, before)
            return joined, total if self.is_strip else self.empty(b, ())
        b.store(total, self.groups, [thread // CHUNK], self.threads, windows=[thread % CHUNK, Dim.constant(1)])
        b.barrier()
        groups = [b.load(self.groups, [Dim.constant(number)], TileRegion({})) for number in range(CHUNK)]
        before_group, whole = self._chain(groups, thread // CHUNK)
        if prefix is not None:
            prefix = self.join(b, self.join(b, prefix, before_group), before)
        return prefix, whole

    def _chain(self, totals: Sequence[SSAValue], number: Dim) -> tuple[SSAValue, SSAValue]:
        """For each thread those of 16 totals that come before its own `number`, joined in order; and all of them."""
        b = self.b
        own = b.coordinate_of(number, self.threads)
        before, running = self.empty(b, (THREADS,)), self.empty(b, tile_type(totals[0]).shape)
        for at, total in enumerate(totals):
            if at:
                is_later = b.elementwise("ge", own, b.full(at, (THREADS,), tile_type(own).dtype))
                whole = running if tile_type(running).rank else b.broadcast(running, (THREADS,), ())
                before = b.select(is_later, whole, before)
            running = self.join(b, running, total)
        return before, running


def _shares_rows(scan: Scan) -> bool:
    """Whether programs share rows: long ones, too few to keep the memory of a machine busy."""
    machine, rows, count = scan.call.machine, scan.outer.value, scan.count.value
    if rows is None or scan.inner.value != 1 or (count is not None and count <= _FEW_BLOCKS * BLOCK):
        return False
    return rows * BLOCK * (scan.x.dtype.bytes + scan.out.dtype.bytes) < _IN_FLIGHT * machine.blocks


def _has_columns(scan: Scan) -> bool:
    """Whether threads of a GPU have columns of their own: enough of them for all, or none has many elements."""
    columns, count = (scan.outer * scan.inner).value, scan.count.value
    if scan.inner.value in (None, 1) or columns is None or count is None:
        return False
    return count <= _SHORT or columns >= _COLUMNS_PER_UNIT * scan.call.machine.blocks


def _write_scan(call: Call) -> list[SpecOp]:
    """The kernels of a scan: one, or where programs share rows, one for totals, one for their prefixes, one for all."""
    if not call.machine.is_gpu:
        return [ColumnScan(call).write()]
    scan = BlockScan(call)
    if _has_columns(scan):
        return [ThreadScan(call).write()]
    if not _shares_rows(scan):
        return [scan.write_whole()]
    call = call.with_temporary(TensorType.of([scan.outer, scan.count.ceildiv(BLOCK)], scan.compute))
    totals = BlockScan(call, of_totals=True)
    return [BlockScan(call).write_totals(), totals.write_whole("prefixes"), BlockScan(call).write_blocks()]


SCAN = LibraryKernel("scan", "Cumulative sum, product, maximum or minimum along an axis, by chunks.", _write_scan)


# Partial results of a contraction, joined by an aligned binary tree in one pass: a program goes over them in order, as
# a binary counter goes up. Level `j` holds the sum of an aligned run of 2^j of them; each is added to the levels that
# its number carries over, from the lowest up, so every sum is one of the tree.

_JOINED = 256
"""Elements of the result that a program of a GPU has, one to a thread; one of a CPU has two vectors."""


def _is_number(b: TileBuilder, expr: Dim, wanted: int, region: TileRegion) -> SSAValue:
    """Whether an expression of indices that are the same for all elements has a value, once for all of them."""
    alone = TileRegion(region.coords)
    found = b.elementwise("eq", b.coordinate_of(expr, alone), b.full(wanted, (), i64))
    return b.broadcast(found, region.sizes, ())


def _levels_of(count: Dim) -> int:
    most = count.value if count.value is not None else MOST_SEGMENTS
    return max(1, most.bit_length())


def _write_segments(call: Call) -> list[SpecOp]:
    """[count, elements]: programs over blocks of elements, each with a loop over the parts."""
    (parts,), (out,) = call.operands, call.results
    count, size = parts.shape[0], product(out.shape)
    shapes: dict[int, tuple[Dim, ...]] = {call.inputs[0]: (count, size)}
    if call.outputs[0] is not None:
        shapes[call.outputs[0]] = (size,)
    tile = _JOINED if call.machine.is_gpu else 2 * call.lanes
    b = call.builder([size.ceildiv(tile)], shapes=shapes)
    start = b.index(Dim.symbol("_p") * tile, {"_p": b.program_id(0)})
    region = TileRegion({"_e": start}, ("_e",), (tile,), {"_e": size})
    dtype: DType = parts.dtype
    levels = _levels_of(count)
    number = Dim.symbol("_s")

    def step(index: SSAValue, held: list[SSAValue]) -> list[SSAValue]:
        here = region.with_coords(_s=index)
        added = b.load(call.input(b, 0), (number, Dim.symbol("_e")), here)
        kept: list[SSAValue] = []
        for level, old in enumerate(held):
            # Of a number that ends in `level` ones, those levels are taken, and it goes on to this one.
            reaches = _is_number(b, number % (1 << level), (1 << level) - 1, here)
            is_taken = _is_number(b, number // (1 << level) % 2, 1, here)
            is_free = b.elementwise("xor", is_taken, b.full(True, region.sizes, bool_))
            kept.append(b.select(b.elementwise("and", reaches, is_free), added, old))
            added = b.select(b.elementwise("and", reaches, is_taken), b.elementwise("add", old, added), added)
        return kept

    nothing = [b.full(0, region.sizes, dtype) for _ in range(levels)]
    held = b.loop(b.index(0), b.index(count), 1, step, nothing)
    total = held[0]
    for level, run in enumerate(held[1:], 1):
        is_there = _is_number(b, count // (1 << level) % 2, 1, region)
        is_first = _is_number(b, count % (1 << level), 0, region)
        joined = b.select(is_first, run, b.elementwise("add", run, total))
        total = b.select(is_there, joined, total)
    b.store(b.cast(total, out.dtype), call.output(b, 0), (Dim.symbol("_e"),), region)
    return [b.finish()]


JOIN_SEGMENTS = LibraryKernel("join_segments", "Partial results joined by an aligned binary tree.", _write_segments)
