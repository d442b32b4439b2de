"""Rings of stages in shared memory: which loads share one, and how many stages each has.

Loads that one dot waits for arrive at one barrier, and so share a ring. More stages hide more latency of memory, until
shared memory is full; but where a second CTA would fit on the multiprocessor, its warps hide latency as well as stages
do, and also the epilogue. `stages_by_engine` fills memory, since kernels with a producer have a CTA for themselves;
`stages_by_threads` leaves half of it where two CTAs have registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tessera.backends.nvptx.mma.plan import CopiedOperand, Plan
from tessera.backends.nvptx.tensor_cores import ALIGNMENT, RESERVED_SHARED, SHARED_BYTES, UnfitError
from tessera.backends.nvptx.types import shaped_type
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.choices import MAX_STAGES
from tessera.ir.tile.typed_ops import ForOp
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

# Rings of a kernel: loads that a dot waits for together, kept in several stages of shared memory.


@dataclass
class Ring:
    """Loads of one block that one dot waits for together."""

    block: Block
    loads: list[CopiedOperand]
    last: SpecOp
    """The last op of the block that reads the stage: a dot, or the loop that has it inside."""

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return sum(tile_of(operand).bytes.value or 0 for operand in self.loads)

    @property
    def copied(self) -> int:
        """Bytes that are copied to a stage."""
        return sum(prod(one.box.sizes) * one.box.pieces * one.dtype.bytes for one in self.loads)

    @property
    def is_in_loop(self) -> bool:
        """Whether it is filled many times in one program."""
        return self.loop is not None

    @property
    def written(self) -> int:
        """The stages that its loop says, or its loads; 0 where nobody has chosen."""
        loop = self.loop
        if loop is not None:
            return loop.value("stages")
        return max((operand.load.value("stages") for operand in self.loads), default=0)

    @property
    def number(self) -> int:
        """The number that its loads say; -1 where nobody has chosen."""
        return self.loads[0].load.value("ring")

    @property
    def loop(self) -> SpecOp | None:
        """The loop that fills it."""
        around = self.block.parent_op()
        return around if isinstance(around, ForOp) else None


def tile_of(operand: CopiedOperand) -> TensorType:
    """The type of a loaded operand in shared memory: the axis along memory is its columns, in whole spans."""
    type = shaped_type(operand.value)
    rows = type.shape[1 - operand.box.inner]
    return type.data.with_shape([rows, Dim.of(operand.box.pieces * operand.box.sizes[-1])])


def swizzle_of(operand: CopiedOperand) -> int:
    """Bytes of the lines of a loaded operand in shared memory."""
    return operand.box.sizes[-1] * operand.dtype.bytes


def rings_of(plan: Plan) -> list[Ring]:
    """The rings of a kernel, in the order in which dots wait for them."""
    found: list[Ring] = []
    by_load: dict[SpecOp, Ring] = {}
    for dot in plan.dots.values():
        here: dict[tuple[Block, int], Ring] = {}
        for operand in dot.operands:
            if not isinstance(operand, CopiedOperand):
                continue
            block = operand.load.parent_block()
            assert block is not None
            reader = _ancestor(dot.op, block)
            if operand.load in by_load:
                by_load[operand.load].last = reader
                continue
            key = block, operand.load.value("ring")
            if key not in here:
                here[key] = Ring(block, [], reader)
                found.append(here[key])
            here[key].loads.append(operand)
            by_load[operand.load] = here[key]
    return _in_order(found)


@dataclass
class RingPlan(Ring):
    """A ring with what it became in Target IR."""

    stages: int
    tiles: list[SSAValue] = field(default_factory=list[SSAValue])
    ring: SSAValue = field(init=False)


def target_rings(plan: Plan) -> list[RingPlan]:
    """The rings of a kernel for which everything was chosen, with the stages that it says."""
    return [RingPlan(ring.block, ring.loads, ring.last, ring.written) for ring in rings_of(plan)]


def _in_order(rings: list[Ring]) -> list[Ring]:
    """Rings by the numbers that they say, others between them; raises `UnfitError` for numbers that are no order."""
    numbers = [ring.number for ring in rings if ring.number >= 0]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise UnfitError(f"loads of ring {twice} are of two blocks, or no dot waits for all of them")
    if any(number >= len(rings) for number in numbers):
        raise UnfitError(f"there are {len(rings)} rings, counted from 0, and one is said to be {max(numbers)}")
    others = iter([ring for ring in rings if ring.number < 0])
    by_number = {ring.number: ring for ring in rings}
    return [by_number[at] if at in numbers else next(others) for at in range(len(rings))]


def _ancestor(op: Operation, block: Block) -> SpecOp:
    """The op of a block that an op is, or is inside of."""
    at: Operation | None = op
    while at is not None and at.parent_block() is not block:
        at = at.parent_op()
    assert isinstance(at, SpecOp), "a dot reads what is loaded where it can see it"
    return at


# How many stages rings have: as many as shared memory holds, or as the author of a kernel asks for.

_BARRIERS = 1024
"""Bytes kept for barriers: two of eight bytes for each stage."""
_MOST_BY_THREADS = 4
"""More stages than this wait for nothing that a second CTA would not hide."""


def asked_stages(kernel: SpecOp) -> int | None:
    """Buffers of each tile that a schedule asks for, or a loop; None where neither does."""
    loops = [op.buffers for op in kernel.walk() if isinstance(op, ForOp)]
    schedule: Mapping[str, Any] = kernel.value("schedule") or {}
    return schedule.get("stages") or max(loops, default=0) or None


def written_stages(rings: Sequence[Ring]) -> int:
    """The stages that loops of rings say; raises `UnfitError` where they say different ones."""
    found = sorted({ring.written for ring in rings if ring.is_in_loop} - {0})
    if len(found) > 1:
        raise UnfitError(f"loops have {' and '.join(map(str, found))} stages, and all pipelined loops have as many")
    return found[0] if found else 0


def check_written(rings: Sequence[Ring], stages: Sequence[int], shared: int) -> None:
    """Raises `UnfitError` for rings that say more stages than fit, or fewer than their dots need."""
    for ring, found in zip(rings, stages, strict=True):
        if 0 < ring.written < found:
            raise UnfitError(f"dots stay in flight over {found} stages at least, and a loop says {ring.written}")
        if ring.written not in (0, found):
            raise UnfitError(
                f"{ring.written} stages of {ring.bytes} bytes do not fit beside all else in {shared}, and {found} do"
            )


def stages_by_engine(
    rings: Sequence[Ring], staging: int, asked: int | None = None, least: int = 2, shared: int = SHARED_BYTES
) -> list[int]:
    """As many stages as fit, alike for all rings of loops; raises `UnfitError` where two do not fit.

    A schedule that has `asked` for fewer gets them, down to the `least` that its dots need: two where one is
    always in flight, and one where loops may wait for each.

    What is loaded once for each program gets a second stage from what is left: the next program's comes early.
    """
    looped = [ring for ring in rings if ring.is_in_loop]
    still = sum(_whole(ring.bytes) for ring in rings if not ring.is_in_loop)
    free = shared - _BARRIERS - staging - still
    each = sum(_whole(ring.bytes) for ring in looped)
    wanted = MAX_STAGES if asked is None else max(least, asked)
    stages = min(wanted, MAX_STAGES, free // each if each else 1)
    if free < 0 or (looped and stages < min(wanted, 2)):
        raise UnfitError(f"two stages of {each} bytes do not fit beside {still + staging} of {shared}")
    spare = free - stages * each
    found: list[int] = []
    for ring in rings:
        is_early = not ring.is_in_loop and ring.written != 1 and _whole(ring.bytes) <= spare
        spare -= _whole(ring.bytes) if is_early else 0
        found.append(stages if ring.is_in_loop else 1 + is_early)
    return found


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def stages_by_threads(
    rings: Sequence[Ring], staging: int, machine: Machine, consumers: int, asked: int | None = None
) -> list[int]:
    """Stages that leave shared memory for a second CTA where its threads have registers, else all that fit.

    A schedule that has asked for others gets them as far as they fit, but no fewer than two.
    """
    looped = [ring for ring in rings if ring.is_in_loop]
    still = staging + sum(ring.bytes for ring in rings if not ring.is_in_loop)
    each = sum(ring.bytes for ring in looped)
    free = machine.shared
    if asked is None and consumers == 1 and still + 2 * each <= (free - RESERVED_SHARED) // 2:
        free = (free - RESERVED_SHARED) // 2
    most = _MOST_BY_THREADS if asked is None else min(MAX_STAGES, max(2, asked))
    stages = min(most, (free - still) // each if each else 1)
    if still > free or (looped and stages < 2):
        raise UnfitError(f"two stages of {each} bytes do not fit beside {still} of {machine.shared}")
    return [stages if ring.is_in_loop else 1 for ring in rings]
