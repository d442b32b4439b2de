"""Rows of 2-byte elements by matrices of shared memory: eight iterations of a row in one instruction, in and out.

An iteration of a reduction takes 32 neighbours, one to a lane, so a thread would move two bytes at a time. `ldmatrix`
deals out eight iterations together if lanes are numbered as its columns are: thread `p` of a warp is lane
`8 * (p % 4) + p // 4`. Each of its four matrices has two iterations of all 32 lanes. `stmatrix` is the inverse, after
which rows leave 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import emit_access, values
from tessera.backends.nvptx.approximate_functions import Bound
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.row_prefetch import (
    CHUNK,
    ELEMENTS,
    ITEM,
    STAGED,
    STEPS,
    MatrixRows,
    StaticPrefetch,
    commit_copies,
    copy_chunks,
    line_bytes,
    shared_address,
    wait_for_copies,
)
from tessera.backends.nvptx.text import ALL_LANES, WARP, assembly, barrier, warp_barrier
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.math_exp import ORDINARY
from tessera.ir.target.typed_ops import ElementwiseOp, StoreOp
from tessera.types.dtype import DType, bf16, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access


# Loops over a row that are unrolled: min and max of bf16 two at a time, and a shorter exp near the maximum of a row.

MANY = 4
"""Elements of a thread from which on it is worth to look for their minimum before their exp."""
_INSTRUCTIONS = {"max": "maximum", "min": "minimum"}
_INSIDE = frozenset(
    f"ttarget.{name}"
    for name in ("load", "store", "cast", "elementwise", "select", "constant", "broadcast", "index", "yield")
)
"""Ops of a loop that may be written in two branches: they wait for no other thread."""


def joins_of(loop: SpecOp) -> list[ElementwiseOp] | None:
    """The ops that join each carried value of a loop with one of its iteration, where all are min or max."""
    block = loop.regions[0].block
    last = block.last_op
    assert last is not None
    joins: list[ElementwiseOp] = []
    for carried, value in zip(block.args[1:], last.operands, strict=True):
        join = value.owner
        if not isinstance(join, ElementwiseOp) or join.fn not in _INSTRUCTIONS:
            return None
        if carried not in join.operands or len(list(carried.uses)) != 1 or len(list(value.uses)) != 1:
            return None
        joins.append(join)
    return joins or None


def _part_of(loop: SpecOp, number: int, join: SpecOp) -> SSAValue:
    carried = loop.regions[0].block.args[1 + number]
    return next(value for value in join.operands if value is not carried)


def write_minmax(emitter: Emitter, loop: SpecOp, starts: Sequence[Index], carried: Sequence[Value]) -> bool:
    """Write a loop of min and max of bf16; False where it is not one, and nothing is written."""
    joins = joins_of(loop)
    if joins is None or not starts or (len(starts) % 2 and emitter.divided is None):
        return False
    parts = [_part_of(loop, number, join) for number, join in enumerate(joins)]
    if not all(_is_widened(part) for part in parts):
        return False
    taken: list[list[Sequence[Value]]] = [[] for _ in parts]
    for start in starts:
        emitter.indices[loop.regions[0].block.args[0]] = start
        for op in loop.regions[0].block.ops:
            assert isinstance(op, SpecOp)
            if op not in joins:
                emitter.emit(op)
        for part, found in zip(parts, taken, strict=True):
            narrow = emitter.tiles[part].narrow
            assert narrow is not None
            found.append(narrow[1])
    ends: list[Value] = []
    for join, part, found in zip(joins, parts, taken, strict=True):
        count = len(found[0])
        before = carried[len(ends) : len(ends) + count]
        ends += [
            emitter.f.intrinsic(_INSTRUCTIONS[join.fn], _minmax(emitter, join.fn, column), first)
            for first, column in zip(before, zip(*found, strict=True), strict=True)
        ]
        if (loop, part) in emitter.exp_bounds.values() and join.fn == "max":
            emitter.smallest[loop, part] = [_minmax(emitter, "min", column) for column in zip(*found, strict=True)]
    emitter.bind(loop.results, ends)
    return True


def _is_widened(part: SSAValue) -> bool:
    """Whether a value is an element of bf16, as an f32."""
    op = part.owner
    if not isinstance(op, SpecOp) or op.name != "ttarget.cast":
        return False
    before, after = (getattr(value.type, "dtype", None) for value in (op.operands[0], part))
    return before is bf16 and after is f32


def _minmax(emitter: Emitter, name: str, column: Sequence[Value]) -> Value:
    """The maximum or minimum of bf16, as an f32; of an odd number the last is taken twice."""
    pairs = (*column, *column[-1:]) if len(column) % 2 else column
    return values.minmax(emitter.f, name, f32, pairs, (bf16, pairs))


def write_near_maximum(emitter: Emitter, loop: SpecOp, write: Callable[[], list[Value]]) -> list[Value] | None:
    """Write a loop with `exp` twice: for a row whose results are all normal numbers, and for any.

    `write` writes its iterations, and gives what they end with; None where the loop has no such exp, and nothing is
    written.
    """
    ops = [op for op in loop.regions[0].block.ops if isinstance(op, SpecOp)]
    exps = [op for op in ops if isinstance(op, ElementwiseOp) and op.fn == "exp"]
    if emitter.exponential != values.EXACT or emitter.threads != WARP or not exps:
        return None
    if not all(_can_be_twice(emitter, op) for op in ops):
        return None
    if any(emitter.exp_bounds.get(op) not in emitter.smallest for op in exps):
        return None
    tests = [_is_near_maximum(emitter, op, emitter.exp_bounds[op]) for op in exps]
    if None in tests:
        return None
    f, test = emitter.f, all_of(emitter, [one for one in tests if one is not None])
    kept = {buffer: dict(held.tiles) for buffer, held in emitter.held.items()}
    count = 0

    def write_branch(normal: Iterable[SpecOp]) -> list[Value]:
        nonlocal count
        emitter.normal_exps = frozenset(normal)
        for buffer, tiles in kept.items():
            emitter.held[buffer].tiles = dict(tiles)
        ends = emitter.isolate(write)
        emitter.normal_exps = frozenset()
        count = len(ends)
        return ends + [value for tile in _newly_held(emitter, kept) for value in emitter.registers(tile)]

    found = f.if_(test, lambda: write_branch(exps), lambda: write_branch(()))
    at = count
    for buffer, held in emitter.held.items():
        for offset, tile in held.tiles.items():
            if kept[buffer].get(offset) is not tile:
                held.tiles[offset] = Tile(tile.layout, tile.dtype, found[at : at + tile.layout.registers])
                at += tile.layout.registers
    return found[:count]


def compute_exp_near_maximum(emitter: Emitter, op: SpecOp) -> list[Value] | None:
    """`exp` of many elements that a thread has of a row less its maximum, where they are bf16: written twice as well.

    Each thread decides for itself. None for any other exp, and nothing is written.
    """
    shifted = op.operands[0].owner
    if emitter.exponential != values.EXACT or op not in emitter.exp_bounds or not isinstance(shifted, SpecOp):
        return None
    source, maxima = emitter.tiles[shifted.operands[0]], set(emitter.registers_of(shifted.operands[1]))
    narrow = source.narrow if source.dtype is f32 else None
    if narrow is None or narrow[0] is not bf16 or len(narrow[1]) < MANY or len(narrow[1]) % 2 or len(maxima) > 1:
        return None
    f, parts = emitter.f, emitter.registers_of(op.operands[0])
    test = _is_near(emitter, _minmax(emitter, "min", narrow[1]), maxima.pop())
    return f.if_(
        test,
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NORMAL) for part in parts],
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NONPOSITIVE) for part in parts],
    )


def _can_be_twice(emitter: Emitter, op: SpecOp) -> bool:
    """Whether nothing outside of registers is changed by an op, or known of it afterwards."""
    if isinstance(op, StoreOp):
        # Stores by matrices write at the end of eight iterations, in either branch.
        leaves = emitter.widens_in_each_loop and emitter.matrix_rows is not None and op in emitter.matrix_rows.stores
        return op.operands[1] in emitter.held or leaves
    return op.name in _INSIDE and (emitter.matrix_rows is None or op not in emitter.matrix_rows.lines)


def _newly_held(emitter: Emitter, kept: dict[SSAValue, dict[int | str, Tile]]) -> list[Tile]:
    """What was put into registers, in order."""
    held = emitter.held.items()
    return [tile for buffer, one in held for offset, tile in one.tiles.items() if kept[buffer].get(offset) is not tile]


def _is_near_maximum(emitter: Emitter, exp: SpecOp, bound: Bound) -> Value | None:
    """Whether what the thread has of a row is not too far below the maximum."""
    shifted = exp.operands[0].owner
    assert isinstance(shifted, SpecOp)
    top = shifted.operands[1].owner
    if not isinstance(top, SpecOp) or top.name != "ttarget.broadcast" or top.operands[0] not in emitter.tiles:
        return None
    smallest, largest = emitter.smallest[bound], emitter.registers_of(top.operands[0])
    if len(smallest) != 1 or len(largest) != 1:
        return None
    return _is_near(emitter, smallest[0], largest[0])


def _is_near(emitter: Emitter, smallest: Value, largest: Value) -> Value:
    f = emitter.f
    return f.fcmp("oge", f.op("fsub", smallest, largest), f.const("float", ORDINARY))


def all_of(emitter: Emitter, tests: Sequence[Value]) -> Value:
    """Whether all tests hold in all threads of the warp."""
    f = emitter.f
    found = tests[0]
    for test in tests[1:]:
        found = f.op("and", found, test)
    return f.call("llvm.nvvm.vote.all.sync", [ALL_LANES, found], "i1")


_ACROSS = {1: 4, 2: 8, 4: 16, 8: 1, 16: 2}
"""The bit in which the threads of two lanes differ, by the distance of the lanes."""


class RowMatrices:
    """The accesses of a kernel by matrices: shared memory from `start` on, first lines of all, then parts of rows."""

    def __init__(self, emitter: Emitter, chosen: MatrixRows, start: int) -> None:
        self.emitter = emitter
        self._starts: dict[SSAValue, int] = {}
        self._sizes = {op.buffer: line_bytes(op, emitter.kernel) for op in chosen.lines}
        for buffer, size in self._sizes.items():
            self._starts[buffer], start = start, start + size
        self._out = start
        self.end = start + emitter.programs * STAGED
        f, lane = emitter.f, emitter.lane
        # The row of a matrix that this thread points to: its iteration, and eight lanes of it.
        steps = f.add(f.mul(f.udiv(lane, 8), 4 * WARP), f.mul(f.urem(lane, 2), 2 * WARP))
        self._row = f.add(steps, f.mul(f.udiv(f.urem(lane, 8), 2), CHUNK))
        self._read: dict[tuple[SpecOp, int], list[Value]] = {}
        self._waiting: dict[SpecOp, list[tuple[Tile, Access]]] = {}
        self.words: dict[Value, tuple[Value, int]] = {}
        """The word that an element is in, and which half of it."""

    def fetch_lines(self) -> None:
        """Copy what all programs read, by all threads of the block; once."""
        f, emitter = self.emitter.f, self.emitter
        thread = f.add(f.mul(emitter.slot, emitter.threads), emitter.lane)
        first, count = f.mul(thread, CHUNK), emitter.threads * emitter.programs
        for buffer, start in self._starts.items():
            source = f.raw("i64", f"ptrtoint {f.gep(emitter.buffers[buffer], first, 'i8')} to i64")
            operands = [shared_address(f, f.add(first, start)), source, Value("i32", str(CHUNK))]
            copy_chunks(f, operands, thread, count, self._sizes[buffer] // CHUNK)
        if self._starts:
            commit_copies(f)
            wait_for_copies(f)
            barrier(f)

    def load_rows(self, prefetch: StaticPrefetch) -> None:
        """The rows of a program, which are in shared memory, for all loads of it that follow."""
        emitter = self.emitter
        # A new program: what was read for the last one is not known any more.
        self._read.clear()
        assert not self._waiting
        for row in prefetch.rows:
            start = emitter.f.add(prefetch.base, prefetch.offsets[row.buffer])
            index = row.loop.body.block.args[0]
            for part in range(0, row.count, ELEMENTS):
                for step, register in enumerate(self._load_part(start, part, shaped_type(row.buffer).dtype)):
                    emitter.indices[index] = part + step * WARP
                    emit_access.remember_loaded(emitter, row.load, register)

    def _load_part(self, start: Index, element: int, dtype: DType) -> list[Value]:
        """What this thread has of eight iterations of a row that begins at `start`."""
        f = self.emitter.f
        address = shared_address(f, f.add(start, self._row))
        text = f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{$0, $1, $2, $3}}, [$4+{element * ITEM}];"
        four = "{ i32, i32, i32, i32 }"
        found = assembly(f, text, "=r,=r,=r,=r,r,~{memory}", [address], four)
        whole = Value("<4 x i32>", "poison")
        for at in range(4):
            whole = f.insert(whole, f.raw("i32", f"extractvalue {four} {found.text}, {at}"), at)
        halves = values.unpack(f, whole, values.memory_type(dtype), STEPS)
        words = [f.extract(whole, at) for at in range(4)]
        self.words.update((half, (words[at // 2], at % 2)) for at, half in enumerate(halves))
        return halves

    def load_line(self, op: SpecOp, element: int) -> Value:
        """One iteration of a line that all programs read."""
        part, step = divmod(element // WARP, STEPS)
        if (op, part) not in self._read:
            buffer = op.operands[0]
            self._read[op, part] = self._load_part(self._starts[buffer], part * ELEMENTS, shaped_type(buffer).dtype)
        return self._read[op, part][step]

    def store(self, op: SpecOp, tile: Tile, access: Access, element: int) -> None:
        """One iteration of a row that is stored; the last of eight writes all of them."""
        waiting = self._waiting.setdefault(op, [])
        waiting.append((tile, access))
        if len(waiting) < STEPS:
            return
        del self._waiting[op]
        f, emitter = self.emitter.f, self.emitter
        words = values.pack(f, self._elements([one for one, _ in waiting]))
        slot = f.add(f.mul(emitter.slot, STAGED), self._out + element // ELEMENTS % 2 * (STAGED // 2))
        text = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0], {$1, $2, $3, $4};"
        parts = [f.extract(words, at) for at in range(4)]
        assembly(f, text, "r,r,r,r,r,~{memory}", [shared_address(f, f.add(slot, self._row)), *parts])
        warp_barrier(f)
        own = f.mul(emitter.lane, CHUNK)
        source = f.gep(emitter.module.shared_base(), f.add(slot, own), "i8")
        whole = f.raw("<4 x i32>", f"load <4 x i32>, ptr {source.text}, align {CHUNK}")
        first = waiting[0][1]
        f.store(whole, f.gep(first.address(first.env), own, "i8"), align=CHUNK)

    def _elements(self, tiles: Sequence[Tile]) -> list[Value]:
        """Iterations side by side; those that were just rounded are rounded two at a time."""
        wide = [tile.wide for tile in tiles if tile.wide is not None]
        if len(wide) == len(tiles):
            return values.cast(self.emitter.f, [part[0] for _, part in wide], wide[0][0], tiles[0].dtype)
        return [self.emitter.registers(tile)[0] for tile in tiles]


def lane_of(emitter: Emitter) -> Value:
    """The lane that a thread of a warp has."""
    f = emitter.f
    return f.add(f.mul(f.urem(emitter.lane, 4), 8), f.udiv(emitter.lane, 4))


def thread_distance(lanes: int) -> int:
    """The mask of a butterfly shuffle that goes from a lane to the one so many further."""
    return _ACROSS[lanes]
