"""What ops of plans and host programs cost: flops, bytes and nanoseconds of one core, by a static model.

A group costs what its body computes, and every input read and every output written once; a copy what it reads and
writes; a collective what leaves and what reaches this rank, counted where it starts. A loop costs its bodies times its
iterations (`trips`: a number, a size, or a symbol of its own where only running tells), a branch the dearer of its
bodies, a program the sum of its ops. All other ops declare a cost of nothing: of what a callback's Python does nothing
is known, and its buffers are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.ir import Block, Operation

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule import typed_ops as tsched
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.plan import tensor_of
from tessera.ir.tile.facets import Contraction, Gather, Pointwise, Reduction, View
from tessera.types.dim import Dim, maximum, minimum, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.shape import ZERO

CLOCK = 3
"""Cycles in a nanosecond, as an order of magnitude of CPUs: estimates compare plans, they predict no stopwatch."""
BANDWIDTH = 12
"""Bytes that one core moves to or from memory in a nanosecond, as an order of magnitude."""


def cost_of(body: Tape) -> Cost:
    """Flops of all records; every input read once, as far as anything reads it, and every output written once."""
    flops, moved = ZERO, ZERO
    for record in body.records:
        flops = flops + flops_of(body, record)
    readers: dict[int, list[Record]] = {}
    for record in body.records:
        for operand in dict.fromkeys(record.operands):
            readers.setdefault(operand, []).append(record)
    for value in body.inputs:
        moved = moved + _bytes_read(body, value, readers)
    for value in body.outputs:
        moved = moved + body.types[value].bytes
    return Cost(flops, moved)


def _bytes_read(body: Tape, value: int, readers: Mapping[int, Sequence[Record]]) -> Dim:
    """Bytes of a value that are read: of one that is only sliced or gathered from, no more than what is taken of it."""
    whole, taken = body.types[value].bytes, ZERO
    for record in readers.get(value, ()):
        lower = spec_of(record).lower
        is_taken_from = isinstance(lower, View | Gather) and record.operands.index(value) == 0
        if not is_taken_from or value in body.outputs or record.operands.count(value) > 1:
            return whole
        for result in record.results:
            if result in body.outputs:
                taken = taken + body.types[result].bytes
            elif result in readers:
                taken = taken + _bytes_read(body, result, readers)
    # Of symbolic sizes it is known which is smaller where indices choose, and else it seldom is.
    is_gathered = any(isinstance(spec_of(record).lower, Gather) for record in readers.get(value, ()))
    is_known = whole.value is not None and taken.value is not None
    return minimum(whole, taken) if value in readers and (is_known or is_gathered) else whole


def flops_of(body: Tape, record: Record) -> Dim:
    """Operations of one record: by its own rule, or by the facet of its lowering; 0 where it only moves values."""
    spec = spec_of(record)
    operands = [body.types[operand] for operand in record.operands]
    results = [body.types[result] for result in record.results]
    if spec.cost is not None:
        return spec.cost(operands, results, record.attributes).flops
    lower = spec.lower
    if isinstance(lower, Pointwise):
        return results[0].size * lower.flops
    if isinstance(lower, Reduction):
        return operands[0].size
    if isinstance(lower, Contraction):
        maps = lower.maps(operands, record.attributes)
        return product((*maps.batch, *maps.m, *maps.n, *maps.k)) * 2
    return ZERO


def nanoseconds(cost: Cost, machine: Machine) -> Dim:
    """How long one core is busy: with arithmetic at two vector operations of two flops a cycle, or with memory."""
    return maximum(cost.flops // (machine.lanes * 4 * CLOCK), cost.bytes // BANDWIDTH)


# Ops of a host program, each by what is written on the ops in it, so that a sum that is wrong anywhere is found there.


@frozen
class Charge:
    """The three annotations of an op."""

    flops: Dim
    bytes: Dim
    time: Dim

    def plus(self, other: Charge) -> Charge:
        return Charge(self.flops + other.flops, self.bytes + other.bytes, self.time + other.time)

    def times(self, trips: Dim) -> Charge:
        return Charge(self.flops * trips, self.bytes * trips, self.time * trips)

    def at_most(self, other: Charge) -> Charge:
        """What neither of the two exceeds."""
        pairs = ((self.flops, other.flops), (self.bytes, other.bytes), (self.time, other.time))
        return Charge(*(maximum(*pair) for pair in pairs))


PARTS = ("flops", "bytes", "time")
NOTHING = Charge(ZERO, ZERO, ZERO)
WORKING = (tsched.FuseOp, tsched.CallOp)
"""Ops whose cost is that of the group they came from: it is written where the group is formed."""


def read_charge(op: Operation) -> Charge | None:
    """What is written on an op; None where a part is missing."""
    if not isinstance(op, SpecOp) or "flops" not in op.kinds:
        return None
    found = [op.value(name) for name in PARTS]
    return Charge(*found) if None not in found else None


def charge_of(op: SpecOp) -> Charge | None:
    """What an op costs by its types and by what is written on the ops in it; None where those say nothing."""
    if isinstance(op, WORKING):
        return read_charge(op)
    if isinstance(op, tsched.CopyOp):
        return _move(tensor_of(value).bytes for value in op.operands)
    if isinstance(op, tsched.CallbackOp):
        return _move(tensor_of(value).bytes for value in (*op.operands, *op.results))
    if isinstance(op, tsched.CollectiveStartOp):
        sent = tensor_of(op.operands[0]).bytes * (op.ranks - 1)
        return _move([sent, sent] if op.call == "all_gather" else [sent * 2 // op.ranks])
    bodies = [_sum(region.block) for region in op.regions]
    if not bodies:
        return NOTHING
    first, last = bodies[0], bodies[-1]
    trips = op.value("trips") if isinstance(op, tsched.WhileOp | tsched.ForOp) else Dim.constant(1)
    if first is None or last is None or trips is None:
        return None
    if isinstance(op, tsched.IfOp):
        # Branches by a size compute the same, and the first is the usual one.
        return first.at_most(last) if op.size is None else first
    if isinstance(op, tsched.WhileOp):
        return first.plus(last).times(trips).plus(first)  # the condition is asked once more than it holds
    return first.times(trips)


def _move(parts: Iterable[Dim]) -> Charge:
    moved = sum(parts, ZERO)
    return Charge(ZERO, moved, moved // BANDWIDTH)


def _sum(block: Block) -> Charge | None:
    total = NOTHING
    for op in block.ops:
        found = read_charge(op)
        if found is None:
            return None
        total = total.plus(found)
    return total


def check_costs(program: SpecOp) -> None:
    """Fail at the first op whose annotations are not what its types and the ops in it add up to."""
    for op in program.walk():
        # What is written on groups and calls is what they cost.
        if not isinstance(op, SpecOp) or isinstance(op, WORKING):
            continue
        if (written := read_charge(op)) is None or (found := charge_of(op)) is None:
            continue
        for name in PARTS:
            here, sum_of = getattr(written, name), getattr(found, name)
            if here != sum_of:
                op.fail(
                    f"`{op.name}` says {name} = {here}, and it takes {sum_of}",
                    "run `schedule-annotate-costs`, which writes what ops cost",
                )
