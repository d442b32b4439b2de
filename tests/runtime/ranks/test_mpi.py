"""Ranks of `mpiexec`: they keep the rules, need no wrapper, compute what others compute, and nobody hangs."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks import mpi, processes
from tessera.runtime.ranks.algorithms import ALGORITHMS, Table
from tessera.runtime.ranks.conformance import Finding, check
from tessera.runtime.ranks.discovery import Place
from tests.runtime.ranks import programs
from tests.runtime.ranks.launchers import LAUNCHERS, ROOT, find_mpiexec, launch_by_mpiexec, run_mpiexec
from tests.runtime.ranks.test_discovery import PROGRAM

PLACE = Place("mpiexec", 1, 4, 4, "job")


def test_mpi_keeps_the_rules() -> None:
    found = check("mpi", launcher=f"{find_mpiexec()} -n 4", environment={"PYTHONPATH": str(ROOT)})
    assert all(one.holds for one in found), "\n".join(map(str, found))


@pytest.mark.slow
def test_ranks_that_disagree_end_by_an_error_every_time() -> None:
    """Parts of 20,000 bytes are under way as ranks leave; worlds beside each other keep CPUs busy."""

    def disagree(_: int) -> list[Finding]:
        launcher, values = f"{find_mpiexec()} -n 4", {"PYTHONPATH": str(ROOT), "TESSERA_NUM_THREADS": "1"}
        return check("mpi", launcher=launcher, environment=values, rules=("mismatch", "untouched", "afterwards"))

    with ThreadPoolExecutor(6) as worlds:
        found = [one for world in worlds.map(disagree, range(24)) for one in world]
    assert all(one.holds for one in found), "\n".join(map(str, found))


def test_a_program_needs_no_wrapper(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = run_mpiexec(4, str(tmp_path / "train.py"))
    assert done.returncode == 0, done.stderr
    expected = {f"rank {rank} of 4: [10.0, 10.0, 10.0], a child has 1" for rank in range(4)}
    assert set(done.stdout.splitlines()) == expected


def test_a_rank_that_fails_ends_all_with_errors_that_say_why(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = run_mpiexec(3, str(tmp_path / "train.py"), "fail")
    assert done.returncode != 0
    assert "ValueError: no good" in done.stderr
    for rank in (0, 2):
        assert f"left while rank {rank} was at `all_gather` of 8 bytes" in done.stderr
    assert "rank 1 said: rank 1 has left: ValueError: no good" in done.stderr


def test_mpiexec_may_start_ranks_over_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM + "\nassert 'mpi4py' not in sys.modules\n")
    done = run_mpiexec(2, str(tmp_path / "train.py"), TESSERA_COMMUNICATOR="shared_memory")
    assert done.returncode == 0, done.stderr
    alone = run_mpiexec(2, "-c", "import tessera as ts; print(ts.dist.world_size())", TESSERA_COMMUNICATOR="none")
    assert "".join(alone.stdout.split()) == "11"  # both write at once, so that lines may join


KILLED = """
import os, re, signal
import tessera as ts

with open("/proc/self/maps") as file:
    assert "mpich_shm_" not in file.read()
rank = ts.dist.rank()
with ts.dist.mesh(dp=2):
    ts.jit(lambda x: ts.dist.all_reduce(x, "dp"))(ts.ones(300_000))
if rank == 0:  # what two ranks print may mix
    with open("/proc/self/maps") as file:
        print("has", *set(re.findall("/dev/shm/(mpich_shm_[0-9A-Za-z_]+)", file.read())), flush=True)
with ts.dist.mesh(dp=2):
    ts.jit(lambda x: ts.dist.all_gather(x, "dp"))(ts.ones(300_000))
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
ts.dist.mesh(dp=2)
signal.pause()
"""


def test_a_rank_that_is_killed_leaves_no_file_in_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED)
    done = run_mpiexec(2, str(tmp_path / "train.py"))
    assert done.returncode != 0
    names = {name for line in done.stdout.splitlines() if line.startswith("has ") for name in line.split()[1:]}
    assert names, f"MPICH has mapped no file: {done.stdout} {done.stderr}"
    assert not [name for name in names if os.path.lexists(f"/dev/shm/{name}")]


def test_only_the_shared_memory_of_this_job_is_unlinked(tmp_path: Path) -> None:
    """Neither files of that name that others have, nor anything else that is mapped: libraries of MPICH are."""
    own, other, replaced = (Path(f"/dev/shm/mpich_shm_test{os.getpid()}_{at}") for at in range(3))
    library = tmp_path / "mpich" / "libmpich_shm_1.so"
    library.parent.mkdir()
    files = (own, other, replaced, library)
    for file in files:
        file.write_bytes(bytes(4096))
    try:
        with contextlib.ExitStack() as mapped:
            for file in (own, replaced, library):
                with file.open("r+b") as opened:
                    mapped.enter_context(mmap.mmap(opened.fileno(), 0))
            replaced.unlink()
            replaced.write_bytes(b"of another job")
            mpi.unlink_shared_memory()
            assert [file.exists() for file in files] == [False, True, True, True]
            mpi.unlink_shared_memory()  # another rank was first
    finally:
        for file in (own, other, replaced):
            file.unlink(missing_ok=True)


@pytest.fixture(params=sorted(LAUNCHERS))
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who starts the ranks of `ts.dist.run`."""
    monkeypatch.setattr(processes, "launch", LAUNCHERS[request.param])
    return request.param


def test_four_ranks_get_what_the_reference_says(launcher: str) -> None:
    for agreed, result, refused in ts.dist.run(programs.four_ranks, ranks=4):
        assert all(same for _, same in agreed), agreed
        assert refused == "mesh(dp=3) has 3 ranks, and the world has 4"
        assert result.shape == (3, 2)


def test_bits_are_those_of_shared_memory() -> None:
    task: dict[str, Any] = {"function": programs.sharded_gradient, "args": (), "kwargs": {}}
    found: list[Any] = [start(task, 4) for start in LAUNCHERS.values()]
    for one, other in zip(*found, strict=True):
        assert [np.asarray(x).tobytes() for x in one] == [np.asarray(x).tobytes() for x in other]


def test_every_algorithm_moves_the_same_bytes() -> None:
    task: dict[str, Any] = {"function": programs.seed_snippet, "args": (), "kwargs": {}}
    found: set[bytes] = set()
    for name in ALGORITHMS["all_gather"]:
        results = launch_by_mpiexec(task, 4, table=Table({("all_gather", 4): [(1 << 40, name)]}))
        found |= {one.tobytes() for one in results}
    assert len(found) == 1


# ---- What cannot be joined.


def test_without_mpi4py_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(mpi, "import_module", absent)
    with pytest.raises(RankError, match="this process is rank 1 of 4 by mpiexec, and `mpi4py` is not") as found:
        mpi.connect(PLACE, 1.0)
    assert found.value.fix is not None
    assert 'pip install "tessera[mpi]"' in found.value.fix.message


class FakeMpi(types.SimpleNamespace):
    """As much of `mpi4py.MPI` as joining asks for."""

    def __init__(self, rank: int, size: int, threads: int = 3, joins: bool = False) -> None:
        request = types.SimpleNamespace(Test=lambda: joins)
        self.COMM_WORLD = types.SimpleNamespace(rank=rank, size=size, Idup=lambda: (None, request))
        self.THREAD_SERIALIZED = 2
        self.Get_library_version: Callable[[], str] = lambda: "Some MPI 1.0\nof somebody"
        self.Query_thread: Callable[[], int] = lambda: threads


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FakeMpi(0, 1), "this process is rank 1 of 4 by mpiexec, and MPI says rank 0 of 1"),
        (FakeMpi(1, 4, threads=1), "MPI was started for one thread"),
        (FakeMpi(1, 4), r"not all of 4 ranks joined within 0.2 s, where rank 1 waits"),
    ],
)
def test_a_world_that_is_not_as_it_was_said_is_refused(
    found: FakeMpi, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: str) -> FakeMpi:
        return found

    monkeypatch.setattr(mpi, "import_module", load)
    with pytest.raises(RankError, match=said):
        mpi.connect(PLACE, 0.2)


def test_nothing_loads_mpi_where_nobody_asks() -> None:
    assert "mpi4py.MPI" not in sys.modules, "it starts MPI in whoever loads it"
