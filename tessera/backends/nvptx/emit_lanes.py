"""Shuffles and votes of segments of lanes: by the warp's own instructions, or between registers of one thread.

A thread has `vector` neighbours of a tile, and threads stand side by side, so lane `l` of a warp has elements
`l * vector ...` of what the warp holds in one round. Segments are whole in a warp, since both are powers of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.backends.nvptx.layout import Layout, Tile
from tessera.backends.nvptx.text import ALL_LANES, WARP, shuffle
from tessera.ir.base.op import SpecOp
from tessera.ir.target.lanes import partner
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText


def emit_shuffle(emitter: Any, op: SpecOp) -> None:
    """Each element from another lane of its segment."""
    tile: Tile = emitter.tiles[op.operands[0]]
    layout, dtype = emitter.layout(op.result)
    given = emitter.registers(tile)
    way, by, width = op.value("mode"), op.value("by"), op.value("width")
    emitter.tiles[op.result] = Tile(layout, dtype, exchanged(emitter, layout, given, way, by, width))


def exchanged(emitter: Any, layout: Layout, given: Sequence[Value], way: str, by: int, width: int) -> list[Value]:
    """The registers of a tile after a shuffle."""
    vector = layout.vector
    if layout.threads == 1 or width <= vector:
        # A segment is one thread's: its registers change places, and no lane is asked.
        return [given[partner(way, by, width, register)] for register in range(layout.registers)]
    lanes = Lanes(emitter.f, emitter.thread, vector, width)
    made: list[Value] = []
    for register in range(layout.registers):
        turn, inner = divmod(register, vector)
        made.append(lanes.moved(given[turn * vector : (turn + 1) * vector], inner, way, by))
    return made


class Lanes:
    """Where a thread stands in its segment, and what it gets from others of it."""

    def __init__(self, f: FunctionText, thread: Value, vector: int, width: int) -> None:
        self.f, self.vector, self.width = f, vector, width
        self.lane = f.cast("trunc", f.urem(thread, WARP), "i32")

    def _number(self, value: int) -> Value:
        return Value("i32", str(value))

    @property
    def place(self) -> Value:
        """The place of the thread's first element in its segment."""
        scaled = self.f.op("mul", self.lane, self._number(self.vector))
        return self.f.op("and", scaled, self._number(self.width - 1))

    def moved(self, own: Sequence[Value], inner: int, way: str, by: int) -> Value:
        """What the element in register `inner` of a round gets; `own` are the thread's registers of the round."""
        f, vector = self.f, self.vector
        if way == "xor":
            lanes, other = divmod(by, vector)
            value = own[inner ^ other]
            return shuffle(f, value, "bfly", lanes) if lanes else value
        if way == "index":
            start = f.op("and", self.lane, self._number(-(self.width // vector) & (WARP - 1)))
            return shuffle(f, own[by % vector], "idx", f.op("add", start, self._number(by // vector)))
        lanes, other = divmod(inner + by if way == "down" else inner - by, vector)
        value = own[other]
        if lanes:
            value = shuffle(f, value, "down", lanes) if lanes > 0 else self._back(value, -lanes)
        if way == "down":
            inside = f.icmp("slt", self.place, self._number(self.width - by - inner))
        else:
            inside = f.icmp("sge", self.place, self._number(by - inner))
        return f.select(inside, value, own[inner])

    def _back(self, value: Value, lanes: int) -> Value:
        """The value of the thread so many lanes before; that of any where there is none."""
        before = self.f.op("and", self.f.op("sub", self.lane, self._number(lanes)), self._number(WARP - 1))
        return shuffle(self.f, value, "idx", before)


def emit_vote(emitter: Any, op: SpecOp) -> None:
    """A ballot of each segment, and what its bits say."""
    f: FunctionText = emitter.f
    layout, dtype = emitter.layout(op.result)
    width, kind = op.value("width"), op.value("kind")
    bits = _ballots(emitter, layout, emitter.of(op.operands[0]), width)
    full = Value("i32", str((1 << width) - 1 if width < WARP else -1))
    made: list[Value] = []
    for value in bits:
        if kind == "any":
            made.append(f.icmp("ne", value, Value("i32", "0")))
        elif kind == "all":
            made.append(f.icmp("eq", value, full))
        else:
            made.append(f.intrinsic("ctpop", value) if kind == "count" else value)
    emitter.tiles[op.result] = Tile(layout, dtype, made)


def _ballots(emitter: Any, layout: Layout, given: Sequence[Value], width: int) -> list[Value]:
    """The ballot of the segment that each register's element is in."""
    f: FunctionText = emitter.f
    if layout.threads > 1 and layout.vector == 1 and width > 1:
        lane = f.cast("trunc", f.urem(emitter.thread, WARP), "i32")
        start = f.op("and", lane, Value("i32", str(-width & (WARP - 1))))
        mask = Value("i32", str((1 << width) - 1 if width < WARP else -1))
        votes = [f.call("llvm.nvvm.vote.ballot.sync", [ALL_LANES, value], "i32") for value in given]
        return [f.op("and", f.op("lshr", vote, start), mask) for vote in votes]
    bits = [_own_bit(emitter, layout, value, register, width) for register, value in enumerate(given)]
    by = 1
    while by < width:
        across = exchanged(emitter, layout, bits, "xor", by, width)
        bits = [f.op("or", own, other) for own, other in zip(bits, across, strict=True)]
        by *= 2
    return bits


def _own_bit(emitter: Any, layout: Layout, value: Value, register: int, width: int) -> Value:
    """A bool as the bit of its lane."""
    f: FunctionText = emitter.f
    wide = f.cast("zext", value, "i32")
    if layout.threads == 1 or width <= layout.vector:
        return f.op("shl", wide, Value("i32", str(register % width)))
    place = Lanes(f, emitter.thread, layout.vector, width).place
    return f.op("shl", wide, f.op("add", place, Value("i32", str(register % layout.vector))))
