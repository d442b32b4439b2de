"""Rows that several warps share, written: turns of each, what goes from warp to warp, and rows that come ahead.

Everything outside of loops is done by all warps of a team alike, and written by the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from tessera.backends.nvptx import emit_access, row_extremes
from tessera.backends.nvptx.falling import Bound
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.row_shares import sections_of
from tessera.backends.nvptx.row_teams import Division, Section, Team, divided, divided_freely
from tessera.backends.nvptx.rows_brought import LOOPS, brought, is_short, most_of, room_of, width_of
from tessera.backends.nvptx.rows_handed import Handed
from tessera.backends.nvptx.rows_ragged import RaggedStage, packed_pairs, unpacked_pairs
from tessera.backends.nvptx.rows_rare import FAR, rare_sums
from tessera.backends.nvptx.text import WARP, barrier
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter


class Divided:
    """The writing of one such kernel."""

    def __init__(self, emitter: Emitter, warp: Value) -> None:
        self.emitter = emitter
        kernel, width = emitter.kernel, width_of(emitter.kernel)
        found = brought(kernel, emitter.machine)
        self.is_free, self.is_short = width.value is None, found.is_short
        self.is_late = is_short(kernel)
        elements, warps = room_of(kernel)
        self.warp, self.rows = warp, found.rows
        self.stage = RaggedStage(emitter, found.rows, elements, warps)
        self.lines = RaggedStage(emitter, found.lines, most_of(kernel), 1, self.stage.end)
        self.handed = Handed(emitter, self.warp, self.lines.end)
        emitter.stage_bytes = self.handed.end
        self.division = self._divide(width)
        self.handed.team = self.division.team
        self.smallest: dict[Section, dict[Bound, list[Value]]] = {}
        """What is known of powers, by sections."""
        self.said: list[tuple[Mapping[Any, Tile], Sequence[Value]]] = []
        """Words with two elements each that this thread has of a row, and what loads give of them."""
        self.done: set[SpecOp] = set()
        """Tails that were written with their loops."""
        self.is_everyones = False
        """Whether turns are written that all warps have, of which the first stores."""

    def _divide(self, width: Dim) -> Division:
        emitter = self.emitter
        if width.value is not None:
            return divided(emitter, self.warp, width.value // WARP, self.is_short)
        size = dim_value(emitter.f, width, emitter.env)
        return divided_freely(emitter, self.warp, size, sections_of(emitter.kernel))

    # Rows.

    def write(self, op: SpecOp, grid: Sequence[Value], total: Index) -> None:
        """Rows one after the other, each with the next one on its way."""
        f, emitter, team = self.emitter.f, self.emitter, self.division.team
        self.stage.fetch(team.row, total, team)
        self._bring_lines()

        def round_(number: Value) -> None:
            self.stage.arrive()
            self.handed.meet()
            emitter.memo, self.said = {}, []
            self._read(op, number)
            if self.rows:
                self.handed.meet()
            self.stage.fetch(f.add(number, team.step), total, team)
            emitter.program(op, grid, number, kept=True)

        f.loop(team.row, total, team.step, round_)

    def _bring_lines(self) -> None:
        """What all programs read, by all threads of the block; once."""
        emitter, whole = self.emitter, Team(self.emitter.shares, self.warp, 0, 0, self.division.team.step)
        if not self.lines.rows:
            return
        self.lines.fetch(0, 1, whole)
        self.lines.arrive()
        barrier(emitter.f)
        emitter.on_stage.update((row.buffer, self.lines.place(row, 0, whole)) for row in self.lines.rows)

    def _read(self, op: SpecOp, number: Value) -> None:
        """What this thread has of rows that have come, for all loads of this program."""
        emitter = self.emitter
        if not self.rows:
            return
        (place,) = op.regions[0].block.args
        emitter.indices[place] = number
        emitter.on_stage.update((row.buffer, self.stage.place(row, number, self.division.team)) for row in self.rows)
        for part in op.regions[0].block.ops:
            if isinstance(part, SpecOp) and part.name == "ttarget.index":
                emitter.emit(part)
            if isinstance(part, SpecOp) and part.name in LOOPS:
                self._read_turns(part)
        for row in self.rows:
            del emitter.on_stage[row.buffer]

    def _read_turns(self, loop: SpecOp) -> None:
        is_tail = loop.name == "ttarget.tail"
        if not self.is_free:
            width = width_of(self.emitter.kernel).value or 0
            last = [width // WARP * WARP] if width % WARP else []
            self._keep_loaded(Section(last if is_tail else self.division.rest), loop)
        for section in self.division.sections:
            if section.is_ragged == is_tail:
                self._keep_loaded(section, loop)

    def _keep_loaded(self, section: Section, loop: SpecOp) -> None:
        """Load what turns read of rows that have come, and say so to those that follow."""
        emitter, block = self.emitter, loop.regions[0].block
        made: dict[Any, Tile] = {}
        buffers = {row.buffer for row in self.rows}

        def load() -> list[Value]:
            before = dict(emitter.memo)
            for op in block.ops:
                if isinstance(op, SpecOp) and op.name == "ttarget.load" and op.operands[0] in buffers:
                    for place in section.places:
                        emitter.indices[block.args[0]] = place
                        emit_access.emit_load(emitter, op)
            made.update((key, tile) for key, tile in emitter.memo.items() if key not in before)
            emitter.memo = before
            return packed_pairs(emitter.f, [value for tile in made.values() for value in tile.registers])

        self._say(made, self._if(section, load))

    def _say(self, tiles: Mapping[Any, Tile], words: Sequence[Value]) -> None:
        """Say what loads will give: elements of words, or numbers as they are."""
        if len(words) < len(tiles):
            self.said.append((tiles, words))
        flat = unpacked_pairs(self.emitter.f, words, [tile.registers[0].type for tile in tiles.values()])
        for (key, tile), value in zip(tiles.items(), flat, strict=True):
            self.emitter.memo[key] = Tile(tile.layout, tile.dtype, [value])

    def _say_anew(self, turn: Value) -> None:
        """Words as if they were those of this turn alone, which is that of this warp.

        Otherwise all that is computed of them would be, and kept, before the first turn: there are no registers for it.
        """
        f, said, self.said = self.emitter.f, self.said, []
        here, there = (f.cast("trunc", f.index(one), "i32") for one in (turn, self.division.team.place))
        nothing = f.raw("i32", f'call i32 asm sideeffect "sub.u32 $0, $1, $2;", "=r,r,r"({here}, {there})')
        for tiles, words in said:
            self._say(tiles, [f.op("or", word, nothing) for word in words])
        self.said = said

    def stores(self, op: SpecOp, write: Callable[[], None]) -> None:
        """Write a store: by each warp of its own turns, by the first of what all of them have."""
        f, loop = self.emitter.f, op.parent_op()
        is_own = loop is not None and loop.name in LOOPS and not self.is_everyones
        f.if_(Value("i1", "true") if is_own else f.icmp("eq", self.division.team.place, 0), write)

    # Loops.

    def loop(self, op: SpecOp, carried: list[Value]) -> None:
        """A loop: turns of each warp, then those that all have."""
        emitter = self.emitter
        tail = self._tail_of(op)
        bodies = [(section, tail if section.is_ragged else op) for section in self.division.sections]
        parts = [(section, body) for section, body in bodies if body is not None]
        if not carried:
            for section, body in parts:
                self._if(section, lambda section=section, body=body: self._alone(section, body))
            ends: list[Value] = []
        elif row_extremes.joins_of(op) is not None:
            ends = self._extremes(op, parts, carried)
        elif rare := rare_sums(op, after := self._after_loop(op)):
            self._sums(op, after, parts, carried, rare)
            return
        else:
            ends = self._chain(op, parts, carried, range(len(carried)))
        self.is_everyones = True
        emitter.bind(op.results, emitter.turns(op, self.division.rest, ends))
        self.is_everyones = False
        if tail is not None:
            emitter.bind(tail.results, emitter.flat(op.results))
            self.done.add(tail)

    def _sums(
        self,
        op: SpecOp,
        tail: SpecOp | None,
        parts: Sequence[tuple[Section, SpecOp]],
        carried: list[Value],
        rare: Mapping[int, int],
    ) -> None:
        """Sums of which some are made only where others are great: all warps of a team find the same."""
        f, emitter = self.emitter.f, self.emitter
        often = [number for number in range(len(carried)) if number not in rare]
        ends = self._to_the_end(op, tail, parts, carried, often)
        tests = [f.fcmp("olt", f.intrinsic("fabs", ends[main]), f.const("float", FAR)) for main in rare.values()]
        write = partial(self._to_the_end, op, tail, parts, carried, list(rare))
        others = f.if_(row_extremes.all_of(emitter, tests), lambda: carried, lambda: emitter.apart(write))
        found = [others[number] if number in rare else end for number, end in enumerate(ends)]
        emitter.bind(op.results, found)
        if tail is not None:
            emitter.bind(tail.results, found)
            self.done.add(tail)

    def _to_the_end(
        self,
        op: SpecOp,
        tail: SpecOp | None,
        parts: Sequence[tuple[Section, SpecOp]],
        carried: list[Value],
        wanted: Sequence[int],
    ) -> list[Value]:
        """Some of what a loop and its tail carry, the others as they were."""
        emitter = self.emitter
        ends = self._chain(op, parts, carried, wanted)
        ends = _only(wanted, emitter.turns(op, self.division.rest, ends), carried)
        width = width_of(emitter.kernel).value or 0
        if tail is not None and width % WARP:
            ends = _only(wanted, emitter.turns(tail, [width // WARP * WARP], ends), carried)
        return ends

    def tail(self, op: SpecOp, write: Callable[[], None]) -> None:
        """A tail, which all warps have, unless it was written with its loop."""
        if op not in self.done:
            self.is_everyones = True
            write()
            self.is_everyones = False

    def _tail_of(self, loop: SpecOp) -> SpecOp | None:
        """The tail that goes on with a loop, where it is one warp's."""
        return self._after_loop(loop) if self.is_free else None

    def _after_loop(self, loop: SpecOp) -> SpecOp | None:
        """The tail that goes on with a loop."""
        after = loop.next_op
        while after is not None and after.name != "ttarget.loop":
            if isinstance(after, SpecOp) and after.name == "ttarget.tail":
                return after
            after = after.next_op
        return None

    def _alone(self, section: Section, op: SpecOp) -> list[Value]:
        """Turns that carry nothing."""
        emitter = self.emitter
        self._know(section)
        if row_extremes.write_ordinary(emitter, op, lambda: emitter.turns(op, section.places, [])) is None:
            emitter.turns(op, section.places, [])
        return []

    def _know(self, section: Section) -> None:
        self.emitter.smallest = self.smallest.get(section, {})

    def _extremes(self, op: SpecOp, parts: Sequence[tuple[Section, SpecOp]], carried: list[Value]) -> list[Value]:
        """Extremes in any order: each warp takes its own, and then all take those of all."""
        emitter, ends = self.emitter, carried
        for section, body in parts:
            ends = self._own_extremes(section, body, ends)
        joins = row_extremes.joins_of(op)
        assert joins is not None
        names = [join.value("fn") for join in joins for _ in range(emitter.layout(join.results[0])[0].registers)]
        return self.handed.joined(op, ends, names)

    def _own_extremes(self, section: Section, op: SpecOp, carried: list[Value]) -> list[Value]:
        """The extremes of a section, with those before; what else they say of powers is known then."""
        emitter, bounds = self.emitter, list[tuple[Bound, int]]()

        def write() -> list[Value]:
            emitter.smallest = {}
            if not row_extremes.write_extremes(emitter, op, section.places, carried):
                emitter.bind(op.results, emitter.turns(op, section.places, carried))
            bounds.extend((bound, len(flat)) for bound, flat in emitter.smallest.items())
            return [*emitter.flat(op.results), *(value for flat in emitter.smallest.values() for value in flat)]

        found, at = self._if(section, write, carried), len(carried)
        for bound, count in bounds:
            self.smallest.setdefault(section, {})[bound] = found[at : at + count]
            at += count
        return found[: len(carried)]

    def _chain(
        self, op: SpecOp, parts: Sequence[tuple[Section, SpecOp]], carried: list[Value], wanted: Sequence[int]
    ) -> list[Value]:
        """What needs nothing of other turns first, by all at once; then what turns carry, warp after warp."""
        before = [self._before(section, body) for section, body in parts]

        def write(turn: Value, ends: list[Value]) -> list[Value]:
            if self.is_short:
                self._say_anew(turn)
            for (section, body), turns in zip(parts, before, strict=True):
                found = self._if(section, partial(self._after, section, body, turns, ends), ends)
                ends = _only(wanted, found, carried)
            return ends

        return self.handed.in_turn(
            op, carried, wanted, lambda turn, ends: self.emitter.apart(lambda: write(turn, ends))
        )

    def _after(
        self, section: Section, op: SpecOp, turns: Sequence[dict[SSAValue, Tile]], ends: list[Value]
    ) -> list[Value]:
        """The ops of turns that need what they carry."""
        emitter, block = self.emitter, op.regions[0].block
        _, after, _ = split(op, self.is_late)
        for place, tiles in zip(section.places, turns, strict=True):
            emitter.indices[block.args[0]] = place
            emitter.tiles.update(tiles)
            emitter.bind(block.args[1:], ends)
            for part in after:
                emitter.emit(part)
            assert block.last_op is not None
            ends = emitter.flat(block.last_op.operands)
        return ends

    def _before(self, section: Section, op: SpecOp) -> list[dict[SSAValue, Tile]]:
        """Ops of turns that need nothing of others: what the rest needs of them, turn by turn."""
        emitter, block = self.emitter, op.regions[0].block
        before, _, needed = split(op, self.is_late)

        def write() -> list[Value]:
            found: list[Value] = []
            for place in section.places:
                emitter.indices[block.args[0]] = place
                for part in before:
                    emitter.emit(part)
                found += emitter.flat(needed)
            return found

        def known() -> list[Value]:
            self._know(section)
            flat = row_extremes.write_ordinary(emitter, op, write)
            return write() if flat is None else flat

        flat, at, turns = self._if(section, known), 0, list[dict[SSAValue, Tile]]()
        for _ in section.places:
            tiles: dict[SSAValue, Tile] = {}
            for value in needed:
                layout, dtype = emitter.layout(value)
                tiles[value] = Tile(layout, dtype, flat[at : at + layout.registers])
                at += layout.registers
            turns.append(tiles)
        return turns

    def _if(self, section: Section, write: Callable[[], list[Value]], otherwise: Sequence[Value] = ()) -> list[Value]:
        """Write turns that a warp may not have: what they give, or `otherwise`; what they keep in registers stays."""
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
            # Some number: what has none would keep its register from the start of the loop on.
            return [*otherwise, *(Value(value.type, "zeroinitializer") for value in flat[len(otherwise) :])]

        found = f.if_(section.condition, then, else_)
        at, emitter.memo = count, memo
        for place, key, tile in made:
            place[key] = Tile(tile.layout, tile.dtype, found[at : at + len(tile.registers)])
            at += len(tile.registers)
        return found[:count]


def _only(wanted: Sequence[int], given: Sequence[Value], others: Sequence[Value]) -> list[Value]:
    """Those that are wanted, and others in place of the rest."""
    return [value if number in wanted else others[number] for number, value in enumerate(given)]


def split(loop: SpecOp, is_short: bool = False) -> tuple[list[SpecOp], list[SpecOp], list[SSAValue]]:
    """Ops of a loop that need nothing that turns carry, those that do, and what these need of the first."""
    block = loop.regions[0].block
    late: set[SSAValue] = set(block.args[1:])
    before: list[SpecOp] = []
    after: list[SpecOp] = []
    for op in block.ops:
        assert isinstance(op, SpecOp)
        is_late = op is block.last_op or bool(late & set(op.operands))
        (after if is_late else before).append(op)
        if is_late:
            late.update(op.results)
    if is_short:
        # What is computed in no time is not kept: other rows would wait for registers.
        return [], [*before, *after], []
    early = {value for op in before for value in op.results if isinstance(value.type, VectorAttr)}
    needed = dict.fromkeys(value for op in after for value in op.operands if value in early)
    return before, after, list(needed)
