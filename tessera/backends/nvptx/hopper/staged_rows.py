"""Rows that warps store from shared memory: those of results of which TMA has no descriptor.

TMA stores rows that begin at multiples of 16 bytes. Others pass through the same staging buffers: a warp writes the 16
rows that it has of a piece there, and then stores one after the other, its lanes beside each other. So an instruction
writes one line of memory, or two. Where every thread stores what it has, an instruction writes to eight rows, a few
bytes of each: results of an odd number of columns took five times as long.

Lines of a staging buffer are swizzled: 16 bytes at a number are found at that number XOR the last three bits of the
line's. Lanes that read a line have all banks, whatever its number is.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.backends.nvptx.mma.assembly import effect, flag, number, op32
from tessera.backends.nvptx.tensor_cores import SPAN
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.types import shaped_type
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.frozen import frozen

ROWS = 16
"""Rows of a warp in a piece of 64."""
_WORD = 4
"""Bytes that a lane stores of rows that begin at multiples of so many."""
_KINDS = {2: ("b16", "h", "i16"), 4: ("b32", "r", "i32")}
"""By bytes: the suffix of an instruction, the constraint of its register, and the type in LLVM."""


@frozen
class Rows:
    """Rows of a result in memory, and how much of them there is.

    The first begins at the address `start`, and one begins `pitch` bytes after the other. `height` and `width` are the
    rows and elements that are inside, as i32; numbers beyond those of a piece are all of it.
    """

    start: Value
    pitch: Value
    height: Value
    width: Value


def rows_of(
    f: FunctionText, op: SpecOp, buffer: Value, env: Mapping[str, Index], first: Value, columns: tuple[int, int]
) -> Rows:
    """The rows of a warp in the buffer of a `ttarget.store_tile`, whose tile begins where `env` says.

    They begin `first` rows further on, at the first of `columns`, and have as many as the second says.
    """
    type, (row_axis, column_axis) = shaped_type(op.operands[3]), op.value("axes")
    here = {**env, row_axis: f.add(env[row_axis], f.raw("i64", f"zext {first} to i64"))}
    here[column_axis] = f.add(env[column_axis], columns[0])
    left: list[Value] = []
    for axis, bound, most in zip(op.value("axes"), op.value("bounds"), (ROWS, columns[1]), strict=True):
        if bound.value == -1:
            left.append(number(most))
        else:
            inside = f.smin(f.sub(dim_value(f, bound, env), here[axis]), most)
            left.append(f.cast("trunc", f.smax(inside, 0), "i32"))
    offset = linear(op.value("map"), type.shape)
    parts = offset.coefficient(row_axis)
    assert parts is not None, "rows of a box are one after the other"
    base = f.raw("i64", f"ptrtoint {buffer} to i64")
    start = f.add(base, f.mul(dim_value(f, offset, here), type.dtype.bytes))
    return Rows(start, f.index(f.mul(dim_value(f, parts[0], env), type.dtype.bytes)), *left)


def store_rows(f: FunctionText, lane: Value, lines: Value, rows: Rows, size: int) -> None:
    """Store rows of elements of `size` bytes that the lines from a shared address on hold.

    Two elements of two bytes are a word, where rows begin at multiples of words; else each is stored by itself.
    """
    if size == _WORD:
        _store_units(f, lane, lines, rows, _WORD, 1)
        return
    both = f.op("or", rows.start, rows.pitch)
    is_even = f.icmp("eq", f.raw("i64", f"and i64 {both.text}, {_WORD - 1}"), f.const_i(0))
    f.if_(
        is_even,
        lambda: _store_units(f, lane, lines, rows, _WORD, _WORD // size),
        lambda: _store_units(f, lane, lines, rows, size, 1),
    )


def _store_units(f: FunctionText, lane: Value, lines: Value, rows: Rows, size: int, elements: int) -> None:
    """Store rows in units of `size` bytes, each of so many elements, 32 of them at a time.

    A row is stored in whole before the next one: memory puts together what comes soon after the other.
    """
    parts: list[_Part] = []
    for first in range(0, SPAN, WARP * size):
        begin = op32(f, "add", op32(f, "mul", lane, size), first)
        values = _read_lines(f, lines, begin, size)
        column = op32(f, "mul", op32(f, "udiv", begin, size), elements)
        start = f.add(rows.start, f.raw("i64", f"zext {begin} to i64"))
        is_whole = f.icmp("sle", op32(f, "add", column, elements), rows.width)
        parts.append(_Part(start, f.select(is_whole, rows.height, number(0)), values, size))
        if elements > 1:
            # One element of a unit may be the last of a row.
            halves = [f.raw("i16", f"trunc {value} to i16") for value in values]
            is_half = f.icmp("eq", op32(f, "add", column, elements - 1), rows.width)
            parts.append(_Part(start, f.select(is_half, rows.height, number(0)), halves, size // elements))
    for row in range(ROWS):
        for part in parts:
            _write_row(f, part, rows.pitch, row)


@frozen
class _Part:
    """What a lane stores of each row: where in the first one, of how many rows, and values of so many bytes."""

    start: Value
    height: Value
    values: list[Value]
    size: int


def _read_lines(f: FunctionText, lines: Value, begin: Value, size: int) -> list[Value]:
    """What lies so many bytes into each line; the first line's number is a multiple of eight."""
    suffix, kind, type = _KINDS[size]
    inside, chunk = op32(f, "and", begin, 15), op32(f, "lshr", begin, 4)
    starts = [
        op32(f, "add", op32(f, "add", lines, inside), op32(f, "shl", op32(f, "xor", chunk, swizzle), 4))
        for swizzle in range(8)
    ]
    return [
        effect(f, f"ld.shared.{suffix} $0, [$1+{row * SPAN}];", f"={kind},r", [starts[row % 8]], type)
        for row in range(ROWS)
    ]


def _write_row(f: FunctionText, part: _Part, pitch: Value, row: int) -> None:
    """Store a value to a row, if that is inside."""
    suffix, kind, _ = _KINDS[part.size]
    known = constant_of(pitch)
    start = part.start if known is not None else f.add(part.start, f.mul(pitch, row))
    text = f"{{ .reg .pred P; setp.ne.b32 P, $2, 0; @P st.global.{suffix} [$0+{(known or 0) * row}], $1; }}"
    is_inside = f.icmp("sgt", part.height, number(row))
    effect(f, text, f"l,{kind},r", [start, part.values[row], flag(f, is_inside)])
