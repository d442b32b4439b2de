"""Rows that no registers hold and several loops read: they lie in shared memory while a program works on them.

Each pass over such a row in global memory would bring it from there again, as rows of all programs are more than caches
hold. Here all of a row is on its way at once, 16 bytes to a thread at a time; the passes read shared memory then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.backends.nvptx.rows_ahead import RowAhead, Stage, row_of
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access

PROGRAMS = 2
"""Programs of a block: few, so that shared memory is filled well by blocks of rows."""
BLOCKS, SHORT_BLOCKS = 2, 8
"""Blocks that a multiprocessor holds at least: of formulas with powers, and of those that wait for memory alone.

On an H200 rows of 16384 bf16 leave room for three: a softmax of them is 2.9 times as fast so, an rmsnorm takes 1.7
times as long.
"""
LEAST = 4096
"""Bytes of a row from which on caches do not hold the rows of all programs."""


def staged_rows(kernel: SpecOp, machine: Machine) -> list[RowAhead]:
    """The rows of a kernel that lie in shared memory; none where registers hold any, or there is scratch."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp)]
    loops = [op for op in ops if op.name == "ttarget.loop"]
    outer = next(op for op in ops if op.name == "ttarget.programs")
    is_plain = kernel.value("threads") == WARP and len(outer.value("grid")) == 1
    if not is_plain or any(op.name == "ttarget.scratch" for op in ops) or not all(op.value("unroll") for op in loops):
        return []
    has_powers = any(op.name == "ttarget.math" and op.value("fn") == "exp" for op in ops)
    blocks = BLOCKS if has_powers else SHORT_BLOCKS
    room, found = machine.shared // (blocks * PROGRAMS), list[RowAhead]()
    for buffer in kernel.regions[0].block.args:
        loads = [op for op in ops if op.name == "ttarget.load" and op.operands[0] is buffer]
        rows = [row for row in (row_of(op, kernel, outer, is_written_out=False) for op in loads) if row is not None]
        if len(rows) < 2 or not LEAST <= rows[0].bytes <= room or not all(_is_like(rows[0].load, op) for op in loads):
            continue
        found.append(rows[0])
        room -= rows[0].bytes
    return found


def _is_like(a: SpecOp, b: SpecOp) -> bool:
    """Whether two loads find elements of the same row alike."""
    alike = all(a.value(name) == b.value(name) for name in ("names", "axes", "offset", "windows"))
    places = zip(a.value("names"), a.operands[1:], b.operands[1:], strict=False)
    return alike and all(left is right for name, left, right in places if name not in a.value("axes"))


def bring(emitter: Emitter, first: Index, total: Index) -> None:
    """Copy the rows of all programs of this block, and wait for them."""
    stage = Stage(emitter, emitter.staged, 0)
    emitter.module.shared_base()
    emitter.stage_bytes = stage.size
    stage.fetch(first, total)
    stage.arrive()
    emitter.on_stage.update((row.buffer, stage.place(row.buffer)) for row in emitter.staged)


def on_stage(access: Access) -> Access:
    """An access to a row that lies in shared memory, where it begins at 0, whichever program's it is."""
    names = [name for name in access.op.value("names") if name not in access.op.value("axes")]
    place = access.emitter.on_stage[access.op.operands[0]]
    return replace(access, base=place, env={**access.env, **dict.fromkeys(names, 0)})
