"""Tile kernels to kernels with tensor memory: one sum of products, copied by the copy engine, and its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.ampere_lower import RowsOut, WarpLowering
from tessera.backends.nvptx.matrix_lower import asked_stages, stored_dtypes
from tessera.backends.nvptx.matrix_memory import RingPlan, Room, choose_stages, rings_of
from tessera.backends.nvptx.matrix_plan import Plan, Product, UnfitError, Units, check_machine, plan_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, TileAttr
from tessera.ir.target.blackwell_limits import ALLOCATION, FEATURES, PRODUCTS, ROWS, WIDEST, columns_for
from tessera.ir.target.blackwell_types import TensorMemoryAttr
from tessera.ir.target.hopper_limits import ROWS as WARPGROUP_ROWS
from tessera.ir.target.hopper_limits import SPAN
from tessera.ir.target.hopper_types import CURSOR, FragmentAttr
from tessera.types.machine import Machine

_ONE_GROUP = 128
"""Columns that one warpgroup has registers for; more are shared by two."""


def _groups(rows: int, columns: Sequence[int]) -> int:
    if rows != ROWS or len(columns) != 1 or columns[0] % 16 or columns[0] > WIDEST:
        raise UnfitError(
            f"tensor memory takes one product of {ROWS} rows by columns in 16s up to {WIDEST}, "
            f"got {rows} by {', '.join(map(str, columns))}"
        )
    return 1 if columns[0] <= _ONE_GROUP else 2


TENSORS = Units("tcgen05", PRODUCTS, _groups)
"""Matrix units that sum in tensor memory."""


def lower_tensor_kernel(kernel: SpecOp, machine: Machine) -> SpecOp:
    """The `ttarget.tensor_kernel` of a `ttile.kernel`; raises `UnfitError` where it has to run in another way."""
    check_machine(machine, FEATURES)
    return TensorLowering(kernel, plan_of(kernel, TENSORS), machine).run()


class TensorLowering(WarpLowering):
    """The lowering of one kernel."""

    def __init__(self, kernel: SpecOp, plan: Plan, machine: Machine) -> None:
        super().__init__(kernel, plan, machine)
        self.allocation = 0
        """Where in shared memory the address of tensor memory is."""

    def run(self) -> SpecOp:
        if self._is_uneven():
            raise UnfitError("programs that take unequally long are handed out as CTAs get done, and these are not")
        rings, room = rings_of(self.plan), Room()
        self._place(rings, room)
        order = self._order()
        producer, consumer = self._producer(rings), Summing(self, rings).role(order)
        self.emit("roles", (), {}, (), [producer, consumer])
        return self._finish("tensor_kernel", FEATURES, room)

    def _place(self, rings: Sequence[RingPlan], room: Room) -> None:
        dtypes, rows = stored_dtypes(self.rows_out), WARPGROUP_ROWS * self.plan.consumers
        choose_stages(rings, rows * SPAN * len(dtypes), asked_stages(self.kernel))
        if any(not ring.is_turning for ring in rings):
            raise UnfitError("a side that is copied once has no stages to turn")
        self._place_tiles(rings, room)
        self._place_staging(dtypes, room, rows, 1)
        self._place_rings(rings, room)
        self.allocation = room.take(ALLOCATION, 8)


class Summing(RowsOut):
    """The walk of the consumers: one thread starts products, all wait for their sum and go on with it."""

    lowering: TensorLowering

    def __init__(self, lowering: TensorLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__(lowering, rings)
        self.allocation = lowering.allocation
        self.memory: SSAValue | None = None

    def role(self, order: Mapping[str, Any]) -> Block:
        outer = self.block
        starts = [self.emit("cursor", (), {}, [CURSOR]).result for _ in self.rings]
        (product,) = self.plan.products.values()
        type = product.op.results[0].type
        assert isinstance(type, TileAttr)
        columns = columns_for(type.shape[1].value or 0)
        values = {"columns": columns, "offset": self.allocation}
        self.memory = self.emit("tensor_alloc", (), values, [TensorMemoryAttr.of(type.data)]).result
        grid = order["grid"]
        body = Block(arg_types=[*[INDEX] * len(grid), *[CURSOR] * len(starts)])
        self.places = list(body.args[: len(grid)])
        self.cursors = dict(enumerate(body.args[len(grid) :]))
        self.block = body
        self.walk(self.lowering.source)
        self.emit("yield", [self.cursors[at] for at in range(len(self.rings))])
        self.block = outer
        self.emit("tiles", starts, order, (), [body])
        self.emit("tensor_dealloc", [self.memory])
        self.emit("yield")
        return outer

    def _dot(self, op: SpecOp) -> None:
        raise UnfitError("a product outside of a sum has nothing to overlap with in tensor memory")

    def _loop(self, op: SpecOp) -> None:
        product = self._sum_of(op)
        if product is None or not _is_zero(op.operands[2]):
            raise UnfitError("tensor memory takes loops that add up one product from nothing")
        self._tensor_sum(op, product)

    def _tensor_sum(self, op: SpecOp, product: Product) -> None:
        """Stages are left to the producer as products get done; the whole sum is waited for once."""
        assert self.memory is not None
        rings, source, outer = self._rings(product), op.regions[0].block, self.block
        starts = [self.cursors[at] for at in rings]
        low = self.values[op.operands[0]]
        body = Block(arg_types=[INDEX, *[CURSOR] * len(rings)])
        index, *places = body.args
        self.values[source.args[0]] = index
        self.cursors.update(zip(rings, places, strict=True))
        self.block = body
        self.wait_for(product)
        sides = [self.side(side) for side in product.sides]
        stages = [self._cursor(side) for side in product.sides]
        values = {"lhs_major": product.lhs.major, "rhs_major": product.rhs.major}
        self.emit("tensor_mma", [self.memory, *sides, *stages, low, index], values)
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


def _is_zero(value: SSAValue) -> bool:
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, SpecOp) and op.name == "ttile.constant" and op.value("value") == 0
