"""Which world a process was started in, and which communicator it joins it with.

A process that `mpiexec`, `srun` or `torchrun` has started finds its number in variables that those set; nothing else
has to be said. What then moves its bytes is a communicator by name:

- `shared_memory`: processes of one machine, which meet by an abstract socket of the job;
- `mpi`: whatever MPI reaches (`pip install "tessera[mpi]"`);
- any other name: the entry point of that name in the group `tessera.communicators`, which an installed package has;
- `none`: nobody; this process is alone.

`TESSERA_COMMUNICATOR` names it; without it, it follows from who started the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import RankError
from tessera.types.frozen import frozen
from tessera.types.settings import communicator_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tessera.runtime.ranks.world import Communicator

GROUP = "tessera.communicators"
"""The group of entry points that packages with a communicator have one in."""

NONE, SHARED_MEMORY, MPI = "none", "shared_memory", "mpi"
OURS = (SHARED_MEMORY, MPI)


@frozen
class Place:
    """Where variables say that this process is: its rank, of how many, and of how many on this machine.

    `size` and `here` are 0 where no variable says it. `job` is the same text in all processes of one world, and in no
    other: who has to find the others finds them by it.
    """

    launcher: str
    rank: int
    size: int
    here: int
    job: str

    @property
    def is_one_machine(self) -> bool:
        """Whether all ranks are known to be of this machine."""
        return 0 < self.size == self.here

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size or '?'} by {self.launcher}"


Connect = Callable[[Place | None, float], "Communicator"]
"""What an entry point names: from where the process is, None where no variable says it, and the seconds that it may
wait for others, to the communicator of this rank. Raises RankError (T0712) where it cannot join."""


def find_place(environment: Mapping[str, str] | None = None) -> Place | None:
    """Where the variables of launchers say that this process is; None where they say nothing, or that it is alone.

    The innermost launcher counts: `torchrun` is often started by `srun`.

    >>> find_place({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}).rank
    1
    >>> find_place({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None  # a batch script, not a task that `srun` started
    True
    """
    values = os.environ if environment is None else environment
    for read in (_torchrun, _open_mpi, _process_manager, _variables, _slurm):
        found = read(values)
        if found is not None:
            return _check(found) if found.size != 1 else None
    return None


def _torchrun(values: Mapping[str, str]) -> Place | None:
    return _variables(values) if "TORCHELASTIC_RUN_ID" in values else None


def _variables(values: Mapping[str, str]) -> Place | None:
    """`RANK` and `WORLD_SIZE`, as `torchrun` and many scripts set them."""
    if "RANK" not in values or "WORLD_SIZE" not in values:
        return None
    size = _number(values, "WORLD_SIZE")
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
    # Where nobody says which job it is, processes of one parent are of one.
    job = "/".join(values.get(name, "") for name in names).strip("/") or f"parent {os.getppid()}"
    return Place("torchrun", _number(values, "RANK"), size, _number(values, "LOCAL_WORLD_SIZE", size), job)


def _open_mpi(values: Mapping[str, str]) -> Place | None:
    if "OMPI_COMM_WORLD_SIZE" not in values or "OMPI_COMM_WORLD_RANK" not in values:
        return None
    rank, size = _number(values, "OMPI_COMM_WORLD_RANK"), _number(values, "OMPI_COMM_WORLD_SIZE")
    return Place("mpiexec", rank, size, _number(values, "OMPI_COMM_WORLD_LOCAL_SIZE", 0), _mpi_job(values))


def _process_manager(values: Mapping[str, str]) -> Place | None:
    """PMI, which MPICH and its relatives are started with, and PMIx, by `mpiexec` or `srun --mpi=...`."""
    name = next((name for name in ("PMI_RANK", "PMIX_RANK") if name in values), None)
    if name is None:
        return None
    size = _number(values, "PMI_SIZE", _number(values, "SLURM_STEP_NUM_TASKS", 0))
    here = _number(values, "MPI_LOCALNRANKS", _tasks_here(values))
    return Place("mpiexec", _number(values, name), size, here, _mpi_job(values))


def _slurm(values: Mapping[str, str]) -> Place | None:
    # A batch script has `SLURM_PROCID` too, and is one process; a task of `srun` belongs to a step.
    if "SLURM_STEP_NUM_TASKS" not in values or "SLURM_PROCID" not in values:
        return None
    size, job = _number(values, "SLURM_STEP_NUM_TASKS"), values.get("SLURM_JOB_ID", "")
    job = f"slurm {job}.{values.get('SLURM_STEP_ID', '')}"
    return Place("srun", _number(values, "SLURM_PROCID"), size, _tasks_here(values), job)


def _tasks_here(values: Mapping[str, str]) -> int:
    """How many tasks of a Slurm step are of this machine; known where it has one machine alone."""
    return _number(values, "SLURM_STEP_NUM_TASKS", 0) if values.get("SLURM_STEP_NUM_NODES") == "1" else 0


def _mpi_job(values: Mapping[str, str]) -> str:
    found = [values[name] for name in ("PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID") if name in values]
    # The ranks of one machine are children of one process, which started them.
    return "/".join((*found, f"parent {os.getppid()}"))


def _number(values: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = values.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        raise RankError(
            f"`{name}` is `{text}`; it must be the number that who started this process gave it",
            span=None,
            fix="set `TESSERA_COMMUNICATOR=none` where this process is no rank",
        )
    return int(text)


def _check(place: Place) -> Place:
    if place.size and place.rank >= place.size:
        raise RankError(
            f"{place.launcher} says that this process is rank {place.rank} of {place.size}",
            span=None,
            notes=("rule: ranks are 0 to one less than their number",),
            fix="set `TESSERA_COMMUNICATOR=none` where this process is no rank",
        )
    return place


def is_started() -> bool:
    """Whether this process should be a rank: it was started as one, or a communicator is named."""
    name = communicator_name()
    return name != NONE and (name != "" or find_place() is not None)


def connect(seconds: float) -> Communicator:
    """Join the world that this process was started in, by the communicator that is named or follows from it."""
    place, name = find_place(), communicator_name()
    if not name:
        assert place is not None
        name = _usual_name(place)
    return connector_of(name)(place, seconds)


def _usual_name(place: Place) -> str:
    if place.launcher == "mpiexec":
        return MPI
    if place.is_one_machine:
        return SHARED_MEMORY
    raise RankError(
        f"this process is {place}, of which {place.here or 'an unknown number'} are of this machine, and without MPI "
        "only ranks of one machine reach each other",
        span=None,
        notes=("rule: `torchrun` and `srun` without MPI start ranks that communicate through shared memory",),
        fix='start them with `mpiexec`, or `srun --mpi=pmix`, and `pip install "tessera[mpi]"`; '
        "`TESSERA_COMMUNICATOR` names any other communicator",
    )


def connector_of(name: str) -> Connect:
    """What joins a world by the communicator of a name; raises RankError (T0712) where there is none."""
    found = find_entries()
    if name in OURS:
        return _ours(name)
    if name not in found:
        others = ", ".join(f"`{one}`" for one in (*OURS, *found))
        raise RankError(
            f"there is no communicator `{name}`; there are {others}",
            span=None,
            notes=(f"rule: a communicator is an entry point in the group `{GROUP}` of an installed package",),
            fix="set `TESSERA_COMMUNICATOR` to one of them, or install the package that has it",
        )
    return _load(name, found[name])


def _ours(name: str) -> Connect:
    if name == MPI:
        from tessera.runtime.ranks import mpi  # noqa: PLC0415 - `mpi4py`, for those who have it

        return mpi.connect
    from tessera.runtime.ranks import rendezvous  # noqa: PLC0415 - for ranks of one machine

    return rendezvous.connect


def find_entries() -> dict[str, EntryPoint]:
    """The communicators of installed packages, by name; raises RankError (T0712) where two have one name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes longer than most calls

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = found.get(entry.name)
        if entry.name in (*OURS, NONE) or (other is not None and other.value != entry.value):
            first = f"`{other.value}`" if other is not None else "one of Tessera's own"
            raise RankError(
                f"the communicator `{entry.name}` of `{entry.value}` has the name of {first}",
                span=None,
                notes=(f"rule: names in the group `{GROUP}` are different",),
                fix="uninstall one of the packages, or let it take another name",
            )
        found[entry.name] = entry
    return found


def _load(name: str, entry: EntryPoint) -> Connect:
    try:
        connector: Any = entry.load()
        is_function, kind = callable(connector), type(connector).__name__
    except Exception as error:
        raise RankError(
            f"the communicator `{name}` is `{entry.value}`, which cannot be loaded: {error}",
            span=None,
            fix="see whether its package is whole, and made for this version",
        ) from error
    if not is_function:
        raise RankError(
            f"the communicator `{name}` is `{entry.value}`, which is a {kind}",
            span=None,
            notes=("rule: it is a function of a place and of seconds that gives the communicator of this rank",),
            fix="name that function in the entry point",
        )
    return connector
