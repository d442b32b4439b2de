"""What of rows that warps share is brought to shared memory, how many blocks hold it, and which widths are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from tessera.backends.nvptx.row_shapes import FEW
from tessera.backends.nvptx.row_shares import sections_of
from tessera.backends.nvptx.row_teams import SECTION
from tessera.backends.nvptx.rows_handed import handed_bytes
from tessera.backends.nvptx.rows_ragged import RaggedRow, line_in, row_in
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.limits import SHARES
from tessera.types.dim import Dim
from tessera.types.machine import Machine

LEAST = 2048
"""Elements of a row of a free width from which on warps share it; those of shorter ones have one warp each."""
HELD, HELD_LONG, HELD_SHORT = 16, 24, 32
"""Warps of such blocks that a multiprocessor has at least, by the registers of a thread: 128, 80 or 64.

Powers of a row stay in registers; where it waits long for its sums, as one that eight warps have, there are more rows
if registers do. Where nothing is kept of rows but the rows, they take half a register for an element of 2 bytes.
"""
FEW_TURNS = 48
"""Turns of a warp that 80 registers do for."""
ROUNDS = 2
"""Blocks that are launched for each place that a multiprocessor has for one."""
_OTHER = 2 << 10
"""Bytes of shared memory that a block leaves for others, beside what its warps hand over."""
LOOPS = ("ttarget.loop", "ttarget.tail")
_LONG = 8
"""Warps that wait so long for each other."""


def blocks_of(kernel: SpecOp, machine: Machine) -> int:
    """Blocks that a multiprocessor is to hold, where warps share a row; 0 where none do."""
    return brought(kernel, machine).blocks if kernel.value("shares") else 0


def launched(kernel: SpecOp, machine: Machine) -> int:
    """Blocks that are launched for each multiprocessor."""
    return ROUNDS * blocks_of(kernel, machine)


def is_short(kernel: SpecOp) -> bool:
    """Whether turns are computed in no time, so that nothing of a row is kept but the row."""
    parts = [op for op in kernel.walk() if isinstance(op, SpecOp) and (op.parent_op() or op).name in LOOPS]
    return not any(is_long(op) for op in parts) and not any(op.name == "ttarget.scratch" for op in kernel.walk())


def width_of(kernel: SpecOp) -> Dim:
    """Elements of a row, which all loops of a kernel go over."""
    loop = next(op for op in kernel.walk() if op.name == "ttarget.loop")
    end = loop.operands[1].owner
    assert isinstance(end, SpecOp)
    return end.value("expr")


def widths_of(kernel: SpecOp) -> tuple[Dim, int, int] | None:
    """A free width, with the least and most elements of rows that are shared; None where it is known."""
    width = width_of(kernel)
    most = (kernel.value("shares") * sections_of(kernel) + 1) * SECTION * WARP - 1
    return (width, LEAST, most) if width.value is None else None


@dataclass(frozen=True)
class Brought:
    """What of a kernel is brought to shared memory: rows of each program, and those that all of them read."""

    rows: tuple[RaggedRow, ...]
    lines: tuple[RaggedRow, ...]
    blocks: int
    """Blocks that a multiprocessor has room for then."""
    is_short: bool
    """Whether nothing of a row is kept but the row: there are twice as many, and no room for what all of them read."""


def brought(kernel: SpecOp, machine: Machine) -> Brought:
    """As much as there is room for: of a short formula what all programs read, or else more rows at a time."""
    shares, width = kernel.value("shares"), width_of(kernel).value
    is_long = shares == _LONG and not is_short(kernel) and width is not None and width <= _LONG * FEW_TURNS * WARP
    whole = _brought(kernel, machine, max(1, (HELD_LONG if is_long else HELD) // shares), False)
    lines = _lines(kernel)
    has_all = width is not None and len(whole.lines) == len(lines) > (shares == SHARES[-1])
    if not is_short(kernel) or has_all:
        return whole
    return replace(_brought(kernel, machine, max(1, HELD_SHORT // shares), True), lines=())


def _brought(kernel: SpecOp, machine: Machine, blocks: int, is_short: bool) -> Brought:
    elements, warps = room_of(kernel)
    room = machine.shared // blocks - handed_bytes(kernel) - _OTHER
    rows: list[RaggedRow] = []
    for row in _rows(kernel):
        if row.room(elements) * warps <= room:
            rows.append(row)
            room -= row.room(elements) * warps
    lines: list[RaggedRow] = []
    for line in _lines(kernel):
        if line.room(most_of(kernel)) <= room:
            lines.append(line)
            room -= line.room(most_of(kernel))
    return Brought(tuple(rows), tuple(lines), blocks, is_short)


def room_of(kernel: SpecOp) -> tuple[int, int]:
    """Elements of a row that there is room for, and for how many warps of a block each."""
    width = width_of(kernel).value
    return (width, 1) if width is not None else ((sections_of(kernel) + 1) * SECTION * WARP, kernel.value("shares"))


def most_of(kernel: SpecOp) -> int:
    """Elements of the widest row."""
    found = widths_of(kernel)
    return width_of(kernel).value or 0 if found is None else found[2]


def _loads(kernel: SpecOp) -> Iterator[tuple[SpecOp, SSAValue, SSAValue]]:
    """Loads of loops over a row, each with the program and the turn."""
    (outer,) = [op for op in kernel.regions[0].block.ops if op.name == "ttarget.programs"]
    block = outer.regions[0].block
    for loop in block.ops:
        for op in loop.regions[0].block.ops if loop.name in LOOPS and len(block.args) == 1 else ():
            if isinstance(op, SpecOp) and op.name == "ttarget.load":
                yield op, block.args[0], loop.regions[0].block.args[0]


def _rows(kernel: SpecOp) -> list[RaggedRow]:
    width = width_of(kernel)
    return _alone(kernel, {op: row_in(op, kernel, place, turn, width) for op, place, turn in _loads(kernel)})


def _lines(kernel: SpecOp) -> list[RaggedRow]:
    width = width_of(kernel)
    return _alone(kernel, {op: line_in(op, kernel, turn, width) for op, _, turn in _loads(kernel)})


def _alone(kernel: SpecOp, found: Mapping[SpecOp, RaggedRow | None]) -> list[RaggedRow]:
    """Those of arguments of which nothing else is read: what is brought is all that there is of one then."""
    others = {value for op in kernel.walk() if not isinstance(op, SpecOp) or not found.get(op) for value in op.operands}
    rows = [row for row in found.values() if row is not None]
    return list({row.buffer: row for row in rows if row.buffer not in others}.values())


def is_long(op: SpecOp) -> bool:
    """Whether an op takes many instructions."""
    return op.name == "ttarget.elementwise" and op.value("fn") not in FEW - {"exp", "div"}
