"""`TESSERA_*` variables that never change the code that is made: threads, folders, limits, verbosity."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tessera.diagnostics.codes import SettingsError
from tessera.diagnostics.error import find_nearest, user_stacklevel
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = (
    "TESSERA_NUM_THREADS",
    "TESSERA_CACHE_DIR",
    "TESSERA_CACHE_BYTES",
    "TESSERA_MEMORY_BYTES",
    "TESSERA_SPIN_MICROSECONDS",
    "TESSERA_COMPILE_WORKERS",
    "TESSERA_CUDA_DEVICE",
    "TESSERA_RANK_SECONDS",
    "TESSERA_COMMUNICATOR",
    "TESSERA_TIMING",
    "TESSERA_DUMP",
    "TESSERA_VERIFY",
    "TESSERA_REPRODUCERS",
    "TESSERA_PTXAS",
    "TESSERA_FULL_TRACEBACK",
)
"""Every variable that is read; the page of T0705 says what each does."""

_MOST_THREADS = 4096
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@frozen
class Settings:
    """What the user set in the environment; none of it is part of any cache key."""

    threads: int
    cache_folder: str
    cache_bytes: int = 4 << 30
    memory_bytes: int = 2 << 30
    spin_microseconds: int = 200
    timing: bool = False
    dump_folder: str = ""

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        """Read the variables; raises SettingsError (T0705) for a value that is not one.

        | variable | meaning | default |
        |---|---|---|
        | `TESSERA_NUM_THREADS` | threads that run a kernel, the caller included | CPUs this process may use |
        | `TESSERA_CACHE_DIR` | folder of compiled code and tuned plans, which holds nothing else | `~/.cache/tessera` |
        | `TESSERA_CACHE_BYTES` | most bytes it may hold | `4G` |
        | `TESSERA_MEMORY_BYTES` | most bytes of freed tensors kept for reuse | `2G` |
        | `TESSERA_SPIN_MICROSECONDS` | how long an idle worker spins before it sleeps | 200 |
        | `TESSERA_TIMING` | `1` prints pass timings | off |
        | `TESSERA_DUMP` | folder for the IR after each pass | none |
        """
        values = os.environ if environment is None else environment
        return Settings(
            threads=_threads(values),
            cache_folder=_cache_folder(values),
            cache_bytes=_cache_bytes(values),
            memory_bytes=_bytes(values, "TESSERA_MEMORY_BYTES", 2 << 30),
            spin_microseconds=_count(values, "TESSERA_SPIN_MICROSECONDS", 200, least=0),
            timing=_switch(values, "TESSERA_TIMING"),
            dump_folder=os.path.expanduser(values.get("TESSERA_DUMP", "")),
        )

    @property
    def cache_dir(self) -> Path:
        """The folder of compiled code."""
        return _path(self.cache_folder)

    @property
    def dump_dir(self) -> Path | None:
        """The folder for IR, or None."""
        return _path(self.dump_folder) if self.dump_folder else None


def _path(folder: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - a call that finds its code in the cache has no use for it

    return Path(folder)


def usable_cpus() -> int:
    """How many CPUs this process may keep busy: its affinity, less what a container's quota takes away."""
    cpus = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="utf-8") as file:
            quota, period = file.read().split()[:2]
    except (OSError, ValueError):
        return cpus
    if quota == "max" or not int(period):
        return cpus
    # Half a CPU more than whole ones still feeds one more thread.
    return max(1, min(cpus, -(-int(quota) // int(period))))


_RANKS_HERE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE")
"""What launchers say how many processes of a job they started on this machine."""


def _cpu_share(values: Mapping[str, str]) -> int:
    """The CPUs of a process that a launcher has started beside others, which have as many."""
    cpus = usable_cpus()
    ranks = next((int(text) for name in _RANKS_HERE if (text := values.get(name, "")).isdecimal()), 1)
    # Where all of them could have as many as this one, the launcher has divided them: each is bound to its own.
    is_divided = cpus * ranks <= (os.cpu_count() or 1)
    return cpus if is_divided else max(1, cpus // max(1, ranks))


def _threads(values: Mapping[str, str]) -> int:
    if not values.get("TESSERA_NUM_THREADS"):
        return _cpu_share(values)
    return _count(values, "TESSERA_NUM_THREADS", 1, least=1, most=_MOST_THREADS)


def _cache_folder(values: Mapping[str, str]) -> str:
    given = values.get("TESSERA_CACHE_DIR")
    folder = os.path.expanduser(given or os.path.join(values.get("XDG_CACHE_HOME") or "~/.cache", "tessera"))
    if given or not folder.startswith("~"):
        return folder
    # A user without a home, as in many containers: the store takes no folder there that is not this user's.
    return os.path.join(values.get("TMPDIR") or "/tmp", f"tessera-{os.getuid()}", "cache")


def _cache_bytes(values: Mapping[str, str]) -> int:
    return _bytes(values, "TESSERA_CACHE_BYTES", 4 << 30)


def cache_location() -> tuple[str, int]:
    """The folder of compiled code and its limit alone: asked for with every object that is looked up."""
    return _cache_folder(os.environ), _cache_bytes(os.environ)


def shows_passes() -> bool:
    """Whether `TESSERA_TIMING` or `TESSERA_DUMP` is set: then no program comes from the disk cache."""
    return _switch(os.environ, "TESSERA_TIMING") or bool(os.environ.get("TESSERA_DUMP"))


def unknown_variables() -> list[str]:
    """Variables that are set and look like ours, and that nothing reads."""
    return sorted(name for name in os.environ if name.startswith("TESSERA_") and name not in VARIABLES)


_warned: set[str] = set()


def warn_unknown_variables() -> None:
    """Name them in a warning, once in a process."""
    for name in set(unknown_variables()) - _warned:
        _warned.add(name)  # first: a warning may be an error
        close = find_nearest(name, VARIABLES)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        warnings.warn(f"`{name}` is set, and no variable of this name is read{hint}", stacklevel=user_stacklevel())


def compile_workers(default: int) -> int:
    """Processes that make machine code (`TESSERA_COMPILE_WORKERS`)."""
    return _count(os.environ, "TESSERA_COMPILE_WORKERS", default, least=1)


def cuda_device() -> int:
    """The GPU that this process works on, by its number (`TESSERA_CUDA_DEVICE`)."""
    return _count(os.environ, "TESSERA_CUDA_DEVICE", 0, least=0)


def rank_seconds() -> float:
    """How long a collective waits for a rank that does not come (`TESSERA_RANK_SECONDS`)."""
    text = os.environ.get("TESSERA_RANK_SECONDS", "")
    try:
        seconds = float(text or 300.0)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise SettingsError(f"`TESSERA_RANK_SECONDS` is `{text}`; it must be seconds, more than 0", span=None)
    return seconds


def communicator_name() -> str:
    """How this process reaches the other ranks of the world it was started in (`TESSERA_COMMUNICATOR`).

    Empty where nobody says: then it follows from who started the process.
    """
    return os.environ.get("TESSERA_COMMUNICATOR", "").strip()


def _count(values: Mapping[str, str], name: str, default: int, *, least: int, most: int = 10**9) -> int:
    text = values.get(name)
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number > most:
        raise SettingsError(f"`{name}` is `{text}`; it must be at most {most}", span=None)
    if number < least:
        raise SettingsError(f"`{name}` is `{text}`; it must be an integer of at least {least}", span=None)
    return number


def _bytes(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if not text:
        return default
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in _UNITS else ""
    number = digits[: len(digits) - len(unit)]
    if not number.isdigit():
        raise SettingsError(f"`{name}` is `{text}`; it must be bytes such as `1048576`, `512M` or `4G`", span=None)
    return int(number) * _UNITS[unit]


def _switch(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "").strip().lower()
    if text in ("", "0", "false", "no", "off"):
        return False
    if text in ("1", "true", "yes", "on"):
        return True
    raise SettingsError(f"`{name}` is `{text}`; it must be `1` or `0`", span=None)
