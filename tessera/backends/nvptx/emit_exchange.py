"""Elements that threads exchange: reductions, broadcasts, transposes, dots, shuffles and votes.

Elementwise ops move nothing, since all tiles of a kernel are laid out alike (`layout.py`). What does move goes the
shortest path there is: between registers of one thread, between lanes of a warp, or through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING

from tessera.backends.nvptx import values
from tessera.backends.nvptx.emit_rows import RowReduction, is_along_slice, is_whole_row, share_firsts, takes
from tessera.backends.nvptx.layout import Layout, Spacing, Tile
from tessera.backends.nvptx.streamed_dots import (
    STAGES,
    STEP,
    StepCopies,
    StreamedOperand,
    set_others_aside,
    wait_for_step,
)
from tessera.backends.nvptx.text import ALL_LANES, WARP, shuffle
from tessera.ir.base.block_ops import partner
from tessera.ir.target import typed_ops as ops
from tessera.ir.target.llvm import math
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType, f64

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

DENSE = Spacing()
Join = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def share_tile(emitter: Emitter, tile: Tile, start: Value, spacing: Spacing = DENSE) -> None:
    """Put a tile into shared memory in row-major order; all may read it after the next wait."""
    f = emitter.f
    element, at = values.memory_type(tile.dtype), emitter.at(tile.layout)
    width = max(1, min(tile.layout.vector, 16 // bytes_of(element)))
    registers = [values.to_memory(f, value, tile.dtype) for value in emitter.registers(tile)]
    for register in range(0, tile.layout.registers, width):
        flat = f.add(at.base, tile.layout.start(register))
        if tile.layout.grid is not None:
            flat = _flat_index(f, at.coordinates(register), tile.layout.shape)
        if spacing.free:
            lines = f.udiv(flat, tile.layout.shape[-1] * spacing.every)
            flat = f.add(flat, f.mul(lines, spacing.free))
        address = f.gep(start, flat, element)
        whole = values.pack(f, registers[register : register + width])
        mask = at.is_owner(register)
        if mask is None:
            f.store(whole, address, align=width * bytes_of(element))
        else:
            f.if_(mask, lambda whole=whole, address=address: f.store(whole, address, align=width * bytes_of(element)))


def share_tiles(emitter: Emitter, tiles: Sequence[Tile]) -> list[Value]:
    """Tiles in shared memory, side by side, for all to read."""
    sizes = [-(-tile.layout.size * bytes_of(values.memory_type(tile.dtype)) // 16) * 16 for tile in tiles]
    base = emitter.exchange(sum(sizes))
    emitter.wait()
    starts: list[Value] = []
    at = 0
    for tile, size in zip(tiles, sizes, strict=True):
        starts.append(emitter.f.gep(base, at, "i8"))
        share_tile(emitter, tile, starts[-1])
        at += size
    emitter.wait()
    return starts


def read(emitter: Emitter, start: Value, offset: Index, dtype: DType) -> Value:
    """One element of a tile in shared memory."""
    f = emitter.f
    element = values.memory_type(dtype)
    return values.from_memory(f, f.load(f.gep(start, offset, element), element), dtype)


def _flat_index(f: FunctionText, coordinates: Sequence[Index], shape: Sequence[int]) -> Value:
    """The row-major number of an element."""
    total: Index = 0
    for coordinate, extent in zip(coordinates, shape, strict=True):
        total = f.add(f.mul(total, extent), coordinate)
    return f.index(total)


# Broadcasts and transposes.


def emit_broadcast(emitter: Emitter, op: ops.BroadcastOp) -> None:
    """A smaller tile along new axes."""
    f, source = emitter.f, emitter.tiles[op.block]
    layout, dtype = emitter.layout(op.result)
    if source.layout.size == 1:
        emitter.set_result(op, [emitter.registers(source)[0]] * layout.registers)
        return
    if is_along_slice(source.layout, layout, op.axes):
        held = emitter.registers(source)
        emitter.set_result(op, [held[register // layout.vector] for register in range(layout.registers)])
        return
    (start,) = share_tiles(emitter, [source])
    found: dict[str, Value] = {}
    registers: list[Value] = []
    for register in range(layout.registers):
        coordinates = emitter.at(layout).coordinates(register)
        flat = _flat_index(f, [coordinates[axis] for axis in op.axes], source.layout.shape)
        if flat.text not in found:
            found[flat.text] = read(emitter, start, flat, dtype)
        registers.append(found[flat.text])
    emitter.set_result(op, registers)


def emit_transpose(emitter: Emitter, op: ops.TransposeOp) -> None:
    """Nothing yet: a dot reads the tile transposed; whoever else asks has its elements moved then."""
    emitter.set_result(op, []).transposed = emitter.tiles[op.block]


def move_transposed(emitter: Emitter, source: Tile, layout: Layout) -> list[Value]:
    """The registers of a tile with its axes swapped, through shared memory."""
    f = emitter.f
    rows, columns = source.layout.shape
    size = bytes_of(values.memory_type(source.dtype))
    spacing = Spacing.for_transpose(source.layout, layout, size)
    start = emitter.exchange(-(-spacing.start(rows, columns) * size // 16) * 16)
    emitter.wait()
    share_tile(emitter, source, start, spacing)
    emitter.wait()
    found: list[Value] = []
    for register in range(layout.registers):
        inside, line = emitter.at(layout).coordinates(register)
        flat = f.add(f.add(f.mul(line, columns), inside), f.mul(f.udiv(line, spacing.every), spacing.free))
        found.append(read(emitter, start, flat, source.dtype))
    return found


# Reductions.
#
# An axis is halved until one element is left: element `i` is joined with `i + half`. While halves are registers of one
# thread, nothing moves; then lanes exchange by shuffles; what is further apart goes through shared memory. The tree is
# the same for every layout, so that bits do not depend on how many threads there are.


def emit_reduce(emitter: Emitter, op: ops.ReduceOp) -> None:
    """An axis reduced in a halving tree."""
    f, source, name = emitter.f, emitter.tiles[op.block], _JOIN[op.kind]

    def join(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        return [values.compute(f, name, [a[0], b[0]], source.dtype)]

    layout, _ = emitter.layout(op.result)
    if _is_line_of_warp(emitter, source):
        total = _join_line(emitter, list(emitter.registers(source)), source.layout, join)
        emitter.set_result(op, [total] * layout.registers)
        return
    if takes(source.layout, op.axis, source.dtype, least=1 if layout.replicas > 1 else 2):
        rows = RowReduction(emitter, source, lambda a, b: join([a], [b])[0])
        is_free = name in ("max", "min")
        emitter.set_result(op, rows.in_any_order(layout) if is_free else rows.in_order(layout))
        return
    if name in ("max", "min") and is_whole_row(source, op.axis):
        registers: Sequence[Value] = [_minmax(emitter, source, name, join)] * layout.registers
    else:
        (registers,) = _reduce(emitter, [source], op.axis, layout, join)
    emitter.set_result(op, registers)


def _is_line_of_warp(emitter: Emitter, source: Tile) -> bool:
    """Whether a tile is one line of which each lane of a warp has as many groups of neighbours."""
    layout = source.layout
    is_power = layout.size & (layout.size - 1) == 0
    is_whole = len(layout.shape) == 1 and layout.threads == WARP and layout.size % layout.group == 0
    return is_whole and is_power and layout.registers > 1


def _join_line(emitter: Emitter, parts: list[Value], layout: Layout, join: Join) -> Value:
    """The halving tree of a line: of what two lanes exchange each joins a half, as long as it has several elements.

    Either order of two operands gives the same, so that all lanes end with the total.
    """
    f, vector = emitter.f, layout.vector
    while len(parts) > vector:
        half = len(parts) // 2
        parts = [join([a], [b])[0] for a, b in zip(parts[:half], parts[half:], strict=True)]
    scattered: list[int] = []
    lanes = WARP // 2
    while lanes:
        if len(parts) > 1:
            half = len(parts) // 2
            is_upper = f.icmp("ne", f.op("and", emitter.thread, f.const_i(lanes)), 0)
            kept = [f.select(is_upper, high, low) for low, high in zip(parts[:half], parts[half:], strict=True)]
            given = [f.select(is_upper, low, high) for low, high in zip(parts[:half], parts[half:], strict=True)]
            parts = [join([own], [shuffle(f, other, "bfly", lanes)])[0] for own, other in zip(kept, given, strict=True)]
            scattered.append(lanes)
        else:
            parts = [join(parts, [shuffle(f, parts[0], "bfly", lanes)])[0]]
        lanes //= 2
    for lanes in scattered:
        parts = [join(parts, [shuffle(f, parts[0], "bfly", lanes)])[0]]
    return parts[0]


def _minmax(emitter: Emitter, source: Tile, name: str, join: Join) -> Value:
    """The maximum or minimum of a row, in any order: of a thread, of its warp, of all; every thread has it then."""
    f, layout = emitter.f, source.layout
    value = values.minmax(f, name, source.dtype, emitter.registers(source), source.narrow)
    lanes = WARP // 2
    while lanes:
        (value,) = join([value], [shuffle(f, value, "bfly", lanes)])
        lanes //= 2
    if layout.threads == WARP:
        return value
    (start,) = share_tiles(emitter, [Tile(layout.single, source.dtype, [value])])
    found = [read(emitter, start, warp, source.dtype) for warp in range(0, layout.threads, WARP)]
    while len(found) > 1:
        found = [join([a], [b])[0] for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def emit_arg_reduce(emitter: Emitter, op: ops.ArgReduceOp) -> None:
    """The indices of maxima or minima: by value first, then the lower index; NaN before all."""
    f = emitter.f
    tiles = [emitter.tiles[value] for value in op.operands]
    kind, dtype = op.kind, tiles[0].dtype

    def join(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        beats = math.emit(f, "gt" if kind == "argmax" else "lt", [b[0], a[0]], dtype)
        equal = math.emit(f, "eq", [b[0], a[0]], dtype)
        if dtype.is_float:
            a_nan, b_nan = (math.emit(f, "isnan", [value], dtype) for value in (a[0], b[0]))
            equal = f.op("or", equal, f.op("and", a_nan, b_nan))
            beats = f.op("or", beats, f.op("and", b_nan, f.op("xor", a_nan, f.const("i1", True))))
        takes = f.op("or", beats, f.op("and", equal, f.icmp("slt", b[1], a[1])))
        return [f.select(takes, b[0], a[0]), f.select(takes, b[1], a[1])]

    _, indices = _reduce(emitter, tiles, op.axis, emitter.layout(op.result)[0], join)
    emitter.set_result(op, indices)


def _reduce(emitter: Emitter, tiles: Sequence[Tile], axis: int, out: Layout, join: Join) -> list[list[Value]]:
    """Halve the axis until one element is left, then give each thread what it holds of the result.

    An axis that is no power of two is cut to one first: what has no partner then goes on as it is.
    """
    current = [list(emitter.registers(tile)) for tile in tiles]
    layout = tiles[0].layout
    extent = layout.shape[axis]
    while extent > 1:
        if extent == layout.size_of_line and layout.size == layout.shape[axis]:
            return _reduce_across_warps(emitter, tiles, current, out, join)
        if axis == 0 and len(layout.shape) == 2 and extent * layout.shape[1] == layout.size_of_line:
            return _reduce_rows_of_warps(emitter, tiles, current, out, join)
        half = 1 << (extent - 1).bit_length() - 1
        current = _halve(emitter, tiles, current, axis, half, extent - half, join)
        extent = half
    return _distribute(emitter, tiles, current, axis, out)


def _reduce_across_warps(
    emitter: Emitter, tiles: Sequence[Tile], current: list[list[Value]], out: Layout, join: Join
) -> list[list[Value]]:
    """A row of which each thread has one group of neighbours: through shared memory once, for all steps over warps.

    Every thread takes all of them, and exchanges with the lanes of its warp what either can join: so all have the end.
    """
    f, layout = emitter.f, tiles[0].layout
    line, vector = layout.line, layout.vector
    held = [Tile(line, tile.dtype, part[:vector]) for tile, part in zip(tiles, current, strict=True)]
    starts = share_tiles(emitter, held)
    own = f.mul(f.urem(emitter.thread, WARP), vector)

    def at(offset: int) -> list[Value]:
        there = f.add(own, offset)
        return [read(emitter, start, there, tile.dtype) for start, tile in zip(starts, tiles, strict=True)]

    groups = [[at(warp * WARP * vector + step) for step in range(vector)] for warp in range(layout.threads // WARP)]
    while len(groups) > 1:
        half = len(groups) // 2
        pairs = zip(groups[:half], groups[half:], strict=True)
        groups = [[list(join(a, b)) for a, b in zip(low, high, strict=True)] for low, high in pairs]
    (parts,) = groups
    lanes = WARP // 2
    while lanes:
        parts = [list(join(part, [shuffle(f, value, "bfly", lanes) for value in part])) for part in parts]
        lanes //= 2
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [list(join(a, b)) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return [[value] * out.registers for value in parts[0]]


def _reduce_rows_of_warps(
    emitter: Emitter, tiles: Sequence[Tile], current: list[list[Value]], out: Layout, join: Join
) -> list[list[Value]]:
    """Rows of which each thread has one group of neighbours: through shared memory once, and then down each column."""
    f, layout = emitter.f, tiles[0].layout
    columns = layout.shape[1]
    held = [Tile(layout.line, tile.dtype, part[: layout.vector]) for tile, part in zip(tiles, current, strict=True)]
    starts = share_tiles(emitter, held)
    found: list[list[Value]] = []
    for register in range(out.registers):
        (column,) = emitter.at(out).coordinates(register)
        column = column if out.is_repeated else f.urem(column, columns)
        rows = [
            [
                read(emitter, start, f.add(column, row * columns), tile.dtype)
                for start, tile in zip(starts, tiles, strict=True)
            ]
            for row in range(layout.group // columns)
        ]
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [list(join(a, b)) for a, b in zip(rows[:half], rows[half:], strict=True)]
        found.append(rows[0])
    return [list(part) for part in zip(*found, strict=True)]


def _halve(
    emitter: Emitter, tiles: Sequence[Tile], current: list[list[Value]], axis: int, half: int, count: int, join: Join
) -> list[list[Value]]:
    """The first `count` elements of the axis with those `half` further on; what is from `half` on is not used."""
    made, f, layout = [list(part) for part in current], emitter.f, tiles[0].layout
    stride = prod(layout.shape[axis + 1 :])
    for register, other in _partners(emitter, tiles, current, half * stride, layout.shape[axis] * stride):
        own = [part[register] for part in current]
        joined = join(own, other)
        if count < half:
            has_partner = f.icmp("slt", emitter.at(layout).coordinates(register)[axis], count)
            joined = [f.select(has_partner, after, before) for after, before in zip(joined, own, strict=True)]
        for part, value in zip(made, joined, strict=True):
            part[register] = value
    return made


def _partners(
    emitter: Emitter, tiles: Sequence[Tile], current: list[list[Value]], distance: int, pitch: int
) -> list[tuple[int, list[Value]]]:
    """Registers, each with the elements that are `distance` behind its own: in this thread, in its warp, or beyond.

    Lines that are reduced begin at multiples of `pitch`.
    """
    layout, f = tiles[0].layout, emitter.f
    count, vector = layout.registers, layout.vector
    if distance % layout.group == 0:
        away = distance // layout.group * vector
        return [(at, [part[at + away] for part in current]) for at in range(count - away)]
    if distance < vector and vector % (2 * distance) == 0:
        lower = [at for at in range(count) if at % vector % (2 * distance) < distance]
        return [(at, [part[at + distance] for part in current]) for at in lower]
    lanes = distance // vector
    # The one line of a single row begins with the first thread, however long it is.
    is_in_step = pitch == layout.size or pitch % (2 * distance) == 0
    is_aligned = min(layout.group, layout.size) % (2 * distance) == 0 and is_in_step
    if distance % vector == 0 and is_aligned and lanes < WARP and WARP % (2 * lanes) == 0:
        # Nobody uses what is beyond the half of a single row.
        used = [at for at in range(count) if pitch < layout.size or layout.start(at) < distance]
        return [(at, [shuffle(f, part[at], "down", lanes) for part in current]) for at in used]
    held = [Tile(tile.layout, tile.dtype, part) for tile, part in zip(tiles, current, strict=True)]
    starts = share_tiles(emitter, held)
    found: list[tuple[int, list[Value]]] = []
    for at in range(count):
        other = f.smin(f.add(emitter.at(layout).base, layout.start(at) + distance), layout.size - 1)
        pairs = zip(starts, tiles, strict=True)
        found.append((at, [read(emitter, start, other, tile.dtype) for start, tile in pairs]))
    return found


def _distribute(
    emitter: Emitter, tiles: Sequence[Tile], current: list[list[Value]], axis: int, out: Layout
) -> list[list[Value]]:
    """Give each thread what it has of the result."""
    layout, f = tiles[0].layout, emitter.f
    if layout.threads == 1:
        stride, extent = prod(layout.shape[axis + 1 :]), layout.shape[axis]
        kept = [number // stride * stride * extent + number % stride for number in range(out.size)]
        return [[part[number] for number in kept] for part in current]
    if out.size == 1 and layout.threads == WARP:
        return [[shuffle(f, part[0], "idx", 0)] for part in current]
    if out.replicas:
        return [share_firsts(emitter, part, layout.vector, out.replicas) for part in current]
    held = [Tile(tile.layout, tile.dtype, part) for tile, part in zip(tiles, current, strict=True)]
    starts = share_tiles(emitter, held)
    found: list[list[Value]] = [[] for _ in tiles]
    for register in range(out.registers):
        coordinates = emitter.at(out).coordinates(register)
        flat = _flat_index(f, [*coordinates[:axis], 0, *coordinates[axis:]], layout.shape)
        for part, start, tile in zip(found, starts, tiles, strict=True):
            part.append(read(emitter, start, flat, tile.dtype))
    return found


# Dots.


class _Operand:
    """An operand of a dot in shared memory: in its narrower dtype where it has one, and not transposed.

    Elements are read in `dtype`, that of the accumulator. Those of f64 are stored so: a multiprocessor converts far
    fewer of them in a cycle than it multiplies, and each is read by many threads.
    """

    def __init__(self, emitter: Emitter, tile: Tile, is_lhs: bool, vector: int, dtype: DType) -> None:
        self.is_transposed = tile.transposed is not None
        source = tile.transposed if tile.transposed is not None else tile
        self.dtype = dtype
        self.stored = source
        if dtype is f64:
            registers = values.cast(emitter.f, emitter.registers(source), source.dtype, f64)
            self.stored = Tile(source.layout, f64, registers)
        elif source.narrow is not None:
            self.stored = Tile(source.layout, source.narrow[0], source.narrow[1])
        self.spacing = Spacing.for_operand(
            is_lhs, self.is_transposed, vector, bytes_of(values.memory_type(self.stored.dtype))
        )

    @property
    def bytes(self) -> int:
        rows, columns = self.stored.layout.shape
        count = self.spacing.start(rows, columns)
        return -(-count * bytes_of(values.memory_type(self.stored.dtype)) // 16) * 16

    def offset(self, f: FunctionText, row: Index, column: Index) -> Value:
        """Where an element is, of the tile as it is stored."""
        flat = _flat_index(f, [row, column], self.stored.layout.shape)
        if not self.spacing.free:
            return flat
        return f.add(flat, f.mul(f.udiv(row, self.spacing.every), self.spacing.free))

    def line(self, emitter: Emitter, start: Value, row: Index, column: Index, count: int) -> list[Value]:
        """Neighbours of one row as it is stored."""
        f = emitter.f
        element = values.memory_type(self.stored.dtype)
        size = bytes_of(element)
        at_once = 1 if self.stored.dtype.is_bool else min(count, 16 // size)
        found: list[Value] = []
        for step in range(0, count, at_once):
            offset = self.offset(f, row, f.add(column, step))
            if at_once == 1:
                value = read(emitter, start, offset, self.stored.dtype)
                found += values.cast(f, [value], self.stored.dtype, self.dtype)
                continue
            type_ = values.packed_type(element, at_once)
            address = f.gep(start, offset, element)
            whole = f.raw(type_, f"load {type_}, ptr {address.text}, align {size * at_once}")
            found += values.cast(f, values.unpack(f, whole, element, at_once), self.stored.dtype, self.dtype)
        return found

    def block(self, emitter: Emitter, start: Value, row: Index, column: Index, sizes: tuple[int, int]) -> list[Value]:
        """Elements of some rows and columns, row by row, in the longest reads that there are."""
        f, (rows, columns) = emitter.f, sizes
        if self.is_transposed:
            lines = [self.line(emitter, start, f.add(column, step), row, rows) for step in range(columns)]
            return [line[step] for step in range(rows) for line in lines]
        return [one for step in range(rows) for one in self.line(emitter, start, f.add(row, step), column, columns)]


_NEIGHBOURS, _MOST_FACTORS = 4, 4096
"""Elements along K that a thread reads at a time where they are contiguous, to be multiplied in order: reads of shared
memory are what limits dots. The text is as much longer: kernels with more products than that in all dots read one."""


_UNROLLED = 256
"""Multiply-adds of a thread that a streamed dot has in one iteration, so that counting is little beside them."""


class _Dot:
    """A dot of operands in shared memory: each thread its elements, chains of multiply-adds over K, in order."""

    def __init__(self, emitter: Emitter, op: ops.DotOp, rhs: Tile) -> None:
        self.emitter, self.acc = emitter, emitter.tiles[op.operands[2]]
        layout, f, left = self.acc.layout, emitter.f, emitter.tiles[op.operands[0]]
        self.vector = layout.vector
        self.lhs = _Operand(emitter, left, True, self.vector, self.acc.dtype)
        self.rhs = _Operand(emitter, rhs, False, self.vector, self.acc.dtype)
        self.K = left.layout.shape[1]
        self.depth = gcd(self.K, _elements_along_k(emitter))
        at = emitter.at(layout)
        self.groups = [at.coordinates(register) for register in range(0, layout.registers, self.vector)]
        # A register that holds nothing reads the last row.
        held = [at.is_there(number * self.vector) is None for number in range(len(self.groups))]
        rows, last = [group[0] for group in self.groups], layout.shape[0] - 1
        self.rows = [row if there else f.smin(row, last) for row, there in zip(rows, held, strict=True)]

    def multiply(self, starts: tuple[Value, Value], k: Index, inner: Index, accumulators: list[Value]) -> list[Value]:
        """Some K, from `k` on of the left operand and from `inner` on of what is there of the right one."""
        emitter, depth, vector = self.emitter, self.depth, self.vector
        firsts: dict[str, list[Value]] = {}
        seconds: dict[str, list[Value]] = {}
        found = list(accumulators)
        for number, (row, (_, column)) in enumerate(zip(self.rows, self.groups, strict=True)):
            name, other = str(row), str(column)
            if name not in firsts:
                firsts[name] = self.lhs.block(emitter, starts[0], row, k, (1, depth))
            if other not in seconds:
                seconds[other] = self.rhs.block(emitter, starts[1], inner, column, (depth, vector))
            for step, lane in product(range(depth), range(vector)):
                at, factors = number * vector + lane, (firsts[name][step], seconds[other][step * vector + lane])
                found[at] = _multiply_add(emitter.f, *factors, found[at], self.acc.dtype)
        return found


def emit_dot(emitter: Emitter, op: ops.DotOp) -> None:
    """Both operands into shared memory, all of them or the right one in steps, then the elements of each thread."""
    if op in emitter.streamed:
        _emit_streamed(emitter, op, emitter.streamed[op])
        return
    f, dot = emitter.f, _Dot(emitter, op, emitter.tiles[op.operands[1]])
    base = emitter.exchange(dot.lhs.bytes + dot.rhs.bytes)
    emitter.wait()
    starts = base, f.gep(base, dot.lhs.bytes, "i8")
    share_tile(emitter, dot.lhs.stored, starts[0], dot.lhs.spacing)
    share_tile(emitter, dot.rhs.stored, starts[1], dot.rhs.spacing)
    emitter.wait()

    def step(k: Value, accumulators: list[Value]) -> list[Value]:
        return dot.multiply(starts, k, k, accumulators)

    emitter.set_result(op, f.loop(0, dot.K, dot.depth, step, list(emitter.registers(dot.acc))))


def _emit_streamed(emitter: Emitter, op: ops.DotOp, operand: StreamedOperand) -> None:
    """A dot whose right operand is copied in steps: the next one while this one is multiplied."""
    f, layout, f32 = emitter.f, Layout(operand.shape, emitter.threads), emitter.tiles[op.operands[2]].dtype
    stored = Tile(layout, f32, [])
    dot = _Dot(emitter, op, Tile(layout, f32, [], transposed=stored) if operand.is_transposed else stored)
    spacing, line = dot.rhs.spacing, operand.shape[1]
    base = emitter.exchange(dot.lhs.bytes + STAGES * dot.rhs.bytes)
    emitter.wait()
    ring = f.gep(base, dot.lhs.bytes, "i8")
    shared = f.raw("ptr addrspace(3)", f"addrspacecast ptr {ring.text} to ptr addrspace(3)")
    address = f.raw("i32", f"ptrtoint ptr addrspace(3) {shared.text} to i32")
    copies = StepCopies(emitter, operand, lambda row, column: dot.rhs.offset(f, row, column))

    def start(number: Index) -> None:
        stage = f.cast("trunc", f.mul(f.urem(number, STAGES), dot.rhs.bytes), "i32")
        place = f.op("add", address, stage)
        copies.start(f.mul(number, STEP), place, lambda row, column: spacing.start(row, line) + column)

    start(f.const_i(0))
    share_tile(emitter, dot.lhs.stored, base, dot.lhs.spacing)
    restore = set_others_aside(emitter, op)
    together = dot.depth
    while together * 2 <= STEP and together * 2 * dot.acc.layout.registers <= _UNROLLED:
        together *= 2

    def step(number: Value, accumulators: list[Value]) -> list[Value]:
        wait_for_step(emitter)
        following = f.add(number, 1)
        f.if_(f.icmp("slt", following, dot.K // STEP), lambda: start(following))
        starts = base, f.gep(ring, f.mul(f.urem(number, STAGES), dot.rhs.bytes), "i8")
        first = f.mul(number, STEP)

        def some(k: Value, found: list[Value]) -> list[Value]:
            for more in range(0, together, dot.depth):
                inner = f.add(k, more)
                found = dot.multiply(starts, f.add(first, inner), inner, found)
            return found

        return f.loop(0, STEP, together, some, accumulators)

    emitter.set_result(op, f.loop(0, dot.K // STEP, 1, step, list(emitter.registers(dot.acc))))
    restore()


def _elements_along_k(emitter: Emitter) -> int:
    dots = [other for other in emitter.kernel.walk() if isinstance(other, ops.DotOp)]
    count = sum(emitter.layout(other.results[0])[0].registers for other in dots)
    return _NEIGHBOURS if len(dots) == 1 or count * _NEIGHBOURS <= _MOST_FACTORS else 1


def _multiply_add(f: FunctionText, a: Value, b: Value, total: Value, dtype: DType) -> Value:
    if dtype.is_float:
        return f.intrinsic("fma", a, b, total)
    return f.op("add", f.op("mul", a, b), total)


# Shuffles and votes of segments of lanes: by the warp's own instructions, or between registers of one thread.


def emit_shuffle(emitter: Emitter, op: ops.ShuffleOp) -> None:
    """Each element from another lane of its segment."""
    layout, _ = emitter.layout(op.result)
    registers = emitter.registers_of(op.block)
    emitter.set_result(op, shuffle_registers(emitter, layout, registers, op.mode, op.by, op.width))


def shuffle_registers(
    emitter: Emitter, layout: Layout, registers: Sequence[Value], mode: str, by: int, width: int
) -> list[Value]:
    """The registers of a tile after a shuffle."""
    vector = layout.vector
    if layout.threads == 1 or width <= vector:
        # A segment is one thread's: its registers are permuted, and no lane is asked.
        return [registers[partner(mode, by, width, register)] for register in range(layout.registers)]
    lanes = Lanes(emitter.f, emitter.thread, vector, width)
    made: list[Value] = []
    for register in range(layout.registers):
        group, inner = divmod(register, vector)
        made.append(lanes.move(registers[group * vector : (group + 1) * vector], inner, mode, by))
    return made


class Lanes:
    """Which elements of its segment a thread has, and what it gets from others of it.

    A thread has `vector` neighbours of a tile, and threads are side by side, so lane `l` of a warp has elements
    `l * vector ...` of what the warp holds with one group. Segments are whole in a warp, since both are powers of two.
    """

    def __init__(self, f: FunctionText, thread: Value, vector: int, width: int) -> None:
        self.f, self.vector, self.width = f, vector, width
        self.lane = f.cast("trunc", f.urem(thread, WARP), "i32")

    def _number(self, value: int) -> Value:
        return Value("i32", str(value))

    @property
    def first(self) -> Value:
        """The index of the thread's first element in its segment."""
        scaled = self.f.op("mul", self.lane, self._number(self.vector))
        return self.f.op("and", scaled, self._number(self.width - 1))

    def move(self, own: Sequence[Value], inner: int, mode: str, by: int) -> Value:
        """What the element in register `inner` of a group gets; `own` are the thread's registers of the group."""
        f, vector = self.f, self.vector
        if mode == "xor":
            lanes, other = divmod(by, vector)
            value = own[inner ^ other]
            return shuffle(f, value, "bfly", lanes) if lanes else value
        if mode == "index":
            start = f.op("and", self.lane, self._number(-(self.width // vector) & (WARP - 1)))
            return shuffle(f, own[by % vector], "idx", f.op("add", start, self._number(by // vector)))
        lanes, other = divmod(inner + by if mode == "down" else inner - by, vector)
        value = own[other]
        if lanes:
            value = shuffle(f, value, "down", lanes) if lanes > 0 else self._back(value, -lanes)
        if mode == "down":
            inside = f.icmp("slt", self.first, self._number(self.width - by - inner))
        else:
            inside = f.icmp("sge", self.first, self._number(by - inner))
        return f.select(inside, value, own[inner])

    def _back(self, value: Value, lanes: int) -> Value:
        """The value of the thread so many lanes before; that of any where there is none."""
        before = self.f.op("and", self.f.op("sub", self.lane, self._number(lanes)), self._number(WARP - 1))
        return shuffle(self.f, value, "idx", before)


def emit_vote(emitter: Emitter, op: ops.VoteOp) -> None:
    """A ballot of each segment, and what its bits say."""
    f = emitter.f
    says: dict[str, Callable[[Value], Value]] = {
        "any": lambda bits: f.icmp("ne", bits, Value("i32", "0")),
        "all": lambda bits: f.icmp("eq", bits, _segment_mask(op.width)),
        "count": lambda bits: f.intrinsic("ctpop", bits),
        "ballot": lambda bits: bits,
    }
    ballots = _ballots(emitter, emitter.layout(op.result)[0], emitter.registers_of(op.block), op.width)
    emitter.set_result(op, [says[op.kind](bits) for bits in ballots])


def _segment_mask(width: int) -> Value:
    """The bits of all lanes of a segment, shifted to the first."""
    return Value("i32", str((1 << width) - 1 if width < WARP else -1))


def _ballots(emitter: Emitter, layout: Layout, registers: Sequence[Value], width: int) -> list[Value]:
    """The ballot of the segment that each register's element is in."""
    f = emitter.f
    if layout.threads > 1 and layout.vector == 1 and width > 1:
        lane = f.cast("trunc", f.urem(emitter.thread, WARP), "i32")
        start = f.op("and", lane, Value("i32", str(-width & (WARP - 1))))
        mask = _segment_mask(width)
        votes = [f.call("llvm.nvvm.vote.ballot.sync", [ALL_LANES, value], "i32") for value in registers]
        return [f.op("and", f.op("lshr", vote, start), mask) for vote in votes]
    bits = [_own_bit(emitter, layout, value, register, width) for register, value in enumerate(registers)]
    by = 1
    while by < width:
        across = shuffle_registers(emitter, layout, bits, "xor", by, width)
        bits = [f.op("or", own, other) for own, other in zip(bits, across, strict=True)]
        by *= 2
    return bits


def _own_bit(emitter: Emitter, layout: Layout, value: Value, register: int, width: int) -> Value:
    """A bool as the bit of its lane."""
    f = emitter.f
    wide = f.cast("zext", value, "i32")
    if layout.threads == 1 or width <= layout.vector:
        return f.op("shl", wide, Value("i32", str(register % width)))
    first = Lanes(f, emitter.thread, layout.vector, width).first
    return f.op("shl", wide, f.op("add", first, Value("i32", str(register % layout.vector))))
