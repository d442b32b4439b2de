"""Loads of rows before they are needed, for warps that share rows by leaves, and loops through rows.

A backward pass of rows reads two tensors, the second of which is needed once the first is reduced. The assembler moves
no load up over a barrier, and every reduction among warps has one: read where it is used, the second row costs another
latency of memory for each row, in which the warps of a block have nothing to do. So all loads of a program's own rows
come first, and what they give stays in registers until it is read. What every row reads (scales, biases) is in a cache,
and is left where it is.

Where rows are also summed along columns, a program goes through several of them (`ir/schedule/emit/row_columns.py`): a
loop with the loops over leaves inside, and in it loops that run once or not at all. What threads hold of scratch in
registers goes round with these loops, and so does what all rows read. While a row is computed, the next one is on its
way to L2, which takes no registers: two blocks of a multiprocessor, which accumulators in shared memory leave room for,
hide the latency of L2 and not that of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from tessera.backends.nvptx import emit_access
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.row_plan import ALIGN, ALIGNED, CARRIES_ROWS, is_constant, is_row_loop, run_length
from tessera.backends.nvptx.text import WARP, assembly
from tessera.ir.base.types import shaped_type
from tessera.ir.target.limits import is_multiple
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.typed_ops import IndexOp, KernelOp, LoadOp, LoopOp, ProgramsOp, StoreOp, TailOp
from tessera.types.dim import Dim
from tessera.types.numerics import LEAF

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.leaf_rows import LeafRows

MOST_BYTES = 256
"""Bytes of rows that a thread loads early at most: 64 of its registers."""


def row_loads(loop: LoopOp | TailOp) -> Iterator[LoadOp]:
    """The loads of an iteration over a leaf that depend on the row of a program, and not on the leaf alone."""
    block = loop.body.block
    inside = {block.args[0], *(value for op in block.ops for value in op.results)}
    for op in block.ops:
        if not isinstance(op, LoadOp) or not op.axes or op.pattern != "contiguous":
            continue
        if any(value not in inside for value in op.at):
            yield op


def common_loads(loop: LoopOp | TailOp) -> Iterator[LoadOp]:
    """The loads of an iteration over a leaf that all rows have in common."""
    own = set(row_loads(loop))
    for op in loop.body.block.ops:
        if isinstance(op, LoadOp) and op not in own and op.axes and op.pattern == "contiguous":
            yield op


def early_bytes(kernel: KernelOp, leaves: int) -> int:
    """Bytes that each thread of a warp with so many leaves has of rows that are read; 0 where loads stay in place."""
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp)]
    if any(run_length(loop.low) for loop in loops):
        return 0
    rows = {op.buffer for loop in loops for op in row_loads(loop) if is_constant(kernel, op.buffer)}
    bytes = sum(shaped_type(row).dtype.bytes for row in rows) * LEAF // 32 * leaves
    return bytes if len(rows) > 1 and bytes <= MOST_BYTES else 0


def load_first(
    emitter: Emitter,
    bodies: Sequence[tuple[LoopOp | TailOp, Index]],
    choose: Callable[[LoopOp | TailOp], Iterable[LoadOp]],
) -> None:
    """Load some of what iterations over leaves read, each a body and its first element; later loads find it."""
    emitter.is_ordered = emitter.keeps_words = True
    for body, start in bodies:
        wanted = set(choose(body))
        emitter.indices[body.body.block.args[0]] = start
        for op in body.body.block.ops:
            if not isinstance(op, IndexOp | LoadOp) or not all(value in emitter.indices for value in op.at):
                continue
            if isinstance(op, IndexOp):
                emitter.on_index(op)
            elif op in wanted and is_constant(emitter.kernel, op.buffer):
                emit_access.emit_load(emitter, op)
    emitter.is_ordered = emitter.keeps_words = False


# Loops through rows.

MOST_COMMON = 64
"""Bytes that a thread keeps of what all rows read: 16 registers, a scale in 2 bytes."""


def write_row_loop(rows: LeafRows, op: LoopOp) -> None:
    """A loop with loops over leaves inside; registers that hold scratch in front of it are carried.

    So are the words of the next row, where they are few: its loads are on their way while a row is computed. Others are
    on their way to L2.
    """
    emitter, f = rows.emitter, rows.emitter.f
    is_outermost = isinstance(op.parent_op(), ProgramsOp)
    if is_outermost:
        load_common(rows, op)
    used = {part.buffer for part in op.walk() if isinstance(part, LoadOp | StoreOp)} & emitter.held.keys()
    held = [(buffer, key) for buffer, one in emitter.held.items() if buffer in used for key in one.tiles]
    tiles = [emitter.held[buffer].tiles[key] for buffer, key in held]
    carried = CarriedRow(rows, op) if is_outermost else None
    low, high = emitter.indices[op.low], emitter.indices[op.high]

    def bind(registers: list[Value]) -> None:
        for buffer in used:
            emitter.held[buffer].tiles.clear()
        at = 0
        for (buffer, key), tile in zip(held, tiles, strict=True):
            count = tile.layout.registers
            emitter.held[buffer].tiles[key] = Tile(tile.layout, tile.dtype, registers[at : at + count])
            at += count

    def collect() -> list[Value]:
        return [value for buffer, key in held for value in emitter.registers(emitter.held[buffer].tiles[key])]

    def write(index: Value, registers: list[Value]) -> list[Value]:
        bind(registers)
        waits, following = rows.waits, list[Value]()
        if carried is not None:
            following = carried.take(index, registers[len(registers) - carried.count :])
        rows.are_loaded = False
        emitter.iterate(op, [index], [])
        if is_outermost and rows.waits < waits + 2:
            # Slots that warps have read are written again for the next row, with no other barrier between.
            rows.synchronize()
        return [*collect(), *following]

    starts = [*collect(), *(carried.load(low) if carried is not None else ())]
    bind(f.loop(low, high, op.step, lambda at, had: emitter.isolate(lambda: write(at, had)), starts))


class CarriedRow:
    """The words of a row that are loaded while the row before is computed."""

    def __init__(self, rows: LeafRows, op: LoopOp) -> None:
        self.rows, self.op, self.emitter, self.f = rows, op, rows.emitter, rows.emitter.f
        width = rows.width.value
        each = rows.iterations(width)
        self.bodies = [] if width is None else [one for part in op.walk() for one in rows.bodies_of(part, each)]
        self.is_in_registers = CARRIES_ROWS.of(rows.emitter.kernel)
        self.count = 0
        """Words that are carried."""
        self.counts: list[tuple[int, ...]] = []
        """How many elements each word of a load has."""

    def load(self, index: Index) -> list[Value]:
        """Load a row, by the number of its iteration, if it is there: words of memory."""
        if not self.is_in_registers:
            return []
        emitter, f = self.emitter, self.f
        found: list[Value] = []
        self.counts.clear()
        with self._at(index):
            is_next = f.icmp("slt", f.index(index), emitter.indices[self.op.high])
            emitter.is_ordered = emitter.keeps_words = True
            for access in self._accesses():
                offset = dim_value(f, access.op.offset, {**access.env, access.op.axes[0]: 0})
                size = dim_value(f, shaped_type(access.op.buffer).size, emitter.env)
                emitter.is_wanted = f.op("and", is_next, f.icmp("slt", offset, size))
                tile = emit_access.load_tile(access)
                self.counts.append(tuple(count for _, count in tile.packed))
                found += [word for word, _ in tile.packed]
            emitter.is_ordered = emitter.keeps_words = False
            emitter.is_wanted = None
        self.count = len(found)
        return found

    def take(self, index: Value, words: list[Value]) -> list[Value]:
        """Let loads of an iteration find its row in words that were carried; the words of the next one."""
        following = self.f.add(index, self.op.step)
        if not self.is_in_registers:
            prefetch_row(self.rows, self.op, index)
            return []
        counts = list(self.counts)
        emitter, at = self.emitter, 0
        emitter.indices[self.op.body.block.args[0]] = index
        self._evaluate()
        for access, each in zip(self._accesses(), counts, strict=True):
            packed = tuple(zip(words[at : at + len(each)], each, strict=True))
            emitter.memo[emit_access.key_of(access)] = Tile(access.layout, access.dtype, [], packed=packed)
            at += len(each)
        return self.load(following)

    @contextmanager
    def _at(self, index: Index) -> Generator[None]:
        """Within it indices are those of another iteration."""
        emitter = self.emitter
        indices, known = dict(emitter.indices), dict(emitter.known)
        emitter.indices[self.op.body.block.args[0]] = index
        self._evaluate()
        yield
        emitter.indices, emitter.known = indices, known

    def _evaluate(self) -> None:
        """Compute the indices of an iteration that its rows are found by."""
        for part in self.op.body.walk():
            around = part.parent_op()
            if isinstance(part, IndexOp) and isinstance(around, LoopOp) and is_row_loop(around):
                self.emitter.on_index(part)

    def _accesses(self) -> list[emit_access.Access]:
        """The loads of an iteration that depend on its row, each once."""
        emitter, found = self.emitter, dict[Any, emit_access.Access]()
        for body, start in self.bodies:
            wanted = set(row_loads(body))
            emitter.indices[body.body.block.args[0]] = start
            for op in body.body.block.ops:
                if isinstance(op, IndexOp):
                    emitter.on_index(op)
                elif isinstance(op, LoadOp) and op in wanted and is_constant(emitter.kernel, op.buffer):
                    access = emit_access.access_of(emitter, op)
                    found.setdefault(emit_access.key_of(access), access)
        return list(found.values())


def load_common(rows: LeafRows, op: LoopOp) -> None:
    """Load what all rows read in front of the loop through them, if it is little: it stays in registers."""
    emitter, width = rows.emitter, rows.width.value
    bodies = (
        [] if width is None else [one for part in op.walk() for one in rows.bodies_of(part, rows.iterations(width))]
    )
    common = {load.buffer for body, _ in bodies for load in common_loads(body)}
    common = {buffer for buffer in common if is_constant(emitter.kernel, buffer)}
    each = LEAF // WARP * rows.iterations(width)
    if sum(shaped_type(buffer).dtype.bytes for buffer in common) * each <= MOST_COMMON:
        load_first(emitter, bodies, common_loads)


def prefetch_row(rows: LeafRows, op: LoopOp, index: Index) -> None:
    """Bring what the next iteration of a loop reads of its row to L2: each warp its own leaves."""
    emitter, f = rows.emitter, rows.emitter.f
    loads = {load.buffer: load for load in _loads_of_rows(op) if is_constant(emitter.kernel, load.buffer)}
    width = rows.width.value
    if ALIGN.of(emitter.kernel) != ALIGNED or width is None or not emitter.machine.has("tma"):
        return
    indices, known = dict(emitter.indices), dict(emitter.known)
    following = f.add(index, op.step)
    emitter.indices[op.body.block.args[0]] = following
    for part in op.body.walk():
        if isinstance(part, IndexOp) and all(value in emitter.indices for value in part.at):
            emitter.on_index(part)
    has_next = f.op("and", f.icmp("slt", following, emitter.indices[op.high]), f.icmp("eq", emitter.thread, 0))
    for buffer, load in loads.items():
        for iteration in range(rows.iterations(width)):
            _prefetch_leaf(rows, buffer, load, rows.start_of(iteration), has_next)
    emitter.indices, emitter.known = indices, known


def _loads_of_rows(op: LoopOp) -> Iterator[LoadOp]:
    for part in op.walk():
        if isinstance(part, LoopOp) and not is_row_loop(part):
            yield from row_loads(part)


def _prefetch_leaf(rows: LeafRows, buffer: SSAValue, load: LoadOp, start: Value, condition: Value) -> None:
    """Bring a leaf of a row to L2, from its first element on, where its row is one of the buffer."""
    emitter, f = rows.emitter, rows.emitter.f
    type, width = shaped_type(buffer), rows.width.value or 0
    size = type.dtype.bytes
    named = zip(load.coords, load.at, strict=False)
    known = {name: emitter.indices[value] for name, value in named if value in emitter.indices}
    (axis,) = load.axes
    env = {**emitter.env, **known, axis: start}
    # Copies of lines to L2 are in multiples of 16 bytes, from multiples of 16 on.
    if width * size % ALIGNED or not is_multiple(load.offset.substitute({axis: Dim.constant(0)}), ALIGNED // size):
        return
    offset = dim_value(f, load.offset, env)
    is_there = f.op("and", condition, f.icmp("slt", offset, dim_value(f, type.size, emitter.env)))
    if width % LEAF:
        is_there = f.op("and", is_there, f.icmp("slt", start, width))
    count = f.smin(f.sub(width, start), LEAF)
    bytes = f.cast("trunc", f.index(f.mul(count, size)), "i32")
    flag = f.cast("zext", is_there, "i32")
    base = f.gep(emitter.buffers[buffer], offset, "i8" if size == 1 else f"i{8 * size}")
    text = "{ .reg .pred P; setp.ne.b32 P, $2, 0; @P cp.async.bulk.prefetch.L2.global [$0], $1; }"
    assembly(f, text, "l,r,r", [base, bytes, flag])
