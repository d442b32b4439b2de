"""Processes that measure drawn programs: who takes which, what happens where one dies, and turns at the device."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.device_lock import alone_at
from benchmarks.drawn import children
from benchmarks.drawn.__main__ import main, options
from benchmarks.drawn.children import run_all

CHILD = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for name in ("first", "count", "step"):
    parser.add_argument(f"--{name}", type=int)
for name in ("child", "avoid", "lock"):
    parser.add_argument(f"--{name}", default="")
given, _ = parser.parse_known_args()
with open(given.child, "a") as file:
    for number in range(given.first, given.first + given.count * given.step, given.step):
        def write(**values):
            file.write(json.dumps(values) + "\\n")
            file.flush()
        write(event="start", number=number, program=f"p{number}")
        write(event="contender", name="tessera")
        if number == 4:
            os._exit(3)
        write(event="contender", name="torch")
        if number == 5 and "torch" not in given.avoid:
            os._exit(7)
        write(event="row", number=number, program=f"p{number}", status="timed", skipped={})
"""


def _asked(*arguments: str) -> argparse.Namespace:
    return options().parse_args(["--device", "cuda", *arguments])


def _start(asked: argparse.Namespace, given: Sequence[str], errors: Path) -> subprocess.Popen[str]:
    errors.write_text("a warning\nthe end\n", encoding="utf-8")
    return subprocess.Popen([sys.executable, "-c", CHILD, *given], text=True)


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_program_is_a_row_whoever_dies(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_start", _start)
    monkeypatch.setattr(sys, "argv", ["drawn"])
    asked = _asked("--first", "2", "--count", "7", "--jobs", str(jobs))
    rows = run_all(asked, time.monotonic() + 60, lambda row: f"{row['number']} {row['status']}")
    assert [row["number"] for row in rows] == list(range(2, 9))
    by_number: dict[int, dict[str, Any]] = {row["number"]: row for row in rows}
    assert by_number[4]["status"] == "failed"
    assert "ended with 3: the end" in by_number[4]["skipped"]["tessera"]
    assert by_number[5]["status"] == "timed"
    assert "ended with 7" in by_number[5]["skipped"]["torch"]
    assert all(not by_number[number]["skipped"] for number in (2, 3, 6, 7, 8))


def test_turns_do_not_overlap(tmp_path: Path) -> None:
    """Each process writes as it begins and as it ends; between the two nobody else writes."""
    log, lock = tmp_path / "log", tmp_path / "lock"
    log.touch()
    script = (
        "import sys, time, pathlib\n"
        "from benchmarks.device_lock import alone_at\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "for at in range(3):\n"
        "    with alone_at(pathlib.Path(sys.argv[2])):\n"
        "        for word in ('begin', 'end'):\n"
        "            with log.open('a') as file: file.write(f'{word} {sys.argv[3]} {at}\\n')\n"
        "            time.sleep(0.02)\n"
    )
    command = [sys.executable, "-c", script, str(log), str(lock)]
    processes = [subprocess.Popen([*command, str(who)], cwd=Path(__file__).parents[2]) for who in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 18
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert begin.startswith("begin ")
        assert end == begin.replace("begin", "end")


def test_a_turn_ends_though_a_forked_process_has_the_file(tmp_path: Path) -> None:
    """As workers that were forked within it do: they live on, and hold what they inherited."""
    lock = tmp_path / "lock"
    with alone_at(lock):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with lock.open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("jobs", [1, 4])
def test_who_waits_for_the_others_is_not_dead(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the others may be at the device as long as a program may."""
    monkeypatch.setattr(children, "_start", _start)
    asked = _asked("--program-s", "7", "--jobs", str(jobs))
    watch = children.Watch(asked, range(1, 2), (), tmp_path, time.monotonic() + 60)
    watch.process.wait()
    assert watch.patience == children.DEAD * 7 * jobs


def test_without_a_lock_nobody_waits() -> None:
    with alone_at(None), alone_at(None):
        pass


def test_a_cpu_is_measured_by_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--jobs", "2"])
    assert "a CPU is measured by one process" in capsys.readouterr().err
