"""Loops over dots in the order of the program: a dot runs on until something reads it, beside the dots after it.

Dots of operands from shared memory are started as they come, and each is waited for as late as the program allows: of
the gradient of attention, weights are computed while the dot beside them still runs. Operands in registers are made
before anything is in flight, all that can be together (ptxas C7513). Steps in which masks change nothing are a loop of
their own, without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.mma.clipped_steps import Steps, cut_steps
from tessera.backends.nvptx.mma.loops import makers_of
from tessera.backends.nvptx.mma.plan import MmaDot
from tessera.backends.nvptx.tensor_cores import WGMMA_FORMS_TF32
from tessera.backends.nvptx.types import spec_ops, yielded_values
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.typed_ops import ClipOp, ConstantOp, ForOp

if TYPE_CHECKING:
    from tessera.backends.nvptx.mma.lower import Consumer


class OrderedLoop:
    """The writing of one such loop."""

    def __init__(self, consumer: Consumer, op: ForOp) -> None:
        self.consumer, self.op = consumer, op
        self.source = op.regions[0].block
        self.parts = spec_ops(self.source)[:-1]
        dots = [consumer.plan.dots[part] for part in self.parts if part in consumer.plan.dots]
        self.is_lazy = not any(dot.inputs or WGMMA_FORMS_TF32[dot.rhs.dtype].is_promoted for dot in dots)
        """Whether dots may stay in flight: none is added up outside of tensor cores, or of what threads read."""
        self.flying: list[tuple[SpecOp, SSAValue]] = []
        """Dots in flight, in order, with their accumulators."""
        self.starts = set[Operation]().union(*(makers_of(dot.op.operands[2], self.source) for dot in dots))
        """What makes the tiles that dots add to: done beside no dot, whose registers they may have (ptxas C7517)."""
        self.packed: dict[SpecOp, SSAValue] = {}
        self.done: set[SpecOp] = set()

    def run(self) -> None:
        """Write the loop."""
        consumer, op = self.consumer, self.op
        rings, count = consumer.inside(op), len(op.results)
        state = [*consumer.of(op.operands[2:]), *consumer.cursors_of(rings)]
        limits = consumer.of(op.operands[:2])
        pieces = cut_steps(op, (limits[0], limits[1]), consumer.values, consumer.index)
        for piece in pieces:

            def write(_: SSAValue, carried: Sequence[SSAValue], piece: Steps = piece) -> list[SSAValue]:
                consumer.values.update(zip(self.source.args[1:], carried[:count], strict=True))
                consumer.cursors.update(zip(rings, carried[count:], strict=True))
                self._step(piece.without)
                return [*consumer.of(yielded_values(self.source)), *consumer.cursors_of(rings)]

            is_nonempty = len(pieces) == 1 and consumer.is_nonempty(op)
            state = consumer.steps(op, [piece.low, piece.high], state, write, is_nonempty)
        consumer.values.update(zip(op.results, state[:count], strict=True))
        consumer.cursors.update(zip(rings, state[count:], strict=True))

    # One step.

    def _step(self, without: frozenset[SpecOp]) -> None:
        consumer = self.consumer
        self.packed, self.done = {}, set()
        # Zeros that become accumulators are there before anything is in flight.
        early = [part for part in self.parts if isinstance(part, ConstantOp)]
        for part in (*early, *(part for part in self.parts if part not in early)):
            if part in without:
                self._close_for(part.operands)
                kept = part.operands[0 if isinstance(part, ClipOp) else 1]  # what a clip or a choice keeps
                consumer.values[part.results[0]] = consumer.values[kept]
            elif self.is_lazy and part in consumer.plan.dots:
                self._start(consumer.plan.dots[part])
            else:
                is_alone = bool(part.regions) or part in self.starts
                self._close(len(self.flying)) if is_alone else self._close_for(part.operands)
                consumer.lower(part)
            self.done.add(part)
        self._close(len(self.flying))

    def _start(self, dot: MmaDot) -> None:
        """Start a dot, behind others that may be in flight."""
        consumer = self.consumer
        self._close_for(dot.op.operands)
        if dot.lhs.load is None and dot.op not in self.packed:
            self._close(len(self.flying))
            self._pack_from(dot)
        lhs = consumer.operand(dot.lhs) if dot.lhs.load is not None else self.packed[dot.op]
        acc = consumer.open(consumer.values[dot.op.operands[2]])
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
            consumer.leave(op)
