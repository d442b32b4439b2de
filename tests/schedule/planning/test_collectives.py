"""Plans of collectives: costs against closed forms and against messages that are really passed, and what is chosen."""

from __future__ import annotations

from itertools import permutations
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.collectives import (
    CALLS,
    candidate_plans,
    plan_collective,
    plan_collective_matmul,
    topology_of_axis,
)
from tessera.types.topology import Topology, crossings, ring_order, topology_of

NODE = topology_of({"devices": 8, "inside": 400.0, "inside_latency": 500.0})
CLUSTER = topology_of({"nodes": 4, "devices": 8, "inside": 400.0, "between": 50.0})


def pass_messages(ranks: int, call: str) -> tuple[int, int, list[set[tuple[int, int]]]]:
    """A ring as it runs: its steps, the parts that each rank sends, and (part, source) that each rank has in the end.

    Part r of rank s starts as (r, s). Reducing joins sources; rank r is to have part r (reduce_scatter), or all.
    """
    held: list[dict[int, set[int]]] = [{part: {rank} for part in range(ranks)} for rank in range(ranks)]
    steps = sent = 0
    if call in ("all_reduce", "reduce_scatter"):
        for step in range(ranks - 1):
            moved = [(rank, (rank - step - 1) % ranks, held[rank][(rank - step - 1) % ranks]) for rank in range(ranks)]
            for rank, part, sources in moved:
                held[(rank + 1) % ranks][part] = held[(rank + 1) % ranks][part] | sources
            steps, sent = steps + 1, sent + 1
    else:
        held = [{rank: {rank}} for rank in range(ranks)]
    if call in ("all_reduce", "all_gather"):
        for step in range(ranks - 1):
            moved = [(rank, (rank - step) % ranks, held[rank][(rank - step) % ranks]) for rank in range(ranks)]
            for rank, part, sources in moved:
                held[(rank + 1) % ranks][part] = set(sources)
            steps, sent = steps + 1, sent + 1
    return steps, sent, [{(part, source) for part, all in own.items() for source in all} for own in held]


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_a_ring_moves_what_it_is_said_to_move(ranks: int) -> None:
    topology = topology_of({"devices": ranks})
    whole = {(part, source) for part in range(ranks) for source in range(ranks)}
    bytes = 64 * ranks
    for call in ("all_reduce", "reduce_scatter", "all_gather"):
        plan = plan_collective(call, bytes, topology, algorithm="ring")
        steps, sent, held = pass_messages(ranks, call)
        assert (plan.hops, plan.sent) == (steps, sent * bytes / ranks)
        for rank in range(ranks):
            wanted = {
                "all_reduce": whole,
                "reduce_scatter": {(rank, source) for source in range(ranks)},
                "all_gather": {(part, part) for part in range(ranks)},
            }[call]
            assert wanted <= held[rank]


@given(st.integers(2, 64), st.integers(0, 1 << 32))
def test_costs_on_one_node_are_the_closed_forms(p: int, n: int) -> None:
    topology = topology_of({"devices": p, "inside": 300.0, "inside_latency": 700.0, "in_network": True})
    found = {(call, plan.algorithm): plan for call in CALLS for plan in candidate_plans(call, n, topology)}
    a, b, levels = 700.0, 300.0, ceil(log2(p))
    assert found["all_reduce", "ring"].time == pytest.approx(2 * (p - 1) * (a + n / p / b))
    assert found["all_gather", "ring"].time == pytest.approx((p - 1) * (a + n / p / b))
    assert found["all_to_all", "ring"].time == pytest.approx((p - 1) * (a + n / 2 / b))
    assert found["all_reduce", "tree"].time == pytest.approx(2 * levels * (a + n / b))
    assert found["all_gather", "tree"].time == pytest.approx(levels * (a + n / b) + levels * a + n * (p - 1) / p / b)
    assert found["all_to_all", "direct"].time == pytest.approx((p - 1) * (a + n / p / b))
    assert found["all_reduce", "in_network"].time == pytest.approx(2 * a + n / b)
    assert ("all_to_all", "tree") not in found
    assert ("all_to_all", "in_network") not in found
    for (call, _), plan in found.items():  # nobody sends less than what others lack, but where switches help
        least = n * (p - 1) / p * (2 if call == "all_reduce" else 1)
        assert plan.algorithm == "in_network" or plan.sent >= least * (1 - 1e-9)


@given(st.integers(2, 16), st.integers(2, 8), st.integers(1, 1 << 30))
def test_hierarchical_costs_are_the_closed_forms(nodes: int, d: int, n: int) -> None:
    topology = topology_of({"nodes": nodes, "devices": d})
    i, o = topology.inside, topology.between
    plan = plan_collective("all_reduce", n, topology, algorithm="hierarchical")
    assert plan.time == pytest.approx(2 * (d - 1) * i.time(n / d) + 2 * (nodes - 1) * o.time(n / nodes))
    assert plan.crossing == pytest.approx(2 * n * (nodes - 1) / nodes)
    assert plan.crossing <= plan_collective("all_reduce", n, topology, algorithm="direct").crossing + 1e-6
    exchange = plan_collective("all_to_all", n, topology, algorithm="hierarchical")
    assert exchange.crossing == pytest.approx(d * n * (nodes - 1) / nodes)


def test_the_algorithm_goes_by_the_size_of_the_message() -> None:
    """On one node the tree is first up to where its bytes cost what the ring's steps do."""
    small, large = (plan_collective("all_reduce", size, NODE) for size in (1 << 10, 1 << 28))
    assert (small.algorithm, large.algorithm) == ("tree", "ring")
    # 2(p-1)(a + n/(pb)) = 2 log2(p)(a + n/b), for p = 8: n = ab(p - 1 - log2 p)/(log2 p - (p-1)/p)
    crossover = 500.0 * 400.0 * (7 - 3) / (3 - 7 / 8)
    for size, wanted in ((0.98, "tree"), (1.02, "ring")):
        found = candidate_plans("all_reduce", int(crossover * size), NODE)
        times = {plan.algorithm: plan.time for plan in found}
        assert min(("tree", "ring"), key=times.__getitem__) == wanted
    assert plan_collective("all_reduce", 1 << 28, CLUSTER).algorithm == "hierarchical"


def test_switches_that_reduce_are_used_where_the_topology_says_so() -> None:
    described = {"nodes": 4, "devices": 8}
    without, with_switch = (topology_of({**described, "in_network": value}) for value in (False, True))
    assert plan_collective("all_reduce", 1 << 26, with_switch).algorithm == "in_network"
    assert "in_network" not in [plan.algorithm for plan in candidate_plans("all_reduce", 1 << 26, without)]
    with pytest.raises(ScheduleError, match="`in_network` has no `all_reduce` here"):
        plan_collective("all_reduce", 1 << 26, without, algorithm="in_network")
    # Their order is not fixed: where bits are to stay they are not taken.
    assert plan_collective("all_reduce", 1 << 26, with_switch, deterministic=True).algorithm == "direct"
    assert plan_collective("all_gather", 1 << 26, with_switch, deterministic=True).algorithm == "in_network"


@given(st.sampled_from(CALLS), st.integers(0, 1 << 34), st.sampled_from([NODE, CLUSTER]))
def test_the_fastest_is_chosen(call: str, bytes: int, topology: Topology) -> None:
    found = candidate_plans(call, bytes, topology)
    assert plan_collective(call, bytes, topology).time == min(plan.time for plan in found)


def test_the_ring_follows_the_topology() -> None:
    assert ring_order(NODE) == tuple(range(8))
    spread = topology_of({"nodes": 2, "devices": 2, "placement": (0, 1, 0, 1)})
    assert ring_order(spread) == (0, 2, 1, 3)
    assert crossings(spread, ring_order(spread)) == 2 < crossings(spread, (0, 1, 2, 3))
    # Devices that are linked 0-2-1-3-0 are passed in that order.
    square = topology_of({"devices": 4, "peers": ((0, 2), (2, 1), (1, 3), (3, 0))})
    assert crossings(square, ring_order(square)) == 0
    assert ring_order(square) in ((0, 2, 1, 3), (0, 3, 1, 2))
    assert "ring = 0 -> 2 -> 1 -> 3" in plan_collective("all_reduce", 1 << 20, spread, algorithm="ring").render()


def test_ranks_that_are_not_linked_reach_each_other_through_others() -> None:
    square = topology_of({"devices": 4, "peers": ((0, 2), (2, 1), (1, 3), (3, 0))})
    plan = plan_collective("all_reduce", 1 << 20, square, deterministic=True)
    exchange = plan_collective("all_to_all", 1 << 20, square, algorithm="ring")
    assert (plan.algorithm, plan.time, plan.sent) == ("direct", 2 * exchange.time, 2 * exchange.sent)
    assert plan.order == (0, 2, 1, 3)
    assert topology_of_axis(square, {"tp": 4}, "tp") == square


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] < pair[1]), min_size=1))
def test_no_ring_has_fewer_steps_between_unlinked_devices(peers: set[tuple[int, int]]) -> None:
    topology = topology_of({"devices": 6, "peers": tuple(sorted(peers))})
    best = min(crossings(topology, (0, *rest)) for rest in permutations(range(1, 6)))
    assert crossings(topology, ring_order(topology)) == best
    assert sorted(ring_order(topology)) == list(range(6))


def test_a_plan_in_words() -> None:
    plan = plan_collective("all_reduce", 1 << 20, CLUSTER, algorithm="hierarchical")
    assert plan.render() == (
        "all_reduce of 1048576 bytes over 32 ranks: algo = hierarchical, hops = 20, bytes = 2031616 from each rank, "
        f"1572864 between nodes, time = {plan.time:.0f} ns"
    )
    assert plan.attributes() == {"pattern": "all_reduce", "algo": "hierarchical"}


def test_an_axis_has_the_devices_that_its_groups_have() -> None:
    mesh = {"dp": 4, "tp": 8}
    inner, outer = (topology_of_axis(CLUSTER, mesh, axis) for axis in ("tp", "dp"))
    assert (inner.nodes, inner.devices) == (1, 8)
    assert (outer.nodes, outer.devices) == (4, 1)
    assert outer.between.bandwidth == CLUSTER.between.bandwidth / 8  # eight groups share the link of a node
    both = topology_of_axis(CLUSTER, {"dp": 2, "tp": 16}, "tp")
    assert (both.nodes, both.devices, both.between.bandwidth) == (2, 8, CLUSTER.between.bandwidth)
    with pytest.raises(ScheduleError, match="has 6 ranks, and `tp` over 32 devices"):
        topology_of_axis(CLUSTER, {"dp": 3, "tp": 2}, "tp")


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (3, "a topology is {nodes = 2, devices = 8} and more, got 3"),
        ({"racks": 2}, "a topology has no `racks`"),
        ({"nodes": 0}, "`nodes` of a topology is 1 to 65536, got 0"),
        ({"devices": 1 << 40}, "`devices` of a topology is 1 to 65536"),
        ({"placement": 3}, "`placement` of a topology is a list, got 3"),
        ({"peers": (3,)}, "`peers` of a topology is a list, got 3"),
        ({"inside": 0}, "`inside` of a topology is a number from 1e-06, got 0"),
        ({"between_latency": -1.0}, "`between_latency` of a topology is a number from 0, got -1.0"),
        ({"in_network": 1}, "`in_network` of a topology is true or false, got 1"),
        ({"nodes": 2, "devices": 2, "placement": (0, 0, 0, 1)}, "`placement` puts 2 ranks on each of 2 nodes"),
        ({"devices": 2, "peers": ((0, 2),)}, "`peers` are pairs of two devices of 0 to 1, got (0, 2)"),
    ],
)
def test_a_description_that_is_none_is_refused(description: Any, reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        topology_of(description)
    assert reason in caught.value.message


def test_what_is_no_collective_or_no_part_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a collective is one of all_reduce"):
        plan_collective("broadcast", 8, NODE)
    with pytest.raises(ScheduleError, match="12 ranks are no part of 4 x 8 devices"):
        plan_collective("all_reduce", 8, CLUSTER, ranks=12)
    assert plan_collective("all_reduce", 8, CLUSTER, ranks=1).time == 0
    assert plan_collective("all_gather", 1 << 20, CLUSTER, ranks=4) == plan_collective(
        "all_gather", 1 << 20, topology_of({"devices": 4, "inside": 400.0})
    )


@given(st.integers(1, 64), st.integers(1, 1 << 28), st.integers(1, 1 << 28), st.floats(1e3, 1e7))
def test_a_collective_matmul_overlaps_and_loses_nothing(
    part: int, scattered: int, gathered: int, compute: float
) -> None:
    plan = plan_collective_matmul(8 * part, scattered, compute, gathered, NODE)
    one = plan_collective_matmul(8 * part, scattered, compute, gathered, NODE, chunk_candidates=(1,))
    assert one.time == pytest.approx(one.sequential)
    assert plan.time <= one.time
    links = plan_collective("reduce_scatter", scattered, NODE).time + plan_collective("all_gather", gathered, NODE).time
    assert plan.time >= compute - 1e-6
    assert plan.time >= min(links, plan.time)
    for lag in range(3):
        assert [step[lag] for step in plan.steps if step[lag] is not None] == list(range(plan.chunks))
    for scatter, product, gather in plan.steps:  # a chunk is scattered, multiplied and gathered in three steps
        assert product is None or scatter is None or product == scatter - 1
        assert gather is None or product is None or gather == product - 1


def test_a_collective_matmul_in_words() -> None:
    plan = plan_collective_matmul(4096, 1 << 26, 5e5, 1 << 26, NODE)
    assert plan.chunks > 1
    assert plan.time < plan.sequential
    assert plan.render().splitlines()[:4] == [
        f"RS_MM_AG in {plan.chunks} chunks: {plan.time:.0f} ns, {plan.sequential:.0f} ns without overlap",
        "step  RS MM AG",
        "   0   0  .  .",
        "   1   1  0  .",
    ]
    with pytest.raises(ScheduleError, match="100 rows on 8 ranks are no multiple"):
        plan_collective_matmul(100, 8, 1.0, 8, NODE)
