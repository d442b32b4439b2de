"""Models that are traced: costs from Graph IR equal closed forms, and nothing is allocated."""

from __future__ import annotations

import resource
from typing import Any

import pytest

import tessera as ts
from tessera.diagnostics.codes import ScheduleError
from tessera.planner.simulate import simulate
from tessera.planner.topology_file import read_cluster
from tessera.planner.traced_model import trace_model
from tessera.planner.training_plan import TrainingPlan
from tessera.planner.transformer import Transformer, read_transformer

LARGE = ts.nn.GPTConfig.llama(vocabulary=128256, width=8192, depth=80, heads=64, kv_heads=8, hidden=28672, length=8192)
SMALL = ts.nn.GPTConfig(vocabulary=65, length=32, width=32, depth=4, heads=4)


def large() -> Any:
    return ts.nn.GPT.init(ts.random.key(0), LARGE, dtype=ts.bf16)


def test_a_model_of_70_billion_parameters_is_counted_without_its_weights() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    traced, written = trace_model(large, name="large"), read_transformer("llama-3-70b").cost()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB: far below 141 GB
    assert traced.parameters == written.parameters == 70_553_706_496
    assert (traced.layers, traced.splits, traced.boundary) == (80, 64, written.boundary)
    for one, two in ((traced.block, written.block), (traced.head, written.head)):
        assert one.matmul == two.matmul
        assert (one.parameters, one.regions, one.backward, one.keys) == (two.parameters, two.regions, 2.0, two.keys)
        assert abs(one.attention - two.attention) <= 0.01 * two.attention
        assert 0.5 < one.moved / (two.moved + two.moved_whole) < 2
    plan = TrainingPlan(dp=4, tp=8, pp=2, batch=64, recompute="full")
    steps = [simulate(plan, model, read_cluster("h100")) for model in (traced, written)]
    assert abs(steps[0].time / steps[1].time - 1) < 0.1


def test_configurations_and_models_are_traced_too() -> None:
    by_config, by_model = trace_model(SMALL), trace_model(ts.nn.GPT.init(ts.random.key(0), SMALL))
    assert by_config == by_model
    written = Transformer("small", 4, 32, 4, 65, 32, gated=False, tied=True, dtype="f32").cost()
    assert by_config.block.matmul == written.block.matmul
    assert by_config.embedding.parameters == (65 + 32) * 32
    assert by_config.parameters == ts.nn.count_parameters(ts.nn.GPT.init(ts.random.key(0), SMALL))
    assert trace_model(SMALL, sequence=16).block.matmul == by_config.block.matmul / 2


def test_experts_are_counted_apart() -> None:
    config = ts.nn.GPTConfig.llama(
        vocabulary=64, length=16, width=32, depth=2, heads=4, hidden=64, mlp="moe", experts=4
    )
    model = trace_model(config)
    assert (model.experts, model.block.expert_parameters) == (4, 4 * 3 * 32 * 64)
    assert model.block.exchanged == 2 * model.boundary


class Loose(ts.nn.Module):
    """A model without a loss."""

    weight: Any


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"`m` is of type Loose, which has no `loss\(tokens, targets\)`"):
        trace_model(lambda: Loose(ts.zeros((2,))), name="m")
    with pytest.raises(ScheduleError, match="of type int"):
        trace_model(3)
