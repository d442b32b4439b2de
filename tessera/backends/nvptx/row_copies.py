"""The kernel that copies rows of any length to rows that TMA takes: those begin at multiples of 16 bytes.

Operands of matmuls whose rows do not are copied before. The driver's own copies of rows reach 1 to 2 TB/s on an H200,
less the shorter rows are; a launch of this kernel goes along the target, 16 bytes to a thread, whatever rows are. Those
bytes begin anywhere in the source, in one or two pieces of 16 bytes that do begin at multiples: both are read, which
costs nothing since a neighbour reads them too, and shifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tessera.backends.nvptx.block_times import SECTOR
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.text import DeviceModule, KernelCode, special
from tessera.ir.target.limits import is_multiple
from tessera.ir.target.llvm.instructions import Value, constant_of
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

NAME = "tessera_copy_rows"
SYMBOLS = ("width", "pitch", "height")
"""Bytes of a row, bytes from one row of the target to the next, in multiples of 16, and the number of rows."""
VECTOR = 16
"""Bytes that a thread writes at a time."""
_THREADS, _EACH = 256, 4
"""Threads of a block, and how often each of them writes: as many loads are under way."""
BLOCK = VECTOR * _THREADS * _EACH
"""Bytes of the target that a block writes."""
PITCH, _LONG = 128, 256
"""Bytes at multiples of which copied rows begin, if they are as long as that: a line of L2, so that no line of a box is
in two of them. Shorter rows begin with whole sectors, and take less memory."""
ACCESSES: dict[str, Any] = {"symbols": list(SYMBOLS), "buffers": [["r", "height*width"], ["w", "height*pitch"]]}
"""What a launch touches, as `accesses_of` says it of other kernels."""


def is_needed(codes: Iterable[KernelCode]) -> bool:
    """Whether kernels read rows through TMA that may begin anywhere."""
    rows = [map_.dims[0] * map_.bytes for code in codes for map_ in code.maps if map_.is_copied]
    return not all(is_multiple(row, VECTOR) for row in rows)


def pitch_of(f: FunctionText, width: Value) -> Value:
    """Bytes from one copied row of so many to the next."""
    known, (lines, sectors) = constant_of(width), (f.round_up(width, unit) for unit in (PITCH, SECTOR))
    if known is not None:
        return lines if known >= _LONG else sectors
    return f.select(f.icmp("uge", width, _LONG), lines, sectors)


def row_copies(machine: Machine) -> KernelCode:
    """The kernel: it takes source, target, `SYMBOLS` and the address of scratch, which it has none of."""
    module = DeviceModule(machine)
    arguments = [("ptr", "source"), ("ptr", "target"), *(("i64", name) for name in SYMBOLS), ("ptr", "scratch")]
    f = module.kernel(NAME, arguments, _THREADS)
    _write(f)
    f.ret()
    grid = (Dim.symbol("pitch") * Dim.symbol("height")).ceildiv(BLOCK)
    return KernelCode(NAME, module.text(), grid, SYMBOLS, _THREADS, 1, 0, Dim.constant(0), 0)


@frozen
class _Vector:
    """16 bytes of the target: where they go and whether, their source, and its beginning within 16 bytes."""

    target: Value
    is_there: Value
    words: list[Value]
    shift: Value


def _write(f: FunctionText) -> None:
    source, target, width, pitch, height, _ = f.arguments
    start, goal = (f.raw("i64", f"ptrtoint {pointer} to i64") for pointer in (source, target))
    per_row = f.udiv(pitch, VECTOR)
    total = f.mul(per_row, height)
    block = f.raw("i64", f"zext {special(f, 'ctaid.x')} to i64")
    thread = f.raw("i64", f"zext {special(f, 'tid.x')} to i64")
    first = f.add(f.mul(block, _THREADS * _EACH), thread)
    found: list[_Vector] = []
    for number_of in range(_EACH):
        index = f.add(first, number_of * _THREADS)
        row = f.udiv(index, per_row)
        column = f.mul(f.sub(index, f.mul(row, per_row)), VECTOR)
        # What lies between the end of a row and the next one, nobody reads.
        left = f.sub(width, column)
        is_there = f.op("and", f.icmp("ult", index, total), f.icmp("sgt", left, 0))
        address = f.add(start, f.add(f.mul(row, width), column))
        inside = f.raw("i32", f"trunc {f.raw('i64', f'and {address}, {VECTOR - 1}')} to i32")
        whole = f.raw("i64", f"and {address}, {-VECTOR}")
        end = op32(f, "add", inside, f.cast("trunc", f.smin(left, VECTOR), "i32"))
        reaches_on = f.op("and", is_there, f.icmp("ugt", end, number(VECTOR)))
        words = [*read_words(f, whole, is_there), *read_words(f, f.add(whole, VECTOR), reaches_on)]
        found.append(_Vector(f.add(goal, f.mul(index, VECTOR)), is_there, words, inside))
    for vector in found:
        text = "{ .reg .pred P; setp.ne.b32 P, $1, 0; @P st.global.v4.b32 [$0], {$2, $3, $4, $5}; }"
        given = [vector.target, asm.flag(f, vector.is_there), *shift_words(f, vector.words, vector.shift)]
        asm.effect(f, text, "l,r,r,r,r,r", given)


def read_words(f: FunctionText, address: Value, condition: Value) -> list[Value]:
    """Four words of the source where a condition holds, else zeros."""
    zeros = " ".join(f"mov.b32 ${at}, 0;" for at in range(4))
    text = f"{{ .reg .pred P; setp.ne.b32 P, $5, 0; {zeros} @P ld.global.nc.v4.b32 {{$0, $1, $2, $3}}, [$4]; }}"
    constraints = [*["=&r"] * 4, "l", "r"]
    return asm.results(f, text, constraints, [address, asm.flag(f, condition)], ["i32"] * 4)


def shift_words(f: FunctionText, words: list[Value], shift: Value) -> list[Value]:
    """Four of eight words, from so many bytes on: moved by two words, by one, and by the bits of bytes."""
    for step in (2, 1):
        is_moved = f.icmp("ne", op32(f, "and", shift, 4 * step), number(0))
        words = [f.select(is_moved, far, near) for near, far in zip(words, words[step:], strict=False)]
    bits = op32(f, "shl", op32(f, "and", shift, 3), 3)
    text = "shf.r.wrap.b32 $0, $1, $2, $3;"
    return [asm.pure(f, text, "=r,r,r,r", [*words[at : at + 2], bits], "i32") for at in range(4)]


# The host program's side: where the parameters of a launch are.


class CopyParameters:
    """The slots of a launch's parameters, and the table of their addresses that the driver takes."""

    def __init__(self, f: FunctionText) -> None:
        count = 3 + len(SYMBOLS)
        self.f, self.slots, self.table = f, f.alloca("i64", count), f.alloca("ptr", count)
        for at in range(count):
            f.store(f.gep(self.slots, at, "i64"), f.gep(self.table, at, "ptr"), align=8)

    def put(self, source: Value, target: Value, sizes: Sequence[Value]) -> Value:
        """Write the parameters of a launch whose `sizes` are those of `SYMBOLS`; how many blocks it has."""
        f, (_, pitch, height) = self.f, sizes
        for at, word in enumerate([source, target, *sizes, Value("ptr", "null")]):
            f.store(word, f.gep(self.slots, at, "i64"), align=8)
        return f.ceil_div(f.mul(pitch, height), BLOCK)
