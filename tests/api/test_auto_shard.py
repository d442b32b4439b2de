"""Automatic sharding: on a 2 x 2 mesh it finds the plans that people write, and they beat naive ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.auto_shard import auto_shard
from tessera.diagnostics.codes import ArgumentError, ScheduleError
from tessera.types.sharding import Sharding

MESH = {"dp": 2, "tp": 2}


def shaped(*shape: int) -> Any:
    """An array without memory: only its shape is looked at."""
    return np.broadcast_to(np.zeros((), np.float32), shape)


def mlp(x: Any, up: Any, down: Any) -> Any:
    return ts.ops.relu(x @ up) @ down


def loss(parameters: Any, x: Any) -> Any:
    return mlp(x, parameters["up"], parameters["down"]).mean()


SIZES = (shaped(64, 1024), shaped(1024, 4096), shaped(4096, 1024))


@pytest.mark.parametrize("solver", ["milp", "dynamic"])
def test_weights_that_do_not_fit_are_cut_by_columns_and_then_by_rows(solver: str) -> None:
    found = auto_shard(mlp, MESH, *SIZES, memory=20e6, solver=solver)
    cut = {axis for axis in MESH if axis in found.inputs["up"].axes}
    assert cut
    assert found.inputs["up"].dims[0] == ()
    assert found.inputs["down"].dims[1] == ()
    assert found.inputs["up"].dims[1] == found.inputs["down"].dims[0]
    assert found.time < found.naive["replicated"]
    assert found.time < found.naive["fully sharded"]


def test_both_solvers_find_the_same_time() -> None:
    for memory in (40e6, 20e6, 9.5e6):
        times = [auto_shard(mlp, MESH, *SIZES, memory=memory, solver=one).time for one in ("milp", "dynamic")]
        assert abs(times[0] - times[1]) <= 1e-6 * times[1]


def test_without_bounds_a_batch_is_cut_and_weights_are_whole() -> None:
    found = auto_shard(mlp, MESH, *SIZES)
    assert found.inputs["up"].is_whole
    assert found.inputs["x"] == Sharding.of(("dp", "tp"), None)
    assert abs(found.time / found.naive["data parallel"] - 1) < 1e-6
    assert "4.0" in found.render()


@pytest.mark.parametrize(("rows", "least"), [(64, 4.0), (65536, 1.0)])
def test_a_training_step_beats_data_parallel(rows: int, least: float) -> None:
    # Of few rows, gradients of weights are what ranks would exchange; of many, activations are.
    arguments = ({"up": SIZES[1], "down": SIZES[2]}, shaped(rows, 1024))
    names = ts.jit(ts.value_and_grad(loss)).trace(*arguments).tape.names
    like = {1: names[0], 2: names[1]}
    found = auto_shard(ts.value_and_grad(loss), MESH, *arguments, outputs=like)
    assert found.naive["data parallel"] >= least * found.time * (1 - 1e-6)
    assert [str(one) for one in found.outputs[1:]] == [str(found.inputs[name]) for name in names[:2]]
    if rows == 64:
        assert found.inputs[names[0]] == Sharding.of(None, ("dp", "tp"))


def test_a_transformer_block_that_does_not_fit_whole_is_cut_as_people_cut_it() -> None:
    config = ts.nn.GPTConfig.llama(vocabulary=64, width=256, depth=1, heads=8, hidden=1024, length=64)
    block = ts.nn.Block.init(ts.random.key(0), config)

    def forward(block: Any, x: Any) -> Any:
        return block(x)[0]

    found = auto_shard(forward, MESH, block, shaped(4, 64, 256), batch="x", memory=2.5e6)
    assert {"replicated", "data parallel"} == set(found.unfit)
    assert found.time < found.naive["replicated"]
    assert found.time < found.naive["fully sharded"]
    gate, down = found.inputs["block.mlp.gate.weight"], found.inputs["block.mlp.down.weight"]
    assert gate.dims[1]
    assert gate.dims[1] == down.dims[0]
    assert "takes more memory than allowed" in found.render()


def test_links_decide() -> None:
    slow = {"inside": 0.001, "inside_latency": 1e9}
    found = auto_shard(mlp, MESH, *SIZES, topology=slow, memory=20e6)
    # Where a collective takes a second, only the one for the weights that do not fit is left.
    assert found.time < 3e9


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="takes a mesh of axes and sizes"):
        auto_shard(mlp, {}, *SIZES)
    with pytest.raises(ArgumentError, match="a topology of 8 devices for 4 ranks"):
        auto_shard(mlp, MESH, *SIZES, topology={"devices": 8})
    with pytest.raises(ArgumentError, match="nobody measured rates of `abacus`"):
        auto_shard(mlp, MESH, *SIZES, rates="abacus")
    with pytest.raises(ArgumentError, match="names `weights`"):
        auto_shard(mlp, MESH, *SIZES, outputs={0: "weights"})
    with pytest.raises(ArgumentError, match="has no input `y`"):
        auto_shard(mlp, MESH, *SIZES, batch="y")
    with pytest.raises(ScheduleError, match="no sharding keeps the inputs of a rank below 100 bytes"):
        auto_shard(mlp, MESH, *SIZES, memory=100.0)
