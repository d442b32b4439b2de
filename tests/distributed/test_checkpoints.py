"""Checkpoints in parts: what they replace, whose parts they hold, and what happens where one rank cannot write."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist
from tessera.diagnostics.codes import ArgumentError, CheckpointError, NumericsError
from tessera.distributed.layout import Parallel, layout_of, placements_of
from tessera.runtime.ranks.world import mesh_of
from tessera.train import sharded_checkpoint
from tests.runtime.ranks.threads import on_ranks

SECONDS = 60.0
PARAMS = {"w": ts.ones((4, 2))}


def leaves(tree: Any) -> list[Any]:
    return [np.asarray(one) for one in ts.nn.state_dict(tree).values()]


def save_parts(path: Path, params: Any = PARAMS, **choices: Any) -> Any:
    recipe = dist.recipe(params, **choices)
    state = ts.train.State.init(params, ts.optim.adam(0.1), recipe=recipe)
    ts.train.save(path, state, recipe=recipe)
    return state


def test_ranks_do_not_replace_a_folder_that_holds_other_things(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "thesis.tex").write_text("x")
    (tmp_path / "runs" / "part-00000.safetensors").write_text("without notes, this is no checkpoint")
    found = on_ranks(lambda _: save_parts(tmp_path / "runs", zero=3), SECONDS, dp=2)
    assert all(isinstance(one, CheckpointError) for one in found), found
    assert "holds other things than a checkpoint: part-00000.safetensors, thesis.tex" in str(found[0])
    assert "on rank 0 of 2" in str(found[1])
    assert (tmp_path / "runs" / "thesis.tex").read_text() == "x"


def test_whole_checkpoints_and_those_in_parts_replace_each_other(tmp_path: Path) -> None:
    path = tmp_path / "last"
    ts.train.save(path, PARAMS)
    for _ in range(2):
        assert not any(isinstance(one, Exception) for one in on_ranks(lambda _: save_parts(path), SECONDS, dp=2))
    ts.train.save(path, PARAMS)
    assert sorted(one.name for one in path.iterdir()) == ["checkpoint.json", "tensors.safetensors"]


@pytest.mark.parametrize(
    "params",
    [
        {"w": ts.ones((4, 2)), "mu": {"w": ts.ones((6,))}},
        {"key": ts.ones((4,)), "step": ts.ones((2,)), "count": ts.ones((2, 3))},
        ts.ones((4, 2)),
    ],
    ids=["a name of the optimizer", "names of the state", "one tensor"],
)
@pytest.mark.parametrize("zero", [1, 3])
def test_names_of_parameters_may_be_those_of_states(params: Any, zero: int, tmp_path: Path) -> None:
    optimizer = ts.optim.adam(1e-2)

    def loss(params: Any, x: Any) -> Any:
        return sum(((one * x.mean()) ** 2.0).mean() for one in _flat(params))

    def run(_: int) -> Any:
        recipe = dist.recipe(params, zero=zero)
        like = ts.train.State.init(params, optimizer, recipe=recipe)
        step = ts.train.make_step(loss, optimizer, recipe=recipe)
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        state, _ = step(ts.train.State.init(params, optimizer, recipe=recipe), rows)
        ts.train.save(tmp_path / "state", state, recipe=recipe)
        whole = ts.train.restore(tmp_path / "state")
        sizes = {name: one.shape for name, one in whole.items() if name.startswith("params")}
        return leaves(state), leaves(ts.train.restore(tmp_path / "state", like, recipe=recipe)), sizes

    for found in on_ranks(run, SECONDS, dp=2):
        if isinstance(found, Exception):
            raise found
        held, restored, sizes = found
        for left, right in zip(held, restored, strict=True):
            np.testing.assert_array_equal(left, right)
        assert sorted(sizes.values()) == sorted(one.shape for one in _flat(params))


def _flat(params: Any) -> list[Any]:
    if not isinstance(params, dict):
        return [params]
    return [one for value in params.values() for one in _flat(value)]


def test_a_part_of_no_known_cut_is_refused() -> None:
    mesh = mesh_of((("dp", 2),))
    layout = layout_of(PARAMS, Parallel(zero=1), mesh)
    with pytest.raises(ArgumentError, match=r"`mu\.w` is \[3\], and its parameter is \[4, 2\], of which this rank has"):
        placements_of(layout, {"mu": {"w": ts.ones((3,))}}, mesh)


@pytest.mark.parametrize("name", ["part-00001", "part-00000", "checkpoint.json"])
def test_where_one_rank_cannot_write_all_raise_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sharded_checkpoint.write_flushed

    def fail(path: str, *rest: Any) -> None:
        if name in path:
            raise OSError(28, "No space left on device")
        write(path, *rest)

    monkeypatch.setattr(sharded_checkpoint, "write_flushed", fail)

    def run(_: int) -> Any:
        start = time.monotonic()
        with pytest.raises((OSError, CheckpointError), match="No space left on device"):
            save_parts(tmp_path / "state")
        with pytest.raises(CheckpointError, match="there is no folder"):
            save_parts(tmp_path / "nowhere" / "state")
        monkeypatch.setattr(sharded_checkpoint, "write_flushed", write)
        dist.recipe(PARAMS).gather(PARAMS)  # ranks still have their exchanges in one order
        return time.monotonic() - start

    for seconds in on_ranks(run, 20.0, dp=2):
        assert not isinstance(seconds, Exception), seconds
        assert seconds < 10.0
    assert list(tmp_path.iterdir()) == []


def test_a_world_may_have_the_ranks_of_a_mesh_twice(tmp_path: Path) -> None:
    whole = {"w": ts.Tensor.of(np.arange(8, dtype=np.float32).reshape(4, 2))}

    def run(rank: int) -> Any:
        with dist.mesh(dp=2):
            recipe = dist.recipe(whole, zero=3)
            state = ts.train.State.init(whole, ts.optim.adam(0.1), recipe=recipe)
            ts.train.save(tmp_path / "state", state, recipe=recipe)
            return np.asarray(ts.train.restore(tmp_path / "state", state, recipe=recipe).params["w"])

    for rank, found in enumerate(on_ranks(run, SECONDS, dp=4)):
        np.testing.assert_array_equal(found, np.asarray(whole["w"])[2 * (rank % 2) : 2 * (rank % 2) + 2])


# `fit` with checkpoints.

OPTIMIZER = ts.optim.adam(0.1)
ROWS = [np.arange(8, dtype=np.float32).reshape(2, 4) + at for at in range(4)]


def fit(folder: Path, steps: int, zero: int = 1, **choices: Any) -> Any:
    recipe = dist.recipe(PARAMS, zero=zero)
    step = ts.train.make_step(lambda p, x: ((x @ p["w"]) ** 2.0).mean(), OPTIMIZER, recipe=recipe)
    state = ts.train.State.init(PARAMS, OPTIMIZER, recipe=recipe)
    kept = ts.train.Checkpointer(folder, keep=2, recipe=recipe)
    return ts.train.fit(step, state, ROWS, steps=steps, checkpoints=kept, progress=False, **choices).state


def test_fit_continues_with_the_parts_of_each_rank(tmp_path: Path) -> None:
    def run(_: int) -> Any:
        fit(tmp_path / "two", 2, save_every=1)
        return leaves(fit(tmp_path / "two", 4, save_every=1)), leaves(fit(tmp_path / "one", 4))

    for found in on_ranks(run, SECONDS, dp=2):
        if isinstance(found, Exception):
            raise found
        for left, right in zip(*found, strict=True):
            np.testing.assert_array_equal(left, right)
    assert sorted(one.name for one in (tmp_path / "two").iterdir()) == ["step-000000003", "step-000000004"]
    # Another mesh continues.
    with dist.mesh(dp=1):
        assert int(fit(tmp_path / "two", 5, zero=0).step) == 5


def test_fit_refuses_checkpoints_of_another_recipe(tmp_path: Path) -> None:
    kept = ts.train.Checkpointer(tmp_path)
    with dist.mesh(dp=1):
        recipe = dist.recipe(PARAMS)
        step = ts.train.make_step(lambda p, x: (x @ p["w"]).mean(), OPTIMIZER, recipe=recipe)
        state = ts.train.State.init(PARAMS, OPTIMIZER, recipe=recipe)
        with pytest.raises(ArgumentError, match=r"the step and the checkpoints have different recipes: Recipe\(.*none"):
            ts.train.fit(step, state, ROWS, checkpoints=kept, progress=False)


def test_all_ranks_refuse_to_save_where_one_has_a_parameter_that_is_not_finite(tmp_path: Path) -> None:
    def run(rank: int) -> Any:
        recipe = dist.recipe(PARAMS, zero=3)

        def step(state: Any, batch: Any) -> Any:
            bad = np.full((2, 2), np.nan if rank else 1.0, np.float32)
            return state.replace(params={"w": ts.Tensor.of(bad)}), {"loss": 0.0}

        vars(step)["recipe"] = recipe
        state = ts.train.State.init(PARAMS, OPTIMIZER, recipe=recipe)
        kept = ts.train.Checkpointer(tmp_path, recipe=recipe)
        ts.train.fit(step, state, ROWS, steps=1, checkpoints=kept, progress=False)

    for found in on_ranks(run, SECONDS, dp=2):
        assert isinstance(found, NumericsError), found
    assert list(tmp_path.iterdir()) == []
