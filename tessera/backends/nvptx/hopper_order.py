"""Tiles as they come: the producer takes the next number from a counter of all CTAs, and consumers read it from it."""

from __future__ import annotations

from tessera.backends.nvptx import hopper_assembly as asm
from tessera.backends.nvptx.hopper_assembly import op32
from tessera.backends.nvptx.text import special
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText


def mailboxes(kernel: SpecOp) -> list[int]:
    """Where a kernel has a mailbox in shared memory, if it has one."""
    tiles = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tiles"]
    return sorted({op.value("mailbox") for op in tiles if op.value("mailbox") >= 0})


class Mailbox:
    """Two places for the number of a tile, used in turn: a barrier for each that it is full, one that it is empty.

    The counter is in global memory, and 0 when the kernel starts; the first tile of each CTA is its own number.
    """

    def __init__(
        self, f: FunctionText, base: Value, offset: int, counter: Value, bounded: bool, is_producer: bool
    ) -> None:
        self.f, self.base, self.offset, self.counter = f, base, offset, counter
        self.bounded, self.is_producer = bounded, is_producer

    def _at(self, first: int, place: Value, shift: int) -> Value:
        start = op32(self.f, "add", self.base, self.offset + first)
        return op32(self.f, "add", start, op32(self.f, "shl", place, shift))

    def following(self, turn: Value) -> Value:
        """The number of the tile after this one, which is the CTA's `turn`-th."""
        f = self.f
        place = op32(f, "and", turn, 1)
        parity = op32(f, "and", op32(f, "lshr", turn, 1), 1)
        full, empty, cell = self._at(0, place, 3), self._at(16, place, 3), self._at(32, place, 2)
        if not self.is_producer:
            asm.barrier_wait(f, full, parity, self.bounded)
            found = asm.effect(f, "ld.shared.u32 $0, [$1];", "=r,r", [cell], "i32")
            asm.barrier_signal(f, empty)
            return asm.warp_uniform(f, found)
        asm.barrier_wait(f, empty, op32(f, "xor", parity, 1), self.bounded)
        address = f.raw("i64", f"ptrtoint {self.counter} to i64")
        taken = asm.effect(f, "atom.global.add.u32 $0, [$1], 1;", "=r,l", [address], "i32")
        found = op32(f, "add", taken, special(f, "nctaid.x"))
        asm.effect(f, "st.shared.u32 [$0], $1;", "r,r", [cell, found])
        asm.barrier_signal(f, full)
        return found
