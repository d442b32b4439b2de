"""Ten thousand random systems against all sizes and z3, and ten thousand programs against the reference, with a record.

    python -m tests.trials.ten_thousand systems --count 10000 --record benchmarks/results/trial-systems.json
    python -m tests.trials.ten_thousand programs --count 10000 --record benchmarks/results/trial-programs.json

Tests run the first hundreds of both; a record says when all of them ran, of which commit, and how they ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from tessera.types.constraint import ConstraintSolver
from tests.policy.programs import POLICIES, random_program
from tests.policy.test_bits import BATCH, check_together
from tests.types.systems import random_system
from tests.types.test_constraint import check, check_by_z3

Failures = list[dict[str, Any]]


def try_systems(seeds: Sequence[int], failures: Failures) -> Iterator[str]:
    """The verdict of each system, compared with trying all small sizes and with z3."""
    for seed in seeds:
        system = random_system(seed)
        start = time.process_time()
        ConstraintSolver(system.rules)
        took = time.process_time() - start
        try:
            verdict = check(system)
            check_by_z3(system)
        except AssertionError as problem:
            failures.append({"seed": seed, "problem": str(problem)})
            yield "failed"
            continue
        yield "slower than a second" if took > 1 else "contradiction" if verdict is None else str(verdict.value)


def try_programs(seeds: Sequence[int], failures: Failures) -> Iterator[str]:
    """The policy of each program, compared with the reference to the last bit."""
    for first in range(0, len(seeds), BATCH):
        some = seeds[first : first + BATCH]
        try:
            check_together([random_program(seed) for seed in some])
        except Exception as problem:
            failures.append({"seeds": list(some), "problem": f"{type(problem).__name__}: {problem}"[:2000]})
            yield from ("failed" for _ in some)
            continue
        yield from (POLICIES[seed % len(POLICIES)].rounding or "nearest" for seed in some)


TRIALS: dict[str, Callable[[Sequence[int], Failures], Iterator[str]]] = {
    "systems": try_systems,
    "programs": try_programs,
}


def run(
    trial: str, count: int, first: int = 0, write: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """What a record holds: where, when, how many, how they ended, and every failure; `write` gets it as it grows."""
    start, failures, results = time.monotonic(), Failures(), Counter[str]()

    def make_record() -> dict[str, Any]:
        seconds = round(time.monotonic() - start, 1)
        found = {"trial": trial, "first": first, "count": sum(results.values()), "seconds": seconds}
        return {**described, **found, "results": dict(sorted(results.items())), "failures": failures}

    described = environment.describe()
    for number, result in enumerate(TRIALS[trial](range(first, first + count), failures), 1):
        results[result] += 1
        if write is not None and (number % 100 == 0 or number == count):
            print(f"{number}/{count} {time.monotonic() - start:.0f} s, {len(failures)} failures", flush=True)
            write(make_record())
    return make_record()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a trial, print its figures, write its record; 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trial", choices=sorted(TRIALS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--record", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)

    def write(record: Any) -> None:
        if given.record:
            given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    record = run(given.trial, given.count, given.first, write)
    print(json.dumps(record, indent=1))
    return int(bool(record["failures"]))


if __name__ == "__main__":
    sys.exit(main())
