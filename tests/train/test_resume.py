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


def start(folder: Path, steps: int, workers: int, save_every: int, threads: int = 1) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    given = map(str, (folder, steps, workers, save_every))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.train.small_run", *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TESSERA_NUM_THREADS": str(threads)},
    )


def finish(process: subprocess.Popen[str]) -> str:
    """The digest of the weights, the optimizer's state and all losses; empty where it was killed."""
    out, _ = process.communicate()
    return out.splitlines()[-1] if process.returncode == 0 else ""


def run_with_kills(folder: Path, steps: int, kills: int, workers: int, seconds: float) -> tuple[str, list[int]]:
    """What such a run ends with, and the steps that were saved when it was killed."""
    draw, reached = random.Random(kills), list[int]()
    while True:
        process = start(folder, steps, workers, 3)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if kills > 0:
            time.sleep(draw.uniform(0.1, seconds))
            process.send_signal(signal.SIGKILL)
            kills -= 1
        if found := finish(process):
            return found, reached
        saved = [int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")]
        reached.append(max(saved, default=0))


def measure(folder: Path, steps: int) -> tuple[str, float]:
    """What an uninterrupted run ends with, once its program is in the disk cache, and how long it took."""
    finish(start(folder / "warm", 1, 0, 1))
    process = start(folder / "whole", steps, 0, 1000)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    return finish(process), time.monotonic() - began


def test_a_killed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    whole, seconds = measure(tmp_path, 300)
    assert whole.endswith(" 300")
    found, reached = run_with_kills(tmp_path / "killed", 300, 3, 1, seconds)
    assert found == whole
    assert reached == sorted(reached)
    assert all(step % 3 == 0 for step in reached)


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_continues_bit_for_bit(tmp_path: Path) -> None:
    whole, seconds = measure(tmp_path, 3000)
    found, reached = run_with_kills(tmp_path / "killed", 3000, 20, 1, seconds / 2)
    assert found == whole
    assert len(set(reached)) > 3


def test_bits_are_the_same_for_any_number_of_threads_and_workers(tmp_path: Path) -> None:
    found = {
        finish(start(tmp_path / f"{threads}-{workers}", 20, workers, 7, threads))
        for threads, workers in ((1, 0), (2, 2), (3, 0))
    }
    assert len(found) == 1
    assert found.pop().endswith(" 20")
