"""Worlds that somebody else started: what variables of launchers say, and how processes meet by them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import discovery, rendezvous, world
from tessera.runtime.ranks.discovery import Place, find_place

ROOT = Path(__file__).parents[3]
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "9",
    "TORCHELASTIC_RUN_ID": "x",
}
SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (OPEN_MPI, ("mpiexec", 1, 4, 2)),
        (MPICH, ("mpiexec", 2, 4, 4)),
        (TORCHRUN, ("torchrun", 3, 4, 4)),
        (SLURM, ("srun", 1, 8, 0)),
        (SLURM | {"SLURM_STEP_NUM_NODES": "1"}, ("srun", 1, 8, 8)),
        (SLURM | {"PMIX_RANK": "1"}, ("mpiexec", 1, 8, 0)),
        (SLURM | TORCHRUN, ("torchrun", 3, 4, 4)),
        (OPEN_MPI | TORCHRUN, ("torchrun", 3, 4, 4)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ("torchrun", 0, 2, 2)),
        ({"PMIX_RANK": "5"}, ("mpiexec", 5, 0, 0)),
    ],
)
def test_launchers_are_recognized_by_their_variables(values: dict[str, str], expected: tuple[object, ...]) -> None:
    found = find_place(values)
    assert found is not None
    assert (found.launcher, found.rank, found.size, found.here) == expected


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"RANK": "3"},
        {"WORLD_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"PMI_RANK": "0", "PMI_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script
    ],
)
def test_a_process_that_is_alone_is_no_rank(values: dict[str, str]) -> None:
    assert find_place(values) is None


def test_variables_that_cannot_be_are_refused() -> None:
    with pytest.raises(RankError, match="`WORLD_SIZE` is `many`"):
        find_place({"RANK": "0", "WORLD_SIZE": "many"})
    with pytest.raises(RankError, match="this process is rank 4 of 4"):
        find_place({"RANK": "4", "WORLD_SIZE": "4"})


def test_ranks_of_several_machines_need_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TESSERA_COMMUNICATOR", raising=False)
    with pytest.raises(RankError, match="rank 3 of 4 by torchrun, of which 2 are of this machine") as found:
        discovery.connect(1.0)
    assert found.value.fix is not None
    assert "srun --mpi=pmix" in found.value.fix.message
    assert world.size() == 4, "what variables say is known without joining"
    monkeypatch.setenv("TESSERA_COMMUNICATOR", "none")
    assert (world.rank(), world.size(), world.current()) == (0, 1, None)
    monkeypatch.setenv("TESSERA_COMMUNICATOR", "shared_memory")
    with pytest.raises(RankError, match="shared memory reaches no other"):
        discovery.connect(1.0)


def test_who_does_not_come_is_named() -> None:
    job = f"test {os.getpid()} {time.monotonic_ns()}"
    with pytest.raises(RankError, match=r"of 3 ranks, 1, 2 did not come within 0.2 s, where rank 0 waits"):
        rendezvous.connect(Place("torchrun", 0, 3, 3, job), 0.2)
    with pytest.raises(RankError, match=r"rank 0 did not come within 0.2 s, where rank 1 of 3 waits"):
        rendezvous.connect(Place("torchrun", 1, 3, 3, job), 0.2)
    with pytest.raises(RankError, match="no variable says which rank this process is"):
        rendezvous.connect(None, 0.2)


def test_two_that_say_they_are_one_rank_are_told_and_strangers_get_nothing() -> None:
    place = [Place("torchrun", rank, 2, 2, f"twice {os.getpid()}") for rank in range(2)]
    files = len(os.listdir("/proc/self/fd"))
    first = threading.Thread(target=lambda: made.append(rendezvous.connect(place[0], 20.0)))
    made: list[world.Communicator] = []
    first.start()
    while not _listens():
        time.sleep(0.001)
    with pytest.raises(RankError, match="another process is rank 0 of the same job"):
        rendezvous.connect(place[0], 0.2)
    made.append(rendezvous.connect(place[1], 20.0))
    first.join()
    assert sorted(one.rank for one in made) == [0, 1]
    for one in made:
        one.abandon("the end")
    made.clear()
    assert len(os.listdir("/proc/self/fd")) <= files + 2, "maps go with what holds them"


def _listens() -> bool:
    with open("/proc/net/unix", encoding="utf-8") as file:
        return any("@tessera-" in line for line in file)


PROGRAM = """
import os, subprocess, sys
import numpy as np
import tessera as ts

@ts.jit(backend="reference")
def total(x):
    return ts.dist.all_reduce(x, "dp")

rank, size = ts.dist.rank(), ts.dist.world_size()
with ts.dist.mesh(dp=size):
    found = total(ts.array(np.full(3, rank + 1, np.float32))).tolist()
code = "import tessera as ts; print(ts.dist.world_size())"
inner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
print(f"rank {rank} of {size}: {found}, a child has {inner}\\n", end="")
if "fail" in sys.argv and rank == 1:
    raise ValueError("no good")
with ts.dist.mesh(dp=size):
    total(ts.ones(2))
"""


def start_job(tmp_path: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    values = {**os.environ, **TORCHRUN, "PYTHONPATH": str(ROOT), "MASTER_PORT": str(tmp_path)}
    values |= {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "TESSERA_RANK_SECONDS": "120"}
    values.pop("TESSERA_COMMUNICATOR", None)
    return [
        subprocess.Popen(
            [sys.executable, str(path), *arguments],
            env={**values, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]


def test_processes_with_variables_of_torchrun_are_ranks(tmp_path: Path) -> None:
    for rank, process in enumerate(start_job(tmp_path)):
        said, wrong = process.communicate(timeout=120)
        assert process.returncode == 0, wrong
        assert said == f"rank {rank} of 3: [6.0, 6.0, 6.0], a child has 1\n"


def test_the_error_that_ends_a_rank_is_what_the_others_are_told(tmp_path: Path) -> None:
    for rank, process in enumerate(start_job(tmp_path, "fail")):
        _, wrong = process.communicate(timeout=120)
        assert process.returncode == 1
        if rank == 1:
            assert "ValueError: no good" in wrong
        else:
            assert "left while rank" in wrong
            assert "no good" in wrong


def test_a_socket_of_the_job_is_gone_with_it() -> None:
    name = b"\0tessera-gone-" + os.urandom(4).hex().encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(name)
