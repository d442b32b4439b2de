"""Threads that meet: at barriers of the machine, or, where waits must end, at watched ones in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx import hopper_assembly as asm
from tessera.backends.nvptx.hopper_assembly import number, op32
from tessera.backends.nvptx.waits import Waits
from tessera.ir.target.hopper_limits import WARPGROUP
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText

_TURNS = 4
"""The first of two named barriers at which consumers take turns."""
TURNING = (2 * WARPGROUP, 2 * WARPGROUP)
"""Who comes to them: those whose turn it is, and those whose turn it was."""


class Meetings:
    """The barriers of a kernel at which so many `threads` meet, one after the other in shared memory.

    They are there where waits are `bounded` and there is room for all of them; else threads meet unwatched.
    """

    def __init__(self, f: FunctionText, base: Value, bounded: Waits | None, threads: Sequence[int]) -> None:
        self.f, self.base, self.bounded = f, base, bounded
        place = bounded.meetings(threads) if bounded is not None else None
        self.places = [] if place is None else [place + 8 * at for at in range(len(threads))]
        self.threads = threads

    def make(self) -> None:
        """One thread makes the barriers."""
        for place, arrivals in zip(self.places, self.threads, strict=bool(self.places)):
            asm.barrier_init(self.f, op32(self.f, "add", self.base, place), arrivals)

    def meet(self, name: Value, threads: int) -> None:
        """So many threads wait for each other at the first of them, which `name` is without them."""
        if self.bounded is None or not self.places:
            asm.named_barrier(self.f, name, threads)
        else:
            asm.barrier_meet(self.f, op32(self.f, "add", self.base, self.places[0]), self.bounded)

    def begin_turns(self, group: Value) -> None:
        """The first turn is the first consumer's, as if the second had passed it."""
        f, begins = self.f, self.f.icmp("eq", group, number(1))
        if self.places:
            asm.barrier_arrive(f, op32(f, "add", self.base, self.places[0]), begins)
        else:
            text = f"{{ .reg .pred P; setp.ne.b32 P, $0, 0; @P bar.arrive {_TURNS}, {2 * WARPGROUP}; }}"
            asm.effect(f, text, "r", [asm.flag(f, begins)])

    def take_turn(self, group: Value) -> None:
        """A consumer waits until the other one passes."""
        f = self.f
        if self.bounded is not None and self.places:
            asm.barrier_meet(f, self._turn_of(group), self.bounded)
        else:
            asm.named_barrier(f, op32(f, "add", group, _TURNS), 2 * WARPGROUP)

    def pass_turn(self, group: Value) -> None:
        """A consumer lets the other one go."""
        f = self.f
        if self.places:
            asm.barrier_signal(f, self._turn_of(f.raw("i32", f"sub i32 1, {group.text}")))
        else:
            other = f.raw("i32", f"sub i32 {_TURNS + 1}, {group.text}")
            asm.effect(f, f"bar.arrive $0, {2 * WARPGROUP};", "r", [other])

    def _turn_of(self, group: Value) -> Value:
        first = op32(self.f, "add", self.base, self.places[0])
        return op32(self.f, "add", first, op32(self.f, "shl", group, 3))
