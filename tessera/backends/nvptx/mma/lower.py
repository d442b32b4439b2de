"""Tile kernels to matrix kernels: memory and rings, a producer sliced out of the program, consumers for all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.dialect import DIALECT
from tessera.backends.nvptx.mma.boxes import staged_rows, stored_dtypes, stores_in
from tessera.backends.nvptx.mma.consumer import Consumer, Producer
from tessera.backends.nvptx.mma.fit import units_in
from tessera.backends.nvptx.mma.plan import MmaOperand, read_plan
from tessera.backends.nvptx.mma.programs import epilogue_of
from tessera.backends.nvptx.mma.rings import RingPlan, swizzle_of, target_rings, tile_of
from tessera.backends.nvptx.mma.target_kernels import UNPLACED
from tessera.backends.nvptx.tensor_cores import SPAN, WGMMA_FEATURES
from tessera.backends.nvptx.text import matrix_symbol
from tessera.backends.nvptx.types import RING, SharedAttr
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.target.limits import fits, largest
from tessera.ir.tile.choices import BESIDE, DYNAMIC, SHARED
from tessera.ir.tile.lower_to_target import Writer
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType


def lower_matrix_kernel(kernel: SpecOp) -> SpecOp:
    """The `ttarget.matrix_kernel` of a `ttile.kernel` for which everything was chosen."""
    return MatrixLowering(kernel).run()


class MatrixLowering(Writer):
    """The lowering of one kernel for which everything was chosen: its attributes say what it does."""

    def __init__(self, kernel: SpecOp) -> None:
        super().__init__()
        self.kernel, self.plan = kernel, read_plan(kernel)
        self.source = kernel.regions[0].block
        self.block = self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.staging: dict[DType, SSAValue] = {}
        self.mailbox = UNPLACED if kernel.value("scheduler") == DYNAMIC else -1
        self.stores = [op for op in stores_in(kernel) if op.value("space") == SHARED]
        self.epilogue = epilogue_of(kernel, self.plan, self.stores) if kernel.value("epilogue") == BESIDE else None

    def run(self) -> SpecOp:
        rings = target_rings(self.plan)
        self._memory(rings)
        producer, consumer = self._producer(rings), self._consumer(rings)
        self.emit("roles", (), {}, (), [producer, consumer])
        return self._finish(
            "matrix_kernel",
            WGMMA_FEATURES,
            registers=self.kernel.value("registers"),
            multicast=self.kernel.value("multicast"),
        )

    def _finish(self, kind: str, features: Sequence[str], **more: Any) -> SpecOp:
        """The kernel of what was emitted."""
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbols", "writes", "grid")}
        values.update(
            symbol=matrix_symbol(self.kernel.value("symbol")),
            features=tuple(features),
            consumers=self.plan.consumers,
            **more,
        )
        made = make(DIALECT[kind], values=values, types=(), regions=[self.entry])
        assert isinstance(made, SpecOp)
        return made

    def is_inside(self, index: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile of a size that begins at an index never reaches a bound."""
        grid = self.kernel.value("grid")
        expr = _expr_of(index)
        if expr is None or bound.value == -1 or not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(expr, {f"%p{axis}": extent - 1 for axis, extent in enumerate(grid)})
        return top is not None and fits(top, size, bound)

    def _memory(self, rings: Sequence[RingPlan]) -> None:
        self._make_tiles(rings)
        self._make_staging()
        self._make_rings(rings)

    def _make_tiles(self, rings: Sequence[RingPlan]) -> None:
        """Shared memory for what is copied, stage after stage."""
        for ring in rings:
            for operand in ring.loads:
                values = {"stages": ring.stages, "swizzle": swizzle_of(operand)}
                ring.tiles.append(self.emit("shared_tile", (), values, [SharedAttr.of(tile_of(operand))]).result)

    def _make_staging(self) -> None:
        """Shared memory for rows to store."""
        units = units_in(self.kernel)
        assert units is not None
        rows, stages = staged_rows(units, self.plan.consumers)
        for dtype in stored_dtypes(self.stores):
            type = TensorType.of([rows, SPAN // dtype.bytes], dtype)
            made = self.emit("shared_tile", (), {"stages": stages}, [SharedAttr.of(type)])
            self.staging[dtype] = made.result

    def _make_rings(self, rings: Sequence[RingPlan]) -> None:
        """Barriers of stages."""
        for ring in rings:
            copied = ring.copied if ring.copied < ring.bytes else 0
            values = {"stages": ring.stages, "bytes": copied}
            ring.ring = self.emit("ring", ring.tiles, values, [RING]).result

    def half_of(self, operand: MmaOperand) -> tuple[str, tuple[int, ...]]:
        """What a CTA copies half of for both of its pair, and the box it copies."""
        box = operand.box
        assert box is not None
        if not self.kernel.value("multicast") or all(
            operand.load is not dot.rhs.load for dot in self.plan.dots.values()
        ):
            return "", box.sizes
        if operand.major == "mn":
            return "pieces", box.sizes
        outer = [max(1, size // 2) for size in box.sizes[:-1]]
        return "rows", (*outer, box.sizes[-1])

    def _order(self) -> dict[str, Any]:
        """In what order programs are taken."""
        values = {name: self.kernel.value(name) for name in ("grid", "group")}
        return {**values, "is_descending": self.kernel.value("descending"), "mailbox": self.mailbox}

    def _producer(self, rings: Sequence[RingPlan]) -> Block:
        return Producer(self, rings).role(self._order())

    def _consumer(self, rings: Sequence[RingPlan]) -> Block:
        return Consumer(self, rings).role(self._order())


def _expr_of(index: SSAValue) -> Dim | None:
    """An index over sizes and program ids; None for one that depends on a loop or on memory."""
    op = index.op if isinstance(index, OpResult) else None
    if not isinstance(op, SpecOp):
        return None
    if op.name == "ttile.program_id":
        return Dim.symbol(f"%p{op.value('axis')}")
    parts = {name: _expr_of(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
    known = {name: part for name, part in parts.items() if part is not None}
    return op.value("expr").substitute(known) if len(known) == len(parts) else None
