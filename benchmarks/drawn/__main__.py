"""`python -m benchmarks.drawn`: programs drawn at random from all public ops, against the best peer.

Programs are measured in a process of their own, which is started again where one ends it or never comes back.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.drawn.draw import NothingDrawnError, draw_program
from benchmarks.drawn.measure import Bench, measure, time_limit
from benchmarks.drawn.peers import Side
from benchmarks.drawn.report import line, summary
from benchmarks.drawn.sizes import Limits
from benchmarks.gpu_record import facts, need_gpu
from benchmarks.harness import Plan
from benchmarks.result import OURS

BYTES = {"cpu": 2.0**28, "cuda": 2.0**32}
FLOPS = {"cpu": 2.0**34, "cuda": 2.0**43}
DEAD = 3.0
"""A program that gives no sign for so many times its seconds is ended with its process."""


def options() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.drawn", description=__doc__)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--count", type=int, default=50, help="programs to draw")
    found.add_argument("--kind", default="all", choices=("all", "op", "fusion", "model", "gemm", "attention"))
    found.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    found.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of a CPU")
    found.add_argument("--peers", default="", help="only these: numpy, torch, torch.compile, jax, cudnn, flash")
    found.add_argument("--bytes", type=float, default=0.0, help="of arguments and results of one program at most")
    found.add_argument("--flops", type=float, default=0.0, help="of one program at most")
    found.add_argument("--rounds", type=int, default=7)
    found.add_argument("--program-s", type=float, default=60.0, help="seconds for one contender to get ready")
    found.add_argument("--limit-s", type=float, default=0.0, help="seconds for everything; no limit where 0")
    found.add_argument("--tf32", action="store_true", help="let torch round f32 matmuls to tf32")
    found.add_argument("--first", type=int, default=0, help="the number of the first program")
    found.add_argument("--out", type=Path, default=None, help="a JSON file of all rows")
    found.add_argument(
        "--jobs", type=int, default=1, help="processes that compile all programs before the first is timed"
    )
    found.add_argument("--warm", default="", help=argparse.SUPPRESS)
    found.add_argument("--child", type=Path, default=None, help=argparse.SUPPRESS)
    found.add_argument("--avoid", default="", help=argparse.SUPPRESS)
    return found


def limits_of(asked: argparse.Namespace) -> Limits:
    """What one program may take."""
    return Limits(asked.bytes or BYTES[asked.device], asked.flops or FLOPS[asked.device])


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _bench(asked: argparse.Namespace) -> Bench:
    """The libraries, set up."""
    if asked.device == "cpu":
        environment.pin(asked.threads)
    torch, jax = _import("torch"), _import("jax") if asked.device == "cpu" else None
    if torch is not None:
        torch.set_num_threads(asked.threads)
        torch.backends.cuda.matmul.allow_tf32 = asked.tf32
        if asked.device == "cuda":
            torch.set_default_device("cuda")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
    plan = Plan(asked.threads, rounds=asked.rounds, seconds=0.5, pause=0.02, seed=asked.seed)
    wanted = tuple(name for name in asked.peers.split(",") if name)
    return Bench(asked.device, torch, jax, plan, asked.program_s, wanted)


def compile_here(asked: argparse.Namespace) -> None:
    """Bring every so manieth program into the caches of compiled code, ours and torch's, and measure nothing."""
    at, jobs = map(int, asked.warm.split("/"))
    bench = _bench(asked)
    for number in range(asked.first + at, asked.first + asked.count, jobs):
        try:
            program = draw_program(asked.seed, number, asked.kind, limits_of(asked))
            offers = Side(program, bench.device, bench.torch, bench.jax, bench.peers).offers()
            for name in (OURS, "torch.compile"):
                if name in offers:
                    with time_limit(asked.program_s):
                        offers[name]().run()
        except Exception as error:  # where it is measured, it is a row
            print(f"program {number} is not compiled ahead: {type(error).__name__}", file=sys.stderr)


def compile_ahead(asked: argparse.Namespace) -> None:
    """Compile all programs in several processes, for half of the time at most: a GPU that waits costs as much."""
    end = time.monotonic() + (asked.limit_s / 2 or 1e9)
    jobs = [_start(asked, ["--warm", f"{at}/{asked.jobs}"], subprocess.DEVNULL) for at in range(asked.jobs)]
    for job in jobs:
        try:
            job.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _start(asked: argparse.Namespace, given: Sequence[str], stderr: int) -> subprocess.Popen[str]:
    """This program in a process of its own, with more arguments."""
    variables = dict(os.environ)
    if asked.device == "cpu":
        # Compilers in processes of their own would take the cores that are measured.
        variables |= environment.thread_variables(asked.threads) | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    paths = (str(environment.ROOT), os.environ.get("PYTHONPATH"))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, "-m", "benchmarks.drawn", *sys.argv[1:], *given]
    return subprocess.Popen(command, env=variables, cwd=environment.ROOT, stderr=stderr, text=True)


def run_here(asked: argparse.Namespace) -> None:
    """Measure programs one after the other; each is written as it begins and as it is done."""
    bench, parent = _bench(asked), os.getppid()
    with asked.child.open("a", encoding="utf-8") as file:

        def write(**values: Any) -> None:
            file.write(json.dumps(values) + "\n")
            file.flush()

        for number in range(asked.first, asked.first + asked.count):
            try:
                program = draw_program(asked.seed, number, asked.kind, limits_of(asked))
            except NothingDrawnError as reason:
                write(event="row", number=number, program="", status="not drawn", reason=str(reason))
                continue
            if os.getppid() != parent:
                return  # nobody reads what is written
            write(event="start", number=number, program=program.name)
            try:
                avoid = tuple(asked.avoid.split(",")) if number == asked.first else ()
                row = measure(program, bench, lambda name: write(event="contender", name=name), avoid)
            except Exception as error:  # whatever a program does is a row, and the next one is measured
                why = {OURS: f"{type(error).__name__}: {error}"[:300]}
                row = {"program": program.name, "kind": program.kind, "status": "failed", "skipped": why}
            write(event="row", number=number, **row)
            if _is_broken(bench.torch, asked.device):
                raise SystemExit(f"the device is gone after {program.name}")


def _is_broken(torch: Any, device: str) -> bool:
    """Whether an error of the device stays with this process."""
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return True
    return False


class Watch:
    """A child process and the rows that it writes; it is ended where a program takes too long."""

    def __init__(self, asked: argparse.Namespace, first: int, avoid: Sequence[str], folder: Path, until: float) -> None:
        self.file, self.until, self.patience = folder / f"{first}-{len(avoid)}.jsonl", until, DEAD * asked.program_s
        self.file.touch()
        count = asked.first + asked.count - first
        given = ["--first", str(first), "--count", str(count), "--child", str(self.file), "--avoid", ",".join(avoid)]
        self.process = _start(asked, given, subprocess.PIPE)
        self.current: dict[str, Any] = {}
        self.contender = OURS

    def rows(self) -> Iterator[dict[str, Any]]:
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
        if self.process.returncode == -9:
            return f"gave no sign for {self.patience:g} s, and was ended"
        said = (self.process.stderr.read() if self.process.stderr else "").strip().splitlines()
        return f"the process ended with {self.process.returncode}: {said[-1] if said else ''}"


def run_all(asked: argparse.Namespace, until: float) -> list[dict[str, Any]]:
    """All programs, in as many processes as it takes; a peer that ends one is left out of that row."""
    rows: list[dict[str, Any]] = []
    end, first, avoid = asked.first + asked.count, asked.first, dict[str, str]()

    def add(row: dict[str, Any]) -> None:
        row["skipped"] = {**row.get("skipped", {}), **avoid}
        avoid.clear()
        rows.append(row)
        print(line(row), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        while first < end and time.monotonic() < until:
            begun = (first, *avoid)
            watch = Watch(asked, first, tuple(avoid), Path(folder), until)
            for row in watch.rows():
                add(row)
                first = row["number"] + 1
            if watch.process.returncode == 0:
                break
            if time.monotonic() < until and watch.current:
                why, name = watch.reason(), watch.contender
                avoid[name] = why
                if name == OURS:
                    add({"number": first, "program": watch.current["program"], "status": "failed"})
                    first += 1
            elif begun == (first, *avoid):
                print(f"nothing was measured: {watch.reason()}", file=sys.stderr)
                break
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, measure, print and write."""
    asked = options().parse_args(arguments)
    if asked.child is not None or asked.warm:
        (compile_here if asked.warm else run_here)(asked)
        return
    if asked.device == "cuda":
        need_gpu()
    for name in ("torch", "jax") if asked.device == "cpu" else ("torch",):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: its rows are missing")
    begun = time.monotonic()
    if asked.jobs > 1:
        compile_ahead(asked)
        print(f"compiled ahead in {time.monotonic() - begun:.0f} s")
    rows = run_all(asked, begun + (asked.limit_s or 1e9))
    print(summary(rows, asked.count))
    if asked.out is not None:
        given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(asked).items()}
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(
            json.dumps({**facts(), "settings": given, "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
