"""Shared memory of a matrix kernel: which loads share a ring, how many stages rings have, and where all of it lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from tessera.backends.nvptx.matrix_plan import Plan, Side, UnfitError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.hopper_limits import ALIGNMENT, MAX_STAGES, ROWS, SHARED_BYTES, SPAN
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType

_BARRIERS = 1024
"""Bytes kept for barriers: two of eight bytes for each stage."""


@dataclass
class RingPlan:
    """Loads of one block that one product waits for together."""

    block: Block
    loads: list[Side]
    last: SpecOp
    """The last op of the block that reads the stage: a product, or the loop that has it inside."""
    stages: int = 1
    tiles: list[SSAValue] = field(default_factory=list[SSAValue])
    ring: SSAValue | None = None

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
        return self.block.parent_op() is not None and self.block.parent_op().name == "ttile.for"  # type: ignore[union-attr]


def tile_of(side: Side) -> TensorType:
    """The type of a loaded side in shared memory: the axis along memory is its columns, in whole spans."""
    assert side.box is not None
    type = side.value.type
    assert isinstance(type, TileAttr)
    rows = type.shape[1 - side.box.inner]
    return type.data.with_shape([rows, Dim.of(side.box.pieces * SPAN // type.dtype.bytes)])


def rings_of(plan: Plan) -> list[RingPlan]:
    """The rings of a kernel, in the order in which products wait for them."""
    found: list[RingPlan] = []
    by_load: dict[SpecOp, RingPlan] = {}
    for product in plan.products.values():
        here: dict[Block, RingPlan] = {}
        for side in product.sides:
            if side.load is None:
                continue
            block = side.load.parent_block()
            assert block is not None
            reader = _ancestor(product.op, block)
            if side.load in by_load:
                by_load[side.load].last = reader
                continue
            if block not in here:
                here[block] = RingPlan(block, [], reader)
                found.append(here[block])
            here[block].loads.append(side)
            by_load[side.load] = here[block]
    return found


def _ancestor(op: Operation, block: Block) -> SpecOp:
    """The op of a block that an op is, or is inside of."""
    at: Operation | None = op
    while at is not None and at.parent_block() is not block:
        at = at.parent_op()
    assert isinstance(at, SpecOp), "a product reads what is loaded where it can see it"
    return at


@dataclass
class Room:
    """Shared memory being given out, from the start."""

    top: int = 0

    def take(self, size: int, alignment: int) -> int:
        """Where the next part begins."""
        start = -(-self.top // alignment) * alignment
        self.top = start + size
        return start


def staging_bytes(consumers: int) -> int:
    """Two boxes of 64 rows for each consumer on their way out."""
    return 2 * consumers * ROWS * SPAN


def choose_stages(rings: Sequence[RingPlan], staging: int, asked: int | None = None) -> None:
    """As many stages as there is room for, alike for all rings that turn; raises `UnfitError` where two do not fit.

    A schedule that has `asked` for fewer gets them, down to the two that a product in flight needs.

    What is loaded once for each program gets a second stage from what is left: the next program's comes early.
    """
    turning = [ring for ring in rings if ring.is_turning]
    still = sum(_whole(ring.bytes) for ring in rings if not ring.is_turning)
    room = SHARED_BYTES - _BARRIERS - staging - still
    each = sum(_whole(ring.bytes) for ring in turning)
    stages = min(MAX_STAGES if asked is None else max(2, asked), MAX_STAGES, room // each if each else 1)
    if room < 0 or (turning and stages < 2):
        raise UnfitError(f"two stages of {each} bytes do not fit beside {still + staging} of {SHARED_BYTES}")
    for ring in turning:
        ring.stages = stages
    spare = room - stages * each
    for ring in rings:
        if not ring.is_turning and _whole(ring.bytes) <= spare:
            ring.stages, spare = 2, spare - _whole(ring.bytes)


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def blocks_of(block: Block) -> Iterator[Block]:
    """A block, and all blocks inside it."""
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from blocks_of(region.block)
