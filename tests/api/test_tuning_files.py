"""Files of tuned schedules: many processes add to one, and nothing that one of them chose is lost or torn."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Stands for a kernel: all that the file needs to know of it is its name.
TUNER = """
    import sys, time
    from types import SimpleNamespace
    from tessera.api.tuning import Tuning
    from tessera.types.schedule import Schedule

    folder, number, start = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    tuning, kernel = Tuning({"BM": [8, 16]}, "latency_ms", 1.0, folder), SimpleNamespace(name="k")
    time.sleep(max(0.0, start - time.time()))
    for turn in range(5):
        tuning._store(kernel, f"{number} {turn}", Schedule(stages=1 + number))
        found = tuning._stored(kernel)
        assert found[f"{number} {turn}"]["stages"] == 1 + number, found
"""


def test_32_processes_keep_what_each_has_chosen(tmp_path: Path) -> None:
    start, program = str(time.time() + 2.0), textwrap.dedent(TUNER)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(n), start], stderr=subprocess.PIPE, cwd=ROOT
        )
        for n in range(32)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [error for error in errors if error] == []
    assert [process.returncode for process in processes] == [0] * 32
    stored = json.loads((tmp_path / "k.json").read_text())
    assert len(stored) == 32 * 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.json", "k.json.lock"]
