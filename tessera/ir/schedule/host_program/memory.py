"""Planning the workspace: offsets of temporaries with symbolic sizes, and the check that no two overlap.

Buffers whose lifetimes are disjoint may share bytes. With sizes that are numbers this is interval packing, and the
largest first is a good heuristic. With symbolic sizes offsets must hold for all values of the dims, so nothing can be
placed "in the gap that is left"; instead buffers share *slots*. A slot is as large as its largest buffer, which is
known only where the prover can compare them, and is `max(a, b)` otherwise; the offset of a slot is the sum of those
before it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.tape import DONATED
from tessera.ir.base.types import ValueAttr
from tessera.ir.schedule.typed_ops import (
    AliasOp,
    AllocOp,
    CallOp,
    CollectiveOp,
    ConstantOp,
    ForOp,
    FuseOp,
    IfOp,
    LayoutOp,
    ModuleOp,
    PrefetchOp,
    ReturnOp,
    TileOp,
    WhileOp,
    YieldOp,
)
from tessera.types.dim import Dim, maximum
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_most

# Which values of a program share memory: aliases, results written over an operand, and donated arguments.

ANNOTATIONS = (TileOp, LayoutOp, CollectiveOp)
"""Ops that say something of a group, and touch no memory."""
_BETWEEN = (AliasOp, AllocOp, ConstantOp, *ANNOTATIONS)
"""Ops that may be between the parts of one launch: at none of them anything runs, or ends."""


def donated_in(program: Operation) -> tuple[int, ...]:
    """The numbers of the arguments that are donated."""
    found = program.attributes.get(DONATED)
    return tuple(found.data) if isinstance(found, ValueAttr) else ()


def body_of_loop(loop: WhileOp | ForOp) -> Block:
    """The block that a loop runs in each iteration."""
    return loop.regions[-1].block


def carried_in(loop: WhileOp | ForOp) -> tuple[int, int, int]:
    """How many values a loop of a plan carries, and the numbers of the first among its operands and its body's."""
    if isinstance(loop, WhileOp):
        return len(loop.results), 0, 0
    return (loop.carried, 2, 1) if loop.length is None else (loop.carried, 0, 0)


def kept_by(loop: WhileOp | ForOp) -> list[int]:
    """The values that a loop of a plan carries and each iteration leaves in the memory where it found them."""
    (count, _, first), block = carried_in(loop), body_of_loop(loop)
    assert block.last_op is not None
    return [at for at in range(count) if root_of(block.last_op.operands[at]) is block.args[first + at]]


def writable_arguments(block: Block) -> tuple[int, ...]:
    """The numbers of a block's arguments that it may write over: donated to a program, or carried by a loop."""
    around = block.parent_op()
    if isinstance(around, ModuleOp):
        return donated_in(around)
    if isinstance(around, WhileOp | ForOp) and block is body_of_loop(around):
        count, _, first = carried_in(around)
        return tuple(range(first, first + count))
    return ()


def kept_in(program: Operation) -> tuple[tuple[int, int], ...]:
    """Pairs (result, argument): the results of a host program that are in the memory of an argument."""
    last = program.regions[0].block.last_op
    assert last is not None
    roots = ((number, root_of(value)) for number, value in enumerate(last.operands))
    return tuple((number, root.index) for number, root in roots if isinstance(root, BlockArgument))


def overwritten_by(op: Operation) -> dict[int, SSAValue]:
    """The operands that a group, or a loop, writes results over, by the number of the result."""
    found = op.in_place if isinstance(op, FuseOp | WhileOp | ForOp) else ()
    return {result: op.operands[operand] for result, operand in enumerate(found) if operand >= 0}


def root_of(value: SSAValue) -> SSAValue:
    """The value whose memory holds `value`: itself in another shape, or what it was written over."""
    while isinstance(value, OpResult):
        old = overwritten_by(value.owner).get(value.index)
        if isinstance(value.owner, AliasOp):
            value = value.owner.source
        elif old is not None:
            value = old
        else:
            break
    return value


def strip_aliases(value: SSAValue) -> SSAValue:
    """The value that this one is, in another shape."""
    while isinstance(value, OpResult) and isinstance(value.owner, AliasOp):
        value = value.owner.source
    return value


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read a value, in any shape, before it is written over; the one that does so among them."""
    yield from _readers(strip_aliases(value))


def _readers(value: SSAValue) -> Iterator[Operation]:
    for use in value.uses:
        if isinstance(use.operation, AliasOp):
            yield from _readers(use.operation.results[0])
        elif not isinstance(use.operation, ANNOTATIONS):
            yield use.operation


def enclosing_op(op: Operation, block: Block) -> Operation:
    """The op of a block that is, or holds, an op."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


_OWN = (FuseOp, PrefetchOp, IfOp, WhileOp, ForOp)
"""Ops with results in memory that nobody else has."""


def may_be_written(block: Block, value: SSAValue) -> bool:
    """Whether the memory of a value belongs to a block: made there, donated by the caller, or carried by its loop.

    What is captured from around a body stays as it is, for the next iteration or for the branch that is not taken.
    """
    root = root_of(value)
    if isinstance(root, BlockArgument):
        return root.block is block and root.index in writable_arguments(block)
    return isinstance(root.owner, _OWN) and root.owner.parent is block


def insert_frees(block: Block) -> None:
    """Put a `tsched.free` after the last use of every buffer of the workspace that the block allocates."""
    order = {op: number for number, op in enumerate(block.ops)}
    for op in list(order):
        if not isinstance(op, AllocOp) or op.output >= 0:
            continue
        last = launch_of(max(_uses(op.result, block), key=lambda user: order[user], default=op))[-1]
        free = make("tsched.free", [op.result], types=())
        if isinstance(last, ReturnOp | YieldOp):
            block.insert_op_before(free, last)
        else:
            block.insert_op_after(free, last)


def launch_of(op: Operation) -> list[Operation]:
    """The groups, or calls, that are launched together with one, itself included, in program order.

    They are in one block, with nothing but memory and annotations between them.
    """
    if not isinstance(op, FuseOp | CallOp) or op.launch < 0:
        return [op]
    sides: list[list[Operation]] = []
    for step in ("prev_op", "next_op"):
        found, other = list[Operation](), getattr(op, step)
        while isinstance(other, _BETWEEN) or (type(other) is type(op) and other.launch == op.launch):
            if type(other) is type(op):
                found.append(other)
            other = getattr(other, step)
        sides.append(found)
    return [*reversed(sides[0]), op, *sides[1]]


def _uses(value: SSAValue, block: Block) -> list[Operation]:
    """The ops of a block that use a value's memory, or hold an op that does."""
    found: list[Operation] = []
    for use in value.uses:
        op = use.operation
        if isinstance(op, ANNOTATIONS):
            continue
        # Results of these are in the memory of their operands.
        for result in op.results if isinstance(op, AliasOp | WhileOp | ForOp) else ():
            found += _uses(result, block)
        found.append(enclosing_op(op, block))
    return found


ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@frozen
class Lifetime:
    """A buffer: its bytes, and the steps of the program at which it is first and last needed, both included."""

    bytes: Dim
    start: int
    end: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass
class _Slot:
    size: Dim
    lifetimes: list[Lifetime] = field(default_factory=list[Lifetime])


@frozen
class Layout:
    """Where each buffer starts, and how many bytes there are in all."""

    offsets: tuple[Dim, ...]
    total: Dim


def align_bytes(size: Dim) -> Dim:
    """The size rounded up to whole cache lines."""
    exact = size % ALIGNMENT
    return size if exact.value == 0 else size.ceildiv(ALIGNMENT) * ALIGNMENT


def lay_out(lifetimes: Sequence[Lifetime]) -> Layout:
    """Offsets at which no two buffers that are alive at the same time overlap, for any values of the dims.

    Where all sizes are numbers, the largest buffers are placed first, each at the lowest offset that those alive at the
    same time allow. Where they are not, buffers take slots in order of their start: a free slot of their very size,
    else one known to be large enough, else one that grows to the larger of the two. A slot is never larger than all its
    buffers together, so the total is at most what it would be without reuse.
    """
    if all(lifetime.bytes.is_static for lifetime in lifetimes):
        return _pack(lifetimes)
    slots: list[_Slot] = []
    taken: dict[int, int] = {}
    for number in sorted(range(len(lifetimes)), key=lambda number: lifetimes[number].start):
        lifetime = lifetimes[number]
        size = align_bytes(lifetime.bytes)
        free = [at for at, slot in enumerate(slots) if not any(lifetime.overlaps(other) for other in slot.lifetimes)]
        at = _best(slots, free, size)
        if at is None:
            at = len(slots)
            slots.append(_Slot(size))
        slots[at].size = _larger(slots[at].size, size)
        slots[at].lifetimes.append(lifetime)
        taken[number] = at
    starts: list[Dim] = []
    total = Dim.constant(0)
    for slot in slots:
        starts.append(total)
        total = total + slot.size
    return Layout(tuple(starts[taken[number]] for number in range(len(lifetimes))), total)


def _pack(lifetimes: Sequence[Lifetime]) -> Layout:
    sizes = [align_bytes(lifetime.bytes).evaluate({}) for lifetime in lifetimes]
    starts: dict[int, int] = {}
    placed: list[tuple[int, int, int, int, int]] = []
    """By offset: that, how many were placed before, the end of the bytes, and the first and last step of the buffer."""
    for number in sorted(range(len(lifetimes)), key=lambda number: (-sizes[number], lifetimes[number].start)):
        at, size, first, last = 0, sizes[number], lifetimes[number].start, lifetimes[number].end
        for start, _, end, their_first, their_last in placed:
            if first <= their_last and their_first <= last:
                if at + size <= start:
                    break
                at = max(at, end)
        insort(placed, (at, len(placed), at + size, first, last))
        starts[number] = at
    total = max((starts[number] + sizes[number] for number in starts), default=0)
    return Layout(tuple(Dim.constant(starts[number]) for number in range(len(lifetimes))), Dim.constant(total))


def _best(slots: Sequence[_Slot], free: Sequence[int], size: Dim) -> int | None:
    def rank(at: int) -> tuple[int, int]:
        held = slots[at].size
        if held == size:
            return (0, at)
        if is_at_most(size, held):
            # The tightest of those that fit, where the difference is a number.
            return (1, (held - size).value or 0)
        return (2, at) if is_at_most(held, size) else (3, at)

    return min(free, key=rank, default=None)


def _larger(left: Dim, right: Dim) -> Dim:
    if is_at_most(left, right):
        return right
    return left if is_at_most(right, left) else maximum(left, right)
