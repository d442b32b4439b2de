"""`python -m benchmarks.drawn`: programs drawn at random from all public ops, against the best peer.

Programs are measured in a process of their own, which is started again where one ends it or never comes back; on a
GPU in several, which compile side by side and take turns at the device.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.drawn.children import run_all
from benchmarks.drawn.draw import NothingDrawnError, draw_program
from benchmarks.drawn.measure import Bench, measure
from benchmarks.drawn.report import line, summary
from benchmarks.drawn.sizes import Limits
from benchmarks.gpu_record import facts, need_gpu
from benchmarks.harness import Plan
from benchmarks.result import OURS

CHOICES = ("all", "op", "function", "fusion", "model", "gemm", "attention")
BYTES = {"cpu": 2.0**28, "cuda": 2.0**32}
FLOPS = {"cpu": 2.0**34, "cuda": 2.0**43}


def options() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.drawn", description=__doc__)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--count", type=int, default=50, help="programs to draw")
    found.add_argument("--kind", default="all", choices=CHOICES)
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
    found.add_argument("--jobs", type=int, default=1, help="processes that take turns at a GPU")
    found.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    found.add_argument("--lock", type=Path, default=None, help=argparse.SUPPRESS)
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
    return Bench(asked.device, torch, jax, plan, asked.program_s, wanted, asked.lock)


def run_here(asked: argparse.Namespace) -> None:
    """Measure programs one after the other; each is written as it begins and as it is done."""
    bench, parent = _bench(asked), os.getppid()
    with asked.child.open("a", encoding="utf-8") as file:

        def write(**values: Any) -> None:
            file.write(json.dumps(values) + "\n")
            file.flush()

        for number in range(asked.first, asked.first + asked.count * asked.step, asked.step):
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, measure, print and write."""
    parser = options()
    asked = parser.parse_args(arguments)
    if asked.jobs < 1 or (asked.jobs > 1 and asked.device == "cpu"):
        parser.error(f"--jobs {asked.jobs}: a CPU is measured by one process, a GPU by one or more that take turns")
    if asked.child is not None:
        run_here(asked)
        return
    if asked.device == "cuda":
        need_gpu()
    for name in ("torch", "jax") if asked.device == "cpu" else ("torch",):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: its rows are missing")
    begun = time.monotonic()
    rows = run_all(asked, begun + (asked.limit_s or 1e9), line)
    print(summary(rows, asked.count))
    if asked.out is not None:
        given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(asked).items()}
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(
            json.dumps({**facts(), "settings": given, "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
