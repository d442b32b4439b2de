"""Topologies: how the devices of ranks are linked, by which collectives are planned, and the ring that fits them.

A topology is described, never guessed: `topology_of({"nodes": 2, "devices": 8, "inside": 450.0, "between": 50.0})`.
Bandwidth is in bytes per nanosecond (GB/s), latency in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

MOST_DEVICES = 1 << 16
"""Nodes, and devices of a node, at most: a description beyond it is a mistake, and would take long to plan."""
MOST_SEARCHED = 10
"""Devices of a node among which the best path is found by trying all subsets (2**10 * 100 steps, some ms)."""


@frozen
class Link:
    """A link in one direction: `bandwidth` bytes per nanosecond, `latency` nanoseconds; whether its switch reduces."""

    bandwidth: float
    latency: float
    can_reduce: bool = False

    def time(self, bytes: float) -> float:
        """Nanoseconds of one message."""
        return self.latency + bytes / self.bandwidth


@frozen
class Topology:
    """`nodes` of `devices` each; `inside` is the link of one device, `between` that of a node, which its devices share.

    `placement` is the node of each rank (0, 0, ..., 1, 1, ... where it is empty). `peers` are pairs of devices of a
    node that are linked directly; without any, all are, through a switch.

    >>> topology = topology_of({"nodes": 2, "devices": 2, "placement": (0, 1, 0, 1)})
    >>> ring_order(topology), crossings(topology, (0, 1, 2, 3))
    ((0, 2, 1, 3), 4)
    """

    nodes: int
    devices: int
    inside: Link
    between: Link
    placement: tuple[int, ...] = ()
    peers: tuple[tuple[int, int], ...] = ()

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    @property
    def can_reduce(self) -> bool:
        """Whether switches on every path between ranks reduce what passes."""
        return self.inside.can_reduce and (self.nodes == 1 or self.between.can_reduce)

    def node(self, rank: int) -> int:
        return self.placement[rank] if self.placement else rank // self.devices

    def members(self, node: int) -> tuple[int, ...]:
        """The ranks on a node, in order; their position there is the number of their device."""
        if not self.placement:
            return tuple(range(node * self.devices, (node + 1) * self.devices))
        return tuple(rank for rank in range(self.ranks) if self.node(rank) == node)

    def are_linked(self, first: int, second: int) -> bool:
        """Whether two ranks of one node are linked directly, or by a switch."""
        if self.node(first) != self.node(second):
            return False
        if not self.peers:
            return True
        members = self.members(self.node(first))
        pair = (members.index(first), members.index(second))
        return pair in self.peers or pair[::-1] in self.peers


_KEYS = (
    "nodes",
    "devices",
    "inside",
    "between",
    "inside_latency",
    "between_latency",
    "in_network",
    "placement",
    "peers",
)
_DEFAULTS: Mapping[str, Any] = {
    # Rates of one direction as vendors give them: NVLink 4 of an H100 or H200, and one 400 Gb/s port for each device.
    "inside": 450.0,
    "between": 50.0,
    # Latencies of a step of NCCL's tuning model for NVLink and for a network.
    "inside_latency": 600.0,
    "between_latency": 5000.0,
}


def topology_of(description: Any) -> Topology:
    """The topology that a mapping describes, by the keys of `Topology` and `inside_latency`, `in_network` and so on.

    Raises ScheduleError (T0401) where it is none.
    """
    if not isinstance(description, Mapping):
        raise _error(f"a topology is {{nodes = 2, devices = 8}} and more, got {description!r}")
    given: dict[str, Any] = {str(key): value for key, value in description.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    unknown = sorted(set(given) - set(_KEYS))
    if unknown:
        raise _error(f"a topology has no `{unknown[0]}`; it has {', '.join(_KEYS)}")
    nodes, devices = (_count(given.get(name, 1), name) for name in ("nodes", "devices"))
    rates = {name: _rate(given.get(name, default), name) for name, default in _DEFAULTS.items()}
    reduces = given.get("in_network", False)
    if not isinstance(reduces, bool):
        raise _error(f"`in_network` of a topology is true or false, got {reduces!r}")
    made = Topology(
        nodes,
        devices,
        Link(rates["inside"], rates["inside_latency"], reduces),
        Link(rates["between"], rates["between_latency"], reduces),
        _read_list(given.get("placement", ()), "placement"),
        tuple(_read_list(pair, "peers") for pair in _read_list(given.get("peers", ()), "peers")),
    )
    _check_placement(made)
    return made


def _error(message: str) -> ScheduleError:
    return ScheduleError(message, span=None, fix="write `topology = {nodes = 2, devices = 8, inside = 450.0}`")


def _count(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value <= MOST_DEVICES:
        raise _error(f"`{name}` of a topology is 1 to {MOST_DEVICES}, got {value!r}")
    return value


def _read_list(value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _error(f"`{name}` of a topology is a list, got {value!r}")
    return tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _rate(value: Any, name: str) -> float:
    least = 0 if name.endswith("latency") else 1e-6
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise _error(f"`{name}` of a topology is a number from {least:g}, got {value!r}")
    return float(value)


def _check_placement(made: Topology) -> None:
    if made.placement:
        fits = len(made.placement) == made.ranks
        if not fits or any(made.placement.count(node) != made.devices for node in range(made.nodes)):
            raise _error(
                f"`placement` puts {made.devices} ranks on each of {made.nodes} nodes, got {list(made.placement)}"
            )
    for pair in made.peers:
        if len(pair) != 2 or not all(type(d) is int and 0 <= d < made.devices for d in pair) or pair[0] == pair[1]:
            raise _error(f"`peers` are pairs of two devices of 0 to {made.devices - 1}, got {pair!r}")


def crossings(topology: Topology, order: Sequence[int]) -> int:
    """How many steps of a ring go from one node to another, or between devices of a node that are not linked."""
    ring = [*order, order[0]] if len(order) > 1 else list(order)
    return sum(not topology.are_linked(first, second) for first, second in pairwise(ring))


def ring_order(topology: Topology) -> tuple[int, ...]:
    """The ranks as a ring: node after node, so that each node is entered once, and along linked devices."""
    order: list[int] = []
    for node in range(topology.nodes):
        order += _path(topology, topology.members(node), closes=topology.nodes == 1)
    return tuple(order)


def _path(topology: Topology, members: tuple[int, ...], *, closes: bool) -> tuple[int, ...]:
    """The ranks of a node in the order with the fewest steps between devices that are not linked; the first stays."""
    if not topology.peers or len(members) > MOST_SEARCHED:
        return members
    first, others = members[0], members[1:]
    # By the set of those passed and the last of them: the fewest unlinked steps, and the path (Held and Karp).
    best: dict[tuple[frozenset[int], int], tuple[int, tuple[int, ...]]] = {(frozenset(), first): (0, (first,))}
    for size in range(1, len(members)):
        for chosen in combinations(others, size):
            passed = frozenset(chosen)
            for last in chosen:
                before = [
                    (cost + (not topology.are_linked(end, last)), (*path, last))
                    for end in ((first,) if size == 1 else passed - {last})
                    for cost, path in (best[passed - {last}, end],)
                ]
                best[passed, last] = min(before)
    ends = [best[frozenset(others), last] for last in others] or [best[frozenset(), first]]
    return min((cost + (closes and not topology.are_linked(path[-1], first)), path) for cost, path in ends)[1]
