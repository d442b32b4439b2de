"""Threads that synchronize: warp groups at named barriers, or watched ones where waits must end; CTAs of clusters."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.hopper import assembly as asm
from tessera.backends.nvptx.hopper.assembly import effect, flag, number, op32
from tessera.backends.nvptx.tensor_cores import WARPGROUP
from tessera.backends.nvptx.waits import Waits
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText

# Threads that meet: at barriers of the machine, or, where waits must end, at watched ones in shared memory.

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
        place = bounded.allocate_barriers(threads) if bounded is not None else None
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


# Pairs of CTAs: what both read is copied once, a half by each, to the shared memory of both.

BOTH = Value("i16", "3")
"""The mask of both CTAs."""


def rank(f: FunctionText) -> Value:
    """Which of the two this CTA is, as i32."""
    return effect(f, "mov.u32 $0, %cluster_ctarank;", "=r", ret="i32")


def meet(f: FunctionText) -> None:
    """All threads of both CTAs wait for each other, and see what the others did to shared memory."""
    effect(f, "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")


def arrive_at_both(f: FunctionText, address: Value, condition: Value) -> None:
    """Arrive at a barrier of this CTA and at that of the other, where the condition holds."""
    one = "mapa.shared::cluster.u32 A, $0, {}; @P mbarrier.arrive.shared::cluster.b64 _, [A];"
    text = f"{{ .reg .pred P; .reg .b32 A; setp.ne.b32 P, $1, 0; {one.format(0)} {one.format(1)} }}"
    effect(f, text, "r,r", [address, flag(f, condition)])


def copy_to_both(f: FunctionText, map: Value, address: Value, barrier: Value, at: Sequence[Value]) -> None:
    """Start copying a box to the same place of both CTAs; `at` is innermost first."""
    coords = ", ".join(f"${3 + place}" for place in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[$0], [$1, {{{coords}}}], [$2], ${3 + len(at)};"
    )
    constraints = ",".join(["r", "l", "r", *["r"] * len(at), "h"])
    effect(f, text, constraints, [address, map, barrier, *at, BOTH])


def half_of(f: FunctionText, op: SpecOp, number: Value, at: Sequence[Value]) -> tuple[list[Value], Value, int, Value]:
    """A `ttarget.copy` that two CTAs share, as the one with this number makes it.

    Where its boxes begin (innermost dim first), how many rows of the tile come before them, how many boxes there are,
    and the first of them.
    """
    made = op.operands[0].owner
    assert isinstance(made, SpecOp)
    box, pieces = made.value("box"), op.value("pieces")
    found, zero = list(at), Value("i32", "0")
    if op.value("half") == "pieces":
        return found, zero, pieces // 2, op32(f, "mul", number, pieces // 2)
    # The one dim of the box beside the innermost that has more than one element.
    (dim,) = [dim for dim, size in enumerate(box[:-1]) if size > 1]
    rows, place = op32(f, "mul", number, box[dim]), len(box) - 1 - dim
    found[place] = op32(f, "add", found[place], rows)
    return found, rows, pieces, zero
