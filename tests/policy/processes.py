"""One script in three processes: cold, warm, and cold elsewhere, each with other hashes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed_in_processes(script: str, folder: Path) -> list[str]:
    """What the script prints in each of them."""
    found: list[str] = []
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    for name, seed in (("one", "1"), ("one", "2"), ("two", "3")):
        own = {"TESSERA_CACHE_DIR": str(folder / name), "PYTHONHASHSEED": seed, "PYTHONPATH": path}
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
