"""What a program does in a fresh process, counted: modules, processes, texts compiled, entries read and written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HARNESS = """
import gc, json, os, sys
events, found = [], dict(texts=0, processes=0, reads=0, writes=0, collections=0)
is_on = False

def watch(event, arguments):
    if not is_on:
        return
    if event == "compile" and arguments[1] == "<string>":
        found["texts"] += 1
    elif event == "subprocess.Popen":
        found["processes"] += 1
        events.append("process")
    elif event == "import" and arguments[0] in ("xdsl", "llvmlite"):
        events.append(arguments[0])
    elif event == "open" and str(arguments[0]).endswith(".entry"):
        found["reads"] += 1
    elif event == "os.rename" and str(arguments[1]).endswith(".entry"):
        found["writes"] += 1

def collected(phase, information):
    if is_on and phase == "start" and information["generation"] == 2:
        found["collections"] += 1

sys.addaudithook(watch)
gc.callbacks.append(collected)
{setting}
before, is_on = set(sys.modules), True
{program}
is_on = False
found["modules"] = sorted(set(sys.modules) - before)
print(json.dumps({{**found, "events": events}}))
"""


@dataclass(frozen=True)
class Counts:
    """What a program did; `events` are the processes it started and the libraries it began to load, in order."""

    modules: list[str]
    texts: int
    processes: int
    reads: int
    writes: int
    collections: int
    events: list[str]

    @property
    def own(self) -> list[str]:
        """The modules of ours among all that were loaded."""
        return [name for name in self.modules if name.split(".", 1)[0] == "tessera"]


def count_work(setting: str, program: str, cache: Path, environment: Mapping[str, str] | None = None) -> Counts:
    """Run two programs in one fresh process, and count what the second one does."""
    done = subprocess.run(
        [sys.executable, "-c", _HARNESS.format(setting=setting, program=program)],
        env={**os.environ, "TESSERA_CACHE_DIR": str(cache), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Counts(**json.loads(done.stdout))
