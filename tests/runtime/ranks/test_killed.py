"""A rank that is killed at any moment: the others end with an error that names it, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import RankError
from tessera.ir.target import worker_pool

RANKS = 3


@ts.jit(backend="reference")
def total(x: Any) -> Any:
    return ts.dist.all_reduce(x, "dp")


def work(folder: str) -> None:
    """Collectives of several sizes without end, after saying which process this is."""
    rank = ts.dist.rank()
    with ts.dist.mesh(dp=RANKS):
        total(ts.ones(2))  # all are there
        with open(os.path.join(folder, str(rank)), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        sizes = (1, 1000, 300_000, 1_200_000)
        while True:
            for size in sizes:
                total(ts.array(np.ones(size, np.float32)))


def kill_one(folder: Path, victim: int, delay: float, killed: list[int]) -> None:
    """Kill a rank some time after all are at work."""
    end, known = time.monotonic() + 60, dict[str, str]()
    while (len(known) < RANKS or not all(known.values())) and time.monotonic() < end:
        known = {one.name: one.read_text(encoding="utf-8") for one in folder.iterdir()}
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(int(known[str(victim)]), signal.SIGKILL)
    killed += [int(one) for one in known.values()]


def _shared_files() -> set[str]:
    """Files of shared memory, but for those of MPI, which other tests may have under way."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("mpich_shm_")}


def _descriptors() -> set[str]:
    """What ranks could leave open: all but files of workers that compile, which start when they are first needed."""
    workers = set(map(str, worker_pool.pool().descriptors()))
    found: set[str] = set()
    for number in set(os.listdir("/proc/self/fd")) - workers:
        with suppress(FileNotFoundError):  # the listing itself has one
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {link for link in found if link.startswith(("socket:", "pipe:", "/dev/shm", "/memfd:"))}


def check_one(folder: Path, draw: random.Random) -> None:
    folder.mkdir()
    victim, delay, killed = draw.randrange(RANKS), draw.random() * 0.3, list[int]()
    memory, files = _shared_files(), _descriptors()
    killer = threading.Thread(target=kill_one, args=(folder, victim, delay, killed))
    killer.start()
    with pytest.raises(RankError) as found:
        ts.dist.run(work, RANKS, args=(str(folder),), timeout=60)
    killer.join()
    error, where = found.value, f"rank {victim} after {delay:.3f} s"
    assert error.message == f"rank {victim} of {RANKS} failed: signal 9 ended it", where
    told = "\n".join(error.notes)
    for other in set(range(RANKS)) - {victim}:
        assert f"rank {other}: T0712: rank " in told, f"{where}: {told}"
        assert f" left while rank {other} was at `all_gather` of " in told, f"{where}: {told}"
    assert f"rank {victim} left while rank " in told, f"{where}: {told}"
    assert not any(os.path.exists(f"/proc/{process}") for process in killed), "nobody is left"
    assert _shared_files() <= memory
    assert _descriptors() <= files


def test_a_rank_that_is_killed_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    check_one(tmp_path / "one", random.Random(1))


@pytest.mark.slow
def test_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(2)
    for number in range(int(os.environ.get("KILLS", "6"))):
        check_one(tmp_path / str(number), draw)
