"""Choose the order in memory of tensors that groups read across it, and write them in that order where it pays."""

from __future__ import annotations

from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.compilation import Choice, Chooser, StaticChooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.passes import Pass
from tessera.ir.schedule.conversions import Conversions, Reader, values_in
from tessera.ir.schedule.layouts import CONVERSION, KNOB, MODELS, Order, identity, size_of
from tessera.ir.schedule.plan import programs_in, tensor_of
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

WORTH = 0.5
"""Part of what a conversion costs that groups must lose, for it to be a candidate."""


@frozen
class ChooseLayouts(Pass):
    """Ask for the order of dims of each tensor that some group reads across its own, and convert it where that pays.

    Before: `%0 = tsched.fuse @softmax(%x, %y)`, whose rows go down the columns of `%x`. After: `tsched.layout %x {order
    = [1, 0], ...}`, `%1 = tsched.fuse @map(%x)`, which writes `%x` transposed, and `%0 = tsched.fuse @softmax_1(%1,
    %y)`, whose body has no view of `%x` any more. Groups that read `%x` as it is still do. A copy that is in a plan
    already may be chosen to be none. A constant argument is written once for all calls. Orders change no bit.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))
    chooser: Chooser = field(default_factory=lambda: StaticChooser(models=MODELS))

    def run(self, module: ModuleOp) -> None:
        conversions = Conversions(module)
        for program in programs_in(module):
            for block in [region.block for op in program.walk() for region in op.regions]:
                for value in list(values_in(block)):
                    self._choose(value, block, conversions)
        conversions.drop_unused()

    def _choose(self, value: SSAValue, block: Block, conversions: Conversions) -> None:
        type = tensor_of(value)
        if type.rank < 2:
            return
        readers, own = conversions.readers(value), identity(type.rank)
        # On a GPU what is copied is copied for an instruction, which decides how sums are formed.
        copies = {} if self.machine.is_gpu or not readers else conversions.copies(value)
        slow = [one for one in readers if any(access.is_slow(own) for access in one.accesses)]
        orders = (access.order for one in slow for access in one.accesses if one.gains(access.order))
        candidates = tuple(dict.fromkeys((*copies, own) if copies else (own, *orders)))
        if len(candidates) < 2 or len(copies) > 1:
            return
        accesses, elements = tuple(access for one in readers for access in one.accesses), size_of(type.shape)
        free = tuple(order for order in candidates[1:] if conversions.can_be_given(value, order))
        lost = sum(access.cost for access in accesses if access.is_slow(own))
        if not copies and not free and lost < WORTH * CONVERSION * elements:
            return
        context = {"machine": self.machine, "accesses": accesses, "elements": elements, "free": free}
        about = [one for one in readers if one.fuse in copies.values()] or slow
        choice = self.chooser.choose(f"{KNOB}@{_name_of(about)}", candidates, context)
        _write_layout(value, block, candidates, choice)
        conversions.settle(value, tuple(choice.value))


def _name_of(readers: list[Reader]) -> str:
    """What tells a choice from others: the groups that it is for, each with the number of the operand."""
    return "+".join(dict.fromkeys(f"{one.fuse.body}.{one.number}" for one in readers))


def _write_layout(value: SSAValue, block: Block, candidates: tuple[Order, ...], choice: Choice) -> None:
    """Put what was chosen behind what makes the value, and before all that reads it."""
    values = {"order": tuple(choice.value), "candidates": candidates, "source": choice.source}
    op = make("tsched.layout", [value], values, types=())
    maker, first = value.owner, block.first_op
    assert first is not None
    if isinstance(maker, Operation):
        block.insert_op_after(op, maker)
    else:
        block.insert_op_before(op, first)
