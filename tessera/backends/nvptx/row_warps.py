"""Rows that several warps share: which iterations each warp has, and loops that are divided among them.

A row too wide for the registers of one warp is divided: warp 0 has the first iterations, warp 1 those after it, and so
on. Each warp keeps its part of the row in registers between loops. A loop then is, by what its iterations carry:

- nothing: every warp does its own iterations, and nobody waits;
- minima and maxima: every warp reduces its own, then all reduce those of all (`RowExchange.reduce`);
- sums: what iterations compute before they add is done by all warps together, the additions by one warp after the other
  (`RowExchange.chain`), so that bits do not depend on how many warps there are.

Where the width of a row is known, a block is one warp group, and each warp has as many iterations as any other; the few
that are left all of them do. Where it is symbolic, it decides at run time how many warps of a block are a group, and
iterations come in sections of eight, each of which a warp has or has not; the last section, of which a part may be
beyond the row, is the last warp's. Everything outside of loops is done by all warps alike, and stored by the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import SSAValue

from tessera.backends.nvptx import emit_access, row_matrix, values
from tessera.backends.nvptx.approximate_functions import Bound
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.passes.defer_accumulators import tail_of
from tessera.backends.nvptx.row_plan import COMPUTES_LATE, DEFERRED, KEEPS_ROWS_ONLY, SECTIONS
from tessera.backends.nvptx.row_prefetch import (
    LINE,
    ROW,
    SECTION,
    DividedPrefetch,
    elements_in_shared_memory,
    pack_pairs,
    prefetched_rows,
    row_width,
    unpack_pairs,
    widest_row,
)
from tessera.backends.nvptx.text import WARP, barrier, special
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value
from tessera.ir.target.typed_ops import IndexOp, KernelOp, LoadOp, LoopOp, ProgramsOp, TailOp
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter


# What warps that share a row exchange through shared memory: minima and maxima of all, and accumulators, in order.

_SLOT = 8
"""Bytes of one exchanged element, of any dtype."""


def exchanged_bytes(kernel: KernelOp) -> int:
    """Shared memory of a block through which its warps exchange what loops carry."""
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp)]
    return _SLOT * WARP * kernel.warps_per_row * sum(len(op.results) for op in loops)


class RowExchange:
    """Shared memory from `start` on, where each loop has a slot for every element that a thread carries.

    A warp group has the named barrier of the number of its first warp.
    """

    group: WarpGroup

    def __init__(self, emitter: Emitter, warp: Value, start: int) -> None:
        self.emitter, self.warp = emitter, warp
        self.slots: dict[SpecOp, int] = {}
        for op in emitter.kernel.walk():
            if isinstance(op, LoopOp):
                self.slots[op] = start
                start += _SLOT * WARP * emitter.warps_per_row * len(self._dtypes(op.results))
        self.end = start

    def synchronize(self) -> None:
        """All warps of the group wait for each other."""
        f = self.emitter.f
        numbers = [
            f.cast("trunc", f.index(one), "i32") if not isinstance(one, int) else Value("i32", str(one))
            for one in (self.group.first, f.mul(self.group.warps, WARP))
        ]
        f.call("llvm.nvvm.barrier.cta.sync.aligned.count", numbers)

    def reduce(self, loop: SpecOp, flat: Sequence[Value], functions: Sequence[str]) -> list[Value]:
        """What all warps of the group have, reduced in any order by the function of each element."""
        f, group, dtypes = self.emitter.f, self.group, self._dtypes(loop.results)
        every = range(len(flat))
        self._put(loop, flat, dtypes, every)
        self.synchronize()
        last = f.sub(f.add(group.first, group.warps), 1)
        # A group of fewer warps reads its last one several times, which a minimum does not mind.
        warps = [f.smin(f.add(group.first, warp), last) for warp in range(self.emitter.warps_per_row)]
        found = [list(self._get(loop, warp, dtypes, every).values()) for warp in warps]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [
                [
                    values.compute(f, name, [one, other], dtype)
                    for name, one, other, dtype in zip(functions, a, b, dtypes, strict=True)
                ]
                for a, b in pairs
            ]
        return found[0]

    def chain(
        self,
        loop: SpecOp,
        carried: Sequence[Value],
        wanted: Sequence[int],
        write: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """What iterations carry, by one warp after the other, each from what the one before has left.

        Only what is wanted is exchanged, the others are as they were. All warps of the group wait at the end of each.
        """
        f, group, dtypes = self.emitter.f, self.group, self._dtypes(loop.results)
        # Behind assembly, so that LLVM does not know the number: it would unroll the loop, once for each warp.
        warps = f.raw("i64", f'call i64 asm "mov.b64 $0, $1;", "=l,l"({f.index(group.warps)})')

        def carried_at(number: int, before: dict[int, Value]) -> Value:
            return before.get(number, carried[number])

        def write_own(number: Value) -> None:
            every = range(len(carried))
            taken = f.if_(
                f.icmp("sgt", number, 0),
                lambda: [carried_at(at, self._get(loop, f.sub(self.warp, 1), dtypes, [at])) for at in wanted],
                lambda: [carried[at] for at in wanted],
            )
            before = dict(zip(wanted, taken, strict=True))
            self._put(loop, write(number, [carried_at(at, before) for at in every]), dtypes, wanted)

        def write_iteration(number: Value) -> None:
            f.if_(f.icmp("eq", number, group.index), lambda: write_own(number))
            self.synchronize()

        f.loop(0, warps, 1, write_iteration)
        found = self._get(loop, f.sub(f.add(group.first, group.warps), 1), dtypes, wanted)
        return [carried_at(number, found) for number in range(len(carried))]

    def _dtypes(self, results: Sequence[SSAValue]) -> list[DType]:
        """The dtype of each element that a thread has of some values."""
        found: list[DType] = []
        for value in results:
            layout, dtype = self.emitter.layout(value)
            found += [dtype] * layout.registers
        return found

    def _address(self, loop: SpecOp, warp: Index, number: int) -> Value:
        f, emitter = self.emitter.f, self.emitter
        offset = f.mul(f.add(f.mul(warp, WARP), emitter.thread), _SLOT)
        start = self.slots[loop] + number * _SLOT * WARP * emitter.warps_per_row
        return f.gep(emitter.module.shared_base(), f.add(offset, start), "i8")

    def _put(self, loop: SpecOp, flat: Sequence[Value], dtypes: Sequence[DType], wanted: Sequence[int]) -> None:
        f = self.emitter.f
        for number in wanted:
            kept = values.to_memory(f, flat[number], dtypes[number])
            f.store(kept, self._address(loop, self.warp, number), align=bytes_of(kept.type))

    def _get(self, loop: SpecOp, warp: Index, dtypes: Sequence[DType], wanted: Sequence[int]) -> dict[int, Value]:
        f = self.emitter.f
        found: dict[int, Value] = {}
        for number in wanted:
            stored = f.load(self._address(loop, warp, number), values.memory_type(dtypes[number]))
            found[number] = values.from_memory(f, stored, dtypes[number])
        return found


FINITE = 2.0**120
"""Lanes below this have a sum that is finite: there are 32 of them, and f32 ends at 2**128."""


@frozen
class WarpGroup:
    """Warps that share a row: how many, which one this is, the number of the first in its block, and their row."""

    warps: Index
    index: Index
    first: Index
    row: Index
    step: Value
    """From one row of a group to the next."""


@dataclass(frozen=True, eq=False)
class Section:
    """Iterations that are unrolled; `condition` says whether this warp has them, None where it does."""

    starts: Sequence[Index]
    condition: Value | None = None
    is_ragged: bool = False
    """Whether it goes to the end of the row, and maybe beyond it."""


@frozen
class Division:
    """A row divided: the group of this warp, its sections, and iterations that all of the group do."""

    group: WarpGroup
    sections: Sequence[Section]
    remainder: Sequence[int] = ()


def divide_static(emitter: Emitter, warp: Value, iterations: int, is_apart: bool = False) -> Division:
    """A row of so many whole iterations, which a block shares; in sections that are kept apart, or in one.

    LLVM would keep what one loop computes of a row for the next, though it takes no time to do it again, and there are
    no registers for it. So it must not know that a warp has all of its sections: they depend on an address, and no
    address is that low.
    """
    f, warps = emitter.f, emitter.warps_per_row
    block, step = (f.cast("zext", special(f, name), "i64") for name in ("ctaid.x", "nctaid.x"))
    own = iterations // warps
    first = f.mul(warp, own * WARP)
    starts = [f.add(first, WARP * number) for number in range(own)]
    remainder = [WARP * number for number in range(own * warps, iterations)]
    sections = [Section(starts)]
    if is_apart:
        address = f.raw("i64", f"ptrtoint {f.arguments[0]} to i64")
        ranges = range(0, own, SECTION)
        sections = [Section(starts[at : at + SECTION], f.icmp("sgt", address, at)) for at in ranges]
    return Division(WarpGroup(warps, warp, 0, block, step), sections, remainder)


def divide_symbolic(emitter: Emitter, warp: Value, width: Value, sections: int) -> Division:
    """A row of any width that warps with so many sections each can share."""
    f, most = emitter.f, emitter.warps_per_row
    block, blocks = (f.cast("zext", special(f, name), "i64") for name in ("ctaid.x", "nctaid.x"))
    size = SECTION * WARP
    whole = f.udiv(width, size)
    needed, warps = f.ceil_div(whole, sections), f.index(1)
    count = 1
    while count < most:
        warps = f.select(f.icmp("sgt", needed, count), f.index(2 * count), warps)
        count *= 2
    number = f.udiv(warp, warps)
    first = f.mul(number, warps)
    index = f.sub(warp, first)
    each = f.smax(f.ceil_div(whole, warps), 1)
    begin = f.mul(index, each)
    own = f.smin(f.sub(whole, begin), each)
    start = f.mul(begin, size)
    starts = [f.add(start, WARP * step) for step in range(SECTION * sections)]
    parts = [Section(starts[SECTION * at : SECTION * (at + 1)], f.icmp("sgt", own, at)) for at in range(sections)]
    end = f.mul(whole, size)
    is_last = f.icmp("eq", index, f.udiv(f.smax(f.sub(whole, 1), 0), each))
    left = [f.add(end, WARP * step) for step in range(SECTION)]
    parts.append(Section(left, f.op("and", is_last, f.icmp("slt", end, width)), is_ragged=True))
    groups = f.udiv(f.index(most), warps)
    row = f.add(f.mul(block, groups), number)
    return Division(WarpGroup(warps, index, first, row, f.mul(blocks, groups)), parts)


Parts: TypeAlias = Sequence[tuple[Section, LoopOp | TailOp]]
"""Sections of a row, each with the loop or tail that goes over it."""


class DividedRows:
    """The programs of a kernel whose rows several warps share, written."""

    def __init__(self, emitter: Emitter, warp: Value) -> None:
        self.emitter = emitter
        kernel = emitter.kernel
        width = row_width(kernel)
        self.is_symbolic, self.keeps_rows_only = width.value is None, KEEPS_ROWS_ONLY.of(kernel)
        self.computes_late = COMPUTES_LATE.of(kernel)
        elements, warps = elements_in_shared_memory(kernel)
        self.warp, self.rows = warp, prefetched_rows(kernel, ROW)
        self.prefetch = DividedPrefetch(emitter, self.rows, elements, warps)
        self.lines = DividedPrefetch(emitter, prefetched_rows(kernel, LINE), widest_row(kernel), 1, self.prefetch.end)
        self.exchange = RowExchange(emitter, self.warp, self.lines.end)
        emitter.prefetch_bytes = self.exchange.end
        if width.value is not None:
            self.division = divide_static(emitter, self.warp, width.value // WARP, self.keeps_rows_only)
        else:
            size = dim_value(emitter.f, width, emitter.env)
            self.division = divide_symbolic(emitter, self.warp, size, SECTIONS.of(kernel))
        self.exchange.group = self.division.group
        self.smallest: dict[Section, dict[Bound, list[Value]]] = {}
        """What is known of arguments of exp, by sections."""
        self.packed: list[tuple[Mapping[Any, Tile], Sequence[Value]]] = []
        """Words with two elements each that this thread has of a row, and what loads give of them."""
        self.done: set[SpecOp] = set()
        """Tails that were written with their loops."""
        self.is_everyones = False
        """Whether iterations are written that all warps do, of which the first stores."""

    # Rows.

    def write(self, op: ProgramsOp, grid: Sequence[Value], total: Index) -> None:
        """Rows one after the other, each while the next one is copied."""
        f, emitter, group = self.emitter.f, self.emitter, self.division.group
        self.prefetch.fetch(group.row, total, group)
        self._fetch_lines()

        def write_row(number: Value) -> None:
            self.prefetch.wait()
            self.exchange.synchronize()
            emitter.memo, self.packed = {}, []
            self._read(op, number)
            if self.rows:
                self.exchange.synchronize()
            self.prefetch.fetch(f.add(number, group.step), total, group)
            emitter.program(op, grid, number, keeps_memo=True)

        f.loop(group.row, total, group.step, write_row)

    def _fetch_lines(self) -> None:
        """What all programs read, by all threads of the block; once."""
        emitter = self.emitter
        block = WarpGroup(emitter.warps_per_row, self.warp, 0, 0, self.division.group.step)
        if not self.lines.rows:
            return
        self.lines.fetch(0, 1, block)
        self.lines.wait()
        barrier(emitter.f)
        emitter.staged.update((row.buffer, self.lines.address(row, 0, block)) for row in self.lines.rows)

    def _read(self, op: ProgramsOp, number: Value) -> None:
        """What this thread has of rows that were copied, for all loads of this program."""
        emitter, block = self.emitter, op.body.block
        if not self.rows:
            return
        (program,) = block.args
        emitter.indices[program] = number
        emitter.staged.update(
            (row.buffer, self.prefetch.address(row, number, self.division.group)) for row in self.rows
        )
        for part in block.ops:
            if isinstance(part, IndexOp):
                emitter.emit(part)
            if isinstance(part, LoopOp | TailOp):
                self._read_loop(part)
        for row in self.rows:
            del emitter.staged[row.buffer]

    def _read_loop(self, loop: LoopOp | TailOp) -> None:
        is_tail = isinstance(loop, TailOp)
        if not self.is_symbolic:
            width = row_width(self.emitter.kernel).value or 0
            last = [width // WARP * WARP] if width % WARP else []
            self._keep_loaded(Section(last if is_tail else self.division.remainder), loop)
        for section in self.division.sections:
            if section.is_ragged == is_tail:
                self._keep_loaded(section, loop)

    def _keep_loaded(self, section: Section, loop: LoopOp | TailOp) -> None:
        """Load what iterations read of rows that were copied, for the loads that follow."""
        emitter, block = self.emitter, loop.body.block
        made: dict[Any, Tile] = {}
        buffers = {row.buffer for row in self.rows}

        def load() -> list[Value]:
            before = dict(emitter.memo)
            for op in block.ops:
                if isinstance(op, LoadOp) and op.buffer in buffers:
                    for start in section.starts:
                        emitter.indices[block.args[0]] = start
                        emit_access.emit_load(emitter, op)
            made.update((key, tile) for key, tile in emitter.memo.items() if key not in before)
            emitter.memo = before
            return pack_pairs(emitter.f, [value for tile in made.values() for value in tile.registers])

        self._remember(made, self._if(section, load))

    def _remember(self, tiles: Mapping[Any, Tile], words: Sequence[Value]) -> None:
        """Let loads give elements of words, or values as they are."""
        if len(words) < len(tiles):
            self.packed.append((tiles, words))
        flat = unpack_pairs(self.emitter.f, words, [tile.registers[0].type for tile in tiles.values()])
        for (key, tile), value in zip(tiles.items(), flat, strict=True):
            self.emitter.memo[key] = Tile(tile.layout, tile.dtype, [value])

    def _remember_anew(self, iteration: Value) -> None:
        """Words as if they were known since this iteration of the chain alone, which is that of this warp.

        Otherwise LLVM would compute all that comes of them before the first iteration, and keep it: there are no
        registers for it. The difference of two equal numbers, which it cannot see through, ties them to the iteration.
        """
        f, packed, self.packed = self.emitter.f, self.packed, []
        here, there = (f.cast("trunc", f.index(one), "i32") for one in (iteration, self.division.group.index))
        zero = f.raw("i32", f'call i32 asm sideeffect "sub.u32 $0, $1, $2;", "=r,r,r"({here}, {there})')
        for tiles, words in packed:
            self._remember(tiles, [f.op("or", word, zero) for word in words])
        self.packed = packed

    def store(self, op: SpecOp, write: Callable[[], None]) -> None:
        """Write a store: by each warp of its own iterations, by the first of what all of them do."""
        f = self.emitter.f
        is_own = isinstance(op.parent_op(), LoopOp | TailOp) and not self.is_everyones
        f.if_(Value("i1", "true") if is_own else f.icmp("eq", self.division.group.index, 0), write)

    # Loops.

    def loop(self, op: LoopOp, carried: list[Value]) -> None:
        """A loop: iterations of each warp, then those that all do."""
        emitter = self.emitter
        # A tail of a symbolic width is the last warp's, and goes with its loop.
        tail = tail_of(op) if self.is_symbolic else None
        bodies = [(section, tail if section.is_ragged else op) for section in self.division.sections]
        parts = [(section, body) for section, body in bodies if body is not None]
        if not carried:
            for section, body in parts:
                self._if(section, lambda section=section, body=body: self._iterate_alone(section, body))
            ends: list[Value] = []
        elif row_matrix.joins_of(op) is not None:
            ends = self._reduce_minmax(op, parts, carried)
        elif deferred := dict(DEFERRED.of(op)):
            self._sum(op, tail_of(op), parts, carried, deferred)
            return
        else:
            ends = self._chain(op, parts, carried, range(len(carried)))
        self.is_everyones = True
        emitter.bind(op.results, emitter.iterate(op, self.division.remainder, ends))
        self.is_everyones = False
        if tail is not None:
            emitter.bind(tail.results, emitter.flatten(op.results))
            self.done.add(tail)

    def _sum(
        self, op: LoopOp, tail: TailOp | None, parts: Parts, carried: list[Value], deferred: Mapping[int, int]
    ) -> None:
        """Sums of which some are computed only where others are large: all warps of a group find the same."""
        f, emitter = self.emitter.f, self.emitter
        always = [number for number in range(len(carried)) if number not in deferred]
        ends = self._sum_to_end(op, tail, parts, carried, always)
        tests = [f.fcmp("olt", f.intrinsic("fabs", ends[main]), f.const("float", FINITE)) for main in deferred.values()]
        write = partial(self._sum_to_end, op, tail, parts, carried, list(deferred))
        others = f.if_(row_matrix.all_of(emitter, tests), lambda: carried, lambda: emitter.isolate(write))
        found = [others[number] if number in deferred else end for number, end in enumerate(ends)]
        emitter.bind(op.results, found)
        if tail is not None:
            emitter.bind(tail.results, found)
            self.done.add(tail)

    def _sum_to_end(
        self, op: LoopOp, tail: TailOp | None, parts: Parts, carried: list[Value], wanted: Sequence[int]
    ) -> list[Value]:
        """Sums of all of a row that are wanted, with what iterations carry, the others as they were."""
        emitter = self.emitter
        ends = self._chain(op, parts, carried, wanted)
        ends = _only(wanted, emitter.iterate(op, self.division.remainder, ends), carried)
        width = row_width(emitter.kernel).value or 0
        if tail is not None and width % WARP:
            ends = _only(wanted, emitter.iterate(tail, [width // WARP * WARP], ends), carried)
        return ends

    def tail(self, op: SpecOp, write: Callable[[], None]) -> None:
        """A tail, which all warps do, unless it was written with its loop."""
        if op not in self.done:
            self.is_everyones = True
            write()
            self.is_everyones = False

    def _iterate_alone(self, section: Section, op: LoopOp | TailOp) -> list[Value]:
        """Iterations that carry nothing."""
        emitter = self.emitter
        self._know(section)
        if row_matrix.write_near_maximum(emitter, op, lambda: emitter.iterate(op, section.starts, [])) is None:
            emitter.iterate(op, section.starts, [])
        return []

    def _know(self, section: Section) -> None:
        self.emitter.smallest = self.smallest.get(section, {})

    def _reduce_minmax(self, op: LoopOp, parts: Parts, carried: list[Value]) -> list[Value]:
        """Minima and maxima in any order: each warp takes its own, and then all take those of all."""
        emitter, ends = self.emitter, carried
        for section, body in parts:
            ends = self._own_minmax(section, body, ends)
        joins = row_matrix.joins_of(op)
        assert joins is not None
        names = [join.fn for join in joins for _ in range(emitter.layout(join.results[0])[0].registers)]
        return self.exchange.reduce(op, ends, names)

    def _own_minmax(self, section: Section, op: LoopOp | TailOp, carried: list[Value]) -> list[Value]:
        """The minima and maxima of a section, with those before; what they say of arguments of exp is kept."""
        emitter, bounds = self.emitter, list[tuple[Bound, int]]()

        def write() -> list[Value]:
            emitter.smallest = {}
            if not row_matrix.write_minmax(emitter, op, section.starts, carried):
                emitter.bind(op.results, emitter.iterate(op, section.starts, carried))
            bounds.extend((bound, len(flat)) for bound, flat in emitter.smallest.items())
            return [*emitter.flatten(op.results), *(value for flat in emitter.smallest.values() for value in flat)]

        found, at = self._if(section, write, carried), len(carried)
        for bound, count in bounds:
            self.smallest.setdefault(section, {})[bound] = found[at : at + count]
            at += count
        return found[: len(carried)]

    def _chain(self, op: LoopOp, parts: Parts, carried: list[Value], wanted: Sequence[int]) -> list[Value]:
        """What needs nothing of other iterations first, by all together; then what they carry, warp after warp."""
        early = [self._compute_early(section, body) for section, body in parts]

        def write(iteration: Value, ends: list[Value]) -> list[Value]:
            if self.keeps_rows_only:
                self._remember_anew(iteration)
            for (section, body), tiles in zip(parts, early, strict=True):
                found = self._if(section, partial(self._accumulate, section, body, tiles, ends), ends)
                ends = _only(wanted, found, carried)
            return ends

        return self.exchange.chain(
            op, carried, wanted, lambda number, ends: self.emitter.isolate(lambda: write(number, ends))
        )

    def _accumulate(
        self, section: Section, op: LoopOp | TailOp, early: Sequence[dict[SSAValue, Tile]], ends: list[Value]
    ) -> list[Value]:
        """The ops of iterations that need what they carry."""
        emitter, block = self.emitter, op.body.block
        _, late, _ = split_iteration(op, self.computes_late)
        for start, tiles in zip(section.starts, early, strict=True):
            emitter.indices[block.args[0]] = start
            emitter.tiles.update(tiles)
            emitter.bind(block.args[1:], ends)
            for part in late:
                emitter.emit(part)
            assert block.last_op is not None
            ends = emitter.flatten(block.last_op.operands)
        return ends

    def _compute_early(self, section: Section, op: LoopOp | TailOp) -> list[dict[SSAValue, Tile]]:
        """Ops of iterations that need nothing of others: what the late ones need of them, by iterations."""
        emitter, block = self.emitter, op.body.block
        early, _, needed = split_iteration(op, self.computes_late)

        def write() -> list[Value]:
            found: list[Value] = []
            for start in section.starts:
                emitter.indices[block.args[0]] = start
                for part in early:
                    emitter.emit(part)
                found += emitter.flatten(needed)
            return found

        def write_known() -> list[Value]:
            self._know(section)
            flat = row_matrix.write_near_maximum(emitter, op, write)
            return write() if flat is None else flat

        flat, at, iterations = self._if(section, write_known), 0, list[dict[SSAValue, Tile]]()
        for _ in section.starts:
            tiles: dict[SSAValue, Tile] = {}
            for value in needed:
                layout, dtype = emitter.layout(value)
                tiles[value] = Tile(layout, dtype, flat[at : at + layout.registers])
                at += layout.registers
            iterations.append(tiles)
        return iterations

    def _if(self, section: Section, write: Callable[[], list[Value]], otherwise: Sequence[Value] = ()) -> list[Value]:
        """Write iterations that a warp may not have: what they give, or `otherwise`; what they hold stays held."""
        if section.condition is None:
            return write()
        f, emitter = self.emitter.f, self.emitter
        memo = dict(emitter.memo)
        held = {buffer: dict(kept.tiles) for buffer, kept in emitter.held.items()}
        made: list[tuple[dict[Any, Tile], Any, Tile]] = []
        flat: list[Value] = []
        count = 0

        def then() -> list[Value]:
            nonlocal count
            flat.extend(write())
            count = len(flat)
            for buffer, kept in emitter.held.items():
                made.extend((kept.tiles, key, tile) for key, tile in kept.tiles.items() if key not in held[buffer])
            for _, _, tile in made:
                flat.extend(emitter.registers(tile))
            return flat

        def else_() -> list[Value]:
            # Some number: an undefined one would keep its register from the start of the loop on.
            return [*otherwise, *(Value(value.type, "zeroinitializer") for value in flat[len(otherwise) :])]

        found = f.if_(section.condition, then, else_)
        at, emitter.memo = count, memo
        for tiles, key, tile in made:
            tiles[key] = Tile(tile.layout, tile.dtype, found[at : at + len(tile.registers)])
            at += len(tile.registers)
        return found[:count]


def _only(wanted: Sequence[int], values: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    """Those that are wanted, and others in place of the rest."""
    return [value if number in wanted else others[number] for number, value in enumerate(values)]


def split_iteration(
    loop: LoopOp | TailOp, computes_late: bool = False
) -> tuple[list[SpecOp], list[SpecOp], list[SSAValue]]:
    """Ops of a loop that need nothing that iterations carry, those that do, and what these need of the first."""
    block = loop.body.block
    carried: set[SSAValue] = set(block.args[1:])
    early: list[SpecOp] = []
    late: list[SpecOp] = []
    for op in block.ops:
        assert isinstance(op, SpecOp)
        is_late = op is block.last_op or bool(carried & set(op.operands))
        (late if is_late else early).append(op)
        if is_late:
            carried.update(op.results)
    if computes_late:
        return [], [*early, *late], []
    made = {value for op in early for value in op.results if isinstance(value.type, VectorAttr)}
    needed = dict.fromkeys(value for op in late for value in op.operands if value in made)
    return early, late, list(needed)
