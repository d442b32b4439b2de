"""Tile IR to Target IR for NVIDIA: threads of a program, linear addresses, loops in whole steps and a tail."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from tessera.backends.nvptx.again import Again, computed_again
from tessera.backends.nvptx.kernel_code import shared_symbol
from tessera.backends.nvptx.mixed_buffers import mixed_buffers
from tessera.backends.nvptx.row_shapes import folds_whole_rows, has_plain_rows
from tessera.backends.nvptx.row_shares import length_of, shares_of, shares_of_free_rows
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.vector_widths import ALIGNED, align_accesses, asked_vector, widest
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.index_exprs import known_ends
from tessera.ir.tile.lower_to_target import KernelLowering
from tessera.types.machine import Machine

LARGEST = 256
"""Threads of a program at most: more would share too few registers."""
IN_REGISTERS = 144
"""Elements of a row that one thread keeps in registers: its loops are then written out."""
RAGGED = 96
"""The same of a row that does not begin at 16 bytes, which comes element by element."""
PLAIN = 2 * IN_REGISTERS
"""The same of bf16 that are kept as they lie in memory."""
SHARED_SCRATCH = 96 << 10
"""Bytes of scratch that are put in a block's own memory; more lies in global memory."""
FOLDED = 32
"""Elements that one thread has of a row that is folded whole: what it exchanges with others is little beside that.

Where it would have more than twice as many, a program has twice as many threads.
"""
MAP_TURNS = 2
"""Turns of a map that are written one after the other: all that a whole block of it has."""
AHEAD = 1200
"""Instructions of a loop over columns that are written for a thread at most: more would take long to compile."""
GUARDED = 8
"""How many times as many they are where each element is looked at, whether it is there."""
ON_ITS_WAY, SIMPLE = 512, 12
"""Bytes that a thread of a loop over columns has asked for before it looks at the first, if the loop has few ops."""


def lower_kernel(kernel: SpecOp, machine: Machine, aligned: bool = True) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel`; `aligned` says that arguments begin at multiples of 16 bytes."""
    return Lowering(kernel, machine, aligned).run()


def lower_shared_rows(kernel: SpecOp, machine: Machine, aligned: bool = True) -> SpecOp | None:
    """The `ttarget.kernel` for rows of a free width that several warps share; None where they cannot."""
    if kernel.value("kind") != "row" or threads_of(kernel) != WARP or not shares_of_free_rows(kernel):
        return None
    lowering = Lowering(kernel, machine, aligned)
    lowering.shares, lowering.keeps_rows = shares_of_free_rows(kernel), True
    made = lowering.run()
    made.set_value("symbol", shared_symbol(kernel.value("symbol")))
    return made


def threads_of(kernel: SpecOp) -> int:
    """Threads of one program: one where tiles are single numbers, a warp for a row, else by the largest tile."""
    sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(kernel)]
    names = {op.name for op in kernel.walk()}
    if "ttile.sort" in names:
        return LARGEST
    if max(sizes, default=1) == 1:
        return 1
    schedule: dict[str, Any] = kernel.value("schedule") or {}
    if "warps" in schedule:
        return min(LARGEST, schedule["warps"] * 32)
    if "ttile.dot" in names:
        return LARGEST
    if kernel.value("kind") == "row" and max(sizes) > 32:
        # Columns side by side: few programs, so each has many threads, with a few neighbours each.
        return max(32, min(LARGEST, max(sizes) // 4))
    if max(sizes) <= 64:
        return 32
    if folds_whole_rows(kernel, max(sizes)):
        most = LARGEST if max(sizes) <= 2 * FOLDED * LARGEST else 2 * LARGEST
        return max(32, min(most, 1 << (max(sizes) // FOLDED).bit_length() - 1))
    return max(32, min(LARGEST, 1 << (max(sizes) // 8).bit_length() - 1))


def _tiles_in(kernel: SpecOp) -> list[TileAttr]:
    return [value.type for op in kernel.walk() for value in op.results if isinstance(value.type, TileAttr)]


class Lowering(KernelLowering):
    """The lowering of one kernel."""

    def __init__(self, kernel: SpecOp, machine: Machine, aligned: bool) -> None:
        super().__init__(kernel, machine)
        self.shared = 0
        self.threads = threads_of(kernel)
        self.align = ALIGNED if aligned else 0
        self.vector = 16
        self.mixed = mixed_buffers(kernel)
        self.again: dict[SSAValue, Again] = {}
        self.shares = 0
        self.keeps_rows = self._keeps_rows()

    def run(self) -> SpecOp:
        self.lower_programs()
        asked: dict[str, Any] = self.kernel.value("schedule") or {}
        caps = {name: asked[name] for name in ("max_registers", "max_shared") if name in asked}
        made = self.finish(self._features(), threads=self.threads, align=self.align, shares=self.shares, **caps)
        align_accesses(made)
        made.set_value("vector", min(widest(made), asked_vector(self.kernel)))
        return made

    def _features(self) -> tuple[str, ...]:
        """Architectures that have all that is used; instructions of one alone are for those who choose them."""
        return tuple(name for name in self.machine.features if name.startswith("sm_"))[:1]

    def lower_dot(self, op: SpecOp) -> None:
        """A dot of plain multiply-adds: what was chosen for tensor cores says nothing here."""
        self.replace(op, "dot", {})

    def lower_transpose(self, op: SpecOp) -> None:
        self.lower_same(op)

    # Memory.

    def lower_scratch(self, op: SpecOp) -> None:
        if op.results[0] in self.again:
            return
        type = op.results[0].type
        assert isinstance(type, BufferAttr)
        size = type.data.bytes.value
        space = "private"
        if self.keeps_rows:
            space = "registers"
        elif op.value("space") == "shared" or (size is not None and self.threads > 1 and self._has_room(size)):
            space = "shared"
        swizzle = op.value("swizzle") if space == "shared" else 0
        self.values[op.result] = self.allocate(type.data, space=space, swizzle=swizzle)

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes more fit the memory of a block, with all programs that it runs."""
        if self.shared + size > SHARED_SCRATCH // max(1, 128 // self.threads):
            return False
        self.shared += size
        return True

    def _keeps_rows(self) -> bool:
        """Whether a row fits the registers of its threads: all loops are static, and short enough to be written out."""
        if self.kernel.value("kind") != "row":
            return False
        loops = [op for op in self.kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
        counts = [_turns(loop) for loop in loops]
        sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(self.kernel)]
        most = max([count or 0 for count in counts], default=0) * max(1, max(sizes, default=1) // self.threads)
        if not loops or None in counts:
            return False
        if self.threads == WARP and not self._has_plain_rows(counts, most):
            self.shares = shares_of(self.kernel, IN_REGISTERS, RAGGED)
        if self.shares or most <= IN_REGISTERS:
            return True
        self.again = computed_again(self.kernel) if self.threads == WARP else {}
        return self._has_plain_rows(counts, most)

    def _has_plain_rows(self, counts: Sequence[int | None], most: int) -> bool:
        """Whether a row is wide and bf16, and stays in the registers of one warp as it lies in memory."""
        is_whole = all(count is not None and count % 8 == 0 for count in counts) and self.align == ALIGNED
        is_narrow = IN_REGISTERS < most <= PLAIN and self.machine.has("sm_90")
        return is_whole and is_narrow and not computed_again(self.kernel) and has_plain_rows(self.kernel)

    def lower_fetch(self, op: SpecOp) -> None:
        self._wait_for(op.operands[0])
        super().lower_fetch(op)

    def lower_load(self, op: SpecOp) -> None:
        if op.operands[0] in self.again:
            self._compute_again(op, self.again[op.operands[0]])
            return
        self._wait_for(op.operands[0])
        super().lower_load(op)

    def _compute_again(self, load: SpecOp, again: Again) -> None:
        """What a load of scratch would give, computed as it was for the store, in the turn of this loop."""
        turn = load.operands[1]
        self.values[again.turn], self.exprs[again.turn] = self.values[turn], self.expr(turn)
        for op in again.ops:
            self.lower(op)
        self.values[load.result] = self.values[again.value]

    def lower_store(self, op: SpecOp) -> None:
        if op.operands[1] in self.again:
            return
        self._wait_for(op.operands[1])
        super().lower_store(op)

    def _wait_for(self, buffer: SSAValue) -> None:
        """Memory in order is in order between threads too: where they may meet in it, they wait."""
        if buffer in self.mixed and self.threads > 1:
            self.emit("barrier")

    def lower_barrier(self, op: SpecOp) -> None:
        if self.threads > 1:
            self.emit("barrier")

    def lower_sort(self, op: SpecOp) -> None:
        self.emit("barrier")
        self.lower_same(op)
        self.emit("barrier")

    # Loops.

    def loop_values(self, op: SpecOp, name: str) -> dict[str, Any]:
        return {**super().loop_values(op, name), "unroll": self._unroll(op) if name == "loop" else 1}

    def _unroll(self, op: SpecOp) -> int:
        if self.keeps_rows:
            return 0
        names = {part.name for part in op.walk()}
        if {"ttile.dot", "ttile.barrier", "ttile.fetch"} & names:
            return 1
        sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(op)]
        if self.kernel.value("kind") == "row" and self.threads > 32:
            return self._ahead(op)
        if self.kernel.value("kind") == "map" and max(sizes, default=1) == 8 * self.threads:
            return MAP_TURNS
        return 8 if max(sizes, default=1) <= 4 * self.threads else 1

    def _ahead(self, op: SpecOp) -> int:
        """Turns of a loop over columns: few programs run, so each thread has much of a simple loop on its way."""
        loads = [part.results[0].type for part in op.walk() if part.name == "ttile.load"]
        sizes = [type.data.bytes.value or 0 for type in loads if isinstance(type, TileAttr)]
        parts = [part for part in op.walk() if isinstance(part, SpecOp) and part is not op]
        elements = max([prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(op)], default=1)
        most = AHEAD // (length_of(parts) * max(1, elements // self.threads))
        loops = [part for part in self.kernel.walk() if part.name == "ttile.for"]
        if len(loops) > 1 and any(self._is_guarded_across(part, op) for part in parts):
            most //= GUARDED
        turns = ON_ITS_WAY * self.threads // max(1, sum(sizes))
        turns = 16 if len(parts) >= SIMPLE or not sizes else max(8, min(64, turns))
        return 1 << max(0, min(turns, max(2, most)).bit_length() - 1)

    def _is_guarded_across(self, load: SpecOp, loop: SpecOp) -> bool:
        """Whether a load may reach beyond a bound along another axis than that of the loop."""
        if load.name != "ttile.load":
            return False
        where = dict(zip(load.value("coords"), load.operands[1:], strict=False))
        tile, turn = load.results[0].type, loop.regions[0].block.args[0]
        assert isinstance(tile, TileAttr)
        bounds = zip(load.value("axes"), load.value("bounds"), tile.shape, strict=True)
        return any(
            bound.value != -1 and where[axis] is not turn and not self.is_safe(where[axis], bound, size.value or 1)
            for axis, bound, size in bounds
        )


def _turns(loop: SpecOp) -> int | None:
    """How often a loop runs, where that is known."""
    ends = known_ends(loop)
    return None if ends is None else -(-(ends[1] - ends[0]) // loop.value("step"))
