"""Lanes that look at each other: shuffles of all modes, and votes."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.target.lanes import MODES, VOTES, WIDTH, check_exchange, check_vote


def _check_shuffle(op: SpecOp) -> None:
    check_exchange(op, op.value("mode"))


SPECS = (
    OpSpec(
        name="ttarget.shuffle",
        summary="Each element from another lane of its segment; its own where there is none.",
        operands=("block",),
        attributes=(
            Attribute("mode", "str", doc=", ".join(MODES)),
            Attribute("by", "int", doc="lanes, or bits"),
            WIDTH,
        ),
        verify=_check_shuffle,
    ),
    OpSpec(
        name="ttarget.vote",
        summary="What a segment's bools say together, told to each of its lanes.",
        operands=("block",),
        attributes=(Attribute("kind", "str", doc=", ".join(VOTES)), WIDTH),
        verify=check_vote,
    ),
)
