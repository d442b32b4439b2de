"""Elements that change hands: folds by shuffles, spreads, transposes and products through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Layout, Spacing, Tile
from tessera.backends.nvptx.rows_matrix import thread_distance
from tessera.backends.nvptx.text import WARP, shuffle
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm import math
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.types import bytes_of
from tessera.types.dtype import DType

CLOSE = Spacing()
Join = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def _memory(dtype: DType) -> str:
    return values.memory_type(dtype)


def share(emitter: Any, tile: Tile, start: Value, spacing: Spacing = CLOSE) -> None:
    """Put a tile into shared memory in row-major order; all may read it after the next wait."""
    f: FunctionText = emitter.f
    element, at = _memory(tile.dtype), emitter.at(tile.layout)
    width = tile.layout.vector if bytes_of(element) * tile.layout.vector <= 16 else max(1, 16 // bytes_of(element))
    registers = [values.to_memory(f, value, tile.dtype) for value in emitter.registers(tile)]
    for register in range(0, tile.layout.registers, width):
        flat = f.add(at.base, tile.layout.start(register))
        if spacing.free:
            lines = f.udiv(flat, tile.layout.shape[-1] * spacing.every)
            flat = f.add(flat, f.mul(lines, spacing.free))
        place = f.gep(start, flat, element)
        whole = values.packed(f, registers[register : register + width])
        mask = at.is_owner(register)
        if mask is None:
            f.store(whole, place, align=width * bytes_of(element))
        else:
            f.if_(mask, lambda whole=whole, place=place: f.store(whole, place, align=width * bytes_of(element)))


def shared_tiles(emitter: Any, tiles: Sequence[Tile]) -> list[Value]:
    """Tiles in shared memory, side by side, for all to read."""
    sizes = [-(-tile.layout.size * bytes_of(_memory(tile.dtype)) // 16) * 16 for tile in tiles]
    base: Value = emitter.exchange(sum(sizes))
    emitter.wait()
    starts: list[Value] = []
    at = 0
    for tile, size in zip(tiles, sizes, strict=True):
        starts.append(emitter.f.gep(base, at, "i8"))
        share(emitter, tile, starts[-1])
        at += size
    emitter.wait()
    return starts


def read(emitter: Any, start: Value, place: Index, dtype: DType) -> Value:
    """One element of a tile in shared memory."""
    f: FunctionText = emitter.f
    element = _memory(dtype)
    return values.from_memory(f, f.load(f.gep(start, place, element), element), dtype)


def _flat(f: FunctionText, coordinates: Sequence[Index], shape: Sequence[int]) -> Value:
    """The row-major number of an element."""
    total: Index = 0
    for place, extent in zip(coordinates, shape, strict=True):
        total = f.add(f.mul(total, extent), place)
    return f.index(total)


# Spreads and transposes.


def emit_spread(emitter: Any, op: SpecOp) -> None:
    """A smaller tile along new axes."""
    f: FunctionText = emitter.f
    source: Tile = emitter.tiles[op.operands[0]]
    layout, dtype = emitter.layout(op.result)
    axes: tuple[int, ...] = op.value("axes")
    if source.layout.size == 1:
        emitter.tiles[op.result] = Tile(layout, dtype, [emitter.registers(source)[0]] * layout.registers)
        return
    (start,) = shared_tiles(emitter, [source])
    found: dict[str, Value] = {}
    registers: list[Value] = []
    for register in range(layout.registers):
        places = emitter.at(layout).coordinates(register)
        flat = _flat(f, [places[axis] for axis in axes], source.layout.shape)
        if flat.text not in found:
            found[flat.text] = read(emitter, start, flat, dtype)
        registers.append(found[flat.text])
    emitter.tiles[op.result] = Tile(layout, dtype, registers)


def emit_transpose(emitter: Any, op: SpecOp) -> None:
    """Nothing yet: a product reads the tile the other way round; whoever else asks has it moved then."""
    layout, dtype = emitter.layout(op.result)
    source: Tile = emitter.tiles[op.operands[0]]
    emitter.tiles[op.result] = Tile(layout, dtype, [], turned=source)


def transposed(emitter: Any, source: Tile, layout: Layout) -> list[Value]:
    """The registers of a tile with its axes swapped."""
    f: FunctionText = emitter.f
    rows, columns = source.layout.shape
    size = bytes_of(_memory(source.dtype))
    spacing = Spacing.of_turned(source.layout, layout, size)
    start: Value = emitter.exchange(-(-spacing.start(rows, columns) * size // 16) * 16)
    emitter.wait()
    share(emitter, source, start, spacing)
    emitter.wait()
    found: list[Value] = []
    for register in range(layout.registers):
        inside, line = emitter.at(layout).coordinates(register)
        flat = f.add(f.add(f.mul(line, columns), inside), f.mul(f.udiv(line, spacing.every), spacing.free))
        found.append(read(emitter, start, flat, source.dtype))
    return found


# Folds.


def emit_fold(emitter: Any, op: SpecOp) -> None:
    """An axis folded in a halving tree."""
    f: FunctionText = emitter.f
    source: Tile = emitter.tiles[op.operands[0]]
    name = _JOIN[op.value("kind")]

    def join(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        return [values.computed(f, name, [a[0], b[0]], source.dtype)]

    layout, dtype = emitter.layout(op.result)
    if name in ("max", "min") and _is_whole_row(source, op.value("axis")):
        registers: Sequence[Value] = [_extreme(emitter, source, name, join)] * layout.registers
    else:
        (registers,) = _fold(emitter, [source], op.value("axis"), layout, join)
    emitter.tiles[op.result] = Tile(layout, dtype, registers)


def _is_whole_row(source: Tile, axis: int) -> bool:
    """Whether a tile is one row, of which threads of several warps, or registers of one, have as many elements each."""
    layout = source.layout
    is_even = layout.size == layout.shape[axis] and layout.size % layout.round == 0
    is_spread = layout.threads >= WARP and layout.threads & (layout.threads - 1) == 0
    return is_even and is_spread and (layout.threads > WARP or layout.registers > 1)


def _extreme(emitter: Any, source: Tile, name: str, join: Join) -> Value:
    """The largest or smallest of a row, in any order: of a thread, of its warp, of all; every thread has it then."""
    f, layout = emitter.f, source.layout
    value = values.extreme(f, name, source.dtype, emitter.registers(source), source.narrow)
    lanes = WARP // 2
    while lanes:
        (value,) = join([value], [shuffle(f, value, "bfly", lanes)])
        lanes //= 2
    if layout.threads == WARP:
        return value
    (start,) = shared_tiles(emitter, [Tile(layout.single, source.dtype, [value])])
    found = [read(emitter, start, warp, source.dtype) for warp in range(0, layout.threads, WARP)]
    while len(found) > 1:
        found = [join([a], [b])[0] for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def emit_fold_place(emitter: Any, op: SpecOp) -> None:
    """The places of extremes: greater values first, then lower places; NaN before all."""
    f: FunctionText = emitter.f
    tiles: list[Tile] = [emitter.tiles[value] for value in op.operands]
    kind, dtype = op.value("kind"), tiles[0].dtype

    def join(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        beats = math.emit(f, "gt" if kind == "argmax" else "lt", [b[0], a[0]], dtype)
        equal = math.emit(f, "eq", [b[0], a[0]], dtype)
        if dtype.is_float:
            a_nan, b_nan = (math.emit(f, "isnan", [value], dtype) for value in (a[0], b[0]))
            equal = f.op("or", equal, f.op("and", a_nan, b_nan))
            beats = f.op("or", beats, f.op("and", b_nan, f.op("xor", a_nan, f.const("i1", True))))
        takes = f.op("or", beats, f.op("and", equal, f.icmp("slt", b[1], a[1])))
        return [f.select(takes, b[0], a[0]), f.select(takes, b[1], a[1])]

    layout, out = emitter.layout(op.result)
    _, places = _fold(emitter, tiles, op.value("axis"), layout, join)
    emitter.tiles[op.result] = Tile(layout, out, places)


def _fold(emitter: Any, tiles: Sequence[Tile], axis: int, out: Layout, join: Join) -> list[list[Value]]:
    """Halve the axis until one element is left, then give each thread what it holds of the result.

    An axis that is no power of two is cut to one first: what has no partner then goes on as it is.
    """
    current = [list(emitter.registers(tile)) for tile in tiles]
    layout = tiles[0].layout
    extent = layout.shape[axis]
    while extent > 1:
        if extent == layout.size_of_line and layout.size == layout.shape[axis]:
            return _across_warps(emitter, tiles, current, out, join)
        half = 1 << (extent - 1).bit_length() - 1
        current = _halve(emitter, tiles, current, axis, half, extent - half, join)
        extent = half
    return _handed_out(emitter, tiles, current, axis, out)


def _across_warps(
    emitter: Any, tiles: Sequence[Tile], current: list[list[Value]], out: Layout, join: Join
) -> list[list[Value]]:
    """A row of which each thread has one group of neighbours: through shared memory once, for all steps over warps.

    Every thread takes all of them, and exchanges with the lanes of its warp what either can join: so all have the end.
    """
    f, layout = emitter.f, tiles[0].layout
    line, vector = layout.line, layout.vector
    held = [Tile(line, tile.dtype, part[:vector]) for tile, part in zip(tiles, current, strict=True)]
    starts = shared_tiles(emitter, held)
    own = f.mul(f.urem(emitter.thread, WARP), vector)

    def at(place: int) -> list[Value]:
        there = f.add(own, place)
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


def _halve(
    emitter: Any, tiles: Sequence[Tile], current: list[list[Value]], axis: int, half: int, count: int, join: Join
) -> list[list[Value]]:
    """The first `count` elements of the axis with those `half` ahead; what lies from `half` on is not looked at."""
    made, f, layout = [list(part) for part in current], emitter.f, tiles[0].layout
    stride = prod(layout.shape[axis + 1 :])
    for register, partner in _partners(emitter, tiles, current, half * stride, layout.shape[axis] * stride):
        own = [part[register] for part in current]
        joined = join(own, partner)
        if count < half:
            has_partner = f.icmp("slt", emitter.at(layout).coordinates(register)[axis], count)
            joined = [f.select(has_partner, after, before) for after, before in zip(joined, own, strict=True)]
        for part, value in zip(made, joined, strict=True):
            part[register] = value
    return made


def _partners(
    emitter: Any, tiles: Sequence[Tile], current: list[list[Value]], ahead: int, pitch: int
) -> list[tuple[int, list[Value]]]:
    """Registers, each with the elements that are `ahead` of its own: in this thread, in its warp, or beyond.

    Lines that are folded begin at multiples of `pitch`.
    """
    layout, f = tiles[0].layout, emitter.f
    count, vector = layout.registers, layout.vector
    if ahead % layout.round == 0:
        away = ahead // layout.round * vector
        return [(at, [part[at + away] for part in current]) for at in range(count - away)]
    if ahead < vector and vector % (2 * ahead) == 0:
        lower = [at for at in range(count) if at % vector % (2 * ahead) < ahead]
        return [(at, [part[at + ahead] for part in current]) for at in lower]
    lanes = ahead // vector
    # The one line of a single row begins with the first thread, however long it is.
    is_in_step = pitch == layout.size or pitch % (2 * ahead) == 0
    is_aligned = min(layout.round, layout.size) % (2 * ahead) == 0 and is_in_step
    if ahead % vector == 0 and is_aligned and lanes < WARP and WARP % (2 * lanes) == 0:
        if emitter.matrix is not None:
            across = thread_distance(lanes)
            return [(at, [shuffle(f, part[at], "bfly", across) for part in current]) for at in range(count)]
        # Nobody looks at what lies beyond the half of a single row.
        looked_at = [at for at in range(count) if pitch < layout.size or layout.start(at) < ahead]
        return [(at, [shuffle(f, part[at], "down", lanes) for part in current]) for at in looked_at]
    held = [Tile(tile.layout, tile.dtype, part) for tile, part in zip(tiles, current, strict=True)]
    starts = shared_tiles(emitter, held)
    found: list[tuple[int, list[Value]]] = []
    for at in range(count):
        place = f.smin(f.add(emitter.at(layout).base, layout.start(at) + ahead), layout.size - 1)
        pairs = zip(starts, tiles, strict=True)
        found.append((at, [read(emitter, start, place, tile.dtype) for start, tile in pairs]))
    return found


def _handed_out(
    emitter: Any, tiles: Sequence[Tile], current: list[list[Value]], axis: int, out: Layout
) -> list[list[Value]]:
    layout, f = tiles[0].layout, emitter.f
    if layout.threads == 1:
        stride, extent = prod(layout.shape[axis + 1 :]), layout.shape[axis]
        kept = [place // stride * stride * extent + place % stride for place in range(out.size)]
        return [[part[place] for place in kept] for part in current]
    if out.size == 1 and layout.threads == WARP:
        return [[shuffle(f, part[0], "idx", 0)] for part in current]
    held = [Tile(tile.layout, tile.dtype, part) for tile, part in zip(tiles, current, strict=True)]
    starts = shared_tiles(emitter, held)
    found: list[list[Value]] = [[] for _ in tiles]
    for register in range(out.registers):
        places = emitter.at(out).coordinates(register)
        flat = _flat(f, [*places[:axis], 0, *places[axis:]], layout.shape)
        for part, start, tile in zip(found, starts, tiles, strict=True):
            part.append(read(emitter, start, flat, tile.dtype))
    return found


# Products.


class _Side:
    """An operand of a product in shared memory: in its narrower dtype where it has one, and as it lies.

    Elements are read in `dtype`, that of the sums.
    """

    def __init__(self, tile: Tile, is_left: bool, vector: int, dtype: DType) -> None:
        self.is_turned = tile.turned is not None
        given = tile.turned if tile.turned is not None else tile
        self.dtype = dtype
        self.stored = given
        if given.narrow is not None:
            self.stored = Tile(given.layout, given.narrow[0], given.narrow[1])
        self.spacing = Spacing.of_side(is_left, self.is_turned, vector, bytes_of(_memory(self.stored.dtype)))

    @property
    def bytes(self) -> int:
        rows, columns = self.stored.layout.shape
        count = self.spacing.start(rows, columns)
        return -(-count * bytes_of(_memory(self.stored.dtype)) // 16) * 16

    def place(self, f: FunctionText, row: Index, column: Index) -> Value:
        """Where an element is, of the tile as it lies."""
        flat = _flat(f, [row, column], self.stored.layout.shape)
        if not self.spacing.free:
            return flat
        return f.add(flat, f.mul(f.udiv(row, self.spacing.every), self.spacing.free))

    def element(self, emitter: Any, start: Value, row: Index, column: Index) -> Value:
        f: FunctionText = emitter.f
        places = [column, row] if self.is_turned else [row, column]
        value = read(emitter, start, self.place(f, *places), self.stored.dtype)
        return values.cast(f, [value], self.stored.dtype, self.dtype)[0]

    def row(self, emitter: Any, start: Value, row: Index, column: Index, count: int) -> list[Value]:
        """Neighbours of one row."""
        f: FunctionText = emitter.f
        element = _memory(self.stored.dtype)
        size = bytes_of(element)
        if self.is_turned or count == 1 or self.stored.dtype.is_bool:
            return [self.element(emitter, start, row, f.add(column, step)) for step in range(count)]
        at_once = min(count, 16 // size)
        found: list[Value] = []
        for step in range(0, count, at_once):
            place = f.gep(start, self.place(f, row, f.add(column, step)), element)
            type_ = values.packed_type(element, at_once)
            whole = f.raw(type_, f"load {type_}, ptr {place.text}, align {size * at_once}")
            found += values.cast(f, values.unpacked(f, whole, element, at_once), self.stored.dtype, self.dtype)
        return found


def emit_dot(emitter: Any, op: SpecOp) -> None:
    """Both sides into shared memory, then each thread its elements: chains of multiply-adds over k, in order."""
    f: FunctionText = emitter.f
    acc: Tile = emitter.tiles[op.operands[2]]
    vector = acc.layout.vector
    lhs, rhs = (_Side(emitter.tiles[value], at == 0, vector, acc.dtype) for at, value in enumerate(op.operands[:2]))
    layout, depth = acc.layout, emitter.tiles[op.operands[0]].layout.shape[1]
    base: Value = emitter.exchange(lhs.bytes + rhs.bytes)
    emitter.wait()
    left, right = base, f.gep(base, lhs.bytes, "i8")
    share(emitter, lhs.stored, left, lhs.spacing)
    share(emitter, rhs.stored, right, rhs.spacing)
    emitter.wait()
    at = emitter.at(layout)
    groups = [at.coordinates(register) for register in range(0, layout.registers, vector)]
    rows = [_clamped(f, layout, at, group, number * vector) for number, group in enumerate(groups)]

    def step(k: Value, sums: list[Value]) -> list[Value]:
        firsts: dict[str, Value] = {}
        seconds: dict[str, list[Value]] = {}
        found: list[Value] = []
        for number, (row, (_, column)) in enumerate(zip(rows, groups, strict=True)):
            name, other = str(row), str(column)
            if name not in firsts:
                firsts[name] = lhs.element(emitter, left, row, k)
            if other not in seconds:
                seconds[other] = rhs.row(emitter, right, k, column, vector)
            for lane in range(vector):
                found.append(_joined(f, firsts[name], seconds[other][lane], sums[number * vector + lane], acc.dtype))
        return found

    emitter.tiles[op.result] = Tile(layout, acc.dtype, f.loop(0, depth, 1, step, list(emitter.registers(acc))))


def _clamped(f: FunctionText, layout: Layout, at: Any, places: Sequence[Index], register: int) -> Index:
    """The row of a register; one that holds nothing reads the last."""
    return places[0] if at.is_there(register) is None else f.smin(places[0], layout.shape[0] - 1)


def _joined(f: FunctionText, a: Value, b: Value, total: Value, dtype: DType) -> Value:
    if dtype.is_float:
        return f.intrinsic("fma", a, b, total)
    return f.op("add", f.op("mul", a, b), total)
