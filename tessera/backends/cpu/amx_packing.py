"""Operands of matmuls on AMX tiles: packed as the tiles that instructions read, whatever their strides are.

A line is a row of A or a column of B. Sixteen lines, 64 bytes along K at a time, are tiles that follow each other along
K, and the next sixteen lines follow them. A row of an A tile is one line. A row of a B tile has one group of every
line: as many neighbours along K as 32 bits hold (what others call VNNI). Matrices that are contiguous along K give a
line with one load, those that are contiguous across lines give groups by interleaving the rows of a group; what has the
form of the other operand is transposed in registers, as 16 x 16 words of 32 bits. The end of K is padded with zeros,
which add nothing; lines beyond the last hold something harmless, and nobody reads what is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tessera.backends.cpu.amx_tiles import TILE, TILE_BYTES, TILE_LINES, TileShape
from tessera.backends.cpu.packing import Operand, pack_panel
from tessera.backends.cpu.registers import transpose
from tessera.backends.cpu.windows import Area
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, element_of, lanes_of, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types import dtype as dt
from tessera.types.frozen import frozen

WIDE = 64
"""Lines that are interleaved together: of bytes, a cache line of every row. Panels have space for so many at least."""
_WORDS = vector("i32", TILE_LINES)
_PREFETCHED_ROWS = 12
"""How many rows beyond its own packing prefetches, as it does for vectors."""


def pack_tiles(
    f: FunctionText, shape: TileShape, to: Value, source: Operand, area: Area, gathered: Value, is_rhs: bool
) -> None:
    """Pack an area of A, or of B transposed, whose rows are lines; `gathered` is memory for `WIDE` of them.

    Whole runs of `WIDE` lines are written, and K up to a whole tile.
    """
    assert source.base is not None, "tiles are packed from memory"
    across, along = source.row_stride, source.column_stride
    stored = f"i{8 * shape.size}"
    start = f.gep(source.base, f.add(f.mul(area.row, across), f.mul(area.k, along)), stored)

    def pack(contiguous: str, base: Value, stride: Index, first: Index, lines: Index) -> None:
        write = _write_lines if contiguous == "k" else _write_groups
        arguments = [("ptr", "panel"), ("ptr", "source"), *(("i64", name) for name in ("stride", "lines", "k_count"))]
        key = ("amx pack", contiguous, shape.size, is_rhs)
        name = f.module.outline(
            key, f"pack_tiles_{contiguous}", arguments, lambda g: write(g, shape.size, is_rhs), shared=True
        )
        tiles = f.ceil_div(area.k_count, shape.k_count)
        panel = f.gep(to, f.mul(f.mul(first, tiles), TILE // TILE_LINES), "i8")
        f.call(name, [panel, base, *(f.index(one) for one in (stride, lines, area.k_count))])

    def gather() -> None:
        # Elements in no order are copied once, `WIDE` lines at a time, side by side.
        raw = {1: dt.u8, 2: dt.u16}[shape.size]

        def part(at: Value) -> None:
            lines = f.smin(WIDE, f.sub(area.rows, at))
            strip = replace(area, row=f.add(area.row, at), rows=lines)
            pack_panel(f, gathered, replace(source, dtype=raw), WIDE, raw, strip, shape.lanes)
            pack("lines", gathered, WIDE, at, lines)

        f.loop(0, area.rows, WIDE, part)

    def by_lines() -> None:
        pack("lines", start, along, 0, area.rows)

    def by_k() -> None:
        pack("k", start, across, 0, area.rows)

    if constant_of(along) == 1:
        by_k()
    elif constant_of(across) == 1:
        by_lines()
    elif constant_of(along) is not None and constant_of(across) is not None:
        gather()
    else:
        # Rows of a single column may have any stride: what is contiguous along K is asked for first.
        f.if_(f.icmp("eq", along, 1), by_k, lambda: f.if_(f.icmp("eq", across, 1), by_lines, gather))


def _write_lines(g: FunctionText, size: int, is_rhs: bool) -> None:
    """Contiguous along K: a load for each line, and for B a transposition of sixteen of them."""
    panel, source, stride, lines, k_count = g.arguments
    stored, count = f"i{8 * size}", TILE_BYTES // size
    whole, last = g.round_down(k_count, count), g.sub(lines, 1)
    column = g.mul(g.ceil_div(k_count, count), TILE)

    def some_lines(first: Value) -> None:
        starts = [g.gep(source, g.mul(g.smin(g.add(first, i), last), stride), stored) for i in range(TILE_LINES)]
        tiles = g.gep(panel, g.mul(g.udiv(first, TILE_LINES), column), "i8")

        def tile(k: Value, load: Callable[[Value], Value]) -> None:
            rows = [g.bitcast(load(g.gep(start, k, stored)), _WORDS) for start in starts]
            _store_tile(g, transpose(g, rows) if is_rhs else rows, g.gep(tiles, g.mul(g.udiv(k, count), TILE), "i8"))

        g.loop(0, whole, count, lambda k: tile(k, lambda line: g.load(line, vector(stored, count))))
        mask = g.lane_mask(g.sub(k_count, whole), count)
        g.if_(
            g.icmp("slt", whole, k_count),
            lambda: tile(whole, lambda line: g.masked_load(line, vector(stored, count), mask)),
        )

    g.loop(0, lines, TILE_LINES, some_lines)
    g.ret()


def _store_tile(g: FunctionText, rows: list[Value], tile: Value) -> None:
    for number, row in enumerate(rows):
        g.store(row, g.gep(tile, number * TILE_BYTES, "i8"), align=TILE_BYTES)


def _write_groups(g: FunctionText, size: int, is_rhs: bool) -> None:
    """Contiguous across lines: the rows of a group are interleaved; for A, groups are transposed afterwards."""
    panel, source, stride, lines, k_count = g.arguments
    stored, count = f"i{8 * size}", TILE_BYTES // size
    column = g.mul(g.ceil_div(k_count, count), TILE)
    whole, width = g.round_down(k_count, count), TILE_BYTES // size if is_rhs else TILE_LINES
    write = _write_rhs_tiles if is_rhs else _write_lhs_tile
    even = g.round_down(lines, width)
    mask = g.lane_mask(g.sub(lines, even), width)

    def tiles_at(k: Value, end: Value | None) -> None:
        # All lines of some rows before the next rows: what follows in a row is then still on its way, or near.
        def tile(first: Value, mask: Value | None) -> None:
            rows = _GroupRows(g, g.gep(source, first, stored), stride, vector(stored, width), mask, end)
            offset = g.add(g.mul(g.udiv(first, TILE_LINES), column), g.mul(g.udiv(k, count), TILE))
            write(rows, k, g.gep(panel, offset, "i8"), column)

        g.loop(0, even, width, lambda first: tile(first, None))
        g.if_(g.icmp("slt", even, lines), lambda: tile(even, mask))

    g.loop(0, whole, count, lambda k: tiles_at(k, None))
    g.if_(g.icmp("slt", whole, k_count), lambda: tiles_at(whole, k_count))
    g.ret()


@frozen
class _GroupRows:
    """Rows of a matrix that is contiguous across lines; `mask` leaves out lines, and rows from `end` on are zeros."""

    f: FunctionText
    source: Value
    stride: Value
    type: str
    mask: Value | None
    end: Value | None

    def words(self, k: Value) -> list[Value]:
        """The group that begins at `k`: a vector of words for every sixteen lines."""
        f, stored = self.f, element_of(self.type)
        lines: list[Value] = []
        for step in range(4 // bytes_of(stored)):
            lines.append(f.gep(self.source, f.mul(f.add(k, step), self.stride), stored))
            # Rows far apart are each a page of their own, which no prefetcher of the machine crosses.
            f.prefetch(f.gep(lines[-1], f.mul(self.stride, _PREFETCHED_ROWS), stored))
        if self.mask is None and self.end is None:
            starts = range(0, lanes_of(self.type), TILE_LINES)
            # Joined while they are loaded, sixteen lines of all rows need two shuffles; those are what limits packing.
            part = vector(stored, TILE_LINES)
            rows = [[f.load(f.gep(line, start, stored), part) for line in lines] for start in starts]
        else:
            whole = [self._load(line, f.add(k, step)) for step, line in enumerate(lines)]
            lanes = range(TILE_LINES)
            starts = range(0, lanes_of(self.type), TILE_LINES)
            rows = [[f.shuffle(row, None, [start + lane for lane in lanes]) for row in whole] for start in starts]
        return [_interleave(f, _join(f, parts), len(lines)) for parts in rows]

    def _load(self, line: Value, k: Value) -> Value:
        f, mask = self.f, self.mask
        if self.end is not None:
            inside = f.splat(f.icmp("slt", k, self.end), lanes_of(self.type))
            mask = inside if mask is None else f.op("and", mask, inside)
        return f.load(line, self.type) if mask is None else f.masked_load(line, self.type, mask)


def _interleave(f: FunctionText, rows: Value, group: int) -> Value:
    """Rows of sixteen elements, one after the other, as a word for each column.

    Words of the same four columns come to one block of 128 bits, where their elements are then put in order.
    """
    size = 4 // group
    blocks = [(row, block, word) for block in range(4) for row in range(group) for word in range(size)]
    words = f.bitcast(rows, _WORDS)
    near = f.shuffle(words, None, [row * 4 * size + block * size + word for row, block, word in blocks])
    per = 4 * group
    order = [start + row * 4 + at for start in range(0, 4 * per, per) for at in range(4) for row in range(group)]
    return f.bitcast(f.shuffle(f.bitcast(near, rows.type), None, order), _WORDS)


def _write_rhs_tiles(rows: _GroupRows, k: Value, to: Value, column: Value) -> None:
    """The tiles of a whole vector of lines: a row of each has the words of its sixteen lines."""
    f = rows.f
    group = 4 // bytes_of(element_of(rows.type))

    def row(at: Value) -> None:
        for tile, words in enumerate(rows.words(f.add(k, f.mul(at, group)))):
            here = f.gep(to, f.add(f.mul(column, tile), f.mul(at, TILE_BYTES)), "i8")
            f.store(words, here, align=TILE_BYTES)

    f.loop(0, TILE_LINES, 1, row)


def _write_lhs_tile(rows: _GroupRows, k: Value, to: Value, column: Value) -> None:
    """The tile of sixteen lines, from words of all its groups."""
    f = rows.f
    group = 4 // bytes_of(element_of(rows.type))
    words = [rows.words(f.add(k, at * group))[0] for at in range(TILE_LINES)]
    _store_tile(f, transpose(f, words), to)


def _join(f: FunctionText, parts: Sequence[Value]) -> Value:
    """Vectors one after the other, as one."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    first, second = _join(f, parts[:half]), _join(f, parts[half:])
    return f.shuffle(first, second, range(2 * first.lanes))
