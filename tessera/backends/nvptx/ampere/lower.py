"""Tile kernels to kernels of warps: all threads prefetch some stages, dots are `mma.sync`, nobody has a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.mma.lower import Consumer, MatrixLowering
from tessera.backends.nvptx.mma.rings import RingPlan, target_rings
from tessera.backends.nvptx.tensor_cores import MMA_SYNC_FEATURES
from tessera.backends.nvptx.types import CURSOR, FragmentAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX
from tessera.ir.tile.choices import SHARED
from tessera.ir.tile.indexing import size_expr
from tessera.types.dim import Dim
from tessera.types.dtype import f32


def lower_warp_kernel(kernel: SpecOp) -> SpecOp:
    """The `ttarget.warp_kernel` of a `ttile.kernel` for which everything was chosen."""
    return WarpLowering(kernel).run()


class WarpLowering(MatrixLowering):
    """The lowering of one kernel."""

    def run(self) -> SpecOp:
        rings = target_rings(self.plan)
        self._memory(rings)
        order = self._order()
        body = Warps(self, rings).whole(order["grid"])
        self.emit("tiles", (), order, (), [body])
        return self._finish("warp_kernel", MMA_SYNC_FEATURES, warps_n=self.kernel.value("warps_n"))

    def _memory(self, rings: Sequence[RingPlan]) -> None:
        """Shared memory for stages, and for rows on their way out."""
        self._make_tiles(rings)
        self._make_staging()


class RowsOut(Consumer):
    """A walk whose results leave in rows of 16 bytes, put together in shared memory."""

    def lower_store(self, op: SpecOp) -> None:
        if op.value("space") != SHARED:
            super().lower_store(op)
            return
        values = self._access(op, op.operands[0], 2)
        values.pop("windows")
        tile, buffer, *at = self.of(op.operands)
        assert isinstance(tile.type, FragmentAttr)
        self.emit("store_rows", [tile, self.lowering.staging[tile.type.dtype], buffer, *at], values)


class Warps(RowsOut):
    """The walk of all warps, which copy as well as compute."""

    def __init__(self, lowering: WarpLowering, rings: Sequence[RingPlan]) -> None:
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
            load, box = operand.load, operand.box
            assert load is not None
            assert box is not None
            values = self._access(load, load.result, 1)
            values.pop("windows")
            if box.inner == 0:
                values.update(axes=values["axes"][::-1], bounds=values["bounds"][::-1])
            at = [self._index_at(value, where) for value in load.operands[1:]]
            self.emit("copy_async", [tile, cursor, self.values[load.operands[0]], *at], values)

    def _index_at(self, value: SSAValue, where: Mapping[SSAValue, SSAValue]) -> SSAValue:
        """An index as it is at another step of its loop."""
        if value in where:
            return where[value]
        op = value.op if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or op.parent_block() not in [step.owner for step in where]:
            return self.values[value]
        assert op.name == "ttile.index"
        return self.emit("index", [self._index_at(part, where) for part in op.operands], op.values(), [INDEX]).result

    def _fetch(self, ring: RingPlan, at: SSAValue, high: SSAValue, cursor: SSAValue) -> None:
        """Copy a step, where there is one; its group is made in any case, so that groups count steps."""
        outer, self.block = self.block, Block()
        self._fill(ring, cursor, {ring.block.args[0]: at})
        self.emit("yield")
        outer, self.block = self.block, outer
        self.emit("when", [at, high], {}, (), [outer])
        self.emit("commit_copies")

    def _later(self, index: SSAValue, distance: int) -> SSAValue:
        if not distance:
            return index
        values = {"names": ("i",), "expr": Dim.symbol("i") + distance}
        return self.emit("index", [index], values, [INDEX]).result

    def _stage(self, cursor: SSAValue, by: int, stages: int) -> SSAValue:
        return self.emit("stage_after", [cursor], {"by": by, "stages": stages}, [CURSOR]).result if by else cursor

    # Dots.

    def lower_dot(self, op: SpecOp) -> None:
        dot = self.plan.dots[op]
        lhs = self.operand(dot.lhs)
        self._arrive(dot.op.value("awaits"))
        acc = self.values[op.operands[2]]
        assert isinstance(acc.type, FragmentAttr)
        operands = [acc, lhs, self.operand(dot.rhs), self._cursor(dot.lhs), self._cursor(dot.rhs)]
        mode = "tf32" if dot.rhs.dtype is f32 else ""
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major, "mode": mode}
        self.values[op.result] = self.emit("mma_sync", operands, values, [acc.type]).result

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

    def lower_for(self, op: SpecOp) -> None:
        inner = self.inside(op)
        before = set(self.there)
        if not inner:
            self._arrive(op.value("awaits"))
            before = set(self.there)
            self._plain_loop(op)
        else:
            self._pipeline(op, inner)
        # A loop may have no steps.
        self.there = before

    def _pipeline(self, op: SpecOp, inner: list[int]) -> None:
        """Steps that prefetch as many stages as there are, less the one that is read."""
        source, outer, step = op.regions[0].block, self.block, op.value("step")
        rings = [self.rings[at] for at in inner]
        stages = rings[0].stages
        low, high = self.of(op.operands[:2])
        for stage in range(stages - 1):
            at = self._later(low, stage * step)
            for ring in rings:
                self._fetch(ring, at, high, self._stage(self.first, stage, stages))
        starts = [*self.of(op.operands[2:]), self.first]
        body = Block(arg_types=[INDEX, *[value.type for value in starts]])
        index, *carried, cursor = body.args
        self.values.update(zip(source.args, (index, *carried), strict=True))
        self.cursors.update(dict.fromkeys(inner, cursor))
        self.block = body
        self.awaited, self.count = list(inner), len(inner)
        self.fetch = self._later(index, (stages - 1) * step), high, self._stage(cursor, stages - 1, stages)
        self.lower_block(source)
        assert not self.awaited
        last = source.last_op
        assert last is not None
        self.emit("yield", [*self.of(last.operands), self._stage(cursor, 1, stages)])
        self.block, self.span, self.fetch = outer, op.span, None
        values: dict[str, Any] = {"step": step, "is_nonempty": self.is_nonempty(op)}
        made = self.emit("steps", [low, high, *starts], values, [value.type for value in starts], [body])
        self.values.update(zip(op.results, made.results[:-1], strict=True))
