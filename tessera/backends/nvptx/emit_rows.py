"""Reductions along the rows of a tile that lanes share: of what two lanes exchange each joins a half.

The tree is that of every reduction: element `i` is joined with `i + half` until one is left. A thread has elements of
several rows: whatever lanes exchange, one goes on with half of the rows and the other with the rest, so that each
step moves half of what the last did. Joining takes its operands in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Layout, Tile
from tessera.backends.nvptx.text import WARP, shuffle
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

Join = Callable[[Value, Value], Value]


def lanes_of(layout: Layout, axis: int) -> int:
    """Threads that share a row of the tile, where these are of one warp or of two and have several rows; else 0."""
    if len(layout.shape) != 2 or axis != 1 or layout.size % layout.group or layout.shape[1] % layout.vector:
        return 0
    lanes, rows = layout.shape[1] // layout.vector, layout.registers // layout.vector
    is_power = lanes & (lanes - 1) == 0 and rows & (rows - 1) == 0
    is_shared = 2 <= lanes <= 2 * WARP and layout.threads % max(lanes, WARP) == 0
    return lanes if is_power and is_shared and rows > 1 else 0


class RowReduction:
    """One reduction: what a thread still has of its rows, and which those are."""

    def __init__(self, emitter: Emitter, source: Tile, join: Join) -> None:
        self.emitter, self.f, self.layout, self.dtype = emitter, emitter.f, source.layout, source.dtype
        self.join, self.lanes = join, lanes_of(source.layout, 1)
        registers, vector = emitter.registers(source), source.layout.vector
        self.parts = [list(registers[at : at + vector]) for at in range(0, len(registers), vector)]
        """Neighbours of each row."""
        self.first: Index = 0
        """The number of the first row, among those of the thread."""
        self.repeated = 0
        """Lanes whose bits are set have what others have."""

    def in_order(self, out: Layout) -> list[Value]:
        """The rows by the tree, for any join."""
        if self.lanes > WARP:
            self._halve_across_warps()
        scattered = self._halve_lanes()
        for step in scattered:
            self._join_lanes(step)
        self._join_neighbours()
        return self._distribute(out, 1)

    def in_any_order(self, out: Layout) -> list[Value]:
        """The rows where the order does not matter: what is in a thread first, what is in another warp last."""
        self._join_neighbours()
        self._halve_lanes()
        return self._distribute(out, max(1, self.lanes // WARP))

    def _is_upper(self, step: int) -> Value:
        return self.f.icmp("ne", self.f.op("and", self.emitter.thread, self.f.const_i(step)), 0)

    def _split(self, step: int) -> tuple[list[list[Value]], list[list[Value]]]:
        """The rows that this thread keeps, and those that it gives to its partner."""
        f, half = self.f, len(self.parts) // 2
        is_upper = self._is_upper(step)
        low, high = self.parts[:half], self.parts[half:]
        pairs = [list(zip(a, b, strict=True)) for a, b in zip(low, high, strict=True)]
        self.first = f.add(self.first, f.select(is_upper, f.const_i(half), f.const_i(0)))
        kept = [[f.select(is_upper, b, a) for a, b in pair] for pair in pairs]
        given = [[f.select(is_upper, a, b) for a, b in pair] for pair in pairs]
        return kept, given

    def _joined(self, kept: Sequence[Sequence[Value]], taken: Sequence[Sequence[Value]]) -> list[list[Value]]:
        return [
            [self.join(a, b) for a, b in zip(own, other, strict=True)] for own, other in zip(kept, taken, strict=True)
        ]

    def _halve_lanes(self) -> list[int]:
        """All steps between lanes of a warp; gives those that divided the neighbours of one row."""
        f, scattered = self.f, list[int]()
        step = min(self.lanes, WARP) // 2
        while step:
            if len(self.parts) > 1:
                kept, given = self._split(step)
                self.parts = self._joined(kept, [[shuffle(f, one, "bfly", step) for one in row] for row in given])
            elif len(self.parts[0]) > 1:
                self._halve_neighbours(step)
                scattered.append(step)
            else:
                self._join_lanes(step)
            step //= 2
        return scattered

    def _halve_neighbours(self, step: int) -> None:
        """One row: of its neighbours each lane goes on with half."""
        f, (part,), is_upper = self.f, self.parts, self._is_upper(step)
        pairs = list(zip(part[: len(part) // 2], part[len(part) // 2 :], strict=True))
        kept = [f.select(is_upper, b, a) for a, b in pairs]
        given = [f.select(is_upper, a, b) for a, b in pairs]
        self.parts = self._joined([kept], [[shuffle(f, one, "bfly", step) for one in given]])

    def _join_lanes(self, step: int) -> None:
        """Both lanes have the same then."""
        self.repeated |= step
        self.parts = self._joined(
            self.parts, [[shuffle(self.f, one, "bfly", step) for one in row] for row in self.parts]
        )

    def _join_neighbours(self) -> None:
        while len(self.parts[0]) > 1:
            half = len(self.parts[0]) // 2
            self.parts = self._joined([row[:half] for row in self.parts], [row[half:] for row in self.parts])

    def _halve_across_warps(self) -> None:
        """The first step where two warps share a row: half of the rows goes through shared memory."""
        emitter, f, vector = self.emitter, self.f, self.layout.vector
        element = values.memory_type(self.dtype)
        kept, given = self._split(WARP)
        base = emitter.exchange(len(given) * self.layout.group * bytes_of(element))
        align = min(16, vector * bytes_of(element))
        type_ = values.packed_type(element, vector) if vector > 1 else element

        def at(thread: Value, number: int) -> Value:
            return f.gep(base, f.add(f.mul(thread, vector), number * self.layout.group), element)

        emitter.wait()
        for number, row in enumerate(given):
            f.store(values.pack(f, row), at(emitter.thread, number), align=align)
        emitter.wait()
        partner = f.op("xor", emitter.thread, f.const_i(WARP))
        taken: list[list[Value]] = []
        for number in range(len(given)):
            whole = f.load(at(partner, number), type_, align)
            taken.append(values.unpack(f, whole, element, vector) if vector > 1 else [whole])
        self.parts = self._joined(kept, taken)

    def _distribute(self, out: Layout, warps: int) -> list[Value]:
        """Give each thread what it has of the result; of `warps` that share a row each has a part of it."""
        emitter, f, rows = self.emitter, self.f, self.layout.shape[0]
        element = values.memory_type(self.dtype)
        base = emitter.exchange(-(-rows * warps * bytes_of(element) // 16) * 16)
        side = f.urem(f.udiv(emitter.thread, WARP), warps) if warps > 1 else f.const_i(0)
        own = f.udiv(emitter.thread, self.lanes)
        emitter.wait()

        def put() -> None:
            for number, (value,) in enumerate(self.parts):
                row = f.add(f.mul(f.add(self.first, number), self.layout.threads // self.lanes), own)
                f.store(value, f.gep(base, f.add(f.mul(row, warps), side), element))

        if self.repeated:
            f.if_(f.icmp("eq", f.op("and", emitter.thread, f.const_i(self.repeated)), 0), put)
        else:
            put()
        emitter.wait()
        found: list[Value] = []
        for register in range(out.registers):
            (row,) = emitter.at(out).coordinates(register)
            first, *others = [
                f.load(f.gep(base, f.add(f.mul(row, warps), number), element), element) for number in range(warps)
            ]
            for other in others:
                first = self.join(first, other)
            found.append(first)
        return found


def takes(layout: Layout, axis: int, dtype: DType) -> bool:
    """Whether rows are reduced so: numbers as they are in memory, that lanes share evenly."""
    return not dtype.is_bool and not values.is_narrow(dtype) and lanes_of(layout, axis) > 0
