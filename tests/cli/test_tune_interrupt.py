"""Ctrl-C while `tessera tune` measures: it ends soon, says so, and keeps the best so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = """
import tessera as ts

@ts.jit
def forward(x: ts.Tensor[512, 96, ts.f32], y: ts.Tensor[256, 80, ts.f32]):
    return ts.ops.sum(x * 2.0, axis=0), ts.ops.sum(ts.ops.exp(y), axis=0), ts.ops.tanh(x) * 3.0
"""
COMMAND = "from tessera.cli.main import app; app()"


def test_ctrl_c_ends_the_groups_and_the_program(tmp_path: Path) -> None:
    (tmp_path / "interrupted_here.py").write_text(MODULE)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))),
        "TESSERA_CACHE_DIR": str(tmp_path / "cache"),
        "COLUMNS": "200",
    }
    arguments = ["tune", "interrupted_here:forward", "--mode", "exhaustive", "--budget", "300"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments, "--output", str(tmp_path / "report")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    lines: list[str] = []
    while not any(" of " in line and " plan" in line for line in lines):  # a first plan of a group was measured
        line = process.stderr.readline()
        assert line, lines
        lines.append(line)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all processes of the command
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert time.monotonic() - start < 60.0
    assert ", ended by the user, " in output
    assert "plan: " in output
    assert "no time was left for it" in output, "groups that were not reached say so"
    report = (tmp_path / "report" / "report.txt").read_text()
    assert "ended by the user" in report
    assert "fusion." not in output, "no choice of the whole program was tried"
    assert "Traceback" not in output + errors
