"""Fragments of one-byte elements: read from swizzled shared memory, and made floats two at a time.

A thread has pairs of neighbours along a row, as the A operand of a dot wants them. Where rows are contiguous in memory
a pair is one load of two bytes: eight rows of four pairs lie in as many banks, since lines are swizzled. Otherwise it
is two loads of a byte. Integers become floats without a conversion, which would run at a quarter of the rate: the byte
is the low end of the mantissa of 2**23, which is then subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tessera.backends.nvptx.hopper.fragments import Layout, Registers, Thread, first_row
from tessera.backends.nvptx.hopper.shared_memory import SharedTile
from tessera.backends.nvptx.mma.assembly import effect, number, op32, pure
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types import dtype as dt

_CHUNK = 16
"""Bytes that a swizzle moves together."""
_MASKS = {128: 0x70, 64: 0x30, 32: 0x10}
"""Bits of an address that a swizzle of so many bytes exchanges, by those three bits above."""
_ANCHOR = 0x4B000000
"""2**23 as f32: its last place is 1."""
_FLOATS = {dt.f8e4m3: "e4m3x2", dt.f8e5m2: "e5m2x2"}


@dataclass
class ByteRegisters(Registers):
    """Elements of one byte, two neighbours of a row in the low half of an i32."""

    words: list[Value] = field(default_factory=list[Value])

    def floats(self, f: FunctionText) -> list[Value]:
        """One value for each element, in the compute type."""
        stored = [
            f.raw("i8", f"trunc {part} to i8") for word in self.words for part in (word, op32(f, "lshr", word, 8))
        ]
        return [convert.widen(f, value, self.dtype) for value in stored]

    def widen(self, f: FunctionText) -> list[Value]:
        """The same as f32, which holds all of them."""
        if self.dtype in _FLOATS:
            return [half for word in self.words for half in _widen_floats(f, word, _FLOATS[self.dtype])]
        is_signed = self.dtype.kind == "int"
        anchor = Value("float", f.const("float", 2.0**23 + (128 if is_signed else 0)).text)
        found: list[Value] = []
        for word in self.words:
            codes = op32(f, "xor", word, 0x8080) if is_signed else word
            for byte in (0, 1):
                text = f"prmt.b32 $0, $1, {_ANCHOR:#x}, {0x7440 + byte:#x};"
                found.append(f.op("fsub", f.bitcast(pure(f, text, "=r,r", [codes], "i32"), "float"), anchor))
        return found


def _widen_floats(f: FunctionText, word: Value, kind: str) -> list[Value]:
    text = f"{{ .reg .b16 P; cvt.u16.u32 P, $1; cvt.rn.f16x2.{kind} $0, P; }}"
    pair = pure(f, text, "=r,r", [word], "i32")
    halves = [f.raw("i16", f"trunc {part} to i16") for part in (pair, op32(f, "lshr", pair, 16))]
    return [convert.widen(f, f.bitcast(half, "half"), dt.f16) for half in halves]


def read_fragment(
    f: FunctionText, tile: SharedTile, address: Value, layout: Layout, thread: Thread, major: str
) -> ByteRegisters:
    """A stage of a tile, which begins at an address, as a thread's elements of a fragment."""
    read = _read_along if major == "k" else _read_across
    pair = read(f, tile, address, thread)
    words = [
        pair(first_row(layout.row(element), layout.step), 8 * (layout.column(element) // 2))
        for element in range(0, layout.count, 2)
    ]
    return ByteRegisters(layout, tile.dtype, words=words)


def _read_along(f: FunctionText, tile: SharedTile, address: Value, thread: Thread) -> Callable[[int, int], Value]:
    """Pairs of a tile whose rows are those of the fragment."""
    line = op32(f, "mul", thread.row, tile.swizzle)
    moved = op32(f, "and", op32(f, "lshr", line, 3), _MASKS[tile.swizzle])
    start = op32(f, "add", op32(f, "add", address, line), thread.column)
    starts: dict[int, Value] = {}

    def pair(row: int, column: int) -> Value:
        chunk = column % tile.swizzle // _CHUNK * _CHUNK
        if chunk not in starts:
            starts[chunk] = op32(f, "add", start, op32(f, "xor", moved, chunk))
        offset = column // tile.swizzle * tile.span_bytes + row * tile.swizzle + column % _CHUNK
        return effect(f, f"ld.shared.u16 $0, [$1+{offset}];", "=r,r", [starts[chunk]], "i32")

    return pair


def _read_across(f: FunctionText, tile: SharedTile, address: Value, thread: Thread) -> Callable[[int, int], Value]:
    """Pairs of a tile whose rows are the columns of the fragment."""
    inner = op32(f, "and", thread.row, _CHUNK - 1)
    starts: dict[tuple[int, int], Value] = {}

    def start_of(row: int, odd: int) -> Value:
        """Where the first columns of a row begin, without what is less than a chunk of it."""
        line = op32(f, "mul", op32(f, "add", thread.column, odd), tile.swizzle)
        moved = op32(f, "and", op32(f, "lshr", line, 3), _MASKS[tile.swizzle])
        own = op32(f, "sub", op32(f, "add", thread.row, row), inner)
        span = op32(f, "mul", op32(f, "udiv", own, tile.swizzle), tile.span_bytes)
        chunk = op32(f, "and", own, tile.swizzle - 1)
        start = op32(f, "add", op32(f, "add", op32(f, "add", address, line), span), op32(f, "xor", chunk, moved))
        return op32(f, "add", start, inner)

    def pair(row: int, column: int) -> Value:
        first, bytes = row // _CHUNK * _CHUNK, list[Value]()
        for odd in (0, 1):
            if (first, odd) not in starts:
                starts[first, odd] = start_of(first, odd)
            text = f"ld.shared.u8 $0, [$1+{column * tile.swizzle + row % _CHUNK}];"
            bytes.append(effect(f, text, "=r,r", [starts[first, odd]], "i32"))
        return op32(f, "or", bytes[0], op32(f, "shl", bytes[1], number(8)))

    return pair
