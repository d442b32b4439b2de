"""The page from one laptop to a cluster: its commands run one after the other, each from the last one's checkpoint."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.ranks.launchers import ROOT, find_mpiexec

PAGE = ROOT / "docs" / "guide" / "clusters.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOSSES = re.compile(r"steps (\d+) to (\d+), loss ([\d.]+) -> ([\d.]+)")


def commands() -> list[str]:
    return [line for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines()]


def run(command: str, folder: Path) -> str:
    """Run a command of the page with this Python, and with its files in a folder."""
    programs = {"python": [sys.executable], "tessera": [sys.executable, "-m", "tessera"], "mpiexec": [find_mpiexec()]}
    words = [word for one in shlex.split(command) for word in programs.get(one, [one])]
    words = [word.replace("build/", f"{folder}/") for word in words]
    if "plan" not in words:
        words += ["--folder", str(folder / "cluster")]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_commands_of_the_page_go_on_from_each_other(tmp_path: Path) -> None:
    found = commands()
    assert [one.split()[0] for one in found] == ["python", "tessera", "mpiexec", "tessera"]
    trained = [LOSSES.search(run(one, tmp_path)) for one in found[:3]]
    steps = [(int(one[1]), int(one[2])) for one in trained if one is not None]
    losses = [float(one[at]) for one in trained if one is not None for at in (3, 4)]
    assert steps == [(0, 4), (4, 8), (8, 12)]
    assert losses == sorted(losses, reverse=True), "what was learned on one mesh is lost on the next"


def test_a_cluster_is_planned_by_the_command_of_the_page(tmp_path: Path) -> None:
    assert "MFU" in run(commands()[-1], tmp_path)
    assert "<html" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_a_mesh_of_other_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"T0712.*ranks"):
        run("mpiexec -n 2 python examples/cluster.py --mesh dp=3", tmp_path)
