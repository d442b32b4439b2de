"""`tessera-opt` on hostile text: mutated modules through every pass, none may hang, crash or blame the compiler.

    python -m tests.trials.hostile_text 20000 --seed 1 --jobs 2

prints what became of the texts, and every failure with the text that caused it (`--keep` names their folder).
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tessera.cli import opt
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.passes import pass_modules
from tests.trials.mutate_text import ROOT, Seed, load_seeds, mutate

SECONDS = 2.0
"""Processor seconds that one text may take: wall time would count the neighbours on a shared machine."""
MEMORY = 4 << 30
_HEAD = re.compile(r"error\[T\d{4}\]: .+")
_STAGE_PASSES = {
    "tgraph": "graph-|schedule-form",
    "tsched": "schedule-",
    "ttile": "tile-|nvptx-|cpu-",
    "ttarget": "target-|nvptx-|cpu-",
}


class TooSlow(BaseException):
    """A text took longer than it may; no `except Exception` on the way stops it."""


def _interrupt(_signal: int, _frame: object) -> None:
    raise TooSlow


def draw(number: int, seed: int) -> tuple[Seed, str, list[str], list[str]]:
    """Case `number` of a campaign: a seed, its mutated text, the changes, and the arguments of the command."""
    rng = random.Random(f"{seed}/{number}")
    origin = rng.choice(load_seeds())
    text, changes = mutate(origin.text, rng)
    return origin, text, changes, draw_arguments(origin, rng)


def draw_arguments(origin: Seed, rng: random.Random) -> list[str]:
    """No pass, the passes of the seed's own RUN lines, or any passes of its stage or of all."""
    kind = rng.random()
    if kind < 0.2:
        return rng.choice(([], ["--print-generic"], ["--print-locations"], ["--verify"], ["--split"]))
    if kind < 0.6 and origin.pipelines:
        return [part for text in origin.pipelines[: rng.choice((1, 2, 9))] for part in ("-p", text)]
    if kind < 0.65:
        return [f"-{rng.choice(tuple(opt.ALIASES))}"]
    dialect = re.search(r"\bt(?:graph|sched|tile|target)\b", origin.text)
    prefix = _STAGE_PASSES[dialect.group()] if dialect and kind < 0.95 else ""
    names = [name for name in pass_modules() if re.match(prefix, name)]
    return ["-p", ",".join(rng.sample(names, rng.choice((1, 1, 2, 3))))]


def judge_text(text: str, arguments: Sequence[str]) -> tuple[str, str]:
    """What became of a text (`ok`, an error's code, `fault`), and for a fault what is wrong with that."""
    output, errors = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        status = opt.run(arguments, io.StringIO(text), output, errors)
    except TooSlow:
        return "fault", f"slow: over {SECONDS} s\n{''.join(traceback.format_exc().splitlines(keepends=True)[-12:])}"
    except BaseException:
        return "fault", traceback.format_exc()[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return judge(status, errors.getvalue())


def judge(status: int, errors: str) -> tuple[str, str]:
    """Whether a status and what was said with it are of the documented ones."""
    if status == opt.OK:
        return ("ok", "") if not errors else ("fault", f"status 0 with errors: {errors}")
    if status == opt.USAGE and errors.startswith("tessera-opt: "):
        return "usage", ""
    heads = [line for line in errors.splitlines() if _HEAD.match(line)]
    if status != opt.USER_ERROR or not heads:
        return "fault", f"status {status}: {errors}"
    if "--> " not in errors:
        return "fault", f"no position: {errors}"
    if "Traceback" in errors or "internal error" in errors:
        return "fault", errors
    return heads[0][6:11], ""


def prepare() -> None:
    """Limits of this process, and all dialects loaded, so that no case pays for that."""
    signal.signal(signal.SIGPROF, _interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    load_dialects()
    load_seeds()
    for name in pass_modules():
        opt.find_pass(name)


def run_cases(numbers: Sequence[int], seed: int) -> collections.Counter[str]:
    """Run some cases in this process; faults are printed as JSON lines."""
    prepare()
    counts: collections.Counter[str] = collections.Counter()
    for number in numbers:
        origin, text, changes, arguments = draw(number, seed)
        print(json.dumps({"at": number}), flush=True)
        started = time.process_time()
        kind, fault = judge_text(text, arguments)
        counts[kind] += 1
        seconds = time.process_time() - started
        if fault:
            told = {"number": number, "seed": origin.name, "changes": changes, "arguments": arguments, "fault": fault}
            print(json.dumps({**told, "seconds": seconds, "text": text}), flush=True)
    return counts


def run_command(number: int, seed: int) -> str:
    """One case through the real command, its text as bytes on standard input; the fault, or nothing."""
    _, text, _, arguments = draw(number, seed)
    command = [sys.executable, "-m", "tessera.cli.opt", *arguments]
    data = text.encode("utf-8", "surrogateescape")
    done = subprocess.run(command, input=data, capture_output=True, cwd=ROOT, check=False, timeout=60)
    return judge(done.returncode, done.stderr.decode())[1]


def _collect(workers: Sequence[subprocess.Popen[str]], keep: Path | None) -> tuple[collections.Counter[str], int]:
    """What all workers said; one that died counts as a fault at the case it was at."""
    counts: collections.Counter[str] = collections.Counter()
    faults = 0
    for worker in workers:
        output, _ = worker.communicate()
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        found = [line for line in lines if "fault" in line]
        if worker.returncode != 0:
            at = [line["at"] for line in lines if "at" in line][-1:]
            found.append({"number": at, "fault": f"worker died with {worker.returncode}", "text": ""})
        for line in lines:
            counts.update(line.get("counts", {}))
        for fault in found:
            faults += 1
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{fault['number']}.json").write_text(json.dumps(fault, indent=1))
            print(f"case {fault['number']}: {fault['fault'].strip().splitlines()[-1][:200]}")
    return counts, faults


def main() -> int:
    """Run a campaign in some processes; 1 where a text did what it must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--commands", type=int, default=0, help="how many of the texts also go through the command")
    parser.add_argument("--keep", type=Path, help="folder for the texts of faults")
    parser.add_argument("--part", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part >= 0:
        counts = run_cases(range(given.part, given.count, given.jobs), given.seed)
        print(json.dumps({"counts": counts}))
        return 0
    command = [sys.executable, "-m", "tests.trials.hostile_text", str(given.count), "--seed", str(given.seed)]
    started = time.perf_counter()
    workers = [
        subprocess.Popen([*command, "--jobs", str(given.jobs), "--part", str(part)], stdout=subprocess.PIPE, text=True)
        for part in range(given.jobs)
    ]
    counts, faults = _collect(workers, given.keep)
    for number in range(given.commands):
        if fault := run_command(number, given.seed):
            faults += 1
            print(f"command, case {number}: {fault.splitlines()[0]}")
    told = ", ".join(f"{kind} {count}" for kind, count in counts.most_common())
    print(f"{counts.total()} texts, {given.commands} commands, {faults} faults, {time.perf_counter() - started:.0f} s")
    print(told)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
