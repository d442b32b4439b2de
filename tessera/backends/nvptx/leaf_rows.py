"""Rows that several warps share, divided by the leaves of reductions: each warp has some leaves and keeps them.

A leaf is summed by itself, whoever does it, so that a row is shared without a word until its leaves are joined. Warp
`w` of `W` has leaves `w`, `w + W`, ...; what the last round lacks is beyond the row, where loads give what changes
nothing. A loop then is, by what its iterations carry: nothing, and every warp does its own; or minima and maxima, which
all warps exchange. A tree reads what warps have put into shared memory, and every warp joins all of it. Everything
outside of loops is done by all warps alike, and stored by the first.

Where the width of a row is known, a block is one group of warps, and has one row; or the blocks of a cluster are,
where it has more leaves than the warps of one block keep. These write what others read to the shared memory of each of
them. Where the width is symbolic, a launch decides how many warps a block or cluster has: as many as a row has
leaves. Rows of one leaf share a block.

A warp whose leaves are whole and one that has the end of a row are two programs, one of which a warp runs from end to
end: what the first loads and computes is nowhere under a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.mma.assembly import warp_uniform
from tessera.backends.nvptx.row_accesses import Left, find_missing
from tessera.backends.nvptx.row_plan import LEAVES, ROW_BLOCKS, STREAMED, is_row_loop, row_width, run_length
from tessera.backends.nvptx.row_prefetch import early_bytes, load_first, row_loads, write_row_loop
from tessera.backends.nvptx.streamed_rows import StreamedRows
from tessera.backends.nvptx.text import WARP, assembly, barrier, cluster_barrier, shuffle, special, warp_barrier
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, dim_value
from tessera.ir.target.typed_ops import ElementwiseOp, IndexOp, KernelOp, LoopOp, ProgramsOp, StoreOp, TailOp, TreeOp
from tessera.types.dtype import DType
from tessera.types.numerics import LANES, LEAF

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

_SLOT = 8
"""Bytes of one exchanged element, of any dtype."""
TILES, _FEW_TILES = LEAF // LANES, 2
"""Tiles of a leaf, and those that a program for short ends of rows of symbolic width has."""
_FEW = 16
"""Warps whose exchanged elements every thread reads; of more, or any number, each lane reads one, and they exchange."""


_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
"""Functions that join leaves."""


def check_division(kernel: KernelOp) -> None:
    """Refuse rows that warps cannot have: loops that are not over leaves, or more leaves than all warps have."""
    width, leaves = row_width(kernel).value, LEAVES.of(kernel)
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp | TailOp)]
    steps = sorted({op.step for op in loops if isinstance(op, TailOp) or not is_row_loop(op)})
    if steps != [LEAF]:
        raise TargetVerifyError(
            f"warps of `@{kernel.symbol}` share rows by leaves of {LEAF} elements, and its loops step by {steps}",
            span=kernel.span,
        )
    warps = kernel.warps_per_row * ROW_BLOCKS.of(kernel)
    most = warps * leaves * LEAF
    if not leaves or (width is not None and width > most):
        raise TargetVerifyError(
            f"{warps} warps of `@{kernel.symbol}` with {leaves} leaves of {LEAF} elements have {most} "
            f"of a row, which has {row_width(kernel)}",
            span=kernel.span,
            fix=f"give each of them as many `{LEAVES.name}` as the row needs",
        )


class LeafRows:
    """The programs of a kernel whose rows warps share by leaves, written."""

    are_loaded = False
    """Whether the rows of a program were loaded."""
    has_lines = False
    """Whether leaves were stored that others may not see yet: trees of one pass wait once."""
    waits = 0
    """How often warps wait for each other in what was written."""

    def __init__(self, emitter: Emitter, warp: Value) -> None:
        self.emitter, self.warp = emitter, warp
        if STREAMED.of(emitter.kernel) or row_width(emitter.kernel).value is None:
            # The assembler keeps what is found from it in registers of the warp, of which there are enough.
            number = warp_uniform(emitter.f, emitter.f.cast("trunc", warp, "i32"))
            self.warp = emitter.f.cast("zext", number, "i64")
        self.blocks = ROW_BLOCKS.of(emitter.kernel)
        self.warps = emitter.warps_per_row * self.blocks
        """Warps that share a row, of all blocks that do."""
        self.is_whole = True
        """Whether what is written is the program of warps that have whole leaves only."""
        self.are_running = True
        """Whether all blocks of the cluster are known to run, so that their memory may be written."""
        self.inside = False
        """Whether what is written is of a leaf, and so of one warp."""
        self.done: set[SpecOp] = set()
        """Tails that were written with their loops."""
        self.totals: dict[SSAValue, Value] = {}
        """What trees have made of lines."""
        self.starts: dict[int, Value] = {}
        self.width = row_width(emitter.kernel)
        check_division(emitter.kernel)
        self.is_symbolic = self.width.value is None
        self.first: Index = 0
        """The first warp of the group in its block."""
        self.group: Index = self.warps
        """Warps of the group."""
        self.own: Value = self.warp
        """The number of this warp in its group."""
        self.missing: Left = {}
        """Ops of tails that are left out."""
        self.has_leaf: Value | None = None
        """Whether this warp has the leaf that is written, where it may have none."""
        self.lines = list(dict.fromkeys(op.lines for op in emitter.kernel.walk() if isinstance(op, TreeOp)))
        self.slots: dict[Any, int] = {}
        self.has_slots = self.is_symbolic or STREAMED.of(emitter.kernel)
        """Whether lines that trees join are in slots of their own."""
        self.bank: Index = 0
        """Where the slots of this row are: of two rows one after the other each has its own."""
        self.streamed: StreamedRows | None = None
        emitter.leaf_bytes = self._place_slots(emitter.shared_bytes) - emitter.shared_bytes

    def _place_slots(self, start: int) -> int:
        """Place what warps exchange in shared memory from `start` on, and rows that are copied there; where it ends."""
        emitter, first = self.emitter, start
        for op in emitter.kernel.walk():
            if isinstance(op, LoopOp) and op.results:
                self.slots[op] = start
                start += _SLOT * self.warps * len(op.results)
        for lines in self.lines if self.has_slots else ():
            emitter.held.pop(lines, None)
            self.slots[lines] = start
            start += _SLOT * self.warps
        if STREAMED.of(emitter.kernel):
            self.streamed = StreamedRows(emitter, self, start - first, 2 * start - first)
            start = self.streamed.end
        # What warps exchange behind it is moved 16 bytes at a time.
        return -(-start // 16) * 16

    def write(self, op: ProgramsOp, grid: Sequence[Value], total: Index) -> None:
        """A row to a block or a cluster of them, or rows to each group of a block's warps."""
        emitter, f = self.emitter, self.emitter.f
        block = f.cast("zext", special(f, "ctaid.x"), "i64")
        if not self.is_symbolic:
            if self.blocks > 1:
                assembly(f, "barrier.cluster.arrive.relaxed.aligned;", "", [])
                rank = f.urem(block, self.blocks)
                self.own = f.add(self.warp, f.mul(rank, emitter.warps_per_row))
                block = f.udiv(block, self.blocks)
            self._write_rows(op, grid, block, total)
            return
        warps = f.cast("zext", f.op("lshr", special(f, "ntid.x"), Value("i32", "5")), "i64")
        if self.blocks > 1:
            assembly(f, "barrier.cluster.arrive.relaxed.aligned;", "", [])
            self.group = f.mul(warps, self.blocks)
            self.own = f.add(self.warp, f.mul(f.urem(block, self.blocks), warps))
            row = f.udiv(block, self.blocks)
        else:
            self.group = f.ceil_div(dim_value(f, self.width, emitter.env), LEAF)
            # Rows of one leaf share a block, a warp to each; any other has a block.
            is_one = f.icmp("eq", self.group, 1)
            self.first = f.select(is_one, self.warp, f.index(0))
            self.own = f.select(is_one, f.index(0), self.warp)
            row = f.add(f.mul(block, f.select(is_one, warps, f.index(1))), self.first)
        self._place_lines()
        if self.blocks == 1:
            f.if_(f.icmp("slt", row, total), lambda: self._write_program(op, grid, row))
        else:
            self._write_program(op, grid, row)

    def _write_rows(self, op: ProgramsOp, grid: Sequence[Value], first: Value, total: Index) -> None:
        """One row, or rows one after the other, each of which is copied while the one before is computed."""
        emitter, f, streamed = self.emitter, self.emitter.f, self.streamed
        if streamed is None:
            self._write_program(op, grid, first)
            return
        streamed.prepare(op, grid, total)
        streamed.start_copy(first)
        known = dict(emitter.known)

        def write_row(row: Value, state: list[Value]) -> list[Value]:
            (streamed.parity,), emitter.known = state, dict(known)
            self.bank = f.mul(f.cast("zext", streamed.parity, "i64"), streamed.bank_bytes)
            self._place_lines()
            self._write_program(op, grid, row)
            return [f.op("xor", streamed.parity, Value("i32", "1"))]

        f.loop(first, total, streamed.step, write_row, [Value("i32", "0")])

    def begin(self, row: Value) -> None:
        """A program begins: what was copied for it is taken."""
        if self.streamed is not None:
            self.streamed.take(row)

    def _place_lines(self) -> None:
        """Put the lines that trees join into the slots of a group."""
        emitter, f = self.emitter, self.emitter.f
        for lines in self.lines:
            at = f.add(f.mul(self.first, bytes_of(values.memory_type(shaped_type(lines).dtype))), self.slots[lines])
            emitter.buffers[lines] = f.gep(emitter.module.shared_base(), f.add(at, self.bank), "i8")

    def _write_program(self, op: ProgramsOp, grid: Sequence[Value], row: Value) -> None:
        """The program of warps whose leaves are whole, and that of warps with the end of a row, or nothing of it."""
        emitter, f = self.emitter, self.emitter.f
        self.starts = {} if self.streamed is None else {0: self.streamed.first}
        loop = next(part for part in op.walk() if isinstance(part, LoopOp))
        end = dim_value(f, self.width, emitter.env)
        is_even = run_length(loop.low) > 0 or (constant_of(end) or 1) % (self.warps * LEAF) == 0
        # Where a warp's last leaf begins, in front of both programs; that of a run is counted from its own start.
        last = f.index(0) if is_even else self.start_of(self.iterations(constant_of(end)) - 1)
        starts, known = dict(self.starts), dict(emitter.known)

        def write(is_whole: bool, tiles: int = TILES) -> None:
            self.is_whole, self.are_running, self.done = is_whole, self.blocks == 1, set()
            self.are_loaded = False
            self.missing = {} if is_whole else self._missing(op, tiles)
            self.starts, self.totals, emitter.known = dict(starts), {}, dict(known)
            emitter.program(op, grid, row)
            self._await_blocks()

        if is_even:
            write(is_whole=True)
        else:
            left = f.sub(end, last)
            f.if_(
                f.icmp("sge", left, LEAF), lambda: write(True), lambda: self._write_end(left, constant_of(end), write)
            )

    def _write_end(self, left: Value, end: int | None, write: Callable[[bool, int], None]) -> None:
        """The program of warps with the end of a row, with the tiles that it has, or about as many."""
        f = self.emitter.f
        if end is not None:
            write(False, -(-(end % LEAF or LEAF) // LANES))
        else:
            f.if_(
                f.icmp("sle", left, _FEW_TILES * LANES), lambda: write(False, _FEW_TILES), lambda: write(False, TILES)
            )

    def _missing(self, op: ProgramsOp, tiles: int) -> Left:
        """What is left out of tails where a leaf has so many tiles; nothing where one of them needs all.

        A program that goes through rows has its sums along columns in the same registers all along.
        """
        if any(isinstance(part, LoopOp) and is_row_loop(part) for part in op.walk()):
            return {}
        found = [find_missing(part, tiles) for part in op.walk() if isinstance(part, TailOp)]
        is_known = tiles < TILES and not any(one is None for one in found)
        return {key: value for one in found for key, value in (one or {}).items()} if is_known else {}

    def iterations(self, end: int | None) -> int:
        """Leaves that each warp has, those beyond the end of a row too."""
        return LEAVES.of(self.emitter.kernel) if end is None else -(-end // (LEAF * self.warps))

    def _await_blocks(self) -> None:
        """Wait once until all blocks of the cluster run."""
        if not self.are_running:
            assembly(self.emitter.f, "barrier.cluster.wait.acquire.aligned;", "~{memory}", [])
            self.are_running = True

    def synchronize(self) -> None:
        """All warps of the group wait for each other."""
        f = self.emitter.f
        self.waits, self.has_lines = self.waits + 1, False
        if self.blocks > 1:
            self._await_blocks()
            cluster_barrier(f)
            return
        if not self.is_symbolic:
            barrier(f)
            return
        # Rows that share a block have a warp each. A barrier whose number is not known would take all sixteen of a
        # block, of which a multiprocessor has those of four blocks.
        f.if_(f.icmp("sgt", self.group, 1), lambda: barrier(f), lambda: warp_barrier(f))

    def start_of(self, iteration: int, low: Index = 0) -> Value:
        """The first element of this warp's leaf in an iteration."""
        if iteration not in self.starts:
            f = self.emitter.f
            self.starts[iteration] = f.add(f.mul(f.add(self.own, f.mul(self.group, iteration)), LEAF), low)
        return self.starts[iteration]

    def loop(self, op: LoopOp, carried: list[Value]) -> None:
        """A loop over leaves, with its tail, or one through rows, with loops over leaves inside."""
        emitter = self.emitter
        if is_row_loop(op):
            write_row_loop(self, op)
            return
        end = emitter.indices[op.high]
        tail = op.next_op if isinstance(op.next_op, TailOp) else None
        if not self.are_loaded:
            self._load_first(op, end)
        # Also of warps without a leaf, which wait as often as others.
        parts = [part for part in op.walk() if isinstance(part, StoreOp)]
        self.has_lines = self.has_lines or any(part.buffer in self.lines for part in parts)
        self.inside = True
        if run_length(op.low):
            carried = self._run(op, tail, end, carried)
        else:
            iterations = self.iterations(end if isinstance(end, int) else None)
            for iteration in range(iterations):
                first = self.start_of(iteration)
                if self.is_whole or iteration < iterations - 1:
                    carried = emitter.iterate(op, [first], carried)
                elif tail is not None:
                    self.has_leaf = emitter.f.icmp("slt", first, end)
                    carried = emitter.iterate(tail, [first], carried, self.missing)
                    self.has_leaf = None
        self.inside = False
        if carried:
            carried = self._exchange(op, carried)
        emitter.bind(op.results, carried)
        if tail is not None:
            emitter.bind(tail.results, carried)
            self.done.add(tail)

    def _load_first(self, op: LoopOp, end: Index) -> None:
        """Load the rows of a program in front of its first loop, for that and for those behind it."""
        self.are_loaded = True
        count = self.iterations(end if isinstance(end, int) else None)
        if not early_bytes(self.emitter.kernel, count):
            return
        part: Operation | None = op
        bodies: list[tuple[LoopOp | TailOp, Index]] = []
        while part is not None:
            bodies += self.bodies_of(part, count)
            part = part.next_op
        load_first(self.emitter, bodies, lambda body: (one for one in row_loads(body) if one not in self.missing))

    def bodies_of(self, op: Operation, count: int) -> list[tuple[LoopOp | TailOp, Index]]:
        """What is written of a loop over leaves: the body of each iteration, and the first element of its leaf."""
        if not isinstance(op, LoopOp) or is_row_loop(op):
            return []
        # A row of whole leaves has no tail: warps without a leaf have nothing of it.
        tail = op.next_op if isinstance(op.next_op, TailOp) else None
        bodies = [*([op] * (count - 1)), op if self.is_whole else tail]
        return [(body, self.start_of(at)) for at, body in enumerate(bodies) if body is not None]

    def _run(self, op: LoopOp, tail: TailOp | None, end: Index, carried: list[Value]) -> list[Value]:
        """A run of leaves, as many for every warp; the last of a row may end before."""
        emitter, f = self.emitter, self.emitter.f
        low = emitter.indices[op.low]
        starts = [self.start_of(iteration, low) for iteration in range(LEAVES.of(emitter.kernel))]

        def write_whole() -> list[Value]:
            found = carried
            for first in starts:
                found = emitter.iterate(op, [first], found)
            return found

        def write_last() -> list[Value]:
            found = carried
            for first in starts:
                found = self._last_iteration(op, tail, first, end, found)
            return found

        def write_alone(write: Callable[[], list[Value]]) -> list[Value]:
            known, memo = dict(emitter.known), dict(emitter.memo)
            found = write()
            emitter.known, emitter.memo = known, memo
            return found

        assert isinstance(op.low.owner, IndexOp)
        assert isinstance(op.high.owner, IndexOp)
        if (op.high.owner.expr - op.low.owner.expr).value is not None:
            return write_whole()
        is_whole = f.icmp("sge", f.sub(end, low), run_length(op.low))
        return f.if_(is_whole, lambda: write_alone(write_whole), lambda: write_alone(write_last))

    def _last_iteration(
        self, op: LoopOp, tail: TailOp | None, first: Value, end: Index, carried: list[Value]
    ) -> list[Value]:
        """Leaves that some warps have: whole ones, the last of the row, or none, which is one beyond its end."""
        f = self.emitter.f
        is_whole = f.icmp("sle", f.add(first, LEAF), end)
        if tail is None:
            return self._either(is_whole, op, None, first, carried)
        self.has_leaf = f.icmp("slt", first, end)
        carried = self._either(is_whole, op, tail, first, carried)
        self.has_leaf = None
        return carried

    def _either(
        self, condition: Value, op: LoopOp, other: TailOp | None, first: Value, carried: list[Value]
    ) -> list[Value]:
        """One body or the other; what is loaded and kept in either is known behind both, as the same registers."""
        emitter, f = self.emitter, self.emitter.f
        made: list[list[tuple[dict[Any, Tile], Any, Tile]]] = []

        def write(body: LoopOp | TailOp | None) -> list[Value]:
            known = dict(emitter.known)
            stores = [emitter.memo, *(held.tiles for held in emitter.held.values())]
            before = [dict(store) for store in stores]
            ends = carried if body is None else emitter.iterate(body, [first], carried)
            new = [
                (store, key, tile)
                for store, known in zip(stores, before, strict=True)
                for key, tile in store.items()
                if key not in known
            ]
            for store, key, _ in new:
                del store[key]
            made.append(new)
            emitter.known = known
            return [*ends, *(value for _, _, tile in new for value in emitter.registers(tile))]

        def write_other() -> list[Value]:
            if other is not None:
                return write(other)
            kept = [value for _, _, tile in made[0] for value in emitter.registers(tile)]
            return [*carried, *(Value(value.type, "zeroinitializer") for value in kept)]

        # Indices in front of both, so that loads of other loops are found to be at the same.
        for body in (op, *([] if other is None else [other])):
            emitter.indices[body.body.block.args[0]] = first
            for part in body.body.block.ops:
                if isinstance(part, IndexOp):
                    emitter.emit(part)
        found = f.if_(condition, lambda: write(op), write_other)
        at = len(carried)
        for number, (_, _, tile) in enumerate(made[0]):
            merged = Tile(tile.layout, tile.dtype, found[at : at + len(tile.registers)])
            at += len(tile.registers)
            for new in made:
                store, key, _ = new[number]
                store[key] = merged
        return found[: len(carried)]

    def tail(self, op: SpecOp, write: Callable[[], None]) -> None:
        """A tail, unless it was written with its loop."""
        if op not in self.done:
            write()

    def store(self, op: StoreOp, write: Callable[[], None], find: Callable[[], tuple[Value, Value]]) -> None:
        """A store: of a leaf by its warp, of a row by the first; `find` gives the address and what is stored there."""
        f = self.emitter.f
        is_line = self.inside and op.buffer in self.lines
        if is_line and self.blocks > 1:
            self._await_blocks()
            write = partial(self._share, *find())
        if is_line and self.has_leaf is not None:
            f.if_(self.has_leaf, write)
        elif self.inside:
            write()
        else:
            f.if_(f.icmp("eq", self.own, 0), write)

    def _share(self, address: Value, kept: Value) -> None:
        """Store what all lanes have to an address of shared memory, of every block of the cluster: one by each lane."""
        f, size = self.emitter.f, bytes_of(kept.type)
        if self.blocks == 1:
            f.store(kept, address, align=size)
            return
        own = f.raw("ptr addrspace(3)", f"addrspacecast ptr {address.text} to ptr addrspace(3)")
        word = f.raw("i32", f"ptrtoint ptr addrspace(3) {own.text} to i32")
        bits = f.bitcast(kept, f"i{8 * size}")
        bits = bits if size >= 4 else f.cast("zext", bits, "i32")
        lane = f.cast("trunc", f.index(self.emitter.thread), "i32")
        text = (
            f"{{ .reg .pred P; .reg .b32 A; setp.lt.u32 P, $1, {self.blocks}; @P mapa.shared::cluster.u32 A, $0, $1; "
            f"@P st.shared::cluster.b{8 * size} [A], $2; }}"
        )
        assembly(f, text, f"r,r,{'l' if size == 8 else 'r'},~{{memory}}", [word, lane, bits])

    def _exchange(self, op: LoopOp, carried: list[Value]) -> list[Value]:
        """Minima and maxima of all lanes of all warps, for each."""
        emitter, f = self.emitter, self.emitter.f
        last = op.body.block.last_op
        assert last is not None
        joins = [value.owner for value in last.operands]
        found: list[Value] = []
        at, base = 0, emitter.module.shared_base()
        parts: list[tuple[str, DType, Value, int]] = []
        for number, (join, result) in enumerate(zip(joins, op.results, strict=True)):
            assert isinstance(join, ElementwiseOp), "warps exchange minima and maxima"
            layout, dtype = emitter.layout(result)
            own = carried[at : at + layout.registers]
            at += layout.registers
            value = values.minmax(f, join.fn, dtype, own, None)
            for lanes in (16, 8, 4, 2, 1):
                value = values.compute(f, join.fn, [value, shuffle(f, value, "bfly", lanes)], dtype)
            start = self.slots[op] + number * _SLOT * self.warps
            kept = values.to_memory(f, value, dtype)
            self._await_blocks()
            own = f.mul(f.add(self.first, self.own), _SLOT)
            self._share(f.gep(base, f.add(f.add(own, start), self.bank), "i8"), kept)
            parts.append((join.fn, dtype, value, start))
        self.synchronize()
        for (fn, dtype, _, start), result in zip(parts, op.results, strict=True):
            found += [self._join_warps(fn, dtype, start)] * emitter.layout(result)[0].registers
        return found

    def _join_warps(self, fn: str, dtype: DType, start: int) -> Value:
        """What all warps of the group have put into the slots from `start` on, joined by every thread or lane."""
        f, base, element = self.emitter.f, self.emitter.module.shared_base(), values.memory_type(dtype)
        # A group of fewer warps reads its last one several times, which a minimum does not mind.
        last = f.sub(f.add(self.first, self.group), 1)
        by_lanes = self.is_symbolic or self.warps > _FEW
        numbers = [f.add(self.emitter.thread, at) for at in range(0, self.warps, WARP)] if by_lanes else []
        warps = [f.smin(f.add(self.first, warp), last) for warp in numbers or range(self.warps)]
        each = [
            values.from_memory(
                f, f.load(f.gep(base, f.add(f.add(f.mul(warp, _SLOT), start), self.bank), "i8"), element), dtype
            )
            for warp in warps
        ]
        while len(each) > 1:
            pairs = [values.compute(f, fn, [a, b], dtype) for a, b in zip(each[::2], each[1::2], strict=False)]
            each = [*pairs, *each[len(pairs) * 2 :]]
        (value,) = each
        for lanes in (16, 8, 4, 2, 1) if by_lanes else ():
            value = values.compute(f, fn, [value, shuffle(f, value, "bfly", lanes)], dtype)
        return value

    def tree(self, op: TreeOp, name: str) -> None:
        """The leaves of all warps joined by every warp: lane `l` has leaf `l`, and exchanges with those further off."""
        emitter, f = self.emitter, self.emitter.f
        dtype, count = shaped_type(op.lines).dtype, emitter.indices[op.count]
        if self.has_lines:
            self.synchronize()
        element, lines = values.memory_type(dtype), emitter.buffers[op.lines]
        most = count if isinstance(count, int) else self.warps * LEAVES.of(emitter.kernel)
        rounds: list[Value] = []
        for first in range(0, most, WARP):
            left = f.sub(count, first)
            value = values.from_memory(
                f, f.load(f.gep(lines, f.smin(f.add(emitter.thread, first), f.sub(count, 1)), element), element), dtype
            )
            gap = 1
            while gap < min(WARP, most - first):
                other = values.compute(f, name, [value, shuffle(f, value, "bfly", gap)], dtype)
                # The subtree across begins where the bits below the gap are 0; beyond the last leaf there is none.
                across = f.op("and", f.op("xor", emitter.thread, f.const_i(gap)), f.const_i(~(gap - 1)))
                value = f.select(f.icmp("slt", across, left), other, value)
                gap *= 2
            rounds.append(shuffle(f, value, "idx", 0))
        gap = WARP
        while len(rounds) > 1:
            pairs = [values.compute(f, name, [a, b], dtype) for a, b in zip(rounds[::2], rounds[1::2], strict=False)]
            firsts = [f.icmp("slt", (2 * at + 1) * gap, count) for at in range(len(pairs))]
            pairs = [f.select(is_there, *two) for is_there, *two in zip(firsts, pairs, rounds[::2], strict=False)]
            rounds, gap = [*pairs, *rounds[len(pairs) * 2 :]], 2 * gap
        self.totals[op.lines] = rounds[0]


def emit_tree(emitter: Emitter, op: TreeOp) -> None:
    """Lines a gap of 1, 2, 4, ... apart are joined by all threads of a program, with a barrier behind each gap."""
    name = _JOIN[op.kind]
    if emitter.divided is not None:
        emitter.divided.tree(op, name)
        return
    f, lines = emitter.f, emitter.buffers[op.lines]
    buffer, count = shaped_type(op.lines), f.index(emitter.indices[op.count])
    element, width = values.memory_type(buffer.dtype), f.index(dim_value(f, buffer.shape[1], emitter.env))

    def join(state: list[Value]) -> list[Value]:
        (gap,) = state
        double = f.mul(gap, 2)
        pairs = f.udiv(f.add(count, f.sub(gap, 1)), double)

        def join_one(number: Value) -> None:
            line, column = f.udiv(number, width), f.urem(number, width)
            first = f.add(f.mul(f.mul(line, double), width), column)
            places = [f.gep(lines, at, element) for at in (first, f.add(first, f.mul(gap, width)))]
            both = [values.from_memory(f, f.load(place, element), buffer.dtype) for place in places]
            joined = values.compute(f, name, both, buffer.dtype)
            f.store(values.to_memory(f, joined, buffer.dtype), places[0])

        f.loop(emitter.thread, f.mul(pairs, width), emitter.threads, join_one)
        emitter.wait()
        return [double]

    f.while_([f.const_i(1)], lambda state: f.icmp("slt", state[0], count), join)
