"""Plans of collectives: what each algorithm moves over which links, how long that takes, and which one to take.

Times are of the alpha-beta model: a message takes the latency of its link and its bytes over the bandwidth. For `p`
ranks and `n` bytes (of the reduced, the gathered, or a rank's exchanged tensor), on one node:

- `ring`: p - 1 steps of n/p bytes from neighbour to neighbour, twice for all_reduce. Least bytes, most steps.
- `tree`: whole messages up and down a binary tree, log2(p) levels each. Fewest steps, most bytes.
- `direct`: each rank exchanges parts with each other one, and reduces what it gets in rank order: bits do not depend on
  who comes first, nor on the topology. What programs run today.
- `hierarchical`: within nodes first, so that links between nodes, which the devices of a node share, carry each byte
  once.
- `in_network`: switches reduce and multicast, so that a rank sends and receives each byte once. Their order is not
  fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, log2, prod

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.ops.mesh import ALGORITHMS
from tessera.types.frozen import frozen
from tessera.types.topology import Link, Topology, crossings, ring_order

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
REDUCING = ("all_reduce", "reduce_scatter")
ORDERED = ("direct",)
"""Algorithms that reduce in rank order on every topology, so that bits stay."""
WIRE_BYTES: Mapping[str, int] = {"off": 0, "": 0, "bf16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@frozen
class Plan:
    """One collective on a topology: its algorithm, steps (`hops`), bytes that each rank sends, and nanoseconds.

    `crossing` is how many bytes the busiest link between nodes carries in one direction; `order` is the ring, where
    there is one.
    """

    call: str
    algorithm: str
    ranks: int
    bytes: int
    hops: int
    sent: float
    crossing: float
    time: float
    order: tuple[int, ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether its result has the same bits on every topology."""
        return self.call not in REDUCING or self.algorithm in ORDERED

    def render(self) -> str:
        """The plan in a line, and the order of its ring in another."""
        text = (
            f"{self.call} of {self.bytes} bytes over {self.ranks} ranks: algo = {self.algorithm}, hops = {self.hops}, "
        )
        text += f"bytes = {self.sent:.0f} from each rank, {self.crossing:.0f} between nodes, time = {self.time:.0f} ns"
        return text + (f"\n  ring = {' -> '.join(map(str, self.order))}" if self.order else "")

    def attributes(self) -> dict[str, str]:
        """What a `tsched.collective` says of it."""
        return {"pattern": self.call, "algo": self.algorithm}


def plan_collective(
    call: str, bytes: int, topology: Topology, *, ranks: int = 0, deterministic: bool = False, algorithm: str = ""
) -> Plan:
    """The fastest plan, or that of one `algorithm`; under `deterministic`, of those that reduce in rank order.

    `ranks` is how many devices take part, node after node; all of them where it is 0.
    Raises ScheduleError (T0401) where there is no such plan.
    """
    found = candidate_plans(call, bytes, topology, ranks=ranks)
    wanted = [plan for plan in found if algorithm in ("", plan.algorithm) and (plan.is_ordered or not deterministic)]
    if not wanted:
        why = f"`{algorithm}` has no `{call}` here" if algorithm else f"no algorithm has `{call}` here"
        raise ScheduleError(
            f"{why}: there are {', '.join(plan.algorithm for plan in found)}"
            + (", of which `direct` alone reduces in rank order" if deterministic else ""),
            span=None,
            fix=f'write `algo = "{found[0].algorithm}"`',
        )
    return wanted[0]


def candidate_plans(call: str, bytes: int, topology: Topology, *, ranks: int = 0) -> list[Plan]:
    """The plans of all algorithms that a topology has for a collective, the fastest first."""
    if call not in CALLS or bytes < 0:
        raise ScheduleError(
            f"a collective is one of {', '.join(CALLS)} of 0 bytes or more, got {call!r} of {bytes}",
            span=None,
            fix='write `"all_reduce"`',
        )
    part = part_of(topology, ranks) if ranks else topology
    if part.ranks == 1:
        return [Plan(call, "direct", 1, bytes, 0, 0.0, 0.0, 0.0)]
    made = [_PLANNERS[name](call, bytes, part) for name in ALGORITHMS]
    return sorted((plan for plan in made if plan is not None), key=lambda plan: plan.time)


def part_of(topology: Topology, ranks: int) -> Topology:
    """The devices of the first `ranks`, node after node."""
    if ranks == topology.ranks:
        return topology
    if ranks > topology.ranks or (ranks > topology.devices and ranks % topology.devices) or ranks < 1:
        raise ScheduleError(
            f"{ranks} ranks are no part of {topology.nodes} x {topology.devices} devices",
            span=None,
            fix=f"take up to {topology.devices} of one node, or all devices of several",
        )
    nodes = max(1, ranks // topology.devices)
    return replace(topology, nodes=nodes, devices=ranks // nodes, placement=(), peers=())


def topology_of_axis(topology: Topology, mesh: Mapping[str, int], axis: str) -> Topology:
    """The devices of one group along a mesh axis, as all groups communicate together and share the links of nodes.

    Ranks of the last axis are next to each other, so they are on one node as far as it goes.
    """
    if axis not in mesh or prod(mesh.values()) != topology.ranks:
        raise ScheduleError(
            f"mesh {dict(mesh)} has {prod(mesh.values())} ranks, and `{axis}` over {topology.ranks} devices",
            span=None,
            fix="let the sizes of its axes make the number of devices, and name one of them",
        )
    if mesh[axis] == topology.ranks:
        return topology
    names = list(mesh)
    stride = prod(mesh[name] for name in names[names.index(axis) + 1 :])
    group = [at * stride for at in range(mesh[axis])]
    held: dict[int, int] = {}
    for rank in group:
        held[topology.node(rank)] = held.get(topology.node(rank), 0) + 1
    devices = max(held.values())
    if len(group) % devices or len(set(held.values())) > 1:
        devices = 1  # ragged over nodes: every step may cross, so that is what is counted
    nodes = len(group) // devices if len(held) > 1 else 1
    sharing = max(1, topology.devices // devices)
    between = replace(topology.between, bandwidth=topology.between.bandwidth / sharing)
    return Topology(nodes, len(group) // nodes, topology.inside, between)


# One planner for each algorithm; None where a topology, or a collective, has none.


def _ring(call: str, n: int, topology: Topology) -> Plan:
    p, order = topology.ranks, ring_order(topology)
    passes = 2 if call == "all_reduce" else 1
    # In a ring what goes to rank r + d passes d links: all_to_all moves each byte through half of the ring.
    step = n * (p / 2 if call == "all_to_all" else 1) / p
    crossing = crossings(topology, order)
    slow = topology.nodes > 1 or crossing > 0
    link = _slowest(topology.inside, topology.between) if slow else topology.inside
    hops = passes * (p - 1)
    over = hops * step if topology.nodes > 1 else 0.0
    return Plan(call, "ring", p, n, hops, hops * step, over, hops * link.time(step), order)


def _slowest(first: Link, second: Link) -> Link:
    return Link(min(first.bandwidth, second.bandwidth), max(first.latency, second.latency))


def _tree(call: str, n: int, topology: Topology) -> Plan | None:
    if call == "all_to_all":
        return None
    inside, between = ceil(log2(topology.devices)), ceil(log2(topology.nodes))
    whole = inside * topology.inside.time(n) + between * topology.between.time(n)
    # Up or down with parts: what is gathered grows, and what is scattered shrinks, to n (p - 1)/p bytes in all.
    part = n * (topology.ranks - 1) / topology.ranks
    slow = topology.between if topology.nodes > 1 else topology.inside
    parts = inside * topology.inside.latency + between * topology.between.latency + part / slow.bandwidth
    time = 2 * whole if call == "all_reduce" else whole + parts
    sent = 2.0 * n if call == "all_reduce" else n + part
    hops = 2 * (inside + between)
    return Plan(call, "tree", topology.ranks, n, hops, sent, sent * bool(between), time)


def _direct(call: str, n: int, topology: Topology) -> Plan:
    p, d = topology.ranks, topology.devices
    passes = 2 if call == "all_reduce" else 1
    part = n / p
    if topology.peers:  # parts for ranks that are not linked pass through others: around the ring, half of it each
        ring = _ring("all_to_all", n, topology)
        moved = passes * ring.sent, passes * ring.crossing, passes * ring.time
        return Plan(call, "direct", p, n, passes * ring.hops, *moved, ring.order)
    inside = (d - 1) * topology.inside.time(part)
    # The devices of a node send to those of all others together, through one link.
    outside = (p - d) * topology.between.latency + d * (p - d) * part / topology.between.bandwidth
    crossing = passes * d * (p - d) * part
    time = passes * (inside + (outside if p > d else 0.0))
    return Plan(call, "direct", p, n, passes * (p - 1), passes * (p - 1) * part, crossing, time)


def _hierarchical(call: str, n: int, topology: Topology) -> Plan | None:
    nodes, d = topology.nodes, topology.devices
    if nodes == 1 or d == 1 or topology.peers:
        return None
    passes = 2 if call == "all_reduce" else 1
    # Each device of a node has 1/d of the tensor between the nodes, and all of them share its link.
    shared = d * n / nodes if call == "all_to_all" else n / nodes
    inside = (d - 1) * topology.inside.time(n / d)
    outside = (nodes - 1) * topology.between.time(shared)
    sent = passes * ((d - 1) * n / d + (nodes - 1) * shared / d)
    crossing = passes * (nodes - 1) * shared
    hops = passes * (d - 1 + nodes - 1)
    return Plan(call, "hierarchical", nodes * d, n, hops, sent, crossing, passes * (inside + outside))


def _in_network(call: str, n: int, topology: Topology) -> Plan | None:
    if call == "all_to_all" or not topology.can_reduce:
        return None
    levels = [topology.inside, *([topology.between] if topology.nodes > 1 else [])]
    directions = 2 if call == "all_reduce" else 1
    # Bytes go up and come down at the same time, so they count once; of parts, a node's own need not reach it.
    counts = (topology.ranks, topology.nodes)
    moved = [n * (1.0 if call == "all_reduce" else (count - 1) / count) for count in counts]
    slowest = max(bytes / level.bandwidth for bytes, level in zip(moved, levels, strict=False))
    time = directions * sum(level.latency for level in levels) + slowest
    sent = moved[0] if call in REDUCING else n / topology.ranks
    crossing = moved[1] if len(levels) > 1 else 0.0
    return Plan(call, "in_network", topology.ranks, n, directions * len(levels), sent, crossing, time)


_PLANNERS = {
    "ring": _ring,
    "tree": _tree,
    "direct": _direct,
    "hierarchical": _hierarchical,
    "in_network": _in_network,
}
assert tuple(_PLANNERS) == ALGORITHMS, "an algorithm that texts may name is planned"


# The collective matmul: reduce-scatter, matmul and all-gather in chunks, so that links and tensor cores work together.


@frozen
class CollectiveMatmul:
    """RS_MM_AG in `chunks`: the steps in order, and nanoseconds with and without overlap.

    A step is what runs at the same time: the chunk that is reduced and scattered, the one that is multiplied, and the
    one that is gathered; None where there is none.
    """

    chunks: int
    steps: tuple[tuple[int | None, ...], ...]
    time: float
    sequential: float

    def render(self) -> str:
        """A line for each step."""
        cells = [["." if part is None else str(part) for part in step] for step in self.steps]
        head = f"RS_MM_AG in {self.chunks} chunks: {self.time:.0f} ns, {self.sequential:.0f} ns without overlap"
        return "\n".join(
            [head, "step  RS MM AG", *(f"{at:4}  {' '.join(f'{c:>2}' for c in row)}" for at, row in enumerate(cells))]
        )


def plan_collective_matmul(
    rows: int,
    scattered: int,
    compute: float,
    gathered: int,
    topology: Topology,
    *,
    chunk_candidates: Sequence[int] = (1, 2, 4, 8, 16),
    deterministic: bool = False,
) -> CollectiveMatmul:
    """The number of chunks with which reduce-scatter, matmul and all-gather of `rows` take least time.

    `scattered` and `gathered` are the bytes of both collectives, `compute` the nanoseconds of the whole matmul. Chunks
    are of rows, and each rank has as many: a number that does not divide is no candidate. Both share one link.
    Raises ScheduleError (T0401) where no candidate divides the rows of a rank.
    """
    part, over = divmod(rows, topology.ranks)
    fitting = [count for count in chunk_candidates if count >= 1 and part % count == 0 and part >= count]
    if over or not fitting:
        raise ScheduleError(
            f"{rows} rows on {topology.ranks} ranks are no multiple of ranks and chunks ({list(chunk_candidates)})",
            span=None,
            fix=f"pad the rows to {-(-rows // topology.ranks) * topology.ranks}",
        )
    made = [_in_chunks(count, scattered, compute, gathered, topology, deterministic) for count in fitting]
    return min(made, key=lambda plan: plan.time)


def _in_chunks(
    count: int, scattered: int, compute: float, gathered: int, topology: Topology, deterministic: bool
) -> CollectiveMatmul:
    def time_of(call: str, bytes: int) -> float:
        return plan_collective(call, -(-bytes // count), topology, deterministic=deterministic).time

    reduce_time, gather_time = time_of("reduce_scatter", scattered), time_of("all_gather", gathered)
    multiply = compute / count
    steps = tuple(
        tuple(step - lag if 0 <= step - lag < count else None for lag in range(3)) for step in range(count + 2)
    )
    total = 0.0
    for scatter, product, gather in steps:
        link = (scatter is not None) * reduce_time + (gather is not None) * gather_time
        total += max(link, (product is not None) * multiply)
    sequential = compute + plan_collective("reduce_scatter", scattered, topology, deterministic=deterministic).time
    sequential += plan_collective("all_gather", gathered, topology, deterministic=deterministic).time
    return CollectiveMatmul(count, steps, total, sequential)
