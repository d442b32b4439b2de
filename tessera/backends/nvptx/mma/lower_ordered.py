"""Loops over dots in the order of the program: a dot runs on until something reads it, beside the dots after it.

Dots of operands from shared memory are started as they come, and each is waited for as late as the program allows: of
the gradient of attention, weights are computed while the dot beside them still runs. Dots at the end of a step that it
only adds up run on beside the first ones of the next. Operands in registers are made before anything is in flight, all
that can be together (ptxas C7513). Steps in which masks change nothing are a loop of their own, without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.mma.clipped_steps import (
    StepLimit,
    begin_of_whole,
    end_of_whole,
    known_limits,
    whole_from,
    whole_up_to,
)
from tessera.backends.nvptx.mma.plan import MmaDot
from tessera.backends.nvptx.tensor_cores import WARPGROUP, WGMMA_FORMS_TF32
from tessera.backends.nvptx.types import sizes_of, spec_ops, yielded_values
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.typed_ops import ClipOp, ConstantOp, ForOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.mma.lower import Consumer

_WORDS = 208
"""Registers of a thread up to which dots of two steps are in flight: the rest of 240 are indices and descriptors."""
_FEW = 2
"""A loop of so many steps is not cut: what is saved is less than the code of another loop costs."""


@frozen
class Steps:
    """Some steps of a loop, and the masks that they leave out."""

    low: SSAValue
    high: SSAValue
    without: frozenset[SpecOp] = frozenset()


class OrderedLoop:
    """The writing of one such loop."""

    def __init__(self, consumer: Consumer, op: ForOp) -> None:
        self.consumer, self.op = consumer, op
        self.source = op.regions[0].block
        self.parts = spec_ops(self.source)[:-1]
        self.dots = [consumer.plan.dots[part] for part in self.parts if part in consumer.plan.dots]
        self.is_lazy = not any(dot.inputs or WGMMA_FORMS_TF32[dot.rhs.dtype].is_promoted for dot in self.dots)
        """Whether dots may stay in flight: none is added up outside of tensor cores, or of what threads read."""
        self.flying: list[tuple[SpecOp, SSAValue]] = []
        """Dots in flight, in order, with their accumulators."""
        self.packed: dict[SpecOp, SSAValue] = {}
        self.done: set[SpecOp] = set()
        self.pieces = self._pieces()
        is_whole = len(self.pieces) == 1 and consumer.is_nonempty(op)
        self.late = self._find_late() if self.is_lazy and is_whole else {}
        """Dots that run on into the next step, by which of the carried values they are."""
        self.held: list[int] = [at for dot in self.late.values() for at in dot.op.value("releases")]
        """Rings whose stages the next step releases."""
        self.limits = consumer.of(op.operands[:2])
        self.before: Sequence[SSAValue] | None = None
        """The stages that the step before has read, until they are released."""

    def run(self) -> None:
        """Write the loop."""
        consumer, op = self.consumer, self.op
        rings, count = consumer.inside(op), len(op.results)
        starts = consumer.of(op.operands[2:])
        for at in self.late:
            starts[at] = consumer.open(starts[at])
        state = [*starts, *consumer.cursors_of(rings), *consumer.cursors_of(self.held)]
        for piece in self.pieces:

            def write(index: SSAValue, carried: Sequence[SSAValue], piece: Steps = piece) -> list[SSAValue]:
                consumer.values.update(zip(self.source.args[1:], carried[:count], strict=True))
                consumer.cursors.update(zip(rings, carried[count:], strict=False))
                self.before = carried[count + len(rings) :]
                self._step(index, piece.without)
                read = consumer.cursors_of(self.held)
                for at in self.held:
                    consumer.advance(at)
                return [*consumer.of(yielded_values(self.source)), *consumer.cursors_of(rings), *read]

            is_nonempty = len(self.pieces) == 1 and consumer.is_nonempty(op)
            state = consumer.steps(op, [piece.low, piece.high], state, write, is_nonempty)
        for at in self.late:
            state[at] = consumer.close(state[at])
        consumer.values.update(zip(op.results, state[:count], strict=True))
        consumer.cursors.update(zip(rings, state[count:], strict=False))
        for at, cursor in zip(self.held, state[count + len(rings) :], strict=True):
            consumer.emit("release", [consumer.rings[at].ring, cursor])

    def _find_late(self) -> dict[int, MmaDot]:
        """Dots behind everything else in a step that only add to a carried value, where others begin the next step."""
        plan, found = self.consumer.plan, dict[int, MmaDot]()
        if self.op.value("stages") < 2:
            return {}
        for part in reversed([part for part in self.parts if part not in plan.hidden]):
            dot = plan.dots.get(part)
            uses = [] if dot is None else list(part.results[0].uses)
            if dot is None or len(uses) != 1 or uses[0].operation is not self.source.last_op:
                break
            at, acc = uses[0].index, part.operands[2]
            if acc is not self.source.args[1 + at] or len(list(acc.uses)) != 1:
                break
            found = {at: dot, **found}
        others = [dot for dot in self.dots if dot not in found.values()]
        return found if others and others[0].lhs.load is not None and self._words() <= _WORDS else {}

    def _words(self) -> int:
        """Registers of a thread that a step has at a time: accumulators, A operands, and loaded vectors."""
        plan, threads = self.consumer.plan, WARPGROUP * self.consumer.plan.consumers
        words = sum(prod(sizes_of(dot.op.results[0])) for dot in self.dots) // threads
        words += sum(prod(sizes_of(dot.lhs.value)) // (2 * threads) for dot in self.dots if dot.lhs.load is None)
        loads = [part for part in self.parts if part.name == "ttile.load" and part not in plan.hidden]
        return words + sum(prod(sizes_of(part.results[0])) // 4 for part in loads)

    def _pieces(self) -> list[Steps]:
        """All steps in order, cut where masks begin or end to matter."""
        low, high = self.consumer.of(self.op.operands[:2])
        begins = {part: found for part in self.parts if (found := whole_from(part, self.source)) is not None}
        conditions = [part for part in self.parts if part in [choice.operands[0].owner for choice in begins]]
        clips = [part for part in self.parts if part not in conditions]
        ends = {part: found for part in clips if (found := whole_up_to(part, self.source)) is not None}
        # A condition that nobody else reads is left out with the choice by it.
        unread = [part for part in conditions if _users(part) <= set(begins)]
        step, known = self.op.value("step"), known_limits(self.op)
        if not (ends or begins) or (known is not None and known[1] - known[0] <= _FEW * step):
            return [Steps(low, high)]
        names, first, last = {"_low": low, "_high": high}, Dim.symbol("_low"), Dim.symbol("_high")
        begin = begin_of_whole(first, last, [self._named(found, names) for found in begins.values()], step)
        end = end_of_whole(begin, last, [self._named(found, names) for found in ends.values()], step)
        begin_at = self.consumer.index(begin, names) if begins else low
        end_at = self.consumer.index(end, names) if ends else high
        whole = Steps(begin_at, end_at, frozenset((*ends, *begins, *unread)))
        before = [Steps(low, begin_at)] if begins else []
        return [*before, whole, *([Steps(end_at, high)] if ends else [])]

    def _named(self, found: StepLimit, names: dict[str, SSAValue]) -> Dim:
        """A limit with names of its own for the indices that it is computed from."""
        own: dict[str, Dim] = {}
        for name, index in found.where.items():
            if name in found.limit.symbols:
                own[name] = Dim.symbol(f"_{len(names)}")
                names[f"_{len(names)}"] = self.consumer.values[index]
        return found.limit.substitute(own)

    # One step.

    def _step(self, index: SSAValue, without: frozenset[SpecOp]) -> None:
        consumer, late = self.consumer, [dot.op for dot in self.late.values()]
        self.index = index
        self.packed, self.done = {}, set()
        # Zeros that become accumulators are there before anything is in flight.
        early = [part for part in self.parts if isinstance(part, ConstantOp)]
        for part in (*early, *(part for part in self.parts if part not in early)):
            if part in without:
                self._close_for(part.operands)
                kept = part.operands[0 if isinstance(part, ClipOp) else 1]  # what a clip or a choice keeps
                consumer.values[part.results[0]] = consumer.values[kept]
            elif self.is_lazy and part in consumer.plan.dots:
                if part in late:
                    self._close(len(self.flying) - len([op for op, _ in self.flying if op in late]))
                self._start(consumer.plan.dots[part])
            else:
                self._close(len(self.flying)) if part.regions else self._close_for(part.operands)
                consumer.lower(part)
            self.done.add(part)
        for op, pending in self.flying[len(self.flying) - len(late) :]:
            consumer.values[op.results[0]] = pending
        self._close(len(self.flying) - len(late))
        self.flying.clear()

    def _start(self, dot: MmaDot) -> None:
        """Start a dot, behind others that may be in flight."""
        consumer = self.consumer
        self._close_for(dot.op.operands)
        if dot.lhs.load is None and dot.op not in self.packed:
            self._close(len(self.flying))
            self._pack_from(dot)
        lhs = consumer.operand(dot.lhs) if dot.lhs.load is not None else self.packed[dot.op]
        acc = consumer.values[dot.op.operands[2]]
        acc = acc if dot in self.late.values() else consumer.open(acc)
        consumer.wait_for(dot)
        self.flying.append((dot.op, consumer.start(dot, acc, lhs)))

    def _pack_from(self, dot: MmaDot) -> None:
        """Make the A operand of a dot, and those of later ones that are computed already."""
        for part in self.parts[self.parts.index(dot.op) :]:
            other = self.consumer.plan.dots.get(part)
            if other is None or other.lhs.load is not None:
                continue
            maker = other.lhs.value.owner
            if other is dot or not isinstance(maker, SpecOp) or maker not in self.parts or maker in self.done:
                self.packed[part] = self.consumer.operand(other.lhs)

    def _close_for(self, values: Sequence[SSAValue]) -> None:
        """Wait for the dots that values are, and with them for all before."""
        made = [at for at, (op, _) in enumerate(self.flying) if op.results[0] in values]
        if made:
            self._close(max(made) + 1)

    def _close(self, count: int) -> None:
        """Wait for the first dots in flight, and release what they read."""
        consumer = self.consumer
        for _ in range(count):
            op, pending = self.flying.pop(0)
            consumer.values[op.results[0]] = consumer.close(pending, len(self.flying))
            # Dots of the step before were started first, and are done as well.
            for at, cursor in zip(self.held, self.before or (), strict=False):
                consumer.emit("release", [consumer.rings[at].ring, cursor, self.limits[0], self.index])
            self.before = None
            consumer.leave(op)


def _users(op: SpecOp) -> set[Operation]:
    return {use.operation for result in op.results for use in result.uses}
