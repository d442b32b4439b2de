"""The simulated step against closed forms: bubbles, ZeRO's bytes, bytes of collectives, stragglers, MFU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.collectives import plan_collective
from tessera.planner.cluster import Cluster, Device, Efficiency, Straggler
from tessera.planner.events import Simulation
from tessera.planner.model_cost import LayerCost, ModelCost
from tessera.planner.simulate import simulate
from tessera.planner.step_costs import StepCosts
from tessera.planner.topology_file import read_cluster
from tessera.planner.training_plan import TrainingPlan, memory_of, parse_mesh, zero_bytes
from tessera.planner.transformer import Transformer, parse_transformer, read_transformer
from tessera.types.topology import Link, Topology


def near(found: float, expected: float, rel: float = 1e-6, abs: float = 0.0) -> bool:
    return math.isclose(found, expected, rel_tol=rel, abs_tol=abs)


IDEAL = Cluster(
    "ideal",
    Device("ideal", 1e15, 1e9, (("bf16", 1.0),)),
    Topology(64, 1, Link(1e12, 0.0), Link(1e12, 0.0)),
    Efficiency(1.0, 1.0, 1.0, 1.0, 1.0),
)
"""Devices of one operation in a nanosecond, with links that take no time."""


def even_model(layers: int, **costs: Any) -> ModelCost:
    """Blocks that take a nanosecond forward and two backward, and nothing else."""
    block = LayerCost("block", 0, matmul=1.0, **costs)
    return ModelCost("even", 1, layers, LayerCost("embedding", 0), block, LayerCost("head", 0), 0.0, splits=64)


@given(st.integers(1, 8), st.integers(0, 12))
def test_the_bubble_of_1f1b_is_the_closed_form(stages: int, more: int) -> None:
    microbatches = stages + more
    plan = TrainingPlan(pp=stages, batch=microbatches, zero=0)
    step = simulate(plan, even_model(stages * 2), IDEAL)
    assert near(step.time, 2 * 3 * (microbatches + stages - 1), rel=1e-9)
    assert near(step.bubble, (stages - 1) / (microbatches + stages - 1), abs=1e-9)
    assert near(step.bubble, float(plan.pipeline.bubble_fraction), abs=1e-9)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 4))
def test_the_bubble_of_interleaved_stages_is_the_closed_form(stages: int, groups: int, chunks: int) -> None:
    microbatches = stages * groups
    plan = TrainingPlan(pp=stages, batch=microbatches, schedule="interleaved", chunks=chunks, zero=0)
    step = simulate(plan, even_model(stages * chunks), IDEAL)
    assert near(step.bubble, (stages - 1) / (chunks * microbatches + stages - 1), abs=1e-9)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("replicas", [1, 2, 8, 64])
def test_bytes_of_zero_are_the_closed_form(zero: int, replicas: int) -> None:
    psi = 7_500_000_000
    block = LayerCost("block", psi // 10, matmul=1.0)
    model = ModelCost("one", 1, 10, LayerCost("embedding", 0), block, LayerCost("head", 0), 0.0)
    plan = TrainingPlan(dp=replicas, batch=replicas, zero=zero, grad_bytes=2)
    (memory,) = memory_of(plan, model, IDEAL)
    N, K = replicas, 12
    expected = {0: (2 + 2 + K) * psi, 1: 4 * psi + K * psi / N, 2: 2 * psi + (2 + K) * psi / N, 3: (4 + K) * psi / N}
    assert near(memory.parameters + memory.gradients + memory.optimizer, expected[zero], rel=1e-12)
    assert near(sum(zero_bytes(psi, plan).values()), expected[zero], rel=1e-12)


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_ranks_send_two_or_three_times_the_parameters(zero: int, volume: int) -> None:
    # Of Rajbhandari et al.: stages 0 to 2 move twice the parameters, stage 3 three times, where elements are alike.
    psi, N = 1 << 20, 8
    model = ModelCost("one", 1, 4, LayerCost("e", 0), LayerCost("block", psi // 4, matmul=1.0), LayerCost("h", 0), 0.0)
    plan = TrainingPlan(dp=N, batch=N, zero=zero, grad_bytes=2)
    slow = replace(IDEAL, topology=replace(IDEAL.topology, inside=Link(1.0, 0.0), between=Link(1.0, 0.0)))
    sent = sum(one.sent for one in StepCosts(plan, model, slow).traffic())
    assert near(sent, volume * 2 * psi * (N - 1) / N)


@given(st.integers(2, 64), st.integers(1, 1 << 30))
def test_a_ring_moves_the_least_bytes(ranks: int, size: int) -> None:
    found = plan_collective("all_reduce", size, Topology(1, ranks, Link(1.0, 0.0), Link(1.0, 0.0)), algorithm="ring")
    assert near(found.sent, 2 * (ranks - 1) / ranks * size)


def test_gradients_are_reduced_while_others_are_computed() -> None:
    # Four layers of 4 ns backward each, and a reduction of 2 ns for each: only the last one is waited for.
    model = even_model(4)
    block = replace(model.block, parameters=1, matmul=2.0)
    model = replace(model, block=block)
    link = Link(4.0 / 2.0, 0.0)  # an all_reduce of 4 bytes over two ranks moves 4 bytes: 2 ns
    cluster = replace(IDEAL, topology=Topology(1, 2, link, link))
    step = simulate(TrainingPlan(dp=2, batch=2, zero=0), model, cluster)
    compute, update = 4 * 2.0 + 4 * 4.0, 4 * (4 + 24 + 2) / 1e9
    assert near(step.time, compute + 2.0 + update)
    assert near(step.overlap, 0.75)


def test_where_ranks_copy_bytes_themselves_nothing_overlaps() -> None:
    model = replace(even_model(4), block=LayerCost("block", 1, matmul=2.0))
    link = Link(2.0, 0.0)
    cluster = replace(IDEAL, device=replace(IDEAL.device, overlaps=False), topology=Topology(1, 2, link, link))
    step = simulate(TrainingPlan(dp=2, batch=2, zero=0), model, cluster)
    assert near(step.time, 4 * (2.0 + 4.0) + 4 * 2.0 + 4 * (4 + 24 + 2) / 1e9)
    assert near(step.overlap, 0.0, abs=1e-9)


def test_a_straggler_holds_all_replicas_up() -> None:
    plan, model = TrainingPlan(dp=4, batch=4, zero=0), replace(even_model(8), block=LayerCost("block", 1, matmul=1.0))
    even = simulate(plan, model, IDEAL)
    slow = simulate(plan, model, replace(IDEAL, stragglers=(Straggler(1.5, rank=2),)))
    assert near(slow.time / even.time, 1.5, rel=1e-3)
    other = simulate(plan, model, replace(IDEAL, stragglers=(Straggler(1.5, rank=40),)))
    assert near(other.time, even.time)


def test_a_straggling_stage_slows_a_pipeline_less_than_itself() -> None:
    plan = TrainingPlan(pp=4, batch=8, zero=0)
    step = simulate(plan, even_model(4), replace(IDEAL, stragglers=(Straggler(2.0, rank=1),)))
    even = simulate(plan, even_model(4), IDEAL)
    assert even.time < step.time < 2 * even.time


def test_mfu_is_operations_over_the_peak() -> None:
    step = simulate(TrainingPlan(pp=4, batch=8, zero=0), even_model(4), IDEAL)
    assert near(step.mfu, 1 - step.bubble)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_parameters_are_those_of_the_published_models(name: str, count: int) -> None:
    assert read_transformer(name).cost().parameters == count


PUBLISHED = [
    # Table 4 of The Llama 3 Herd of Models (2024): TFLOP/s of a GPU in bf16.
    ({"dp": 64, "tp": 8, "pp": 16}, 8192, 2048, 430.0),
    ({"dp": 128, "tp": 8, "pp": 16}, 8192, 2048, 400.0),
    ({"dp": 8, "tp": 8, "pp": 16, "sp": 16}, 131072, 128, 380.0),
]


@pytest.mark.parametrize(("mesh", "sequence", "batch", "tflops"), PUBLISHED)
def test_published_runs_are_within_a_tenth(mesh: dict[str, Any], sequence: int, batch: int, tflops: float) -> None:
    model = read_transformer("llama-3-405b", sequence=sequence).cost()
    plan = TrainingPlan(**mesh, batch=batch, schedule="interleaved", chunks=8, zero=1, recompute="selective")
    step = simulate(plan, model, read_cluster("h100"))
    assert near(step.mfu * 989, tflops, rel=0.10)
    assert step.fits
    # The page has these figures.
    row = f"| {tflops:.0f} | {step.mfu * 989:.0f} | {100 * (step.mfu * 989 / tflops - 1):+.1f} % |"
    assert row in (Path(__file__).parents[2] / "docs" / "guide" / "planning.md").read_text(encoding="utf-8")


def test_recomputing_takes_time_and_saves_memory() -> None:
    model, cluster = read_transformer("llama-3-8b").cost(), read_cluster("h100")
    steps = [
        simulate(TrainingPlan(dp=8, batch=16, zero=3, recompute=how), model, cluster)
        for how in ("none", "selective", "full")
    ]
    times, kept = [step.time for step in steps], [step.worst_memory.activations for step in steps]
    assert times == sorted(times)
    assert kept == sorted(kept, reverse=True)


def test_experts_and_sequences_are_divided() -> None:
    mixtral, cluster = read_transformer("mixtral-8x7b").cost(), read_cluster("h100")
    step = simulate(TrainingPlan(dp=8, ep=8, batch=64, zero=1), mixtral, cluster)
    purposes = {one.purpose: one for one in step.traffic}
    assert purposes["experts"].call == "all_to_all"
    # Dispatch and combine, forward and backward, of each block and microbatch: tokens for 2 experts, 7/8 of them away.
    assert near(purposes["experts"].sent, 32 * 8 * 4 * 2 * 4096 * 4096 * 2 * 7 / 8)
    assert purposes["gradients"].sent < 4 * mixtral.parameters


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": 3}, "3 ranks of `tp` do not divide 32 heads"),
        ({"ep": 2}, "2 ranks of `ep` do not divide 0 experts"),
        ({"dp": 3}, "a batch of 16 sequences does not divide by 3 ranks of `dp` and microbatches of 1"),
        ({"sp": 3}, "3 ranks of `sp` do not divide 8192 tokens"),
        ({"zero": 4}, "ZeRO has stages 0 to 3, got 4"),
        ({"recompute": "some"}, "`recompute` is none, selective, full, got some"),
        ({"pp": 64, "batch": 64}, "32 layers do not make 64 stages"),
        ({"dp": 32768, "batch": 32768}, "has 32768 ranks, and `H100 cluster` has 16384 devices"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_its_numbers(changes: dict[str, Any], said: str) -> None:
    plan = replace(TrainingPlan(batch=16), **changes)
    with pytest.raises(ScheduleError) as caught:
        simulate(plan, read_transformer("llama-3-8b").cost(), read_cluster("h100"))
    assert said in caught.value.message
    assert caught.value.fix


def test_meshes_and_models_in_text() -> None:
    assert parse_mesh("dp=64, tp=8,cp=2") == {"dp": 64, "tp": 8, "sp": 2}
    for wrong in ("dp", "dp=0", "xp=2", "dp=2,dp=4", ""):
        with pytest.raises(ScheduleError, match="`--mesh` is axes with their sizes"):
            parse_mesh(wrong)
    text = 'name = "m"\nlayers = 2\nwidth = 65\nheads = 4\nvocabulary = 10\nsequence = 8\n'
    with pytest.raises(ScheduleError, match="4 heads do not divide a width of 65"):
        parse_transformer("m.toml", text)
    assert parse_transformer("m.toml", text.replace("65", "64"), sequence=16) == Transformer("m", 2, 64, 4, 10, 16)


def test_tasks_that_wait_for_each_other_are_a_deadlock() -> None:
    simulation = Simulation()
    first = simulation.add("a", ("compute", 0, 0), 1.0, [1])
    simulation.add("b", ("compute", 0, 1), 1.0, [first])
    with pytest.raises(ScheduleError, match="`a` waits for `b`, which waits too: a deadlock"):
        simulation.run()
