"""Rings of a kernel: loads that a product waits for together, kept in several stages of shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.matrix.plan import Plan, Side, UnfitError
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType


@dataclass
class Ring:
    """Loads of one block that one product waits for together."""

    block: Block
    loads: list[Side]
    last: SpecOp
    """The last op of the block that reads the stage: a product, or the loop that has it inside."""

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return sum(tile_of(side).bytes.value or 0 for side in self.loads)

    @property
    def copied(self) -> int:
        """Bytes that are copied to a stage."""
        boxes = [(side.box, side.dtype.bytes) for side in self.loads if side.box is not None]
        return sum(prod(box.sizes) * box.pieces * each for box, each in boxes)

    @property
    def is_turning(self) -> bool:
        """Whether it is filled many times in one program."""
        return self.loop is not None

    @property
    def written(self) -> int:
        """The stages that its loop says, or its loads; 0 where nobody has chosen."""
        loop = self.loop
        if loop is not None:
            return loop.value("stages")
        return max((side.load.value("stages") for side in self.loads if side.load is not None), default=0)

    @property
    def number(self) -> int:
        """The number that its loads say; -1 where nobody has chosen."""
        load = self.loads[0].load
        return -1 if load is None else load.value("ring")

    @property
    def loop(self) -> SpecOp | None:
        """The loop that it turns in."""
        around = self.block.parent_op()
        return around if isinstance(around, SpecOp) and around.name == "ttile.for" else None


def tile_of(side: Side) -> TensorType:
    """The type of a loaded side in shared memory: the axis along memory is its columns, in whole spans."""
    assert side.box is not None
    type = side.value.type
    assert isinstance(type, TileAttr)
    rows = type.shape[1 - side.box.inner]
    return type.data.with_shape([rows, Dim.of(side.box.pieces * side.box.sizes[-1])])


def swizzle_of(side: Side) -> int:
    """Bytes of the lines of a loaded side in shared memory."""
    assert side.box is not None
    return side.box.sizes[-1] * side.dtype.bytes


def rings_of(plan: Plan) -> list[Ring]:
    """The rings of a kernel, in the order in which products wait for them."""
    found: list[Ring] = []
    by_load: dict[SpecOp, Ring] = {}
    for product in plan.products.values():
        here: dict[tuple[Block, int], Ring] = {}
        for side in product.sides:
            if side.load is None:
                continue
            block = side.load.parent_block()
            assert block is not None
            reader = _ancestor(product.op, block)
            if side.load in by_load:
                by_load[side.load].last = reader
                continue
            key = block, side.load.value("ring")
            if key not in here:
                here[key] = Ring(block, [], reader)
                found.append(here[key])
            here[key].loads.append(side)
            by_load[side.load] = here[key]
    return _in_order(found)


def _in_order(rings: list[Ring]) -> list[Ring]:
    """Rings by the numbers that they say, others between them; raises `UnfitError` for numbers that are no order."""
    said = [ring.number for ring in rings if ring.number >= 0]
    twice = next((number for number in said if said.count(number) > 1), None)
    if twice is not None:
        raise UnfitError(f"loads of ring {twice} are of two blocks, or no product waits for all of them")
    if any(number >= len(rings) for number in said):
        raise UnfitError(f"there are {len(rings)} rings, counted from 0, and one is said to be {max(said)}")
    others = iter([ring for ring in rings if ring.number < 0])
    by_number = {ring.number: ring for ring in rings}
    return [by_number[at] if at in said else next(others) for at in range(len(rings))]


def is_within(op: Operation, loop: SpecOp) -> bool:
    """Whether an op is in the body of another."""
    at = op.parent_op()
    while at is not None and at is not loop:
        at = at.parent_op()
    return at is loop


def _ancestor(op: Operation, block: Block) -> SpecOp:
    """The op of a block that an op is, or is inside of."""
    at: Operation | None = op
    while at is not None and at.parent_block() is not block:
        at = at.parent_op()
    assert isinstance(at, SpecOp), "a product reads what is loaded where it can see it"
    return at
