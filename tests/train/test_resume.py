"""V6.2: a run that is killed at any moment and started again ends with the bits of one that was never interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = 300


def start(
    folder: Path, steps: int, *, workers: int = 0, save_every: int = 3, threads: int = 1
) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.train.small_run", *map(str, (folder, steps, workers, save_every))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TESSERA_NUM_THREADS": str(threads)},
    )


def finish(process: subprocess.Popen[str]) -> str:
    """The digest of the weights, the optimizer's state and all losses; empty where it was killed."""
    out, _ = process.communicate()
    return out.splitlines()[-1] if process.returncode == 0 else ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an uninterrupted run ends with."""
    found = finish(start(tmp_path_factory.mktemp("whole"), STEPS, save_every=STEPS))
    assert found.endswith(f" {STEPS}")
    return found


def saved(folder: Path) -> int:
    """The last step that is on the disk."""
    return max((int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")), default=0)


def kill_after(process: subprocess.Popen[str], folder: Path, step: int, seconds: float) -> int:
    """Kill a run some time after it has saved a step; the last step that is on the disk then."""
    while saved(folder) < step and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    assert finish(process) == ""
    return saved(folder)


def run_with_kills(folder: Path, steps: int, kills: int, workers: int) -> tuple[str, list[int]]:
    """What a run ends with that was killed so many times, and where."""
    draw, reached = random.Random(7 * kills + workers), list[int]()
    for number in range(kills):
        target = draw.randrange(steps * number // (kills + 1), steps * (number + 1) // (kills + 1))
        process = start(folder, steps, workers=workers)
        # A step and its share of a checkpoint take some milliseconds: these moments are anywhere in them.
        reached.append(kill_after(process, folder, target, draw.uniform(0.0, 0.02)))
    return finish(start(folder, steps, workers=workers)), reached


def test_a_killed_run_continues_bit_for_bit(whole: str, tmp_path: Path) -> None:
    found, reached = run_with_kills(tmp_path / "run", STEPS, 2, 0)
    assert found == whole
    assert 0 < reached[0] < reached[1] < STEPS
    assert all(step % 3 == 0 for step in reached)


@pytest.mark.slow
def test_a_run_that_is_killed_fifteen_times_continues_bit_for_bit(whole: str, tmp_path: Path) -> None:
    found, reached = run_with_kills(tmp_path / "run", STEPS, 15, 1)
    assert found == whole
    assert reached == sorted(reached)


def test_bits_are_the_same_for_other_numbers_of_threads_and_workers(whole: str, tmp_path: Path) -> None:
    assert finish(start(tmp_path / "run", STEPS, workers=2, save_every=70, threads=3)) == whole
