"""Where a result was made: CPU, versions, commit, and how busy other processes keep the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PACKAGES = ("tessera", "numpy", "torch", "jax", "jaxlib", "llvmlite", "xdsl", "ml_dtypes")


def describe() -> dict[str, Any]:
    """Everything a reader needs to judge a result, as plain values."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "changed_files": len((_git("status", "--porcelain", "--untracked-files=no") or "").splitlines()),
        "hardware": hardware(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def hardware() -> dict[str, Any]:
    """The CPU as it names itself, its cores, caches and memory."""
    facts = _colon_pairs(Path("/proc/cpuinfo"))
    memory = _colon_pairs(Path("/proc/meminfo")).get("MemTotal", "0 kB").split()[0]
    flags = facts.get("flags", "").split()
    widest = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "avx") if name in flags), "none")
    return {
        "processor": facts.get("model name", platform.processor()),
        "model": f"family {facts.get('cpu family', '?')} model {facts.get('model', '?')}",
        "cores": os.cpu_count(),
        "vectors": widest,
        "caches": _caches(),
        "memory_gib": round(int(memory) / 2**20),
        "huge_pages": _text(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that take part, where they are installed."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _colon_pairs(file: Path) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in reversed(_text(file).splitlines()) if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _caches() -> str:
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    return ", ".join(f"L{_text(f / 'level')}{_text(f / 'type')[:1].lower()} {_text(f / 'size')}" for f in folders)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


_THREAD_VARIABLES = (
    "TESSERA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NPROC",  # the pool of XLA's CPU client
)


def thread_variables(threads: int) -> dict[str, str]:
    """Environment that holds every library to a number of threads; libraries read it when they are loaded."""
    eigen = "true" if threads > 1 else "false"
    flags = f"--xla_cpu_multi_thread_eigen={eigen} intra_op_parallelism_threads={threads}"
    return {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def pin(threads: int) -> list[int]:
    """Keep this process on as many CPUs as it may use threads, the last ones first: the first serves interrupts."""
    allowed = sorted(os.sched_getaffinity(0))[-threads:]
    os.sched_setaffinity(0, allowed)
    return allowed


@dataclass(frozen=True)
class Moment:
    """Wall time, the CPU time of this process, and that of the whole machine, in seconds."""

    wall: float
    own: float
    machine: float

    @staticmethod
    def now() -> Moment:
        """The clocks as they stand."""
        ticks = os.sysconf("SC_CLK_TCK")
        fields = _text(Path("/proc/stat")).partition("\n")[0].split()[1:]
        # user, nice, system, irq, softirq, steal: all that is not idle or waiting for a disk.
        busy = sum(int(fields[index]) for index in (0, 1, 2, 5, 6, 7)) / ticks if len(fields) > 7 else 0.0
        return Moment(time.perf_counter(), time.process_time(), busy)

    def disturbance(self, later: Moment) -> float:
        """Share of the machine that other processes took between two moments."""
        elapsed = (later.wall - self.wall) * (os.cpu_count() or 1)
        # The machine counts in ticks: up to one at each end says nothing.
        slack = 2 / os.sysconf("SC_CLK_TCK")
        others = (later.machine - self.machine) - (later.own - self.own) - slack
        return max(0.0, others / elapsed) if elapsed > 0 else 0.0
