"""Which values a backward part takes from the forward part, and which it rematerializes: a minimum cut.

Each value has a price, what it costs to keep it. A value is *available* where it is kept, or can be rematerialized from
values that are. The cheapest kept values that make all needed ones available are the minimum cut of a network in which
a value is an edge of its price, what cannot be rematerialized hangs on the source, and what is needed on the sink. Of
all minimum cuts the one nearest to what is needed is taken: it rematerializes the least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf

from tessera.types.dim import Dim
from tessera.types.frozen import frozen

USUAL = 256
"""What a dim counts whose size is not known."""


@frozen
class Value:
    """What it costs to keep a value, what it is computed from, and whether it may be rematerialized."""

    price: float
    operands: tuple[int, ...] = ()
    can_recompute: bool = False


def estimate(size: Dim) -> int:
    """A size, with what is usual for dims that are not known."""
    return size.evaluate(dict.fromkeys(size.symbols, USUAL))


def choose_kept(values: Mapping[int, Value], needed: Collection[int]) -> set[int]:
    """The cheapest values to keep so that all needed ones are available; raises ValueError where none are enough."""
    network = _Network()
    numbers = {value: number for number, value in enumerate(_behind(values, needed))}
    source, sink = -1, -2
    for value, number in numbers.items():
        known = values[value]
        network.add(2 * number, 2 * number + 1, known.price)
        if not known.can_recompute:
            network.add(source, 2 * number, inf)
        for operand in known.operands if known.can_recompute else ():
            network.add(2 * numbers[operand] + 1, 2 * number, inf)
        if value in needed:
            network.add(2 * number + 1, sink, inf)
    if not network.saturate(source, sink):
        raise ValueError("some value is needed that can be neither kept nor rematerialized")
    near = network.reaching(sink)
    return {value for value, number in numbers.items() if 2 * number not in near and 2 * number + 1 in near}


def _behind(values: Mapping[int, Value], needed: Collection[int]) -> list[int]:
    """The needed values and all that they could be rematerialized from."""
    found = dict.fromkeys(needed)
    pending = list(found)
    while pending:
        known = values[pending.pop()]
        for operand in known.operands if known.can_recompute else ():
            if operand not in found:
                found[operand] = None
                pending.append(operand)
    return list(found)


class _Network:
    """A flow network; `saturate` is Dinic's: shortest augmenting paths, all of one length at a time."""

    def __init__(self) -> None:
        self.targets: list[int] = []
        self.capacity: list[float] = []
        """What is left of each edge; the edge that takes flow back has the next number."""
        self.edges: dict[int, list[int]] = {}

    def add(self, start: int, end: int, capacity: float) -> None:
        for node, target, amount in ((start, end, capacity), (end, start, 0)):
            self.edges.setdefault(node, []).append(len(self.targets))
            self.targets.append(target)
            self.capacity.append(amount)

    def saturate(self, source: int, sink: int) -> bool:
        """Let flow what can; False where there is no end to it."""
        while sink in (levels := self._levels(source)):
            open_edges = {node: iter(self.edges[node]) for node in levels}
            while path := self._path(source, sink, levels, open_edges):
                amount = min(self.capacity[edge] for edge in path)
                if amount == inf:
                    return False
                for edge in path:
                    self.capacity[edge] -= amount
                    self.capacity[edge ^ 1] += amount
        return True

    def _levels(self, source: int) -> dict[int, int]:
        """How many edges with something left each node is away from the source."""
        levels, pending = {source: 0}, [source]
        for node in pending:
            for edge in self.edges.get(node, ()):
                if self.capacity[edge] > 0 and self.targets[edge] not in levels:
                    levels[self.targets[edge]] = levels[node] + 1
                    pending.append(self.targets[edge])
        return levels

    def _path(
        self, source: int, sink: int, levels: Mapping[int, int], open_edges: Mapping[int, Iterator[int]]
    ) -> list[int]:
        """Edges from source to sink, each one level on; none where there is no such path any more.

        An edge that leads nowhere is not looked at again: `open_edges` go on where they were left.
        """
        path: list[int] = []
        node = source
        while node != sink:
            for edge in open_edges[node]:
                target = self.targets[edge]
                if self.capacity[edge] > 0 and levels.get(target) == levels[node] + 1:
                    path.append(edge)
                    node = target
                    break
            else:
                if not path:
                    return []
                node = self.targets[path.pop() ^ 1]
        return path

    def reaching(self, sink: int) -> set[int]:
        """The nodes from which something more could flow to the sink."""
        found, pending = {sink}, [sink]
        for node in pending:
            for edge in self.edges.get(node, ()):
                if self.capacity[edge ^ 1] > 0 and self.targets[edge] not in found:
                    found.add(self.targets[edge])
                    pending.append(self.targets[edge])
        return found
