"""The order in which CTAs take programs, and epilogues that run between the first steps of the next program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.nvptx.hopper.fragments import Registers, Window
from tessera.backends.nvptx.hopper.shared_memory import Cursor
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.ops.wgmma_kernel import parts_of
from tessera.backends.nvptx.text import special
from tessera.backends.nvptx.types import spec_ops, yielded_values
from tessera.backends.nvptx.waits import Waits, bounded_poll
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.hopper.emit import MatrixEmitter


# The order of tiles, and tiles as they come: the producer takes numbers from a counter, and consumers read them.


def mailboxes(kernel: SpecOp) -> list[int]:
    """Where a kernel has a mailbox in shared memory, if it has one."""
    tiles = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tiles"]
    return sorted({op.value("mailbox") for op in tiles if op.value("mailbox") >= 0})


class Mailbox:
    """Two slots for the number of a tile, used alternately: a full and an empty barrier for each.

    The counter is in global memory; the first tile of each CTA is its own number. The first CTA sets the counter to 0
    and says so by writing the launch's token behind it, which no memory has by chance; whoever takes the last number
    takes the token away, so that a launch that a CUDA graph replays, token and all, waits once more.
    """

    def __init__(
        self, f: FunctionText, base: Value, offset: int, counter: Value, token: Value, bounded: Waits | None
    ) -> None:
        self.f, self.base, self.offset = f, base, offset
        self.counter, self.token, self.bounded = counter, token, bounded

    def _at(self, first: int, slot: Value, shift: int) -> Value:
        start = op32(self.f, "add", self.base, self.offset + first)
        return op32(self.f, "add", start, op32(self.f, "shl", slot, shift))

    @property
    def _address(self) -> Value:
        return self.f.raw("i64", f"ptrtoint {self.counter} to i64")

    def begin(self) -> None:
        """The first CTA's producer begins the count."""
        text = (
            "{ .reg .pred P; setp.eq.u32 P, $2, 0; @P st.global.u32 [$0], 0; @P st.release.gpu.global.u64 [$0+8], $1; }"
        )
        asm.effect(self.f, text, "l,l,r", [self._address, self.token, special(self.f, "ctaid.x")])

    def take(self) -> Value:
        """Ask for the next number; it takes about as long to come as a tile of memory, so it is asked for early."""
        return asm.effect(self.f, "atom.global.add.u32 $0, [$1], 1;", "=r,l", [self._address], "i32")

    def take_first(self) -> Value:
        """The same once the count has begun, which the first CTA sees to before it copies anything."""
        if self.bounded is not None:
            text = bounded_poll(self.bounded.number("for the first CTA to begin the count of programs"))
        else:
            text = (
                "{ .reg .pred P; .reg .u64 seen; AGAIN: ld.acquire.gpu.global.u64 seen, [$0+8]; "
                "setp.ne.u64 P, seen, $1; @P bra AGAIN; }"
            )
        asm.effect(self.f, text, "l,l", [self._address, self.token])
        return self.take()

    def finish(self, taken: Value, total: Value) -> None:
        """After the last number the count has ended."""
        is_last = asm.flag(self.f, self.f.icmp("eq", op32(self.f, "add", taken, 1), total))
        text = "{ .reg .pred P; setp.ne.u32 P, $1, 0; @P st.global.u64 [$0+8], 0; }"
        asm.effect(self.f, text, "l,r", [self._address, is_last])

    def following(self, iteration: Value, taken: Value | None) -> Value:
        """The number of the tile after this one, which is the CTA's `iteration`-th; the producer has `taken` it."""
        f = self.f
        slot = op32(f, "and", iteration, 1)
        parity = op32(f, "and", op32(f, "lshr", iteration, 1), 1)
        full, empty, cell = self._at(0, slot, 3), self._at(16, slot, 3), self._at(32, slot, 2)
        if taken is None:
            asm.barrier_wait(f, full, parity, self.bounded)
            found = asm.effect(f, "ld.shared.u32 $0, [$1];", "=r,r", [cell], "i32")
            asm.barrier_signal(f, empty)
            return asm.warp_uniform(f, found)
        asm.barrier_wait(f, empty, op32(f, "xor", parity, 1), self.bounded)
        found = op32(f, "add", taken, special(f, "nctaid.x"))
        asm.effect(f, "st.shared.u32 [$0], $1;", "r,r", [cell, found])
        asm.barrier_signal(f, full)
        return found


def program_at(f: FunctionText, op: SpecOp, position: Value, counts: Sequence[Value]) -> list[Value]:
    """The program at a position in order: rows of the last axis but one in groups, all of the last axis with each.

    Programs of a group run together, so that what they read stays in L2. Where CTAs take them as they get done,
    rows are those of all axes but the last: the longest programs of many rows come first.
    """
    group = op.value("group")
    if op.value("mailbox") != -1 and len(counts) > 2:
        row, last = program_at(f, op, position, [_times(f, counts[:-1]), counts[-1]])
        return [*_axes_at(f, row, counts[:-1]), last]
    found: list[Value] = []
    inner_position = position
    inner = list(counts[-2:])
    for count in reversed(counts[:-2]):
        outer = _times(f, inner)
        inner.insert(0, count)
        head = op32(f, "urem", op32(f, "udiv", position, outer), count)
        found.insert(0, head)
    if len(counts) > 2:
        inner_position = op32(f, "urem", position, _times(f, counts[-2:]))
    if len(counts) == 1:
        return [_last(f, op, position, counts[0])]
    rows, columns = counts[-2:]
    whole = op32(f, "mul", columns, group)
    number_of, inside = op32(f, "udiv", inner_position, whole), op32(f, "urem", inner_position, whole)
    first = op32(f, "mul", number_of, group)
    left = op32(f, "sub", rows, first)
    size = f.select(f.icmp("ult", left, number(group)), left, number(group))
    row = op32(f, "add", first, op32(f, "urem", inside, size))
    return [*found, row, _last(f, op, op32(f, "udiv", inside, size), columns)]


def _axes_at(f: FunctionText, position: Value, counts: Sequence[Value]) -> list[Value]:
    """A position in rows of some axes, the last of which goes fastest."""
    found: list[Value] = []
    for count in reversed(counts[1:]):
        found.insert(0, op32(f, "urem", position, count))
        position = op32(f, "udiv", position, count)
    return [position, *found]


def _last(f: FunctionText, op: SpecOp, position: Value, count: Value) -> Value:
    if not op.value("is_descending"):
        return position
    return op32(f, "sub", op32(f, "sub", count, 1), position)


def _times(f: FunctionText, counts: Sequence[Value]) -> Value:
    found = counts[0]
    for count in counts[1:]:
        found = op32(f, "mul", found, count)
    return found


# What loops carry: cursors, fragments and lists of values as the values of one thread, and back.


def flat(values: Sequence[Any]) -> list[Value]:
    """Everything a loop carries, as the values of one thread."""
    found: list[Value] = []
    for value in values:
        if isinstance(value, Cursor):
            found += [value.slot, value.phase]
        elif isinstance(value, Registers):
            found += value.flat()
        else:
            found += value if isinstance(value, list) else [value]
    return found


def unflat(like: Sequence[Any], values: Sequence[Value]) -> list[Any]:
    """`flat` undone."""
    found: list[Any] = []
    at = 0
    for one in like:
        count = len(flat([one]))
        part = list(values[at : at + count])
        at += count
        if isinstance(one, Cursor):
            found.append(Cursor(part[0], part[1]))
        elif isinstance(one, Registers):
            found.append(one.like(part))
        else:
            found.append(part if isinstance(one, list) else part[0])
    return found


# Programs in two parts: the epilogue of one is written between the first steps of the next one's dots.


def epilogue_in(op: SpecOp) -> SpecOp | None:
    """The epilogue of the programs of a `ttarget.tiles`, if it overlaps with the next one."""
    return next((part for part in spec_ops(op.regions[0].block) if part.name == "ttarget.epilogue"), None)


Piece = tuple[Callable[[], None], Callable[[], None]]
"""What is written before a step of dots, and what after it."""
Step = Callable[[Piece, list[Value]], list[Value]]
"""Writes a piece of an epilogue, and what goes beside it, from what is carried so far."""


@frozen
class Deferred:
    """The epilogue of a program, left to be written into steps of the next one."""

    op: SpecOp
    values: Sequence[Registers]
    write: Callable[[Sequence[Registers], Window], Piece]

    def run(self, f: FunctionText, step: Step, carried: list[Value]) -> list[Value]:
        """Do all of it: whole parts in one loop, then what remains of a part.

        Registers have no index, so they move up by a part with each trip. Unrolled, a step for each piece would be
        assembled by itself, and the assembler took ten times as long.
        """
        width, total = self.op.value("columns"), self.values[0].layout.columns
        whole, values = total // width, list(self.values)
        if whole < 2:
            for first, count in parts_of(self.op):
                carried = self._do_part(step, [cut_columns(value, first, count) for value in values], first, carried)
            return carried
        count = len(carried)

        def do_part(index: Value, given: list[Value]) -> list[Value]:
            left = unflat(values, given[count:])
            cut = [cut_columns(value, 0, width) for value in left]
            made = self._do_part(step, cut, f.mul(index, width), given[:count])
            return [*made, *flat([move_up(tile, width) for tile in left])]

        found = f.loop(0, whole, 1, do_part, [*carried, *flat(values)])
        carried, left = found[:count], total % width
        if left:
            moved = unflat(values, found[count:])
            carried = self._do_part(step, [cut_columns(value, 0, left) for value in moved], whole * width, carried)
        return carried

    def _do_part(self, step: Step, values: Sequence[Registers], start: Index, carried: list[Value]) -> list[Value]:
        width, total = self.op.value("columns") // self.op.value("pieces"), values[0].layout.columns
        for inner in range(0, total, width):
            count = min(width, total - inner)
            cut = [cut_columns(value, inner, count) for value in values]
            carried = step(self.write(cut, Window(start, inner, count)), carried)
        return carried


def move_up(tile: Registers, columns: int) -> list[Value]:
    """The registers of a tile with so many columns less in front, and nothing behind."""
    each, given = 4 if tile.pairs is not None else 2, tile.flat()
    share, gone = tile.layout.columns // each, columns // each
    found: list[Value] = []
    for first in range(0, len(given), share):
        found += [*given[first + gone : first + share], *[Value(value.type, "undef") for value in given[:gone]]]
    return found


class OverlappedTiles:
    """The tiles of a CTA, of which it has one at least, unless it passes over some."""

    def __init__(
        self, emitter: MatrixEmitter, op: SpecOp, epilogue: SpecOp, total: Value, counts: Sequence[Value]
    ) -> None:
        self.emitter, self.op, self.epilogue, self.total, self.counts = emitter, op, epilogue, total, counts
        self.f = emitter.f

    def run(self) -> None:
        """Write all of them; nothing where there is none."""
        f, first = self.f, special(self.f, "ctaid.x")
        position = self._busy_from(first)
        is_any = Value("i1", "true") if position is first else f.icmp("slt", position, self.total)
        f.if_(is_any, lambda: self._run_from(position))

    def _busy_from(self, position: Value) -> Value:
        return self.emitter.busy_from(self.op, position, self.total, self.counts)

    def _run_from(self, position: Value) -> None:
        f, cursors = self.f, [self.emitter.values[value] for value in self.op.operands]
        after, values = self._tile(position, cursors, None)
        like = [*after, *values]

        def body(carried: list[Value]) -> list[Value]:
            here, before = carried[:2]
            given = unflat(like, carried[2:])
            deferred = self._defer(given[len(after) :], before)
            following, made = self._tile(here, given[: len(after)], deferred)
            later = self._busy_from(op32(f, "add", here, special(f, "nctaid.x")))
            return [later, here, *flat([*following, *made])]

        later = self._busy_from(op32(f, "add", position, special(f, "nctaid.x")))
        start = [later, position, *flat(like)]
        last = f.while_(start, lambda carried: f.icmp("slt", carried[0], self.total), body)

        def write(piece: Piece, carried: list[Value]) -> list[Value]:
            for half in piece:
                half()
            return carried

        self._defer(unflat(like, last[2:])[len(after) :], last[1]).run(f, write, [])

    def _tile(self, position: Value, cursors: Sequence[Any], between: Deferred | None) -> tuple[list[Any], list[Any]]:
        """A program but for its epilogue: its cursors in rings after it, and what its epilogue takes."""
        emitter, block = self.emitter, self.op.regions[0].block
        ids = emitter.program_ids(self.op, position, self.counts)
        emitter.values.update(zip(block.args, [*ids, *cursors], strict=True))
        emitter.between = between
        emitter.run_block(block)
        assert emitter.between is None, "parts of the epilogue go between steps"
        return [emitter.values[value] for value in yielded_values(block)], [
            emitter.values[v] for v in self.epilogue.operands
        ]

    def _defer(self, values: Sequence[Registers], position: Value) -> Deferred:
        """The epilogue of a program, in pieces: what all rows read, which comes early, and everything else."""
        block = self.epilogue.regions[0].block
        early = [op for op in spec_ops(block) if _is_early(op)]
        late = [op for op in spec_ops(block) if op not in early]

        def write(cut: Sequence[Registers], window: Window) -> Piece:
            def begin() -> None:
                ids = self.emitter.program_ids(self.op, position, self.counts)
                self.emitter.values.update(zip(block.args, [*ids, *cut], strict=True))
                self._some(early, window)

            return begin, lambda: self._some(late, window)

        return Deferred(self.epilogue, values, write)

    def _some(self, ops: Sequence[SpecOp], window: Window) -> None:
        tiles = self.emitter.tiles
        assert tiles is not None
        tiles.window = window
        self.emitter.run_ops(ops)
        tiles.window = None


def _is_early(op: SpecOp) -> bool:
    """Whether an op is an index, or reads one number, or one for each column."""
    if op.name != "ttarget.fragment_load":
        return op.name in ("ttarget.index", "ttarget.fetch")
    return not any(op.value("axes")[0] in expr.symbols for expr in op.value("map")) and len(op.value("axes")) == 2


def cut_columns(tile: Registers, first: int, count: int) -> Registers:
    """Some columns of a fragment."""
    layout = tile.layout
    cut = layout.with_columns(count)
    each = 4 if tile.pairs is not None else 2
    share, given = layout.columns // each, tile.flat()
    found = [
        value
        for block in range(layout.blocks)
        for value in given[block * share + first // each : block * share + (first + count) // each]
    ]
    if tile.pairs is not None:
        return Registers(cut, tile.dtype, None, found)
    return Registers(cut, tile.dtype, found)
