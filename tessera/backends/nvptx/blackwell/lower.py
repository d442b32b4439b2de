"""Tile kernels to kernels with tensor memory: a loop that adds up one dot, copied by TMA, and its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.ampere.lower import RowsOut, WarpLowering
from tessera.backends.nvptx.mma.loops import sum_of
from tessera.backends.nvptx.mma.plan import MmaDot
from tessera.backends.nvptx.mma.rings import RingPlan, target_rings
from tessera.backends.nvptx.tensor_cores import TCGEN05_FEATURES, tmem_columns
from tessera.backends.nvptx.types import CURSOR, FragmentAttr, TensorMemoryAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, TileAttr


def lower_tensor_kernel(kernel: SpecOp) -> SpecOp:
    """The `ttarget.tensor_kernel` of a `ttile.kernel` for which everything was chosen."""
    return TensorLowering(kernel).run()


class TensorLowering(WarpLowering):
    """The lowering of one kernel."""

    def run(self) -> SpecOp:
        rings = target_rings(self.plan)
        self._memory(rings)
        order = self._order()
        producer, consumer = self._producer(rings), Summing(self, rings).role(order)
        self.emit("roles", (), {}, (), [producer, consumer])
        return self._finish("tensor_kernel", TCGEN05_FEATURES)

    def _memory(self, rings: Sequence[RingPlan]) -> None:
        super()._memory(rings)
        self._make_rings(rings)


class Summing(RowsOut):
    """The walk of the consumers: one thread starts dots, all wait for their sum and go on with it."""

    lowering: TensorLowering

    def __init__(self, lowering: TensorLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__(lowering, rings)
        self.memory: SSAValue | None = None

    def role(self, order: Mapping[str, Any]) -> Block:
        outer = self.block
        starts = [self.emit("cursor", (), {}, [CURSOR]).result for _ in self.rings]
        (dot,) = self.plan.dots.values()
        type = dot.op.results[0].type
        assert isinstance(type, TileAttr)
        columns = tmem_columns(type.shape[1].value or 0)
        self.memory = self.emit("tensor_alloc", (), {"columns": columns}, [TensorMemoryAttr.of(type.data)]).result
        grid = order["grid"]
        body = Block(arg_types=[*[INDEX] * len(grid), *[CURSOR] * len(starts)])
        self.program_ids = list(body.args[: len(grid)])
        self.cursors = dict(enumerate(body.args[len(grid) :]))
        self.block = body
        self.lower_block(self.lowering.source)
        self.emit("yield", [self.cursors[at] for at in range(len(self.rings))])
        self.block = outer
        self.emit("tiles", starts, order, (), [body])
        self.emit("tensor_dealloc", [self.memory])
        self.emit("yield")
        return outer

    def lower_for(self, op: SpecOp) -> None:
        dot = sum_of(op, self.plan, self.rings)
        assert dot is not None
        self._tensor_sum(op, dot)

    def _tensor_sum(self, op: SpecOp, dot: MmaDot) -> None:
        """Stages are left to the producer as dots get done; the whole sum is waited for once."""
        assert self.memory is not None
        rings, source, outer = self._rings(dot), op.regions[0].block, self.block
        starts = [self.cursors[at] for at in rings]
        low = self.values[op.operands[0]]
        body = Block(arg_types=[INDEX, *[CURSOR] * len(rings)])
        index, *cursors = body.args
        self.values[source.args[0]] = index
        self.cursors.update(zip(rings, cursors, strict=True))
        self.block = body
        self.wait_for(dot)
        operands = [self.operand(operand) for operand in dot.operands]
        stages = [self._cursor(operand) for operand in dot.operands]
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major}
        self.emit("tensor_mma", [self.memory, *operands, *stages, low, index], values)
        for at in rings:
            ring = self.rings[at]
            assert ring.ring is not None
            self.emit("tensor_release", [ring.ring, self.cursors[at]])
            self._advance(at, ring)
        self.emit("yield", [self.cursors[at] for at in rings])
        self.block, self.span = outer, op.span
        bounds = self.of(op.operands[:2])
        kept: dict[str, Any] = {"step": op.value("step"), "is_nonempty": True}
        made = self.emit("steps", [*bounds, *starts], kept, [CURSOR] * len(rings), [body])
        self.cursors.update(zip(rings, made.results, strict=True))
        self.emit("tensor_commit", [self.memory])
        self.emit("tensor_wait", [self.memory])
        type = self.memory.type
        assert isinstance(type, TensorMemoryAttr)
        self.values[op.results[0]] = self.emit("tensor_load", [self.memory], {}, [FragmentAttr.of(type.data)]).result
