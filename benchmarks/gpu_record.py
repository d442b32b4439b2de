"""What records of a GPU share: date, commit, hardware, versions, a file of their own, and what is printed without."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.environment import ROOT, describe
from tessera.runtime.devices.cuda.assembler import assembler
from tessera.runtime.devices.cuda.driver import driver, is_available

RESULTS = ROOT / "benchmarks" / "results"
ABSENT = 2
"""The exit status where what is asked for cannot be had here: no GPU, or a tool that is missing."""


def options(name: str, description: str | None) -> argparse.ArgumentParser:
    """The command line that all have: where the record goes, and which parts are wanted."""
    found = argparse.ArgumentParser(prog=f"python -m benchmarks.gpu {name}", description=description)
    found.add_argument("--out", type=Path, default=RESULTS / f"gpu-{name}.json", help="the file that is written")
    found.add_argument("--only", default="", help="names of some parts, separated by commas; all where there are none")
    return found


def chosen(only: str, names: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The parts that `--only` names, in their own order; leaves with a usage error where one is unknown."""
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: the parts are {', '.join(names)}")
    return [name for name in names if not wanted or name in wanted]


def absent(reason: str) -> NoReturn:
    """Say why nothing runs, and leave."""
    print(reason, file=sys.stderr)
    raise SystemExit(ABSENT)


def need_gpu() -> None:
    """Leave where there is no GPU."""
    if not is_available():
        absent("there is no NVIDIA GPU here: nothing was measured, and nothing written")


def need_torch() -> Any:
    """PyTorch, for its events; leaves where it is not, as it is no dependency."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        absent("there is no torch here, whose events are the clock: nothing was measured, and nothing written")


def need_tool(name: str) -> str:
    """Where a tool is; leaves where it is not."""
    found = shutil.which(name)
    if found is None:
        absent(f"there is no `{name}` on the PATH: nothing was measured, and nothing written")
    return found


def version_of(tool: str) -> str:
    """The last line that a tool says of its version."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[-1] if lines else "unknown"


def facts(tools: Sequence[str] = ()) -> dict[str, Any]:
    """Where a record was made: commit, CPU, GPU, and versions of everything that took part."""
    found = describe()
    if is_available():
        cuda = driver()
        found["hardware"]["gpu"] = cuda.name
        found["hardware"]["architecture"] = cuda.architecture
        found["versions"]["driver"] = cuda.version
    made_by = assembler()
    for tool in (*([made_by] if made_by else []), *tools):
        found["versions"][Path(tool).name] = version_of(tool)
    return found


def write(out: Path, values: Mapping[str, Any], tools: Sequence[str] = ()) -> None:
    """A record to its file, with where it was made."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**facts(tools), **values}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {out}")
