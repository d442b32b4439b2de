"""Tile registers of AMX (Intel SDM vol. 1, chapter 18): their configuration, and the micro-kernel of matmuls on them.

There are eight tiles of 16 rows of 64 bytes. An instruction multiplies a tile of A, 16 rows of 64 bytes along K, by a
tile of B, 16 columns of as many bytes along K, and adds to a tile of 16 x 16 accumulators of 32 bits. Neighbours along
K that fill 32 bits are one group: a row of a B tile has one group of each column. The micro-kernel keeps 2 x 2 tiles of
accumulators, and for four multiplications loads two tiles of A and two of B: as many loads as the caches can serve.

Tiles have numbers here, not names that LLVM would give registers: it then neither configures nor spills them. They are
configured once for all blocks of a task and released at its end, so that a thread that waits has no tile state to save.
"""

from __future__ import annotations

from typing import ClassVar

from tessera.backends.cpu.micro_kernel import MicroShape
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

TILE_LINES, TILE_BYTES = 16, 64
"""Rows of a tile, and bytes of a row."""
TILE = TILE_LINES * TILE_BYTES
"""Bytes of a tile, which panels have one after the other along K."""
ACROSS = 2
"""Tiles of accumulators in a row, and in a column, of a register block."""
_PREFETCHED = 2
"""Rows of the result that are prefetched with each tile of K: all of 32 within a K of 1024 bytes (a choice)."""
_REGISTERS = 8
"""Tiles there are (Intel SDM vol. 1, section 18.1)."""
_PALETTE = 1
"""The only layout of tiles there is (the same section)."""


@frozen
class TileShape(MicroShape):
    """The register block of 2 x 2 tiles, for operands of one width; its accumulators are 32 bits."""

    lhs: DType
    rhs: DType

    # A core multiplies 1024 pairs of bytes in a cycle, and 64 of f32 with vectors (Intel optimization manual, ch. 20).
    speed: ClassVar[int] = 16
    # 64 bytes are copied to a tile in about four cycles.
    packing: ClassVar[int] = 64

    @property
    def size(self) -> int:
        """Bytes of an element of the operands."""
        return self.lhs.bytes

    @property
    def k_count(self) -> int:
        """How much of K a tile has."""
        return TILE_BYTES // self.size

    @property
    def multiply(self) -> str:
        """LLVM's name of the instruction; of integers it says which operands are signed."""
        if self.lhs is dt.bf16:
            return "tdpbf16ps"
        signs = ("u" if one is dt.u8 else "s" for one in (self.lhs, self.rhs))
        return f"tdpb{''.join(signs)}d"

    @staticmethod
    def for_operands(target: TargetText, lhs: DType, rhs: DType, accumulator: DType) -> TileShape:
        """The block for operands that verifiers found to be an instruction's."""
        lanes = target.lanes_for("i32")
        return TileShape(accumulator, lanes, ACROSS * TILE_LINES, ACROSS * TILE_LINES // lanes, 1, lhs, rhs)


def configure_tiles(f: FunctionText) -> None:
    """Give all tiles their whole size: palette, then bytes of a row of each tile, then its rows."""
    unused = 16 - _REGISTERS
    widths = [byte for _ in range(_REGISTERS) for byte in (TILE_BYTES, 0)] + [0] * (2 * unused)
    heights = [TILE_LINES] * _REGISTERS + [0] * unused
    table = f.module.constant("i8", [_PALETTE, *[0] * 15, *widths, *heights])
    f.call("llvm.x86.ldtilecfg", [table])


def release_tiles(f: FunctionText) -> None:
    """Let tiles have no state."""
    f.call("llvm.x86.tilerelease", [])


def outline_tile_kernel(module: ModuleText, shape: TileShape, rows: int, columns: int) -> Value:
    """A pointer to the outlined kernel of `rows` by `columns` tiles, for `call_tile_kernel`."""
    arguments = [("ptr", "lhs"), *(("i64", name) for name in ("row", "along", "below"))]
    arguments += [("ptr", "rhs"), ("i64", "tiles"), ("ptr", "out"), ("i64", "stride"), ("i1", "accumulate")]
    key, name = ("amx", shape, rows, columns), f"amx{rows}x{columns}"
    symbol = module.outline(key, name, arguments, lambda g: _write_kernel(g, shape, rows, columns), shared=True)
    return Value("ptr", f"@{symbol}")


@frozen
class LhsTiles:
    """Tiles of A: where they begin, and the bytes from a row to the next, to the next tile along K, and to that below.

    Packed tiles follow each other along K; a matrix that is contiguous along K has whole tiles in place.
    """

    base: Value
    row: Value
    along: Value
    below: Value


def call_tile_kernel(
    f: FunctionText,
    kernel: Value,
    lhs: LhsTiles,
    rhs: Value,
    tiles: Value,
    out: Value,
    stride: Value,
    accumulate: Value,
) -> None:
    """`out = (accumulate ? out : 0) + lhs * rhs`, over `tiles` along K; rows of `out` are `stride` bytes apart.

    Columns of tiles of `rhs` are contiguous, and follow each other.
    """
    f.call_pointer(kernel, [lhs.base, lhs.row, lhs.along, lhs.below, rhs, tiles, out, stride, accumulate])


def _write_kernel(g: FunctionText, shape: TileShape, rows: int, columns: int) -> None:
    _, _, _, _, _, tiles, out, stride, accumulate = g.arguments
    # Numbers of tiles: accumulators first, then those of A and of B.
    accumulators = {(i, j): ACROSS * i + j for i in range(rows) for j in range(columns)}
    outs = {
        (i, j): g.gep(g.gep(out, g.mul(stride, i * TILE_LINES), "i8"), j * TILE_LINES * 4, "i8")
        for i, j in accumulators
    }

    def start() -> None:
        for at, tile in accumulators.items():
            _on_tile(g, "tileloadd64", tile, outs[at], stride)

    def clear() -> None:
        for tile in accumulators.values():
            g.call("llvm.x86.tilezero", [_number(tile)])

    def step_and_prefetch(at: Value) -> None:
        _prefetch_rows(g, out, stride, at, columns)
        _multiply_tiles(g, shape, accumulators, at)

    g.if_(accumulate, start, clear)
    first = g.smin(tiles, rows * TILE_LINES // _PREFETCHED)
    g.loop(0, first, 1, step_and_prefetch)
    g.loop(first, tiles, 1, lambda at: _multiply_tiles(g, shape, accumulators, at))
    for at, tile in accumulators.items():
        _on_tile(g, "tilestored64", tile, outs[at], stride)
    g.ret()


def _multiply_tiles(g: FunctionText, shape: TileShape, accumulators: dict[tuple[int, int], int], at: Value) -> None:
    """Load the tiles of A and B that are number `at` along K, and multiply each by each."""
    lhs, row, along, below, rhs, tiles, *_ = g.arguments
    rows, columns = (max(numbers) + 1 for numbers in zip(*accumulators, strict=True))
    lefts = [ACROSS * ACROSS + i for i in range(rows)]
    rights = [ACROSS * ACROSS + ACROSS + j for j in range(columns)]
    for number, tile in enumerate(lefts):
        _on_tile(g, "tileloadd64", tile, g.gep(lhs, g.add(g.mul(at, along), g.mul(below, number)), "i8"), row)
    for number, tile in enumerate(rights):
        offset = g.add(g.mul(at, TILE), g.mul(g.mul(tiles, TILE), number))
        _on_tile(g, "tileloadd64", tile, g.gep(rhs, offset, "i8"), g.const_i(TILE_BYTES))
    for (i, j), tile in accumulators.items():
        g.call(f"llvm.x86.{shape.multiply}", [_number(tile), _number(lefts[i]), _number(rights[j])])


def _prefetch_rows(g: FunctionText, out: Value, stride: Value, at: Value, columns: int) -> None:
    """Ask for a few rows of the result while tiles multiply: they are then there to be written."""
    for number in range(_PREFETCHED):
        line = g.gep(out, g.mul(g.add(g.mul(at, _PREFETCHED), number), stride), "i8")
        for j in range(columns):
            g.prefetch(g.gep(line, j * TILE_BYTES, "i8"), write=True)


def _on_tile(g: FunctionText, name: str, tile: int, address: Value, stride: Value) -> None:
    g.call(f"llvm.x86.{name}", [_number(tile), address, stride])


def _number(tile: int) -> Value:
    return Value("i8", str(tile))
