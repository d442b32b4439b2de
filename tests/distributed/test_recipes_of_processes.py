"""Recipes on processes, over shared memory and over MPI, have the losses of one rank; runs whose ranks are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import RankError
from tests.distributed import programs
from tests.distributed.test_recipes import RECIPES, alone, alone_in_shards, bound
from tests.runtime.ranks.launchers import LAUNCHERS


def train_by(launcher: str, names: tuple[str, ...], steps: int) -> list[tuple[list[float], str]]:
    """The losses and bits of recipes of one mesh, which all its ranks agree on."""
    cases = [RECIPES[name] for name in names]
    task: dict[str, Any] = {"function": programs.train_recipes, "args": (cases, steps), "kwargs": {}}
    every = LAUNCHERS[launcher](task, prod(cases[0][2].values()))
    for one in every:
        assert [losses for losses, _ in one] == [losses for losses, _ in every[0]]
        assert [bits for _, bits in one] == [bits for _, bits in every[0]]
    return every[0]


def check(names: tuple[str, ...], steps: int) -> None:
    """Both launchers give the same bits, and these are the losses of one rank."""
    found = {launcher: train_by(launcher, names, steps) for launcher in LAUNCHERS}
    assert found["mpiexec"] == found["shared_memory"]
    for name, (losses, _) in zip(names, found["mpiexec"], strict=True):
        of, choices, _ = RECIPES[name]
        np.testing.assert_allclose(losses, alone(of, steps)["losses"], rtol=bound(steps), err_msg=name)
        if choices.get("shards") == 4:
            np.testing.assert_array_equal(losses, alone_in_shards(of, steps)["losses"], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_thirty_steps_of_a_recipe_on_processes_have_the_losses_of_one_rank(name: str) -> None:
    check((name,), 30)


# Ranks that are killed while they train.


def _kill(folder: Path, ranks: int, draw: random.Random, step: int) -> None:
    """Kill a rank some time after all have come to a step."""
    names, end = [f"step-{rank}" for rank in range(ranks)], time.monotonic() + 60
    while time.monotonic() < end:
        seen = [(folder / name).read_text() if (folder / name).exists() else "" for name in names]
        if all(one and int(one) >= step for one in seen):
            break
        time.sleep(0.001)
    time.sleep(draw.uniform(0.0, 0.02))
    os.kill(int((folder / f"rank-{draw.randrange(ranks)}").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_training_whose_ranks_are_killed_starts_again_with_the_same_bits(tmp_path: Path) -> None:
    ranks, steps, draw = 2, 40, random.Random(5)
    (tmp_path / "whole").mkdir()
    (expected, *_) = ts.dist.run(programs.train_on, ranks, args=(str(tmp_path / "whole"), steps))
    folder = tmp_path / "killed"
    folder.mkdir()
    reached: list[int] = []
    for number in range(4):
        killer = threading.Thread(target=_kill, args=(folder, ranks, draw, 8 * (number + 1)))
        for rank in range(ranks):
            (folder / f"step-{rank}").unlink(missing_ok=True)
        killer.start()
        with pytest.raises(RankError, match="signal 9 ended it"):
            ts.dist.run(programs.train_on, ranks, args=(str(folder), steps), timeout=60)
        killer.join()
        reached.append(int(ts.train.restore(str(folder / "state"))["step"]))
    assert reached == sorted(reached)
    assert 0 < reached[0] < steps
    found = ts.dist.run(programs.train_on, ranks, args=(str(folder), steps))
    assert found == [expected] * ranks
