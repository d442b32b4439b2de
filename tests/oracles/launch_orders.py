"""Launch orders taken apart: fewest edges, one edge or wait less, longest paths, and the log of a plan of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tessera.ir.schedule.host_program.accesses import ByteRange
from tessera.ir.schedule.host_program.launch_order import BEGIN, LaunchOrder, StreamPlan
from tessera.runtime.timeline import Bytes, Entry, Launch, Signal, Wait


def reduce_order(order: LaunchOrder) -> LaunchOrder:
    """The transitive reduction: the same order with the fewest edges."""
    before = order.before()
    kept = {
        (first, second)
        for first, second in order.edges
        if not any(before[second] >> between & 1 and before[between] >> first & 1 for between in range(len(before)))
    }
    return LaunchOrder(order.nodes, frozenset(kept))


def without_edge(order: LaunchOrder, edge: tuple[int, int]) -> LaunchOrder:
    """The same without an edge."""
    return LaunchOrder(order.nodes, order.edges - {edge})


def critical_path(order: LaunchOrder) -> tuple[int, ...]:
    """The longest path through the launches."""
    launches = order.launches()
    depths = launches.depths()
    found: list[int] = []
    nodes = range(len(depths))
    while True:
        last = [at for at in nodes if not found or (at, found[-1]) in launches.edges]
        if not last:
            return tuple(reversed(found))
        found.append(max(last, key=depths.__getitem__))


def is_sequential(order: LaunchOrder) -> bool:
    """Whether each launch waits for the one before it."""
    launches = order.launches()
    return all((at, at + 1) in launches.edges for at in range(len(launches.nodes) - 1))


def without_wait(plan: StreamPlan, node: int, wait: int) -> StreamPlan:
    """A plan without a wait of a launch."""
    steps = [
        replace(step, waits=tuple(n for n in step.waits if (step.node.number, n) != (node, wait)))
        for step in plan.steps
    ]
    return replace(plan, steps=tuple(steps))


def log_of(plan: StreamPlan, sizes: Mapping[str, int]) -> Iterator[Entry]:
    """The entries of a launch log: waits, launches with the addresses they touch for these sizes, and signals."""
    bases: dict[str, int] = {}
    if plan.begins:
        yield Signal(BEGIN, 0)
    for step in plan.steps:
        yield from (Wait(number, step.stream) for number in step.waits)
        reads, writes = (_addresses(ranges, sizes, bases) for ranges in (step.node.reads, step.node.writes))
        yield Launch(str(step.node), step.stream, reads, writes)
        if step.signals:
            yield Signal(step.node.number, step.stream)
    yield from (Wait(number, 0) for number in plan.joins)


def _addresses(ranges: Sequence[ByteRange], sizes: Mapping[str, int], bases: dict[str, int]) -> tuple[Bytes, ...]:
    found: list[Bytes] = []
    for one in ranges:
        base = bases.setdefault(one.memory, len(bases) << 48)
        found.append((base + one.start.evaluate(sizes), base + one.end.evaluate(sizes)))
    return tuple(found)
