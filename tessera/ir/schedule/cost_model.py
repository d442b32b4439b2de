"""What groups cost: flops, bytes and time as functions of the dims, and the model of a contraction's blocks.

Estimates compare plans with each other; they do not predict a stopwatch. A backend whose machines need more than caches
and vector lanes to be compared has models of its own, by the same knobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, maximum, product
from tessera.types.machine import Machine

CLOCK = 3
"""Cycles in a nanosecond, as an order of magnitude of CPUs."""
BANDWIDTH = 12
"""Bytes that one core moves to or from memory in a nanosecond, as an order of magnitude."""
_TYPICAL = 512
"""What a symbolic dim is taken to be: large enough that edges do not decide."""


def cost_of(body: Tape) -> Cost:
    """Flops of all records; every input read once and every output written once."""
    flops, moved = Dim.constant(0), Dim.constant(0)
    for record in body.records:
        flops = flops + _flops(body, record)
    for value in (*body.inputs, *body.outputs):
        moved = moved + body.types[value].bytes
    return Cost(flops, moved)


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


def nanoseconds(cost: Cost, machine: Machine) -> Dim:
    """How long one core is busy: with arithmetic at two vector operations of two flops a cycle, or with memory."""
    return maximum(cost.flops // (machine.lanes * 4 * CLOCK), cost.bytes // BANDWIDTH)


def contraction_block(candidates: Sequence[Any], context: Mapping[str, Any]) -> Any:
    """The block that moves the fewest bytes per useful multiply-add, among those whose operands fit the L2 cache.

    A block of BM x BN reads `BM + BN` elements for every `BM * BN` multiply-adds; what reaches over the edges of the
    result is computed for nothing.
    """
    machine: Machine = context["machine"]
    m, n, k = (_size(context.get(name)) for name in ("m", "n", "k"))

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, BK = block
        done = _round_up(m, BM) * _round_up(n, BN) * _round_up(k, BK)
        waste = done / max(1, m * n * k)
        traffic = (BM + BN) / (BM * BN)
        resident = 4 * (BM * BK + BK * BN + BM * BN)
        return waste * (1 + 64 * traffic) * (1 if resident <= machine.l2 else resident / machine.l2)

    return min(candidates, key=cost)


def _size(dim: Any) -> int:
    value = dim.value if isinstance(dim, Dim) else None
    return _TYPICAL if value is None else max(1, value)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
