"""Contractions beside collectives: along which rows both go in chunks, and in how many that pays.

A rank's rows are `local`. What is gathered, or is to be scattered, has those of all ranks one after the other: a chunk
of it has the rows of the chunk of every rank. A chunk of what is not has rows one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.build import tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.cut_axes import cut_axes
from tessera.ir.graph.sharding.insertion import Costs
from tessera.types.frozen import frozen

CHUNKS = (1, 2, 4, 8, 16)
"""How many chunks there may be."""

LEAST_GAIN = 0.9
"""A model's time in chunks must be less than so much of that in one piece: it leaves out what kernels cost to start."""


@frozen
class Rows:
    """Rows of `ranks` ranks, `local` of each, one rank after the other; one rank where a value has its own alone."""

    ranks: int
    local: int


@frozen
class OverlapFacts:
    """What a model looks at: bytes that a rank sends before and after, operations, and bytes joined at the end."""

    received: float
    sent: float
    operations: float
    joined: float


@frozen
class Source:
    """Where an operand of a contraction comes from: a collective, or chunks that are there, of the rows of `ranks`."""

    operand: int
    op: SpecOp | None
    ranks: int


@frozen
class ChunkedContraction:
    """A contraction that can be computed in chunks along an axis of its result, and of its operands, or None.

    `target` is the collective that its result goes to. `rows` are those of the contraction, `after` those of what the
    target gives.
    """

    axis: int
    axes: tuple[int | None, ...]
    source: Source | None
    target: SpecOp | None
    rows: Rows
    after: Rows
    facts: OverlapFacts


Known = Callable[[SSAValue], "tuple[int, int] | None"]
"""The axis and ranks of a value that is there in chunks already."""


def find_chunks(op: SpecOp, known: Known) -> ChunkedContraction | None:
    """How a contraction goes in chunks with a collective in front of it, one behind it, or both; None where neither."""
    if len(op.results) != 1 or any(not dim.is_static for value in (*op.operands, *op.results) for dim in _dims(value)):
        return None
    target = _target_of(op)
    axes = range(tensor_value(op.results[0]).rank)
    wanted = axes if target is None or "dim" not in target.kinds else [int(target.value("dim")) % len(axes)]
    read = {axis: found for axis in wanted if (found := cut_axes(op, axis)) is not None}
    sources = [
        (axis, source)
        for axis, own in read.items()
        for number, cut in enumerate(own)
        if cut is not None and (source := _source_of(op.operands[number], number, cut, known)) is not None
    ]
    for axis, source in (*sources, *((axis, None) for axis in read if target is not None)):
        found = _combine(op, axis, read[axis], source, target)
        if found is not None:
            return found
    return None


def _dims(value: SSAValue) -> Sequence[Any]:
    return tensor_value(value).shape


def _ranks_of(op: SpecOp) -> int:
    return int(op.value("size")[0].value or 1)


def _target_of(op: SpecOp) -> SpecOp | None:
    """The collective that is all that reads a contraction."""
    uses = list(op.results[0].uses)
    user = uses[0].operation if len(uses) == 1 else None
    if not isinstance(user, SpecOp) or user.parent is not op.parent:
        return None
    is_known = user.spec.short_name in ("all_gather", "reduce_scatter", "all_reduce")
    return user if is_known and _ranks_of(user) > 1 else None


def _source_of(value: SSAValue, number: int, axis: int, known: Known) -> Source | None:
    """The collective along an axis that an operand comes from, or the chunks that one was split into."""
    held = known(value)
    if held is not None:
        return Source(number, None, held[1]) if held[0] == axis else None
    op = value.owner
    if not isinstance(op, SpecOp) or op.spec.short_name not in ("all_gather", "reduce_scatter"):
        return None
    if _ranks_of(op) == 1 or int(op.value("dim")) % len(_dims(value)) != axis:
        return None
    return Source(number, op, _ranks_of(op) if op.spec.short_name == "all_gather" else 1)


def _combine(
    op: SpecOp, axis: int, read: Sequence[int | None], source: Source | None, target: SpecOp | None
) -> ChunkedContraction | None:
    """Both ends together, where the rows of a chunk are the same for both."""
    size = tensor_value(op.results[0]).shape[axis].value or 0
    name = "" if target is None else target.spec.short_name
    ranks = 1 if source is None else source.ranks
    if target is not None and name == "reduce_scatter":
        if source is not None and ranks != _ranks_of(target):
            return None  # rows of other ranks, or of one, are not those that are scattered
        ranks = _ranks_of(target)
    if name == "all_gather" and ranks > 1:
        target, name = None, ""
    rows = Rows(ranks, size // ranks)
    if rows.local < 2 or rows.local % 2:
        return None
    after = rows
    if target is not None and name != "all_reduce":
        after = Rows(_ranks_of(target) if name == "all_gather" else 1, rows.local)
    facts = _facts_of(op, None if source is None else source.op, target, after)
    return ChunkedContraction(axis, tuple(read), source, target, rows, after, facts)


def _facts_of(op: SpecOp, source: SpecOp | None, target: SpecOp | None, after: Rows) -> OverlapFacts:
    operands, results = ([tensor_value(value) for value in own] for own in (op.operands, op.results))
    assert op.spec.cost is not None
    operations = float(op.spec.cost(operands, results, op.values()).flops.value or 0)
    given = results[0] if target is None else tensor_value(target.results[0])
    return OverlapFacts(_sent_by(source), _sent_by(target), operations, float(given.bytes.value or 0))


def _sent_by(op: SpecOp | None) -> float:
    """Bytes that a rank sends in a collective."""
    if op is None:
        return 0.0
    ranks, own = _ranks_of(op), float(tensor_value(op.operands[0]).bytes.value or 0)
    match op.spec.short_name:
        case "all_gather":
            return own * (ranks - 1)
        case "reduce_scatter":
            return own * (ranks - 1) / ranks
        case _:
            return 2 * own * (ranks - 1) / ranks


# How many chunks pay.


def time_in_chunks(facts: OverlapFacts, count: int, costs: Costs) -> float:
    """Nanoseconds of a contraction with its collectives in chunks: one link and one unit that computes, side by side.

    What comes in is exchanged first, in order; a chunk is computed when it is there, and then goes out.
    """

    def exchange(bytes: float) -> float:
        return costs.latency + bytes / count / costs.bandwidth if bytes else 0.0

    link = computed = 0.0
    arrivals: list[float] = []
    for _ in range(count):
        link += exchange(facts.received)
        arrivals.append(link)
    for arrival in arrivals:
        computed = max(computed, arrival) + facts.operations / count / costs.flops
        link = max(link, computed) + exchange(facts.sent)
    joined = 2 * facts.joined / costs.memory if count > 1 else 0.0
    return max(link, computed) + joined


def choose_chunks(candidates: Sequence[int], context: Mapping[str, Any], costs: Costs | None = None) -> int:
    """The number of chunks of least time by the model; 1 where no other is clearly faster."""
    facts: OverlapFacts = context["overlap"]
    times = {one: time_in_chunks(facts, one, costs or Costs()) for one in candidates}
    best = min(times, key=lambda one: (times[one], one))
    return best if times[best] < LEAST_GAIN * times[1] else 1
