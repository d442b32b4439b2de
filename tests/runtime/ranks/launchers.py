"""Who starts the ranks of a test: `ts.dist.run` itself, over shared memory, or `mpiexec`, over MPI.

A test that takes the fixture `launcher` runs once with each: within it `ts.dist.run` means that launcher. What ranks
run, their results and their errors are the same.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import processes, world
from tessera.runtime.ranks.algorithms import Table

ROOT = Path(__file__).parents[3]


def find_mpiexec() -> str:
    """The command; a test is skipped only where no wheel of MPI can be installed."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None and not sys.platform.startswith("linux"):
        pytest.skip("there is no wheel of MPI for this system, and no `mpiexec`")
    assert found is not None, "the extra `test` installs MPI: pip install -e '.[test]'"
    return found


def run_mpiexec(ranks: int, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as ranks, with some variables more."""
    values = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_NUM_THREADS": "1", **variables}
    values.pop("TESSERA_COMMUNICATOR", None)
    return subprocess.run(
        [find_mpiexec(), "-n", str(ranks), sys.executable, *command],
        env={**values, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def launch_by_mpiexec(
    task: Mapping[str, Any],
    ranks: int,
    *,
    seconds: float | None = None,
    labelled: bool = True,
    table: Table | None = None,
) -> list[Any]:
    """As `processes.launch` does it."""
    body = pickle.dumps(dict(task))
    payload = pickle.dumps(({"path": sys.path, "main": None, "table": table or Table()}, body))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task").write_bytes(payload)
        variables = {} if seconds is None else {"TESSERA_RANK_SECONDS": f"{seconds:g}"}
        done = run_mpiexec(ranks, "-m", "tests.runtime.ranks.launchers", folder, **variables)
        answers: list[dict[str, Any]] = []
        for rank in range(ranks):
            path = Path(folder) / str(rank)
            answers.append(pickle.loads(path.read_bytes()) if path.exists() else {"summary": done.stderr[-2000:]})
    failed = [rank for rank, answer in enumerate(answers) if "value" not in answer]
    if not failed:
        assert done.returncode == 0, done.stderr
        return [answer["value"] for answer in answers]
    first = next((rank for rank in failed if not isinstance(answers[rank].get("error"), RankError)), failed[0])
    notes = [f"rank {rank}: {answers[rank]['summary']}" for rank in failed if rank != first]
    message = f"rank {first} of {ranks} failed: {answers[first]['summary']}"
    raise RankError(message, notes=tuple(notes)) from answers[first].get("error")


def main() -> None:
    """Be a rank: no process around it tells it so, but the variables of `mpiexec`."""
    folder = Path(sys.argv[1])
    answer = processes._answer_task((folder / "task").read_bytes())  # pyright: ignore[reportPrivateUsage]
    place = folder / str(world.rank())
    part = place.with_suffix(".part")
    part.write_bytes(processes._pickle_answer(answer))  # pyright: ignore[reportPrivateUsage]
    part.rename(place)
    communicator = world.current()
    if "value" not in answer and communicator is not None:
        communicator.abandon(answer["summary"])


LAUNCHERS = {"shared_memory": processes.launch, "mpiexec": launch_by_mpiexec}

if __name__ == "__main__":
    main()
