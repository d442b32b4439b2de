"""Tensors on their way: which arguments of a group somebody asked to be copied ahead, and the loads that are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import producers, spec_of
from tessera.ir.schedule.program import Program
from tessera.ir.tile.facets import View


def space_of(record: Record) -> str:
    """The memory that an op brings a tensor to; empty for any other."""
    lower = spec_of(record).lower
    return lower.space(record.attributes) if isinstance(lower, View) and lower.space is not None else ""


def space_of_alias(program: Program, value: int) -> str:
    """The memory that a value is brought to on the way from the one whose memory holds it."""
    root = program.alias_of(value)
    while value != root:
        record = program.maker(value)
        assert record is not None
        if space := space_of(record):
            return space
        (value,) = record.operands
    return ""


def moved_arguments(fuse: SpecOp, body: Tape) -> dict[int, str]:
    """The arguments of a group's kernels that are on their way, each with the memory it goes to."""
    found = {place: space for place, value in enumerate(fuse.operands) if (space := _space_of_value(value))}
    makers = producers(body)
    for record in body.records:
        space = space_of(record)
        value = record.operands[0] if space else -1
        while value in makers and isinstance(spec_of(makers[value]).lower, View):
            (value,) = makers[value].operands
        if value in body.inputs:
            found[body.inputs.index(value)] = space
    return found


def _space_of_value(value: SSAValue) -> str:
    op = value.owner if isinstance(value, OpResult) else None
    return op.value("space") if isinstance(op, SpecOp) and op.name == "tsched.alias" else ""


def tell_loads(kernel: SpecOp, moved: Mapping[int, str]) -> None:
    """Mark the loads of such arguments, and let the loops around them copy a step ahead where nothing else is said."""
    arguments = kernel.regions[0].block.args
    for op in list(kernel.walk()):
        place = next((at for at in moved if at < len(arguments) and op.operands[:1] == (arguments[at],)), None)
        if not isinstance(op, SpecOp) or op.name != "ttile.load" or place is None:
            continue
        hints: dict[str, Any] = {**(op.value("hints") or {}), "space": moved[place]}
        op.set_value("hints", dict(sorted(hints.items())))
        for loop in _loops_around(op):
            if not loop.value("prefetch") and not loop.value("buffers"):
                loop.set_value("prefetch", 1)


def _loops_around(op: SpecOp) -> Iterator[SpecOp]:
    around = op.parent_op()
    while isinstance(around, SpecOp):
        if around.name == "ttile.for":
            yield around
        around = around.parent_op()


__all__ = ["moved_arguments", "space_of", "space_of_alias", "tell_loads"]
