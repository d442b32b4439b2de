"""Fragments of one-byte elements: read from swizzled shared memory, and made floats two at a time.

A thread has pairs of neighbours along a row, as the A operand of a dot wants them. Where rows are contiguous in memory
a pair is one load of two bytes: eight rows of four pairs lie in as many banks, since lines are swizzled. Otherwise it
is two loads of a byte, or the same element of two rows is one load, where a thread's rows are neighbours. Bytes stay in
words of four as long as functions of a number are all that is computed of them. Integers become floats without a
conversion, which would run at a quarter of the rate: the byte is the low end of the mantissa of 2**23, which is then
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tessera.backends.nvptx.hopper.fragments import Layout, Registers, Thread
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
    """Elements of one byte, four to an i32: two neighbours along each of the thread's two rows.

    `order` is the byte of each of the four, by row and then by column.
    """

    words: list[Value] = field(default_factory=list[Value])
    order: tuple[int, int, int, int] = (0, 1, 2, 3)

    def floats(self, f: FunctionText) -> list[Value]:
        """One value for each element, in the compute type."""
        found: list[Value] = []
        for word in self.words:
            bytes = [op32(f, "lshr", word, 8 * byte) if byte else word for byte in range(4)]
            found += [f.raw("i8", f"trunc {bytes[byte]} to i8") for byte in self.order]
        return [convert.widen(f, value, self.dtype) for value in found]

    def widen(self, f: FunctionText) -> list[Value]:
        """The same as f32, which holds all of them."""
        found: list[Value] = []
        if self.dtype in _FLOATS:
            for word in self.words:
                halves = _widen_floats(f, word, _FLOATS[self.dtype])
                halves += _widen_floats(f, op32(f, "lshr", word, 16), _FLOATS[self.dtype])
                found += [halves[byte] for byte in self.order]
            return found
        is_signed = self.dtype.kind == "int"
        anchor = Value("float", f.const("float", 2.0**23 + (128 if is_signed else 0)).text)
        for word in self.words:
            codes = op32(f, "xor", word, _each(0x80)) if is_signed else word
            for byte in self.order:
                text = f"prmt.b32 $0, $1, {_ANCHOR:#x}, {0x7440 + byte:#x};"
                found.append(f.op("fsub", f.bitcast(pure(f, text, "=r,r", [codes], "i32"), "float"), anchor))
        return found

    def with_number(self, f: FunctionText, fn: str, given: int) -> ByteRegisters | None:
        """A function of integers and a number, which wraps as theirs does; None for one that is not known here."""
        compute = _FUNCTIONS.get(fn)
        if compute is None or self.dtype.kind not in ("int", "uint") or self.dtype.bits != 8:
            return None
        if fn == "shr" and not 0 <= given < 8:
            return None
        is_signed = self.dtype.kind == "int"
        words = [compute(f, word, given & 0xFF, is_signed) for word in self.words]
        return ByteRegisters(self.layout, self.dtype, words=words, order=self.order)


def _each(byte: int) -> int:
    """A byte in all four of a word, as an i32 is written."""
    word = (byte & 0xFF) * 0x01010101
    return word - (1 << 32) if word >> 31 else word


def _add(f: FunctionText, word: Value, given: int, is_signed: bool) -> Value:
    """Each byte and a number: the low seven bits never carry beyond the eighth, which is their exclusive or."""
    low = op32(f, "add", op32(f, "and", word, _each(0x7F)), _each(given & 0x7F))
    return op32(f, "xor", low, op32(f, "and", op32(f, "xor", word, _each(given)), _each(0x80)))


def _shift(f: FunctionText, word: Value, given: int, is_signed: bool) -> Value:
    """Each byte by some bits to the right; the sign is what is less than it by twice its own bit."""
    if not given:
        return word
    bits = op32(f, "and", op32(f, "lshr", word, given), _each(0xFF >> given))
    if not is_signed:
        return bits
    sign = 0x80 >> given
    return _add(f, op32(f, "xor", bits, _each(sign)), -sign & 0xFF, is_signed)


_FUNCTIONS: dict[str, Callable[[FunctionText, Value, int, bool], Value]] = {
    "and": lambda f, word, given, is_signed: op32(f, "and", word, _each(given)),
    "or": lambda f, word, given, is_signed: op32(f, "or", word, _each(given)),
    "xor": lambda f, word, given, is_signed: op32(f, "xor", word, _each(given)),
    "add": _add,
    "sub": lambda f, word, given, is_signed: _add(f, word, -given & 0xFF, is_signed),
    "shr": _shift,
}
"""Functions of a byte and a number that four bytes of a word have without a carry from one to the other."""


def _widen_floats(f: FunctionText, word: Value, kind: str) -> list[Value]:
    text = f"{{ .reg .b16 P; cvt.u16.u32 P, $1; cvt.rn.f16x2.{kind} $0, P; }}"
    pair = pure(f, text, "=r,r", [word], "i32")
    halves = [f.raw("i16", f"trunc {part} to i16") for part in (pair, op32(f, "lshr", pair, 16))]
    return [convert.widen(f, f.bitcast(half, "half"), dt.f16) for half in halves]


def read_fragment(
    f: FunctionText, tile: SharedTile, address: Value, layout: Layout, thread: Thread, major: str
) -> ByteRegisters:
    """A stage of a tile, which begins at an address, as a thread's elements of a fragment."""
    is_paired = major != "k" and layout.apart == 1
    read = _read_along if major == "k" else _read_rows if is_paired else _read_across
    half = read(f, tile, address, thread)
    words: list[Value] = []
    for element in range(0, layout.count, 4):
        rows = [layout.first_row(layout.row(element + more)) for more in (0, 2)]
        column = 8 * (layout.column(element) // 2)
        # Two columns of each row, or of both rows each column.
        halves = [half(rows[0], column + odd) for odd in (0, 1)] if is_paired else [half(row, column) for row in rows]
        words.append(pure(f, "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", halves, "i32"))
    return ByteRegisters(layout, tile.dtype, words=words, order=(0, 2, 1, 3) if is_paired else (0, 1, 2, 3))


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
    load = _load_lines(f, tile, address, thread)

    def pair(row: int, column: int) -> Value:
        bytes = [load("u8", row, column + odd) for odd in (0, 1)]
        return op32(f, "or", bytes[0], op32(f, "shl", bytes[1], number(8)))

    return pair


def _read_rows(f: FunctionText, tile: SharedTile, address: Value, thread: Thread) -> Callable[[int, int], Value]:
    """Both rows of a column of such a tile, where they are neighbours: they are so in memory."""
    load = _load_lines(f, tile, address, thread)
    return lambda row, column: load("u16", row, column)


def _load_lines(f: FunctionText, tile: SharedTile, address: Value, thread: Thread) -> Callable[[str, int, int], Value]:
    """Loads from a tile whose rows are the columns of the fragment: a type, and the static part of row and column."""
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

    def load(type: str, row: int, column: int) -> Value:
        first, odd = row // _CHUNK * _CHUNK, column % 2
        if (first, odd) not in starts:
            starts[first, odd] = start_of(first, odd)
        text = f"ld.shared.{type} $0, [$1+{(column - odd) * tile.swizzle + row % _CHUNK}];"
        return effect(f, text, "=r,r", [starts[first, odd]], "i32")

    return load
