"""Topology files: what is read, and errors at their lines."""

from __future__ import annotations

import pytest

from tessera.diagnostics.codes import ScheduleError
from tessera.planner.cluster import Straggler, describe_cluster
from tessera.planner.topology_file import FOLDER, parse_cluster, read_cluster

TEXT = (FOLDER / "clusters" / "h100.toml").read_text(encoding="utf-8")


def test_shipped_topologies_are_read_in_their_units() -> None:
    cluster = read_cluster("h100")
    assert cluster.ranks == 16384
    assert cluster.device.peak("bf16") == 989e3
    assert (cluster.topology.between.bandwidth, cluster.topology.between.latency) == (400.0, 5000.0)
    assert read_cluster("h200").device.memory == 141e9
    assert describe_cluster(read_cluster("laptop")) == "laptop: 1 x 2 CPU core, shared memory 2 GB/s"


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("bandwidth = 450.0", 'bandwidth = "fast"', "`bandwidth` is a number from 0.001 to 1e+06 GB/s, got 'fast'"),
        ("bandwidth = 450.0", "bandwith = 450.0", "has no `bandwith`; it has kind, bandwidth, latency"),
        ("nodes = 2048", "nodes = 0", "`nodes` is an integer from 1 to 65536, got 0"),
        ("bf16 = 989.0", "bf17 = 989.0", "has no `bf17`"),
        ("ports = 8", "ports = 2.5", "`ports` is an integer"),
        ("[between]", "[betwen]", "has no `betwen`"),
        ('name = "H100 cluster"', "name = H100", "is no TOML"),
    ],
)
def test_a_mistake_is_shown_where_it_stands(wrong: str, right: str, said: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_cluster("cluster.toml", TEXT.replace(wrong, right, 1))
    assert said in caught.value.message
    assert caught.value.span is not None
    assert caught.value.span.line == TEXT[: TEXT.index(wrong)].count("\n") + 1
    assert caught.value.fix


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ScheduleError, match=r"lacks `device\.memory`"):
        parse_cluster("cluster.toml", "\n".join(line for line in TEXT.splitlines() if not line.startswith("memory =")))
    with pytest.raises(ScheduleError, match=r"2048 nodes need `bandwidth` and `latency` of `\[between\]`"):
        parse_cluster("cluster.toml", TEXT.partition("[between]")[0])
    with pytest.raises(ScheduleError, match="there is no file `h10`"):
        read_cluster("h10")


def test_stragglers_are_within_the_cluster() -> None:
    good = parse_cluster(
        "c.toml", TEXT + "[[stragglers]]\nnode = 3\nslowdown = 1.5\n[[stragglers]]\nrank = 9\nslowdown = 2\n"
    )
    assert good.stragglers == (Straggler(1.5, node=3), Straggler(2.0, rank=9))
    assert (good.slowdown([0, 1]), good.slowdown([8, 9]), good.slowdown(range(24, 32))) == (1.0, 2.0, 1.5)
    assert good.part(16).stragglers == (Straggler(2.0, rank=9),)
    with pytest.raises(ScheduleError, match="`node` of a straggler is 0 to 2047, got 2048") as caught:
        parse_cluster("c.toml", TEXT + "[[stragglers]]\nnode = 2048\nslowdown = 1.5\n")
    assert caught.value.span is not None
    assert caught.value.span.line == TEXT.count("\n") + 2
    with pytest.raises(ScheduleError, match="one of `node` and `rank`, got slowdown"):
        parse_cluster("c.toml", TEXT + "[[stragglers]]\nslowdown = 1.5\n")


def test_a_part_has_whole_nodes() -> None:
    cluster = read_cluster("h100")
    assert (cluster.part(4).topology.nodes, cluster.part(4).topology.devices) == (1, 4)
    with pytest.raises(ScheduleError, match="12 ranks, which is no multiple of the 8 devices"):
        cluster.part(12)
    with pytest.raises(ScheduleError, match="has 32768 ranks, and `H100 cluster` has 16384 devices"):
        cluster.part(32768)
    with pytest.raises(ScheduleError, match="no peak for f64"):
        cluster.device.peak("f64")
