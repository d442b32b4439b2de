"""Pairs of CTAs: what both read is copied once, a half by each, to the shared memory of both."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.hopper_assembly import effect, flag, op32
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText

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
