"""What a group costs, as functions of the dims: operations of its ops, bytes of what it reads and leaves."""

from __future__ import annotations

from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, maximum, product
from tessera.types.machine import Machine


def cost_of(body: Tape) -> Cost:
    """Operations of all records; every input read once and every output written once."""
    flops, moved = Dim.constant(0), Dim.constant(0)
    for record in body.records:
        flops = flops + _flops(body, record)
    for value in (*body.inputs, *body.outputs):
        moved = moved + body.types[value].bytes
    return Cost(flops, moved)


CLOCK = 3
"""Cycles of a nanosecond, as an order of magnitude: estimates compare plans, they do not predict a stopwatch."""

STREAM = 12
"""Bytes that one core moves to or from memory in a nanosecond."""


def nanoseconds(cost: Cost, machine: Machine) -> Dim:
    """How long one core is busy: with arithmetic at two vector operations of two flops a cycle, or with memory."""
    return maximum(cost.flops // (machine.lanes * 4 * CLOCK), cost.bytes // STREAM)


def _flops(body: Tape, record: Record) -> Dim:
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
    return Dim.constant(0)
