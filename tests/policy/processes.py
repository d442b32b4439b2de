"""One script in three processes: cold, warm, and cold elsewhere, each with other hashes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed_in_processes(script: str, folder: Path, threads: tuple[str, str, str] | None = None) -> list[str]:
    """What the script prints in each of them, which may be told how many threads they have."""
    found: list[str] = []
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    for at, name in enumerate(("one", "one", "two")):
        own = {"TESSERA_CACHE_DIR": str(folder / name), "PYTHONHASHSEED": str(at + 1), "PYTHONPATH": path}
        if threads is not None:
            own["TESSERA_NUM_THREADS"] = threads[at]
        run = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found.append(run.stdout.strip())
    return found
