"""Tile kernels to kernels of warps: all threads prefetch some stages, dots are `mma.sync`, nobody has a role.

This is software pipelining by `cp.async`: the prologue copies all stages but one; each step waits for its own, starts
the copy of a later one into the stage that the step before has read, and multiplies. Threads can only count groups of
copies, so every step commits one for each ring, even where it copies nothing: then `all but n groups` always means the
same step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.mma.lower import Consumer, MatrixLowering
from tessera.backends.nvptx.mma.rings import RingPlan
from tessera.backends.nvptx.tensor_cores import MMA_SYNC_FEATURES
from tessera.backends.nvptx.types import CURSOR, yielded_values
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX
from tessera.ir.tile.indexing import size_expr
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.ir.tile import typed_ops as tile_ops


class RowsOut(Consumer):
    """A walk whose results leave in rows of 16 bytes, put together in shared memory."""

    def store_shared(self, op: SpecOp, tile: SSAValue, to: Sequence[SSAValue], values: Mapping[str, Any]) -> None:
        self.emit("store_rows", [tile, *to], values)


class Warps(RowsOut):
    """The walk of all warps, which copy as well as compute."""

    def __init__(self, lowering: MatrixLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__(lowering, rings)
        self.there: set[int] = set()
        """Rings whose stage was waited for."""
        self.awaited: list[int] = []
        """The rings of the loop at hand that are still to be waited for in this iteration."""
        self.count = 0
        """How many rings that loop has."""
        self.fetch: tuple[SSAValue, SSAValue, SSAValue] | None = None
        """The step that is copied in an iteration, where steps end, and the stage it goes to."""

    def whole(self, grid: Sequence[Dim]) -> Block:
        """The block of one program."""
        body = Block(arg_types=[INDEX] * len(grid))
        self.program_ids = list(body.args)
        self.block = body
        self.first = self.emit("cursor", (), {}, [CURSOR]).result
        self.cursors = dict.fromkeys(range(len(self.rings)), self.first)
        self.lower_block(self.lowering.source)
        self.emit("yield")
        return body

    def lower(self, op: SpecOp) -> None:
        for ring in self.rings:
            if op is ring.loads[-1].load and ring.block is self.lowering.source:
                self._fill(ring, self.first, {})
                self.emit("commit_copies")
        super().lower(op)

    # Copies.

    def _fill(self, ring: RingPlan, cursor: SSAValue, where: Mapping[SSAValue, SSAValue]) -> None:
        """Copies of one step into a stage; `where` says at which step."""
        for operand, tile in zip(ring.loads, ring.tiles, strict=True):
            load = operand.load
            values = self._access(load, load.result, 1)
            if operand.box.inner == 0:
                values.update(axes=values["axes"][::-1], bounds=values["bounds"][::-1])
            at = [self.index_at(value, where) for value in load.operands[1:]]
            self.emit("copy_async", [tile, cursor, self.values[load.operands[0]], *at], values)

    def _fetch(self, ring: RingPlan, at: SSAValue, high: SSAValue, cursor: SSAValue) -> None:
        """Copy a step, where there is one; its group is made in any case, so that groups count steps."""
        outer, self.block = self.block, Block()
        self._fill(ring, cursor, {ring.block.args[0]: at})
        self.emit("yield")
        outer, self.block = self.block, outer
        self.emit("when", [at, high], {}, (), [outer])
        self.emit("commit_copies")

    def _stage(self, cursor: SSAValue, by: int, stages: int) -> SSAValue:
        return self.emit("stage_after", [cursor], {"by": by, "stages": stages}, [CURSOR]).result if by else cursor

    # Dots.

    def lower_dot(self, op: tile_ops.DotOp) -> None:
        dot = self.plan.dots[op]
        lhs = self.operand(dot.lhs)
        self._arrive(dot.op.value("awaits"))
        self.values[op.result] = self.start(dot, self.values[op.operands[2]], lhs, "mma_sync")

    def _arrive(self, rings: Sequence[int]) -> None:
        """Wait for what a dot reads; a wait for a step of the loop has waited for all that came before it."""
        wanted = [at for at in rings if at not in self.there]
        for at in [at for at in wanted if at in self.awaited]:
            assert self.awaited[0] == at
            assert self.fetch is not None
            ring = self.rings[at]
            self.emit("wait_copies", (), {"left": (ring.stages - 1) * self.count - 1})
            self._fetch(ring, *self.fetch)
            self.awaited.pop(0)
            self.there.add(at)
            self.there.update(other for other, ring in enumerate(self.rings) if ring.block is self.lowering.source)
        if any(at not in self.there for at in wanted):
            self.emit("wait_copies", (), {"left": 0})
            self.there.update(wanted)

    # Loops.

    def is_nonempty(self, op: SpecOp) -> bool:
        """Whether a loop has a step for sure: these kernels run on operands of any size, empty ones too."""
        low, high = (size_expr(value) for value in op.operands[:2])
        length = None if low is None or high is None else (high - low).value
        return length is not None and length > 0

    def lower_for(self, op: tile_ops.ForOp) -> None:
        inner = self.inside(op)
        before = set(self.there)
        if not inner:
            self._arrive(op.awaits)
            before = set(self.there)
            self.plain_loop(op, len(op.results), self.is_nonempty(op))
        else:
            self._pipeline(op, inner)
        # A loop may have no steps.
        self.there = before

    def _pipeline(self, op: SpecOp, inner: list[int]) -> None:
        """Steps that prefetch as many stages as there are, less the one that is read."""
        source, step = op.regions[0].block, op.value("step")
        rings = [self.rings[at] for at in inner]
        stages = rings[0].stages
        low, high = self.of(op.operands[:2])
        for stage in range(stages - 1):
            at = self.later(low, stage * step)
            for ring in rings:
                self._fetch(ring, at, high, self._stage(self.first, stage, stages))

        def write(index: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            *values, cursor = carried
            self.values.update(zip(source.args[1:], values, strict=True))
            self.cursors.update(dict.fromkeys(inner, cursor))
            self.awaited, self.count = list(inner), len(inner)
            self.fetch = self.later(index, (stages - 1) * step), high, self._stage(cursor, stages - 1, stages)
            self.lower_block(source)
            assert not self.awaited
            return [*self.of(yielded_values(source)), self._stage(cursor, 1, stages)]

        made = self.steps(op, [low, high], [*self.of(op.operands[2:]), self.first], write, self.is_nonempty(op))
        self.fetch = None
        self.values.update(zip(op.results, made[:-1], strict=True))


class WarpLowering(MatrixLowering):
    """The lowering of one kernel."""

    kind = "warp_kernel"
    features = MMA_SYNC_FEATURES
    kept = ("warps_n",)

    def write_program(self, rings: Sequence[RingPlan]) -> None:
        order = self.order()
        self.emit("tiles", (), order, (), [Warps(self, rings).whole(order["grid"])])
