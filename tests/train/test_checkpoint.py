"""Checkpoints: trees come back bit for bit, what does not fit is said by name, and a folder keeps the last few."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, CheckpointError, FileFormatError
from tessera.frontend.pytree import flatten, leaf_names
from tessera.runtime.safetensors import SafetensorsFile


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two trees."""

    first: Any
    second: Any


def make_tree(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    params = {"layers": [ts.array(rng.standard_normal((3, 4)), ts.f32) for _ in range(2)], "empty": ts.zeros((0, 2))}
    optimizer = ts.optim.adamw(1e-3)
    state = ts.train.State.init(params, optimizer, key=seed)
    return Pair(state, {"rate": 0.5, "name": "run", "steps": 3, "b": ts.ones((2,), ts.bf16), "none": None})


def same(one: Any, other: Any) -> bool:
    (left, form), (right, shape) = flatten(one), flatten(other)
    equal = [a.tobytes() == b.tobytes() if hasattr(a, "tobytes") else a == b for a, b in zip(left, right, strict=True)]
    return form == shape and all(equal)


@pytest.mark.parametrize("name", ["model.safetensors", "folder"])
def test_a_tree_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    path, tree = tmp_path / name, make_tree()
    ts.train.save(path, make_tree(1))
    ts.train.save(path, tree, {"note": [1, None]})  # in the place of the first
    found = ts.train.restore(path, make_tree(2))
    assert same(found, tree)
    assert isinstance(found.first, ts.train.State)
    step = ts.jit(lambda state: state.replace(step=state.step + 1), donate={"state"})
    assert int(step(found.first).step) == 1  # memory of its own
    alone = ts.train.restore(path)
    assert alone["first.params.layers.1"].tobytes() == tree.first.params["layers"][1].tobytes()
    assert alone["second.rate"] == 0.5
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_tensors_have_the_names_that_others_would_give_them(tmp_path: Path) -> None:
    tree = {
        "blocks": [{"w": ts.ones((1,))}, {"w": ts.ones((1,))}],
        "a.b": ts.ones((1,)),
        "head": Pair(ts.ones((1,)), None),
    }
    ts.train.save(tmp_path / "t.safetensors", tree)
    file = SafetensorsFile(tmp_path / "t.safetensors")
    assert set(file) == {"blocks.0.w", "blocks.1.w", "a.b", "head.first"}
    assert leaf_names(flatten({"a": {"b": 1}, "a.b": 2})[1]) == ["['a']['b']", "['a.b']"]
    assert leaf_names(flatten(3)[1]) == ["value"]


def test_what_does_not_fit_is_said_by_name(tmp_path: Path) -> None:
    path = tmp_path / "one"
    ts.train.save(path, {"w": ts.ones((2, 3)), "rate": 0.5})
    cases: list[tuple[Any, str]] = [
        ({"w": ts.ones((2, 3))}, "nothing here takes `rate` (1 names here, 2 there)"),
        ({"weight": ts.ones((2, 3)), "rate": 0.5}, "it lacks `weight`, and nothing here takes `w`"),
        ({"w": ts.ones((3, 2)), "rate": 0.5}, "`w` is [2, 3] f32 there, and [3, 2] f32 here"),
        ({"w": ts.ones((2, 3), ts.bf16), "rate": 0.5}, "`w` is [2, 3] f32 there, and [2, 3] bf16 here"),
        ({"w": 1.0, "rate": 0.5}, "`w` is a tensor [2, 3] there, and a float here"),
        ({"w": ts.ones((2, 3)), "rate": 1}, "`rate` is 0.5 there, and a int here"),
    ]
    for like, expected in cases:
        with pytest.raises(CheckpointError) as caught:
            ts.train.restore(path, like)
        assert expected in caught.value.message
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        ts.train.restore(tmp_path / "other")
    with pytest.raises(ArgumentError, match="`f` is a function"):
        ts.train.save(path, {"f": make_tree})
    with pytest.raises(ArgumentError, match="values that JSON has"):
        ts.train.save(path, {}, {"x": object()})


def test_a_bit_that_changed_on_disk_is_found(tmp_path: Path) -> None:
    ts.train.save(tmp_path / "one", {"w": ts.ones((64,))})
    file = tmp_path / "one" / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(FileFormatError, match="its checksum is not the one that was written"):
        ts.train.restore(tmp_path / "one", {"w": ts.ones((64,))})
    ts.train.save(tmp_path / "one.safetensors", {"w": ts.ones((64,))})
    (tmp_path / "one.safetensors").write_bytes((tmp_path / "one.safetensors").read_bytes()[:-1] + b"!")
    with pytest.raises(FileFormatError, match=r"one\.safetensors` is damaged"):
        ts.train.restore(tmp_path / "one.safetensors")
    (tmp_path / "one" / "checkpoint.json").write_text(json.dumps({"version": 9}), encoding="utf-8")
    with pytest.raises(FileFormatError, match="is not of version 1"):
        ts.train.restore(tmp_path / "one")


def test_a_folder_keeps_the_last_and_every_so_many(tmp_path: Path) -> None:
    like = {"w": ts.zeros((2,))}
    with ts.train.Checkpointer(tmp_path, keep=2, keep_every=100) as checkpoints:
        assert checkpoints.latest() is None
        with pytest.raises(CheckpointError, match="has no checkpoint; the steps are: none"):
            checkpoints.restore(like)
        for step in (50, 100, 150, 200, 250, 300, 300):
            checkpoints.save(step, {"w": ts.full((2,), float(step))}, {"seen": step})
        checkpoints.wait()
        assert checkpoints.steps() == [100, 200, 250, 300]
        found = checkpoints.restore(like, 200)
        assert (found.step, found.notes, found.tree["w"].tolist()) == (200, {"seen": 200}, [200.0, 200.0])
        with pytest.raises(CheckpointError, match="no checkpoint of step 150; the steps are: 100, 200, 250, 300"):
            checkpoints.restore(like, 150)
    assert {path.name for path in tmp_path.iterdir()} == {f"step-{step:09d}" for step in (100, 200, 250, 300)}


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    with ts.train.Checkpointer(tmp_path) as checkpoints:
        checkpoints.save(1, {"w": ts.ones((2,))})
    gone = 2**22 - 1  # beyond the largest number of a process here
    (tmp_path / "step-000000001").rename(tmp_path / f".old-{gone}-a1-01234567-step-000000001")
    for name in (f".new-{gone}-a1-01234567-step-000000002", f".gone-{gone}-a1-01234567-step-000000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tensors.safetensors").write_bytes(b"half")
    again = ts.train.Checkpointer(tmp_path)
    assert again.restore({"w": ts.zeros((2,))}).tree["w"].tolist() == [1.0, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_the_state_may_be_consumed_while_it_is_written_and_errors_come_back(tmp_path: Path) -> None:
    step = ts.jit(lambda state: state + 1.0, donate={"state"})
    checkpoints = ts.train.Checkpointer(tmp_path / "folder", keep=9)
    state = ts.zeros((1 << 16,))
    for number in range(4):
        checkpoints.save(number, state)
        state = step(state)
    checkpoints.wait()
    for number in range(4):
        assert set(checkpoints.restore(ts.zeros((1 << 16,)), number).tree.tolist()) == {float(number)}
    for path in sorted((tmp_path / "folder").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "folder").rmdir()
    checkpoints.save(9, state)
    with pytest.raises(CheckpointError, match="there is no folder"):
        checkpoints.save(10, state)


def test_a_folder_of_other_things_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ts.TesseraError, match=r"T0715.*holds other things than a checkpoint: thesis\.txt"):
        ts.train.save(tmp_path, {"w": ts.ones((2,))})
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    ts.train.save(tmp_path / "own", {"w": ts.ones((2,))})
    ts.train.save(tmp_path / "own", {"w": ts.zeros((2,))})
    assert ts.train.restore(tmp_path / "own", {"w": ts.ones((2,))})["w"].tolist() == [0.0, 0.0]


def test_paths_that_are_not_there_or_something_else_are_refused(tmp_path: Path) -> None:
    tree = {"w": ts.ones((2,))}
    for path in (tmp_path / "absent", tmp_path / "absent" / "one", tmp_path / "absent.safetensors"):
        with pytest.raises(CheckpointError, match="there is no checkpoint at"):
            ts.train.restore(path, tree)
    with pytest.raises(CheckpointError, match="there is no folder"):
        ts.train.save(tmp_path / "absent" / "one", tree)
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.safetensors").mkdir()
    for name, there in (("file", "file"), ("folder.safetensors", "folder")):
        with pytest.raises(CheckpointError, match=f"is a {there}, and the checkpoint would be a"):
            ts.train.save(tmp_path / name, tree)
    for _ in range(2):
        ts.train.save(f"{tmp_path}/saved/", tree)
    assert ts.train.restore(f"{tmp_path}/saved/", tree)["w"].tolist() == [1.0, 1.0]


def test_notes_are_those_of_the_moment_and_none_hides_the_step(tmp_path: Path) -> None:
    with ts.train.Checkpointer(tmp_path) as checkpoints:
        log = [1]
        checkpoints.save(3, {"w": ts.ones((1 << 20,))}, {"log": log, "step": 99})
        log.append(2)
        found = checkpoints.restore({"w": ts.zeros((1 << 20,))})
    assert (found.step, found.notes["log"]) == (3, [1])
