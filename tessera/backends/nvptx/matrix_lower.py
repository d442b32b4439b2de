"""Tile kernels to matrix kernels: memory and rings, a producer sliced out of the program, consumers for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.backends.nvptx.kernel_code import matrix_symbol
from tessera.backends.nvptx.matrix_consumer import Consumer
from tessera.backends.nvptx.matrix_memory import RingPlan, Room, choose_stages, rings_of, staging_bytes, tile_of
from tessera.backends.nvptx.matrix_plan import Box, Plan, Side, UnfitError, box_of, check_machine, plan_of
from tessera.backends.nvptx.matrix_rest import rest_of
from tessera.backends.nvptx.matrix_roles import Producer
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.hopper_limits import ALIGNMENT, ROWS, SPAN
from tessera.ir.target.hopper_types import RING, TENSOR_MAP, SharedAttr
from tessera.ir.target.ops.hopper_kernel import FEATURES, MAILBOX
from tessera.ir.target.reach import fits, largest
from tessera.ir.target.writer import Writer
from tessera.ir.tile.passes.fold_powers import fold_powers, narrowed_powers
from tessera.types.dim import Dim
from tessera.types.dim import product as product_of
from tessera.types.dtype import DType, bf16, f16
from tessera.types.machine import Machine
from tessera.types.tensor_type import TensorType

_REGISTERS: dict[int, tuple[int, ...]] = {1: (), 2: (40, 232), 3: (24, 160)}
"""Registers of a producer's and a consumer's thread, by the number of consumers."""
_TURNING = (24, 240)
"""The same where two products turn in one loop: sums of both are live."""
PAIRS = ("model", "always", "never")
"""Whether two CTAs share what both read (`matrix.pair`)."""
LAGS = (2, 0, 1, 3)
"""By how many quarters of a ring the last consumer of a sum is behind the first (`matrix.lag`)."""
EPILOGUES = ("beside", "after")
"""When a program does what follows its products: beside those of the next one, or at once (`matrix.epilogue`)."""
_WAVES = 8
"""Programs of each CTA from which pairs are faster, as measured on an H200: they start and end together."""
_GROUP = 16
"""Rows of blocks that run together, so that a wave reads few rows and few columns."""


def lower_matrix_kernel(
    kernel: SpecOp, machine: Machine, *, pairs: str = "never", lag: int = 0, epilogue: str = "beside"
) -> SpecOp:
    """The `ttarget.matrix_kernel` of a `ttile.kernel`; raises `UnfitError` where it has to run in another way."""
    check_machine(machine, FEATURES)
    if narrowed_powers(kernel):
        kernel = kernel.clone()
        fold_powers(kernel)
    return MatrixLowering(kernel, plan_of(kernel), pairs, lag, epilogue, machine.blocks, machine.l2).run()


class MatrixLowering(Writer):
    """The lowering of one kernel."""

    def __init__(
        self,
        kernel: SpecOp,
        plan: Plan,
        pairs: str = "never",
        lag: int = 0,
        epilogue: str = "",
        blocks: int = 0,
        l2: int = 0,
    ) -> None:
        super().__init__()
        self.kernel, self.plan = kernel, plan
        self.source = kernel.regions[0].block
        self.block = self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.maps: dict[tuple[SSAValue, tuple[int, ...]], SSAValue] = {}
        self.staging: dict[DType, SSAValue] = {}
        self.pairs, self.lag, self.blocks, self.l2 = pairs, lag, blocks, l2
        self.is_pair = self._is_pair()
        self.stores = {op: box for op in self._stores() if (box := _box_out(op)) is not None}
        self.rest = rest_of(self, blocks) if epilogue == EPILOGUES[0] else None

    def _stores(self) -> list[SpecOp]:
        return [op for op in self.kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.store"]

    def run(self) -> SpecOp:
        rings = rings_of(self.plan)
        room = Room()
        self._memory(rings, room)
        producer, consumer = self._producer(rings), self._consumer(rings)
        self.emit("roles", (), {}, (), [producer, consumer])
        return self._finish("matrix_kernel", FEATURES, room, registers=self._registers(), pair=self.is_pair)

    def _finish(self, kind: str, features: Sequence[str], room: Room, **more: Any) -> SpecOp:
        """The kernel of what was emitted."""
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbols", "writes", "grid")}
        values.update(
            symbol=matrix_symbol(self.kernel.value("symbol")),
            features=tuple(features),
            consumers=self.plan.consumers,
            shared=room.top,
            **more,
        )
        return make(DIALECT[kind], values=values, types=(), regions=[self.entry])

    def is_inside(self, index: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile of a size that begins at an index never reaches a bound."""
        grid = self.kernel.value("grid")
        expr = _expr_of(index)
        if expr is None or bound.value == -1 or not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(expr, {f"%p{axis}": extent - 1 for axis, extent in enumerate(grid)})
        return top is not None and fits(top, size, bound)

    def _registers(self) -> tuple[int, ...]:
        is_turning = self.plan.consumers == 2 and len(self.plan.products) > 1
        return _TURNING if is_turning else _REGISTERS[self.plan.consumers]

    def _memory(self, rings: Sequence[RingPlan], room: Room) -> None:
        dtypes = stored_dtypes(self.stores)
        choose_stages(rings, staging_bytes(self.plan.consumers) * len(dtypes), asked_stages(self.kernel))
        self._place_tiles(rings, room)
        self._place_staging(dtypes, room, ROWS, 2 * self.plan.consumers)
        self.mailbox = room.take(MAILBOX, 8) if self._is_uneven() else -1
        self._place_rings(rings, room)
        for op, box in self.stores.items():
            self.map_of(op.operands[1], box)

    def _place_tiles(self, rings: Sequence[RingPlan], room: Room) -> None:
        """Shared memory for what is copied, stage after stage."""
        for ring in rings:
            for side in ring.loads:
                type = tile_of(side)
                offset = room.take((type.bytes.value or 0) * ring.stages, ALIGNMENT)
                values = {"offset": offset, "stages": ring.stages}
                ring.tiles.append(self.emit("shared_tile", (), values, [SharedAttr.of(type)]).result)

    def _place_staging(self, dtypes: Sequence[DType], room: Room, rows: int, stages: int) -> None:
        """Shared memory for rows on their way out."""
        for dtype in dtypes:
            type = TensorType.of([rows, SPAN // dtype.bytes], dtype)
            values = {"offset": room.take(rows * SPAN * stages, ALIGNMENT), "stages": stages}
            self.staging[dtype] = self.emit("shared_tile", (), values, [SharedAttr.of(type)]).result

    def _place_rings(self, rings: Sequence[RingPlan], room: Room) -> None:
        """Barriers of stages, and maps of what is copied to them."""
        for ring in rings:
            copied = ring.copied if ring.copied < ring.bytes else 0
            values = {"offset": room.take(16 * ring.stages, 8), "stages": ring.stages, "bytes": copied}
            ring.ring = self.emit("ring", ring.tiles, values, [RING]).result
            for side in ring.loads:
                assert side.load is not None
                assert side.box is not None
                self.map_of(side.load.operands[0], self.half_of(side)[1])

    def _is_pair(self) -> bool:
        """Whether two CTAs take programs of neighbouring rows, whose right side both read."""
        grid: Sequence[Dim] = self.kernel.value("grid")
        if self.pairs == "model" and (product_of(grid).value or 0) < _WAVES * self.blocks:
            return False
        if self.pairs == "never" or len(self.plan.products) != 1 or self._is_uneven() or "group" not in self._order():
            return False
        (product,) = self.plan.products.values()
        if any(dim.value is None for dim in grid) or (grid[-2].value or 1) % 2 or product.rhs.box is None:
            return False
        return product.rhs.box.pieces % 2 == 0 if product.rhs.major == "mn" else _columns_of(product.op) % 16 == 0

    def half_of(self, side: Side) -> tuple[str, Box]:
        """What a CTA copies half of for both of its pair, and the box it copies."""
        box = side.box
        assert box is not None
        if not self.is_pair or all(side.load is not product.rhs.load for product in self.plan.products.values()):
            return "", box
        if side.major == "mn":
            return "pieces", box
        outer = [max(1, size // 2) for size in box.sizes[:-1]]
        return "rows", Box(box.inner, (*outer, box.sizes[-1]), box.pieces)

    def map_of(self, buffer: SSAValue, box: Box) -> SSAValue:
        """The tensor map of a buffer for boxes of a size."""
        key = (buffer, box.sizes)
        if key not in self.maps:
            made = self.emit("tensor_map", [self.values[buffer]], {"box": box.sizes}, [TENSOR_MAP])
            self.maps[key] = made.result
        return self.maps[key]

    def _is_uneven(self) -> bool:
        """Whether programs further along the last axis take longer: such tiles are handed out as CTAs get done."""
        last = len(self.kernel.value("grid")) - 1
        return any(last in _axes_of(op.operands[1]) for op in self.kernel.walk() if op.name == "ttile.for")

    def _order(self) -> dict[str, Any]:
        """In what order programs are taken: blocks that share what they read together, the longest first."""
        grid = self.kernel.value("grid")
        last = len(grid) - 1
        values: dict[str, Any] = {"grid": grid}
        if self._is_uneven():
            return {**values, "group": self._group(), "is_descending": True, "mailbox": self.mailbox}
        for product in self.plan.products.values():
            left, right = (_axes_of_load(side.load) for side in product.sides)
            if last in right - left and last - 1 in left - right:
                return {**values, "group": _GROUP}
        return values

    def _group(self) -> int:
        """Places of the last axis but one that run together: as many as have what loops read in the second cache."""
        grid = self.kernel.value("grid")
        share = 0.0
        for side in (side for product in self.plan.products.values() for side in product.sides):
            if side.load is None or side.load.parent_block() is self.source:
                continue
            buffer = side.load.operands[0].type
            assert isinstance(buffer, BufferAttr)
            places = product_of(grid[axis] for axis in _axes_of_load(side.load) if axis < len(grid) - 1)
            if buffer.data.bytes.value is None or not places.value:
                return _GROUP
            share += buffer.data.bytes.value / places.value
        group = _GROUP
        while group > 1 and group * share > self.l2:
            group //= 2
        return group

    def _producer(self, rings: Sequence[RingPlan]) -> Block:
        return Producer(self, rings).role(self._order())

    def _consumer(self, rings: Sequence[RingPlan]) -> Block:
        return Consumer(self, rings).role(self._order())


def asked_stages(kernel: SpecOp) -> int | None:
    """Buffers of each tile that a schedule asks for, or a loop; None where neither does."""
    loops = [op.value("buffers") for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
    schedule: Mapping[str, Any] = kernel.value("schedule") or {}
    return schedule.get("stages") or max(loops, default=0) or None


def stored_dtypes(stores: Iterable[SpecOp]) -> list[DType]:
    """The dtypes of tiles that stores take, by name."""
    types = [op.operands[0].type for op in stores]
    return sorted({type.dtype for type in types if isinstance(type, TileAttr)}, key=lambda dtype: dtype.name)


def _box_out(op: SpecOp) -> Box | None:
    """The boxes of a store that the copy engine can make; None for one element by element."""
    try:
        box = box_of(op, op.operands[0], 2)
    except UnfitError:
        return None
    type = op.operands[0].type
    assert isinstance(type, TileAttr)
    is_staged = type.dtype in (bf16, f16) or type.dtype.bytes == 4
    if box.inner != 1 or op.value("mode") != "set" or not is_staged:
        return None
    # Each consumer stores 64 rows at a time.
    rows = [size if size == 1 else ROWS for size in box.sizes[:-1]]
    return Box(1, (*rows, box.sizes[-1]), box.pieces)


def _columns_of(op: SpecOp) -> int:
    type = op.results[0].type
    assert isinstance(type, TileAttr)
    return type.shape[1].value or 0


def _expr_of(index: SSAValue) -> Dim | None:
    """An index over sizes and places in the grid; None for one that a loop or memory gives."""
    op = index.op if isinstance(index, OpResult) else None
    if not isinstance(op, SpecOp):
        return None
    if op.name == "ttile.program_id":
        return Dim.symbol(f"%p{op.value('axis')}")
    parts = {name: _expr_of(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
    known = {name: part for name, part in parts.items() if part is not None}
    return op.value("expr").substitute(known) if len(known) == len(parts) else None


def _axes_of_load(load: SpecOp | None) -> set[int]:
    return set() if load is None else set[int]().union(*(_axes_of(value) for value in load.operands[1:]))


def _axes_of(index: SSAValue) -> set[int]:
    """The axes of the grid that an index depends on."""
    if isinstance(index, BlockArgument) or not isinstance(index, OpResult):
        return set()
    op: Operation = index.op
    if isinstance(op, SpecOp) and op.name == "ttile.program_id":
        return {op.value("axis")}
    return set[int]().union(*(_axes_of(value) for value in op.operands))
