"""Reductions along the rows of a tile that lanes share: of what two lanes exchange each joins a half.

The tree is that of every reduction: element `i` is joined with `i + half` until one is left. A thread has elements of
several rows: whatever lanes exchange, one goes on with half of the rows and the other with the rest, so that each
step moves half of what the last did. Joining takes its operands in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Layout, Tile
from tessera.backends.nvptx.text import WARP, shuffle
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import ArgReduceOp, BroadcastOp, DotOp, KernelOp, ReduceOp
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

Join = Callable[[Value, Value], Value]


def lanes_of(layout: Layout, axis: int, least: int = 2) -> int:
    """Threads that share a row of the tile, where these are of one warp or of two and have `least` rows; else 0."""
    if len(layout.shape) != 2 or axis != 1 or layout.size % layout.group or layout.shape[1] % layout.vector:
        return 0
    lanes, rows = layout.shape[1] // layout.vector, layout.registers // layout.vector
    is_power = lanes & (lanes - 1) == 0 and rows & (rows - 1) == 0
    is_shared = 2 <= lanes <= 2 * WARP and layout.threads % max(lanes, WARP) == 0
    return lanes if is_power and is_shared and rows >= least else 0


def lane_of_row(f: FunctionText, thread: Value, lanes: int, number: int = 0) -> Value:
    """One of the lanes that have a row with a thread, by its number among them."""
    first = f.op("and", f.cast("trunc", thread, "i32"), Value("i32", str(-lanes & WARP - 1)))
    return f.op("or", first, Value("i32", str(number))) if number else first


def is_whole_row(source: Tile, axis: int) -> bool:
    """Whether a tile is one row, of which threads of several warps, or registers of one, have as many elements each."""
    layout = source.layout
    is_even = layout.size == layout.shape[axis] and layout.size % layout.group == 0
    has_warps = layout.threads >= WARP and layout.threads & (layout.threads - 1) == 0
    return is_even and has_warps and (layout.threads > WARP or layout.registers > 1)


class RowReduction:
    """One reduction: what a thread still has of its rows, and which those are."""

    def __init__(self, emitter: Emitter, source: Tile, join: Join) -> None:
        self.emitter, self.f, self.layout, self.dtype = emitter, emitter.f, source.layout, source.dtype
        self.join, self.lanes = join, lanes_of(source.layout, 1, 1)
        registers, vector = emitter.registers(source), source.layout.vector
        self.parts = [list(registers[at : at + vector]) for at in range(0, len(registers), vector)]
        """Neighbours of each row."""
        self.first: Index = 0
        """The number of the first row, among those of the thread."""
        self.repeated = 0
        """Lanes whose bits are set have what others have."""
        self.divided: list[int] = []
        """Steps between lanes that each went on with half of the rows."""

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
        self.divided.append(step)
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
        if out.replicas:
            return self._give_back()
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

    def _give_back(self) -> list[Value]:
        """Every lane of a row has all of them: those that another went on with come from there."""
        f, count = self.f, self.layout.registers // self.layout.vector
        found: list[Value] = []
        for number in range(count):
            (value,) = self.parts[number % len(self.parts)]
            holder = sum(step for at, step in enumerate(self.divided) if number & count >> at + 1)
            lane = lane_of_row(f, self.emitter.thread, self.lanes, holder)
            found.append(shuffle(f, value, "idx", lane) if self.divided else value)
        return found


def takes(layout: Layout, axis: int, dtype: DType, least: int = 2) -> bool:
    """Whether rows are reduced so: numbers as they are in memory, that lanes share evenly, `least` rows to a thread."""
    return not dtype.is_bool and not values.is_narrow(dtype) and lanes_of(layout, axis, least) > 0


# Kernels whose programs reduce several rows of a tile: totals stay with the threads that have the rows. Threads side by
# side have a row of the tile between them, and whatever is one number for each row (a total, what is computed of it,
# what is loaded or stored for it) all of them have: the tile of rows is a slice of the tile that was reduced. So a
# reduction ends with shuffles, a broadcast along the rows moves nothing, and no thread waits for another warp.

_ELEMENTWISE = ("elementwise", "select", "cast", "bitcast", "round", "constant", "coordinate", "clip", "load", "store")


def find_row_slices(kernel: KernelOp) -> dict[tuple[int, ...], int]:
    """The shape of tiles that are slices of the rows of another, with how many threads have each element; or none."""
    if kernel.warps_per_row or kernel.threads < WARP:
        return {}
    if any(isinstance(op, DotOp) for op in kernel.walk()):
        return {}  # accumulators have layouts of their own
    reductions = [op for op in kernel.walk() if isinstance(op, ReduceOp | ArgReduceOp)]
    shapes = {sizes_of(value) for op in reductions for value in op.operands}
    if len(shapes) != 1 or any(op.axis != 1 for op in reductions):
        return {}
    (shape,) = shapes
    replicas = _threads_of_row(Layout(shape, kernel.threads, kernel.vector)) if len(shape) == 2 else 0
    rows = shape[:1]
    if not replicas or not all(_keeps_slices(op, rows) for op in kernel.walk()):
        return {}
    return {rows: replicas}


def _threads_of_row(layout: Layout) -> int:
    """Threads of a warp that have a row between them, where all of its rows are whole; else 0."""
    rows, columns = layout.shape
    replicas = columns // layout.vector
    is_whole = layout.size % layout.group == 0 and layout.group % columns == 0
    is_power = replicas & (replicas - 1) == 0
    return replicas if rows > 1 and is_whole and is_power and replicas <= WARP else 0


def _keeps_slices(op: Operation, rows: tuple[int, ...]) -> bool:
    """Whether an op can have tiles of such a shape in slices: it computes elements alone, or knows where they are."""
    if all(shape != rows for shape in _shapes(op)):
        return True
    return isinstance(op, ReduceOp | ArgReduceOp | BroadcastOp) or op.name.removeprefix("ttarget.") in _ELEMENTWISE


def _shapes(op: Operation) -> Iterator[tuple[int, ...]]:
    values: list[SSAValue] = [*op.operands, *op.results, *(arg for region in op.regions for arg in region.block.args)]
    for value in values:
        if isinstance(value.type, VectorAttr):
            yield sizes_of(value)


def is_along_slice(source: Layout, layout: Layout, axes: Sequence[int]) -> bool:
    """Whether a tile of rows is broadcast to one whose rows the same threads have."""
    is_of_rows = source.replicas > 0 and len(layout.shape) == 2 and tuple(axes) == (0,)
    return is_of_rows and layout.shape[1] == source.replicas * layout.vector and layout.size % layout.group == 0


def share_firsts(emitter: Emitter, registers: Sequence[Value], vector: int, replicas: int) -> list[Value]:
    """The first of each thread's neighbours, as the first of the threads of a row has it."""
    f, firsts = emitter.f, registers[::vector]
    lane = lane_of_row(f, emitter.thread, replicas)
    return [one if replicas == 1 else shuffle(f, one, "idx", lane) for one in firsts]
