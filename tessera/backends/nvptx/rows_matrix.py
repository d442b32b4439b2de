"""Rows of 2-byte elements by matrices of shared memory: eight steps of a row in one instruction, in and out.

A step of a fold takes 32 neighbours, one to a lane, so a thread would move two bytes at a time. `ldmatrix` deals out
eight steps at once if lanes lie as its columns do: thread `p` of a warp is lane `8 * (p % 4) + p // 4`. Each of its
four matrices has two steps of all 32 lanes; `stmatrix` is the way back, after which rows leave 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import BlockArgument, SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.lower import IN_REGISTERS
from tessera.backends.nvptx.rows_ahead import CHUNK, HELD, RowAhead, Stage, copy_chunks, end_of, rows_ahead
from tessera.backends.nvptx.text import SHARED, WARP, assembly, barrier, warp_barrier
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.machine import Machine

STEPS = 8
ELEMENTS = STEPS * WARP
"""Of a row, that one instruction moves."""
_SIZE = 2
"""Bytes of an element."""
_STAGED = 2 * ELEMENTS * _SIZE
"""Bytes of a program on their way out: while one part is read, the next is written."""
_ACROSS = {1: 4, 2: 8, 4: 16, 8: 1, 16: 2}
"""The bit in which the threads of two lanes differ, by the distance of the lanes."""
_PLAIN = frozenset(
    f"ttarget.{name}"
    for names in (
        ("programs", "index", "loop", "yield", "return", "scratch", "load", "store"),
        ("elementwise", "cast", "round", "bitcast", "select", "constant", "coordinate", "clip", "broadcast", "reduce"),
    )
    for name in names
)
"""Ops to which it is all the same which thread has which lane."""


@dataclass(frozen=True)
class MatrixRows:
    """Accesses of a kernel that go by matrices: loads of rows that all programs read, and stores of rows."""

    shared: tuple[SpecOp, ...]
    stores: frozenset[SpecOp]

    @property
    def buffers(self) -> tuple[SSAValue, ...]:
        return tuple(dict.fromkeys(op.operands[0] for op in self.shared))


def matrix_rows(
    kernel: SpecOp, rows: Sequence[RowAhead], machine: Machine, programs: int, held: int = HELD
) -> MatrixRows | None:
    """What of a kernel goes by matrices; None where its rows do not."""
    if not rows or not machine.has("sm_90") or not all(_is_whole(row.load, row.loop) for row in rows):
        return None
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    if any(op.name not in _PLAIN for op in ops):
        return None
    room = machine.shared // held - programs * (sum(row.bytes for row in rows) + _STAGED)
    shared: list[SpecOp] = []
    taken: dict[SSAValue, int] = {}
    for op in ops:
        size = _shared_bytes(op, kernel)
        if size and (op.operands[0] in taken or sum(taken.values()) + size <= room):
            taken[op.operands[0]] = size
            shared.append(op)
    stores = frozenset(op for op in ops if _goes_out_whole(op, kernel))
    return MatrixRows(tuple(shared), stores) if room >= 0 else None


@dataclass(frozen=True)
class PlacedRows:
    """Rows that come ahead, what of a kernel goes by matrices, and how many blocks of it a multiprocessor holds."""

    rows: list[RowAhead]
    matrix: MatrixRows | None
    held: int = HELD

    @property
    def is_wide(self) -> bool:
        """Whether a thread has so much of a row that registers hold it as it lies in memory, and no wider."""
        return self.matrix is not None and any(row.count > WARP * IN_REGISTERS for row in self.rows)


def place_rows(kernel: SpecOp, machine: Machine, programs: int) -> PlacedRows:
    """As many blocks as may be, or one less where that leaves room for more that goes by matrices."""
    if kernel.value("threads") == 1:
        return PlacedRows([], None)
    found: list[PlacedRows] = []
    for held in (HELD, HELD - 1):
        rows = rows_ahead(kernel, machine, programs, held)
        found.append(PlacedRows(rows, matrix_rows(kernel, rows, machine, programs, held), held))
    return max(found, key=lambda placed: 0 if placed.matrix is None else 1 + len(placed.matrix.shared))


def _is_whole(access: SpecOp, loop: object, value: SSAValue | None = None) -> bool:
    """Whether an access takes 32 neighbours of 2 bytes in each step of a loop that is written out, in whole parts."""
    if (
        not isinstance(loop, SpecOp)
        or loop.name != "ttarget.loop"
        or loop.value("unroll")
        or loop.value("step") != WARP
    ):
        return False
    type = (value or access.results[0]).type
    assert isinstance(type, VectorAttr)
    end = end_of(loop)
    is_simple = not access.value("guarded") and not access.value("windows") and len(access.value("axes")) == 1
    is_lane = [dim.value for dim in type.shape] == [WARP] and type.dtype.bytes == _SIZE
    return is_simple and is_lane and end is not None and end > 0 and end % ELEMENTS == 0


def _shared_bytes(op: SpecOp, kernel: SpecOp) -> int:
    """Bytes of a row that all programs read, of an argument that none writes; 0 for any other op."""
    loop = op.parent_op()
    if op.name != "ttarget.load" or not isinstance(loop, SpecOp) or not _is_whole(op, loop):
        return 0
    buffer, turn = op.operands[0], loop.regions[0].block.args[0]
    is_given = isinstance(buffer, BlockArgument) and buffer.index not in kernel.value("writes")
    if not is_given or list(op.operands[1:]) != [turn] or op.value("offset") != Dim.symbol(op.value("coords")[0]):
        return 0
    return (end_of(loop) or 0) * _SIZE if kernel.value("align") >= CHUNK else 0


def _goes_out_whole(op: SpecOp, kernel: SpecOp) -> bool:
    """Whether a store is of whole parts of a row, each of which begins at 16 bytes."""
    loop = op.parent_op()
    if op.name != "ttarget.store" or not isinstance(loop, SpecOp) or not _is_whole(op, loop, op.operands[0]):
        return False
    buffer, turn = op.operands[1], loop.regions[0].block.args[0]
    names = dict(zip(op.operands[2:], op.value("coords"), strict=False))
    is_ours = isinstance(buffer, BlockArgument) and all(use.operation.name == "ttarget.store" for use in buffer.uses)
    if not is_ours or op.value("mode") != "set" or turn not in names or op.value("axes") != (names[turn],):
        return False
    parts = op.value("offset").coefficient(names[turn])
    if parts is None or parts[0].value != 1 or kernel.value("align") < CHUNK:
        return False
    rest = {name for value, name in names.items() if value is not turn}
    steps = [parts[1].coefficient(name) for name in rest if name in parts[1].symbols]
    return len(steps) <= 1 and all(
        step is not None and step[1] == Dim.constant(0) and (step[0].value or 1) * _SIZE % CHUNK == 0 for step in steps
    )


class Matrices:
    """The writing of such accesses: shared memory from `start` on, first what all programs read, then parts of rows."""

    def __init__(self, emitter: Any, found: MatrixRows, start: int) -> None:
        self.emitter, self.found = emitter, found
        self.places: dict[SSAValue, int] = {}
        self._sizes = {op.operands[0]: (end_of(_loop_of(op)) or 0) * _SIZE for op in found.shared}
        for buffer, size in self._sizes.items():
            self.places[buffer], start = start, start + size
        self._out = start
        self.end = start + emitter.programs * _STAGED
        f, lane = emitter.f, emitter.lane
        # Where the row of a matrix begins that this thread points to: its step, and eight lanes of it.
        steps = f.add(f.mul(f.udiv(lane, 8), 4 * WARP), f.mul(f.urem(lane, 2), 2 * WARP))
        self._row = f.add(steps, f.mul(f.udiv(f.urem(lane, 8), 2), CHUNK))
        self._read: dict[tuple[SpecOp, int], list[Value]] = {}
        self._waiting: dict[SpecOp, list[tuple[Tile, Any]]] = {}
        self.words: dict[Value, tuple[Value, int]] = {}
        """Where elements are: a word, and which half of it."""

    def bring(self) -> None:
        """Copy what all programs read, by all threads of the block; once."""
        f, emitter = self.emitter.f, self.emitter
        thread = f.add(f.mul(emitter.slot, emitter.threads), emitter.lane)
        first, count = f.mul(thread, CHUNK), emitter.threads * emitter.programs
        for buffer, start in self.places.items():
            source = f.raw("i64", f"ptrtoint {f.gep(emitter.buffers[buffer], first, 'i8')} to i64")
            given = [self._address(f.add(first, start)), source, Value("i32", str(CHUNK))]
            copy_chunks(f, given, thread, count, self._sizes[buffer] // CHUNK)
        if self.places:
            assembly(f, "cp.async.commit_group;", "", [])
            assembly(f, "cp.async.wait_group 0;", "~{memory}", [])
            barrier(f)

    def _address(self, offset: Index) -> Value:
        """A place in shared memory as instructions want it."""
        f = self.emitter.f
        symbol = f"ptrtoint (ptr addrspace(3) @{SHARED} to i32)"
        return f.raw("i32", f"add i32 {f.cast('trunc', f.index(offset), 'i32').text}, {symbol}")

    def begin(self) -> None:
        """Begin a program: what was read for the last one is not known any more."""
        self._read.clear()
        assert not self._waiting

    def part(self, start: Index, element: int, dtype: DType) -> list[Value]:
        """What this thread has of eight steps of a row that begins at `start`."""
        f = self.emitter.f
        place = self._address(f.add(start, self._row))
        text = f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{$0, $1, $2, $3}}, [$4+{element * _SIZE}];"
        four = "{ i32, i32, i32, i32 }"
        found = assembly(f, text, "=r,=r,=r,=r,r,~{memory}", [place], four)
        whole = Value("<4 x i32>", "poison")
        for at in range(4):
            whole = f.insert(whole, f.raw("i32", f"extractvalue {four} {found.text}, {at}"), at)
        halves = values.unpacked(f, whole, values.memory_type(dtype), STEPS)
        words = [f.extract(whole, at) for at in range(4)]
        self.words.update((half, (words[at // 2], at % 2)) for at, half in enumerate(halves))
        return halves

    def shared_value(self, op: SpecOp, turn: int) -> Value:
        """One step of a row that all programs read."""
        part, step = divmod(turn // WARP, STEPS)
        if (op, part) not in self._read:
            type = op.operands[0].type
            assert isinstance(type, BufferAttr)
            self._read[op, part] = self.part(self.places[op.operands[0]], part * ELEMENTS, type.dtype)
        return self._read[op, part][step]

    def store(self, op: SpecOp, tile: Tile, access: Any, turn: int) -> None:
        """One step of a row that is stored; the last of eight lets all of them go."""
        waiting = self._waiting.setdefault(op, [])
        waiting.append((tile, access))
        if len(waiting) < STEPS:
            return
        del self._waiting[op]
        f, emitter = self.emitter.f, self.emitter
        words = values.packed(f, self._elements([one for one, _ in waiting]))
        slot = f.add(f.mul(emitter.slot, _STAGED), self._out + turn // ELEMENTS % 2 * (_STAGED // 2))
        text = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0], {$1, $2, $3, $4};"
        parts = [f.extract(words, at) for at in range(4)]
        assembly(f, text, "r,r,r,r,r,~{memory}", [self._address(f.add(slot, self._row)), *parts])
        warp_barrier(f)
        own = f.mul(emitter.lane, CHUNK)
        place = f.gep(emitter.module.shared_base(), f.add(slot, own), "i8")
        whole = f.raw("<4 x i32>", f"load <4 x i32>, ptr {place.text}, align {CHUNK}")
        first = waiting[0][1]
        f.store(whole, f.gep(first.address(first.env), own, "i8"), align=CHUNK)

    def _elements(self, tiles: Sequence[Tile]) -> list[Value]:
        """Steps side by side; those that were just rounded are rounded two at a time."""
        wide = [tile.wide for tile in tiles if tile.wide is not None]
        if len(wide) == len(tiles):
            return values.cast(self.emitter.f, [part[0] for _, part in wide], wide[0][0], tiles[0].dtype)
        return [self.emitter.registers(tile)[0] for tile in tiles]


def load_rows(emitter: Any, stage: Stage) -> None:
    """The rows of a program, which lie in shared memory, for all loads of it that follow."""
    from tessera.backends.nvptx.emit_access import hold  # noqa: PLC0415 - it asks for matrices itself

    emitter.matrices.begin()
    for row in stage.rows:
        start = emitter.f.add(stage.base, stage.offsets[row.buffer])
        turn = row.loop.regions[0].block.args[0]
        assert isinstance(row.buffer.type, BufferAttr)
        for part in range(0, row.count, ELEMENTS):
            for step, register in enumerate(emitter.matrices.part(start, part, row.buffer.type.dtype)):
                emitter.indices[turn] = part + step * WARP
                hold(emitter, row.load, register)


def _loop_of(op: SpecOp) -> SpecOp:
    loop = op.parent_op()
    assert isinstance(loop, SpecOp)
    return loop


def lane_of(emitter: Any) -> Value:
    """The lane that a thread of a warp has."""
    f = emitter.f
    return f.add(f.mul(f.urem(emitter.lane, 4), 8), f.udiv(emitter.lane, 4))


def thread_distance(lanes: int) -> int:
    """What to cross with in a shuffle, to get from a lane to the one so many on."""
    return _ACROSS[lanes]
