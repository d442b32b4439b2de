"""A described cluster: its devices, the links between them, what share of their rates programs reach, and stragglers.

Bytes and operations are of one nanosecond (GB/s, and 0.001 TFLOP/s), times are nanoseconds, as in `types/topology.py`.
A topology file (`topology_file.py`) describes one; nothing here is measured unless that file says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen
from tessera.types.topology import Link, Topology


@frozen
class Device:
    """One device: bytes of its memory, their bandwidth, and peak operations by dtype.

    `overlaps` says whether collectives run beside kernels; ranks that are processes of a CPU copy bytes themselves.
    """

    name: str
    memory: float
    memory_bandwidth: float
    flops: tuple[tuple[str, float], ...]
    overlaps: bool = True

    def peak(self, dtype: str) -> float:
        """Operations of a nanosecond at most; raises ScheduleError (T0401) for a dtype that nobody described."""
        found = dict(self.flops).get(dtype)
        if found is None:
            known = ", ".join(name for name, _ in self.flops)
            raise ScheduleError(
                f"`{self.name}` has no peak for {dtype}: its topology describes {known}",
                span=None,
                fix=f"plan for one of {known}, or add `{dtype}` to `[device.flops]`",
            )
        return found


@frozen
class Efficiency:
    """The share of each peak rate that programs reach: one set of constants for all plans of a cluster.

    The defaults are calibrated against published training runs on H100 clusters (docs/guide/planning.md).
    """

    matmul: float = 0.57
    attention: float = 0.50
    memory: float = 0.80
    inside: float = 0.80
    between: float = 0.80


@frozen
class Straggler:
    """A slow node, or a slow rank: what it computes takes `slowdown` times as long."""

    slowdown: float
    node: int | None = None
    rank: int | None = None


@frozen
class Cluster:
    """Devices of one kind on a topology. `inside_kind` and `between_kind` are what its links are called.

    >>> from tessera.types.topology import topology_of
    >>> cluster = Cluster("two nodes", DEVICE, topology_of({"nodes": 2, "devices": 8}))
    >>> cluster.ranks, cluster.part(8).topology.nodes
    (16, 1)
    """

    name: str
    device: Device
    topology: Topology
    efficiency: Efficiency = Efficiency()
    stragglers: tuple[Straggler, ...] = ()
    inside_kind: str = "NVLink"
    between_kind: str = "InfiniBand"

    @property
    def ranks(self) -> int:
        return self.topology.ranks

    def part(self, ranks: int) -> Cluster:
        """The first `ranks` devices, node after node; raises ScheduleError (T0401) where there are not as many."""
        whole = self.topology
        if ranks > whole.ranks:
            raise ScheduleError(
                f"the mesh has {ranks} ranks, and `{self.name}` has {whole.ranks} devices: {whole.nodes} nodes of "
                f"{whole.devices}",
                span=None,
                fix=f"let the sizes of the mesh axes make {whole.ranks} or fewer, or raise `nodes` of the topology",
            )
        if ranks > whole.devices and ranks % whole.devices:
            raise ScheduleError(
                f"the mesh has {ranks} ranks, which is no multiple of the {whole.devices} devices of a node",
                span=None,
                fix=f"take {ranks // whole.devices * whole.devices} ranks, or up to {whole.devices} on one node",
            )
        nodes = max(1, ranks // whole.devices)
        kept = tuple(one for one in self.stragglers if self._is_within(one, nodes, ranks))
        return replace(self, topology=replace(whole, nodes=nodes, devices=min(ranks, whole.devices)), stragglers=kept)

    def _is_within(self, one: Straggler, nodes: int, ranks: int) -> bool:
        return one.node < nodes if one.node is not None else one.rank is not None and one.rank < ranks

    @property
    def links(self) -> Topology:
        """The topology with links as fast as programs see them."""
        inside, between = self.topology.inside, self.topology.between
        return replace(
            self.topology,
            inside=_derate(inside, self.efficiency.inside),
            between=_derate(between, self.efficiency.between),
        )

    def slowdown(self, ranks: Sequence[int]) -> float:
        """By how much the slowest of some ranks is slower, which is how much all of them are that wait for it."""
        if not self.stragglers:
            return 1.0
        nodes = {self.topology.node(rank) for rank in ranks}
        slow = [one.slowdown for one in self.stragglers if one.node in nodes or one.rank in ranks]
        return max(slow, default=1.0)

    def without_stragglers(self) -> Cluster:
        """The same cluster where all devices are as fast."""
        return replace(self, stragglers=())


def _derate(link: Link, share: float) -> Link:
    return replace(link, bandwidth=link.bandwidth * share)


def describe_cluster(cluster: Cluster) -> str:
    """A cluster in a line: how many devices, and what links them.

    >>> from tessera.types.topology import topology_of
    >>> describe_cluster(Cluster("one node", DEVICE, topology_of({"devices": 8})))
    'one node: 1 x 8 H100, NVLink 450 GB/s'
    """
    topology = cluster.topology
    text = f"{cluster.name}: {topology.nodes} x {topology.devices} {cluster.device.name}"
    text += f", {cluster.inside_kind} {topology.inside.bandwidth:g} GB/s"
    if topology.nodes > 1:
        text += f", {cluster.between_kind} {topology.between.bandwidth:g} GB/s a node"
    return text + (f", {len(cluster.stragglers)} stragglers" if cluster.stragglers else "")


DEVICE = Device("H100", 80e9, 3350.0, (("bf16", 989e3), ("fp8", 1979e3), ("tf32", 494e3), ("f32", 67e3)))
"""An H100 SXM by its data sheet: dense rates, without sparsity."""
