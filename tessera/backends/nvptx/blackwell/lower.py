"""Tile kernels to kernels with tensor memory: a loop that adds up one dot, copied by TMA, and its epilogue.

One thread issues all dots, and their completion, not a thread, arrives at the empty barrier of a stage. Accumulators
stay in tensor memory until the loop ends: consumers have their registers for the epilogue alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx.ampere.lower import RowsOut
from tessera.backends.nvptx.mma.loops import sum_of
from tessera.backends.nvptx.mma.lower import MatrixLowering, Producer
from tessera.backends.nvptx.tensor_cores import TCGEN05_FEATURES, tmem_columns
from tessera.backends.nvptx.types import FragmentAttr, TensorMemoryAttr, shaped_type

if TYPE_CHECKING:
    from tessera.ir.tile import typed_ops as tile_ops


class TensorConsumer(RowsOut):
    """The walk of the consumers: one thread starts dots, all wait for their accumulators and go on with them."""

    memory: SSAValue

    def begin(self, starts: Sequence[SSAValue]) -> None:
        (dot,) = self.plan.dots.values()
        type = shaped_type(dot.op.results[0])
        values = {"columns": tmem_columns(type.sizes[1])}
        self.memory = self.emit("tensor_alloc", (), values, [TensorMemoryAttr.of(type.data)]).result

    def end(self) -> None:
        self.emit("tensor_dealloc", [self.memory])

    def lower_for(self, op: tile_ops.ForOp) -> None:
        """Stages are released to the producer as dots get done; all of them are waited for once."""
        dot = sum_of(op, self.plan, self.rings)
        assert dot is not None
        rings, limits = self.rings_of(dot), self.of(op.operands[:2])

        def write(index: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            self.cursors.update(zip(rings, carried, strict=True))
            self.wait_for(dot)
            sides = dot.lhs, dot.rhs
            operands = [*map(self.operand, sides), *map(self._cursor, sides)]
            values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major}
            self.emit("tensor_mma", [self.memory, *operands, limits[0], index], values)
            for at in rings:
                self.emit_at("tensor_release", at)
                self.advance(at)
            return self.cursors_of(rings)

        made = self.steps(op, limits, self.cursors_of(rings), write, is_nonempty=True)
        self.cursors.update(zip(rings, made, strict=True))
        self.emit("tensor_commit", [self.memory])
        self.emit("tensor_wait", [self.memory])
        type = FragmentAttr.of(shaped_type(self.memory).data)
        self.values[op.results[0]] = self.emit("tensor_load", [self.memory], {}, [type]).result


class TensorLowering(MatrixLowering):
    """The lowering of one kernel."""

    kind = "tensor_kernel"
    features = TCGEN05_FEATURES
    kept = ()
    roles = (Producer, TensorConsumer)
