"""Processes that measure drawn programs: started again where a program ends one, and side by side on a GPU.

Most of a row's time is compilation, ours and torch.compile's, which needs no GPU. So several processes get programs
ready at once, and a lock on a file lets one of them at a time compare results and take times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.result import OURS

Row = dict[str, Any]
DEAD = 3.0
"""A program that gives no sign for so many times its seconds is ended with its process; of several processes each may
wait for all others, which have as long at the device."""


def _start(asked: argparse.Namespace, given: Sequence[str], errors: Path) -> subprocess.Popen[str]:
    """This program in a process of its own, with more arguments; what it says as it fails goes to a file."""
    variables = dict(os.environ)
    if asked.device == "cpu":
        variables |= environment.thread_variables(asked.threads)
    # Compilers in more processes would take the cores of what is measured, and of the other processes.
    variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    paths = (str(environment.ROOT), os.environ.get("PYTHONPATH"))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, "-m", "benchmarks.drawn", *sys.argv[1:], *given]
    with errors.open("w", encoding="utf-8") as file:
        return subprocess.Popen(command, env=variables, cwd=environment.ROOT, stderr=file, text=True)


class Watch:
    """A child process and the rows that it writes; it is ended where a program takes too long."""

    def __init__(
        self, asked: argparse.Namespace, numbers: range, avoid: Sequence[str], folder: Path, until: float
    ) -> None:
        first = numbers.start
        self.file, self.until = folder / f"{first}-{len(avoid)}.jsonl", until
        self.patience = DEAD * asked.program_s * asked.jobs
        self.file.touch()
        given = ["--first", str(first), "--count", str(len(numbers)), "--step", str(numbers.step)]
        given += ["--child", str(self.file), "--avoid", ",".join(avoid)]
        self.errors = self.file.with_suffix(".txt")
        self.process = _start(asked, given, self.errors)
        self.current: Row = {}
        self.contender = OURS

    def rows(self) -> Iterator[Row]:
        """Rows as they are written, until the child ends or is ended."""
        heard, last = 0, time.monotonic()
        while True:
            ended = self.process.poll() is not None
            # What stands behind the last end of a line is still being written.
            lines = self.file.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
            for text in lines[heard:]:
                values, last = json.loads(text), time.monotonic()
                event = values.pop("event")
                if event == "contender":
                    self.contender = values["name"]
                elif event == "start":
                    self.current = values
                else:
                    self.current, self.contender = {}, OURS
                    yield values
            heard = len(lines)
            if ended:
                return
            now = time.monotonic()
            if now > self.until or now - last > self.patience:
                self.process.kill()
                self.process.wait()
                return
            time.sleep(0.1)

    def reason(self) -> str:
        """Why the child ended in the middle of a program."""
        said = self.errors.read_text(encoding="utf-8").strip().splitlines()
        if self.process.returncode == -9:
            return f"gave no sign for {self.patience:g} s, and was ended"
        return f"the process ended with {self.process.returncode}: {said[-1] if said else ''}"


def run_numbers(
    asked: argparse.Namespace, numbers: range, until: float, folder: Path, say: Callable[[Row], None]
) -> None:
    """Some programs, in as many processes as it takes; a peer that ends one is left out of that row."""
    avoid = dict[str, str]()

    def add(row: Row) -> None:
        row["skipped"] = {**row.get("skipped", {}), **avoid}
        avoid.clear()
        say(row)

    while numbers and time.monotonic() < until:
        begun = (numbers.start, *avoid)
        watch = Watch(asked, numbers, tuple(avoid), folder, until)
        for row in watch.rows():
            add(row)
            numbers = range(row["number"] + numbers.step, numbers.stop, numbers.step)
        if watch.process.returncode == 0:
            return
        why, name = watch.reason(), watch.contender
        if time.monotonic() < until and watch.current:
            avoid[name] = why
            if name == OURS:
                add({"number": numbers.start, "program": watch.current["program"], "status": "failed"})
                numbers = numbers[1:]
        elif begun == (numbers.start, *avoid):
            print(f"nothing was measured: {why}", file=sys.stderr)
            return


def run_all(asked: argparse.Namespace, until: float, line: Callable[[Row], str]) -> list[Row]:
    """All programs, of which each of `asked.jobs` processes at a time takes every so manieth; rows by number."""
    rows, numbers = list[Row](), range(asked.first, asked.first + asked.count)

    def say(row: Row) -> None:
        rows.append(row)
        print(line(row), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        if asked.jobs > 1:
            sys.argv += ["--lock", str(Path(folder) / "lock")]
        given = [(asked, numbers[at :: asked.jobs], until, Path(folder), say) for at in range(asked.jobs)]
        threads = [threading.Thread(target=run_numbers, args=one) for one in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(rows, key=lambda row: row["number"])
