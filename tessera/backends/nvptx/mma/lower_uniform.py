"""Kernels on `wgmma` without a producer: warpgroups that multiply, one thread of which also starts their copies.

The prologue of a loop starts the copies of all stages but one. Step k waits for its stage and starts its dot; when the
dot before it is done, the stage of step k - 1 is released, and the same stage gets the copies of step k + S - 1. With
three stages, by their numbers:

    step     before the loop    0          1             2             3
    copied   0, 1               2          0 (step 3)    1 (step 4)    2 (step 5)
    read                        0          1             2             0
    released                               0             1             2

The thread that starts copies has to wait until all warpgroups have released the stage, and with it its warpgroup: that
is what a producer is for. Rings, barriers and instructions are those of kernels with roles, and so are all bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, BlockArgument, OpResult, SSAValue

from tessera.backends.nvptx.mma.loops import sum_of
from tessera.backends.nvptx.mma.lower import Consumer, MatrixLowering
from tessera.backends.nvptx.mma.plan import MmaDot, Plan
from tessera.backends.nvptx.mma.programs import is_uneven
from tessera.backends.nvptx.mma.rings import Ring, RingPlan
from tessera.ir.base.op import SpecOp


def uniform_problem(kernel: SpecOp, plan: Plan, rings: Sequence[Ring]) -> str:
    """Why a kernel on `wgmma` needs a producer, empty where it does not: what it copies is known some steps before."""
    if is_uneven(kernel):
        return "programs that take unequally long are scheduled by a producer"
    top = kernel.regions[0].block
    for ring in rings:
        loop = ring.loop
        if loop is None:
            return "an operand that is copied once for each program is copied by a producer"
        is_computed = any(dot.inputs for dot in plan.dots.values())
        if is_computed or loop.parent_block() is not top or sum_of(loop, plan, rings) is None:
            return "without a producer loops do nothing but add up one dot of operands that are copied as they are"
        if ring.written == 1:
            return "without a producer a stage is copied while another one is read, and a loop says 1"
        for operand in ring.loads:
            if not all(_is_known_early(index, loop) for index in operand.load.operands[1:]):
                return "the index of a tile is read from memory, and without a producer copies are started before that"
    dots = [op for op in plan.dots if op.parent_block() is top]
    return "a dot outside of a loop has its operands copied by a producer" if dots or not rings else ""


def _is_known_early(index: SSAValue, loop: SpecOp) -> bool:
    """Whether an index is computed from that of a loop, so that it is known for later steps too."""
    if isinstance(index, BlockArgument):
        return index.owner is not loop.regions[0].block or index.index == 0
    op = index.op if isinstance(index, OpResult) else None
    if op is None or op.parent_block() is not loop.regions[0].block:
        return True
    return op.name == "ttile.index" and all(_is_known_early(part, loop) for part in op.operands)


class Warpgroups(Consumer):
    """The walk of warpgroups that copy for themselves: each ring once as it is read, and once more as it is filled."""

    def __init__(self, lowering: MatrixLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__(lowering, [*rings, *rings])

    def emit_sum(self, op: SpecOp, dot: MmaDot) -> None:
        """A stage is released one step after it was read, and then filled for all steps but one later."""
        both = self.rings_of(dot)
        reads, fills = both[: len(both) // 2], both[len(both) // 2 :]
        low, high = self.of(op.operands[:2])
        distance = op.value("stages") - 1
        for stage in range(distance):
            self._fetch(op, self.later(low, stage * op.value("step")), high, fills)

        def write(index: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            acc, *cursors = carried
            before = cursors[len(both) :]
            self.cursors.update(zip(both, cursors[: len(both)], strict=True))
            pending = self.issue(dot, acc)
            self.emit("mma_wait", (), {"left": 1})
            for ring, cursor in zip(reads, before, strict=True):
                self.emit("release", [self.rings[ring].ring, cursor, low, index])
            # Behind the release: the thread that copies waits for this stage, and it would be its own to release.
            self._fetch(op, self.later(index, distance * op.value("step")), high, fills)
            # What this step reads is released by the next one, or after the loop.
            read = self.cursors_of(reads)
            for ring in reads:
                self.advance(ring)
            return [pending, *self.cursors_of(both), *read]

        starts = [self.open(self.values[op.operands[2]]), *self.cursors_of(both), *self.cursors_of(reads)]
        total, *cursors = self.steps(op, [low, high], starts, write, self.is_nonempty(op))
        self.cursors.update(zip(both, cursors[: len(both)], strict=True))
        self.values[op.results[0]] = self.close(total)
        for ring, cursor in zip(reads, cursors[len(both) :], strict=True):
            self.emit("release", [self.rings[ring].ring, cursor])

    def _fetch(self, op: SpecOp, index: SSAValue, high: SSAValue, fills: Sequence[int]) -> None:
        """Start the copies of a step, where there is one, and go on to the next stage."""
        outer, given = self.block, self.cursors_of(fills)
        body = self.block = Block()
        for at in fills:
            self.block = Block()
            self.emit_at("acquire", at)
            self.copy_stage(self.rings[at], self.cursors[at], {op.regions[0].block.args[0]: index})
            self.emit("yield")
            copies, self.block = self.block, body
            self.emit("elect", (), {}, (), [copies])
            self.advance(at)
        self.emit("yield", self.cursors_of(fills))
        self.block = outer
        made = self.emit("when", [index, high, *given], {}, [cursor.type for cursor in given], [body])
        self.cursors.update(zip(fills, made.results, strict=True))


class UniformLowering(MatrixLowering):
    """The lowering of a kernel whose warpgroups all do the same."""

    def write_warps(self, rings: Sequence[RingPlan]) -> None:
        self.emit("uniform", (), {}, (), [Warpgroups(self, rings).role(self.order())])
