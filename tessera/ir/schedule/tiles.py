"""Reading back what `tsched.tile` says was chosen for a group."""

from __future__ import annotations

from tessera.ir.base.choice import Choice
from tessera.ir.base.op import SpecOp


def choices_for(fuse: SpecOp) -> dict[str, Choice]:
    """What was chosen for a group, by knob."""
    found: dict[str, Choice] = {}
    for use in (use for result in fuse.results for use in result.uses):
        op = use.operation
        if isinstance(op, SpecOp) and op.name == "tsched.tile" and op.value("chosen") is not None:
            found[op.value("knob")] = Choice(op.value("chosen"), op.value("source"))
    return found
