"""Reading a plan: its programs, the fusion groups in them, and the choices written down for each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.choice import Choice, Chooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TensorAttr
from tessera.types.tensor_type import TensorType


def programs_in(module: ModuleOp) -> Iterator[SpecOp]:
    """The plans of a module."""
    for op in module.ops:
        if op.name == "tsched.module":
            assert isinstance(op, SpecOp)
            yield op


def fusions_in(module: ModuleOp) -> list[SpecOp]:
    """All groups, in the order they stand."""
    return [
        op
        for program in programs_in(module)
        for op in program.walk()
        if isinstance(op, SpecOp) and op.name == "tsched.fuse"
    ]


def tensor_of(value: SSAValue) -> TensorType:
    """The shape and dtype of a value of a plan or of a host program."""
    assert isinstance(value.type, TensorAttr | BufferAttr)
    return value.type.data


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
    op = make("tsched.tile", [fuse.results[0]], values, types=(), span=fuse.span)
    block, last = fuse.parent, fuse
    assert block is not None
    while isinstance(last.next_op, SpecOp) and last.next_op.name == "tsched.tile":
        last = last.next_op
    block.insert_op_after(op, last)


@dataclass
class Recorded:
    """Answers with what was chosen before; what was not is asked of `chooser`, and is then in `new`, by knob."""

    chooser: Chooser
    given: Mapping[str, Choice]
    new: dict[str, tuple[Sequence[Any], Choice]] = field(default_factory=dict[str, tuple[Sequence[Any], Choice]])

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        knob = key.partition("@")[0]
        found = self.given.get(knob)
        if found is None or found.value not in tuple(candidates):
            found = self.chooser.choose(key, candidates, context)
            self.new[knob] = (candidates, found)
        return found
