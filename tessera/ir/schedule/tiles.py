"""Writing down what was chosen for a group as `tsched.tile`, and reading it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.choice import Choice
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.dialect import DIALECT


def choices_for(fuse: SpecOp) -> dict[str, Choice]:
    """What was chosen for a group, by knob."""
    found: dict[str, Choice] = {}
    for use in (use for result in fuse.results for use in result.uses):
        op = use.operation
        if isinstance(op, SpecOp) and op.name == "tsched.tile" and op.value("chosen") is not None:
            found[op.value("knob")] = Choice(op.value("chosen"), op.value("source"))
    return found


def write_choice(fuse: SpecOp, knob: str, candidates: Sequence[Any], choice: Choice) -> None:
    """Put a choice after its group and the choices that stand there already."""
    values = {"candidates": tuple(candidates), "chosen": choice.value, "source": choice.source, "knob": knob}
    op = make(DIALECT["tile"], [fuse.results[0]], values, types=(), span=fuse.span)
    block, last = fuse.parent, fuse
    assert block is not None
    while isinstance(last.next_op, SpecOp) and last.next_op.name == "tsched.tile":
        last = last.next_op
    block.insert_op_after(op, last)
