"""Loops with two dots, one of which reads what is computed from the other: the first is prefetched by one step.

In the order of the program the tensor cores wait while exp is computed from the first dot, and registers wait
while the second one runs. Here step `j` starts the first dot of `j` and the second of `j - 1` together, and
computes on registers while the latter runs. Steps in which clips change nothing are a loop of their own, without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.mma.clipped_steps import StepLimit, end_of_whole, known_limits, whole_up_to
from tessera.backends.nvptx.mma.loops import Skew, running_reductions
from tessera.backends.nvptx.types import PartialRowsAttr, RowVectorAttr, shaped_type, spec_ops, yielded_values
from tessera.ir.tile.typed_ops import ClipOp, ForOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.mma.lower import Consumer


@frozen
class State:
    """What goes from step to step: carried values, accumulator and A operand of the second dot, kept values."""

    carried: tuple[SSAValue, ...]
    acc: SSAValue
    left: SSAValue
    kept: tuple[SSAValue, ...]
    cursors: tuple[SSAValue, ...]

    @property
    def flat(self) -> list[SSAValue]:
        return [*self.carried, self.acc, self.left, *self.kept, *self.cursors]

    def like(self, values: Sequence[SSAValue]) -> State:
        """The same of other values."""
        count, kept = len(self.carried), len(self.kept)
        others = values[count + 2 :]
        return State(
            tuple(values[:count]), values[count], values[count + 1], tuple(others[:kept]), tuple(others[kept:])
        )


class SkewedLoop:
    """The writing of one such loop."""

    def __init__(self, consumer: Consumer, op: ForOp, skew: Skew) -> None:
        self.consumer, self.op, self.skew = consumer, op, skew
        self.source = op.regions[0].block
        self.yielded = yielded_values(self.source)
        self.rings = consumer.inside(op)
        self.clipped = True
        late = set(skew.late)
        self.sums = {at: found for at, found in running_reductions(op).items() if not late & {found.last, found.scaled}}
        self.apart = {part for found in self.sums.values() for part in (found.scaled, found.reduction)}
        """Ops that are done as part of another."""

    def run(self) -> None:
        """Write the loop; one that may have no step stands in a branch."""
        consumer, op = self.consumer, self.op
        results = self._pipeline() if consumer.is_nonempty(op) else self._branch()
        count = len(op.results)
        consumer.values.update(zip(op.results, results[:count], strict=True))
        consumer.cursors.update(zip(self.rings, results[count:], strict=True))

    def _branch(self) -> Sequence[SSAValue]:
        consumer, outer = self.consumer, self.consumer.block
        given = [*consumer.of(self.op.operands[2:]), *[consumer.cursors[at] for at in self.rings]]
        body = consumer.block = Block()
        consumer.emit("yield", self._pipeline())
        consumer.block = outer
        limits = consumer.of(self.op.operands[:2])
        return consumer.emit("when", [*limits, *given], {}, [value.type for value in given], [body]).results

    def _pipeline(self) -> list[SSAValue]:
        """The first step up to its second dot, all others, and the second dot of the last."""
        consumer, values = self.consumer, self.consumer.values
        low, high = consumer.of(self.op.operands[:2])
        step = self.op.value("step")
        values[self.source.args[0]] = low
        values.update(zip(self.source.args[1:], consumer.of(self.op.operands[2:]), strict=True))
        for at in self.sums:
            type = PartialRowsAttr.of(shaped_type(self.op.operands[2 + at]).data)
            values[self.source.args[1 + at]] = consumer.emit("partial_rows", (), {}, [type]).result
        self._early(None)
        state = self._late()
        begin = consumer.index(Dim.symbol("_l") + step, {"_l": low})
        split = self._split(begin, high)
        if split is not None:
            state = self._steps(begin, split, state, clipped=False)
            begin = split
        state = self._steps(begin, high, state, clipped=True)
        self._adopt(state)
        slow = self._after(state, self._second(state))
        carried = [slow.get(at, value) for at, value in enumerate(state.carried)]
        for at in self.sums:
            type = RowVectorAttr.of(shaped_type(self.op.operands[2 + at]).data)
            carried[at] = consumer.emit("join_rows", [carried[at]], {}, [type]).result
        return [*carried, *[consumer.cursors[at] for at in self.rings]]

    def _adopt(self, state: State) -> None:
        self.consumer.values.update(zip(self.source.args[1:], state.carried, strict=True))
        self.consumer.cursors.update(zip(self.rings, state.cursors, strict=True))

    def _steps(self, low: SSAValue, high: SSAValue, state: State, clipped: bool) -> State:
        consumer = self.consumer

        def write(_: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            inner = state.like(carried)
            self._adopt(inner)
            self.clipped = clipped
            flying = self._early(lambda: self._second(inner))
            assert flying is not None
            for at, value in self._after(inner, flying).items():
                consumer.values[self.source.args[1 + at]] = value
            return self._late().flat

        made = consumer.steps(self.op, [low, high], state.flat, write)
        self.clipped = True
        return state.like(made)

    def _second(self, state: State) -> SSAValue:
        """Start the second dot of the step before."""
        self.consumer.wait_for(self.skew.second)
        return self.consumer.start(self.skew.second, self.consumer.open(state.acc), state.left)

    def _after(self, state: State, flying: SSAValue) -> dict[int, SSAValue]:
        """Wait for the second dot of the step before, and do what that step did with it: the slow values."""
        consumer, skew = self.consumer, self.skew
        total = consumer.close(flying)
        consumer.leave(skew.second.op)
        mine = {value: consumer.values[value] for value in skew.kept}
        consumer.values.update(zip(skew.kept, state.kept, strict=True))
        consumer.values[skew.second.op.results[0]] = total
        for op in skew.after:
            consumer.lower(op)
        found = {at: consumer.values[self.yielded[at]] for at in skew.slow}
        consumer.values.update(mine)
        return found

    def _early(self, between: Callable[[], SSAValue] | None) -> SSAValue | None:
        """All of a step but what reads the second dot; `between` starts that of the step before."""
        consumer, skew = self.consumer, self.skew
        flying: SSAValue | None = None
        for op in spec_ops(self.source):
            if op in skew.late or op is skew.root or op is skew.second.op or op.name == "ttile.yield":
                continue
            if op in self.apart:
                continue
            if op is skew.first.op:
                flying = self._first(between)
            elif isinstance(op, ClipOp) and (bounded := whole_up_to(op, self.source)) is not None:
                self._clip(op, bounded, is_first=between is None)
            elif (found := next((one for one in self.sums.values() if one.last is op), None)) is not None:
                operands = consumer.of([found.carried, found.factor, found.reduction.operands[0]])
                consumer.values[op.result] = consumer.emit("grow_rows", operands, {}, [operands[0].type]).result
            else:
                consumer.lower(op)
        return flying

    def _clip(self, op: ClipOp, whole: StepLimit, is_first: bool) -> None:
        """A clip where it may change something; of the first step, which often needs none, in a branch."""
        consumer, outer = self.consumer, self.consumer.block
        given = consumer.values[op.operands[0]]
        consumer.values[op.result] = given
        if is_first:
            where = {name: consumer.values[index] for name, index in whole.where.items()}
            last = consumer.index(whole.limit, where)
            body = consumer.block = Block()
            consumer.lower(op)
            consumer.emit("yield", [consumer.values[op.result]])
            consumer.block = outer
            operands = [last, consumer.values[self.source.args[0]], given]
            consumer.values[op.result] = consumer.emit("when", operands, {}, [given.type], [body]).result
        elif self.clipped:
            consumer.lower(op)

    def _first(self, between: Callable[[], SSAValue] | None) -> SSAValue | None:
        consumer, first = self.consumer, self.skew.first
        acc = consumer.open(consumer.values[first.op.operands[2]])
        consumer.wait_for(first)
        is_ordered = between is not None and self.op.value("pingpong")
        if is_ordered:
            consumer.emit("pingpong", (), {"mode": "take"})
        pending = consumer.start(first, acc, consumer.operand(first.lhs))
        flying = None if between is None else between()
        if is_ordered:
            consumer.emit("pingpong", (), {"mode": "pass"})
        consumer.values[first.op.results[0]] = consumer.close(pending, 0 if flying is None else 1)
        consumer.leave(first.op)
        return flying

    def _late(self) -> State:
        """The accumulator and the A operand of the next second dot: nothing is in flight here."""
        consumer, skew = self.consumer, self.skew
        for op in skew.before:
            consumer.lower(op)
        consumer.lower(skew.root)
        left = consumer.operand(skew.second.lhs)
        carried = [
            consumer.values[self.source.args[1 + at] if at in skew.slow else value]
            for at, value in enumerate(self.yielded)
        ]
        acc = consumer.values[skew.second.op.operands[2]]
        kept = tuple(consumer.values[value] for value in skew.kept)
        return State(tuple(carried), acc, left, kept, tuple(consumer.cursors[at] for at in self.rings))

    # Steps in which clips change nothing.

    def _split(self, begin: SSAValue, high: SSAValue) -> SSAValue | None:
        """Where the steps begin in which a clip matters; None where there is no clip to leave out."""
        consumer, step = self.consumer, self.op.value("step")
        clips = [op for op in self.source.ops if isinstance(op, ClipOp)]
        bounds = [found for op in clips if (found := whole_up_to(op, self.source)) is not None]
        limits = [found.limit for found in bounds]
        if not bounds or self._is_short(limits):
            return None
        names = {"_begin": begin, "_high": high}
        for found in bounds:
            names.update({name: consumer.values[index] for name, index in found.where.items()})
        return consumer.index(end_of_whole(Dim.symbol("_begin"), Dim.symbol("_high"), limits, step), names)

    def _is_short(self, bounds: Sequence[Dim]) -> bool:
        """Whether no more than one step is known to be without clips, which is not worth a loop of its own."""
        limits, step = known_limits(self.op), self.op.value("step")
        if limits is None:
            return False
        low, high = limits
        begin = Dim.constant(low + step)
        end = end_of_whole(begin, Dim.constant(high), bounds, step).value
        return end is not None and end - low - step <= step
